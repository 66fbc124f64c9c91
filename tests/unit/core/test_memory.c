// SPDX-License-Identifier: Apache-2.0
// Stories over several turns: heartbeats, clock jumps, restarts of meta and of the agent.
#include "tests/unit/core/scene.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static void next_incarnation(struct scene *scene, int64_t at_ns)
{
    struct fence_status *status = &scene->facts.fence.status;

    status->incarnation++;
    status->started_ns = SCENE_T0 + at_ns;
    status->flags = SHIM_ALIVE | SHIM_ARMED;
    status->state = SHIM_RUNNING;
    status->ports = SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE;
    status->engaged_ns = 0;
    status->permit = FENCE_ROLE_KEEP;
    status->deadline_ns = 0;
    (void)snprintf(status->tag, sizeof(status->tag), "metafence:aaaaaaaa:%016d",
                   (int)status->incarnation);
    scene_at(scene, at_ns);
}

#define assert_deadline(scene, beat)                                                           \
    assert_true((scene).plan.order.deadline_ns == scene_deadline(&(scene), beat))

static void test_only_an_advance_extends(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    assert_deadline(scene, 10 * S);
    scene_read_at(&scene, ROW_OURS, 12 * S, 10 * S); // no news
    assert_deadline(scene, 10 * S);
    // The database's clock fell back by 0.9 s: the same heartbeat looks younger.
    scene_at(&scene, 13 * S);
    scene_read(&scene, ROW_OURS, 13 * S, 10 * S);
    scene.facts.election.age_ns -= 900 * MS;
    scene.facts.election.db_now_us -= 900000;
    scene_decide(&scene);
    assert_deadline(scene, 10 * S);
    scene_read_at(&scene, ROW_OURS, 14 * S, 13 * S);
    assert_deadline(scene, 13 * S);
}

// The database's clock steps forward: others may win earlier, so the earlier bound counts.
static void test_row_gone_for_a_moment(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene_read_at(&scene, ROW_ABSENT, 11 * S, 0);
    assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
    assert_deadline(scene, 10 * S);                  // what was permitted stays so, and no more
    scene_read_at(&scene, ROW_OURS, 12 * S, 12 * S); // inserted again by ourselves
    assert_int_equal(scene.plan.rule, RULE_LEADER);
    assert_deadline(scene, 12 * S);
}

static void test_forward_step_shortens(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene_at(&scene, 11 * S);
    scene_read(&scene, ROW_OURS, 11 * S, 10 * S);
    scene.facts.election.age_ns += 5 * S;
    scene.facts.election.db_now_us += 5000000;
    scene_decide(&scene);
    assert_deadline(scene, 5 * S);
    assert_true(scene.memory.proof_void);
    assert_int_equal(scene.plan.rule, RULE_LEADER);
    // The next renewal is by the new clock and proves again.
    scene_at(&scene, 12 * S);
    scene_read(&scene, ROW_OURS, 12 * S, 17 * S);
    scene.facts.election.age_ns = 0;
    scene.facts.election.db_now_us = SCENE_DB_US + 17000000;
    scene_decide(&scene);
    assert_false(scene.memory.proof_void);
    assert_deadline(scene, 12 * S);
}

// The node was suspended between question and answer: what came back is no older than the
// question, and no reason to believe less than what was proven before.
static void test_answer_that_was_held_up(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene_at(&scene, 26 * S);
    scene_read(&scene, ROW_OURS, 11 * S, 10 * S); // asked at 11 s, read at 25 s
    scene.facts.election.received_at.ns = SCENE_T0 + 26 * S;
    scene.facts.election.age_ns = 15 * S;
    scene.facts.election.db_now_us = SCENE_DB_US + 25000000;
    scene_decide(&scene);
    assert_deadline(scene, 10 * S);
    assert_int_equal(scene.plan.rule, RULE_LEADER);
    // One that may be a moment late does shorten, and an advance that was held up extends.
    scene_read(&scene, ROW_OURS, 21 * S, 25 * S);
    scene.facts.election.received_at.ns = SCENE_T0 + 28 * S;
    scene.facts.election.age_ns = 2 * S;
    scene.facts.election.db_now_us = SCENE_DB_US + 27000000;
    scene_at(&scene, 28 * S);
    scene_decide(&scene);
    assert_deadline(scene, 19 * S);
}

