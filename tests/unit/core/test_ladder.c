// SPDX-License-Identifier: Apache-2.0
// A kill that is wanted: which method is in use when, when the state is NotFenced, and what
// ends it. Each boundary is looked at 1 ns before, at it and 1 ns after.
#include "tests/unit/core/scene.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#define BUDGET  (500 * MS) // of the scene
#define CONFIRM (30 * S)
#define KILL_AT (11 * S)

// A leader that another one has superseded, at KILL_AT; metafence-run does not confirm.
static void condemn(struct scene *scene)
{
    scene_leader(scene);
    scene_read_at(scene, ROW_OTHER, KILL_AT, KILL_AT);
    assert_int_equal(scene->plan.rule, RULE_SUPERSEDED);
    assert_int_equal(scene->plan.order.role, FENCE_ROLE_KILL);
    assert_int_equal(scene->plan.not_fenced, NOT_FENCED_NO);
}

static void decide_at(struct scene *scene, int64_t at_ns)
{
    scene_at(scene, at_ns);
    scene_decide(scene);
}

// … with a turn each second until then, as an agent that runs makes them.
static void watch_until(struct scene *scene, int64_t at_ns)
{
    int64_t now_ns = instant_since(scene->facts.now, (struct instant){SCENE_T0});

    for (now_ns += S; now_ns < at_ns; now_ns += S)
        decide_at(scene, now_ns);
    decide_at(scene, at_ns);
}

