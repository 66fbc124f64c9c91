// SPDX-License-Identifier: Apache-2.0
#include "fence/shim.h"

#include <string.h>
#include <sys/wait.h>

#include "fence/gate.h"

#define BACKOFF_MIN_GAP_NS   NS_PER_SEC        // between two starts
#define BACKOFF_QUICK_NS     (10 * NS_PER_SEC) // an end so soon after the start is a quick one
#define ABORT_HARMLESS_NS    (60 * NS_PER_SEC) // metas that start together abort each other
#define STORM_FIRST_DELAY_NS (10 * NS_PER_SEC)
#define STORM_MAX_TTLS       4
#define STORM_MAX_DOUBLINGS  20
#define STATUS_ABORT         134 // 128 + SIGABRT, also as an exit code of a wrapper
#define SIGNAL_ABORT         6

static bool has(const struct shim_memory *memory, uint32_t flag)
{
    return memory->status.flags & flag;
}

static void put(struct shim_memory *memory, uint32_t flag, bool on)
{
    memory->status.flags = on ? memory->status.flags | flag : memory->status.flags & ~flag;
}

static bool is_paused(const struct shim_memory *memory, struct instant now)
{
    return memory->status.pause_end_ns > now.ns;
}

static void engage(struct shim_memory *memory, struct instant now)
{
    if (has(memory, SHIM_ENGAGED))
        return;
    put(memory, SHIM_ENGAGED, true);
    memory->status.engaged_ns = now.ns;
}

// What a lease that starts its life at `base` leaves us until we have to be dead.
static struct instant lease_end(const struct shim_config *config, struct instant base)
{
    return instant_add(base, config->ttl_ns - config->margin_ns - config->kill_budget_ns);
}

// ---- orders

// Another id or none in the row: our lease, if we get one, is younger than that read. Our id:
// its heartbeat is a lower bound. What is read once we are engaged says nothing of this kind:
// only a leader permit extends then.
static void take_lease_base(struct shim_memory *memory)
{
    const struct fence_order *order = &memory->order;
    struct instant base = {order->read_ns};

    if (order->row == FENCE_ROW_UNKNOWN)
        return;
    if (order->row == FENCE_ROW_OURS && order->heartbeat_age_ns > 0)
        base = instant_add(base, -order->heartbeat_age_ns);
    memory->lease_base = instant_max(memory->lease_base, base);
}

static void take_database_identity(struct fence_status *status, const struct fence_order *order)
{
    if (status->system_id == 0)
        status->system_id = order->system_id;
    if (status->timeline == 0)
        status->timeline = order->timeline;
    if (status->term == 0)
        status->term = order->term;
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
        if (!has(memory, SHIM_ENGAGED))
            status->permit = FENCE_ROLE_FOLLOWER;
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
    put(memory, SHIM_MANUAL, order->flags & FENCE_ORDER_MANUAL_HOLD);
    if (order->flags & FENCE_ORDER_ARMED)
        put(memory, SHIM_ARMED, true);
    if (has(memory, SHIM_SILENCE_HELD))
        memory->silence_grace = instant_add(now, config->agent_silence_ns);
    if (order->incarnation == memory->status.incarnation && has(memory, SHIM_ALIVE)) {
        if (order->flags & FENCE_ORDER_ENGAGED)
            engage(memory, now);
        if (order->flags & FENCE_ORDER_SUPERSEDED)
            put(memory, SHIM_SUPERSEDED, true);
        take_role(config, memory, order, now);
    }
    if (!has(memory, SHIM_ENGAGED))
        take_lease_base(memory);
}

// ---- one life

void shim_started(struct shim_memory *memory, struct instant now, int32_t pid,
                  uint64_t start_ticks, const char *tag)
{
    struct fence_status *status = &memory->status;

    if (status->incarnation > 0)
        status->restarts++;
    status->incarnation++;
    status->pid = pid;
    status->start_ticks = start_ticks;
    status->started_ns = now.ns;
    strncpy(status->tag, tag, sizeof(status->tag) - 1);
    put(memory, SHIM_ENGAGED | SHIM_SUPERSEDED | SHIM_SILENCE_HELD, false);
    put(memory, SHIM_ALIVE, true);
    status->engaged_ns = 0;
    status->permit = FENCE_ROLE_KEEP;
    status->hold = SHIM_HOLD_NONE;
    status->hold_until_ns = 0;
    status->deadline_ns = 0;
    status->system_id = 0;
    status->timeline = 0;
    status->term = 0;
    memory->service_was_open = false;
    memory->permit_deadline = (struct instant){0};
    memory->silence_grace = (struct instant){0};
    memory->kill_order = FENCE_REASON_NONE;
    memory->kill_sent = false;
    memory->kill_reason = FENCE_REASON_NONE;
    memory->kill_deadline_ns = 0;
    memory->last_start = now;
    memory->hold_since = (struct instant){0};
    if (memory->order.magic != 0)
        take_lease_base(memory);
}

