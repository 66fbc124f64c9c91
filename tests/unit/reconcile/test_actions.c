// SPDX-License-Identifier: Apache-2.0
// From proofs to actions: the brake, tombstones, calls, and who may act at all.
#include "tests/unit/reconcile/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static char names[60][16];
static char ips[60][24];

// `count` frontends live and are seen so; then the first `ended` of them are properly deleted.
static void crowd(struct world *world, int count, int ended)
{
    world_init(world);
    for (int i = 0; i < count; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "f-%c%c", 'a' + i / 26, 'a' + i % 26);
        (void)snprintf(ips[i], sizeof(ips[i]), "10.0.1.%d", i + 1);
        (void)world_frontend(world, names[i], names[i], ips[i]);
        (void)world_row(world, i + 1, WORKER_FRONTEND, ips[i], FRONTEND_PORT);
    }
    world_pass(world, 0);
    for (int i = 0; i < ended; i++)
        world_delete_pod(world, names[i]);
}

static unsigned count_actions(const struct world *world, enum reconcile_action_kind kind)
{
    unsigned count = 0;

    for (unsigned i = 0; i < world->plan.action_count; i++)
        count += world->plan.actions[i].kind == kind;
    return count;
}

// 60 % gone at once: a tenth now, the next tenth after confirm_after, and an alarm meanwhile.
static void test_brake(void **state)
{
    static const struct {
        int count;
        int ended;
        unsigned permille;
        unsigned first; // buried in the first window
    } cases[] = {
        {50, 30, 100, 5}, {10, 6, 100, 1}, {3, 2, 100, 1},   {9, 5, 100, 1},  {19, 9, 100, 1},
        {20, 9, 100, 2},  {20, 9, 0, 1},   {20, 9, 1000, 9}, {20, 1, 100, 1}, {1, 1, 100, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world world;
        unsigned ended = (unsigned)cases[i].ended;

        crowd(&world, cases[i].count, cases[i].ended);
        world.config.max_permille = cases[i].permille;
        world_confirm(&world);
        assert_int_equal(world.plan.verdicts[WORKER_FRONTEND][VERDICT_GONE], ended);
        if (count_actions(&world, RECONCILE_BURY) != cases[i].first)
            fail_msg("case %zu: %u", i, count_actions(&world, RECONCILE_BURY));
        assert_int_equal(world.plan.held[WORKER_FRONTEND], ended - cases[i].first);
        // Passes in between bury no more; those that lie there are renewed.
        world_pass(&world, world.at_ns + 29 * S);
        assert_int_equal(count_actions(&world, RECONCILE_BURY), cases[i].first);
        world_pass(&world, world.at_ns + S);
        assert_int_equal(count_actions(&world, RECONCILE_BURY),
                         2 * cases[i].first > ended ? ended : 2 * cases[i].first);
        world_done(&world);
    }
}

static void test_brake_is_for_each_type(void **state)
{
    struct world world;

    (void)state;
    crowd(&world, 20, 2);
    (void)world_compute(&world, "c7", "compute-7", "10.0.2.7");
    (void)world_row(&world, 100, WORKER_COMPUTE, "compute-7", COMPUTE_PORT);
    world_pass(&world, S);
    world_delete_pod(&world, "c7");
    world_confirm(&world);
    assert_int_equal(count_actions(&world, RECONCILE_BURY), 3);
    assert_int_equal(world.plan.held[WORKER_FRONTEND], 0);
    assert_int_equal(world.plan.held[WORKER_COMPUTE], 0);
    world_done(&world);
}

static void test_calls(void **state)
{
    struct world world;
    unsigned called[4] = {0};

    (void)state;
    crowd(&world, 20, 3);
    world.config.max_permille = 1000;
    world_find_row(&world, 2)->leader_knows = false; // a call would abort the leader
    world_confirm(&world);
    assert_int_equal(count_actions(&world, RECONCILE_BURY), 3);
    for (int i = 0; i < 20; i++) {
        world_pass(&world, world.at_ns + 5 * S);
        assert_int_equal(count_actions(&world, RECONCILE_DELETE_RPC), 1);
        for (int id = 1; id <= 3; id++)
            called[id] += world_has(&world, RECONCILE_DELETE_RPC, id);
    }
    assert_int_equal(called[1], 10); // each has its turn
    assert_int_equal(called[2], 0);
    assert_int_equal(called[3], 10);
    world.facts.intent_open = true; // what was sent and not answered may still happen
    world_pass(&world, world.at_ns + 5 * S);
    assert_int_equal(count_actions(&world, RECONCILE_DELETE_RPC), 0);
    assert_int_equal(count_actions(&world, RECONCILE_BURY), 3);
    world_done(&world);
}

static void test_who_may_act(void **state)
{
    static const struct {
        enum reconcile_mode mode;
        enum reconcile_guard guard;
        bool is_leader;
        bool is_judged;
        bool is_dry;
    } cases[] = {
        {RECONCILE_ENFORCE, RECONCILE_GUARD_ENFORCE, true, true, false},
        {RECONCILE_ENFORCE, RECONCILE_GUARD_OBSERVE, true, true, false},
        {RECONCILE_ENFORCE, RECONCILE_GUARD_OFF, true, true, true},
        {RECONCILE_OBSERVE, RECONCILE_GUARD_ENFORCE, true, true, true},
        {RECONCILE_OFF, RECONCILE_GUARD_ENFORCE, true, false, false},
        {RECONCILE_ENFORCE, RECONCILE_GUARD_ENFORCE, false, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world world;

        crowd(&world, 5, 1);
        world.config.mode = cases[i].mode;
        world.facts.guard = cases[i].guard;
        world.facts.is_leader = cases[i].is_leader;
        world_confirm(&world);
        world_pass(&world, world.at_ns + 30 * S);
        assert_int_equal(world.plan.is_dry, cases[i].is_dry);
        assert_int_equal(world_has(&world, RECONCILE_BURY, 1), cases[i].is_judged);
        assert_int_equal(world.plan.reasons[REASON_NOT_JUDGED], cases[i].is_judged ? 0 : 5);
        // A tombstone that was only talked about is not taken back.
        (void)world_frontend(&world, "again", "f-again", ips[0]);
        world_pass(&world, world.at_ns + S);
        assert_int_equal(world_has(&world, RECONCILE_UNBURY, 1),
                         cases[i].is_judged && !cases[i].is_dry);
        world_done(&world);
    }
}

// D01: what an old leader's agent had found out is nothing in the next term.
static void test_d01_a_term_is_a_fresh_start(void **state)
{
    struct world world;

    (void)state;
    crowd(&world, 5, 1);
    world_confirm(&world);
    assert_true(world_has(&world, RECONCILE_BURY, 1));
    world.facts.is_leader = false;
    world_pass(&world, world.at_ns + S);
    assert_int_equal(world.plan.action_count, 0);
    world.facts.is_leader = true;
    world.facts.term = 9;
    world_pass(&world, world.at_ns + 60 * S);
    WORLD_IS(&world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
    // The tombstone was of the other term: not ours to take back.
    assert_int_equal(world.plan.action_count, 0);
    world_done(&world);
}

static void test_unbury(void **state)
{
    struct world world;

    (void)state;
    crowd(&world, 20, 2);
    world.config.max_permille = 1000;
    world_confirm(&world);
    assert_int_equal(count_actions(&world, RECONCILE_BURY), 2);
    // One row goes by itself; a list fails.
    world_drop_row(&world, 2);
    world_pass(&world, world.at_ns + S);
    assert_true(world_has(&world, RECONCILE_UNBURY, 2));
    world_pass(&world, world.at_ns + S);
    assert_false(world_has(&world, RECONCILE_UNBURY, 2));
    assert_true(world_has(&world, RECONCILE_BURY, 1));
    world.facts.snapshot.pods_complete = false;
    world_pass(&world, world.at_ns + S);
    assert_true(world_has(&world, RECONCILE_UNBURY, 1));
    world_pass(&world, world.at_ns + S);
    assert_int_equal(world.plan.action_count, 0);
    world_done(&world);
}

static void test_bury_that_failed(void **state)
{
    struct world world;

    (void)state;
    crowd(&world, 5, 1);
    world_confirm(&world);
    assert_true(world_has(&world, RECONCILE_BURY, 1));
    reconcile_bury_failed(&world.memory, 1);
    reconcile_bury_failed(&world.memory, 999);
    world_drop_row(&world, 1);
    world_pass(&world, world.at_ns + S);
    assert_int_equal(world.plan.action_count, 0);
    world_done(&world);
}

// What was only said, or failed, is asked for again.
static void test_unbury_that_was_not_done(void **state)
{
    struct world world;

    (void)state;
    crowd(&world, 5, 1);
    world_confirm(&world);
    assert_true(world_has(&world, RECONCILE_BURY, 1));
    (void)world_frontend(&world, "again", "f-again", ips[0]);
    world.config.mode = RECONCILE_OBSERVE; // as an operator's dry run
    world_pass(&world, world.at_ns + S);
    assert_true(world.plan.is_dry);
    assert_true(world_has(&world, RECONCILE_UNBURY, 1));
    world.config.mode = RECONCILE_ENFORCE;
    world_pass(&world, world.at_ns + S);
    assert_true(world_has(&world, RECONCILE_UNBURY, 1));
    reconcile_unbury_failed(&world.memory, 1);
    reconcile_unbury_failed(&world.memory, 999); // its row is gone
    world_pass(&world, world.at_ns + S);
    assert_true(world_has(&world, RECONCILE_UNBURY, 1));
    assert_true(world_has(&world, RECONCILE_UNBURY, 999));
    world_pass(&world, world.at_ns + S);
    assert_int_equal(world.plan.action_count, 0);
    world_done(&world);
}

static void test_reasons_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < REASON_COUNT; i++) {
        const char *name = worker_reason_name((enum worker_reason)i);

        assert_non_null(name);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(name, worker_reason_name((enum worker_reason)k));
    }
    for (int i = 0; i < WORKER_OTHER; i++) {
        const char *name = worker_type_name((enum worker_type)i);

        assert_int_equal(worker_type_of(name), i);
    }
    assert_int_equal(worker_type_of("compute_node"), WORKER_OTHER);
    assert_int_equal(worker_type_of(NULL), WORKER_OTHER);
    assert_int_equal(worker_status_of("STARTING"), WORKER_STARTING);
    assert_int_equal(worker_status_of("RUNNING"), WORKER_RUNNING);
    assert_int_equal(worker_status_of(NULL), WORKER_STATUS_OTHER);
    assert_string_equal(worker_verdict_name(VERDICT_GONE), "GONE");
    assert_string_equal(worker_verdict_name(VERDICT_LIVE), "LIVE");
    assert_string_equal(worker_verdict_name(VERDICT_UNKNOWN), "UNKNOWN");
}

static void test_owners(void **state)
{
    static const struct {
        const char *kind;
        const char *api;
        enum pod_owner owner;
    } cases[] = {
        {NULL, NULL, POD_OWNER_NONE},
        {"StatefulSet", "apps/v1", POD_OWNER_STATEFULSET},
        {"StatefulSet", "apps/v1beta2", POD_OWNER_STATEFULSET},
        {"StatefulSet", "apps.kruise.io/v1beta1", POD_OWNER_KRUISE_STATEFUL},
        {"CloneSet", "apps.kruise.io/v1alpha1", POD_OWNER_CLONESET},
        {"CloneSet", "apps/v1", POD_OWNER_OTHER},
        {"ReplicaSet", "apps/v1", POD_OWNER_REPLICASET},
        {"ReplicaSet", "example.com/v1", POD_OWNER_OTHER},
        {"Job", "batch/v1", POD_OWNER_OTHER},
        {"DaemonSet", "apps/v1", POD_OWNER_OTHER},
        {"StatefulSet", NULL, POD_OWNER_OTHER},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(pod_owner_of(cases[i].kind, cases[i].api), cases[i].owner);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_brake),
    cmocka_unit_test(test_brake_is_for_each_type),
    cmocka_unit_test(test_calls),
    cmocka_unit_test(test_who_may_act),
    cmocka_unit_test(test_d01_a_term_is_a_fresh_start),
    cmocka_unit_test(test_unbury),
    cmocka_unit_test(test_bury_that_failed),
    cmocka_unit_test(test_unbury_that_was_not_done),
    cmocka_unit_test(test_reasons_have_names),
    cmocka_unit_test(test_owners),
};

UNIT_MAIN(tests)
