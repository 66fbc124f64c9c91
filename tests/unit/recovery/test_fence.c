// SPDX-License-Identifier: Apache-2.0
// A compute node whose actors never end: when it is fenced, and what keeps it from that.
#include "tests/unit/unit.h"

#include "tests/unit/recovery/scene.h"

static void evidence(const struct scene *scene, int node, enum order_evidence want)
{
    if (scene->plan.nodes[node].evidence != want)
        fail_msg("node %d: %s, want %s", node,
                 order_evidence_name(scene->plan.nodes[node].evidence),
                 order_evidence_name(want));
}

// A scene in which node 0 has had an Init since 1000 s.
static void make_asked(struct scene *scene)
{
    scene_recovery(scene);
    scene->config.may_fence_nodes = true;
    scene->config.init_timeout_ns = 100 * S;
    scene_decide(scene);
    scene_decide(scene); // its bytes have left
}

static void test_fence_node(void **state)
{
    struct scene scene;

    (void)state;
    for (int opt_in = 0; opt_in <= 1; opt_in++) {
        for (int delta = -1; delta <= 1; delta++) {
            make_asked(&scene);
            scene.config.may_fence_nodes = opt_in;
            scene_turn(&scene, scene.config.kill_after_ns + delta);
            scene_acts(&scene, 0, opt_in && delta >= 0 ? ORDER_FENCE_NODE : 0);
        }
    }
    scene_turn(&scene, S / 2);
    scene_acts(&scene, 0, 0);
    scene_turn(&scene, S);
    scene_acts(&scene, 0, ORDER_FENCE_NODE); // not gone yet
    evidence(&scene, 0, ORDER_UNKNOWN);      // that it was asked for is no proof
    scene.nodes[0].is_ended = true;
    scene_turn(&scene, S);
    evidence(&scene, 0, ORDER_GONE);
    scene_acts(&scene, 0, ORDER_CANCEL_INIT);
    scene_init(&scene, 0, ORDER_CALL_UNKNOWN);
    scene_turn(&scene, S);
    scene_acts(&scene, 0, ORDER_WRITE);
}

// Without the opt-in the gate opens at its bound, and who is missing is known.
static void test_unfenced_until_the_bound(void **state)
{
    struct scene scene;

    (void)state;
    make_asked(&scene);
    scene.config.may_fence_nodes = false;
    scene_turn(&scene, 59 * S);
    scene_acts(&scene, 0, 0);
    assert_true(scene.plan.bound_reached);
    assert_int_equal(scene.plan.evidence[ORDER_UNKNOWN], 2);
    assert_int_equal(scene.plan.block, ORDER_HOLD_OVER);
}

// It is woken for it by time alone.
static void test_fence_wakes(void **state)
{
    struct scene scene;

    (void)state;
    make_asked(&scene);
    scene.config.kill_after_ns = S / 2; // before anything else
    scene_decide(&scene);
    assert_int_equal(scene.plan.wake_at.ns, 1000 * S + S / 2);
}

// Again and again it gets an Init and answers none: the first one counts.
static void test_init_that_times_out(void **state)
{
    struct scene scene;

    (void)state;
    make_asked(&scene);
    scene.config.kill_after_ns = 130 * S;
    scene.config.max_hold_ns = 1000 * S;
    scene_turn(&scene, 100 * S);
    scene_init(&scene, 0, ORDER_CALL_UNKNOWN);
    scene_turn(&scene, 0);
    scene_turn(&scene, S);
    scene_acts(&scene, 0, ORDER_SEND_INIT);
    scene_turn(&scene, 29 * S - 1);
    scene_acts(&scene, 0, 0);
    scene_turn(&scene, 1);
    scene_acts(&scene, 0, ORDER_FENCE_NODE);
}

