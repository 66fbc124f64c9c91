// SPDX-License-Identifier: Apache-2.0
#pragma once
// unary: one unary gRPC method of the meta beside us, over h2c without TLS on 127.0.0.1. Each
// call has its own connection, closed with the answer: an idle one can hold up a promotion. At
// most one call is in flight. Owns its curl handles, created by the first call. Private to
// agent/grpc.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/grpc/frame.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"

struct grpc_unary;

// How a call has ended.
struct grpc_unary_end {
    bool is_refused;         // nobody listens: surely nothing was done
    bool has_reply;          // an answer came whole; `reply` says what it is
    struct grpc_reply reply; // borrowed for the callback
    struct instant sent_at;
    const char *detail; // why there is no reply; borrowed
};

// Called from the loop, once for each call that was begun, never from inside grpc_unary_begin.
// May begin the next call.
typedef void grpc_unary_fn(const struct grpc_unary_end *end, void *arg);

struct grpc_unary_config {
    const char *path; // "/package.Service/Method"; a literal
    uint16_t port;
    int64_t timeout_ns; // for the whole call, connect included
    size_t body_max;    // bytes; a longer answer is none
    grpc_unary_fn *on_end;
    void *arg; // borrowed
};

// Allocates nothing in curl yet. Never fails: out of memory aborts.
struct grpc_unary *grpc_unary_new(struct loop *loop, const struct grpc_unary_config *config);
// Gives a call in flight up, without calling back. Accepts NULL. Not from inside on_end.
void grpc_unary_free(struct grpc_unary *unary);

bool grpc_unary_is_busy(const struct grpc_unary *unary);

// Begins a call with a serialized message, which is copied; `now` becomes end.sent_at. Does not
// block. Errors: CONFLICT while one is in flight, TRANSIENT when curl gives no handle.
must_check int grpc_unary_begin(struct grpc_unary *unary, const void *message, size_t len,
                                struct instant now, struct err *err);
