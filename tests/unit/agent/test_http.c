// SPDX-License-Identifier: Apache-2.0
// State x endpoint: what each probe answers, and how the agent's facts become that state. The
// table is that of docs/http.md.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "agent/agent.h"
#include "agent/http_answer.h"

static struct httphead_text text_of(const char *text)
{
    return (struct httphead_text){text, strlen(text)};
}

// A leader with everything in order.
static struct http_view healthy(void)
{
    return (struct http_view){
        .since_turn_ns = 100 * NS_PER_MS,
        .is_fence_known = true,
        .is_meta_alive = true,
        .hold = "",
        .is_leader = true,
        .role = "leader",
        .rule = "Leader",
        .has_deadline = true,
        .deadline_left_ns = 20 * NS_PER_SEC,
        .is_row_known = true,
        .leader = "m0:5690",
        .proof_age_ns = 150 * NS_PER_MS,
        .is_term_known = true,
        .term = 7,
        .database = "answers",
        .does_database_answer = true,
        .is_covered = true,
        .is_config_valid = true,
    };
}

static struct http_view as_is(struct http_view v)
{
    return v;
}

static struct http_view follower(struct http_view v)
{
    v.is_leader = v.has_deadline = false;
    v.is_follower = true;
    return v;
}

static struct http_view promoting(struct http_view v)
{
    v.is_leader = false;
    v.role = "promoting";
    return v;
}

static struct http_view unproven_leader(struct http_view v)
{
    v.deadline_left_ns = 0;
    return v;
}

static struct http_view no_database(struct http_view v)
{
    v.does_database_answer = v.is_covered = false;
    v.database = "silent";
    return v;
}

static struct http_view has_to_die(struct http_view v)
{
    v.has_to_die = true;
    return v;
}

static struct http_view not_fenced(struct http_view v)
{
    v.has_to_die = v.is_not_fenced = true;
    return v;
}

static struct http_view held(struct http_view v)
{
    v.is_meta_alive = v.is_leader = v.has_deadline = false;
    v.hold = "Manual";
    return v;
}

static struct http_view sessions_left(struct http_view v)
{
    v = held(v);
    v.is_not_fenced = true;
    return v;
}

static struct http_view stopped(struct http_view v)
{
    v = held(v);
    v.hold = "";
    v.is_meta_stopped = true;
    return v;
}

static struct http_view no_guard(struct http_view v)
{
    v.is_fence_known = v.is_meta_alive = v.is_leader = v.has_deadline = v.is_covered = false;
    return v;
}

// Condemned before the connection was lost: nobody can say that it is dead.
static struct http_view no_guard_and_has_to_die(struct http_view v)
{
    v = no_guard(v);
    v.has_to_die = true;
    return v;
}

static struct http_view silent_guard(struct http_view v)
{
    v.is_fence_silent = true;
    return v;
}

static struct http_view stuck(struct http_view v)
{
    v.since_turn_ns = 10 * NS_PER_SEC + 1;
    return v;
}

static struct http_view nearly_stuck(struct http_view v)
{
    v.since_turn_ns = 10 * NS_PER_SEC;
    return v;
}

static struct http_view no_copy(struct http_view v)
{
    v.install_error = "can't write /run/metafence/metafence-run: No space left on device";
    return v;
}

static struct http_view broken_config(struct http_view v)
{
    v.is_config_valid = v.is_covered = false;
    return v;
}

enum endpoint { LIVEZ, READYZ, STARTUPZ, META_LIVEZ, LEADER, REPLICA, HEALTH, ENDPOINTS };
static const char *const paths[ENDPOINTS] = {"/livez",  "/readyz",  "/startupz", "/meta/livez",
                                             "/leader", "/replica", "/health"};

static const struct {
    const char *name;
    struct http_view (*change)(struct http_view v);
    int status[ENDPOINTS];
    const char *health; // the word
} states[] = {
    {"leader", as_is, {200, 200, 200, 200, 200, 503, 200}, "ok"},
    {"follower", follower, {200, 200, 200, 200, 503, 200, 200}, "ok"},
    {"promoting", promoting, {200, 200, 200, 200, 503, 503, 200}, "ok"},
    {"leader past its deadline", unproven_leader, {200, 200, 200, 200, 503, 503, 200}, "ok"},
    {"no database", no_database, {200, 200, 200, 200, 200, 503, 200}, "degraded"},
    {"has to die", has_to_die, {200, 503, 200, 503, 503, 503, 503}, "fencing"},
    {"not fenced", not_fenced, {200, 503, 200, 503, 503, 503, 503}, "not-fenced"},
    {"held", held, {200, 503, 200, 200, 503, 503, 200}, "held"},
    {"sessions left", sessions_left, {200, 503, 200, 200, 503, 503, 200}, "held"},
    {"stopped", stopped, {200, 503, 200, 200, 503, 503, 200}, "down"},
    {"no guard", no_guard, {200, 200, 200, 200, 503, 503, 200}, "degraded"},
    {"no guard, has to die",
     no_guard_and_has_to_die,
     {200, 503, 200, 503, 503, 503, 503},
     "fencing"},
    {"silent guard", silent_guard, {200, 200, 200, 200, 200, 503, 200}, "degraded"},
    {"stuck", stuck, {503, 200, 200, 200, 200, 503, 200}, "ok"},
    {"nearly stuck", nearly_stuck, {200, 200, 200, 200, 200, 503, 200}, "ok"},
    {"no copy", no_copy, {200, 200, 503, 200, 200, 503, 200}, "ok"},
    {"broken config", broken_config, {200, 200, 200, 200, 200, 503, 200}, "degraded"},
};

