// SPDX-License-Identifier: Apache-2.0
// The reconciler's rounds when leadership comes and goes under them: no loop is run, no server
// answers.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/workers/parts.h"
#include "base/buf.h"
#include "base/prom.h"

#define TAG  "metafence:aaaaaaaa:1"
#define TERM 7

struct world {
    struct agent agent;
    struct workers *workers;
};

static void set_leader(struct world *w, bool leads)
{
    w->agent.plan.rule = leads ? RULE_LEADER : RULE_UNKNOWN;
    w->agent.plan.label = leads ? LABEL_LEADER : LABEL_UNKNOWN;
    workers_turn(w->workers);
}

static void set_tag(struct world *w, const char *tag)
{
    struct fence_status *status = &w->agent.facts.fence.status;

    w->agent.facts.fence.known = true;
    (void)snprintf(status->tag, sizeof(status->tag), "%s", tag);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    const struct resolve_config resolve = {.query_timeout_ns = NS_PER_SEC};
    struct agent *agent = &w->agent;
    struct err err = {0};

    if (loop_new(&agent->loop, &err) < 0 ||
        resolver_new(agent->loop, &resolve, &agent->resolver, &err) < 0)
        return -1;
    agent->has_database = true;
    agent->pg_params = (struct pg_params){.host = "127.0.0.1",
                                          .port = 1,
                                          .database = "d",
                                          .user = "u",
                                          .application_name = "metafence-agent",
                                          .connect_timeout_ns = NS_PER_SEC,
                                          .query_timeout_ns = NS_PER_SEC};
    agent->config.reconcile.mode = RECONCILE_ENFORCE;
    agent->config.reconcile.recover_timeout_ns = NS_PER_SEC;
    agent->config.meta_service_port = 1;
    (void)snprintf(agent->config.election.service, sizeof(agent->config.election.service),
                   "meta");
    agent->memory.incarnation = 3;
    agent->memory.deadline = INSTANT_NEVER;
    agent->facts.election.term_known = true;
    agent->facts.election.term = TERM;
    (void)snprintf(agent->facts.election.owner_tag, sizeof(agent->facts.election.owner_tag),
                   TAG);
    set_tag(w, TAG);
    w->workers = workers_new(agent);
    set_leader(w, true);
    *state = w;
    return w->workers->is_leading ? 0 : -1;
}

static int teardown(void **state)
{
    struct world *w = *state;

    workers_free(w->workers);
    resolver_free(w->agent.resolver);
    loop_free(w->agent.loop);
    free(w);
    return 0;
}

static void begin_round(struct world *w)
{
    w->workers->is_busy = true; // as the timer does
    cure_look(w->workers);
}

static void ignore(const struct pg_reply *reply, void *arg)
{
    (void)reply;
    (void)arg;
}

// Requests that wait on the session; it is of no use afterwards.
static unsigned count_asked(struct world *w)
{
    const struct pg_request request = {.sql = "SELECT 1", .is_read = true};
    unsigned room = 0;
    struct err err = {0};

    while (pg_send(w->workers->pg, &request, ignore, NULL, &err) == 0)
        room++;
    return PG_QUEUE_MAX - room;
}

static void answer_actors(struct world *w, enum grpc_outcome outcome)
{
    const struct grpc_call_result result = {
        .method = GRPC_LIST_ACTORS, .outcome = outcome, .sent_at = clock_now()};

    cure_call_done(w->workers, &result);
}

static void test_actors_belong_to_a_round(void **state)
{
    struct world *w = *state;

    begin_round(w);
    assert_true(grpc_calls_is_busy(w->workers->calls, GRPC_LIST_ACTORS));
    answer_actors(w, GRPC_CALL_OK);
    assert_true(w->workers->cure.actors_known);
    assert_int_equal(count_asked(w), 1);
}

