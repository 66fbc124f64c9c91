// SPDX-License-Identifier: Apache-2.0
// What is counted when, and the page of both formats: each family once, with its help and type,
// nothing of it unset or unknown.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"

struct world {
    struct metrics metrics;
    struct facts facts;
    struct plan plan;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    metrics_init(&w->metrics);
    w->metrics.started_at.ns = 1000;
    w->facts.now.ns = 10000;
    w->facts.fence.known = true;
    w->facts.fence.status.incarnation = 5;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static void turn(struct world *w)
{
    metrics_turn(&w->metrics, &w->facts, &w->plan);
    metrics_turn(&w->metrics, &w->facts, &w->plan); // levels: the same again counts nothing
}

static uint64_t attempts(const struct world *w, enum fence_method method,
                         enum fence_reason reason, enum metrics_result result)
{
    return w->metrics.attempts[method][reason][result];
}

static uint64_t all_attempts(const struct world *w)
{
    uint64_t sum = 0;

    for (int m = 0; m < METRICS_METHODS; m++)
        for (int r = 0; r < METRICS_REASONS; r++)
            for (int i = 0; i < METRICS_RESULTS; i++)
                sum += w->metrics.attempts[m][r][i];
    return sum;
}

static uint64_t observed(const struct prom_histogram *histogram)
{
    uint64_t sum = 0;

    for (int i = 0; i <= PROM_BUCKETS; i++)
        sum += histogram->buckets[i];
    return sum;
}

static void order_kill(struct world *w, enum fence_reason reason, enum fence_method method)
{
    w->plan.order.role = FENCE_ROLE_KILL;
    w->plan.order.reason = reason;
    w->plan.method = method;
}

static void die(struct world *w, enum fence_reason reason)
{
    struct fence_death *death = &w->facts.fence.status.last_death;

    *death = (struct fence_death){
        .incarnation = 5, .reason = reason, .decided_ns = reason ? 10000 : 0, .dead_ns = 12000};
    w->plan.order.role = FENCE_ROLE_KEEP;
    w->plan.method = FENCE_METHOD_NONE;
    w->plan.dead_incarnation = 5;
    w->plan.dead_reason = reason;
    w->plan.dead_method = reason ? FENCE_METHOD_PERMIT : FENCE_METHOD_NONE;
}

static void wish_end_of_sessions(struct world *w)
{
    w->plan.actions[0].kind = ACTION_END_SESSIONS;
    w->plan.action_count = 1;
}

static void test_confirmed(void **state)
{
    struct world *w = *state;

    order_kill(w, FENCE_REASON_SUPERSEDED, FENCE_METHOD_PERMIT);
    turn(w);
    assert_int_equal(all_attempts(w), 0); // nothing is known of it yet
    die(w, FENCE_REASON_SUPERSEDED);
    wish_end_of_sessions(w);
    turn(w);
    assert_int_equal(
        attempts(w, FENCE_METHOD_PERMIT, FENCE_REASON_SUPERSEDED, METRICS_CONFIRMED), 1);
    assert_int_equal(observed(&w->metrics.fence[FENCE_METHOD_PERMIT]), 0);
    w->facts.cleanup.sessions_gone = 5;
    w->facts.now.ns = 17000;
    w->plan.action_count = 0;
    turn(w);
    assert_int_equal(observed(&w->metrics.fence[FENCE_METHOD_PERMIT]), 1);
    assert_int_equal(w->metrics.fence[FENCE_METHOD_PERMIT].sum_ns, 7000);
    assert_int_equal(all_attempts(w), 1);
}

// Without a database that could be asked, the proof of the process is the confirmation.
static void test_confirmed_without_database(void **state)
{
    struct world *w = *state;

    die(w, FENCE_REASON_LEASE_EXPIRED); // metafence-run's own: no order was seen
    w->facts.now.ns = 99000;
    turn(w);
    assert_int_equal(
        attempts(w, FENCE_METHOD_PERMIT, FENCE_REASON_LEASE_EXPIRED, METRICS_CONFIRMED), 1);
    assert_int_equal(w->metrics.fence[FENCE_METHOD_PERMIT].sum_ns, 2000);
}

static void test_next_method(void **state)
{
    struct world *w = *state;

    order_kill(w, FENCE_REASON_SUPERSEDED, FENCE_METHOD_PERMIT);
    turn(w);
    w->plan.method = FENCE_METHOD_PIDFD;
    turn(w);
    w->plan.method = FENCE_METHOD_API;
    turn(w);
    die(w, FENCE_REASON_SUPERSEDED);
    turn(w);
    assert_int_equal(
        attempts(w, FENCE_METHOD_PERMIT, FENCE_REASON_SUPERSEDED, METRICS_UNCONFIRMED), 1);
    assert_int_equal(
        attempts(w, FENCE_METHOD_PIDFD, FENCE_REASON_SUPERSEDED, METRICS_UNCONFIRMED), 1);
    assert_int_equal(attempts(w, FENCE_METHOD_API, FENCE_REASON_SUPERSEDED, METRICS_CONFIRMED),
                     1);
    assert_int_equal(all_attempts(w), 3);
    assert_int_equal(observed(&w->metrics.fence[FENCE_METHOD_API]), 1);
}

static void test_ended_by_itself(void **state)
{
    struct world *w = *state;

    order_kill(w, FENCE_REASON_MANUAL, FENCE_METHOD_PERMIT);
    turn(w);
    die(w, FENCE_REASON_NONE);
    turn(w);
    assert_int_equal(attempts(w, FENCE_METHOD_PERMIT, FENCE_REASON_MANUAL, METRICS_ENDED), 1);
    assert_int_equal(all_attempts(w), 1);
    // An exit that nobody wanted is no fence at all.
    w->facts.fence.status.last_death.incarnation = 6;
    w->plan.dead_incarnation = 6;
    turn(w);
    assert_int_equal(all_attempts(w), 1);
}

// Sessions that are left of a dead one are not another attempt to kill it.
static void test_sessions_are_no_attempt(void **state)
{
    struct world *w = *state;

    order_kill(w, FENCE_REASON_SUPERSEDED, FENCE_METHOD_PERMIT);
    turn(w);
    die(w, FENCE_REASON_SUPERSEDED);
    wish_end_of_sessions(w);
    turn(w);
    w->plan.not_fenced = NOT_FENCED_SESSIONS;
    w->plan.method = FENCE_METHOD_PERMIT;
    w->facts.fence.status.incarnation = 6;
    turn(w);
    w->plan.method = FENCE_METHOD_NONE;
    turn(w);
    assert_int_equal(all_attempts(w), 1);
}

static void test_earlier_agents_fence(void **state)
{
    struct world *w = *state;

    w->metrics.started_at.ns = 12001;
    die(w, FENCE_REASON_SUPERSEDED);
    turn(w);
    assert_int_equal(all_attempts(w), 0);
    assert_int_equal(observed(&w->metrics.fence[FENCE_METHOD_PERMIT]), 0);
}

// A death that the agent has proven by itself, while metafence-run could not tell.
static void test_proven(void **state)
{
    struct world *w = *state;

    w->facts.proven = (struct fence_death){.incarnation = 5,
                                           .reason = FENCE_REASON_SUPERSEDED,
                                           .decided_ns = 10000,
                                           .dead_ns = 10500};
    w->plan.dead_incarnation = 5;
    w->plan.dead_reason = FENCE_REASON_SUPERSEDED;
    w->plan.dead_method = FENCE_METHOD_PIDFD;
    turn(w);
    assert_int_equal(
        attempts(w, FENCE_METHOD_PIDFD, FENCE_REASON_SUPERSEDED, METRICS_CONFIRMED), 1);
    assert_int_equal(w->metrics.fence[FENCE_METHOD_PIDFD].sum_ns, 500);
}

static void see(struct world *w, enum row_state row, const char *id)
{
    w->facts.election.known = true;
    w->facts.election.row = row;
    (void)snprintf(w->facts.election.owner_id, sizeof(w->facts.election.owner_id), "%s", id);
    turn(w);
}

static void test_transitions(void **state)
{
    struct world *w = *state;

    see(w, ROW_ABSENT, "");
    see(w, ROW_OTHER, "a:1");
    assert_int_equal(w->metrics.leader_transitions, 0); // the first one that we see
    see(w, ROW_OTHER, "A:1");
    see(w, ROW_ABSENT, "");
    see(w, ROW_BROKEN, "x");
    see(w, ROW_OTHER, "a:1");
    assert_int_equal(w->metrics.leader_transitions, 0);
    see(w, ROW_OURS, "b:1");
    see(w, ROW_OTHER, "a:1");
    assert_int_equal(w->metrics.leader_transitions, 2);
}

static const struct prom_histogram *detection(const struct world *w,
                                              enum metrics_detection what)
{
    return &w->metrics.detection[what];
}

static void order_at(struct world *w, enum fence_reason reason, int64_t now_ns)
{
    order_kill(w, reason, FENCE_METHOD_PERMIT);
    w->plan.order.incarnation = 5;
    w->facts.fence.status.flags = SHIM_ALIVE;
    w->facts.now.ns = now_ns;
    turn(w);
}

// Once for an incarnation, from what it is for; not for reasons without a beginning.
static void test_detection(void **state)
{
    struct world *w = *state;

    w->facts.election = (struct election_fact){
        .known = true, .row = ROW_OTHER, .age_ns = 300, .sent_at = {9000}};
    order_at(w, FENCE_REASON_SUPERSEDED, 9500);
    order_at(w, FENCE_REASON_SUPERSEDED, 20000);
    assert_int_equal(observed(detection(w, METRICS_SUPERSEDED)), 1);
    assert_int_equal(detection(w, METRICS_SUPERSEDED)->sum_ns, 800);
    assert_int_equal(observed(detection(w, METRICS_LEASE_EXPIRED)), 0);
    w->metrics.detected = 0;
    w->facts.fence.status.deadline_ns = 21000;
    order_at(w, FENCE_REASON_LEASE_EXPIRED, 21007);
    assert_int_equal(detection(w, METRICS_LEASE_EXPIRED)->sum_ns, 7);
    w->metrics.detected = 0;
    order_at(w, FENCE_REASON_MANUAL, 22000);
    w->metrics.detected = 0;
    w->facts.election.row = ROW_OURS; // latched as superseded, and it won the row again
    order_at(w, FENCE_REASON_SUPERSEDED, 23000);
    w->metrics.detected = 0;
    w->facts.fence.status.flags = 0; // nobody is there to be killed
    w->facts.election.row = ROW_OTHER;
    turn(w);
    assert_int_equal(observed(detection(w, METRICS_SUPERSEDED)), 1);
    assert_int_equal(observed(detection(w, METRICS_LEASE_EXPIRED)), 1);
}

static void test_skipped(void **state)
{
    struct world *w = *state;

    w->plan.not_covered = NOT_COVERED_AGENT_BLIND | NOT_COVERED_PAUSED;
    turn(w);
    w->plan.not_covered |= NOT_COVERED_SINGLE_REPLICA;
    turn(w);
    assert_int_equal(w->metrics.skipped_blind, 1);
    assert_int_equal(w->metrics.skipped_single, 1);
    w->plan.not_covered = 0;
    turn(w);
    w->plan.not_covered = NOT_COVERED_AGENT_BLIND;
    turn(w);
    assert_int_equal(w->metrics.skipped_blind, 2);
    assert_int_equal(w->metrics.skipped_single, 1);
}

static void split_turn(struct world *w, uint32_t flags, int64_t now_ns)
{
    w->facts.fence.status.flags = flags;
    w->facts.now.ns = now_ns;
    turn(w);
}

static void test_split_brain(void **state)
{
    struct world *w = *state;

    see(w, ROW_OTHER, "a:1");
    split_turn(w, SHIM_ALIVE, 20000); // a follower
    split_turn(w, SHIM_ENGAGED, 21000);
    assert_int_equal(w->metrics.split_ns, 0);
    split_turn(w, SHIM_ALIVE | SHIM_ENGAGED, 22000);
    split_turn(w, SHIM_ALIVE | SHIM_ENGAGED, 22300);
    split_turn(w, SHIM_ENGAGED, 22500); // dead: until now it may have lived
    split_turn(w, SHIM_ENGAGED, 30000);
    assert_int_equal(w->metrics.split_ns, 500);
    see(w, ROW_OURS, "b:1");
    split_turn(w, SHIM_ALIVE | SHIM_ENGAGED, 31000);
    split_turn(w, SHIM_ALIVE | SHIM_ENGAGED, 32000);
    assert_int_equal(w->metrics.split_ns, 500);
}

// --- the page ---

static struct agent *new_agent(void)
{
    struct agent *agent = calloc(1, sizeof(*agent));

