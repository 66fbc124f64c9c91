// SPDX-License-Identifier: Apache-2.0
#include "agent/execute.h"

#include <string.h>

#include "agent/agent.h"
#include "base/log.h"

#define SESSIONS_AGAIN_NS (20 * NS_PER_MS) // ended sessions need a moment to vanish
#define SESSIONS_QUICK    10
#define DENIED_AGAIN_NS   (10 * NS_PER_SEC)
#define GUARD_NEXT_NS     (200 * NS_PER_MS)
#define GUARD_AGAIN_NS    (5 * NS_PER_SEC)
#define GUARD_IDLE_NS     (60 * NS_PER_SEC)
#define ORDER_AGAIN_NS    NS_PER_SEC

static bool is_due(const struct execute_job *job, uint64_t incarnation, struct instant now)
{
    if (job->is_busy)
        return false;
    return job->incarnation != incarnation || instant_reached(now, job->not_before);
}

static void begin_job(struct execute_job *job, uint64_t incarnation)
{
    uint32_t tries = job->incarnation == incarnation ? job->tries + 1 : 1;

    *job = (struct execute_job){.is_busy = true, .incarnation = incarnation, .tries = tries};
}

// Ended sessions are gone in a moment; one that does not end (a hung disk) is not asked for
// more often than the row.
static int64_t sessions_wait_ns(const struct agent *agent)
{
    const struct execute_job *job = &agent->executor.sessions;
    int64_t poll_ns = agent->config.core.poll_ns;

    return job->tries < SESSIONS_QUICK && SESSIONS_AGAIN_NS < poll_ns ? SESSIONS_AGAIN_NS
                                                                      : poll_ns;
}

// When to try again after `fault`: a refusal does not heal within a poll.
static void retry_job(struct agent *agent, struct execute_job *job,
                      const struct pg_fault *fault)
{
    bool is_denied = fault->kind == PG_REFUSAL || fault->kind == PG_MISSING;

    job->not_before =
        instant_add(clock_now(), is_denied ? DENIED_AGAIN_NS : agent->config.core.poll_ns);
}

// Too many requests wait already: it was not sent.
static struct instant put_off(const struct agent *agent, struct execute_job *job)
{
    job->is_busy = false;
    job->not_before = instant_add(agent->facts.now, agent->config.core.poll_ns);
    return job->not_before;
}

// --- orders ---

static void send_order(struct agent *agent)
{
    struct executor *executor = &agent->executor;
    struct fence_order order = agent->plan.order;
    int64_t quiet_ns = instant_since(agent->facts.now, executor->sent_at);
    int64_t poll_ns = agent->config.core.poll_ns;

    // Also without news once a poll, at least once a second: metafence-run sees by it that we
    // are here.
    if (executor->sent_at.ns != 0 && quiet_ns < poll_ns && quiet_ns < ORDER_AGAIN_NS &&
        memcmp(&order, &executor->sent, sizeof(order)) == 0)
        return;
    if (!methods_send(&agent->methods, &order))
        return;
    executor->sent = order;
    executor->sent_at = agent->facts.now;
    agent->reporter.counters.orders++;
}

void execute_forget_order(struct executor *executor)
{
    executor->sent_at = (struct instant){0};
}

void execute_forget_count(struct agent *agent)
{
    struct executor *executor = &agent->executor;

    log_warn("metafence-run has lost its state and counts anew",
             kv_int("incarnation", (int64_t)agent->facts.fence.status.incarnation),
             kv_str("tag", agent->facts.fence.status.tag));
    executor->sessions.incarnation = executor->death.incarnation = 0;
    executor->phantom.incarnation = executor->guard.incarnation = 0;
    executor->rpc_incarnation = 0;
    agent->facts.cleanup = (struct cleanup_fact){0};
    agent->facts.rpc = (struct rpc_fact){0};
    methods_forget(&agent->methods);
}

// --- reads ---

// A wish is answered by one read at once. One that stays open after it (a table that is not
// there) is left to the polls.
static void want_read(struct agent *agent)
{
    struct executor *executor = &agent->executor;
    bool is_silent = agent->facts.database.state != DATABASE_ANSWERS;

    if (!agent->has_database || executor->is_reading || executor->has_read_wished || is_silent)
        return;
    executor->has_read_wished = true;
    agent_read(agent);
}

static bool wishes_read(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->action_count; i++)
        if (plan->actions[i].kind == ACTION_READ)
            return true;
    return false;
}

// --- meta's own answer ---

static void ask_status(struct agent *agent)
{
    struct grpc_result failed = {.answer = GRPC_UNKNOWN, .sent_at = agent->facts.now};
    struct err err = {0};

    if (grpc_client_is_busy(agent->grpc))
        return;
    agent->executor.rpc_incarnation = agent->memory.incarnation;
    agent->reporter.counters.status_calls++;
    if (grpc_client_ask(agent->grpc, agent->facts.now, &err) < 0)
        (void)observe_rpc(&agent->facts, &failed, agent->memory.incarnation, agent->facts.now);
}

void execute_rpc_done(struct agent *agent, const struct grpc_result *result)
{
    if (observe_rpc(&agent->facts, result, agent->executor.rpc_incarnation, clock_now()))
        agent_feed(agent);
}

// --- after a death ---

static void on_sessions(int64_t count, const struct pg_fault *fault, void *arg)
{
    struct agent *agent = arg;
    struct execute_job *job = &agent->executor.sessions;

    job->is_busy = false;
    if (fault) {
        retry_job(agent, job, fault);
    } else if (count > 0) {
        agent->reporter.counters.sessions_ended += (uint64_t)count;
        job->not_before = instant_add(clock_now(), sessions_wait_ns(agent));
    } else {
        agent->facts.cleanup.sessions_gone = job->incarnation;
    }
    agent_feed(agent);
}

