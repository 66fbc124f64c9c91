// SPDX-License-Identifier: Apache-2.0
#pragma once
// client: asks the meta beside us whether it leads, by one gRPC call over h2c without TLS on
// 127.0.0.1. Each call has its own connection, closed with the answer: an idle one can hold up
// a promotion. At most one call is in flight. Owns its curl handles, created by the first call.

#include <stdbool.h>
#include <stdint.h>

#include "agent/grpc/frame.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"

struct grpc_client;

struct grpc_result {
    enum grpc_answer answer;
    int recovery_status; // 1 starting, 2 recovering, 3 running; 0 unless GRPC_LEADING
    struct instant sent_at;
    char detail[128]; // why UNKNOWN, for a log line
};

// Called from the loop, once for each call that was begun, never from inside grpc_client_ask.
// May begin the next call.
typedef void grpc_result_fn(const struct grpc_result *result, void *arg);

struct grpc_client_config {
    uint16_t port;
    int64_t timeout_ns; // for the whole call, connect included
    grpc_result_fn *on_result;
    void *arg; // borrowed
};

// Allocates nothing in curl yet. Never fails: out of memory aborts.
struct grpc_client *grpc_client_new(struct loop *loop, const struct grpc_client_config *config);
// Gives a call in flight up, without calling back. Accepts NULL. Not from inside on_result.
void grpc_client_free(struct grpc_client *client);

// "7.88.1". Borrowed, lives as long as the process.
const char *grpc_client_curl_version(void);

bool grpc_client_is_busy(const struct grpc_client *client);

// Begins GetClusterRecoveryStatus; `now` becomes result.sent_at. Does not block. Errors:
// CONFLICT while one is in flight, TRANSIENT when curl gives no handle.
must_check int grpc_client_ask(struct grpc_client *client, struct instant now, struct err *err);
