// SPDX-License-Identifier: Apache-2.0
// The four paths: takeover, recovery beside a live leader, recover, handover.
#include "tests/unit/unit.h"

#include <string.h>

#include "tests/unit/recovery/scene.h"

static void reset_all(struct scene *scene)
{
    for (uint32_t i = 0; i < scene->facts.node_count; i++)
        scene_init(scene, (int)i, ORDER_CALL_DONE);
}

// --- takeover ---

static void test_takeover(void **state)
{
    struct scene scene;

    (void)state;
    scene_takeover(&scene);
    scene.facts.row.sent_at.ns = 998 * S; // no read since the death
    scene_decide(&scene);
    scene_is(&scene, ORDER_FENCE, ORDER_WAIT_ROW);
    assert_true(scene.plan.hold_start);
    assert_int_equal(scene.plan.hold_until.ns, 1014 * S);
    scene_acts(&scene, 0, 0);
    scene_turn(&scene, S / 10);
    scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_RESETS);
    scene_acts(&scene, 0, ORDER_SEND_INIT);
    reset_all(&scene);
    scene_turn(&scene, S / 10);
    scene_is(&scene, ORDER_ADMIT, ORDER_WAIT_NOTHING);
    assert_false(scene.plan.hold_start);
    assert_false(scene.plan.bound_reached);
    scene_acts(&scene, 0, 0); // there is no marker to write it to
}

static void test_takeover_by_another(void **state)
{
    struct scene scene;

    (void)state;
    scene_takeover(&scene);
    scene_decide(&scene);
    scene.facts.row.holder = ORDER_ROW_OTHER;
    scene_turn(&scene, S);
    assert_true(scene.plan.stop);
    assert_false(scene.plan.hold_start);
    scene_is(&scene, ORDER_ADMIT, ORDER_WAIT_NOTHING);
}

// Observe and off send nothing and hold nothing.
static void test_takeover_is_only_observed(void **state)
{
    struct scene scene;

    (void)state;
    for (int mode = ORDER_OFF; mode <= ORDER_OBSERVE; mode++) {
        scene_takeover(&scene);
        scene.facts.mode = (enum order_mode)mode;
        scene_decide(&scene);
        scene_is(&scene, ORDER_IDLE, ORDER_WAIT_NOTHING);
        assert_false(scene.plan.hold_start);
        scene_acts(&scene, 0, 0);
    }
}

// --- a recovery ---

static void test_recovery_waits_say_for_what(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene.facts.predecessor = ORDER_DEATH_NONE;
    scene_decide(&scene);
    scene_is(&scene, ORDER_FENCE, ORDER_WAIT_PREDECESSOR);
    scene.facts.predecessor = ORDER_DEATH_IMPLIED;
    scene.facts.status.value = 0;
    scene_turn(&scene, S);
    scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_STATUS);
    assert_true(scene.plan.read_status);
    scene.facts.status.value = 2;
    scene.facts.gate.known = false;
    scene_turn(&scene, S);
    scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_STATE);
    scene.facts.gate.known = true;
    scene.facts.gate.refused_at.ns = 0;
    scene_turn(&scene, S);
    scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_REFUSAL);
    scene.facts.marker = (struct order_marker){0};
    scene_turn(&scene, S);
    scene_is(&scene, ORDER_IDLE, ORDER_WAIT_NOTHING);
}

static void test_own_loss_stops_at_once(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene_decide(&scene);
    scene.facts.is_leader = false;
    scene_decide(&scene); // in the very turn
    assert_true(scene.plan.stop);
    scene_acts(&scene, 0, 0);
}

static void test_bound(void **state)
{
    struct scene scene;

    (void)state;
    for (int delta = -1; delta <= 1; delta++) {
        scene_recovery(&scene);
        scene_decide(&scene);
        scene_turn(&scene, 59 * S + delta); // opened at 999 s
        assert_int_equal(scene.plan.bound_reached, delta >= 0);
        assert_true(scene.plan.stop); // since a margin before
        if (delta < 0)
            assert_int_equal(scene.plan.wake_at.ns, 1059 * S);
    }
    scene_recovery(&scene); // all have acknowledged: there is nothing to say
    scene_decide(&scene);
    reset_all(&scene);
    scene_turn(&scene, S);
    scene_turn(&scene, 60 * S);
    assert_false(scene.plan.bound_reached);
}

