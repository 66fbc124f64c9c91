// SPDX-License-Identifier: Apache-2.0
// What lists, slices and sets may be wrong about: absence is no evidence by itself.
#include "tests/unit/reconcile/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>

// Row 1 is a frontend's whose pod was properly deleted: proven, not yet confirmed.
static void proven(struct world *world)
{
    world_known_frontend(world);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_RUNS);
    world_delete_pod(world, "u1");
    world_pass(world, S);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
}

static void test_d03_empty_list(void **state)
{
    struct world *world = *state;

    proven(world);
    world->facts.snapshot.pod_count = 0; // 200 OK, complete, and empty
    for (int i = 0; i < 10; i++) {
        world_confirm(world);
        WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_NO_PODS);
        assert_int_equal(world->plan.action_count, 0);
    }
    // Nor one in which nothing lives.
    world->facts.snapshot.pod_count = 1;
    world->pods[0].is_terminal = true;
    world->pods[0].is_running = false;
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_NO_PODS);
    // Confirmation begins anew with a list that says something.
    world->pods[0].is_terminal = false;
    world_pass(world, world->at_ns + 60 * S);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
    world_pass(world, world->at_ns + 30 * S);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
}

static void test_d03_incomplete(void **state)
{
    (void)state;
    for (int what = 0; what < 5; what++) {
        struct world world;
        struct worker_snapshot *snapshot = &world.facts.snapshot;
        bool *const parts[] = {&snapshot->rows_complete, &snapshot->pods_complete,
                               &snapshot->endpoints_complete};

        world_init(&world);
        proven(&world);
        if (what < 3)
            *parts[what] = false; // timed out, 500, 403, 410 half-way, truncated
        world_pass(&world, 20 * S);
        if (what == 3) { // judged long after it was looked at
            world.facts.now.ns += 31 * S;
            reconcile_decide(&world.config, &world.facts, &world.memory, &world.plan);
        }
        if (what == 4) { // no room to work in
            world.plan.scratch_bytes = 8;
            world_pass(&world, 21 * S);
            WORLD_IS(&world, 1, VERDICT_UNKNOWN, REASON_TOO_MANY);
            world.plan.scratch_bytes =
                reconcile_scratch_bytes(WORLD_ROWS, WORLD_PODS, 2 * WORLD_PODS + 8);
        } else {
            WORLD_IS(&world, 1, VERDICT_UNKNOWN, REASON_INCOMPLETE);
        }
        assert_int_equal(world.plan.reasons[REASON_UNCONFIRMED], 0);
        if (what < 3)
            *parts[what] = true;
        // Counted from the recovery.
        world_pass(&world, 35 * S);
        WORLD_IS(&world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
        world_pass(&world, 64 * S);
        WORLD_IS(&world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
        world_pass(&world, 65 * S);
        WORLD_IS(&world, 1, VERDICT_GONE, REASON_POD_GONE);
        world_done(&world);
    }
}

enum blind {
    BLIND_PODS,
    BLIND_SLICES,
    BLIND_EMPTY,   // the list is whole, and says that nobody lives
    BLIND_STALE,   // judged long after it was looked at
    BLIND_STOPPED, // no look at all
    BLIND_CASES,
};

// The agent looks, once, and can't hold what it sees against the pods.
static void look_blindly(struct world *world, enum blind blind)
{
    struct worker_snapshot *snapshot = &world->facts.snapshot;

    snapshot->pods_complete = blind != BLIND_PODS;
    snapshot->endpoints_complete = blind != BLIND_SLICES;
    if (blind == BLIND_EMPTY)
        world_end_pod(world, "anchor");
    if (blind == BLIND_STALE) {
        snapshot->taken_at.ns = WORLD_T0 + 20 * S;
        world->facts.now.ns = WORLD_T0 + 60 * S;
        reconcile_decide(&world->config, &world->facts, &world->memory, &world->plan);
    } else if (blind != BLIND_STOPPED) {
        world_pass(world, 20 * S);
    }
    if (blind != BLIND_STOPPED)
        assert_int_equal(world->plan.action_count, 0);
    snapshot->pods_complete = true;
    snapshot->endpoints_complete = true;
    if (blind == BLIND_EMPTY) {
        world_find_pod(world, "anchor")->is_terminal = false;
        world_find_pod(world, "anchor")->is_running = true;
    }
}

// u1 ended. u2 got its address and registered the same row, then its node was cut off and its
// object deleted by force: no list ever showed it, and it lives. The write was seen while pods
// could not be.
static void test_write_seen_in_a_blind_round_is_not_forgotten(void **state)
{
    (void)state;
    for (int blind = 0; blind < BLIND_CASES; blind++) {
        struct world world;

        world_init(&world);
        proven(&world);
        world_touch_row(&world, 1);
        look_blindly(&world, (enum blind)blind);
        for (int64_t at_ns = 65 * S; at_ns < 300 * S; at_ns += 10 * S) {
            world_pass(&world, at_ns);
            if (world_judgment(&world, 1)->reason != REASON_END_UNSEEN ||
                world.plan.action_count != 0)
                fail_msg(
                    "blind %d: %s", blind,
                    worker_reason_name((enum worker_reason)world_judgment(&world, 1)->reason));
        }
        world_done(&world);
    }
}

// The same, but a third pod has the address now, and ends as a kubelet says it: the second may
// still live by the row. Without a gap nobody can have come between.
static void test_pod_that_came_and_went_in_a_gap(void **state)
{
    (void)state;
    for (int blind = 0; blind <= BLIND_CASES; blind++) {
        struct world world;
        bool has_gap = blind < BLIND_CASES;
        int64_t back_ns = has_gap ? 65 * S : 20 * S;

        world_init(&world);
        proven(&world);
        world_touch_row(&world, 1);
        if (has_gap)
            look_blindly(&world, (enum blind)blind);
        (void)world_frontend(&world, "u3", "frontend-c", "10.0.0.7");
        world_pass(&world, back_ns);
        WORLD_IS(&world, 1, VERDICT_LIVE, REASON_POD_RUNS);
        world_delete_pod(&world, "u3");
        world_confirm(&world);
        if (has_gap)
            WORLD_IS(&world, 1, VERDICT_UNKNOWN, REASON_END_UNSEEN);
        else
            WORLD_IS(&world, 1, VERDICT_GONE, REASON_POD_GONE);
        world_done(&world);
    }
}

static void test_d03_a_pod_twice_is_no_list(void **state)
{
    struct world *world = *state;

    proven(world);
    (void)world_frontend(world, "u9", "frontend-c", "10.0.0.9");
    (void)world_frontend(world, "u9", "frontend-c", "10.0.0.9");
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_INCOMPLETE);
    world_find_pod(world, "u9")->uid = NULL;
    world_pass(world, world->at_ns + S);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_INCOMPLETE);
}