static struct instant end_sessions(struct agent *agent)
{
    struct execute_job *job = &agent->executor.sessions;
    uint64_t incarnation = agent->plan.dead_incarnation;
    struct err err = {0};

    if (!is_due(job, incarnation, agent->facts.now))
        return job->is_busy ? INSTANT_NEVER : job->not_before;
    begin_job(job, incarnation);
    if (election_end_sessions(agent->election, agent->plan.dead_tag, on_sessions, agent, &err) <
        0)
        return put_off(agent, job);
    return INSTANT_NEVER;
}

static void on_death_recorded(int64_t count, const struct pg_fault *fault, void *arg)
{
    struct agent *agent = arg;
    struct execute_job *job = &agent->executor.death;

    (void)count; // 0: it was known already
    job->is_busy = false;
    if (fault)
        retry_job(agent, job, fault);
    else
        agent->facts.cleanup.death_recorded = job->incarnation;
    agent_feed(agent);
}

static struct instant record_death(struct agent *agent)
{
    const struct plan *plan = &agent->plan;
    struct execute_job *job = &agent->executor.death;
    struct election_death death = {
        .tag = plan->dead_tag,
        .id = agent->config.core.id,
        .method = fence_method_word(plan->dead_method),
        .reason = fence_reason_name(plan->dead_reason),
    };
    struct err err = {0};

    if (!is_due(job, plan->dead_incarnation, agent->facts.now))
        return job->is_busy ? INSTANT_NEVER : job->not_before;
    begin_job(job, plan->dead_incarnation);
    if (election_record_death(agent->election, &death, on_death_recorded, agent, &err) < 0)
        return put_off(agent, job);
    return INSTANT_NEVER;
}

static void on_phantom_dropped(int64_t count, const struct pg_fault *fault, void *arg)
{
    struct agent *agent = arg;
    struct execute_job *job = &agent->executor.phantom;

    job->is_busy = false;
    job->not_before = instant_add(clock_now(), agent->config.core.poll_ns);
    if (fault)
        retry_job(agent, job, fault);
    else if (count > 0)
        agent->reporter.counters.phantoms_dropped++;
    agent->executor.read_again = true; // the row is another one now
    agent_read(agent);
}

static struct instant drop_phantom(struct agent *agent)
{
    struct execute_job *job = &agent->executor.phantom;
    uint64_t incarnation = agent->plan.dead_incarnation;
    struct err err = {0};

    if (!is_due(job, incarnation, agent->facts.now))
        return job->is_busy ? INSTANT_NEVER : job->not_before;
    begin_job(job, incarnation);
    if (election_drop_phantom(agent->election, agent->plan.phantom_heartbeat_us,
                              on_phantom_dropped, agent, &err) < 0)
        return put_off(agent, job);
    return INSTANT_NEVER;
}

// --- the guard ---

static void on_guarded(int64_t count, const struct pg_fault *fault, void *arg)
{
    struct agent *agent = arg;
    struct executor *executor = &agent->executor;
    // One table a call: on to the next one at once, but no hurry with one that is locked.
    bool has_progress = !fault && count > 0 && count != executor->unguarded;
    int64_t wait_ns = fault ? GUARD_IDLE_NS : has_progress ? GUARD_NEXT_NS : GUARD_AGAIN_NS;

    executor->guard.is_busy = false;
    executor->guard.not_before = instant_add(clock_now(), wait_ns);
    if (!fault)
        executor->unguarded = count;
    report_guard(agent, fault);
}

static struct instant complete_guard(struct agent *agent)
{
    struct execute_job *job = &agent->executor.guard;
    uint64_t incarnation = agent->memory.incarnation;
    struct err err = {0};

    if (!is_due(job, incarnation, agent->facts.now))
        return job->is_busy ? INSTANT_NEVER : job->not_before;
    begin_job(job, incarnation);
    if (election_complete(agent->election, on_guarded, agent, &err) == 0)
        return INSTANT_NEVER;
    job->is_busy = false;
    job->not_before = instant_add(agent->facts.now, GUARD_IDLE_NS);
    return job->not_before;
}

static struct instant execute_action(struct agent *agent, enum action_kind kind)
{
    switch (kind) {
    case ACTION_LABEL: kube_label(agent->kube, agent->plan.label); break;
    case ACTION_ORDER: send_order(agent); break;
    case ACTION_READ: want_read(agent); break;
    case ACTION_ASK_STATUS: ask_status(agent); break;
    case ACTION_END_SESSIONS: return end_sessions(agent);
    case ACTION_RECORD_DEATH: return record_death(agent);
    case ACTION_DROP_PHANTOM: return drop_phantom(agent);
    case ACTION_KILL_PIDFD: methods_kill(&agent->methods, &agent->facts, &agent->plan); break;
    case ACTION_DELETE_POD: kube_delete_pod(agent->kube); break;
    case ACTION_COMPLETE_GUARD: return complete_guard(agent);
    }
    return INSTANT_NEVER;
}

struct instant execute_plan(struct agent *agent)
{
    struct instant again = INSTANT_NEVER;

    if (!wishes_read(&agent->plan))
        agent->executor.has_read_wished = false;
    for (uint32_t i = 0; i < agent->plan.action_count; i++)
        again = instant_min(again, execute_action(agent, agent->plan.actions[i].kind));
    return again;
}
