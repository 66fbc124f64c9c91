// SPDX-License-Identifier: Apache-2.0
#pragma once
// planned: an operator's order that takes its time: recover, handover. It begins with a bounded
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

enum planned_end {
    PLANNED_OPEN = 0, // under way
    PLANNED_DONE,
    PLANNED_FAILED,  // surely not done
    PLANNED_UNKNOWN, // begun, and not seen to its end
};

struct planned {
    struct order_request order; // kind NONE: there never was one
    enum planned_end end;
    struct instant ended_at;
    uint64_t incarnation; // of meta, that it was given to
    char reason[CONTROL_REASON_SIZE];
    char detail[240]; // how it ended, for people; "" while it is open
    // What the last decision has said.
    enum order_step step;
    enum order_wait wait;
    bool has_given_up_waiting;
    struct grpc_calls *calls; // made for the first recover
};

// Answers {"ok":true,"request":N}, or {"ok":false,"error":…} where this agent can't: another
// one is under way, this meta does not lead, nobody else could.
void planned_order(struct agent *agent, const struct control_request *control,
                   struct buf *answer);
// Gives up the call; what was sent may still happen.
void planned_free(struct planned *planned);

// What order_decide() is to know of it. An order that has ended is none.
void planned_facts(const struct planned *planned, struct order_facts *facts);
// After order_decide(): carries out what is planned for it. `drops` is what that has seen.
void planned_turn(struct agent *agent, const struct order_plan *plan,
                  const struct order_drops *drops);

// The member "request" of the status, with its leading comma; null when there was none.
void planned_status_json(const struct agent *agent, struct instant now, struct buf *out);
