// SPDX-License-Identifier: Apache-2.0
// Each limit one nanosecond before, at and after it.
#include "tests/unit/core/scene.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static void follow(struct scene *scene)
{
    scene_init(scene);
    scene_follow(scene, 0, 10 * S);
}

static void test_deadline(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        scene_leader(&scene);
        assert_true(scene.plan.order.deadline_ns == scene_deadline(&scene, 10 * S));
        assert_true(scene.plan.wake_at.ns == scene_deadline(&scene, 10 * S));
        scene_at(&scene, 37500 * MS + delta);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, delta < 0 ? RULE_LEADER : RULE_LEASE_EXPIRED);
        assert_int_equal(scene.plan.order.role,
                         delta < 0 ? FENCE_ROLE_LEADER : FENCE_ROLE_KILL);
        assert_int_equal(scene.plan.order.reason,
                         delta < 0 ? FENCE_REASON_NONE : FENCE_REASON_LEASE_EXPIRED);
    }
}

// Engaged without ever having been permitted: the lease that it can have won since the last
// read.
static void test_deadline_of_unpermitted(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        follow(&scene);
        scene_engage(&scene, 20 * S);
        scene_at(&scene, 37500 * MS + delta);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, delta < 0 ? RULE_UNKNOWN : RULE_LEASE_EXPIRED);
        assert_int_equal(scene.plan.order.role, delta < 0 ? FENCE_ROLE_KEEP : FENCE_ROLE_KILL);
        assert_true(scene_has(&scene, ACTION_READ));
    }
}

// A read from before the win does not kill the new leader.
static void test_engaged_against_read(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        follow(&scene);
        scene_engage(&scene, 11 * S);
        scene_at(&scene, 12 * S);
        scene_read(&scene, ROW_OTHER, 11 * S + delta, 10 * S);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, delta < 0 ? RULE_UNKNOWN : RULE_SUPERSEDED);
        assert_int_equal(scene_has(&scene, ACTION_READ), delta < 0);
    }
}

// The same read that shows that our tag owned a term may show who owns it now.
static void test_owned_term_counts_at_once(void **state)
{
    struct scene scene;

    (void)state;
    follow(&scene);
    scene_at(&scene, 11 * S);
    scene_read(&scene, ROW_OTHER, 11 * S, 11 * S);
    scene.facts.election.tag_owned_term = true;
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_SUPERSEDED);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_KILL);
}

static void test_phantom_after(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        scene_init(&scene);
        scene_lead(&scene, 0, 10 * S);
        for (int64_t at = 11 * S; at <= 70 * S; at += S) {
            scene.facts.rpc =
                (struct rpc_fact){RPC_FOLLOWING, 3, {SCENE_T0 + at}, {SCENE_T0 + at}};
            scene_lead(&scene, at, at);
            assert_int_equal(scene.plan.rule, RULE_LEADER);
        }
        assert_true(scene.plan.wake_at.ns == SCENE_T0 + 71 * S);
        scene_at(&scene, 71 * S + delta);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, delta < 0 ? RULE_LEADER : RULE_PHANTOM_LEADER);
    }
}

static void test_promote_after(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        scene_init(&scene);
        scene_lead(&scene, 0, 4 * S);
        scene_engage(&scene, 5 * S);
        scene_lead(&scene, 5 * S, 604 * S);
        assert_int_equal(scene.plan.rule, RULE_PROMOTING);
        scene_at(&scene, 605 * S + delta);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, delta < 0 ? RULE_PROMOTING : RULE_PHANTOM_LEADER);
    }
}

// A held twin starts again when the heartbeat has stood still for ttl, as reads show it.
static void test_twin_still(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        scene_leader(&scene);
        scene.facts.api = (struct api_fact){.known = true, .lists_other_uid = true};
        scene_lead(&scene, 11 * S, 11 * S);
        assert_int_equal(scene.plan.rule, RULE_TWIN_IDENTITY);
        scene_die(&scene, FENCE_REASON_TWIN_IDENTITY, 12 * S);
        scene_lead(&scene, 12 * S, 20 * S); // the twin renews
        assert_int_equal(scene.plan.rule, RULE_TWIN_IDENTITY);
        assert_int_equal(scene.plan.order.role, FENCE_ROLE_KEEP);
        assert_true(scene.plan.order.flags & FENCE_ORDER_TWIN_HOLD);
        scene_at(&scene, 60 * S);
        scene_read(&scene, ROW_OURS, 50 * S + delta, 20 * S);
        scene_decide(&scene);
        assert_int_equal(!!(scene.plan.order.flags & FENCE_ORDER_TWIN_HOLD), delta < 0);
        assert_true(scene.plan.order.heartbeat_still_ns == 30 * S + delta);
    }
}

