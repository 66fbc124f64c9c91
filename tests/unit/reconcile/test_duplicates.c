// SPDX-License-Identifier: Apache-2.0
// D02: two rows for one endpoint, in different dress. Only the one proven superseded goes; if
// they can't be told apart, none does.
#include "tests/unit/reconcile/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>

#define OLD_HOST "compute-1.compute-headless"
#define NEW_HOST "Compute-1.compute-headless.ns.svc."

static void test_d02_seen_side_by_side_from_the_start(void **state)
{
    struct world *world = *state;

    (void)world_compute(world, "u1", "compute-1", "10.0.0.1");
    (void)world_row(world, 10, WORKER_COMPUTE, OLD_HOST, COMPUTE_PORT);
    world_row(world, 12, WORKER_COMPUTE, NEW_HOST, COMPUTE_PORT)->status = WORKER_STARTING;
    (void)world_row(world, 7, WORKER_COMPUTE, "10.0.0.1", COMPUTE_PORT); // newer by luck
    world_confirm(world);
    world_find_row(world, 12)->status = WORKER_RUNNING;
    for (int i = 0; i < 10; i++)
        world_confirm(world);
    WORLD_IS(world, 7, VERDICT_UNKNOWN, REASON_DUPLICATE);
    WORLD_IS(world, 10, VERDICT_UNKNOWN, REASON_DUPLICATE);
    WORLD_IS(world, 12, VERDICT_UNKNOWN, REASON_DUPLICATE);
    assert_int_equal(world->plan.action_count, 0);
}

static void test_d02_other_ports_are_no_duplicates(void **state)
{
    struct world *world = *state;
    struct worker_pod *pod = world_compute(world, "u1", "compute-1", "10.0.0.1");

    pod->ports[1] = 5699;
    pod->port_count = 2;
    pod->types = WORLD_ALL;
    (void)world_row(world, 10, WORKER_COMPUTE, OLD_HOST, COMPUTE_PORT);
    (void)world_row(world, 12, WORKER_COMPUTE, OLD_HOST, 5699);
    (void)world_row(world, 14, WORKER_FRONTEND, "10.0.0.1", COMPUTE_PORT);
    (void)world_row(world, 16, WORKER_COMPUTE, OLD_HOST, 5700);
    world_confirm(world);
    WORLD_IS(world, 10, VERDICT_LIVE, REASON_POD_RUNS);
    WORLD_IS(world, 12, VERDICT_LIVE, REASON_POD_RUNS);
    WORLD_IS(world, 14, VERDICT_LIVE, REASON_POD_RUNS);
    WORLD_IS(world, 16, VERDICT_UNKNOWN, REASON_PORT_MISMATCH);
}

// Row 10 was a pod's that ended; its successor registers as row 12.
static void replace(struct world *world, bool is_forced)
{
    (void)world_compute(world, "u1", "compute-1", "10.0.0.1");
    (void)world_row(world, 10, WORKER_COMPUTE, OLD_HOST, COMPUTE_PORT);
    world_pass(world, 0);
    if (is_forced)
        world_force_delete(world, "u1");
    else
        world_delete_pod(world, "u1");
    (void)world_compute(world, "u2", "compute-1", "10.0.0.2");
    world_pass(world, 10 * S);
    world_row(world, 12, WORKER_COMPUTE, NEW_HOST, COMPUTE_PORT)->status = WORKER_STARTING;
    world_pass(world, 20 * S);
    WORLD_IS(world, 10, VERDICT_UNKNOWN, REASON_DUPLICATE); // not yet registered
    world_find_row(world, 12)->status = WORKER_RUNNING;
}