// The answer to a call from before leadership was in doubt is not the new round's: it would go
// on twice, and two passes would read into one snapshot.
static void test_late_actors(void **state)
{
    struct world *w = *state;

    begin_round(w);
    set_leader(w, false);
    set_leader(w, true);
    begin_round(w); // the call is still in flight: the state alone
    answer_actors(w, GRPC_CALL_OK);
    assert_false(w->workers->cure.actors_known);
    assert_int_equal(count_asked(w), 1);
}

// An answer of megabytes that is too long, or never comes, is not asked for each second.
static void test_actors_that_are_not_had(void **state)
{
    static const struct {
        enum grpc_outcome outcome;
        bool is_suspect;
        int64_t at_least_ns, at_most_ns;
    } rows[] = {
        {GRPC_CALL_UNKNOWN, false, 9 * NS_PER_SEC, 10 * NS_PER_SEC},
        {GRPC_CALL_OK, false, 9 * NS_PER_SEC, 10 * NS_PER_SEC},
        {GRPC_CALL_UNKNOWN, true, 0, NS_PER_SEC},
        {GRPC_CALL_ERROR, false, 0, NS_PER_SEC},
        {GRPC_CALL_NOT_SENT, false, 0, NS_PER_SEC},
    };
    struct world *w = *state;
    struct workers_cure *cure = &w->workers->cure;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct instant before = clock_now();
        int64_t wait_ns = 0;

        cure->are_actors_asked = true;
        cure->memory.ghosts_seen.ns = rows[i].is_suspect;
        answer_actors(w, rows[i].outcome);
        wait_ns = instant_since(cure->actors_next_at, before);
        if (wait_ns < rows[i].at_least_ns ||
            wait_ns > rows[i].at_most_ns + instant_since(clock_now(), before))
            fail_msg("row %zu: %lld ns", i, (long long)wait_ns);
    }
}

// An incarnation's number may be used again; its tag is not.
static void test_a_restart_is_of_one_tag(void **state)
{
    struct world *w = *state;
    struct workers_fact *fact = &w->agent.facts.workers;

    (void)snprintf(w->workers->cure.restart_tag, sizeof(w->workers->cure.restart_tag), TAG);
    fact->diverged_incarnation = 3;
    set_leader(w, false);
    assert_int_equal(fact->diverged_incarnation, 3);
    set_tag(w, "");
    workers_turn(w->workers);
    assert_int_equal(fact->diverged_incarnation, 3);
    set_tag(w, "metafence:aaaaaaaa:2");
    workers_turn(w->workers);
    assert_int_equal(fact->diverged_incarnation, 0);
}

// The order waits for its record; when leadership is in doubt just then the next look gives it.
static void test_a_restart_is_not_lost(void **state)
{
    struct world *w = *state;
    struct workers *workers = w->workers;
    const struct workers_fact *fact = &w->agent.facts.workers;

    workers->state = (struct store_state){
        .term = TERM, .is_known = true, .guard = RECONCILE_GUARD_ENFORCE, .unknown_rows = 1};
    (void)snprintf(workers->state.owner_tag, sizeof(workers->state.owner_tag), TAG);
    cure_judge(workers);
    assert_int_equal(workers->cure.plan.cure, CURE_RESTART_LEADER);
    assert_int_equal(fact->diverged_incarnation, 0);
    set_leader(w, false); // the record's answer will never come
    set_leader(w, true);
    cure_judge(workers);
    assert_int_equal(fact->diverged_incarnation, 3);
    assert_string_equal(workers->cure.restart_tag, TAG);
    assert_int_equal(workers->counts[WORKERS_RESTARTED][1], 1);
}

static void test_observe_restarts_nobody(void **state)
{
    struct world *w = *state;
    struct workers *workers = w->workers;

    w->agent.config.reconcile.mode = RECONCILE_OBSERVE;
    workers->state = (struct store_state){
        .term = TERM, .is_known = true, .guard = RECONCILE_GUARD_ENFORCE, .unknown_rows = 1};
    (void)snprintf(workers->state.owner_tag, sizeof(workers->state.owner_tag), TAG);
    for (int i = 0; i < 3; i++)
        cure_judge(workers);
    assert_true(workers->cure.plan.wants_restart);
    assert_int_equal(w->agent.facts.workers.diverged_incarnation, 0);
    assert_int_equal(workers->counts[WORKERS_RESTARTED][0], 1);
}