struct many {
    char names[40][24]; // and uids
    char ips[40][24];
};

// As many frontends with rows 1, 2, … of their addresses.
static void add_frontends(struct world *world, struct many *many, int count)
{
    for (int i = 0; i < count; i++) {
        (void)snprintf(many->names[i], sizeof(many->names[i]), "frontend-%d", i);
        (void)snprintf(many->ips[i], sizeof(many->ips[i]), "10.0.1.%d", i + 1);
        (void)world_frontend(world, many->names[i], many->names[i], many->ips[i]);
        (void)world_row(world, i + 1, WORKER_FRONTEND, many->ips[i], FRONTEND_PORT);
    }
}

// Labels were changed, the cache is old, a page is missing: pods are not in the list that is
// said to be complete, and nobody saw them end.
static void test_d03_pods_missing_from_a_complete_list(void **state)
{
    struct world *world = *state;
    struct many many;

    add_frontends(world, &many, 20);
    world_pass(world, 0);
    for (int i = 0; i < 12; i++)
        world_drop_pod(world, many.names[i]);
    for (int i = 0; i < 10; i++)
        world_confirm(world);
    assert_int_equal(world->plan.reasons[REASON_END_UNSEEN], 12);
    assert_int_equal(world->plan.verdicts[WORKER_FRONTEND][VERDICT_LIVE], 8);
    assert_int_equal(world->plan.action_count, 0);
}