// One answer; the caller deletes the parsed body.
static cJSON *ask(const struct http_view *view, const char *path, const char *query,
                  int *ret_status)
{
    struct buf body = {0};
    cJSON *json = NULL;

    *ret_status = http_answer(view, text_of(path), text_of(query), &body);
    json = cJSON_Parse(buf_str(&body));
    if (!json)
        fail_msg("not JSON: %s", buf_str(&body));
    buf_done(&body);
    return json;
}

static const char *member(const cJSON *json, const char *key)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(json, key));

    if (!value)
        fail_msg("no text \"%s\"", key);
    return value;
}

static void test_states(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        struct http_view view = states[i].change(healthy());

        for (int e = 0; e < ENDPOINTS; e++) {
            int status = 0;
            cJSON *json = ask(&view, paths[e], "", &status);
            const char *word = member(json, "status");

            if (status != states[i].status[e])
                fail_msg("%s: %s answers %d, not %d", states[i].name, paths[e], status,
                         states[i].status[e]);
            if (e == HEALTH && strcmp(word, states[i].health) != 0)
                fail_msg("%s: health is %s", states[i].name, word);
            if (e != HEALTH && (strcmp(word, "failed") == 0) != (status == 503))
                fail_msg("%s: %s says %s", states[i].name, paths[e], word);
            if (status == 503 && !member(json, "reason")[0])
                fail_msg("%s: %s gives no reason", states[i].name, paths[e]);
            cJSON_Delete(json);
        }
    }
}

static void test_reasons(void **state)
{
    struct http_view view = held(healthy());
    int status = 0;
    cJSON *json = ask(&view, "/readyz", "", &status);

    (void)state;
    assert_string_equal(member(json, "reason"), "Manual");
    cJSON_Delete(json);
    view = no_copy(healthy());
    json = ask(&view, "/startupz", "", &status);
    assert_string_equal(member(json, "reason"), view.install_error);
    cJSON_Delete(json);
    view = no_guard(healthy());
    json = ask(&view, "/readyz", "", &status);
    assert_string_equal(member(json, "status"), "warning");
    assert_string_equal(member(json, "reason"), "not connected to what guards meta");
    cJSON_Delete(json);
}

// One moment: who leads, by which proof, how old.
static void test_body(void **state)
{
    struct http_view view = healthy();
    int status = 0;
    cJSON *json = NULL;

    (void)state;
    view.leader = "a\"b\n";
    json = ask(&view, "/leader", "", &status);
    assert_string_equal(member(json, "role"), "leader");
    assert_string_equal(member(json, "rule"), "Leader");
    assert_string_equal(member(json, "leader"), "a\"b\n");
    assert_true(cJSON_GetObjectItem(json, "term")->valuedouble == 7);
    assert_true(cJSON_GetObjectItem(json, "proof_age_ms")->valuedouble == 150);
    assert_true(cJSON_GetObjectItem(json, "deadline_ms_left")->valuedouble == 20000);
    assert_false(cJSON_HasObjectItem(json, "checks"));
    cJSON_Delete(json);
    view.is_row_known = view.is_term_known = view.has_deadline = false;
    json = ask(&view, "/leader", "", &status);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "term")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "proof_age_ms")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "deadline_ms_left")));
    cJSON_Delete(json);
}

static const struct {
    const char *query;
    bool is_verbose;
} queries[] = {
    {"", false},           {"verbose", true},    {"verbose=1", true},
    {"a=b&verbose", true}, {"&&", false},        {"verbos", false},
    {"verbosely", false},  {"a=verbose", false}, {"verbose&", true},
};

static void test_verbose(void **state)
{
    struct http_view view = held(healthy());

    (void)state;
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
        int status = 0;
        cJSON *json = ask(&view, "/readyz", queries[i].query, &status);
        const cJSON *checks = cJSON_GetObjectItem(json, "checks");

        if ((checks != NULL) != queries[i].is_verbose)
            fail_msg("\"%s\"", queries[i].query);
        if (checks) {
            assert_int_equal(cJSON_GetArraySize(checks), 3);
            assert_string_equal(member(cJSON_GetArrayItem(checks, 2), "name"), "meta-up");
            assert_string_equal(member(cJSON_GetArrayItem(checks, 2), "result"), "failed");
        }
        cJSON_Delete(json);
    }
}

