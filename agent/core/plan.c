// SPDX-License-Identifier: Apache-2.0
// plan: fills the order and the list of actions. Everything is a level: each plan says the
// whole wish, and the shell drops what is already so.
#include "agent/core/core.h"

#include <string.h>

// The last good read; and a database without the table at all, at a first boot, holds nobody's
// lease.
static void fill_row(const struct turn *turn, struct fence_order *order)
{
    const struct election_fact *election = &turn->facts->election;

    order->row = FENCE_ROW_UNKNOWN;
    order->read_ns = turn->memory->good_read_sent.ns;
    if (!turn->usable)
        return;
    switch (turn->row) {
    case ROW_ABSENT: order->row = FENCE_ROW_ABSENT; break;
    case ROW_OURS: order->row = FENCE_ROW_OURS; break;
    case ROW_OTHER: order->row = FENCE_ROW_OTHER; break;
    case ROW_BROKEN:
        if (election->row == ROW_BROKEN && election->defect == ROW_DEFECT_RELATION_MISSING) {
            order->row = FENCE_ROW_ABSENT;
            order->read_ns = election->sent_at.ns;
        }
        break;
    }
}

// What the database is for a meta that waits to be started. One that refuses us, with our own
// login and rights, may well take meta's: that is no reason to keep it down.
static enum fence_database order_database(enum database_state state)
{
    switch (state) {
    case DATABASE_ANSWERS: return FENCE_DATABASE_UP;
    case DATABASE_SILENT:
    case DATABASE_STANDBY: return FENCE_DATABASE_DOWN;
    case DATABASE_REFUSES:
    case DATABASE_UNKNOWN: break;
    }
    return FENCE_DATABASE_UNKNOWN;
}

// A good read showed that our incarnation does not hold the row: a lease that it wins is newer.
static bool is_shown_not_leading(const struct turn *turn)
{
    return turn->good && !turn->by_us && !turn->memory->engaged;
}

void plan_permit(struct turn *turn, enum role_label label)
{
    struct fence_order *order = &turn->plan->order;
    struct instant deadline = turn->memory->deadline;

    turn->plan->label = label;
    order->role = FENCE_ROLE_KEEP;
    if (!turn->alive)
        return;
    if (is_shown_not_leading(turn)) {
        order->role = FENCE_ROLE_FOLLOWER;
    } else if (deadline.ns != 0 && instant_before(turn->facts->now, deadline) &&
               !turn->memory->superseded) {
        // The last look before the permit goes out: what has run out is not given.
        order->role = FENCE_ROLE_LEADER;
        order->deadline_ns = deadline.ns;
    }
}

void plan_kill(struct turn *turn, enum fence_reason reason, uint32_t hold_flags)
{
    struct fence_order *order = &turn->plan->order;

    turn->plan->label = LABEL_UNKNOWN;
    order->flags |= hold_flags;
    order->role = turn->alive ? FENCE_ROLE_KILL : FENCE_ROLE_KEEP;
    order->reason = turn->alive ? reason : FENCE_REASON_NONE;
}

void plan_spare(struct turn *turn)
{
    struct fence_order *order = &turn->plan->order;

    if (order->role != FENCE_ROLE_KILL)
        return;
    order->role = FENCE_ROLE_KEEP;
    order->reason = FENCE_REASON_NONE;
    order->flags = 0;
}

void plan_add(struct plan *plan, enum action_kind kind)
{
    plan->actions[plan->action_count++].kind = kind;
}

// 0: no hold is due. A hold has to be with metafence-run before the deadline comes, because
// that kills by itself; it ends by itself when this agent does not renew it.
static uint32_t hold_due(const struct turn *turn)
{
    int64_t span_ns = lease_hold_span(turn->config);

    if (!turn->alive || !turn->memory->engaged || turn->plan->order.role == FENCE_ROLE_KILL ||
        instant_since(lease_end(turn), turn->facts->now) > span_ns)
        return 0;
    return lease_hold(turn);
}