static void test_methods_in_order(void **state)
{
#define PERMIT  FENCE_METHOD_PERMIT
#define PIDFD   FENCE_METHOD_PIDFD
#define KUBELET FENCE_METHOD_KUBELET
#define API     FENCE_METHOD_API
    static const struct {
        const char *name;
        struct method_fact methods;
        int64_t after_ns; // the decision
        enum fence_method method;
        bool not_fenced;
        bool kills;
        bool deletes;
    } cases[] = {
        {"at once", {.pidfd = true, .kubelet = true, .delete_pod = true}, 0, PERMIT, 0, 0, 0},
        {"budget-1", {.pidfd = true, .kubelet = true}, BUDGET - 1, PERMIT, false, false, false},
        {"budget", {.pidfd = true, .kubelet = true}, BUDGET, PIDFD, true, true, false},
        {"budget+1", {.pidfd = true, .kubelet = true}, BUDGET + 1, PIDFD, true, true, false},
        {"pidfd-1", {.pidfd = true, .kubelet = true}, 2 * BUDGET - 1, PIDFD, true, true, false},
        {"pidfd", {.pidfd = true, .kubelet = true}, 2 * BUDGET, KUBELET, true, true, false},
        {"pidfd+1", {.pidfd = true, .kubelet = true}, 2 * BUDGET + 1, KUBELET, true, true, 0},
        {"pidfd is the last", {.pidfd = true}, CONFIRM + S, PIDFD, true, true, false},
        {"no pidfd", {.kubelet = true}, BUDGET, KUBELET, true, false, false},
        {"nothing else", {0}, CONFIRM + S, PERMIT, true, false, false},
        {"confirm-1", {.kubelet = true, .delete_pod = true}, CONFIRM - 1, KUBELET, 1, 0, 0},
        {"confirm", {.kubelet = true, .delete_pod = true}, CONFIRM, API, true, false, true},
        {"confirm+1", {.kubelet = true, .delete_pod = true}, CONFIRM + 1, API, true, 0, true},
        {"both", {.pidfd = true, .delete_pod = true}, CONFIRM, API, true, true, true},
        {"no delete", {.kubelet = true}, CONFIRM, KUBELET, true, false, false},
        {"delete alone-1", {.delete_pod = true}, CONFIRM - 1, PERMIT, true, false, false},
        {"delete alone", {.delete_pod = true}, CONFIRM, API, true, false, true},
        {"by pidfd", {.by_pidfd = true, .kubelet = true}, BUDGET - 1, PIDFD, false, false, 0},
        {"by pidfd, over", {.by_pidfd = true, .kubelet = true}, BUDGET, KUBELET, true, 0, 0},
        {"by pidfd alone", {.by_pidfd = true}, 2 * BUDGET, PIDFD, true, false, false},
        {"by pidfd, last", {.by_pidfd = true, .delete_pod = true}, CONFIRM, API, true, 0, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;

        condemn(&scene);
        scene.facts.methods = cases[i].methods;
        watch_until(&scene, KILL_AT + cases[i].after_ns);
        if (scene.plan.method != cases[i].method ||
            (scene.plan.not_fenced == NOT_FENCED_ALIVE) != cases[i].not_fenced ||
            scene_has(&scene, ACTION_KILL_PIDFD) != cases[i].kills ||
            scene_has(&scene, ACTION_DELETE_POD) != cases[i].deletes)
            fail_msg("%s: %s, not fenced %d", cases[i].name,
                     fence_method_name(scene.plan.method), scene.plan.not_fenced);
        if (cases[i].not_fenced)
            assert_true(scene.plan.not_fenced_since.ns == SCENE_T0 + KILL_AT);
        assert_true(scene.plan.action_count <= PLAN_ACTIONS_MAX);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(fence_method_word(FENCE_METHOD_NONE), "exit");
    assert_string_equal(fence_method_word(KUBELET), "kubelet");
    assert_string_equal(fence_method_word((enum fence_method)99), "exit");
    assert_string_equal(fence_method_name(FENCE_METHOD_NONE), "None");
    assert_string_equal(fence_method_name(PERMIT), "Permit");
    assert_string_equal(fence_method_name(PIDFD), "Pidfd");
    assert_string_equal(fence_method_name(KUBELET), "Kubelet");
    assert_string_equal(fence_method_name(API), "Api");
    assert_string_equal(fence_method_name((enum fence_method)99), "None");
    assert_string_equal(fence_method_word(FENCE_METHOD_NONE), "exit");
    assert_string_equal(fence_method_word(KUBELET), "kubelet");
    assert_string_equal(fence_method_word((enum fence_method)99), "exit");
}

// It decides again by itself when the next method's time has come.
static void test_wakes_for_the_next_method(void **state)
{
    static const struct {
        int64_t after_ns;
        int64_t wake_after_ns;
    } cases[] = {{0, BUDGET},
                 {BUDGET - 1, BUDGET},
                 {BUDGET, 2 * BUDGET},
                 {2 * BUDGET - 1, 2 * BUDGET},
                 {2 * BUDGET, CONFIRM}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;

        condemn(&scene);
        scene.memory.deadline = (struct instant){0}; // would be another reason to wake
        scene.memory.not_leading_at = (struct instant){0};
        decide_at(&scene, KILL_AT + cases[i].after_ns);
        if (scene.plan.wake_at.ns != SCENE_T0 + KILL_AT + cases[i].wake_after_ns)
            fail_msg("case %zu", i);
    }
}

static void confirm_by_shim(struct scene *scene)
{
    scene_die(scene, FENCE_REASON_SUPERSEDED, KILL_AT + 2 * BUDGET);
    scene->facts.cleanup.sessions_gone = 3;
}

static void confirm_by_pidfd(struct scene *scene)
{
    scene->facts.proven = (struct fence_death){.incarnation = 3,
                                               .tag = SCENE_TAG,
                                               .reason = FENCE_REASON_SUPERSEDED,
                                               .decided_ns = SCENE_T0 + KILL_AT,
                                               .dead_ns = SCENE_T0 + KILL_AT + 2 * BUDGET,
                                               .engaged = 1};
    scene->facts.cleanup.sessions_gone = 3;
}

static void next_incarnation(struct scene *scene)
{
    confirm_by_shim(scene);
    scene->facts.fence.status.incarnation = 4;
    scene->facts.fence.status.flags = SHIM_ALIVE;
    scene->facts.fence.status.started_ns = SCENE_T0 + KILL_AT + 2 * BUDGET;
}

static void pause(struct scene *scene)
{
    scene->facts.orders.pause_end.ns = SCENE_T0 + 1000 * S;
}

static void lose_it_when_dead(struct scene *scene)
{
    confirm_by_shim(scene);
    scene->facts.fence.known = false; // its container waits for its next start
}

static void pause_after_its_own_kill(struct scene *scene)
{
    pause(scene);
    scene->facts.fence.status.state = SHIM_KILLING;
}

static void test_stays_until_it_is_over(void **state)
{
    static const struct {
        const char *name;
        void (*then)(struct scene *);
    } ends[] = {{"dead", confirm_by_shim},
                {"dead by pidfd", confirm_by_pidfd},
                {"the next one runs", next_incarnation},
                {"paused", pause},
                {"paused too late", pause_after_its_own_kill},
                {"dead, then metafence-run is gone", lose_it_when_dead}};

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct scene scene;

        condemn(&scene);
        scene.facts.methods = (struct method_fact){.pidfd = true, .delete_pod = true};
        watch_until(&scene, KILL_AT + 100 * S);
        assert_int_equal(scene.plan.not_fenced, NOT_FENCED_ALIVE);
        ends[i].then(&scene);
        decide_at(&scene, KILL_AT + 101 * S);
        if (scene.plan.not_fenced != NOT_FENCED_NO || scene_has(&scene, ACTION_KILL_PIDFD) ||
            scene_has(&scene, ACTION_DELETE_POD))
            fail_msg("%s: not fenced %d", ends[i].name, scene.plan.not_fenced);
        assert_true(scene.memory.kill_since.ns == 0);
    }
}

// The clock starts anew for another incarnation.
static void test_each_incarnation_has_its_own_time(void **state)
{
    struct scene scene;

    (void)state;
    condemn(&scene);
    decide_at(&scene, KILL_AT + BUDGET);
    assert_int_equal(scene.plan.not_fenced, NOT_FENCED_ALIVE);
    scene.facts.orders.manual_fence = true;
    next_incarnation(&scene);
    decide_at(&scene, KILL_AT + 100 * S);
    assert_int_equal(scene.plan.rule, RULE_MANUAL_FENCE);
    assert_int_equal(scene.plan.not_fenced, NOT_FENCED_NO);
    decide_at(&scene, KILL_AT + 100 * S + BUDGET);
    assert_int_equal(scene.plan.not_fenced, NOT_FENCED_ALIVE);
    assert_true(scene.plan.not_fenced_since.ns == SCENE_T0 + KILL_AT + 100 * S);
}

// A deleted pod's successor would not know of the operator's fence: for that alone none is
// deleted, for what a rule says it is.
static void test_no_pod_is_deleted_for_an_operator_alone(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene.facts.orders.manual_fence = true;
    scene.facts.methods = (struct method_fact){.kubelet = true, .delete_pod = true};
    for (int64_t at_ns = KILL_AT; at_ns < KILL_AT + CONFIRM + 5 * S; at_ns += S)
        scene_read_at(&scene, ROW_OURS, at_ns, at_ns);
    assert_int_equal(scene.plan.rule, RULE_MANUAL_FENCE);
    assert_int_equal(scene.plan.not_fenced, NOT_FENCED_ALIVE);
    assert_int_equal(scene.plan.method, KUBELET);
    assert_false(scene_has(&scene, ACTION_DELETE_POD));
    scene_read_at(&scene, ROW_OTHER, KILL_AT + CONFIRM + 6 * S, KILL_AT + CONFIRM + 6 * S);
    assert_int_equal(scene.plan.rule, RULE_MANUAL_FENCE);
    assert_int_equal(scene.plan.method, API);
    assert_true(scene_has(&scene, ACTION_DELETE_POD));
}

// metafence-run kills on its own deadline, and the agent's own rules have no reason to.
static void test_its_own_kill_counts(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene.facts.methods.pidfd = true;
    scene.facts.fence.status.state = SHIM_KILLING;
    decide_at(&scene, KILL_AT);
    assert_int_equal(scene.plan.rule, RULE_LEADER);
    assert_int_equal(scene.plan.method, PERMIT);
    decide_at(&scene, KILL_AT + BUDGET);
    assert_int_equal(scene.plan.not_fenced, NOT_FENCED_ALIVE);
    assert_true(scene_has(&scene, ACTION_KILL_PIDFD));
}

// Suspended, or stopped: nothing could be heard of the kill meanwhile, and nothing be done.
static void test_time_that_nobody_watched_does_not_count(void **state)
{
    struct scene scene;

    (void)state;
    condemn(&scene);
    scene.facts.methods = (struct method_fact){.pidfd = true, .delete_pod = true};
    decide_at(&scene, KILL_AT + 100 * S);
    assert_int_equal(scene.plan.not_fenced, NOT_FENCED_NO);
    assert_int_equal(scene.plan.method, PERMIT);
    assert_false(scene_has(&scene, ACTION_DELETE_POD));
    watch_until(&scene, KILL_AT + 100 * S + CONFIRM - 1);
    assert_int_equal(scene.plan.not_fenced, NOT_FENCED_ALIVE);
    assert_true(scene.plan.not_fenced_since.ns == SCENE_T0 + KILL_AT);
    assert_true(scene.plan.wake_at.ns == SCENE_T0 + KILL_AT + 100 * S + CONFIRM);
    assert_false(scene_has(&scene, ACTION_DELETE_POD));
    decide_at(&scene, KILL_AT + 100 * S + CONFIRM);
    assert_true(scene_has(&scene, ACTION_DELETE_POD));
}

// Gone without a word: what ran may run on. Never there: nobody can say that what an operator
// has fenced is dead, but for what may not even run no pod is deleted.
static void test_lost_metafence_run(void **state)
{
    struct scene scene;

    (void)state;
    condemn(&scene);
    scene.facts.fence.known = false;
    scene.facts.methods.pidfd = true;
    decide_at(&scene, KILL_AT + BUDGET);
    assert_int_equal(scene.plan.not_fenced, NOT_FENCED_ALIVE);
    assert_true(scene_has(&scene, ACTION_KILL_PIDFD));
    confirm_by_pidfd(&scene);
    scene.facts.cleanup.sessions_gone = 0;
    decide_at(&scene, KILL_AT + BUDGET + 1);
    assert_true(scene_has(&scene, ACTION_END_SESSIONS));
    assert_string_equal(scene.plan.dead_tag, SCENE_TAG);
    assert_int_equal(scene.plan.label, LABEL_UNKNOWN);

    scene_init(&scene);
    scene.facts.fence = (struct fence_fact){0};
    scene.facts.orders.manual_fence = true;
    scene.facts.methods.delete_pod = true;
    decide_at(&scene, S);
    assert_int_equal(scene.plan.not_fenced, NOT_FENCED_NO);
    watch_until(&scene, 100 * S);
    assert_int_equal(scene.plan.not_fenced, NOT_FENCED_ALIVE);
    assert_int_equal(scene.plan.method, PERMIT);
    assert_false(scene_has(&scene, ACTION_DELETE_POD));
}

static void test_who_did_it(void **state)
{
    static const struct {
        const char *name;
        enum fence_reason reason;
        int64_t decided_ns;
        bool by_pidfd;
        bool proven;
        enum fence_method method;
    } cases[] = {
        {"by itself", FENCE_REASON_NONE, 0, false, false, FENCE_METHOD_NONE},
        {"by itself, watched", FENCE_REASON_NONE, 0, true, false, FENCE_METHOD_NONE},
        {"metafence-run", FENCE_REASON_SUPERSEDED, 1, false, false, PERMIT},
        {"found dead past its deadline", FENCE_REASON_LEASE_EXPIRED, 0, false, false, KUBELET},
        {"pidfd mode", FENCE_REASON_SUPERSEDED, 1, true, false, PIDFD},
        {"beside metafence-run", FENCE_REASON_SUPERSEDED, 1, false, true, PIDFD},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;

        condemn(&scene);
        confirm_by_shim(&scene);
        scene.facts.methods.by_pidfd = cases[i].by_pidfd;
        scene.facts.fence.status.last_death.reason = cases[i].reason;
        scene.facts.fence.status.last_death.decided_ns = cases[i].decided_ns;
        if (cases[i].proven) {
            confirm_by_pidfd(&scene);
            scene.facts.fence.status.last_death.incarnation = 2;
            scene.facts.fence.status.flags = SHIM_ALIVE; // it was stopped before it could look
        }
        decide_at(&scene, KILL_AT + 2 * S);
        assert_true(scene.plan.dead_incarnation == 3);
        assert_int_equal(scene.plan.dead_reason, cases[i].reason);
        if (scene.plan.dead_method != cases[i].method)
            fail_msg("%s: %s", cases[i].name, fence_method_name(scene.plan.dead_method));
        assert_true(scene_has(&scene, ACTION_RECORD_DEATH));
    }
}

static void test_sessions_of_the_dead(void **state)
{
    static const struct {
        const char *name;
        int64_t answers_since_ns;
        int64_t at_ns;
        enum database_state database;
        uint64_t gone;
        bool tagged;
        bool not_fenced;
    } cases[] = {
#define UP DATABASE_ANSWERS
        {"budget-1", 0, KILL_AT + BUDGET - 1, UP, 0, true, false},
        {"budget", 0, KILL_AT + BUDGET, UP, 0, true, true},
        {"budget+1", 0, KILL_AT + BUDGET + 1, UP, 0, true, true},
        {"gone", 0, KILL_AT + BUDGET, UP, 3, true, false},
        {"silent", 0, KILL_AT + BUDGET, DATABASE_SILENT, 0, true, false},
        {"answers again-1", 20 * S, 20 * S + BUDGET - 1, UP, 0, true, false},
        {"answers again", 20 * S, 20 * S + BUDGET, UP, 0, true, true},
        {"answers again+1", 20 * S, 20 * S + BUDGET + 1, UP, 0, true, true},
        {"no tag", 0, KILL_AT + BUDGET, UP, 0, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;

        condemn(&scene);
        scene_die(&scene, FENCE_REASON_SUPERSEDED, KILL_AT);
        if (!cases[i].tagged)
            scene.facts.fence.status.last_death.tag[0] = '\0';
        scene.facts.methods = (struct method_fact){.pidfd = true, .delete_pod = true};
        scene.facts.database.since.ns = SCENE_T0 + cases[i].answers_since_ns;
        scene.facts.database.state = cases[i].database;
        scene.facts.cleanup.sessions_gone = cases[i].gone;
        decide_at(&scene, cases[i].at_ns);
        if (scene.plan.not_fenced !=
            (cases[i].not_fenced ? NOT_FENCED_SESSIONS : NOT_FENCED_NO))
            fail_msg("%s", cases[i].name);
        assert_false(scene_has(&scene, ACTION_KILL_PIDFD));
        assert_false(scene_has(&scene, ACTION_DELETE_POD));
        if (!cases[i].not_fenced)
            continue;
        assert_int_equal(scene.plan.method, PERMIT);
        assert_true(scene.plan.not_fenced_since.ns == SCENE_T0 + KILL_AT);
    }
}

// A tag that the next incarnation bears as well names its sessions too.
static void test_shared_tag_ends_no_sessions(void **state)
{
    struct scene scene;

    (void)state;
    condemn(&scene);
    scene_die(&scene, FENCE_REASON_SUPERSEDED, KILL_AT);
    decide_at(&scene, KILL_AT + S);
    assert_true(scene_has(&scene, ACTION_END_SESSIONS));
    scene.facts.fence.status.incarnation = 4;
    scene.facts.fence.status.flags = SHIM_ALIVE;
    decide_at(&scene, KILL_AT + 2 * S);
    assert_false(scene_has(&scene, ACTION_END_SESSIONS));
    assert_int_equal(scene.plan.not_fenced, NOT_FENCED_NO);
    scene.facts.fence.status.tag[0] = 'M';
    decide_at(&scene, KILL_AT + 3 * S);
    assert_true(scene_has(&scene, ACTION_END_SESSIONS));
}

// Under a hold of a fence that cannot hold a start: killed at once, and the hold goes on.
static void test_hold_outlives_what_it_kills(void **state)
{
    static const enum shim_state states[] = {SHIM_KILLING, SHIM_RUNNING};

    (void)state;
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        struct scene scene;

        scene_leader(&scene);
        scene.facts.api = (struct api_fact){.known = true, .lists_other_uid = true};
        scene_read_at(&scene, ROW_OURS, KILL_AT, KILL_AT);
        assert_int_equal(scene.plan.rule, RULE_TWIN_IDENTITY);
        scene.facts.api.known = false;
        scene_die(&scene, FENCE_REASON_TWIN_IDENTITY, KILL_AT);
        scene.facts.fence.status.hold = SHIM_HOLD_TWIN;
        scene_read_at(&scene, ROW_OURS, KILL_AT + S, KILL_AT + S);
        assert_true(scene.plan.order.flags & FENCE_ORDER_TWIN_HOLD);
        next_incarnation(&scene);
        scene.facts.fence.status.state = states[i];
        scene.facts.fence.status.hold = SHIM_HOLD_NONE;
        scene_read_at(&scene, ROW_OURS, KILL_AT + 2 * S, KILL_AT + 2 * S);
        assert_int_equal(!!(scene.plan.order.flags & FENCE_ORDER_TWIN_HOLD),
                         states[i] == SHIM_KILLING);
    }
}

static void test_unusable_is_not_covered(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene_decide(&scene);
    assert_int_equal(scene.plan.not_covered, 0);
    scene.facts.methods = (struct method_fact){.by_pidfd = true, .unusable = true};
    scene_decide(&scene);
    assert_int_equal(scene.plan.not_covered, NOT_COVERED_UNUSABLE);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_methods_in_order),
    cmocka_unit_test(test_names),
    cmocka_unit_test(test_wakes_for_the_next_method),
    cmocka_unit_test(test_stays_until_it_is_over),
    cmocka_unit_test(test_each_incarnation_has_its_own_time),
    cmocka_unit_test(test_its_own_kill_counts),
    cmocka_unit_test(test_no_pod_is_deleted_for_an_operator_alone),
    cmocka_unit_test(test_time_that_nobody_watched_does_not_count),
    cmocka_unit_test(test_lost_metafence_run),
    cmocka_unit_test(test_who_did_it),
    cmocka_unit_test(test_sessions_of_the_dead),
    cmocka_unit_test(test_shared_tag_ends_no_sessions),
    cmocka_unit_test(test_hold_outlives_what_it_kills),
    cmocka_unit_test(test_unusable_is_not_covered),
};

UNIT_MAIN(tests)
