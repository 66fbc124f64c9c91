// SPDX-License-Identifier: Apache-2.0
// Which hold it is, and how far it has come.
#include "agent/recovery/order.h"

#include <string.h>

#include "agent/recovery/internal.h"

// --- the hold ---

// True: it is another one than in the last turn.
static bool begin(const struct order_facts *facts, struct order_memory *memory)
{
    enum order_cause cause = order_cause_of(facts);
    uint32_t round = cause == ORDER_RECOVERY ? facts->marker.round : 0;

    if (cause == ORDER_CAUSE_NONE ||
        (cause == memory->cause && memory->hold == order_hold_of(facts, cause) &&
         memory->round == round))
        return false;
    memory->node_count = 0;
    memory->cause = cause;
    memory->hold = order_hold_of(facts, cause);
    memory->round = round;
    memory->began = facts->now;
    memory->armed_at.ns = 0;
    memory->was_open = false;
    return true;
}

// --- how far it is ---

static bool are_all_listed(const struct order_turn *turn)
{
    return turn->facts->nodes_known && turn->facts->node_count <= ORDER_NODES_MAX &&
           turn->plan->unlisted == 0;
}

static enum order_wait wait_for_nodes(const struct order_turn *turn)
{
    if (!are_all_listed(turn))
        return ORDER_WAIT_NODES;
    switch ((int)turn->plan->block) {
    case ORDER_STATE_UNREAD: return ORDER_WAIT_STATE;
    case ORDER_STATUS_UNREAD:
    case ORDER_RUNNING: return ORDER_WAIT_STATUS;
    case ORDER_NOT_REFUSED: return ORDER_WAIT_REFUSAL;
    default: return ORDER_WAIT_RESETS;
    }
}

static bool is_missing(const struct order_turn *turn)
{
    return !are_all_listed(turn) || turn->plan->evidence[ORDER_UNKNOWN] > 0;
}

static void say(const struct order_turn *turn, enum order_step step, enum order_wait wait)
{
    turn->plan->step = step;
    turn->plan->wait = wait;
}

static void plan_takeover(const struct order_turn *turn)
{
    struct order_plan *plan = turn->plan;

    say(turn, ORDER_ADMIT, ORDER_WAIT_NOTHING);
    if (order_must_stop(plan->block)) {
        plan->bound_reached = plan->block == ORDER_HOLD_OVER && is_missing(turn);
        return;
    }
    if (plan->block == ORDER_ROW_UNREAD)
        say(turn, ORDER_FENCE, ORDER_WAIT_ROW);
    else if (is_missing(turn))
        say(turn, ORDER_RESET_NODES, wait_for_nodes(turn));
    else
        return;
    plan->hold_start = true;
    plan->hold_until = order_hold_end(turn->config, turn->facts, turn->memory);
    order_wake(turn, plan->hold_until);
}

static void plan_recovery(const struct order_turn *turn, uint32_t unrecorded)
{
    const struct order_facts *facts = turn->facts;
    struct order_plan *plan = turn->plan;
    struct instant bound = order_bound(turn->config, facts);

    plan->bound_reached = instant_reached(facts->now, bound) && is_missing(turn);
    order_wake(turn, bound);
    order_wake(turn, order_hold_end(turn->config, facts, turn->memory));
    say(turn, ORDER_RECLAIM, ORDER_WAIT_REMOVAL);
    if (plan->block == ORDER_GATE_OPEN)
        return;
    if (plan->block == ORDER_PREDECESSOR_LIVES)
        say(turn, ORDER_FENCE, ORDER_WAIT_PREDECESSOR);
    else if (turn->memory->round > 0 && facts->gate.refused_at.ns == 0)
        say(turn, ORDER_ADMIT, ORDER_WAIT_END);
    else if (is_missing(turn))
        say(turn, ORDER_RESET_NODES, wait_for_nodes(turn));
    else if (unrecorded > 0)
        say(turn, ORDER_RECONCILE, ORDER_WAIT_RECORD);
    plan->read_status = plan->step == ORDER_RESET_NODES;
}

void order_decide(const struct order_config *config, const struct order_facts *facts,
                  struct order_memory *memory, struct order_plan *plan)
{
    const struct order_turn turn = {config, facts, memory, plan};
    enum order_cause cause = order_cause_of(facts);
    uint32_t unrecorded = 0;
    bool is_new = false;

    memset(plan, 0, sizeof(*plan));
    plan->wake_at = INSTANT_NEVER;
    memory->covered_at = order_covered_at(config, facts, memory);
    memory->refreshed_at = facts->gate.refreshed_at;
    is_new = begin(facts, memory);
    memory->was_open |= cause == ORDER_RECOVERY && facts->gate.is_open;
    if (memory->armed_at.ns == 0 && cause == memory->cause &&
        (cause == ORDER_TAKEOVER || facts->gate.refused_at.ns != 0))
        memory->armed_at = facts->now;
    plan->block = order_hold_block(config, facts, memory);
    plan->stop = is_new || order_must_stop(plan->block);
    if (cause != ORDER_CAUSE_NONE && facts->mode == ORDER_ENFORCE) {
        unrecorded = order_plan_nodes(&turn);
        if (cause == ORDER_TAKEOVER)
            plan_takeover(&turn);
        else
            plan_recovery(&turn, unrecorded);
    }
    order_plan_request(&turn);
}
