// SPDX-License-Identifier: Apache-2.0
#include "agent/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/agent.h"
#include "agent/pidfence.h"
#include "base/log.h"

#define NOT_COVERED_BITS 8
#define SILENT_POLLS     8 // orders that metafence-run may leave unanswered
#define SILENT_MIN_NS    NS_PER_SEC
#define SILENT_MAX_NS    (8 * NS_PER_SEC)

static const char *const label_names[] = {
    [LABEL_UNKNOWN] = "unknown", [LABEL_LEADER] = "leader", [LABEL_FOLLOWER] = "follower"};

const char *not_covered_name(uint32_t bit)
{
    switch ((enum not_covered)bit) {
    case NOT_COVERED_PAUSED: return "Paused";
    case NOT_COVERED_UNARMED: return "Unarmed";
    case NOT_COVERED_AGENT_BLIND: return "AgentBlind";
    case NOT_COVERED_SINGLE_REPLICA: return "SingleReplicaHeld";
    case NOT_COVERED_NO_FENCE: return "NoFence";
    case NOT_COVERED_UNTAGGED: return "Untagged";
    case NOT_COVERED_UNUSABLE: return "FenceUnusable";
    case NOT_COVERED_UNTAGGED_WRITERS: return "UntaggedWriters";
    }
    return NULL;
}

bool report_is_fence_silent(const struct agent *agent)
{
    int64_t limit_ns = SILENT_POLLS * agent->config.core.poll_ns;

    if (limit_ns < SILENT_MIN_NS)
        limit_ns = SILENT_MIN_NS;
    if (limit_ns > SILENT_MAX_NS) // an order goes out each second
        limit_ns = SILENT_MAX_NS;
    return agent->facts.fence.known &&
           instant_since(agent->facts.now, agent->facts.fence.received_at) > limit_ns;
}

const char *role_name(const struct agent *agent)
{
    const struct fence_status *status = &agent->facts.fence.status;

    if (agent->facts.fence.known && !(status->flags & SHIM_ALIVE)) {
        if (status->flags & SHIM_MANUAL)
            return "fenced";
        return agent->methods.pidfence && !status->hold ? "down" : "held";
    }
    if (agent->facts.fence.known && status->state == SHIM_KILLING)
        return "fenced";
    if (agent->plan.rule == RULE_PROMOTING)
        return "promoting";
    return label_names[agent->plan.label];
}

const char *report_wait_status(int wait_status, char *buf, size_t size)
{
    if (wait_status == PIDFENCE_WAIT_UNKNOWN)
        (void)snprintf(buf, size, "unknown");
    else if (WIFSIGNALED(wait_status))
        (void)snprintf(buf, size, "signal %d", WTERMSIG(wait_status));
    else
        (void)snprintf(buf, size, "exit %d", WEXITSTATUS(wait_status));
    return buf;
}

// For people: what is below a millisecond does not matter in an age.
static int64_t whole_ms(int64_t ns)
{
    return ns / NS_PER_MS * NS_PER_MS;
}

// A duration that is measured: to the microsecond.
static int64_t whole_us(int64_t ns)
{
    return ns / 1000 * 1000;
}

static void note(struct agent *agent, const char *event, const char *detail)
{
    history_add(&agent->history, &agent->facts, &agent->memory, event, detail);
}

// What a decision was based on, for its log line.
struct basis {
    const char *row_id;
    int64_t row_age_ns;
    int64_t deadline_left_ns;
};

static struct basis basis_of(const struct agent *agent)
{
    const struct facts *facts = &agent->facts;
    struct instant deadline = agent->memory.deadline;

    return (struct basis){
        .row_id = facts->election.known ? facts->election.owner_id : "",
        .row_age_ns = facts->election.known
                          ? whole_ms(facts->election.age_ns +
                                     instant_since(facts->now, facts->election.sent_at))
                          : 0,
        .deadline_left_ns = deadline.ns ? whole_ms(instant_since(deadline, facts->now)) : 0,
    };
}

static void report_rule(struct agent *agent)
{
    struct reporter *reporter = &agent->reporter;
    const char *before = reporter->has_begun ? rule_name(reporter->rule) : "";
    struct basis basis = basis_of(agent);

    if (reporter->has_begun && reporter->rule == agent->plan.rule)
        return;
    reporter->rule = agent->plan.rule;
    reporter->counters.rules[agent->plan.rule]++;
    log_info("rule changed", kv_str("rule", rule_name(agent->plan.rule)),
             kv_str("prev", before), kv_int("incarnation", (int64_t)agent->memory.incarnation),
             kv_str("row_id", basis.row_id), kv_dur("row_age", basis.row_age_ns),
             kv_dur("deadline_left", basis.deadline_left_ns),
             kv_int("term", (int64_t)agent->facts.election.term),
             kv_str("database", database_state_name(agent->facts.database.state)));
    note(agent, "rule", before);
}