static void fill_order(struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;
    const struct core_memory *memory = turn->memory;
    struct fence_order *order = &turn->plan->order;

    order->incarnation = memory->incarnation;
    order->flags |= memory->armed ? FENCE_ORDER_ARMED : 0U;
    order->flags |= memory->engaged ? FENCE_ORDER_ENGAGED : 0U;
    order->flags |= memory->superseded ? FENCE_ORDER_SUPERSEDED : 0U;
    order->flags |= turn->facts->recovery.holds_start ? FENCE_ORDER_RESET_HOLD : 0U;
    order->database = order_database(turn->facts->database.state);
    order->system_id = memory->system_id;
    order->timeline = memory->timeline;
    order->term = memory->term;
    fill_row(turn, order);
    order->pause_end_ns = turn->facts->orders.pause_end.ns;
    if (hold_due(turn)) {
        int64_t end = instant_add(turn->facts->now, lease_hold_span(turn->config)).ns;

        if (order->pause_end_ns < end)
            order->pause_end_ns = end;
    }
    if (!turn->good || turn->row != ROW_OURS)
        return;
    order->heartbeat_age_ns = election->age_ns > 0 ? election->age_ns : 0;
    if (memory->heartbeat_seen)
        order->heartbeat_still_ns =
            instant_since(memory->heartbeat_last_sent, memory->heartbeat_first_sent);
    memcpy(order->heartbeat_tag, election->heartbeat_tag, sizeof(order->heartbeat_tag));
    order->heartbeat_tag[sizeof(order->heartbeat_tag) - 1] = '\0';
}

static void fill_not_covered(struct turn *turn)
{
    struct plan *plan = turn->plan;

    if (turn->paused)
        plan->not_covered |= NOT_COVERED_PAUSED;
    if (!turn->memory->armed)
        plan->not_covered |= NOT_COVERED_UNARMED;
    if (!turn->status)
        plan->not_covered |= NOT_COVERED_NO_FENCE;
    if (turn->facts->methods.unusable)
        plan->not_covered |= NOT_COVERED_UNUSABLE;
    if (turn->usable && !turn->facts->election.term_known)
        plan->not_covered |= NOT_COVERED_UNTAGGED;
    if (turn->facts->workers.untagged_writers)
        plan->not_covered |= NOT_COVERED_UNTAGGED_WRITERS;
    if (instant_reached(turn->facts->now, lease_end(turn)))
        plan->not_covered |= hold_due(turn);
}

static bool wants_read(const struct turn *turn)
{
    const struct core_memory *memory = turn->memory;

    // The start gate counts only what was read after the death.
    if (fact_death_known(turn) && memory->good_read_sent.ns <= fact_last_death(turn)->dead_ns)
        return true;
    if (turn->alive && memory->engaged &&
        instant_before(memory->good_read_sent, memory->engaged_at))
        return true;
    return memory->proof_void && instant_before(memory->good_read_sent, memory->void_at);
}

// Meta's own answer helps to see that it leads, or that it renews without leading.
static bool wants_status(const struct turn *turn)
{
    const struct rpc_fact *rpc = &turn->facts->rpc;
    struct instant last = instant_max(rpc->sent_at, rpc->observed_at);
    uint32_t ports = turn->status ? turn->status->ports : 0;

    if (!turn->status || !turn->alive || !turn->good || turn->row != ROW_OURS)
        return false;
    if ((ports & SHIM_PORTS_KNOWN) && !(ports & SHIM_PORT_SERVICE))
        return false; // nobody listens
    if (rpc->incarnation != turn->memory->incarnation)
        return true;
    return rpc->answer != RPC_LEADING &&
           instant_since(turn->facts->now, last) >= turn->config->poll_ns;
}

const struct fence_death *plan_cleanup_due(const struct turn *turn)
{
    const struct fence_death *death = fact_last_death(turn);

    if (!death || turn->facts->database.state != DATABASE_ANSWERS || death->incarnation == 0 ||
        !death->tag[0] || (!death->engaged && death->reason == FENCE_REASON_NONE))
        return NULL;
    // Without metafence-run the tag may be the pod's: what bears it now is the living one.
    if (turn->status && turn->alive && fact_is_our_tag(turn, death->tag))
        return NULL;
    return death;
}

static enum fence_method method_of(const struct turn *turn, const struct fence_death *death)
{
    if (death->reason == FENCE_REASON_NONE)
        return FENCE_METHOD_NONE;
    if (turn->facts->methods.by_pidfd || death == &turn->facts->proven)
        return FENCE_METHOD_PIDFD;
    // Nobody of us decided: it was found dead past its deadline.
    return death->decided_ns == 0 ? FENCE_METHOD_KUBELET : FENCE_METHOD_PERMIT;
}

