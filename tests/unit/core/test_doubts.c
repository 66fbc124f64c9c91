// SPDX-License-Identifier: Apache-2.0
// Half-known and contradictory facts: what must not be concluded from them.
#include "tests/unit/core/scene.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static void forget(struct scene *scene)
{
    memset(&scene->memory, 0, sizeof(scene->memory));
    memset(&scene->facts.election, 0, sizeof(scene->facts.election));
}

// A void proof is not healed by the first read of our row, only by an advance.
static void test_first_read_proves_nothing_after_a_jump(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.facts.suspended_ns = 2 * S;
    scene_decide(&scene);
    scene.facts.suspended_ns = 0;
    scene_read_at(&scene, ROW_OURS, 1 * S, 1 * S);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_KEEP);
    scene_read_at(&scene, ROW_OURS, 2 * S, 2 * S);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_LEADER);
}

// Lost and won again before it was seen to be engaged: the old permit does not bound the new
// one.
static void test_won_again(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene_lead(&scene, 0, 10 * S);
    scene_read_at(&scene, ROW_OTHER, 11 * S, 11 * S);
    assert_int_equal(scene.plan.rule, RULE_FOLLOWER);
    scene_read_at(&scene, ROW_OURS, 45 * S, 45 * S);
    assert_true(scene.plan.order.deadline_ns == scene_deadline(&scene, 45 * S));

    // … nor the end of a lease that was won since, and never read.
    scene_read_at(&scene, ROW_OTHER, 60 * S, 60 * S);
    scene_engage(&scene, 61 * S);
    scene_at(&scene, 80 * S);
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
    assert_true(scene.plan.wake_at.ns == scene_deadline(&scene, 60 * S));
}

static void test_pause_is_no_proof(void **state)
{
    struct scene scene;
    struct fence_status *status = &scene.facts.fence.status;

    (void)state;
    scene_leader(&scene);
    forget(&scene);
    status->flags |= SHIM_ARMED;
    status->permit = FENCE_ROLE_LEADER;
    status->pause_end_ns = SCENE_T0 + 100 * S;
    status->deadline_ns = SCENE_T0 + 100 * S;
    scene_at(&scene, 12 * S);
    scene_decide(&scene);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_KEEP);
    assert_int_equal(scene.plan.order.deadline_ns, 0);
}

// A new agent that has read nothing, beside an incarnation that no agent has armed: it judges
// nothing.
static void test_unarmed_agent_kills_nobody(void **state)
{
    static const uint32_t flags[] = {0, SHIM_SUPERSEDED};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct scene scene;
        struct fence_status *status = &scene.facts.fence.status;

        scene_leader(&scene);
        forget(&scene);
        status->flags |= flags[i];
        status->permit = FENCE_ROLE_LEADER;
        status->deadline_ns = SCENE_T0 + 37 * S;
        scene_at(&scene, 12 * S);
        scene_decide(&scene);
        assert_int_equal(scene.plan.order.role, i ? FENCE_ROLE_KEEP : FENCE_ROLE_LEADER);
        assert_int_equal(scene.plan.not_covered, NOT_COVERED_UNARMED);
        scene_at(&scene, 38 * S);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
        assert_int_equal(scene.plan.order.role, FENCE_ROLE_KEEP);
        scene_read_at(&scene, ROW_OURS, 39 * S, 39 * S); // it has read now
        assert_int_equal(scene.plan.order.role, i ? FENCE_ROLE_KILL : FENCE_ROLE_LEADER);
    }
}

// Back just before the old permit's end: the first look at a healthy leader is enough to go on.
static void test_agent_back_in_time(void **state)
{
    struct scene scene;
    struct fence_status *status = &scene.facts.fence.status;

    (void)state;
    scene_leader(&scene);
    forget(&scene);
    status->flags |= SHIM_ARMED;
    status->permit = FENCE_ROLE_LEADER;
    status->deadline_ns = SCENE_T0 + 37 * S;
    scene_read_at(&scene, ROW_OURS, 37 * S - 1, 36 * S);
    assert_true(scene.plan.order.deadline_ns == scene_deadline(&scene, 36 * S));
    scene_at(&scene, 37 * S);
    scene_decide(&scene);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_LEADER);
}

static void alone(struct scene *scene)
{
    scene_init(scene);
    scene->facts.election.members_known = true;
    scene->facts.api = (struct api_fact){.known = true, .lists_our_uid = true};
    scene_lead(scene, 0, 4 * S);
    scene_engage(scene, 5 * S);
    scene_ports_up(scene);
    scene_lead(scene, 5 * S, 61 * S);
}

