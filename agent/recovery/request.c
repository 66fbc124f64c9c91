// SPDX-License-Identifier: Apache-2.0
// What an operator has ordered: first a bounded wait for what is dropped and being created,
// then the recovery, or the fence.
#include "agent/recovery/internal.h"

#define STATUS_RUNNING 3

static void finish(const struct order_turn *turn, enum order_end end)
{
    turn->memory->finished = turn->facts->request.id;
    turn->plan->ended = end;
}

// What is shown of a hold goes before what is shown of an order.
static void show(const struct order_turn *turn, enum order_step step, enum order_wait wait)
{
    if (turn->plan->step != ORDER_IDLE && turn->plan->step != ORDER_ADMIT)
        return;
    turn->plan->step = step;
    turn->plan->wait = wait;
}

// True: it goes on.
static bool drain(const struct order_turn *turn)
{
    const struct order_facts *facts = turn->facts;
    const struct order_drops *drops = &facts->drops;
    struct instant bound = instant_add(facts->request.at, facts->request.wait_ns);
    enum order_wait wait = drops->fragments > 0 ? ORDER_WAIT_DROPS : ORDER_WAIT_CREATES;
    bool is_seen = drops->known && facts->gate.known && // since the order came
                   !instant_before(facts->gate.sent_at, facts->request.at);
    bool is_drained = is_seen && drops->fragments == 0 && drops->creating == 0;

    if (turn->memory->request == facts->request.id)
        return true;
    if (!facts->is_leader) {
        finish(turn, ORDER_END_FAILED); // nothing of it was begun
        return false;
    }
    if (!is_drained && instant_before(facts->now, bound)) {
        show(turn, ORDER_DRAIN, is_seen ? wait : ORDER_WAIT_STATE);
        order_wake(turn, bound);
        return false;
    }
    turn->memory->request = facts->request.id;
    turn->plan->drain_gave_up = !is_drained;
    return true;
}

// The call returns at the end of the recovery, or it is not known what becomes of it: then the
// status says when it has ended.
static enum order_end recover_end(const struct order_turn *turn)
{
    const struct order_facts *facts = turn->facts;
    const struct order_request *request = &facts->request;
    struct instant bound = instant_add(request->recover_ended_at, turn->config->max_hold_ns);

    switch (request->recover) {
    case ORDER_CALL_DONE: return ORDER_END_DONE;
    case ORDER_CALL_FAILED: return ORDER_END_FAILED;
    case ORDER_CALL_NONE:
    case ORDER_CALL_PENDING: break;
    case ORDER_CALL_UNKNOWN:
        turn->plan->read_status = true;
        if (facts->status.value >= STATUS_RUNNING && facts->marker.id == 0 &&
            instant_before(request->recover_ended_at, facts->status.sent_at))
            return ORDER_END_DONE;
        if (instant_reached(facts->now, bound))
            return ORDER_END_FAILED;
        order_wake(turn, bound);
        break;
    }
    return facts->is_leader ? ORDER_END_NONE : ORDER_END_FAILED;
}

// True for the first time of each order.
static bool act(const struct order_turn *turn)
{
    struct order_memory *memory = turn->memory;

    if (memory->acted == turn->facts->request.id)
        return false;
    memory->acted = turn->facts->request.id;
    memory->acted_at = turn->facts->now;
    return true;
}

static void plan_recover(const struct order_turn *turn)
{
    enum order_end end = ORDER_END_NONE;

    if (act(turn))
        turn->plan->send_recover = true;
    else
        end = recover_end(turn);
    if (end != ORDER_END_NONE)
        finish(turn, end);
    else
        show(turn, ORDER_ADMIT, ORDER_WAIT_END);
}

// Our lease is kept, so that nobody leads until it is over; the start waits for who wins then.
// Who is being killed is no verified leader any more: that alone is not its end.
static void plan_handover(const struct order_turn *turn)
{
    const struct order_facts *facts = turn->facts;
    struct order_plan *plan = turn->plan;
    bool is_dead = facts->death.kind != ORDER_DEATH_NONE && !facts->meta_runs;
    struct instant bound = {0};

    (void)act(turn); // its moment bounds the fence
    bound = turn->memory->acted_at;
    if (is_dead)
        bound = instant_max(bound, facts->death.at);
    if (facts->row.holder == ORDER_ROW_OURS)
        bound = instant_max(bound, facts->row.lease_end);
    bound = instant_add(bound, turn->config->handover_ns);
    if (is_dead && facts->row.holder == ORDER_ROW_OTHER) {
        finish(turn, ORDER_END_DONE);
        return;
    }
    if (instant_reached(facts->now, bound)) {
        finish(turn, ORDER_END_FAILED);
        return;
    }
    plan->fence_meta = !is_dead;
    plan->hold_start = true;
    plan->hold_until = bound;
    order_wake(turn, bound);
    if (is_dead)
        show(turn, ORDER_ADMIT, ORDER_WAIT_SUCCESSOR);
    else
        show(turn, ORDER_FENCE, ORDER_WAIT_DEATH);
}

void order_plan_request(const struct order_turn *turn)
{
    const struct order_request *request = &turn->facts->request;

    if (request->kind == ORDER_REQUEST_NONE || turn->memory->finished == request->id ||
        !drain(turn))
        return;
    if (request->kind == ORDER_REQUEST_RECOVER)
        plan_recover(turn);
    else
        plan_handover(turn);
}