static void report_label(struct agent *agent)
{
    struct reporter *reporter = &agent->reporter;

    if (reporter->has_begun && reporter->label == agent->plan.label)
        return;
    reporter->label = agent->plan.label;
    log_info("role changed", kv_str("role", label_names[agent->plan.label]));
    note(agent, "role", label_names[agent->plan.label]);
}

static void report_database(struct agent *agent)
{
    struct reporter *reporter = &agent->reporter;
    enum database_state state = agent->facts.database.state;

    if (reporter->has_begun && reporter->database == state)
        return;
    reporter->database = state;
    if (state == DATABASE_ANSWERS || state == DATABASE_UNKNOWN)
        log_info("database", kv_str("state", database_state_name(state)));
    else
        log_warn("database", kv_str("state", database_state_name(state)),
                 kv_str("err", agent->database_error));
    note(agent, "database", agent->database_error);
}

// Told long before it costs anything: at half of the time-out a read is asked a second time,
// and only what is not answered at all counts toward the deadline.
void report_answer(struct agent *agent, int64_t took_ns)
{
    struct reporter *reporter = &agent->reporter;
    int64_t timeout_ns = agent->config.core.query_timeout_ns;
    int64_t limit_ns = reporter->is_slow ? timeout_ns / 6 : timeout_ns / 3;
    char took[32], timeout[32];

    reporter->answer_ns += (took_ns - reporter->answer_ns) / 8;
    if ((reporter->answer_ns > limit_ns) == reporter->is_slow)
        return;
    reporter->is_slow = !reporter->is_slow;
    (void)duration_format(reporter->answer_ns / NS_PER_MS * NS_PER_MS, took, sizeof(took));
    (void)duration_format(timeout_ns, timeout, sizeof(timeout));
    if (reporter->is_slow)
        log_warn("Postgres answers slowly: more than a third of postgres.queryTimeout",
                 kv_str("took", took), kv_str("timeout", timeout));
    else
        log_info("Postgres answers in time again", kv_str("took", took));
    note(agent, "answers", reporter->is_slow ? "slow" : "in time");
}

void report_schema(struct agent *agent, bool is_denied)
{
    struct reporter *reporter = &agent->reporter;

    if (reporter->is_schema_denied == is_denied)
        return;
    reporter->is_schema_denied = is_denied;
    if (is_denied)
        log_warn("schema metafence is not readable",
                 kv_str("fix", "metafence sql install --agent-role ROLE, as the metas' role"));
    else
        log_info("schema metafence is readable");
}

void report_guard(struct agent *agent, const struct pg_fault *fault)
{
    struct reporter *reporter = &agent->reporter;
    int64_t unguarded = agent->executor.unguarded;
    bool is_failing = fault && (fault->kind == PG_REFUSAL || fault->kind == PG_MISSING);

    if (is_failing && !reporter->is_guard_failing)
        log_warn("the guard can't be completed", kv_err(&fault->err),
                 kv_str("fix", "metafence sql install, as the owner of the metas' tables"));
    else if (!fault && unguarded != reporter->unguarded)
        log_info("guard", kv_int("tables_without", unguarded));
    reporter->is_guard_failing = is_failing;
    if (!fault)
        reporter->unguarded = unguarded;
}

static void report_link(struct agent *agent)
{
    struct reporter *reporter = &agent->reporter;
    bool is_silent = report_is_fence_silent(agent);

    if (reporter->is_fence_known != agent->facts.fence.known) {
        reporter->is_fence_known = agent->facts.fence.known;
        note(agent, reporter->is_fence_known ? "fence connected" : "fence lost", "");
    }
    if (reporter->is_fence_silent == is_silent)
        return;
    reporter->is_fence_silent = is_silent;
    if (is_silent)
        log_warn("metafence-run does not answer: stopped or starved?");
    else
        log_info("metafence-run answers again");
    note(agent, is_silent ? "fence silent" : "fence answers", "");
}

