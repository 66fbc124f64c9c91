// SPDX-License-Identifier: Apache-2.0
// The page of metrics. Names and labels are an interface: dashboards and alerts hold on to
// them. What is not known is left out, never 0.
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "agent/metrics.h"
#include "base/log.h"

static const char *result_label(enum metrics_result result)
{
    switch (result) {
    case METRICS_CONFIRMED: return "confirmed";
    case METRICS_UNCONFIRMED: return "unconfirmed";
    case METRICS_ENDED: return "ended_by_itself";
    case METRICS_RESULTS: break;
    }
    return "";
}

static void write_role(const struct agent *agent, struct prom *prom)
{
    static const char *const roles[] = {"leader",  "follower", "promoting",
                                        "unknown", "held",     "fenced"};
    const char *role = role_name(agent);
    bool is_leader = agent->plan.label == LABEL_LEADER;

    prom_one_int(prom, "metafence_is_leader", "Whether this pod's meta is the leader.",
                 is_leader);
    prom_family(prom, PROM_GAUGE, "leader_election_master_status",
                "Whether this pod's meta is the leader, by client-go's name.");
    prom_int(prom, PROM_LABELS({"name", agent->config.election.service}), is_leader);
    prom_family(prom, PROM_GAUGE, "metafence_role", "1 for the role of this pod's meta.");
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        prom_int(prom, PROM_LABELS({"role", roles[i]}), strcmp(role, roles[i]) == 0);
}

static void write_rules(const struct agent *agent, struct prom *prom)
{
    const struct report_counters *counters = &agent->reporter.counters;

    prom_family(prom, PROM_GAUGE, "metafence_rule", "1 for the rule that decides now.");
    for (int i = 0; i < RULE_COUNT; i++)
        prom_int(prom, PROM_LABELS({"rule", rule_name((enum rule)i)}),
                 agent->plan.rule == (enum rule)i);
    prom_family(prom, PROM_COUNTER, "metafence_rule_fired",
                "How often a rule began to decide.");
    for (int i = 0; i < RULE_COUNT; i++)
        prom_count(prom, PROM_LABELS({"rule", rule_name((enum rule)i)}), counters->rules[i]);
}

// A moment of our clock as Unix time.
static int64_t wall_of(struct instant now, struct instant t)
{
    struct timespec wall = {0};

    (void)clock_gettime(CLOCK_REALTIME, &wall); // can't fail
    return wall.tv_sec * NS_PER_SEC + wall.tv_nsec + instant_since(t, now);
}

static void write_election(const struct agent *agent, struct instant now, struct prom *prom)
{
    const struct election_fact *fact = &agent->facts.election;
    struct instant deadline = agent->memory.deadline;
    bool has_lease = fact->row == ROW_OURS || fact->row == ROW_OTHER;

    prom_one_count(prom, "metafence_leader_transitions",
                   "Changes of the leader that the election row names.",
                   agent->metrics.leader_transitions);
    if (deadline.ns)
        prom_one_seconds(prom, "metafence_lease_deadline_seconds",
                         "Time left until this pod's meta may lead no longer.",
                         instant_since(deadline, now));
    if (!fact->known)
        return;
    if (fact->members_known)
        prom_one_int(prom, "metafence_election_members",
                     "Metas in the election, the own one included.",
                     (int64_t)fact->other_members + 1);
    if (fact->term_known)
        prom_one_int(prom, "metafence_election_term", "Term of the leadership.",
                     (int64_t)fact->term);
    if (has_lease)
        prom_one_seconds(prom, "metafence_lease_age_seconds",
                         "Age of the leader's heartbeat, by the clock of the database.",
                         fact->age_ns + instant_since(now, fact->sent_at));
    prom_one_seconds(prom, "metafence_last_election_read_timestamp_seconds",
                     "When the election was read last, as Unix time.",
                     wall_of(now, fact->received_at));
}