    config_defaults(&agent->config);
    agent->plan.rule = RULE_LEADER;
    agent->plan.label = LABEL_LEADER;
    metrics_init(&agent->metrics);
    agent->facts.now = clock_now();
    agent->facts.database.state = DATABASE_ANSWERS;
    agent->facts.fence.known = true;
    agent->facts.fence.received_at = agent->facts.now;
    agent->facts.fence.status.flags = SHIM_ALIVE;
    agent->facts.fence.status.restarts = 4;
    agent->memory.deadline = instant_add(agent->facts.now, 3600 * NS_PER_SEC);
    agent->facts.election = (struct election_fact){.known = true,
                                                   .row = ROW_OURS,
                                                   .term_known = true,
                                                   .term = 12,
                                                   .guard_enforcing = true,
                                                   .members_known = true,
                                                   .other_members = 2,
                                                   .sent_at = agent->facts.now,
                                                   .received_at = agent->facts.now};
    agent->executor.unguarded = 2;
    agent->plan.not_covered = NOT_COVERED_UNTAGGED;
    agent->metrics.attempts[FENCE_METHOD_PIDFD][FENCE_REASON_MANUAL][METRICS_UNCONFIRMED] = 2;
    return agent;
}

static bool has_line(const struct buf *page, const char *line)
{
    size_t len = strlen(line);

    for (const char *at = buf_str(page); (at = strstr(at, line)); at++)
        if ((at == page->data || at[-1] == '\n') && (at[len] == '\n' || line[len - 1] == ' '))
            return true;
    return false;
}

static const char *const lines[] = {
    "metafence_build_info{version=\"" METAFENCE_VERSION "\"} 1",
    "metafence_is_leader 1",
    "leader_election_master_status{name=\"__meta_election_\"} 1",
    "metafence_role{role=\"leader\"} 1",
    "metafence_role{role=\"follower\"} 0",
    "metafence_rule{rule=\"Leader\"} 1",
    "metafence_rule{rule=\"Follower\"} 0",
    "metafence_rule_fired_total{rule=\"Superseded\"} 0",
    "metafence_leader_transitions_total 0",
    "metafence_election_term 12",
    "metafence_lease_deadline_seconds ",
    "metafence_lease_age_seconds ",
    "metafence_last_election_read_timestamp_seconds ",
    "metafence_postgres_up 1",
    "metafence_postgres_query_duration_seconds_count 0",
    "metafence_fence_attempts_total{method=\"permit\",reason=\"Superseded\",result="
    "\"confirmed\"} 0",
    "metafence_fence_attempts_total{method=\"pidfd\",reason=\"Manual\",result="
    "\"unconfirmed\"} 2",
    "metafence_fence_duration_seconds_count{method=\"permit\"} 0",
    "metafence_detection_duration_seconds_count{reason=\"Superseded\"} 0",
    "metafence_fence_skipped_total{reason=\"AgentBlind\"} 0",
    "metafence_split_brain_seconds_total 0.0",
    "metafence_election_members 3",
    "metafence_guard_enforcing 1",
    "metafence_guard_unguarded_tables 2",
    "metafence_postgres_pooled 0",
    "metafence_not_fenced 0",
    "metafence_fence_connected 1",
    "metafence_meta_up 1",
    "metafence_meta_restarts_total 4",
    "metafence_paused 0",
    "metafence_manual_fence 0",
    "metafence_not_covered{reason=\"Untagged\"} 1",
    "metafence_not_covered{reason=\"Paused\"} 0",
    "metafence_sessions_ended_total 0",
    "metafence_log_lines_dropped_total 0",
    "process_resident_memory_bytes ",
    "process_open_fds ",
    "process_cpu_seconds_total ",
    "process_start_time_seconds ",
};

static void test_page(void **state)
{
    struct agent *agent = new_agent();
    struct buf page = {0};

    (void)state;
    metrics_write(agent, false, &page);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!has_line(&page, lines[i]))
            fail_msg("no line \"%s\" in\n%s", lines[i], page.data);
    assert_null(strstr(page.data, "# EOF"));
    buf_done(&page);
    free(agent);
}

