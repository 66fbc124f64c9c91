// SPDX-License-Identifier: Apache-2.0
// RESET, NONE, GONE: what proves each, and what does not.
#include "tests/unit/unit.h"

#include <string.h>

#include "tests/unit/recovery/scene.h"

static void evidence(const struct scene *scene, int node, enum order_evidence want)
{
    if (scene->plan.nodes[node].evidence != want)
        fail_msg("node %d: %s, want %s", node,
                 order_evidence_name(scene->plan.nodes[node].evidence),
                 order_evidence_name(want));
}

// --- RESET ---

static void test_reset(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene_decide(&scene);
    assert_true(scene.plan.stop); // of a hold before this one
    scene_acts(&scene, 0, ORDER_SEND_INIT);
    scene_acts(&scene, 1, ORDER_SEND_INIT);
    assert_int_not_equal(scene.plan.nodes[0].init_serial, scene.plan.nodes[1].init_serial);
    scene_turn(&scene, S / 10);
    assert_false(scene.plan.stop);
    scene_acts(&scene, 0, 0); // one at a time
    scene_init(&scene, 0, ORDER_CALL_DONE);
    scene_turn(&scene, S / 10);
    evidence(&scene, 0, ORDER_RESET);
    evidence(&scene, 1, ORDER_UNKNOWN);
    scene_acts(&scene, 0, ORDER_WRITE);
    scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_RESETS);
    assert_int_equal(scene.plan.evidence[ORDER_RESET], 1);
    scene_init(&scene, 1, ORDER_CALL_DONE);
    scene.nodes[0].recorded = ORDER_RESET;
    scene_turn(&scene, S / 10);
    scene_acts(&scene, 0, 0);
    scene_is(&scene, ORDER_RECONCILE, ORDER_WAIT_RECORD);
    scene.nodes[1].recorded = ORDER_RESET;
    scene_turn(&scene, S / 10);
    scene_is(&scene, ORDER_RECLAIM, ORDER_WAIT_REMOVAL);
}

static void test_other_answers_are_none(void **state)
{
    static const enum order_outcome outcomes[] = {ORDER_CALL_FAILED, ORDER_CALL_UNKNOWN};
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        for (int delta = -1; delta <= 1; delta++) {
            scene_recovery(&scene);
            scene_decide(&scene);
            scene_init(&scene, 0, outcomes[i]);
            scene_turn(&scene, S / 10);
            evidence(&scene, 0, ORDER_UNKNOWN);
            scene_acts(&scene, 0, 0);
            scene_turn(&scene, scene.config.retry_ns + delta);
            scene_acts(&scene, 0, delta < 0 ? 0 : ORDER_SEND_INIT);
        }
    }
}

static void test_answers_of_another_call_are_ignored(void **state)
{
    struct scene scene;
    uint32_t late = 0;

    (void)state;
    scene_recovery(&scene);
    scene_decide(&scene);
    late = scene.nodes[0].init.serial;
    scene_init(&scene, 0, ORDER_CALL_UNKNOWN);
    scene_turn(&scene, S);
    scene_turn(&scene, S); // asked again
    assert_int_not_equal(scene.nodes[0].init.serial, late);
    scene.nodes[0].init = (struct order_call){.serial = late, .outcome = ORDER_CALL_DONE};
    scene_turn(&scene, S);
    evidence(&scene, 0, ORDER_UNKNOWN);

    scene_recovery(&scene); // one of the hold before
    scene_decide(&scene);
    scene_init(&scene, 0, ORDER_CALL_DONE);
    scene.facts.marker.id = 6;
    scene.facts.marker.opened_at = scene.facts.now;
    scene_turn(&scene, S);
    evidence(&scene, 0, ORDER_UNKNOWN);
}

// A shell that forgets a call does not stop the order.
static void test_call_without_an_end(void **state)
{
    struct scene scene;

    (void)state;
    for (int delta = -1; delta <= 1; delta++) {
        scene_recovery(&scene);
        scene_decide(&scene);
        scene.nodes[0].init = scene.nodes[1].init = (struct order_call){0};
        scene_turn(&scene, 20 * S + scene.config.retry_ns + delta); // its deadline, and a bit
        scene_acts(&scene, 0, 0);
        scene_turn(&scene, scene.config.retry_ns);
        scene_acts(&scene, 0, delta < 0 ? 0 : ORDER_SEND_INIT);
    }
}