static void report_not_covered(struct agent *agent)
{
    struct reporter *reporter = &agent->reporter;
    uint32_t now = agent->plan.not_covered;
    char list[128] = "";
    size_t used = 0;

    if (reporter->has_begun && reporter->not_covered == now)
        return;
    reporter->not_covered = now;
    for (uint32_t i = 0; i < NOT_COVERED_BITS; i++)
        if (now & (1U << i))
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", used ? "," : "",
                                     not_covered_name(1U << i));
    if (now)
        log_warn("not covered", kv_str("reasons", list));
    else
        log_info("covered");
    note(agent, now ? "not covered" : "covered", list);
}

bool report_is_confirmed(const struct report_fence *fence)
{
    return fence->dead_at.ns && (fence->sessions_gone_at.ns || fence->is_untagged);
}

const char *not_fenced_why(const struct agent *agent)
{
    bool is_shim = agent->methods.pidfence == NULL;

    if (agent->plan.not_fenced == NOT_FENCED_SESSIONS)
        return "meta is dead, but its sessions in Postgres are not seen to be gone";
    if (*methods_unusable(&agent->methods))
        return methods_unusable(&agent->methods);
    if (is_shim && !agent->facts.fence.known)
        return "no connection to metafence-run";
    if (is_shim && report_is_fence_silent(agent))
        return "metafence-run does not answer";
    return "meta is still alive";
}

static void report_not_fenced(struct agent *agent)
{
    struct reporter *reporter = &agent->reporter;
    const struct plan *plan = &agent->plan;
    bool is_edge = reporter->not_fenced != plan->not_fenced;
    bool is_next = plan->not_fenced && reporter->method != plan->method;

    if (!is_edge && !is_next)
        return;
    reporter->not_fenced = plan->not_fenced;
    reporter->method = plan->method;
    if (!plan->not_fenced) {
        log_info("fenced at last, or no longer to be fenced");
        note(agent, "fenced", "");
        return;
    }
    log_error(
        "not fenced", kv_int("incarnation", (int64_t)agent->memory.incarnation),
        kv_str("method", fence_method_name(plan->method)), kv_str("why", not_fenced_why(agent)),
        kv_dur("since", whole_ms(instant_since(agent->facts.now, plan->not_fenced_since))));
    note(agent, "not fenced", not_fenced_why(agent));
}

static void report_kill(struct agent *agent)
{
    struct reporter *reporter = &agent->reporter;
    const struct fence_order *order = &agent->plan.order;
    const struct fence_status *status = &agent->facts.fence.status;
    struct basis basis = basis_of(agent);

    if (!agent->facts.fence.known || order->role != FENCE_ROLE_KILL ||
        !(status->flags & SHIM_ALIVE) || reporter->kill_incarnation == order->incarnation)
        return;
    reporter->kill_incarnation = order->incarnation;
    reporter->counters.kills++;
    reporter->fence = (struct report_fence){.incarnation = order->incarnation,
                                            .reason = (enum fence_reason)order->reason,
                                            .decided_at = agent->facts.now};
    log_warn("fence", kv_str("rule", rule_name(agent->plan.rule)),
             kv_int("incarnation", (int64_t)order->incarnation), kv_int("pid", status->pid),
             kv_str("tag", status->tag), kv_str("row_id", basis.row_id),
             kv_dur("row_age", basis.row_age_ns),
             kv_dur("deadline_left", basis.deadline_left_ns),
             kv_int("term", (int64_t)agent->facts.election.term),
             kv_str("database", database_state_name(agent->facts.database.state)),
             kv_str("reason", agent->manual_reason));
    note(agent, "fence", agent->manual_reason);
}

static void report_end(struct agent *agent, const struct fence_death *death)
{
    char how[32];

    report_wait_status(death->wait_status, how, sizeof(how));
    log_info("meta ended by itself", kv_int("incarnation", (int64_t)death->incarnation),
             kv_str("how", how), kv_bool("engaged", death->engaged != 0),
             kv_instant("dead_boot_ns", (struct instant){death->dead_ns}));
    note(agent, "ended", how);
}

// metafence-run kills without an order only when a deadline has passed. An order of ours that
// came later than its own decision did nothing.
static bool is_by_shim(const struct report_fence *fence, const struct fence_death *death)
{
    if (death->reason != FENCE_REASON_LEASE_EXPIRED && death->reason != FENCE_REASON_AGENT_LOST)
        return false;
    return fence->incarnation != death->incarnation || death->decided_ns < fence->decided_at.ns;
}