// --- orders ---

static void order(struct scene *scene, enum order_request_kind kind)
{
    scene->facts.marker = (struct order_marker){0};
    scene->facts.status.value = 3;
    scene->facts.drops = (struct order_drops){.known = true, .is_complete = true};
    scene->facts.request = (struct order_request){
        .kind = kind, .id = 77, .at = scene->facts.now, .wait_ns = 60 * S};
}

static void test_drain(void **state)
{
    static const struct {
        struct order_drops drops;
        enum order_wait wait;
    } rows[] = {
        {{.known = false}, ORDER_WAIT_STATE},
        {{.known = true, .fragments = 1, .creating = 1}, ORDER_WAIT_DROPS},
        {{.known = true, .creating = 1}, ORDER_WAIT_CREATES},
    };
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int delta = -1; delta <= 1; delta++) {
            scene_recovery(&scene);
            order(&scene, ORDER_REQUEST_RECOVER);
            scene.facts.drops = rows[i].drops;
            scene_decide(&scene);
            scene_is(&scene, ORDER_DRAIN, rows[i].wait);
            assert_int_equal(scene.plan.wake_at.ns, 1060 * S);
            scene_turn(&scene, 60 * S + delta);
            assert_int_equal(scene.plan.send_recover, delta >= 0);
            assert_int_equal(scene.plan.drain_gave_up, delta >= 0);
        }
    }
}

// What was read before the order came may not show the last drop.
static void test_drain_by_a_fresh_look(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    order(&scene, ORDER_REQUEST_HANDOVER);
    scene.facts.gate.sent_at.ns = scene.facts.now.ns - 1;
    scene_decide(&scene);
    scene_is(&scene, ORDER_DRAIN, ORDER_WAIT_STATE);
    assert_false(scene.plan.fence_meta);
    scene.facts.gate.sent_at = scene.facts.now;
    scene_decide(&scene);
    assert_true(scene.plan.fence_meta);
}

static void test_recover(void **state)
{
    static const struct {
        enum order_outcome outcome;
        enum order_end end;
    } rows[] = {
        {ORDER_CALL_PENDING, ORDER_END_NONE},
        {ORDER_CALL_DONE, ORDER_END_DONE},
        {ORDER_CALL_FAILED, ORDER_END_FAILED},
        {ORDER_CALL_UNKNOWN, ORDER_END_DONE}, // the status has been RUNNING since
    };
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene_recovery(&scene);
        order(&scene, ORDER_REQUEST_RECOVER);
        scene_decide(&scene);
        assert_true(scene.plan.send_recover);
        scene_is(&scene, ORDER_ADMIT, ORDER_WAIT_END);
        scene.facts.request.recover = rows[i].outcome;
        scene.facts.request.recover_ended_at = scene.facts.now;
        scene_turn(&scene, S);
        assert_false(scene.plan.send_recover); // once
        assert_int_equal(scene.plan.ended, rows[i].end);
        scene_turn(&scene, S);
        assert_int_equal(scene.plan.ended, ORDER_END_NONE); // said once
    }
}

static void test_recover_that_nobody_answers(void **state)
{
    struct scene scene;

    (void)state;
    for (int delta = -1; delta <= 1; delta++) {
        scene_recovery(&scene);
        order(&scene, ORDER_REQUEST_RECOVER);
        scene_decide(&scene);
        scene.facts.status.value = 2;
        scene.facts.request.recover = ORDER_CALL_UNKNOWN;
        scene.facts.request.recover_ended_at = scene.facts.now;
        scene_turn(&scene, 60 * S + delta);
        assert_int_equal(scene.plan.ended, delta < 0 ? ORDER_END_NONE : ORDER_END_FAILED);
    }
    scene_recovery(&scene); // who does not lead has nobody to ask
    order(&scene, ORDER_REQUEST_RECOVER);
    scene.facts.is_leader = false;
    scene.facts.drops.fragments = 1; // … and nothing to wait for
    scene_decide(&scene);
    assert_false(scene.plan.send_recover);
    assert_int_equal(scene.plan.ended, ORDER_END_FAILED);
}

