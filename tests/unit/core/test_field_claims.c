// SPDX-License-Identifier: Apache-2.0
// What a process says of itself: it may answer as a leader and have every leader port open. It
// is labelled and permitted as leader by the row alone.
#include "tests/unit/core/scene.h"
#include "tests/unit/unit.h"

static void claim(struct scene *scene, enum rpc_answer answer)
{
    scene->facts.rpc.answer = answer;
    scene->facts.rpc.incarnation = scene->facts.fence.status.incarnation;
    scene->facts.rpc.sent_at = scene->facts.rpc.observed_at = scene->facts.now;
}

// What the row says at 20 s -> what may be said of the process then.
struct claim_case {
    const char *name;
    bool is_read; // at 20 s; else Postgres is silent since 10 s
    enum row_state row;
    int64_t beat_ns;
    bool is_killed;
};

static const struct claim_case cases[] = {
    {"another leads", true, ROW_OTHER, 20 * S, true},
    {"another's row has expired", true, ROW_OTHER, -100 * S, true},
    {"no row", true, ROW_ABSENT, 0, false},
    {"a broken row", true, ROW_BROKEN, 0, false},
    {"our row, long expired", true, ROW_OURS, -100 * S, true},
    {"silence", false, ROW_ABSENT, 0, false},
};

static const enum rpc_answer answers[] = {RPC_UNKNOWN, RPC_LEADING, RPC_FOLLOWING, RPC_REFUSED};

static void check(const struct claim_case *one, enum rpc_answer answer, bool is_engaged)
{
    struct scene scene;

    scene_init(&scene);
    scene_follow(&scene, 0, 10 * S);
    scene_at(&scene, 15 * S);
    claim(&scene, answer);
    if (is_engaged) {
        scene_engage(&scene, 15 * S);
        scene_ports_up(&scene);
    }
    scene_decide(&scene);
    scene_at(&scene, 20 * S);
    claim(&scene, answer);
    if (one->is_read)
        scene_read(&scene, one->row, 20 * S, one->beat_ns);
    scene_decide(&scene);
    if (scene.plan.label == LABEL_LEADER || scene.plan.order.role == FENCE_ROLE_LEADER)
        fail_msg("%s, answer %d, engaged %d: taken for the leader", one->name, (int)answer,
                 is_engaged);
    if (is_engaged && one->is_killed != (scene.plan.order.role == FENCE_ROLE_KILL))
        fail_msg("%s, answer %d: order %d", one->name, (int)answer, (int)scene.plan.order.role);
}

static void test_claims_never_lead(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t a = 0; a < sizeof answers / sizeof answers[0]; a++) {
            check(&cases[i], answers[a], false);
            check(&cases[i], answers[a], true);
        }
    }
}

// An answer as a leader, and nothing else: it is evidence against a follower.
static void test_claim_engages(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene_follow(&scene, 0, 10 * S);
    scene_at(&scene, 12 * S);
    claim(&scene, RPC_LEADING);
    scene_decide(&scene);
    scene_at(&scene, 13 * S);
    claim(&scene, RPC_LEADING);
    scene_read(&scene, ROW_OTHER, 13 * S, 13 * S);
    scene_decide(&scene);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_KILL);
    assert_int_equal(scene.plan.rule, RULE_SUPERSEDED);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_claims_never_lead),
    cmocka_unit_test(test_claim_engages),
};

UNIT_MAIN(tests)