// How long a recovery takes is told once, and nothing is done about it.
static void test_a_slow_recovery_is_an_alarm(void **state)
{
    struct world *w = *state;
    struct workers *workers = w->workers;
    struct workers_cure *cure = &workers->cure;
    struct buf text = {0};

    workers->state = (struct store_state){.term = TERM,
                                          .is_known = true,
                                          .guard = RECONCILE_GUARD_ENFORCE,
                                          .lost_rows = 1,
                                          .newest = 40};
    (void)snprintf(workers->state.owner_tag, sizeof(workers->state.owner_tag), TAG);
    cure->status = CONVERGE_STATUS_RECOVERING;
    cure->status_since = instant_add(clock_now(), -cure->config.slow_after_ns);
    for (int i = 0; i < 3; i++)
        cure_judge(workers);
    assert_int_equal(cure->plan.reason, CONVERGE_STUCK);
    assert_int_equal(cure->plan.cure, CURE_NONE);
    assert_int_equal(w->agent.facts.workers.diverged_incarnation, 0);
    history_json(&w->agent.history, &text);
    assert_non_null(strstr(buf_str(&text), "Stuck"));
    assert_null(strstr(strstr(buf_str(&text), "Stuck") + 1, "Stuck"));
    buf_clear(&text);
    workers_status_json(workers, &text);
    assert_non_null(strstr(buf_str(&text), "\"reason\":\"Stuck\",\"alarm\":true"));
    buf_done(&text);
    set_leader(w, false); // the next leader is another
    assert_int_equal(cure->status, CONVERGE_STATUS_UNKNOWN);
}

// Three tombstones while Postgres is silent: one wait, not three, and the round is over.
static void test_silence_ends_a_pass(void **state)
{
    struct world *w = *state;
    struct workers *workers = w->workers;
    struct workers_pass *pass = &workers->pass;
    struct worker_row rows[3];
    struct worker_judgment judgments[3];
    struct buf text = {0};

    set_leader(w, false);
    workers->params.connect_timeout_ns = 20 * NS_PER_MS;
    workers->params.query_timeout_ns = 20 * NS_PER_MS;
    set_leader(w, true);
    loop_timer_stop(workers->timer); // the one round is begun by hand
    workers->state = (struct store_state){.term = TERM, .guard = RECONCILE_GUARD_ENFORCE};
    (void)snprintf(workers->state.owner_tag, sizeof(workers->state.owner_tag), TAG);
    pass->plan = (struct reconcile_plan){.judgments = judgments, .action_count = 3};
    pass->gather.snapshot.rows = rows;
    pass->gather.snapshot.row_count = 3;
    for (int32_t i = 0; i < 3; i++) {
        rows[i] = (struct worker_row){
            .id = i + 1, .host = "10.0.0.1", .port = 5688, .row_version = "7 (0,1)"};
        judgments[i] = (struct worker_judgment){.verdict = VERDICT_GONE, .known_pod = -1};
        pass->plan.actions[i] =
            (struct reconcile_action){.kind = RECONCILE_BURY, .worker_id = i + 1, .row = i};
    }
    workers->is_busy = true;
    acts_run(workers);
    while (workers->is_busy && loop_turn(w->agent.loop))
        ;
    assert_int_equal(pass->results[0], 2);
    assert_int_equal(pass->results[1], 0);
    assert_int_equal(pass->results[2], 0);
    assert_int_equal(workers->counts[WORKERS_BURIED][0], 1);
    assert_int_equal(workers->failures, 1);
    history_json(&w->agent.history, &text);
    assert_non_null(strstr(buf_str(&text), "not done: bury 10.0.0.1:5688: PodRuns: "));
    buf_clear(&text);
    // The same again is no news, and still counted.
    workers->is_busy = true;
    acts_run(workers);
    while (workers->is_busy && loop_turn(w->agent.loop))
        ;
    assert_int_equal(workers->counts[WORKERS_BURIED][0], 2);
    history_json(&w->agent.history, &text);
    assert_null(strstr(strstr(buf_str(&text), "not done: bury") + 1, "not done: bury"));
    buf_done(&text);
    pass->plan.judgments = NULL; // ours
    assert_non_null(strstr(workers->error, "actions: "));
}