// Nothing that is not known is shown as a number.
static void test_unknown(void **state)
{
    static const char *const absent[] = {"metafence_lease_deadline_seconds",
                                         "metafence_lease_age_seconds",
                                         "metafence_election_term",
                                         "metafence_election_members",
                                         "metafence_guard",
                                         "metafence_last_election_read_timestamp_seconds",
                                         "metafence_meta_up",
                                         "metafence_meta_restarts"};
    struct agent *agent = new_agent();
    struct buf page = {0};

    (void)state;
    agent->facts.election.known = false;
    agent->executor.unguarded = -1;
    agent->facts.fence.known = false;
    agent->memory.deadline.ns = 0;
    metrics_write(agent, false, &page);
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
        if (strstr(page.data, absent[i]))
            fail_msg("%s is shown", absent[i]);
    assert_true(has_line(&page, "metafence_fence_connected 0"));
    buf_done(&page);
    free(agent);
}

static void write_extra(struct prom *prom, void *arg)
{
    prom_one_int(prom, "metafence_extra", "Another part's.", *(int *)arg);
}

static void test_openmetrics_and_sources(void **state)
{
    struct agent *agent = new_agent();
    struct buf page = {0};
    int value = 17;

    (void)state;
    metrics_add_source(&agent->metrics, write_extra, &value);
    metrics_write(agent, true, &page);
    assert_true(has_line(&page, "metafence_extra 17"));
    assert_true(has_line(&page, "# TYPE metafence_meta_restarts counter"));
    assert_true(has_line(&page, "# TYPE metafence_build info"));
    assert_string_equal(page.data + page.len - 6, "# EOF\n");
    buf_done(&page);
    free(agent);
}

