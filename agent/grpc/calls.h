// SPDX-License-Identifier: Apache-2.0
#pragma once
// calls: what we ask the leading meta beside us to do, or to tell, besides its status. One call
// of each method may be in flight. Its invariant: what was sent and not answered is UNKNOWN,
// and may still happen. ListAllNodes is not here and never will be: it aborts leaders up to
// v3.0.3 in exactly the case that would make one ask.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/grpc/frame.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"

enum grpc_method {
    GRPC_DELETE_WORKER = 0, // by endpoint: it knows no ids
    GRPC_RECOVER,           // returns at the end of the recovery
    GRPC_LIST_ACTORS,
    GRPC_METHODS,
};

enum grpc_outcome {
    GRPC_CALL_UNKNOWN = 0, // it may have been done, or will be
    GRPC_CALL_OK,
    GRPC_CALL_ERROR,    // answered by meta: `code` says how
    GRPC_CALL_NOT_SENT, // nobody listens: surely nothing was done
};

const char *grpc_outcome_name(enum grpc_outcome outcome); // "unknown"

struct grpc_call_result {
    enum grpc_method method;
    enum grpc_outcome outcome;
    int code; // grpc-status of ERROR
    struct instant sent_at;
    const uint8_t *message; // of OK; borrowed for the callback
    size_t len;
    char detail[160]; // why it is not OK, for people
};

// What an answer says about the call. Anything that is not exactly one well-formed answer is
// UNKNOWN, and so are the codes by which a server or something in between gives up waiting: the
// handler may still run. Pure.
enum grpc_outcome grpc_judge_call(const struct grpc_reply *reply, const uint8_t **ret_message,
                                  size_t *ret_len);

struct grpc_workers {
    uint32_t *ids; // the caller's, ascending
    size_t room;   // ids that it has room for
    size_t count;
};

// Fills `ret` with the different worker ids in the answer to ListActorStates. Pure. Errors:
// INVALID (no such message, or more workers than there is room for): then the count stays.
must_check int grpc_actor_workers(const uint8_t *message, size_t len, struct grpc_workers *ret,
                                  struct err *err);

struct grpc_calls;

// Called from the loop, once for each call that was begun, never from inside the begin. May
// begin the next one.
typedef void grpc_call_fn(const struct grpc_call_result *result, void *arg);

struct grpc_calls_config {
    uint16_t port;
    int64_t timeout_ns[GRPC_METHODS]; // for the whole call
    grpc_call_fn *on_result;
    void *arg; // borrowed
};

// Never fails: out of memory aborts.
struct grpc_calls *grpc_calls_new(struct loop *loop, const struct grpc_calls_config *config);
// Gives up what is in flight, without calling back; what was sent may still happen. Accepts
// NULL. Not from inside on_result.
void grpc_calls_free(struct grpc_calls *calls);

bool grpc_calls_is_busy(const struct grpc_calls *calls, enum grpc_method method);

// Begin a call; `now` becomes result.sent_at. Errors: CONFLICT while one of the method is in
// flight, TRANSIENT when curl gives no handle, INVALID for a host that is too long.
must_check int grpc_delete_worker(struct grpc_calls *calls, const char *host, int32_t port,
                                  struct instant now, struct err *err);
must_check int grpc_recover(struct grpc_calls *calls, struct instant now, struct err *err);
must_check int grpc_list_actors(struct grpc_calls *calls, struct instant now, struct err *err);