static void test_paths(void **state)
{
    static const char *const none[] = {"/",        "*",        "/livez/", "/Livez",
                                       "/metrics", "/%6civez", "//livez", "/meta"};
    struct http_view view = healthy();
    int status = 0;
    cJSON *json = ask(&view, "/version", "", &status);

    (void)state;
    assert_int_equal(status, 200);
    assert_string_equal(member(json, "version"), METAFENCE_VERSION);
    cJSON_Delete(json);
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        json = ask(&view, none[i], "", &status); // metrics are not answered from a view
        assert_int_equal(status, 404);
        assert_true(cJSON_GetArraySize(cJSON_GetObjectItem(json, "paths")) == ENDPOINTS + 2);
        cJSON_Delete(json);
    }
}

// --- from the agent to the view ---

static struct agent *new_agent(void)
{
    struct agent *agent = calloc(1, sizeof(*agent));

    config_defaults(&agent->config);
    agent->plan.rule = RULE_UNKNOWN;
    agent->facts.now = clock_now();
    agent->clock.monotonic = clock_monotonic();
    agent->facts.fence.known = true;
    agent->facts.fence.received_at = agent->facts.now;
    agent->facts.fence.status.incarnation = 3;
    agent->facts.fence.status.state = SHIM_RUNNING;
    agent->facts.fence.status.flags = SHIM_ALIVE;
    return agent;
}

static const struct {
    const char *name;
    bool is_known;
    uint32_t state, flags;
    int64_t deadline_in_ns; // 0: none
    bool is_condemned;
    bool has_to_die;
} deaths[] = {
    {"runs", true, SHIM_RUNNING, SHIM_ALIVE, 0, false, false},
    {"permitted", true, SHIM_RUNNING, SHIM_ALIVE, NS_PER_SEC, false, false},
    {"condemned", true, SHIM_RUNNING, SHIM_ALIVE, NS_PER_SEC, true, true},
    {"condemned, connection lost", false, SHIM_RUNNING, SHIM_ALIVE, 0, true, true},
    {"killing", true, SHIM_KILLING, SHIM_ALIVE, NS_PER_SEC, false, true},
    {"past its deadline", true, SHIM_RUNNING, SHIM_ALIVE, -1, false, true},
    {"past it, connection lost", false, SHIM_RUNNING, SHIM_ALIVE, -1, false, true},
    {"past it, kept by choice", true, SHIM_RUNNING, SHIM_ALIVE | SHIM_SILENCE_HELD, -1, false,
     false},
    {"dead", true, SHIM_HOLDING, 0, -1, false, false},
    {"never seen", false, 0, 0, 0, false, false},
};

static void test_has_to_die(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(deaths) / sizeof(deaths[0]); i++) {
        struct agent *agent = new_agent();
        struct fence_status *status = &agent->facts.fence.status;
        struct http_view view;

        agent->facts.fence.known = deaths[i].is_known;
        status->state = deaths[i].state;
        status->flags = deaths[i].flags;
        if (deaths[i].deadline_in_ns)
            status->deadline_ns = clock_now().ns + deaths[i].deadline_in_ns;
        if (deaths[i].is_condemned)
            agent->memory.kill_since = agent->facts.now;
        http_view_take(agent, &view);
        if (view.has_to_die != deaths[i].has_to_die)
            fail_msg("%s: %d", deaths[i].name, view.has_to_die);
        free(agent);
    }
}

static void test_view(void **state)
{
    struct agent *agent = new_agent();
    struct http_view view;

    (void)state;
    agent->plan.label = LABEL_FOLLOWER;
    agent->plan.rule = RULE_FOLLOWER;
    agent->facts.election.known = true;
    agent->facts.election.sent_at = agent->facts.now;
    (void)snprintf(agent->facts.election.owner_id, sizeof(agent->facts.election.owner_id),
                   "m1:5690");
    agent->clock.monotonic.ns -= 11 * NS_PER_SEC;
    http_view_take(agent, &view);
    assert_true(view.is_follower && !view.is_leader && view.is_meta_alive);
    assert_string_equal(view.role, "follower");
    assert_string_equal(view.leader, "m1:5690");
    assert_true(view.since_turn_ns >= 11 * NS_PER_SEC);
    assert_false(view.has_deadline);
    assert_null(view.install_error);
    agent->facts.fence.status.flags = SHIM_MANUAL;
    agent->facts.fence.status.hold = SHIM_HOLD_MANUAL;
    http_view_take(agent, &view);
    assert_false(view.is_meta_alive);
    assert_string_equal(view.hold, "Manual");
    agent->facts.fence.known = false;
    http_view_take(agent, &view);
    assert_string_equal(view.hold, ""); // what was said before the connection was lost
    free(agent);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_states), cmocka_unit_test(test_reasons),
    cmocka_unit_test(test_body),   cmocka_unit_test(test_verbose),
    cmocka_unit_test(test_paths),  cmocka_unit_test(test_has_to_die),
    cmocka_unit_test(test_view),
};

UNIT_MAIN(tests)