static void no_bytes(struct scene *scene)
{
    scene->nodes[0].init.is_sent = false;
}
static void connection_breaks(struct scene *scene)
{
    scene_init(scene, 0, ORDER_CALL_UNKNOWN);
    scene_turn(scene, S);
}
static void not_known_what_runs(struct scene *scene)
{
    scene->nodes[0].incarnation = 0;
}
static void not_a_pod_of_its_own(struct scene *scene)
{
    scene->nodes[0].can_fence = false;
}
static void recovery_is_over(struct scene *scene)
{
    scene->facts.status.value = 3;
}
static void gate_is_open(struct scene *scene)
{
    scene->facts.gate.is_open = true;
}
static void observed(struct scene *scene)
{
    scene->facts.mode = ORDER_OBSERVE;
}
static void lost_leadership(struct scene *scene)
{
    scene->facts.is_leader = false;
}
static void old_leader_lives(struct scene *scene)
{
    scene->facts.predecessor = ORDER_DEATH_NONE;
}
static void nothing_is_refused(struct scene *scene)
{
    scene->facts.gate.refused_at.ns = 0;
}
static void has_reset(struct scene *scene)
{
    scene_init(scene, 0, ORDER_CALL_DONE);
}
static void another_runs(struct scene *scene)
{
    scene->nodes[0].incarnation = 102;
}

// Each condition taken away alone, before the decision; and between the decision and the act.
static void test_who_is_not_fenced(void **state)
{
    static const struct {
        const char *name;
        void (*change)(struct scene *scene);
        bool is_late; // may come between decision and act
    } rows[] = {
        {"it never got an Init", no_bytes, false},
        {"its connection broke", connection_breaks, false},
        {"not known what runs", not_known_what_runs, true},
        {"not a pod of its own", not_a_pod_of_its_own, true},
        {"the recovery is over", recovery_is_over, true},
        {"the gate is open", gate_is_open, true},
        {"observe", observed, true},
        {"lost leadership", lost_leadership, true},
        {"the old leader lives", old_leader_lives, true},
        {"nothing is refused", nothing_is_refused, true},
        {"it has reset", has_reset, false},
        {"a newer process", another_runs, true},
    };
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene_recovery(&scene);
        scene.config.may_fence_nodes = true;
        scene.config.init_timeout_ns = 100 * S;
        scene_decide(&scene);
        rows[i].change(&scene);
        scene_turn(&scene, scene.config.kill_after_ns);
        if (scene.plan.nodes[0].acts & ORDER_FENCE_NODE)
            fail_msg("%s", rows[i].name);
        if (!rows[i].is_late)
            continue;
        make_asked(&scene);
        scene_turn(&scene, scene.config.kill_after_ns);
        scene_acts(&scene, 0, ORDER_FENCE_NODE);
        assert_true(
            order_may_fence(&scene.config, &scene.facts, &scene.memory, &scene.nodes[0]));
        rows[i].change(&scene);
        if (order_may_fence(&scene.config, &scene.facts, &scene.memory, &scene.nodes[0]))
            fail_msg("%s, between decision and act", rows[i].name);
    }
}

// The start of our own meta is not worth a process.
static void test_a_takeover_fences_nobody(void **state)
{
    struct scene scene;

    (void)state;
    scene_takeover(&scene);
    scene.config.may_fence_nodes = true;
    scene.config.kill_after_ns = S;
    scene_decide(&scene);
    scene_decide(&scene);
    scene_turn(&scene, 5 * S);
    scene_acts(&scene, 0, 0);
    assert_false(order_may_fence(&scene.config, &scene.facts, &scene.memory, &scene.nodes[0]));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_fence_node),        cmocka_unit_test(test_unfenced_until_the_bound),
    cmocka_unit_test(test_fence_wakes),       cmocka_unit_test(test_init_that_times_out),
    cmocka_unit_test(test_who_is_not_fenced), cmocka_unit_test(test_a_takeover_fences_nobody),
};

UNIT_MAIN(tests)