// The database's clock jumps by a second; its unit is the microsecond, so sent_at makes the
// nanosecond.
static void test_max_clock_jump(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int64_t delta = -1; delta <= 1; delta++) {
            struct scene scene;

            scene_leader(&scene);
            scene_at(&scene, 12 * S);
            scene_read(&scene, ROW_OURS, 11 * S - sign * delta, 11 * S);
            scene.facts.election.age_ns = 0;
            scene.facts.election.db_now_us = SCENE_DB_US + (11 + sign) * 1000000;
            scene_decide(&scene);
            assert_int_equal(scene.memory.proof_void, delta > 0);
        }
    }
}

static void test_suspend(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        scene_leader(&scene);
        scene_at(&scene, 20 * S);
        scene.facts.suspended_ns = 1 * S + delta;
        scene_decide(&scene);
        assert_int_equal(scene.memory.proof_void, delta > 0);
        assert_int_equal(scene_has(&scene, ACTION_READ), delta > 0);
        // The permit is in BOOTTIME, which counts the suspension: it stays.
        assert_true(scene.plan.order.deadline_ns == scene_deadline(&scene, 10 * S));
    }
}

static void alone(struct scene *scene, int64_t span_ns)
{
    scene_init(scene);
    scene->facts.election.members_known = true;
    scene->facts.api = (struct api_fact){.known = true, .lists_our_uid = true};
    scene_lead(scene, 0, 4 * S);
    scene_engage(scene, 5 * S);
    scene_ports_up(scene);
    scene_lead(scene, 5 * S, 59 * S);
    scene_at(scene, 61 * S);
    scene_read(scene, ROW_OURS, span_ns, span_ns);
    scene_decide(scene);
}

static void test_alone_for_two_ttl(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        alone(&scene, 60 * S + delta);
        scene.facts.database.state = DATABASE_SILENT;
        scene_at(&scene, 100 * S);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, delta < 0 ? RULE_LEASE_EXPIRED : RULE_UNKNOWN);
        assert_int_equal(scene.plan.not_covered, delta < 0 ? 0 : NOT_COVERED_SINGLE_REPLICA);
    }
}

// The hold is with metafence-run before the deadline, and only for a short time each.
static void test_hold_comes_before_deadline(void **state)
{
    const int64_t span = 6 * S; // connect + query + margin
    struct scene scene;
    int64_t deadline = 0;

    (void)state;
    alone(&scene, 61 * S);
    deadline = scene_deadline(&scene, 61 * S);
    scene.facts.database.state = DATABASE_SILENT;
    for (int64_t delta = -1; delta <= 1; delta++) {
        scene.facts.now.ns = deadline - span + delta;
        scene_decide(&scene);
        assert_true(scene.plan.order.pause_end_ns ==
                    (delta < 0 ? 0 : scene.facts.now.ns + span));
        assert_int_equal(scene.plan.not_covered, 0);
        assert_true(scene.plan.wake_at.ns ==
                    (delta < 0 ? deadline - span : scene.facts.now.ns + span / 2));
    }
    scene.facts.now.ns = deadline;
    scene_decide(&scene);
    assert_true(scene.plan.order.pause_end_ns == deadline + span);
    assert_int_equal(scene.plan.not_covered, NOT_COVERED_SINGLE_REPLICA);
    scene.facts.orders.pause_end.ns = deadline + 100 * S; // a longer one stays
    scene_decide(&scene);
    assert_true(scene.plan.order.pause_end_ns == deadline + 100 * S);
}