static void fill_dead(struct turn *turn)
{
    const struct fence_death *death = fact_last_death(turn);
    struct plan *plan = turn->plan;

    if (!death || death->incarnation == 0)
        return;
    plan->dead_incarnation = death->incarnation;
    memcpy(plan->dead_tag, death->tag, sizeof(plan->dead_tag));
    plan->dead_tag[sizeof(plan->dead_tag) - 1] = '\0';
    plan->dead_reason = (enum fence_reason)death->reason;
    plan->dead_method = method_of(turn, death);
}

// Its sessions end, then Postgres writes it down.
static void add_cleanup(struct turn *turn)
{
    const struct cleanup_fact *cleanup = &turn->facts->cleanup;
    const struct fence_death *death = plan_cleanup_due(turn);

    if (!death)
        return;
    if (cleanup->sessions_gone != death->incarnation)
        plan_add(turn->plan, ACTION_END_SESSIONS);
    else if (cleanup->death_recorded != death->incarnation && turn->usable &&
             turn->facts->election.term_known)
        plan_add(turn->plan, ACTION_RECORD_DEATH);
}

// The phantom is dead with proof, and no statement of it waits anywhere: the row that nobody
// will renew goes away, if it still is the very one that we read after the death.
static bool may_drop_phantom(const struct turn *turn)
{
    const struct facts *facts = turn->facts;
    const struct fence_death *death = NULL;

    if (!turn->memory->phantom_held || !fact_death_known(turn) || !turn->good ||
        turn->row != ROW_OURS || facts->database.state != DATABASE_ANSWERS)
        return false;
    death = fact_last_death(turn);
    return facts->election.sent_at.ns >= death->dead_ns &&
           (!death->tag[0] || facts->cleanup.sessions_gone == death->incarnation);
}

static void wake(struct turn *turn, struct instant at)
{
    if (instant_before(turn->facts->now, at))
        turn->plan->wake_at = instant_min(turn->plan->wake_at, at);
}

void plan_wake_after(struct turn *turn, struct instant since, int64_t after_ns)
{
    if (since.ns != 0)
        wake(turn, instant_add(since, after_ns));
}

static void fill_wake(struct turn *turn)
{
    const struct core_config *config = turn->config;
    const struct core_memory *memory = turn->memory;
    int64_t span_ns = lease_hold_span(config);

    turn->plan->wake_at = INSTANT_NEVER;
    if (turn->alive)
        wake(turn, lease_end(turn));
    wake(turn, turn->facts->orders.pause_end);
    plan_wake_after(turn, memory->ours_unimplemented_since, config->phantom_after_ns);
    plan_wake_after(turn, memory->promoting_since, config->promote_after_ns);
    if (memory->phantom_held && fact_death_known(turn))
        plan_wake_after(turn, (struct instant){fact_last_death(turn)->dead_ns}, config->ttl_ns);
    if (turn->alive && memory->engaged && lease_hold(turn))
        wake(turn, instant_add(lease_end(turn), -span_ns));
    if (hold_due(turn))
        plan_wake_after(turn, turn->facts->now, span_ns / 2);
}

void plan_finish(struct turn *turn)
{
    struct plan *plan = turn->plan;

    fill_order(turn);
    fill_not_covered(turn);
    plan_add(plan, ACTION_LABEL); // before the order: a dead pod's label is nobody's to send
    if (turn->status)
        plan_add(plan, ACTION_ORDER);
    if (wants_read(turn))
        plan_add(plan, ACTION_READ);
    if (wants_status(turn))
        plan_add(plan, ACTION_ASK_STATUS);
    fill_dead(turn);
    add_cleanup(turn);
    if (may_drop_phantom(turn)) {
        plan->phantom_heartbeat_us = turn->facts->election.heartbeat_us;
        plan_add(plan, ACTION_DROP_PHANTOM);
    }
    if (plan->label == LABEL_LEADER && turn->facts->election.term_known)
        plan_add(plan, ACTION_COMPLETE_GUARD);
    fill_wake(turn);
    ladder_finish(turn);
}