// The hold of a single replica travels as a pause, and metafence-run would ignore a kill in a
// pause.
static void test_hold_does_not_stop_a_kill(void **state)
{
    struct scene scene;

    (void)state;
    alone(&scene);
    scene.facts.fence.status.flags |= SHIM_SUPERSEDED;
    scene_at(&scene, 85 * S); // near the deadline
    scene_decide(&scene);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_KILL);
    assert_int_equal(scene.plan.order.pause_end_ns, 0);
}

static void test_not_alone(void **state)
{
    static const struct {
        enum row_state row;
        bool other_uid;
        bool held;
    } cases[] = {
        {ROW_ABSENT, false, true},
        {ROW_ABSENT, true, false},
        {ROW_OTHER, false, false}, // members say nobody, the row names one
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;

        alone(&scene);
        scene.facts.api.lists_other_uid = cases[i].other_uid;
        scene_read_at(&scene, cases[i].row, 62 * S, 62 * S);
        assert_int_equal(scene.memory.alone_since.ns == 0, cases[i].row == ROW_OTHER);
        scene_at(&scene, 100 * S);
        scene_decide(&scene);
        assert_int_equal(scene.plan.order.role == FENCE_ROLE_KILL, !cases[i].held);
    }
}

// Identity is evidence like the row: a read from before the engagement does not judge.
static void test_identity_of_an_old_read(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene_lead(&scene, 0, 10 * S);
    scene_engage(&scene, 11 * S + 1);
    scene_at(&scene, 11 * S + 2);
    scene_read(&scene, ROW_OURS, 11 * S, 11 * S);
    scene.facts.election.timeline = 2;
    scene_decide(&scene);
    assert_int_not_equal(scene.plan.rule, RULE_DATABASE_REPLACED);
    scene_read(&scene, ROW_OURS, 11 * S + 1, 11 * S);
    scene.facts.election.timeline = 2;
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_DATABASE_REPLACED);
}

// It leads under another spelling of its id and so does not renew (the row keeps a dead one's
// heartbeat): others win when that heartbeat is ttl old, whenever it was that it began to lead.
static void test_leads_without_renewing(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.facts.election.term_known = false;
    scene.facts.fence.status.started_ns = SCENE_T0 + 1 * S;
    for (int64_t at = 2 * S; at <= 12 * S; at += S) {
        scene_at(&scene, at);
        scene_read(&scene, ROW_OURS, at, -5 * S);
        scene.facts.election.heartbeat_tag[0] = '\0';
        scene_decide(&scene);
        assert_int_equal(scene.plan.order.role, FENCE_ROLE_FOLLOWER);
    }
    scene_engage(&scene, 13 * S);
    scene_at(&scene, 14 * S);
    scene_read(&scene, ROW_OURS, 14 * S, -5 * S);
    scene.facts.election.heartbeat_tag[0] = '\0';
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
    assert_true(scene.plan.order.deadline_ns == scene_deadline(&scene, -5 * S));
    scene_at(&scene, 22500 * MS);
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_LEASE_EXPIRED);
}

// Our tag is in the heartbeat: it is ours, however old the database's clock makes it look.
static void test_our_tag_goes_before_ages(void **state)
{
    static const struct {
        const char *tag;
        enum fence_role role;
    } cases[] = {{SCENE_TAG, FENCE_ROLE_LEADER}, {"", FENCE_ROLE_FOLLOWER}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct scene scene;

        scene_init(&scene);
        scene.facts.fence.status.started_ns = SCENE_T0;
        scene_at(&scene, 2 * S);
        scene_read(&scene, ROW_OURS, 1 * S, -5 * S);
        (void)snprintf(scene.facts.election.heartbeat_tag, FENCE_TAG_SIZE, "%s", cases[i].tag);
        scene_decide(&scene);
        assert_int_equal(scene.plan.order.role, cases[i].role);
    }
}

// A foreign tag in a heartbeat that stands still may be a dead one's: a twin has to renew.
static void test_twin_has_to_renew(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene_follow(&scene, 0, 10 * S);
    scene_engage(&scene, 11 * S);
    for (int64_t beat = 12 * S; beat <= 13 * S; beat += S) {
        scene_at(&scene, 14 * S + beat);
        scene_read(&scene, ROW_OURS, 14 * S + beat, beat);
        (void)snprintf(scene.facts.election.owner_tag, FENCE_TAG_SIZE, SCENE_FOREIGN);
        (void)snprintf(scene.facts.election.heartbeat_tag, FENCE_TAG_SIZE, SCENE_FOREIGN);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, beat == 12 * S ? RULE_UNKNOWN : RULE_TWIN_IDENTITY);
    }
}