// What was acknowledged is used up by a removal that passes: meta may have built since.
static void test_round(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene_decide(&scene);
    scene_init(&scene, 0, ORDER_CALL_DONE);
    scene_init(&scene, 1, ORDER_CALL_DONE);
    scene_turn(&scene, S);
    scene.nodes[0].recorded = scene.nodes[1].recorded = ORDER_RESET;
    scene.facts.gate.is_open = true;
    scene_turn(&scene, S);
    scene_is(&scene, ORDER_RECLAIM, ORDER_WAIT_REMOVAL);
    scene.facts.marker.round = 1;
    scene.facts.gate.is_open = false;
    scene.facts.gate.refused_at.ns = 0;
    scene.nodes[0].recorded = scene.nodes[1].recorded = ORDER_UNKNOWN;
    scene_turn(&scene, S);
    scene_is(&scene, ORDER_ADMIT, ORDER_WAIT_END);
    scene_acts(&scene, 0, 0);
    scene.facts.gate.refused_at = scene.facts.now; // and another one comes
    scene_turn(&scene, S);
    scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_RESETS);
    scene_acts(&scene, 0, ORDER_SEND_INIT);
}

// The attempts of one marker are one hold.
static void test_attempts_join(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene_decide(&scene);
    scene_init(&scene, 0, ORDER_CALL_DONE);
    for (int i = 0; i < 10; i++) {
        scene.facts.gate.refused_at = scene.facts.now;
        scene_turn(&scene, S);
        evidence(&scene, 0, ORDER_RESET);
        assert_false(scene.plan.stop);
    }
    scene_turn(&scene, 48 * S); // 999 + 60
    assert_false(scene.plan.bound_reached);
    scene_turn(&scene, S);
    assert_true(scene.plan.bound_reached);
}

// --- NONE ---

static void make_none(struct scene *scene)
{
    scene_recovery(scene);
    scene->facts.status.value = 0; // no Init: statistics alone
    scene->facts.drops = (struct order_drops){
        .known = true, .is_complete = true, .fragments = 2, .revision = 40};
}

static void look(struct scene *scene, enum order_outcome outcome, uint32_t running)
{
    scene_stats(scene, 0, outcome, running);
    scene_turn(scene, S / 10);
}

static void test_none_needs_two_reads(void **state)
{
    struct scene scene;

    (void)state;
    for (int delta = -1; delta <= 1; delta++) {
        make_none(&scene);
        scene_decide(&scene);
        scene_acts(&scene, 0, ORDER_ASK_STATS);
        look(&scene, ORDER_CALL_DONE, 0);
        evidence(&scene, 0, ORDER_UNKNOWN);
        scene_acts(&scene, 0, 0);
        scene_turn(&scene, scene.config.recheck_ns + delta);
        scene_acts(&scene, 0, delta < 0 ? 0 : ORDER_ASK_STATS);
        if (delta < 0)
            continue;
        look(&scene, ORDER_CALL_DONE, 0);
        evidence(&scene, 0, ORDER_NONE);
        scene_acts(&scene, 0, ORDER_WRITE);
        assert_int_equal(scene.plan.nodes[0].revision, 40);
    }
}

static void test_reads_that_prove_nothing(void **state)
{
    static const struct {
        enum order_outcome outcome;
        uint32_t running;
    } second[] = {{ORDER_CALL_DONE, 1}, {ORDER_CALL_FAILED, 0}, {ORDER_CALL_UNKNOWN, 0}};
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(second) / sizeof(second[0]); i++) {
        make_none(&scene);
        scene_decide(&scene);
        look(&scene, ORDER_CALL_DONE, 0);
        scene_turn(&scene, S);
        look(&scene, second[i].outcome, second[i].running);
        evidence(&scene, 0, ORDER_UNKNOWN);
        scene_turn(&scene, S);
        look(&scene, ORDER_CALL_DONE, 0); // the first again
        evidence(&scene, 0, ORDER_UNKNOWN);
        scene_turn(&scene, S);
        look(&scene, ORDER_CALL_DONE, 0);
        evidence(&scene, 0, ORDER_NONE);
    }
}

static void test_statistics_are_not_asked_where_they_prove_nothing(void **state)
{
    static const struct order_drops drops[] = {
        {.known = false, .is_complete = true, .fragments = 2},
        {.known = true, .is_complete = false, .fragments = 2},
        {.known = true, .is_complete = true, .may_build = true, .fragments = 2},
        {.known = true, .is_complete = true, .fragments = 0},
    };
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(drops) / sizeof(drops[0]); i++) {
        make_none(&scene);
        scene.facts.drops = drops[i];
        scene_decide(&scene);
        scene_acts(&scene, 0, 0);
        scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_STATUS);
    }
    make_none(&scene);
    scene.facts.marker.round = 1;
    scene.facts.status.value = 2;
    scene_decide(&scene);
    scene_acts(&scene, 0, ORDER_SEND_INIT); // after a removal has passed: Init alone
}