static void test_d02_superseded(void **state)
{
    struct world *world = *state;

    replace(world, false);
    world_pass(world, 30 * S);
    WORLD_IS(world, 10, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
    WORLD_IS(world, 12, VERDICT_LIVE, REASON_POD_RUNS);
    world_pass(world, 60 * S);
    WORLD_IS(world, 10, VERDICT_GONE, REASON_SUPERSEDED);
    WORLD_IS(world, 12, VERDICT_LIVE, REASON_POD_RUNS);
    assert_true(world_has(world, RECONCILE_BURY, 10));
    // A call goes by host and port, and that endpoint lives.
    assert_int_equal(world->plan.action_count, 1);
    // The new one goes, the old one is written again: no telling any more.
    world_touch_row(world, 10);
    world_pass(world, 70 * S);
    assert_true(world_has(world, RECONCILE_UNBURY, 10));
    world_confirm(world);
    WORLD_IS(world, 10, VERDICT_UNKNOWN, REASON_DUPLICATE);
    WORLD_IS(world, 12, VERDICT_UNKNOWN, REASON_DUPLICATE);
}

// Who had row 10 may live on behind a partition, and heartbeat with it.
static void test_d02_predecessor_deleted_by_force(void **state)
{
    struct world *world = *state;

    replace(world, true);
    for (int i = 0; i < 5; i++)
        world_confirm(world);
    WORLD_IS(world, 10, VERDICT_UNKNOWN, REASON_DUPLICATE);
    WORLD_IS(world, 12, VERDICT_LIVE, REASON_POD_RUNS);
}

static void test_d02_two_new_ones(void **state)
{
    struct world *world = *state;

    replace(world, false);
    (void)world_row(world, 14, WORKER_COMPUTE, "10.0.0.2", COMPUTE_PORT);
    for (int i = 0; i < 5; i++)
        world_confirm(world);
    WORLD_IS(world, 10, VERDICT_UNKNOWN, REASON_DUPLICATE);
    WORLD_IS(world, 12, VERDICT_UNKNOWN, REASON_DUPLICATE);
    WORLD_IS(world, 14, VERDICT_UNKNOWN, REASON_DUPLICATE);
}

// The pod's own first registration may have gone to the old row before we saw the pod.
static void test_d02_old_row_written_with_the_pod(void **state)
{
    struct world *world = *state;

    (void)world_compute(world, "u1", "compute-1", "10.0.0.1");
    (void)world_row(world, 10, WORKER_COMPUTE, OLD_HOST, COMPUTE_PORT);
    world_pass(world, 0);
    world_delete_pod(world, "u1");
    (void)world_compute(world, "u2", "compute-1", "10.0.0.2");
    world_touch_row(world, 10);
    world_pass(world, 10 * S);
    (void)world_row(world, 12, WORKER_COMPUTE, NEW_HOST, COMPUTE_PORT);
    for (int i = 0; i < 5; i++)
        world_confirm(world);
    WORLD_IS(world, 10, VERDICT_UNKNOWN, REASON_DUPLICATE);
}

static void test_d02_more_than_can_be_compared(void **state)
{
    static char hosts[WORLD_ROWS][80];
    struct world *world = *state;

    world_done(world);
    world_init(world);
    (void)world_compute(world, "u1", "compute-1", "10.0.0.1");
    for (int i = 0; i < WORLD_ROWS; i++) {
        (void)snprintf(hosts[i], sizeof(hosts[i]), "%sompute-1%s.%s.ns.svc.d%d",
                       i % 2 ? "c" : "C", "", "compute-headless", i / 2);
        (void)world_row(world, i + 1, WORKER_COMPUTE, hosts[i], COMPUTE_PORT);
    }
    world_confirm(world);
    assert_int_equal(world->plan.reasons[REASON_DUPLICATE], WORLD_ROWS);
}

static void test_one_id_twice(void **state)
{
    struct world *world = *state;

    (void)world_compute(world, "u1", "compute-1", "10.0.0.1");
    (void)world_row(world, 10, WORKER_COMPUTE, OLD_HOST, COMPUTE_PORT);
    (void)world_row(world, 10, WORKER_COMPUTE, "10.0.0.1", COMPUTE_PORT);
    world_confirm(world);
    assert_int_equal(world->judgments[0].reason, REASON_AMBIGUOUS);
    assert_int_equal(world->judgments[1].reason, REASON_AMBIGUOUS);
}

static const struct CMUnitTest tests[] = {
    WORLD_TEST(test_d02_seen_side_by_side_from_the_start),
    WORLD_TEST(test_d02_other_ports_are_no_duplicates),
    WORLD_TEST(test_d02_superseded),
    WORLD_TEST(test_d02_predecessor_deleted_by_force),
    WORLD_TEST(test_d02_two_new_ones),
    WORLD_TEST(test_d02_old_row_written_with_the_pod),
    WORLD_TEST(test_d02_more_than_can_be_compared),
    WORLD_TEST(test_one_id_twice),
};

UNIT_MAIN(tests)
