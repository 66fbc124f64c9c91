// SPDX-License-Identifier: Apache-2.0
#pragma once
// compute: what we ask of compute nodes, over h2c without TLS: the Init of a new control
// stream, which makes a node abort and join all of its actors, and the statistics that say
// which fragments have some. Each call has a connection of its own.
//
// Invariant: the bytes of an Init leave within its deadline and after `may_send` has said yes,
// or never: one that is cancelled, or out of time, leaves nothing in the kernel that would be
// sent later. A node that has read them resets whatever becomes of the call.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/grpc/calls.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"

#define COMPUTE_STATS_MAX ((size_t)8 << 20) // bytes: some 300,000 fragments

// --- pure ---

enum grpc_first { GRPC_FIRST_MORE = 0, GRPC_FIRST_WHOLE, GRPC_FIRST_BAD };

// The first message of a stream of which `len` bytes have come. BAD: it is compressed, or
// longer than GRPC_BODY_MAX. What is behind it is of no interest.
enum grpc_first grpc_first_message(const uint8_t *body, size_t len, const uint8_t **ret_message,
                                   size_t *ret_len);

// Whether a StreamingControlStreamResponse is an InitResponse, and nothing else.
bool grpc_is_init_response(const uint8_t *message, size_t len);

struct grpc_fragments {
    const uint32_t *ids; // ascending; the caller's
    size_t count;
};

// Counts those of `fragments` that have actors by a GetStreamingStatsResponse. A fragment
// that is not in it has none. Errors: INVALID (no such message): then nothing is known.
must_check int grpc_count_running(const uint8_t *message, size_t len,
                                  const struct grpc_fragments *fragments, uint32_t *ret_running,
                                  struct err *err);

// --- on the loop ---

enum grpc_compute_kind { COMPUTE_INIT = 0, COMPUTE_STATS };

struct grpc_compute_result {
    enum grpc_compute_kind kind;
    // OK: InitResponse, or statistics. UNKNOWN: it may have been done, or will be. NOT_SENT:
    // refused, forbidden by may_send, or out of time before anything of it had left.
    enum grpc_outcome outcome;
    int code;               // grpc-status of ERROR
    const uint8_t *message; // of statistics; borrowed for the callback
    size_t len;
    char detail[160]; // why it is not OK, for people
};

struct grpc_computes;
struct grpc_compute_call;

// Called from the loop, once, never from inside grpc_compute_begin; the call is gone then. May
// begin and cancel others.
typedef void grpc_compute_fn(const struct grpc_compute_result *result, void *arg);

struct grpc_compute_order {
    enum grpc_compute_kind kind;
    const char *address; // numeric: names are base/resolve's
    uint16_t port;
    struct instant deadline; // for the whole call
    // Of an Init: asked right before its bytes leave, from inside curl, so it may not begin or
    // cancel a call.
    bool (*may_send)(void *arg);
    grpc_compute_fn *on_end;
    void *arg; // borrowed
};

// Never fails: out of memory aborts.
struct grpc_computes *grpc_computes_new(struct loop *loop);
// Cancels what is in flight. Accepts NULL.
void grpc_computes_free(struct grpc_computes *computes);

// Begins a call. Does not block. Errors: INVALID for what is no address, TRANSIENT when the
// deadline has passed or curl gives no handle.
must_check int grpc_compute_begin(struct grpc_computes *computes,
                                  const struct grpc_compute_order *order, struct instant now,
                                  struct grpc_compute_call **ret_call, struct err *err);
// Ends it at once, by a reset of the connection and without calling back. What was sent may
// still be done. Not from inside its own callbacks.
void grpc_compute_cancel(struct grpc_compute_call *call);
