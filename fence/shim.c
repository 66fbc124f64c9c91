// SPDX-License-Identifier: Apache-2.0
#include "fence/shim.h"

#include "fence/gate.h"
#include "fence/latch.h"

static bool is_paused(const struct shim_memory *memory, struct instant now)
{
    return memory->status.pause_end_ns > now.ns;
}

static void engage(struct shim_memory *memory, struct instant now)
{
    if (latch_has(memory, SHIM_ENGAGED))
        return;
    latch_put(memory, SHIM_ENGAGED, true);
    memory->status.engaged_ns = now.ns;
}

// What a lease that starts its life at `base` leaves us until we have to be dead.
static struct instant lease_end(const struct shim_config *config, struct instant base)
{
    return instant_add(base, config->ttl_ns - config->margin_ns - config->kill_budget_ns);
}

// ---- orders

static void take_database_identity(struct fence_status *status, const struct fence_order *order)
{
    if (status->system_id == 0)
        status->system_id = order->system_id;
    if (status->timeline == 0)
        status->timeline = order->timeline;
    if (status->term == 0)
        status->term = order->term;
}

// Whatever it may win later is not what it was permitted to lead on once.
static void forget_database_identity(struct fence_status *status)
{
    status->system_id = 0;
    status->timeline = 0;
    status->term = 0;
}

static void take_role(const struct shim_config *config, struct shim_memory *memory,
                      const struct fence_order *order, struct instant now)
{
    struct fence_status *status = &memory->status;

    switch ((enum fence_role)order->role) {
    case FENCE_ROLE_KEEP: break;
    case FENCE_ROLE_FOLLOWER:
        // Of an engaged process the agent did not know yet when it wrote this: nothing is taken
        // back.
        if (latch_has(memory, SHIM_ENGAGED))
            break;
        status->permit = FENCE_ROLE_FOLLOWER;
        forget_database_identity(status);
        break;
    case FENCE_ROLE_LEADER:
        status->permit = FENCE_ROLE_LEADER;
        // No read can prove more than a whole lease from now.
        memory->permit_deadline =
            instant_min((struct instant){order->deadline_ns}, lease_end(config, now));
        take_database_identity(status, order);
        break;
    case FENCE_ROLE_KILL:
        if (order->reason == FENCE_REASON_MANUAL || !is_paused(memory, now))
            memory->kill_order = (enum fence_reason)order->reason;
        break;
    }
}

void shim_take_order(const struct shim_config *config, struct shim_memory *memory,
                     const struct fence_order *order, struct instant now)
{
    memory->order = *order;
    // A read cannot be younger than its report.
    if (memory->order.read_ns > now.ns)
        memory->order.read_ns = now.ns;
    memory->order_at = now;
    memory->order_seen = true;
    memory->status.order_seq = order->seq;
    memory->status.pause_end_ns = order->pause_end_ns;
    latch_put(memory, SHIM_MANUAL, order->flags & FENCE_ORDER_MANUAL_HOLD);
    if (order->flags & FENCE_ORDER_ARMED)
        latch_put(memory, SHIM_ARMED, true);
    if (latch_has(memory, SHIM_SILENCE_HELD))
        memory->silence_grace = instant_add(now, config->agent_silence_ns);
    if (order->incarnation == memory->status.incarnation && latch_has(memory, SHIM_ALIVE)) {
        if (order->flags & FENCE_ORDER_ENGAGED)
            engage(memory, now);
        if (order->flags & FENCE_ORDER_SUPERSEDED)
            latch_put(memory, SHIM_SUPERSEDED, true);
        take_role(config, memory, order, now);
    }
    // A kill of the same turn that a pause overtakes is not kept for its end: who still wants
    // it then will say so.
    if (is_paused(memory, now) && memory->kill_order != FENCE_REASON_MANUAL)
        memory->kill_order = FENCE_REASON_NONE;
    if (!latch_has(memory, SHIM_ENGAGED))
        latch_lease_base(memory);
}

// ---- the turn

static bool agent_is_present(const struct shim_config *config, const struct shim_facts *facts,
                             const struct shim_memory *memory)
{
    return facts->agent_connected && memory->order_seen &&
           instant_since(facts->now, memory->order_at) < config->agent_silence_ns;
}