// A step beyond the whole lease: anybody could win at this moment.
static void test_step_past_the_lease_kills(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene_at(&scene, 11 * S);
    scene_read(&scene, ROW_OURS, 11 * S, 10 * S);
    scene.facts.election.age_ns += 40 * S;
    scene.facts.election.db_now_us += 40000000;
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_LEASE_EXPIRED);
}

static void test_backward_heartbeat_voids(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene_read_at(&scene, ROW_OURS, 11 * S, 9 * S);
    assert_true(scene.memory.proof_void);
    assert_deadline(scene, 9 * S); // an earlier bound, no kill
    assert_int_equal(scene.plan.rule, RULE_LEADER);
    scene_read_at(&scene, ROW_OURS, 12 * S, 9 * S);
    assert_deadline(scene, 9 * S);
    scene_read_at(&scene, ROW_OURS, 13 * S, 12 * S);
    assert_false(scene.memory.proof_void);
    assert_deadline(scene, 12 * S);
}

// Answers of any latency below the time-outs are no clock jump, and lose nothing but their
// latency.
static void test_latency_is_no_jump(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    for (int64_t at = 11 * S; at < 60 * S; at += S) {
        int64_t late_ns = (at / S) % 4 * 900 * MS; // up to 2.7 s

        scene_at(&scene, at + late_ns);
        scene_read(&scene, ROW_OURS, at, at);
        // Measured by the database just before the answer left.
        scene.facts.election.age_ns = late_ns;
        scene.facts.election.db_now_us += late_ns / 1000;
        scene.facts.election.received_at.ns += late_ns;
        scene_decide(&scene);
        assert_false(scene.memory.proof_void);
        assert_int_equal(scene.plan.rule, RULE_LEADER);
        assert_deadline(scene, at - late_ns);
    }
}

// After a suspension nothing counts that was sent before it.
static void test_suspend_wants_a_fresh_read(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene_at(&scene, 20 * S);
    scene.facts.suspended_ns = 8 * S;
    scene_decide(&scene);
    scene.facts.suspended_ns = 0;
    assert_true(scene_has(&scene, ACTION_READ));
    scene_at(&scene, 21 * S);
    scene_read(&scene, ROW_OURS, 19 * S, 19 * S); // was under way
    scene_decide(&scene);
    assert_deadline(scene, 10 * S);
    assert_true(scene_has(&scene, ACTION_READ));
    scene_read_at(&scene, ROW_OURS, 22 * S, 21 * S); // the new base
    assert_deadline(scene, 10 * S);
    assert_false(scene_has(&scene, ACTION_READ));
    scene_read_at(&scene, ROW_OURS, 23 * S, 22 * S);
    assert_deadline(scene, 22 * S);
}

static void test_void_is_over_when_another_owns_the_row(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene_follow(&scene, 0, 10 * S);
    scene_at(&scene, 11 * S);
    scene.facts.suspended_ns = 8 * S;
    scene_decide(&scene);
    scene.facts.suspended_ns = 0;
    scene_at(&scene, 12 * S);
    scene_read(&scene, ROW_OTHER, 10500 * MS, 10 * S);
    scene_decide(&scene);
    assert_true(scene.memory.proof_void);
    scene_read_at(&scene, ROW_OTHER, 13 * S, 13 * S);
    assert_false(scene.memory.proof_void);
    scene_read_at(&scene, ROW_OURS, 14 * S, 14 * S); // won: the first read of it counts
    assert_deadline(scene, 14 * S);
}

// An older answer that arrives late changes nothing, nor does one from the future.
static void test_reads_out_of_order(void **state)
{
    static const int64_t sent[] = {9 * S, 12 * S};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct scene scene;

        scene_leader(&scene);
        scene_at(&scene, 11 * S);
        scene_read(&scene, ROW_OTHER, sent[i], 9 * S);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
        assert_int_equal(scene.plan.order.row, FENCE_ROW_UNKNOWN);
        assert_deadline(scene, 10 * S);
    }
}