static void test_none_is_of_what_was_dropped_then(void **state)
{
    struct scene scene;

    (void)state;
    make_none(&scene);
    scene_decide(&scene);
    look(&scene, ORDER_CALL_DONE, 0);
    scene.facts.drops.revision = 41;
    scene_turn(&scene, S);
    look(&scene, ORDER_CALL_DONE, 0); // the first of the new
    evidence(&scene, 0, ORDER_UNKNOWN);
    scene_turn(&scene, S);
    look(&scene, ORDER_CALL_DONE, 0);
    evidence(&scene, 0, ORDER_NONE);
    scene.nodes[0].recorded = ORDER_NONE;
    scene.nodes[0].recorded_revision = 41;
    scene_turn(&scene, S);
    scene_acts(&scene, 0, 0);
    scene.facts.drops.revision = 42;
    scene_turn(&scene, S);
    evidence(&scene, 0, ORDER_UNKNOWN);
    scene_acts(&scene, 0, ORDER_ASK_STATS);

    make_none(&scene); // a job is being created since
    scene_decide(&scene);
    look(&scene, ORDER_CALL_DONE, 0);
    scene_turn(&scene, S);
    look(&scene, ORDER_CALL_DONE, 0);
    evidence(&scene, 0, ORDER_NONE);
    scene.facts.drops.may_build = true;
    scene_turn(&scene, S);
    evidence(&scene, 0, ORDER_UNKNOWN);
}

// An answer that compares with an older list is no read.
static void test_read_of_another_revision(void **state)
{
    struct scene scene;

    (void)state;
    make_none(&scene);
    scene_decide(&scene);
    look(&scene, ORDER_CALL_DONE, 0);
    scene_turn(&scene, S);
    scene_stats(&scene, 0, ORDER_CALL_DONE, 0);
    scene.nodes[0].revision = 39;
    scene_turn(&scene, S / 10);
    evidence(&scene, 0, ORDER_UNKNOWN);
}

// The Init is over before the acknowledgement is written: with the last one the gate opens.
static void test_none_cancels_the_init(void **state)
{
    struct scene scene;

    (void)state;
    make_none(&scene);
    scene_decide(&scene);
    look(&scene, ORDER_CALL_DONE, 0);
    scene.facts.status.value = 2;
    scene_turn(&scene, S);
    scene_acts(&scene, 0, ORDER_SEND_INIT | ORDER_ASK_STATS);
    look(&scene, ORDER_CALL_DONE, 0);
    evidence(&scene, 0, ORDER_NONE);
    scene_acts(&scene, 0, ORDER_CANCEL_INIT);
    scene_init(&scene, 0, ORDER_CALL_UNKNOWN);
    scene_turn(&scene, S / 10);
    scene_acts(&scene, 0, ORDER_WRITE);
}

// --- GONE ---

static void test_gone(void **state)
{
    static const struct {
        const char *name;
        uint64_t first, second;
        int64_t first_age_ns; // before the hold
        bool is_ended;
        enum order_evidence want;
    } rows[] = {
        {"replaced within the hold", 101, 102, 0, false, ORDER_GONE},
        {"the same", 101, 101, 0, false, ORDER_UNKNOWN},
        // What replaced it may be older than the drop.
        {"seen before the hold, replaced", 101, 102, 1, false, ORDER_UNKNOWN},
        {"first seen", 0, 102, 0, false, ORDER_UNKNOWN},
        {"not known any more", 101, 0, 0, false, ORDER_UNKNOWN},
        {"ended", 101, 101, 0, true, ORDER_GONE},
        {"ended, never seen before", 0, 0, 1, true, ORDER_GONE},
    };
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene_recovery(&scene);
        scene.nodes[0].incarnation = rows[i].first;
        scene.nodes[0].seen_at.ns = 1000 * S - rows[i].first_age_ns;
        scene_decide(&scene);
        scene.nodes[0].incarnation = rows[i].second;
        scene.nodes[0].is_ended = rows[i].is_ended;
        scene_turn(&scene, S);
        if (scene.plan.nodes[0].evidence != rows[i].want)
            fail_msg("%s", rows[i].name);
    }
}

// A look that was begun before the hold proves nothing of it.
static void test_gone_by_an_old_look(void **state)
{
    struct scene scene;

    (void)state;
    for (int delta = -1; delta <= 1; delta++) {
        scene_recovery(&scene);
        scene.nodes[0].is_ended = true;
        scene.nodes[0].seen_at.ns = 1000 * S + delta;
        scene_decide(&scene);
        evidence(&scene, 0, delta < 0 ? ORDER_UNKNOWN : ORDER_GONE);
    }
}