// A database without the table holds nobody's lease: the start gate may know. It arms nothing.
static void test_missing_relation_is_no_row(void **state)
{
    static const struct {
        enum row_defect defect;
        enum fence_row row;
        int64_t read_ns;
    } cases[] = {
        {ROW_DEFECT_RELATION_MISSING, FENCE_ROW_ABSENT, SCENE_T0 + 1 * S},
        {ROW_DEFECT_UNREADABLE, FENCE_ROW_UNKNOWN, 0},
        {ROW_DEFECT_HEARTBEAT_NULL, FENCE_ROW_UNKNOWN, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;

        scene_init(&scene);
        scene_at(&scene, 2 * S);
        scene_read(&scene, ROW_BROKEN, 1 * S, 0);
        scene.facts.election.defect = cases[i].defect;
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, RULE_ROW_BROKEN);
        assert_int_equal(scene.plan.order.row, cases[i].row);
        assert_true(scene.plan.order.read_ns == cases[i].read_ns);
        assert_int_equal(scene.plan.order.role, FENCE_ROLE_KEEP);
        assert_true(scene.plan.not_covered & NOT_COVERED_UNARMED);
    }
}

// A process that is down is no follower, whatever the row says.
static void test_dead_is_no_follower(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene_follow(&scene, 0, 10 * S);
    scene_die(&scene, FENCE_REASON_NONE, 10 * S);
    scene_follow(&scene, 11 * S, 12 * S);
    assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
    assert_int_equal(scene.plan.label, LABEL_UNKNOWN);
    assert_int_equal(scene.plan.order.row, FENCE_ROW_OTHER);
}

// It renewed, then stopped renewing, and answers UNIMPLEMENTED: that one loses the row by
// itself.
static void test_standing_heartbeat_ends_the_watch(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene_lead(&scene, 0, 10 * S);
    for (int64_t at = 11 * S; at <= 80 * S; at += S) {
        scene.facts.rpc = (struct rpc_fact){RPC_FOLLOWING, 3, {0}, {SCENE_T0 + at}};
        scene_read_at(&scene, ROW_OURS, at, at < 20 * S ? at : 20 * S);
        assert_int_not_equal(scene.plan.order.role, FENCE_ROLE_KILL);
    }
}

static void test_phantom_hold_wants_a_read_after_death(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene_die(&scene, FENCE_REASON_PHANTOM_LEADER, 10 * S);
    scene.facts.fence.status.hold = SHIM_HOLD_PHANTOM;
    scene_at(&scene, 11 * S);
    scene_read(&scene, ROW_OTHER, 10 * S - 1, 9 * S);
    scene_decide(&scene);
    assert_true(scene.plan.order.flags & FENCE_ORDER_PHANTOM_HOLD);
    scene_read(&scene, ROW_OTHER, 10 * S, 9 * S);
    scene_decide(&scene);
    assert_false(scene.plan.order.flags & FENCE_ORDER_PHANTOM_HOLD);
}

// The promotion's clock runs only while the row is ours.
static void test_promotion_interrupted(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene_lead(&scene, 0, 4 * S);
    scene_engage(&scene, 5 * S);
    scene_lead(&scene, 5 * S, 300 * S);
    scene_read_at(&scene, ROW_ABSENT, 301 * S, 0);
    scene_lead(&scene, 302 * S, 800 * S);
    assert_int_equal(scene.plan.rule, RULE_PROMOTING);
    scene_lead(&scene, 801 * S, 902 * S);
    assert_int_equal(scene.plan.rule, RULE_PHANTOM_LEADER);
}

// metafence-run that has started nothing has nothing alive, whatever a flag says.
static void test_no_incarnation_is_not_alive(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.facts.fence.status.incarnation = 0;
    scene_follow(&scene, 0, 1 * S);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_KEEP);
    assert_true(scene.plan.order.incarnation == 0);
    assert_int_equal(scene.plan.order.row, FENCE_ROW_OTHER);
}