// Killed, restarted in place, and its own old row is still there with a heartbeat long past
// ttl: it wins it back 100 ms after the start. Nothing of the dead one's lease counts against
// it.
static void test_rewins_own_expired_row(void **state)
{
    static const char *const tags[] = {SCENE_TAG, "", "psql"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct scene scene;

        scene_leader(&scene);
        scene_die(&scene, FENCE_REASON_LEASE_EXPIRED, 38 * S);
        scene_at(&scene, 70 * S);
        scene_decide(&scene);
        next_incarnation(&scene, 70 * S);
        scene_read(&scene, ROW_OURS, 70 * S + 1, 10 * S);
        (void)snprintf(scene.facts.election.heartbeat_tag, FENCE_TAG_SIZE, "%s", tags[i]);
        scene.facts.election.asked_tag[0] = '\0';
        scene_at(&scene, 70 * S + 50 * MS);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
        assert_int_equal(scene.plan.order.role, FENCE_ROLE_FOLLOWER);
        scene_engage(&scene, 70 * S + 100 * MS);
        scene_at(&scene, 70 * S + 100 * MS);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
        assert_int_equal(scene.plan.order.role, FENCE_ROLE_KEEP);
        assert_true(scene_has(&scene, ACTION_READ));
        scene_read_at(&scene, ROW_OURS, 70 * S + 200 * MS, 70 * S + 90 * MS);
        scene_read_at(&scene, ROW_OURS, 71 * S, 70 * S + 90 * MS);
        scene_read_at(&scene, ROW_OURS, 72 * S, 71 * S + 90 * MS);
        assert_int_equal(scene.plan.rule, RULE_PROMOTING);
        assert_deadline(scene, 71 * S + 90 * MS);
    }
}

// Restarted while Postgres is silent: what it wins, it wins after its start.
static void test_restart_in_silence(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene_follow(&scene, 0, 10 * S);
    scene_die(&scene, FENCE_REASON_NONE, 20 * S);
    next_incarnation(&scene, 50 * S);
    scene.facts.database.state = DATABASE_SILENT;
    scene_decide(&scene);
    scene_engage(&scene, 51 * S);
    scene_at(&scene, 60 * S);
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
    assert_true(scene.plan.wake_at.ns == SCENE_T0 + 77500 * MS);
    scene_at(&scene, 77500 * MS);
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_LEASE_EXPIRED);
}

static void test_latches_end_with_the_incarnation(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene_read_at(&scene, ROW_OTHER, 11 * S, 11 * S);
    assert_int_equal(scene.plan.rule, RULE_SUPERSEDED);
    scene_die(&scene, FENCE_REASON_SUPERSEDED, 11 * S);
    scene_at(&scene, 11 * S + 1);
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_KEEP);
    assert_int_equal(scene.plan.label, LABEL_UNKNOWN);
    next_incarnation(&scene, 12 * S);
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_FOLLOWER);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_FOLLOWER);
    assert_int_equal(scene.plan.order.flags, FENCE_ORDER_ARMED);
    assert_true(scene.plan.order.incarnation == 4);
}

// metafence-run has lost its state file and counts from 1 again: the number is the same, the
// process another.
static void test_same_number_other_tag(void **state)
{
    struct scene scene;
    uint64_t incarnation = 0;

    (void)state;
    scene_leader(&scene);
    incarnation = scene.facts.fence.status.incarnation;
    scene_read_at(&scene, ROW_OTHER, 11 * S, 11 * S);
    assert_int_equal(scene.plan.rule, RULE_SUPERSEDED);
    next_incarnation(&scene, 12 * S);
    scene.facts.fence.status.incarnation = incarnation;
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_FOLLOWER);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_FOLLOWER);
    assert_int_equal(scene.plan.order.flags, FENCE_ORDER_ARMED);
}

// A zombie that wins the row again (b14) stays what it is.
static void test_zombie_that_wins_again(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    scene_read_at(&scene, ROW_OTHER, 11 * S, 11 * S);
    scene_read_at(&scene, ROW_OURS, 12 * S, 12 * S);
    assert_int_equal(scene.plan.rule, RULE_SUPERSEDED);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_KILL);
}

