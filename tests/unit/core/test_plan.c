// SPDX-License-Identifier: Apache-2.0
// What a plan asks for besides the verdict: reads, questions, cleaning up after a death, the
// order's facts.
#include "tests/unit/core/scene.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static void test_order_of_actions(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    assert_int_equal(scene.plan.actions[0].kind, ACTION_LABEL);
    assert_int_equal(scene.plan.actions[1].kind, ACTION_ORDER);
    scene.facts.fence.known = false;
    scene_decide(&scene);
    assert_true(scene_has(&scene, ACTION_LABEL));
    assert_false(scene_has(&scene, ACTION_ORDER));
}

static void test_a_leader_completes_the_guard(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    for (int known = 0; known <= 1; known++) {
        scene.facts.election.term_known = known;
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, RULE_LEADER);
        assert_int_equal(scene_has(&scene, ACTION_COMPLETE_GUARD), known);
    }
    scene_read_at(&scene, ROW_OTHER, 11 * S, 11 * S);
    assert_false(scene_has(&scene, ACTION_COMPLETE_GUARD));
}

static void test_order_tells_the_read(void **state)
{
    struct scene scene;
    const struct fence_order *order = &scene.plan.order;

    (void)state;
    scene_leader(&scene);
    scene_at(&scene, 13 * S);
    scene_read(&scene, ROW_OURS, 12 * S, 10 * S);
    scene_decide(&scene);
    assert_true(order->incarnation == 3);
    assert_int_equal(order->row, FENCE_ROW_OURS);
    assert_int_equal(order->database, FENCE_DATABASE_UP);
    assert_true(order->read_ns == SCENE_T0 + 12 * S);
    assert_true(order->heartbeat_age_ns == 2 * S);
    assert_true(order->heartbeat_still_ns == 2 * S);
    assert_string_equal(order->heartbeat_tag, SCENE_TAG);
    assert_true(order->system_id == 4242);
    assert_int_equal(order->timeline, 1);
    assert_true(order->term == 7);

    // A broken row says nothing; the last good read stays.
    scene_at(&scene, 14 * S);
    scene_read(&scene, ROW_BROKEN, 14 * S, 14 * S);
    scene_decide(&scene);
    assert_int_equal(order->row, FENCE_ROW_UNKNOWN);
    assert_true(order->read_ns == SCENE_T0 + 12 * S);
    assert_true(order->heartbeat_age_ns == 0);
    assert_string_equal(order->heartbeat_tag, "");
}

static void test_order_tells_rows_and_database(void **state)
{
    static const struct {
        enum row_state row;
        enum fence_row want;
    } rows[] = {{ROW_ABSENT, FENCE_ROW_ABSENT}, {ROW_OTHER, FENCE_ROW_OTHER}};
    static const struct {
        enum database_state state;
        enum fence_database want;
    } states[] = {{DATABASE_UNKNOWN, FENCE_DATABASE_UNKNOWN},
                  {DATABASE_ANSWERS, FENCE_DATABASE_UP},
                  {DATABASE_SILENT, FENCE_DATABASE_DOWN},
                  {DATABASE_REFUSES, FENCE_DATABASE_UNKNOWN},
                  {DATABASE_STANDBY, FENCE_DATABASE_DOWN}};
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene_init(&scene);
        scene_at(&scene, 1 * S);
        scene_read(&scene, rows[i].row, 1 * S, 0);
        scene_decide(&scene);
        assert_int_equal(scene.plan.order.row, rows[i].want);
    }
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        scene.facts.database.state = states[i].state;
        scene_decide(&scene);
        assert_int_equal(scene.plan.order.database, states[i].want);
    }
}