// Before a removal is refused an attempt may get to building: whatever is proven then is of no
// use for the next one, which joins the same marker.
static void test_nothing_counts_before_a_refusal(void **state)
{
    struct scene scene;

    (void)state;
    make_none(&scene);
    scene.facts.gate.refused_at.ns = 0;
    scene.nodes[1].is_ended = true;
    scene_decide(&scene);
    scene_acts(&scene, 0, 0); // not even asked
    evidence(&scene, 1, ORDER_UNKNOWN);
    scene.nodes[0].incarnation = 102; // replaced, before
    scene_turn(&scene, S);
    scene.facts.gate.refused_at = scene.facts.now;
    scene_turn(&scene, S);
    evidence(&scene, 0, ORDER_UNKNOWN);
    evidence(&scene, 1, ORDER_GONE);
    scene_acts(&scene, 0, ORDER_ASK_STATS);
    scene.nodes[0].incarnation = 103;
    scene_turn(&scene, S);
    evidence(&scene, 0, ORDER_GONE);
}

// --- writing ---

static void test_write_again(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene_decide(&scene);
    scene_init(&scene, 0, ORDER_CALL_DONE);
    scene_turn(&scene, S);
    scene_acts(&scene, 0, ORDER_WRITE);
    for (int delta = -1; delta <= 1; delta++) {
        struct scene copy = scene;

        copy.facts.nodes = copy.nodes;
        scene_turn(&copy, copy.config.retry_ns + delta);
        scene_acts(&copy, 0, delta < 0 ? 0 : ORDER_WRITE);
    }
    scene.nodes[0].recorded = ORDER_NONE; // what is weaker is replaced
    scene_turn(&scene, S);
    scene_acts(&scene, 0, ORDER_WRITE);
}

static void test_restarted_agent_finds_what_is_recorded(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene.facts.drops.revision = 40;
    scene.nodes[0].recorded = ORDER_RESET;
    scene.nodes[1].recorded = ORDER_NONE;
    scene.nodes[1].recorded_revision = 39;
    scene_decide(&scene);
    evidence(&scene, 0, ORDER_RESET);
    scene_acts(&scene, 0, 0);
    evidence(&scene, 1, ORDER_UNKNOWN);
    scene_acts(&scene, 1, ORDER_SEND_INIT);
}

// --- lists ---

static void test_lists(void **state)
{
    static struct order_node many[ORDER_NODES_MAX + 1];
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene.facts.nodes_known = false;
    scene_decide(&scene);
    scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_NODES);
    scene_acts(&scene, 0, ORDER_SEND_INIT); // who is known is asked
    scene.facts.nodes_known = true;
    scene.facts.node_count = 1; // the other one is no longer shown, which proves nothing
    scene_turn(&scene, S);
    assert_int_equal(scene.plan.unlisted, 1);
    scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_NODES);

    scene_recovery(&scene);
    scene.facts.node_count = 0;
    scene_decide(&scene);
    scene_is(&scene, ORDER_RECLAIM, ORDER_WAIT_REMOVAL);

    scene_recovery(&scene);
    for (uint32_t i = 0; i < ORDER_NODES_MAX + 1; i++)
        many[i] = (struct order_node){.endpoint = i + 1, .recorded = ORDER_RESET};
    scene.facts.nodes = many;
    scene.facts.node_count = ORDER_NODES_MAX;
    order_decide(&scene.config, &scene.facts, &scene.memory, &scene.plan);
    scene_is(&scene, ORDER_RECLAIM, ORDER_WAIT_REMOVAL);
    scene.facts.node_count++;
    order_decide(&scene.config, &scene.facts, &scene.memory, &scene.plan);
    scene_is(&scene, ORDER_RESET_NODES, ORDER_WAIT_NODES);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_reset),
    cmocka_unit_test(test_other_answers_are_none),
    cmocka_unit_test(test_answers_of_another_call_are_ignored),
    cmocka_unit_test(test_call_without_an_end),
    cmocka_unit_test(test_round),
    cmocka_unit_test(test_attempts_join),
    cmocka_unit_test(test_none_needs_two_reads),
    cmocka_unit_test(test_reads_that_prove_nothing),
    cmocka_unit_test(test_statistics_are_not_asked_where_they_prove_nothing),
    cmocka_unit_test(test_none_is_of_what_was_dropped_then),
    cmocka_unit_test(test_read_of_another_revision),
    cmocka_unit_test(test_none_cancels_the_init),
    cmocka_unit_test(test_gone),
    cmocka_unit_test(test_gone_by_an_old_look),
    cmocka_unit_test(test_nothing_counts_before_a_refusal),
    cmocka_unit_test(test_write_again),
    cmocka_unit_test(test_restarted_agent_finds_what_is_recorded),
    cmocka_unit_test(test_lists),
};

UNIT_MAIN(tests)