// The agent restarts beside a leader: permit, arming and identity come from metafence-run.
static void test_agent_restart(void **state)
{
    struct scene scene;
    struct fence_status *status = &scene.facts.fence.status;

    (void)state;
    scene_leader(&scene);
    memset(&scene.memory, 0, sizeof(scene.memory));
    memset(&scene.facts.election, 0, sizeof(scene.facts.election));
    scene.facts.database.state = DATABASE_SILENT;
    status->flags |= SHIM_ARMED;
    status->permit = FENCE_ROLE_LEADER;
    status->deadline_ns = SCENE_T0 + 37 * S;
    status->system_id = 4242;
    status->timeline = 1;
    status->term = 7;
    scene_at(&scene, 12 * S);
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_UNKNOWN);
    assert_int_equal(scene.plan.order.role, FENCE_ROLE_LEADER);
    assert_true(scene.plan.order.deadline_ns == SCENE_T0 + 37 * S);
    assert_int_equal(scene.plan.not_covered, 0);
    scene_at(&scene, 37 * S);
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_LEASE_EXPIRED);
}

static void test_agent_restart_sees_other_database(void **state)
{
    struct scene scene;

    (void)state;
    scene_leader(&scene);
    memset(&scene.memory, 0, sizeof(scene.memory));
    scene.facts.fence.status.system_id = 4242;
    scene.facts.fence.status.term = 7;
    scene_at(&scene, 12 * S);
    scene_read(&scene, ROW_OURS, 12 * S, 12 * S);
    scene.facts.election.system_id = 99;
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_DATABASE_REPLACED);
}

// A permit of the agent before waited in the socket of a metafence-run that stood still: what
// the lease was first won on comes late, and still counts. A lower term of that time does not.
static void test_identity_that_comes_late(void **state)
{
    static const struct {
        uint64_t system_id;
        uint32_t timeline;
        uint64_t term;
        enum rule rule;
    } cases[] = {
        {4242, 1, 7, RULE_LEADER},
        {4242, 1, 6, RULE_LEADER},
        {0, 0, 0, RULE_LEADER},
        {99, 1, 7, RULE_DATABASE_REPLACED},
        {4242, 2, 7, RULE_DATABASE_REPLACED},
        {4242, 1, 8, RULE_DATABASE_REPLACED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;
        struct fence_status *status = &scene.facts.fence.status;

        scene_leader(&scene);
        assert_int_equal(scene.plan.rule, RULE_LEADER);
        status->system_id = cases[i].system_id;
        status->timeline = cases[i].timeline;
        status->term = cases[i].term;
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, cases[i].rule);
    }
}

// It does not lead yet: whatever it wins, it wins on what is there then.
static void test_identity_of_a_follower(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.facts.fence.status.timeline = 2;
    scene_follow(&scene, 0, 5 * S);
    scene_decide(&scene); // nothing new was read
    assert_int_equal(scene.plan.rule, RULE_FOLLOWER);
    assert_int_equal(scene.plan.order.timeline, 0);
}

// A deadline that only a pause made is no proof of anything.
static void test_agent_restart_in_pause(void **state)
{
    struct scene scene;
    struct fence_status *status = &scene.facts.fence.status;

    (void)state;
    scene_leader(&scene);
    memset(&scene.memory, 0, sizeof(scene.memory));
    status->permit = FENCE_ROLE_LEADER;
    status->pause_end_ns = SCENE_T0 + 1000 * S;
    status->deadline_ns = SCENE_T0 + 1000 * S;
    scene.facts.orders.pause_end.ns = status->pause_end_ns;
    scene_at(&scene, 12 * S);
    scene_read(&scene, ROW_OURS, 12 * S, 11 * S);
    scene_decide(&scene);
    assert_int_equal(scene.plan.rule, RULE_PAUSED);
    assert_deadline(scene, 11 * S);
}