static void report_fence_death(struct agent *agent, const struct fence_death *death)
{
    struct report_fence *fence = &agent->reporter.fence;
    const char *reason = fence_reason_name((enum fence_reason)death->reason);
    bool by_shim = is_by_shim(fence, death);

    if (by_shim || fence->incarnation != death->incarnation)
        *fence = (struct report_fence){.incarnation = death->incarnation,
                                       .by_shim = by_shim,
                                       .decided_at = {death->decided_ns}};
    fence->is_untagged = death->tag[0] == '\0';
    if (by_shim) {
        agent->reporter.counters.shim_kills++;
        log_warn(agent->methods.pidfence ? "killed at its deadline, between two decisions"
                                         : "metafence-run killed on its own deadline",
                 kv_str("reason", reason), kv_int("incarnation", (int64_t)death->incarnation),
                 kv_instant("deadline_boot_ns", (struct instant){death->deadline_ns}),
                 kv_bool("before_our_start", !agent->reporter.has_begun));
        note(agent, "fence by metafence-run", reason);
    }
    fence->reason = (enum fence_reason)death->reason;
    fence->dead_at = (struct instant){death->dead_ns};
    log_warn("dead", kv_str("reason", reason),
             kv_int("incarnation", (int64_t)death->incarnation), kv_str("tag", death->tag),
             kv_dur("took", whole_us(instant_since(fence->dead_at, fence->decided_at))),
             kv_instant("dead_boot_ns", fence->dead_at),
             kv_instant("deadline_boot_ns", (struct instant){death->deadline_ns}));
    note(agent, "dead", reason);
}

static void report_death(struct agent *agent)
{
    struct reporter *reporter = &agent->reporter;
    const struct fence_death *proven = &agent->facts.proven;
    const struct fence_death *death = &agent->facts.fence.status.last_death;
    bool is_known = agent->facts.fence.known;

    if (proven->incarnation > death->incarnation) {
        death = proven;
        is_known = true;
    }
    if (!is_known || reporter->death_incarnation == death->incarnation)
        return;
    reporter->death_incarnation = death->incarnation;
    if (death->incarnation == 0)
        return;
    reporter->counters.deaths++;
    if (death->reason == FENCE_REASON_NONE)
        report_end(agent, death);
    else
        report_fence_death(agent, death);
}

static void report_cleanup(struct agent *agent)
{
    struct reporter *reporter = &agent->reporter;
    struct report_fence *fence = &reporter->fence;
    const struct cleanup_fact *cleanup = &agent->facts.cleanup;

    if (fence->incarnation && fence->dead_at.ns && !fence->sessions_gone_at.ns &&
        cleanup->sessions_gone == fence->incarnation && !fence->is_untagged) {
        fence->sessions_gone_at = agent->facts.now;
        log_info(
            "confirmed dead", kv_int("incarnation", (int64_t)fence->incarnation),
            kv_bool("sessions_gone", true),
            kv_dur("took", whole_us(instant_since(agent->facts.now, fence->decided_at))),
            kv_dur("after_death", whole_us(instant_since(agent->facts.now, fence->dead_at))));
        note(agent, "confirmed dead", "sessions gone");
    }
    if (reporter->recorded_incarnation == cleanup->death_recorded)
        return;
    reporter->recorded_incarnation = cleanup->death_recorded;
    note(agent, "death recorded", "");
}

static void report_meta(struct agent *agent)
{
    struct reporter *reporter = &agent->reporter;
    const struct fence_status *status = &agent->facts.fence.status;

    if (!agent->facts.fence.known)
        return;
    if (reporter->incarnation != status->incarnation && status->pid > 0) {
        reporter->incarnation = status->incarnation;
        log_info("meta runs", kv_int("incarnation", (int64_t)status->incarnation),
                 kv_int("pid", status->pid), kv_str("tag", status->tag),
                 kv_int("restarts", status->restarts));
        note(agent, "meta runs", status->tag);
    }
    if (reporter->hold == status->hold)
        return;
    reporter->hold = status->hold;
    if (status->hold != SHIM_HOLD_NONE) {
        log_info("meta is held", kv_str("why", shim_hold_name((enum shim_hold)status->hold)));
        note(agent, "held", shim_hold_name((enum shim_hold)status->hold));
    }
}

void report_turn(struct agent *agent)
{
    agent->reporter.counters.turns++;
    report_kill(agent);
    report_not_fenced(agent);
    report_death(agent);
    report_cleanup(agent);
    report_rule(agent);
    report_label(agent);
    report_database(agent);
    report_link(agent);
    report_not_covered(agent);
    report_meta(agent);
    kube_say_turn(agent->kube);
    agent->reporter.has_begun = true;
}