static void test_d15_confirmation_counts_from_recovery(void **state)
{
    struct world *world = *state;

    world_known_frontend(world);
    // Worker and database fail together; the watch goes on.
    world_delete_pod(world, "u1");
    world->facts.snapshot.rows_complete = false;
    for (int i = 1; i <= 10; i++) {
        world_pass(world, i * 10 * S);
        WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_INCOMPLETE);
    }
    // No event comes any more: the periodic pass is enough.
    world->facts.snapshot.rows_complete = true;
    world_pass(world, 110 * S);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
    world_pass(world, 140 * S);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
}

// The same where no pass was to be had at all meanwhile; what was buried is taken back.
static void test_d15_over_rounds_that_failed(void **state)
{
    struct world *world = *state;

    proven(world);
    world_pass(world, 20 * S);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
    reconcile_interrupted(&world->memory);
    world_pass(world, 60 * S);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
    world_pass(world, 90 * S);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
    assert_true(world_has(world, RECONCILE_BURY, 1));
    reconcile_interrupted(&world->memory);
    world_pass(world, 91 * S);
    assert_true(world_has(world, RECONCILE_UNBURY, 1));
}

static void test_d15_after_losing_the_lead(void **state)
{
    struct world *world = *state;

    proven(world);
    world->facts.is_leader = false;
    world_pass(world, 20 * S);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_NOT_JUDGED);
    world->facts.is_leader = true;
    world_pass(world, 40 * S);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
    world->facts.term++; // a new term: anew
    world_pass(world, 70 * S);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
    world_pass(world, 100 * S);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
}

// --- D07, D10: slices ---

static void test_d07_moved_between_slices(void **state)
{
    struct world *world = *state;
    struct many many;

    add_frontends(world, &many, 40);
    for (int i = 0; i < 40; i++)
        world_endpoint(world, many.ips[i], many.names[i]);
    world_pass(world, 0);
    // In none, in two, then in one again.
    world->facts.snapshot.endpoint_count = 10;
    world_confirm(world);
    assert_int_equal(world->plan.verdicts[WORKER_FRONTEND][VERDICT_LIVE], 40);
    for (int i = 0; i < 40; i++)
        world_endpoint(world, many.ips[i], many.names[i]);
    world_confirm(world);
    assert_int_equal(world->plan.verdicts[WORKER_FRONTEND][VERDICT_LIVE], 40);
}

static void test_d10_all_endpoints_vanish(void **state)
{
    struct world *world = *state;

    (void)world_compute(world, "u1", "compute-0", "10.0.0.1");
    (void)world_row(world, 1, WORKER_COMPUTE, "compute-0.compute-headless", COMPUTE_PORT);
    world_endpoint(world, "10.0.0.1", "u1");
    world_pass(world, 0);
    world->facts.snapshot.endpoint_count = 0;
    for (int i = 0; i < 10; i++) {
        world_confirm(world);
        WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_RUNS);
    }
}

static void test_d07_slice_knows_somebody_else(void **state)
{
    struct world *world = *state;

    proven(world);
    // Somebody has that address whom the list of pods does not have.
    world_endpoint(world, "::ffff:10.0.0.7", "unlisted");
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_SLICE_DISAGREES);
    world->endpoints[0].target_uid = NULL; // an endpoint that was written by hand
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_SLICE_DISAGREES);
    world->endpoints[0].target_uid = "u1"; // of the dead one: slices lag
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
}

static void test_d07_slice_knows_the_name(void **state)
{
    struct world *world = *state;

    world_known_compute(world);
    world_delete_pod(world, "u1");
    world_endpoint(world, "10.0.0.99", "unlisted");
    world->endpoints[0].hostname = "compute-7";
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_SLICE_DISAGREES);
    world->endpoints[0].hostname = NULL;
    world->endpoints[0].target_name = "compute-7";
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_SLICE_DISAGREES);
    world->endpoints[0].target_name = "compute-8";
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
}

// --- replicas ---