static void test_agent_restart_in_hold(void **state)
{
    static const struct {
        enum shim_hold hold;
        enum rule rule;
        uint32_t flag;
    } cases[] = {
        {SHIM_HOLD_TWIN, RULE_TWIN_IDENTITY, FENCE_ORDER_TWIN_HOLD},
        {SHIM_HOLD_PHANTOM, RULE_PHANTOM_LEADER, FENCE_ORDER_PHANTOM_HOLD},
        {SHIM_HOLD_STORM, RULE_UNKNOWN, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;

        scene_init(&scene);
        scene_die(&scene, FENCE_REASON_TWIN_IDENTITY, 1 * S);
        scene.facts.fence.status.hold = cases[i].hold;
        scene_at(&scene, 2 * S);
        scene_decide(&scene);
        assert_int_equal(scene.plan.rule, cases[i].rule);
        assert_int_equal(scene.plan.order.flags, cases[i].flag);
    }
}

static void test_twin_hold_ends_with_other_or_no_row(void **state)
{
    static const enum row_state rows[] = {ROW_OTHER, ROW_ABSENT};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct scene scene;

        scene_leader(&scene);
        scene.facts.api = (struct api_fact){.known = true, .lists_other_uid = true};
        scene_read_at(&scene, ROW_OURS, 11 * S, 11 * S);
        assert_int_equal(scene.plan.order.role, FENCE_ROLE_KILL);
        scene_read_at(&scene, rows[i], 12 * S, 12 * S);
        assert_true(scene.memory.twin_held); // it lives still
        scene_die(&scene, FENCE_REASON_TWIN_IDENTITY, 12 * S);
        scene_decide(&scene);
        assert_false(scene.plan.order.flags & FENCE_ORDER_TWIN_HOLD);
    }
}

// Signs of leading other than ports.
static void test_engagement(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene_follow(&scene, 0, 10 * S);
    scene.facts.rpc = (struct rpc_fact){RPC_LEADING, 2, {SCENE_T0}, {SCENE_T0 + 11 * S}};
    scene_at(&scene, 12 * S);
    scene_decide(&scene);
    assert_false(scene.plan.order.flags & FENCE_ORDER_ENGAGED); // asked of a dead one
    scene.facts.rpc.incarnation = 3;
    scene_decide(&scene);
    assert_true(scene.plan.order.flags & FENCE_ORDER_ENGAGED);
    assert_true(scene.memory.engaged_at.ns == SCENE_T0 + 11 * S);
    scene_engage(&scene, 10500 * MS); // the earliest sign is the best bound
    scene_decide(&scene);
    assert_true(scene.memory.engaged_at.ns == SCENE_T0 + 10500 * MS);

    scene_init(&scene);
    scene_at(&scene, 1 * S);
    scene_read(&scene, ROW_OURS, 1 * S, 1 * S);
    (void)snprintf(scene.facts.election.owner_tag, FENCE_TAG_SIZE, "%s", SCENE_TAG);
    scene_decide(&scene);
    assert_true(scene.plan.order.flags & FENCE_ORDER_ENGAGED);

    scene_init(&scene);
    scene.facts.fence.status.flags |= SHIM_ENGAGED; // without a time: when we heard of it
    scene_at(&scene, 3 * S);
    scene_decide(&scene);
    assert_true(scene.memory.engaged_at.ns == SCENE_T0 + 3 * S);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_only_an_advance_extends),
    cmocka_unit_test(test_row_gone_for_a_moment),
    cmocka_unit_test(test_forward_step_shortens),
    cmocka_unit_test(test_answer_that_was_held_up),
    cmocka_unit_test(test_step_past_the_lease_kills),
    cmocka_unit_test(test_backward_heartbeat_voids),
    cmocka_unit_test(test_latency_is_no_jump),
    cmocka_unit_test(test_suspend_wants_a_fresh_read),
    cmocka_unit_test(test_void_is_over_when_another_owns_the_row),
    cmocka_unit_test(test_reads_out_of_order),
    cmocka_unit_test(test_rewins_own_expired_row),
    cmocka_unit_test(test_restart_in_silence),
    cmocka_unit_test(test_latches_end_with_the_incarnation),
    cmocka_unit_test(test_same_number_other_tag),
    cmocka_unit_test(test_zombie_that_wins_again),
    cmocka_unit_test(test_agent_restart),
    cmocka_unit_test(test_agent_restart_sees_other_database),
    cmocka_unit_test(test_identity_that_comes_late),
    cmocka_unit_test(test_identity_of_a_follower),
    cmocka_unit_test(test_agent_restart_in_pause),
    cmocka_unit_test(test_agent_restart_in_hold),
    cmocka_unit_test(test_twin_hold_ends_with_other_or_no_row),
    cmocka_unit_test(test_engagement),
};

UNIT_MAIN(tests)
