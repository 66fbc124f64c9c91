// SPDX-License-Identifier: Apache-2.0
#pragma once
// request: an operator's order that takes its time: recover, handover. It begins with a bounded
// wait for what is dropped and being created. In which order all goes on is decided by
// agent/recovery, beside what it decides of a recovery; here is what the order alone does: the
// call of Recover, the fence, and what became of it. One at a time. It lives in this agent
// alone: one that restarts forgets it, and what was begun then ends by its own bounds.

#include <stdbool.h>
#include <stdint.h>

#include "agent/control.h"
#include "agent/recovery/order.h"

struct agent;
struct buf;
struct grpc_calls;

enum request_end {
    REQUEST_OPEN = 0, // under way
    REQUEST_DONE,
    REQUEST_FAILED,  // surely not done
    REQUEST_UNKNOWN, // begun, and not seen to its end
};

struct request {
    struct order_request order; // kind NONE: there never was one
    enum request_end end;
    struct instant ended_at;
    uint64_t incarnation; // of meta, that it was given to
    char reason[CONTROL_REASON_SIZE];
    char detail[240]; // how it ended, for people; "" while it is open
    // What the last decision has said, and what is still there to be waited for.
    enum order_step step;
    enum order_wait wait;
    bool has_given_up_waiting;
    char pending[320];
    struct grpc_calls *calls; // made for the first recover
};

// Answers {"ok":true,"request":N}, or {"ok":false,"error":…} where this agent can't: another
// one is under way, this meta does not lead, nobody else could.
void request_order(struct agent *agent, const struct control_request *control,
                   struct buf *answer);
// Gives up the call; what was sent may still happen.
void request_free(struct request *request);

// What order_decide() is to know of it. An order that has ended is none.
void request_facts(const struct request *request, struct order_facts *facts);
// After order_decide(): carries out what is planned for it. `pending`: what it would wait for,
// in words, borrowed; "": nothing.
void request_turn(struct agent *agent, const struct order_plan *plan, const char *pending);

// The member "request" of the status, with its leading comma; null when there was none.
void request_status_json(const struct agent *agent, struct instant now, struct buf *out);