static void test_waits_between_passes(void **state)
{
    static const struct {
        unsigned failed;
        int64_t retry_after_s, interval_s, wait_s;
    } rows[] = {
        {0, 0, 10, 10},  {1, 0, 10, 2},  {2, 0, 10, 4},
        {3, 0, 10, 8},   {4, 0, 10, 10}, {1, 0, 1, 1},
        {1, 30, 10, 30}, {4, 3, 10, 10}, {4000000000, 0, 60, 60},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct workers_pass pass = {.failed = rows[i].failed,
                                          .retry_after_ns = rows[i].retry_after_s * NS_PER_SEC};
        int64_t wait_ns = pass_wait_ns(&pass, rows[i].interval_s * NS_PER_SEC);

        if (wait_ns != rows[i].wait_s * NS_PER_SEC)
            fail_msg("row %zu: %lld ns", i, (long long)wait_ns);
    }
}

// The gauges of the divergence, in the order in which they are written.
static void gauges(struct world *w, int ret[4])
{
    static const char name[] = "\nmetafence_reconcile_divergence{";
    const struct metrics *metrics = &w->agent.metrics;
    struct buf text = {0};
    struct prom prom = {.out = &text};
    const char *at = NULL;

    assert_int_equal(metrics->source_count, 1);
    metrics->sources[0].fn(&prom, metrics->sources[0].arg);
    at = buf_str(&text);
    for (int i = 0; i < 4; i++) {
        at = strstr(at + (i > 0), name);
        assert_non_null(at);
        ret[i] = strchr(at, ' ')[1] - '0';
    }
    buf_done(&text);
}

// A verdict takes turns of its own; what happens to pods meanwhile waits for its end, also when
// that is the end of the leadership.
static void test_a_verdict_takes_turns(void **state)
{
    static const struct worker_pod pod = {
        .uid = "u1", .name = "c-1", .is_running = true, .has_started = true};
    static const struct worker_pod ended = {
        .uid = "u1", .name = "c-1", .is_terminal = true, .has_started = true};
    struct world *w = *state;
    struct workers *workers = w->workers;
    struct workers_pass *pass = &workers->pass;
    const struct worker_row row = {
        .id = 1, .host = "10.0.0.1", .port = 1, .row_version = "7 (0,1)"};

    for (unsigned i = 0; i < 2; i++) {
        loop_timer_stop(workers->timer);
        workers->state = (struct store_state){.term = TERM, .guard = RECONCILE_GUARD_ENFORCE};
        (void)snprintf(workers->state.owner_tag, sizeof(workers->state.owner_tag), TAG);
        gather_clear(&pass->gather);
        pass->gather.rows = malloc(sizeof(row));
        pass->gather.pods = malloc(sizeof(pod));
        assert_true(pass->gather.rows && pass->gather.pods);
        *pass->gather.rows = row;
        *pass->gather.pods = pod;
        pass->gather.snapshot = (struct worker_snapshot){.taken_at = clock_now(),
                                                         .row_count = 1,
                                                         .pod_count = 1,
                                                         .rows_complete = true,
                                                         .pods_complete = true,
                                                         .endpoints_complete = true};
        workers->is_busy = true;
        pass->has_judged = false;
        judge_begin(workers);
        assert_true(pass->is_judging && !pass->has_judged);
        judge_saw_pod(pass, &ended, true);
        assert_int_equal(pass->change_count, 1);
        if (i == 1)
            set_leader(w, false);
        while (pass->is_judging && loop_turn(w->agent.loop))
            ;
        assert_int_equal(pass->change_count, 0);
        assert_int_equal(pass->has_judged, i == 0);
        assert_int_equal(pass->number, 1);
        assert_int_equal(pass->memory.was_leader, i == 0);
    }
}