static void record_death(struct shim_memory *memory, struct instant now, int wait_status)
{
    const struct fence_status *status = &memory->status;
    struct fence_death death = {.incarnation = status->incarnation,
                                .wait_status = wait_status,
                                .dead_ns = now.ns,
                                .engaged = has(memory, SHIM_ENGAGED) ? 1 : 0};

    memcpy(death.tag, status->tag, sizeof(death.tag));
    death.deadline_ns = memory->kill_sent ? memory->kill_deadline_ns : status->deadline_ns;
    if (memory->kill_sent) {
        death.reason = memory->kill_reason;
        death.decided_ns = memory->kill_decided.ns;
    }
    memory->status.last_death = death;
}

static bool is_abort(int wait_status)
{
    return (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGNAL_ABORT) ||
           (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == STATUS_ABORT);
}

static bool is_clean(int wait_status)
{
    return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
}

// Manual fences, exit 0, TERM and aborts of a first start don't count for the storm limit.
static bool end_counts(const struct shim_memory *memory, struct instant now, int wait_status)
{
    if (has(memory, SHIM_TERM_RECEIVED))
        return false;
    if (memory->kill_sent)
        return memory->kill_reason != FENCE_REASON_MANUAL;
    return is_abort(wait_status) && instant_since(now, memory->last_start) >= ABORT_HARMLESS_NS;
}

static void count_kill(const struct shim_config *config, struct shim_memory *memory,
                       struct instant now)
{
    uint32_t recent = 0;
    uint32_t beyond = 0;
    int64_t delay_ns = STORM_FIRST_DELAY_NS;

    memory->status.kills++;
    if (memory->kill_count == SHIM_KILLS_KEPT) {
        memmove(&memory->kill_times[0], &memory->kill_times[1],
                sizeof(memory->kill_times) - sizeof(memory->kill_times[0]));
        memory->kill_count--;
    }
    memory->kill_times[memory->kill_count++] = now;
    for (uint32_t i = 0; i < memory->kill_count; i++)
        if (instant_since(now, memory->kill_times[i]) < config->kill_window_ns)
            recent++;
    if (recent <= config->max_kills)
        return;
    beyond = recent - config->max_kills - 1;
    if (beyond > STORM_MAX_DOUBLINGS)
        beyond = STORM_MAX_DOUBLINGS;
    delay_ns <<= beyond;
    if (delay_ns > STORM_MAX_TTLS * config->ttl_ns)
        delay_ns = STORM_MAX_TTLS * config->ttl_ns;
    memory->storm_until = instant_add(now, delay_ns);
}

static void back_off(struct shim_memory *memory, struct instant now)
{
    static const int64_t delays_ns[] = {1 * NS_PER_SEC, 2 * NS_PER_SEC, 4 * NS_PER_SEC,
                                        8 * NS_PER_SEC, 10 * NS_PER_SEC};
    const uint32_t last = sizeof(delays_ns) / sizeof(delays_ns[0]) - 1;
    uint32_t step = memory->quick_exits < last ? memory->quick_exits : last;

    memory->backoff_until = instant_add(memory->last_start, BACKOFF_MIN_GAP_NS);
    if (memory->kill_sent)
        return;
    if (instant_since(now, memory->last_start) >= BACKOFF_QUICK_NS) {
        memory->quick_exits = 0;
        return;
    }
    memory->quick_exits++;
    memory->backoff_until =
        instant_max(memory->backoff_until, instant_add(now, delays_ns[step]));
}

void shim_reaped(const struct shim_config *config, struct shim_memory *memory,
                 struct instant now, int wait_status)
{
    struct fence_status *status = &memory->status;
    bool in_place = memory->kill_sent || is_clean(wait_status) || is_abort(wait_status);

    record_death(memory, now, wait_status);
    put(memory, SHIM_ALIVE | SHIM_SILENCE_HELD, false);
    status->pid = 0;
    status->start_ticks = 0;
    status->deadline_ns = 0;
    status->permit = FENCE_ROLE_KEEP;
    if (memory->kill_sent)
        status->fences++;
    if (end_counts(memory, now, wait_status))
        count_kill(config, memory, now);
    // One fence for a lost agent, not one a lease: until an agent is back, silence does not
    // count.
    if (status->last_death.reason == FENCE_REASON_AGENT_LOST)
        put(memory, SHIM_ARMED, false);
    back_off(memory, now);
    memory->hold_since = now;
    memory->exit_status =
        WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    memory->exit_pending = has(memory, SHIM_TERM_RECEIVED) ||
                           config->restart == SHIM_RESTART_CONTAINER || !in_place;
}

// ---- a new metafence-run in an old pod

// The incarnation that was alive when the state file was written last, dead by now.
static void restore_unseen_death(struct shim_memory *memory, const struct fence_status *left,
                                 struct instant now)
{
    bool overdue =
        (left->flags & SHIM_ENGAGED) && left->deadline_ns != 0 && left->deadline_ns <= now.ns;
    struct fence_death death = {.incarnation = left->incarnation,
                                .dead_ns = now.ns,
                                .deadline_ns = left->deadline_ns,
                                .engaged = left->flags & SHIM_ENGAGED ? 1 : 0};