static void test_what_ends_a_single_replica(void **state)
{
    static const struct {
        bool members_known;
        uint32_t others;
        bool api_known;
        bool lists_us;
        bool lists_other;
        enum on_silence on_silence;
        bool held;
    } cases[] = {
        {true, 0, true, true, false, ON_SILENCE_AUTO, true},
        {false, 0, true, true, false, ON_SILENCE_AUTO, false},
        {true, 1, true, true, false, ON_SILENCE_AUTO, false},
        {true, 0, false, true, false, ON_SILENCE_AUTO, false},
        {true, 0, true, false, false, ON_SILENCE_AUTO, false},
        {true, 0, true, true, false, ON_SILENCE_FENCE, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;

        alone(&scene, 61 * S);
        scene.config.on_silence = cases[i].on_silence;
        scene_at(&scene, 62 * S);
        scene_read(&scene, ROW_OURS, 62 * S, 62 * S);
        scene.facts.election.members_known = cases[i].members_known;
        scene.facts.election.other_members = cases[i].others;
        scene.facts.api = (struct api_fact){.known = cases[i].api_known,
                                            .lists_our_uid = cases[i].lists_us,
                                            .lists_other_uid = cases[i].lists_other};
        scene_decide(&scene);
        scene_at(&scene, 120 * S);
        scene_decide(&scene);
        if ((scene.plan.rule == RULE_UNKNOWN) != cases[i].held)
            fail_msg("case %zu: %s", i, rule_name(scene.plan.rule));
    }
}

static void test_pause_end(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        scene_leader(&scene);
        scene.facts.orders.pause_end.ns = SCENE_T0 + 60 * S;
        scene_at(&scene, 60 * S + delta);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, delta < 0 ? RULE_PAUSED : RULE_LEASE_EXPIRED);
        assert_true(scene.plan.order.pause_end_ns == SCENE_T0 + 60 * S);
    }
}

// Held after a phantom's death: until ttl has passed since.
static void test_phantom_hold(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        scene_init(&scene);
        scene_lead(&scene, 0, 4 * S);
        scene_engage(&scene, 5 * S);
        scene_lead(&scene, 5 * S, 605 * S);
        assert_int_equal(scene.plan.rule, RULE_PHANTOM_LEADER);
        scene_die(&scene, FENCE_REASON_PHANTOM_LEADER, 606 * S);
        scene.facts.cleanup.sessions_gone = 3;
        scene_at(&scene, 606 * S);
        scene_decide(&scene);
        assert_true(scene.plan.wake_at.ns == SCENE_T0 + 636 * S);
        scene_at(&scene, 636 * S + delta);
        scene_decide(&scene);
        assert_int_equal(!!(scene.plan.order.flags & FENCE_ORDER_PHANTOM_HOLD), delta < 0);
    }
}

// A heartbeat slightly ahead of the clock that read it: allowed up to maxClockJump, and worth
// no more than a fresh one.
static void test_future_heartbeat(void **state)
{
    (void)state;
    for (int64_t delta = -1; delta <= 1; delta++) {
        struct scene scene;

        scene_leader(&scene);
        scene_at(&scene, 11 * S);
        scene_read(&scene, ROW_OURS, 11 * S, 12 * S);
        scene.facts.election.age_ns = -(1 * S) - delta;
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, delta > 0 ? RULE_ROW_BROKEN : RULE_LEADER);
        assert_true(scene.plan.order.deadline_ns ==
                    scene_deadline(&scene, delta > 0 ? 10 * S : 11 * S));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_deadline),
    cmocka_unit_test(test_deadline_of_unpermitted),
    cmocka_unit_test(test_engaged_against_read),
    cmocka_unit_test(test_owned_term_counts_at_once),
    cmocka_unit_test(test_phantom_after),
    cmocka_unit_test(test_promote_after),
    cmocka_unit_test(test_twin_still),
    cmocka_unit_test(test_max_clock_jump),
    cmocka_unit_test(test_suspend),
    cmocka_unit_test(test_alone_for_two_ttl),
    cmocka_unit_test(test_hold_comes_before_deadline),
    cmocka_unit_test(test_what_ends_a_single_replica),
    cmocka_unit_test(test_pause_end),
    cmocka_unit_test(test_phantom_hold),
    cmocka_unit_test(test_future_heartbeat),
};

UNIT_MAIN(tests)
