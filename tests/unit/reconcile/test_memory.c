// SPDX-License-Identifier: Apache-2.0
// What is remembered: bounded, movable, forgotten in time.
#include "tests/unit/reconcile/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

// Replaces the world's memory by one for so many.
static void with_memory(struct world *world, uint32_t rows, uint32_t pods)
{
    free(world->block);
    world->block = malloc(reconcile_memory_bytes(rows, pods));
    assert_non_null(world->block);
    reconcile_memory_init(&world->memory, world->block, rows, pods);
}

static void test_full_of_rows(void **state)
{
    struct world world;

    (void)state;
    world_init(&world);
    with_memory(&world, 2, 8);
    assert_true(reconcile_memory_fits(&world.memory, 2, 4));
    assert_false(reconcile_memory_fits(&world.memory, 3, 4));
    assert_false(reconcile_memory_fits(&world.memory, 2, 5));
    (void)world_compute(&world, "u1", "compute-1", "10.0.0.1");
    for (int id = 1; id <= 3; id++)
        (void)world_row(&world, id, WORKER_COMPUTE, id == 3 ? "10.0.0.1" : "10.9.9.9", id);
    world_confirm(&world);
    WORLD_IS(&world, 3, VERDICT_UNKNOWN, REASON_TOO_MANY);
    world_drop_row(&world, 1); // makes room, from the next pass on
    world_confirm(&world);
    world_confirm(&world);
    WORLD_IS(&world, 3, VERDICT_UNKNOWN, REASON_PORT_MISMATCH);
    world_done(&world);
}

static void test_full_of_pods(void **state)
{
    struct world world;

    (void)state;
    world_init(&world);
    with_memory(&world, 8, 1); // the anchor has it
    (void)world_frontend(&world, "u1", "frontend-a", "10.0.0.1");
    (void)world_row(&world, 1, WORKER_FRONTEND, "10.0.0.1", FRONTEND_PORT);
    world_pass(&world, 0);
    WORLD_IS(&world, 1, VERDICT_LIVE, REASON_POD_RUNS);
    world_delete_pod(&world, "u1");
    world_confirm(&world);
    WORLD_IS(&world, 1, VERDICT_UNKNOWN, REASON_NEVER_SEEN);
    world_done(&world);
}

static void test_none_at_all(void **state)
{
    struct world world;

    (void)state;
    world_init(&world);
    with_memory(&world, 0, 0);
    (void)world_row(&world, 1, WORKER_FRONTEND, "10.0.0.1", FRONTEND_PORT);
    world_confirm(&world);
    WORLD_IS(&world, 1, VERDICT_UNKNOWN, REASON_TOO_MANY);
    world.facts.snapshot.row_count = 0;
    world_confirm(&world);
    assert_int_equal(world.plan.action_count, 0);
    world_done(&world);
}

static void test_move(void **state)
{
    struct world world;
    struct reconcile_memory larger;
    void *block = NULL;

    (void)state;
    world_init(&world);
    with_memory(&world, 4, 4);
    (void)world_frontend(&world, "u1", "frontend-a", "10.0.0.1");
    (void)world_row(&world, 1, WORKER_FRONTEND, "10.0.0.1", FRONTEND_PORT);
    world_pass(&world, 0);
    world_delete_pod(&world, "u1");
    world_pass(&world, S);
    block = malloc(reconcile_memory_bytes(100, 50));
    assert_non_null(block);
    reconcile_memory_init(&larger, block, 100, 50);
    reconcile_memory_move(&larger, &world.memory);
    free(world.block);
    world.block = block;
    world.memory = larger;
    assert_true(reconcile_memory_fits(&world.memory, 100, 25));
    // The proof and since when it is one came along, and there is room now.
    for (int id = 2; id <= 50; id++)
        (void)world_row(&world, id, WORKER_FRONTEND, "10.9.9.9", id);
    world_pass(&world, 31 * S);
    WORLD_IS(&world, 1, VERDICT_GONE, REASON_POD_GONE);
    assert_int_equal(world.plan.reasons[REASON_TOO_MANY], 0);
    world_done(&world);
}

// Rows and pods that come and go for a long time, in a memory that is just large enough.
static void test_forgets(void **state)
{
    struct world world;
    char uid[24];
    char ip[24];

    (void)state;
    world_init(&world);
    with_memory(&world, 1, 3);
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(uid, sizeof(uid), "u%d", i);
        (void)snprintf(ip, sizeof(ip), "10.1.%d.%d", i / 200, i % 200 + 1);
        (void)world_frontend(&world, uid, "frontend-a", ip);
        (void)world_row(&world, i, WORKER_FRONTEND, ip, FRONTEND_PORT);
        world_pass(&world, world.at_ns + S);
        WORLD_IS(&world, i, VERDICT_LIVE, REASON_POD_RUNS);
        world_delete_pod(&world, uid);
        world_confirm(&world);
        WORLD_IS(&world, i, VERDICT_GONE, REASON_POD_GONE);
        world_drop_row(&world, i);
        world_pass(&world, world.at_ns + S); // both are forgotten
    }
    assert_int_equal(world.memory.row_count, 0);
    assert_int_equal(world.memory.pod_count, 1);
    world_done(&world);
}