static void write_postgres(const struct agent *agent, struct prom *prom)
{
    static const struct pg_stats none = {0};
    const struct report_counters *counters = &agent->reporter.counters;
    const struct pg_stats *pg = agent->pg ? pg_stats(agent->pg) : &none;

    prom_one_int(prom, "metafence_postgres_up", "Whether Postgres answers.",
                 agent->facts.database.state == DATABASE_ANSWERS);
    prom_one_int(prom, "metafence_postgres_pooled",
                 "Whether the agent's session goes through a pooler.",
                 agent->pg && pg_is_pooled(agent->pg));
    prom_family(prom, PROM_COUNTER, "metafence_election_reads", "Reads of the election.");
    prom_count(prom, PROM_LABELS({"result", "answered"}), counters->reads);
    prom_count(prom, PROM_LABELS({"result", "failed"}), counters->reads_failed);
    prom_family(prom, PROM_HISTOGRAM, "metafence_postgres_query_duration_seconds",
                "Time that an answered read of the election took.");
    prom_histogram(prom, PROM_NONE, &agent->metrics.query);
    prom_family(prom, PROM_COUNTER, "metafence_postgres_connects", "Sessions with Postgres.");
    prom_count(prom, PROM_LABELS({"result", "up"}), pg->connects);
    prom_count(prom, PROM_LABELS({"result", "failed"}), pg->connect_failures);
    prom_one_count(prom, "metafence_postgres_hedges",
                   "Reads that were slow and sent a second time.", pg->hedges);
    prom_one_count(prom, "metafence_notifications", "Notifications from the term trigger.",
                   counters->notifications);
}

static void write_guard(const struct agent *agent, struct prom *prom)
{
    if (agent->facts.election.known && agent->facts.election.term_known)
        prom_one_int(prom, "metafence_guard_enforcing",
                     "Whether the guard in Postgres refuses what a superseded meta writes.",
                     agent->facts.election.guard_enforcing);
    if (agent->executor.unguarded >= 0)
        prom_one_int(prom, "metafence_guard_unguarded_tables",
                     "Tables of the metas that the guard does not cover.",
                     agent->executor.unguarded);
}

// Most never happen: those are left out. The usual ones begin at 0, so that a rate can be had.
static void write_results(const struct metrics *metrics, enum fence_method method,
                          enum fence_reason reason, struct prom *prom)
{
    for (int i = 0; i < METRICS_RESULTS; i++) {
        enum metrics_result result = (enum metrics_result)i;
        uint64_t count = metrics->attempts[method][reason][result];

        if (count > 0 || (method == FENCE_METHOD_PERMIT && result == METRICS_CONFIRMED))
            prom_count(prom,
                       PROM_LABELS({"method", fence_method_word(method)},
                                   {"reason", fence_reason_name(reason)},
                                   {"result", result_label(result)}),
                       count);
    }
}

static void write_attempts(const struct metrics *metrics, struct prom *prom)
{
    prom_family(prom, PROM_COUNTER, "metafence_fence_attempts",
                "Attempts to end meta, by method, rule and result.");
    for (int method = FENCE_METHOD_PERMIT; method < METRICS_METHODS; method++)
        for (int reason = FENCE_REASON_MANUAL; reason < METRICS_REASONS; reason++)
            write_results(metrics, (enum fence_method)method, (enum fence_reason)reason, prom);
}

static void write_fence(const struct agent *agent, struct prom *prom)
{
    const struct metrics *metrics = &agent->metrics;
    const struct report_counters *counters = &agent->reporter.counters;

    write_attempts(metrics, prom);
    prom_family(prom, PROM_HISTOGRAM, "metafence_fence_duration_seconds",
                "From the decision to kill to the confirmed death.");
    for (int method = FENCE_METHOD_PERMIT; method < METRICS_METHODS; method++)
        prom_histogram(prom,
                       PROM_LABELS({"method", fence_method_word((enum fence_method)method)}),
                       &metrics->fence[method]);
    prom_family(
        prom, PROM_HISTOGRAM, "metafence_detection_duration_seconds",
        "From what a kill is for (the other's heartbeat, the deadline) to its decision.");
    prom_histogram(prom, PROM_LABELS({"reason", "Superseded"}),
                   &metrics->detection[METRICS_SUPERSEDED]);
    prom_histogram(prom, PROM_LABELS({"reason", "LeaseExpired"}),
                   &metrics->detection[METRICS_LEASE_EXPIRED]);
    prom_family(prom, PROM_COUNTER, "metafence_fence_skipped",
                "Fences for silence that were due and held back.");
    prom_count(prom, PROM_LABELS({"reason", "AgentBlind"}), metrics->skipped_blind);
    prom_count(prom, PROM_LABELS({"reason", "SingleReplicaHeld"}), metrics->skipped_single);
    prom_family(prom, PROM_COUNTER, "metafence_split_brain_seconds",
                "Time in which meta led by its own view while the row named another.");
    prom_seconds(prom, PROM_NONE, metrics->split_ns);
    prom_one_count(prom, "metafence_deadline_kills",
                   "Kills by metafence-run on its own deadline, without an order.",
                   counters->shim_kills);
    prom_one_int(prom, "metafence_not_fenced",
                 "Whether a kill is wanted and not confirmed within its budget.",
                 agent->plan.not_fenced != NOT_FENCED_NO);
    prom_one_count(prom, "metafence_sessions_ended",
                   "Sessions of dead metas that were ended in Postgres.",
                   counters->sessions_ended);
    prom_one_count(prom, "metafence_phantoms_dropped",
                   "Election rows of dead phantom leaders that were deleted.",
                   counters->phantoms_dropped);
}