// The recovery that it causes is ordered as any other.
static void test_recover_is_ordered(void **state)
{
    struct scene scene;
    struct scene recovery;

    (void)state;
    scene_recovery(&scene);
    order(&scene, ORDER_REQUEST_RECOVER);
    scene_decide(&scene);
    scene.facts.request.recover = ORDER_CALL_PENDING;
    scene_recovery(&recovery);
    scene.facts.marker = recovery.facts.marker;
    scene.facts.status.value = 2;
    scene_turn(&scene, S);
    scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_RESETS);
    scene_acts(&scene, 0, ORDER_SEND_INIT);
}

static void die(struct scene *scene)
{
    scene->facts.meta_runs = scene->facts.is_leader = false;
    scene->facts.death = (struct order_death){ORDER_DEATH_CONFIRMED, scene->facts.now, 3, 7};
}

static void test_handover(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    order(&scene, ORDER_REQUEST_HANDOVER);
    scene_decide(&scene);
    assert_true(scene.plan.fence_meta);
    assert_true(scene.plan.hold_start); // before it is dead
    scene_is(&scene, ORDER_FENCE, ORDER_WAIT_DEATH);
    scene.facts.row.holder = ORDER_ROW_OTHER; // and not dead: nothing was handed over
    scene_decide(&scene);
    assert_true(scene.plan.fence_meta);
    assert_int_equal(scene.plan.ended, ORDER_END_NONE);
    scene.facts.row.holder = ORDER_ROW_OURS;
    die(&scene);
    scene_turn(&scene, S);
    assert_false(scene.plan.fence_meta);
    scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_RESETS);
    scene_acts(&scene, 0, ORDER_SEND_INIT);
    reset_all(&scene);
    scene_turn(&scene, S);
    scene_is(&scene, ORDER_ADMIT, ORDER_WAIT_SUCCESSOR);
    assert_true(scene.plan.hold_start);
    assert_int_equal(scene.plan.hold_until.ns, 1050 * S); // lease and handover time
    scene.facts.row.holder = ORDER_ROW_OTHER;
    scene_turn(&scene, S);
    assert_false(scene.plan.hold_start);
    assert_int_equal(scene.plan.ended, ORDER_END_DONE);
}

static void test_handover_to_nobody(void **state)
{
    struct scene scene;

    (void)state;
    for (int delta = -1; delta <= 1; delta++) {
        scene_recovery(&scene);
        order(&scene, ORDER_REQUEST_HANDOVER);
        scene.facts.mode = ORDER_OBSERVE; // works without resets, too
        scene_decide(&scene);
        die(&scene);
        scene_turn(&scene, 50 * S + delta);
        scene_acts(&scene, 0, 0);
        assert_int_equal(scene.plan.hold_start, delta < 0);
        assert_int_equal(scene.plan.ended, delta < 0 ? ORDER_END_NONE : ORDER_END_FAILED);
    }
    // One that can't be killed is waited for no longer than for a successor.
    for (int delta = -1; delta <= 1; delta++) {
        scene_recovery(&scene);
        order(&scene, ORDER_REQUEST_HANDOVER);
        scene_decide(&scene);
        scene.facts.is_leader = false; // it is not permitted to lead any more
        scene.facts.row.holder = ORDER_ROW_UNKNOWN;
        scene_turn(&scene, 30 * S + delta);
        assert_int_equal(scene.plan.fence_meta, delta < 0);
        assert_int_equal(scene.plan.ended, delta < 0 ? ORDER_END_NONE : ORDER_END_FAILED);
    }
    scene_recovery(&scene);
    order(&scene, ORDER_REQUEST_HANDOVER);
    scene.facts.is_leader = false; // a follower has nothing to hand over
    scene_decide(&scene);
    assert_false(scene.plan.fence_meta);
    assert_int_equal(scene.plan.ended, ORDER_END_FAILED);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_takeover),
    cmocka_unit_test(test_takeover_by_another),
    cmocka_unit_test(test_takeover_is_only_observed),
    cmocka_unit_test(test_recovery_waits_say_for_what),
    cmocka_unit_test(test_own_loss_stops_at_once),
    cmocka_unit_test(test_bound),
    cmocka_unit_test(test_drain),
    cmocka_unit_test(test_drain_by_a_fresh_look),
    cmocka_unit_test(test_recover),
    cmocka_unit_test(test_recover_that_nobody_answers),
    cmocka_unit_test(test_recover_is_ordered),
    cmocka_unit_test(test_handover),
    cmocka_unit_test(test_handover_to_nobody),
};

UNIT_MAIN(tests)