static void test_ask_status(void **state)
{
    static const struct {
        const char *name;
        enum row_state row;
        uint32_t ports;
        struct rpc_fact rpc;
        bool alive;
        bool want;
    } cases[] = {
#define OPEN   (SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE)
#define AT(ns) {SCENE_T0 + (ns)}
        {"never asked", ROW_OURS, OPEN, {RPC_UNKNOWN, 0, {0}, {0}}, true, true},
        {"ports unknown", ROW_OURS, 0, {RPC_UNKNOWN, 0, {0}, {0}}, true, true},
        {"of the dead one", ROW_OURS, OPEN, {RPC_LEADING, 2, AT(S), AT(S)}, true, true},
        {"a poll ago", ROW_OURS, OPEN, {RPC_FOLLOWING, 3, AT(10750 * MS), {0}}, true, true},
        {"just now", ROW_OURS, OPEN, {RPC_FOLLOWING, 3, AT(10750 * MS + 1), {0}}, true, false},
        {"it leads", ROW_OURS, OPEN, {RPC_LEADING, 3, AT(S), AT(S)}, true, false},
        {"nobody listens", ROW_OURS, SHIM_PORTS_KNOWN, {RPC_UNKNOWN, 0, {0}, {0}}, true, false},
        {"row of another", ROW_OTHER, OPEN, {RPC_UNKNOWN, 0, {0}, {0}}, true, false},
        {"dead", ROW_OURS, OPEN, {RPC_UNKNOWN, 0, {0}, {0}}, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;

        scene_init(&scene);
        if (!cases[i].alive)
            scene_die(&scene, FENCE_REASON_NONE, 1 * S);
        scene.facts.fence.status.ports = cases[i].ports;
        scene.facts.rpc = cases[i].rpc;
        scene_at(&scene, 11 * S);
        scene_read(&scene, cases[i].row, 11 * S, 11 * S);
        scene_decide(&scene);
        if (scene_has(&scene, ACTION_ASK_STATUS) != cases[i].want)
            fail_msg("%s", cases[i].name);
    }
}

static void test_cleanup_after_death(void **state)
{
    static const struct {
        const char *name;
        enum fence_reason reason;
        bool engaged;
        enum database_state database;
        uint64_t sessions_gone;
        uint64_t recorded;
        bool schema;
        bool ends;
        bool records;
    } cases[] = {
        {"killed leader", FENCE_REASON_SUPERSEDED, true, DATABASE_ANSWERS, 0, 0, true, true,
         false},
        {"sessions gone", FENCE_REASON_SUPERSEDED, true, DATABASE_ANSWERS, 3, 0, true, false,
         true},
        {"an earlier one's", FENCE_REASON_SUPERSEDED, true, DATABASE_ANSWERS, 2, 2, true, true,
         false},
        {"all done", FENCE_REASON_SUPERSEDED, true, DATABASE_ANSWERS, 3, 3, true, false, false},
        {"no schema", FENCE_REASON_SUPERSEDED, true, DATABASE_ANSWERS, 3, 0, false, false,
         false},
        {"silent", FENCE_REASON_SUPERSEDED, true, DATABASE_SILENT, 0, 0, true, false, false},
        {"refuses", FENCE_REASON_SUPERSEDED, true, DATABASE_REFUSES, 3, 0, true, false, false},
        {"killed follower", FENCE_REASON_MANUAL, false, DATABASE_ANSWERS, 0, 0, true, true,
         false},
        {"leader that left", FENCE_REASON_NONE, true, DATABASE_ANSWERS, 0, 0, true, true,
         false},
        {"follower that left", FENCE_REASON_NONE, false, DATABASE_ANSWERS, 0, 0, true, false,
         false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;

        scene_init(&scene);
        scene_follow(&scene, 0, 4 * S);
        if (cases[i].engaged)
            scene_engage(&scene, 5 * S);
        scene_die(&scene, cases[i].reason, 6 * S);
        scene_at(&scene, 7 * S);
        scene.facts.election.term_known = cases[i].schema;
        scene.facts.database.state = cases[i].database;
        scene.facts.cleanup = (struct cleanup_fact){cases[i].sessions_gone, cases[i].recorded};
        scene_decide(&scene);
        if (scene_has(&scene, ACTION_END_SESSIONS) != cases[i].ends ||
            scene_has(&scene, ACTION_RECORD_DEATH) != cases[i].records)
            fail_msg("%s", cases[i].name);
        if (cases[i].ends || cases[i].records)
            assert_string_equal(scene.plan.dead_tag, SCENE_TAG);
    }
}

static void test_untagged_death_has_no_sessions_to_end(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene_die(&scene, FENCE_REASON_SUPERSEDED, 11 * S);
    scene.facts.fence.status.last_death.tag[0] = '\0';
    scene_at(&scene, 12 * S);
    scene_decide(&scene);
    assert_false(scene_has(&scene, ACTION_END_SESSIONS));
}

static void test_a_death_asks_for_a_read_that_is_younger(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        scene_leader(&scene);
        scene_die(&scene, FENCE_REASON_SUPERSEDED, 11 * S);
        scene_at(&scene, 12 * S);
        scene_read(&scene, ROW_OTHER, 11 * S + delta, 11 * S);
        scene_decide(&scene);
        assert_int_equal(scene_has(&scene, ACTION_READ), delta <= 0);
    }
}

static void phantom_dies(struct scene *scene)
{
    scene_init(scene);
    scene_lead(scene, 0, 4 * S);
    scene_engage(scene, 5 * S);
    scene_lead(scene, 5 * S, 605 * S);
    assert_int_equal(scene->plan.rule, RULE_PHANTOM_LEADER);
    assert_false(scene_has(scene, ACTION_DROP_PHANTOM));
    scene_die(scene, FENCE_REASON_PHANTOM_LEADER, 606 * S);
    scene->facts.cleanup.sessions_gone = 3;
}

static void test_phantom_is_dropped_after_proof(void **state)
{
    struct scene scene;

    (void)state;
    phantom_dies(&scene);
    scene_at(&scene, 606 * S);
    scene_decide(&scene);
    assert_false(scene_has(&scene, ACTION_DROP_PHANTOM)); // that read is older than the death
    scene_at(&scene, 607 * S);
    scene_read(&scene, ROW_OURS, 606 * S, 605500 * MS);
    scene_decide(&scene);
    assert_true(scene_has(&scene, ACTION_DROP_PHANTOM));
    assert_true(scene.plan.phantom_heartbeat_us == SCENE_DB_US + 605500000);
    assert_true(scene.plan.order.flags & FENCE_ORDER_PHANTOM_HOLD);
    assert_int_equal(scene.plan.rule, RULE_PHANTOM_LEADER);

    scene.facts.cleanup.sessions_gone = 0; // a statement of it may still wait somewhere
    scene_decide(&scene);
    assert_false(scene_has(&scene, ACTION_DROP_PHANTOM));
    scene.facts.fence.status.last_death.tag[0] = '\0';
    scene_decide(&scene);
    assert_true(scene_has(&scene, ACTION_DROP_PHANTOM));
    scene.facts.database.state = DATABASE_SILENT;
    scene_decide(&scene);
    assert_false(scene_has(&scene, ACTION_DROP_PHANTOM));
}

static void test_phantom_starts_when_another_leads(void **state)
{
    struct scene scene;

    (void)state;
    phantom_dies(&scene);
    scene_at(&scene, 608 * S);
    scene_read(&scene, ROW_ABSENT, 607 * S, 0);
    scene_decide(&scene);
    assert_true(scene.plan.order.flags & FENCE_ORDER_PHANTOM_HOLD);
    assert_false(scene_has(&scene, ACTION_DROP_PHANTOM));
    scene_read(&scene, ROW_OTHER, 608 * S, 608 * S);
    scene_decide(&scene);
    assert_false(scene.plan.order.flags & FENCE_ORDER_PHANTOM_HOLD);
    assert_int_not_equal(scene.plan.rule, RULE_PHANTOM_LEADER);
}

// Paused: nothing is killed, and the holds that a kill would bring are not ordered either.
static void test_pause_spares_all_but_manual(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene.facts.orders.pause_end.ns = SCENE_T0 + 100 * S;
    scene.facts.api = (struct api_fact){.known = true, .lists_other_uid = true};
    scene_lead(&scene, 11 * S, 11 * S);
    assert_int_equal(scene.plan.rule, RULE_PAUSED);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_KEEP);
    assert_int_equal(scene.plan.order.reason, FENCE_REASON_NONE);
    assert_int_equal(scene.plan.order.flags, FENCE_ORDER_ARMED | FENCE_ORDER_ENGAGED);
    assert_int_equal(scene.plan.label, LABEL_UNKNOWN);
    assert_false(scene.memory.twin_held);
    scene.facts.orders.manual_fence = true;
    scene_decide(&scene);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_KILL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_order_of_actions),
    cmocka_unit_test(test_a_leader_completes_the_guard),
    cmocka_unit_test(test_order_tells_the_read),
    cmocka_unit_test(test_order_tells_rows_and_database),
    cmocka_unit_test(test_ask_status),
    cmocka_unit_test(test_cleanup_after_death),
    cmocka_unit_test(test_untagged_death_has_no_sessions_to_end),
    cmocka_unit_test(test_a_death_asks_for_a_read_that_is_younger),
    cmocka_unit_test(test_phantom_is_dropped_after_proof),
    cmocka_unit_test(test_phantom_starts_when_another_leads),
    cmocka_unit_test(test_pause_spares_all_but_manual),
};

UNIT_MAIN(tests)