static void test_replicas(void **state)
{
    static const struct {
        const char *name;
        enum pod_owner owner;
        struct worker_set set;
        bool sets_complete;
        bool kruise_complete;
        enum worker_reason reason;
    } cases[] = {
        {"compute-2",
         POD_OWNER_STATEFULSET,
         {"compute", false, 3, 0, 0},
         true,
         true,
         REASON_REPLICA_EXPECTED},
        {"compute-3",
         POD_OWNER_STATEFULSET,
         {"compute", false, 3, 0, 0},
         true,
         true,
         REASON_POD_GONE},
        {"compute-0",
         POD_OWNER_STATEFULSET,
         {"compute", false, 0, 0, 0},
         true,
         true,
         REASON_POD_GONE},
        {"compute-4",
         POD_OWNER_STATEFULSET,
         {"compute", false, 3, 5, 0},
         true,
         true,
         REASON_POD_GONE},
        {"compute-7",
         POD_OWNER_STATEFULSET,
         {"compute", false, 3, 5, 0},
         true,
         true,
         REASON_REPLICA_EXPECTED},
        {"compute-8",
         POD_OWNER_STATEFULSET,
         {"compute", false, 3, 5, 0},
         true,
         true,
         REASON_POD_GONE},
        {"compute-4",
         POD_OWNER_KRUISE_STATEFUL,
         {"compute", true, 3, 0, 2},
         true,
         true,
         REASON_REPLICA_EXPECTED},
        {"compute-5",
         POD_OWNER_KRUISE_STATEFUL,
         {"compute", true, 3, 0, 2},
         true,
         true,
         REASON_POD_GONE},
        {"compute-1",
         POD_OWNER_STATEFULSET,
         {"other", false, 3, 0, 0},
         true,
         true,
         REASON_POD_GONE},
        {"compute-9",
         POD_OWNER_STATEFULSET,
         {"compute", false, 3, 0, 0},
         false,
         true,
         REASON_REPLICAS_UNKNOWN},
        {"compute-9",
         POD_OWNER_KRUISE_STATEFUL,
         {"compute", false, 3, 0, 0},
         true,
         false,
         REASON_REPLICAS_UNKNOWN},
        {"compute-9",
         POD_OWNER_KRUISE_STATEFUL,
         {"compute", true, 3, 0, 0},
         false,
         true,
         REASON_POD_GONE},
        {"compute-x",
         POD_OWNER_STATEFULSET,
         {"compute", false, 3, 0, 0},
         true,
         true,
         REASON_REPLICAS_UNKNOWN},
        {"compute-x",
         POD_OWNER_REPLICASET,
         {"compute", false, 3, 0, 0},
         false,
         false,
         REASON_POD_GONE},
        {"compute-2147483647",
         POD_OWNER_STATEFULSET,
         {"compute", false, INT32_MAX, 7, 0},
         true,
         true,
         REASON_REPLICA_EXPECTED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world world;

        world_init(&world);
        world.sets[0] = cases[i].set;
        world.facts.snapshot.sets_complete = cases[i].sets_complete;
        world.facts.snapshot.kruise_sets_complete = cases[i].kruise_complete;
        world_compute(&world, "u1", cases[i].name, "10.0.0.7")->owner = cases[i].owner;
        (void)world_row(&world, 1, WORKER_COMPUTE, cases[i].name, COMPUTE_PORT);
        world_pass(&world, 0);
        world_delete_pod(&world, "u1");
        world_confirm(&world);
        if (world_judgment(&world, 1)->reason != cases[i].reason)
            fail_msg("case %zu: %s", i,
                     worker_reason_name((enum worker_reason)world_judgment(&world, 1)->reason));
        world_done(&world);
    }
}

static const struct CMUnitTest tests[] = {
    WORLD_TEST(test_d03_empty_list),
    cmocka_unit_test(test_d03_incomplete),
    cmocka_unit_test(test_write_seen_in_a_blind_round_is_not_forgotten),
    cmocka_unit_test(test_pod_that_came_and_went_in_a_gap),
    WORLD_TEST(test_d03_a_pod_twice_is_no_list),
    WORLD_TEST(test_d03_pods_missing_from_a_complete_list),
    WORLD_TEST(test_d15_confirmation_counts_from_recovery),
    WORLD_TEST(test_d15_over_rounds_that_failed),
    WORLD_TEST(test_d15_after_losing_the_lead),
    WORLD_TEST(test_d07_moved_between_slices),
    WORLD_TEST(test_d10_all_endpoints_vanish),
    WORLD_TEST(test_d07_slice_knows_somebody_else),
    WORLD_TEST(test_d07_slice_knows_the_name),
    cmocka_unit_test(test_replicas),
};

UNIT_MAIN(tests)