    memcpy(death.tag, left->tag, sizeof(death.tag));
    // Somebody else had to end it past its deadline: the lease is not taken back at once
    // either.
    if (overdue)
        death.reason = FENCE_REASON_LEASE_EXPIRED;
    memory->status.last_death = death;
}

void shim_restore(struct shim_memory *memory, const struct fence_status *left,
                  bool tree_is_dead, struct instant now)
{
    struct fence_status *status = &memory->status;
    bool same_boot = strncmp(status->boot_id, left->boot_id, sizeof(status->boot_id)) == 0;

    status->incarnation = left->incarnation;
    status->restarts = left->restarts;
    status->kills = left->kills;
    status->fences = left->fences;
    put(memory, SHIM_MANUAL, left->flags & SHIM_MANUAL);
    status->pause_end_ns = same_boot ? left->pause_end_ns : 0;
    status->last_death = left->last_death;
    memory->hold_since = now;
    if (!(left->flags & SHIM_ALIVE)) {
        if (!same_boot && status->last_death.incarnation != 0)
            status->last_death.dead_ns = now.ns;
        return;
    }
    status->last_death = (struct fence_death){0};
    if (tree_is_dead)
        restore_unseen_death(memory, left, now);
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
    if (!has(memory, SHIM_ALIVE) || !(facts->ports & SHIM_PORTS_KNOWN))
        return;
    if (facts->ports & (SHIM_PORT_METRICS | SHIM_PORT_DASHBOARD))
        engage(memory, facts->now);
    if (facts->ports & SHIM_PORT_SERVICE)
        memory->service_was_open = true;
    else if (memory->service_was_open)
        engage(memory, facts->now);
}

// When the living incarnation has to be dead if nobody says anything more. NEVER: it need not
// be.
static struct instant silence_deadline(const struct shim_config *config,
                                       const struct shim_memory *memory)
{
    struct instant engaged = {memory->status.engaged_ns};
    struct instant base = memory->lease_base;

    if (!has(memory, SHIM_ENGAGED) || (!has(memory, SHIM_ARMED) && !config->require_agent))
        return INSTANT_NEVER;
    if (memory->status.permit == FENCE_ROLE_LEADER)
        return instant_max(memory->permit_deadline, memory->silence_grace);
    // Unarmed or without any read, all that is known is that it cannot have led before it began
    // to.
    if (!has(memory, SHIM_ARMED) || base.ns == 0)
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
    bool present = has(memory, SHIM_AGENT_PRESENT);
    bool overdue = false;

    if (paused)
        deadline = instant_max(deadline, (struct instant){status->pause_end_ns});
    overdue = instant_reached(facts->now, deadline);
    put(memory, SHIM_SILENCE_HELD,
        overdue && !present && config->when_agent_lost == SHIM_AGENT_LOST_HOLD);
    if (has(memory, SHIM_SILENCE_HELD))
        deadline = INSTANT_NEVER;
    status->deadline_ns = deadline.ns == INT64_MAX ? 0 : deadline.ns;

    if (memory->kill_order == FENCE_REASON_MANUAL)
        return FENCE_REASON_MANUAL;
    if (paused)
        return FENCE_REASON_NONE;
    if (memory->kill_order != FENCE_REASON_NONE)
        return memory->kill_order;
    if (has(memory, SHIM_ENGAGED) && has(memory, SHIM_SUPERSEDED))
        return FENCE_REASON_SUPERSEDED;
    if (!overdue || has(memory, SHIM_SILENCE_HELD))
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
        if (status->deadline_ns == 0 || status->deadline_ns > facts->now.ns)
            status->deadline_ns = facts->now.ns;
    }
    plan->kill = memory->kill_sent;
    plan->reason = memory->kill_reason;
    plan->forward_term = has(memory, SHIM_TERM_RECEIVED) && !memory->term_sent;
    memory->term_sent = memory->term_sent || plan->forward_term;
    if (memory->kill_sent)
        status->state = SHIM_KILLING;
    else
        status->state = has(memory, SHIM_TERM_RECEIVED) ? SHIM_TERMINATING : SHIM_RUNNING;
    if (status->deadline_ns != 0)
        wake(plan, facts->now, (struct instant){status->deadline_ns});
}

static void decide_between(const struct shim_config *config, const struct shim_facts *facts,
                           struct shim_memory *memory, struct shim_plan *plan)
{
    struct fence_status *status = &memory->status;

    if (memory->hold_since.ns == 0)
        memory->hold_since = facts->now;
    if (has(memory, SHIM_TERM_RECEIVED))
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
    if (facts->term_requested && !has(memory, SHIM_TERM_RECEIVED)) {
        put(memory, SHIM_TERM_RECEIVED, true);
        // Nothing runs: an orderly stop, whatever the last incarnation ended with.
        if (!has(memory, SHIM_ALIVE))
            memory->exit_status = 0;
    }
    put(memory, SHIM_AGENT_PRESENT, agent_is_present(config, facts, memory));
    note_ports(facts, memory);
    if (has(memory, SHIM_ALIVE))
        decide_living(config, facts, memory, ret_plan);
    else
        decide_between(config, facts, memory, ret_plan);
    if (has(memory, SHIM_AGENT_PRESENT))
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