static void note_ports(const struct shim_facts *facts, struct shim_memory *memory)
{
    memory->status.ports = facts->ports;
    if (!latch_has(memory, SHIM_ALIVE) || !(facts->ports & SHIM_PORTS_KNOWN))
        return;
    if (facts->ports & (SHIM_PORT_METRICS | SHIM_PORT_DASHBOARD))
        engage(memory, facts->now);
    if (facts->ports & SHIM_PORT_SERVICE)
        memory->service_was_open = true;
    else if (memory->service_was_open)
        engage(memory, facts->now);
}

// Engaged; or never seen to serve as a follower: it may have won between two looks, and a
// promotion opens no port for minutes.
static bool may_lead(const struct shim_memory *memory)
{
    return latch_has(memory, SHIM_ENGAGED) ||
           ((memory->status.ports & SHIM_PORTS_KNOWN) && !memory->service_was_open);
}

// When the living incarnation has to be dead if nobody says anything more. NEVER: it need not
// be.
static struct instant silence_deadline(const struct shim_config *config,
                                       const struct shim_memory *memory)
{
    bool seen = latch_has(memory, SHIM_ENGAGED);
    struct instant engaged =
        seen ? (struct instant){memory->status.engaged_ns} : memory->last_start;
    struct instant base = memory->lease_base;

    if (!may_lead(memory) || (!latch_has(memory, SHIM_ARMED) && !config->require_agent))
        return INSTANT_NEVER;
    if (memory->status.permit == FENCE_ROLE_LEADER)
        return instant_max(memory->permit_deadline, memory->silence_grace);
    // Unarmed or without any read, all that is known is that it cannot have led before it began
    // to.
    if (!latch_has(memory, SHIM_ARMED) || base.ns == 0)
        base = engaged;
    return instant_max(instant_max(engaged, lease_end(config, base)), memory->silence_grace);
}

// The reason to kill it now, or NONE. Brings deadline_ns and SHIM_SILENCE_HELD up to date.
static enum fence_reason find_reason(const struct shim_config *config,
                                     const struct shim_facts *facts, struct shim_memory *memory)
{
    struct fence_status *status = &memory->status;
    struct instant deadline = silence_deadline(config, memory);
    bool paused = is_paused(memory, facts->now);
    bool present = latch_has(memory, SHIM_AGENT_PRESENT);
    bool overdue = false;

    if (paused)
        deadline = instant_max(deadline, (struct instant){status->pause_end_ns});
    overdue = instant_reached(facts->now, deadline);
    latch_put(memory, SHIM_SILENCE_HELD,
              overdue && !present && config->when_agent_lost == SHIM_AGENT_LOST_HOLD);
    if (latch_has(memory, SHIM_SILENCE_HELD))
        deadline = INSTANT_NEVER;
    status->deadline_ns = deadline.ns == INT64_MAX ? 0 : deadline.ns;

    if (memory->kill_order == FENCE_REASON_MANUAL)
        return FENCE_REASON_MANUAL;
    if (paused)
        return FENCE_REASON_NONE;
    if (memory->kill_order != FENCE_REASON_NONE)
        return memory->kill_order;
    if (latch_has(memory, SHIM_ENGAGED) && latch_has(memory, SHIM_SUPERSEDED))
        return FENCE_REASON_SUPERSEDED;
    if (!overdue || latch_has(memory, SHIM_SILENCE_HELD))
        return FENCE_REASON_NONE;
    return present ? FENCE_REASON_LEASE_EXPIRED : FENCE_REASON_AGENT_LOST;
}

static void wake(struct shim_plan *plan, struct instant now, struct instant at)
{
    if (instant_before(now, at))
        plan->wake_at = instant_min(plan->wake_at, at);
}

static void decide_living(const struct shim_config *config, const struct shim_facts *facts,
                          struct shim_memory *memory, struct shim_plan *plan)
{
    struct fence_status *status = &memory->status;
    enum fence_reason reason = FENCE_REASON_NONE;