// A uid that is no UUID, and longer than what is shown.
static void test_long_uid(void **state)
{
    static const char a[] = "0123456789012345678901234567890123456789-a";
    static const char b[] = "0123456789012345678901234567890123456789-b";
    struct world world;

    (void)state;
    world_init(&world);
    (void)world_frontend(&world, a, "frontend-a", "10.0.0.1");
    (void)world_frontend(&world, b, "frontend-b", "10.0.0.2");
    (void)world_row(&world, 1, WORKER_FRONTEND, "10.0.0.1", FRONTEND_PORT);
    (void)world_row(&world, 2, WORKER_FRONTEND, "10.0.0.2", FRONTEND_PORT);
    world_pass(&world, 0);
    world_delete_pod(&world, a);
    world_confirm(&world);
    WORLD_IS(&world, 1, VERDICT_GONE, REASON_POD_GONE);
    WORLD_IS(&world, 2, VERDICT_LIVE, REASON_POD_RUNS);
    assert_memory_equal(reconcile_pod_uid(&world.memory, world_judgment(&world, 1)->known_pod),
                        a, 39);
    assert_string_equal(reconcile_pod_uid(&world.memory, -1), "");
    world_done(&world);
}

// Rows that others have deleted: whose worker still runs, and registers no more?
static void test_lost_row_of_a_running_worker(void **state)
{
    static const struct {
        const char *what;
        enum worker_type type;
        int32_t port;
        const char *host;
        bool has_row, is_ended, is_crashing, is_unreachable;
        int32_t orphans;
    } cases[] = {
        {"lives", WORKER_OTHER, FRONTEND_PORT, "10.0.0.7", false, false, false, false, 1},
        {"its type", WORKER_FRONTEND, FRONTEND_PORT, "10.0.0.7", false, false, false, false, 1},
        {"another's type", WORKER_COMPUTE, FRONTEND_PORT, "10.0.0.7", false, false, false,
         false, 0},
        {"has registered", WORKER_OTHER, FRONTEND_PORT, "10.0.0.7", true, false, false, false,
         0},
        {"is dead", WORKER_OTHER, FRONTEND_PORT, "10.0.0.7", false, true, false, false, 0},
        {"does not run", WORKER_OTHER, FRONTEND_PORT, "10.0.0.7", false, false, true, false, 0},
        {"cut off", WORKER_OTHER, FRONTEND_PORT, "10.0.0.7", false, false, false, true, 0},
        {"elsewhere", WORKER_OTHER, FRONTEND_PORT, "10.0.0.8", false, false, false, false, 0},
        {"another port", WORKER_OTHER, 1, "10.0.0.7", false, false, false, false, 0},
        {"no address", WORKER_OTHER, FRONTEND_PORT, NULL, false, false, false, false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world world;
        struct worker_row lost = {
            .type = cases[i].type, .host = cases[i].host, .port = cases[i].port};
        struct worker_pod *pod = NULL;

        world_init(&world);
        pod = world_frontend(&world, "u1", "frontend-a", "10.0.0.7");
        pod->is_unreachable = cases[i].is_unreachable;
        pod->is_running = !cases[i].is_crashing;
        if (cases[i].is_ended)
            world_end_pod(&world, "u1");
        if (cases[i].has_row)
            (void)world_row(&world, 2, WORKER_FRONTEND, "10.0.0.7", FRONTEND_PORT);
        world.facts.snapshot.lost = &lost;
        world.facts.snapshot.lost_count = 1;
        world_pass(&world, 10 * S);
        if (world.plan.orphans != cases[i].orphans ||
            world.plan.orphans_at.ns != WORLD_T0 + 10 * S)
            fail_msg("%s: %d", cases[i].what, world.plan.orphans);
        world.facts.snapshot.pods_complete = false;
        world_pass(&world, 20 * S);
        assert_int_equal(world.plan.orphans, -1);
        world_done(&world);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_lost_row_of_a_running_worker),
    cmocka_unit_test(test_full_of_rows),
    cmocka_unit_test(test_full_of_pods),
    cmocka_unit_test(test_none_at_all),
    cmocka_unit_test(test_move),
    cmocka_unit_test(test_forgets),
    cmocka_unit_test(test_long_uid),
};

UNIT_MAIN(tests)