static void write_meta(const struct agent *agent, struct prom *prom)
{
    const struct fence_status *status = &agent->facts.fence.status;

    prom_one_int(prom, "metafence_fence_connected",
                 "Whether what guards meta (metafence-run) is there and has answered.",
                 agent->facts.fence.known && !report_is_fence_silent(agent));
    if (!agent->facts.fence.known)
        return;
    prom_one_int(prom, "metafence_meta_up", "Whether a process of meta runs.",
                 (status->flags & SHIM_ALIVE) != 0);
    prom_one_count(prom, "metafence_meta_restarts", "Starts of meta after the first.",
                   status->restarts);
}

static void write_orders(const struct agent *agent, struct instant now, struct prom *prom)
{
    const struct order_fact *orders = &agent->facts.orders;

    prom_one_int(prom, "metafence_paused", "Whether an operator has paused fencing.",
                 instant_before(now, orders->pause_end));
    prom_one_int(prom, "metafence_manual_fence", "Whether an operator has fenced meta.",
                 orders->manual_fence);
    prom_family(prom, PROM_GAUGE, "metafence_not_covered",
                "1 for each reason why a second leader is not excluded at present.");
    for (uint32_t bit = 1; not_covered_name(bit); bit <<= 1)
        prom_int(prom, PROM_LABELS({"reason", not_covered_name(bit)}),
                 (agent->plan.not_covered & bit) != 0);
}

static void write_self(const struct agent *agent, struct prom *prom)
{
    prom_family(prom, PROM_INFO, "metafence_build", "What runs.");
    prom_int(prom, PROM_LABELS({"version", METAFENCE_VERSION}), 1);
    prom_one_int(prom, "metafence_config_valid",
                 "Whether the agent runs on its configuration file, not on an older one.",
                 !agent->config_error[0]);
    prom_one_count(prom, "metafence_turns", "Decisions.", agent->reporter.counters.turns);
    prom_family(prom, PROM_HISTOGRAM, "metafence_loop_lag_seconds",
                "How late a poll ran: a busy loop, or no CPU.");
    prom_histogram(prom, PROM_NONE, &agent->metrics.lag);
    prom_one_count(prom, "metafence_log_lines_dropped", "Log lines that nobody read in time.",
                   log_dropped());
}

void metrics_write(const struct agent *agent, bool is_openmetrics, struct buf *out)
{
    struct prom prom = {.out = out, .is_openmetrics = is_openmetrics};
    struct instant now = clock_now();

    write_self(agent, &prom);
    write_role(agent, &prom);
    write_rules(agent, &prom);
    write_election(agent, now, &prom);
    write_postgres(agent, &prom);
    write_guard(agent, &prom);
    write_fence(agent, &prom);
    write_meta(agent, &prom);
    write_orders(agent, now, &prom);
    for (unsigned i = 0; i < agent->metrics.source_count; i++)
        agent->metrics.sources[i].fn(&prom, agent->metrics.sources[i].arg);
    metrics_write_process(&prom, agent->metrics.started_wall_ns);
    prom_end(&prom);
}