// What the last pass found, for the status and for graphs; nothing of it outlives the
// leadership.
static void test_last_pass(void **state)
{
    static const char *const seen[] = {
        "\"held\":2", "\"whole\":true,\"live\":7,\"gone\":3,\"unknown\":1,\"orphans\":null"};
    static const char *const lines[] = {"metafence_reconcile_rows{verdict=\"GONE\"} 3\n",
                                        "metafence_reconcile_held 2\n"};
    struct world *w = *state;
    struct workers_pass *pass = &w->workers->pass;

    for (unsigned i = 0; i < 2; i++) {
        struct buf text = {0};
        struct buf page = {0};
        struct prom prom = {.out = &page};

        pass->held = i == 0 ? 2 : pass->held;
        if (i == 0)
            pass->last = (struct pass_summary){
                .at = clock_now(), .rows = {1, 7, 3}, .orphans = -1, .is_whole = true};
        workers_status_json(w->workers, &text);
        w->agent.metrics.sources[0].fn(&prom, w->agent.metrics.sources[0].arg);
        for (unsigned k = 0; k < 2; k++) {
            assert_int_equal(strstr(buf_str(&text), seen[k]) != NULL, i == 0);
            assert_int_equal(strstr(buf_str(&page), lines[k]) != NULL, i == 0);
        }
        buf_done(&text);
        buf_done(&page);
        set_leader(w, false);
    }
}

// Seen of a leader that was restarted, or has handed over: no alert that stays.
static void test_divergence_ends_with_its_leader(void **state)
{
    struct world *w = *state;
    int seen[4];

    w->workers->state = (struct store_state){
        .term = TERM, .unknown_rows = 1, .lost_rows = 2, .reborn_rows = 3, .ghosts = 4};
    w->workers->state_at = clock_now();
    gauges(w, seen);
    for (int i = 0; i < 4; i++)
        assert_int_equal(seen[i], i + 1);
    set_leader(w, false);
    gauges(w, seen);
    for (int i = 0; i < 4; i++)
        assert_int_equal(seen[i], 0);
}

// A failure is told once, not each second anew: the rounds between two passes prove nothing.
static void test_a_failed_pass_stays_failed(void **state)
{
    struct world *w = *state;
    struct workers *workers = w->workers;
    uint64_t rounds = 0;

    workers->pass.next_at = (struct instant){0};
    pass_run(workers);
    workers_end_round(workers, "worker rows: no such table");
    rounds = workers->rounds;
    for (int i = 0; i < 3; i++)
        pass_run(workers); // not due yet
    assert_int_equal(workers->rounds, rounds + 3);
    assert_string_equal(workers->error, "worker rows: no such table");
    workers->pass.has_failed = false;
    pass_run(workers);
    assert_string_equal(workers->error, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_actors_belong_to_a_round),
    TEST(test_late_actors),
    TEST(test_actors_that_are_not_had),
    TEST(test_a_restart_is_of_one_tag),
    TEST(test_a_restart_is_not_lost),
    TEST(test_observe_restarts_nobody),
    TEST(test_a_slow_recovery_is_an_alarm),
    TEST(test_silence_ends_a_pass),
    TEST(test_a_verdict_takes_turns),
    TEST(test_last_pass),
    TEST(test_a_failed_pass_stays_failed),
    TEST(test_divergence_ends_with_its_leader),
    cmocka_unit_test(test_waits_between_passes),
};

UNIT_MAIN(tests)