// Answers that are missing now and then don't end the watch of a phantom, a gap in reads does.
static const struct {
    const char *name;
    int64_t read_gap_ns;
    bool rpc_lost;
    bool leads_once;
    bool fires;
} watches[] = {
    {"watched", 0, false, false, true},
    {"every third answer lost", 0, true, false, true},
    {"no read for 13 s", 13 * S, false, false, false},
    {"no read for 12 s", 12 * S, false, false, true},
    {"leads once", 0, false, true, false},
};

static void watch_phantom(struct scene *scene, size_t i)
{
    scene_init(scene);
    scene_lead(scene, 0, 10 * S);
    for (int64_t at = 11 * S; at <= 75 * S; at += S) {
        bool lost = watches[i].rpc_lost && at / S % 3 == 0;

        scene_at(scene, at);
        scene->facts.rpc.answer = lost ? RPC_UNKNOWN : RPC_FOLLOWING;
        if (watches[i].leads_once && at == 40 * S)
            scene->facts.rpc.answer = RPC_LEADING;
        scene->facts.rpc.incarnation = 3;
        scene->facts.rpc.observed_at = scene->facts.now;
        if (at < 30 * S || at >= 29 * S + watches[i].read_gap_ns)
            scene_read(scene, ROW_OURS, at, at);
        scene_decide(scene);
    }
}

static void test_phantom_watch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(watches) / sizeof(watches[0]); i++) {
        struct scene scene;

        watch_phantom(&scene, i);
        if ((scene.plan.rule == RULE_PHANTOM_LEADER) != watches[i].fires)
            fail_msg("%s: %s", watches[i].name, rule_name(scene.plan.rule));
    }
}

// A follower beside a dead predecessor's row answers UNIMPLEMENTED too: it renews nothing, so
// it is none.
static void test_standing_row_is_no_phantom(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    for (int64_t at = 0; at <= 100 * S; at += S) {
        scene.facts.rpc = (struct rpc_fact){RPC_FOLLOWING, 3, {0}, {SCENE_T0 + at}};
        scene_read_at(&scene, ROW_OURS, at, -200 * S);
        assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
        assert_int_not_equal(scene.plan.order.role, FENCE_ROLE_KILL);
    }
}

// An agent that is up before it has reached its metafence-run sees a row with its id, renewed:
// by a twin, for all that it knows. The first word names the incarnation; that it falls silent
// later takes nothing back.
static void test_no_leader_before_the_first_word(void **state)
{
    for (int by_pidfd = 0; by_pidfd < 2; by_pidfd++) {
        struct scene scene;

        (void)state;
        scene_init(&scene);
        scene.facts.methods.by_pidfd = by_pidfd;
        scene.facts.fence.known = false;
        scene_lead(&scene, 0, 4 * S);
        assert_int_equal(scene.plan.rule, RULE_LEADER);
        assert_int_equal(scene.plan.label, by_pidfd ? LABEL_LEADER : LABEL_UNKNOWN);
        assert_int_not_equal(scene.plan.order.role, FENCE_ROLE_KILL);
        scene.facts.fence.known = true;
        scene_lead(&scene, 5 * S, 6 * S);
        assert_int_equal(scene.plan.label, LABEL_LEADER);
        scene.facts.fence.known = false;
        scene_lead(&scene, 7 * S, 8 * S);
        assert_int_equal(scene.plan.label, LABEL_LEADER);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_no_leader_before_the_first_word),
    cmocka_unit_test(test_first_read_proves_nothing_after_a_jump),
    cmocka_unit_test(test_won_again),
    cmocka_unit_test(test_pause_is_no_proof),
    cmocka_unit_test(test_unarmed_agent_kills_nobody),
    cmocka_unit_test(test_agent_back_in_time),
    cmocka_unit_test(test_hold_does_not_stop_a_kill),
    cmocka_unit_test(test_not_alone),
    cmocka_unit_test(test_identity_of_an_old_read),
    cmocka_unit_test(test_leads_without_renewing),
    cmocka_unit_test(test_our_tag_goes_before_ages),
    cmocka_unit_test(test_twin_has_to_renew),
    cmocka_unit_test(test_missing_relation_is_no_row),
    cmocka_unit_test(test_dead_is_no_follower),
    cmocka_unit_test(test_standing_heartbeat_ends_the_watch),
    cmocka_unit_test(test_phantom_watch),
    cmocka_unit_test(test_standing_row_is_no_phantom),
    cmocka_unit_test(test_phantom_hold_wants_a_read_after_death),
    cmocka_unit_test(test_promotion_interrupted),
    cmocka_unit_test(test_no_incarnation_is_not_alive),
};

UNIT_MAIN(tests)