// Each family begins once, and each sample stands below its own.
static void test_families(void **state)
{
    struct agent *agent = new_agent();
    struct buf page = {0};
    struct buf seen = {0};
    char family[128] = "";
    char *next = NULL;

    (void)state;
    metrics_write(agent, false, &page);
    for (char *line = page.data; *line; line = next) {
        char name[160];

        next = line + strcspn(line, "\n");
        *next++ = '\0';

        if (sscanf(line, "# HELP %127s", family) == 1) {
            (void)snprintf(name, sizeof(name), "|%s|", family);
            if (strstr(buf_str(&seen), name))
                fail_msg("%s begins twice", family);
            buf_puts(&seen, name);
        } else if (line[0] == '#') {
            assert_int_equal(sscanf(line, "# TYPE %127s", name), 1);
            assert_string_equal(name, family);
        } else if (strncmp(line, family, strlen(family)) != 0) {
            fail_msg("%s stands below %s", line, family);
        }
    }
    buf_done(&seen);
    buf_done(&page);
    free(agent);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_confirmed),
    TEST(test_confirmed_without_database),
    TEST(test_next_method),
    TEST(test_ended_by_itself),
    TEST(test_sessions_are_no_attempt),
    TEST(test_earlier_agents_fence),
    TEST(test_proven),
    TEST(test_transitions),
    TEST(test_detection),
    TEST(test_skipped),
    TEST(test_split_brain),
    cmocka_unit_test(test_page),
    cmocka_unit_test(test_unknown),
    cmocka_unit_test(test_openmetrics_and_sources),
    cmocka_unit_test(test_families),
};

UNIT_MAIN(tests)