    if (!memory->kill_sent)
        reason = find_reason(config, facts, memory);
    if (reason != FENCE_REASON_NONE) {
        memory->kill_sent = true;
        memory->kill_reason = reason;
        memory->kill_decided = facts->now;
        memory->kill_deadline_ns = status->deadline_ns;
        status->deadline_ns = instant_add(facts->now, config->kill_budget_ns).ns;
    }
    plan->kill = memory->kill_sent;
    plan->reason = memory->kill_reason;
    plan->forward_term = latch_has(memory, SHIM_TERM_RECEIVED) && !memory->term_sent;
    memory->term_sent = memory->term_sent || plan->forward_term;
    if (memory->kill_sent)
        status->state = SHIM_KILLING;
    else
        status->state = latch_has(memory, SHIM_TERM_RECEIVED) ? SHIM_TERMINATING : SHIM_RUNNING;
    if (status->deadline_ns != 0)
        wake(plan, facts->now, (struct instant){status->deadline_ns});
}

static void decide_between(const struct shim_config *config, const struct shim_facts *facts,
                           struct shim_memory *memory, struct shim_plan *plan)
{
    struct fence_status *status = &memory->status;

    if (memory->hold_since.ns == 0)
        memory->hold_since = facts->now;
    if (latch_has(memory, SHIM_TERM_RECEIVED))
        memory->exit_pending = true;
    if (memory->exit_pending) {
        plan->exit = true;
        plan->exit_status = memory->exit_status;
        status->state = SHIM_ENDED;
        status->hold = SHIM_HOLD_NONE;
        status->hold_until_ns = 0;
        return;
    }
    plan->hold = gate_hold(config, memory, facts->now, &plan->hold_until);
    plan->start = plan->hold == SHIM_HOLD_NONE;
    status->state = SHIM_HOLDING;
    status->hold = plan->hold;
    status->hold_until_ns = plan->start ? 0 : plan->hold_until.ns;
    wake(plan, facts->now, plan->hold_until);
}

void shim_decide(const struct shim_config *config, const struct shim_facts *facts,
                 struct shim_memory *memory, struct shim_plan *ret_plan)
{
    *ret_plan = (struct shim_plan){.wake_at = INSTANT_NEVER};
    if (facts->term_requested && !latch_has(memory, SHIM_TERM_RECEIVED)) {
        latch_put(memory, SHIM_TERM_RECEIVED, true);
        // Nothing runs: an orderly stop, whatever the last incarnation ended with.
        if (!latch_has(memory, SHIM_ALIVE))
            memory->exit_status = 0;
    }
    latch_put(memory, SHIM_AGENT_PRESENT, agent_is_present(config, facts, memory));
    note_ports(facts, memory);
    if (latch_has(memory, SHIM_ALIVE))
        decide_living(config, facts, memory, ret_plan);
    else
        decide_between(config, facts, memory, ret_plan);
    if (latch_has(memory, SHIM_AGENT_PRESENT))
        wake(ret_plan, facts->now, instant_add(memory->order_at, config->agent_silence_ns));
    if (is_paused(memory, facts->now))
        wake(ret_plan, facts->now, (struct instant){memory->status.pause_end_ns});
}

// ---- configuration

struct positive {
    const char *name;
    int64_t ns;
};

int shim_config_check(const struct shim_config *config, struct err *err)
{
    char ttl[32];
    char margin[32];
    char budget[32];
    const struct positive needed[] = {{"ttl", config->ttl_ns},
                                      {"kill-budget", config->kill_budget_ns},
                                      {"kill-window", config->kill_window_ns}};

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (needed[i].ns <= 0)
            return err_set(err, ERR_INVALID, 0, "--%s is 0s: it must be longer",
                           needed[i].name);
    if (config->margin_ns < 0 || config->margin_ns >= config->ttl_ns ||
        config->kill_budget_ns >= config->ttl_ns - config->margin_ns)
        return err_set(err, ERR_INVALID, 0,
                       "--margin %s + --kill-budget %s must be less than --ttl %s: make them "
                       "smaller or the lease longer",
                       duration_format(config->margin_ns, margin, sizeof(margin)),
                       duration_format(config->kill_budget_ns, budget, sizeof(budget)),
                       duration_format(config->ttl_ns, ttl, sizeof(ttl)));
    if (config->max_kills > SHIM_MAX_KILLS_MAX)
        return err_set(err, ERR_INVALID, 0, "--max-kills is %u: at most %d", config->max_kills,
                       SHIM_MAX_KILLS_MAX);
    return 0;
}
