// SPDX-License-Identifier: Apache-2.0
// What the world sees of metafence-run: the status through two lives and the gap between them,
// and that a new life inherits nothing of the old one's verdicts.
#include "tests/unit/unit.h"

#include <string.h>

#include "tests/unit/fence/shim_fixture.h"

static const struct fence_order leader_order = {.seq = 11,
                                                .incarnation = 1,
                                                .role = FENCE_ROLE_LEADER,
                                                .flags = FENCE_ORDER_ARMED,
                                                .row = FENCE_ROW_OURS,
                                                .read_ns = S(110),
                                                .heartbeat_age_ns = S(1),
                                                .deadline_ns = S(130),
                                                .system_id = 42,
                                                .timeline = 3,
                                                .term = 9};

// Started at 100 s, leads with a permit until 130 s, killed as superseded at 120 s, dead at 121
// s.
static struct shim_memory first_life(const struct shim_config *config)
{
    struct shim_memory memory = {0};
    struct fence_order kill = {.seq = 12,
                               .incarnation = 1,
                               .role = FENCE_ROLE_KILL,
                               .reason = FENCE_REASON_SUPERSEDED,
                               .flags = FENCE_ORDER_ARMED | FENCE_ORDER_SUPERSEDED,
                               .row = FENCE_ROW_OTHER,
                               .read_ns = S(120)};

    (void)fixture_turn(config, &memory, S(99), PORTS_NONE);
    shim_started(&memory, AT(S(100)), 4711, 99, TAG_OLDER);
    (void)fixture_turn(config, &memory, S(101), PORTS_FOLLOWER);
    fixture_order(config, &memory, leader_order, S(110));
    (void)fixture_turn(config, &memory, S(111), PORTS_NONE);
    fixture_order(config, &memory, kill, S(120));
    (void)fixture_turn(config, &memory, S(120), PORTS_LEADER);
    shim_reaped(config, &memory, AT(S(121)), 9);
    return memory;
}

static void test_living(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    struct fence_order follower = {.seq = 10, .incarnation = 1, .role = FENCE_ROLE_FOLLOWER};
    struct shim_plan plan = {0};

    (void)state;
    shim_started(&memory, AT(S(100)), 4711, 99, TAG_OLDER);
    assert_int_equal(memory.status.pid, 4711);
    assert_int_equal(memory.status.start_ticks, 99);
    assert_int_equal(memory.status.started_ns, S(100));
    assert_string_equal(memory.status.tag, TAG_OLDER);
    fixture_order(&config, &memory, follower, S(101));
    assert_int_equal(memory.status.permit, FENCE_ROLE_FOLLOWER);
    assert_int_equal(memory.status.order_seq, 10);
    fixture_order(&config, &memory, leader_order, S(110));
    assert_int_equal(memory.status.permit, FENCE_ROLE_LEADER);
    assert_int_equal(memory.status.order_seq, 11);
    plan = fixture_turn(&config, &memory, S(111), PORTS_LEADER);
    assert_int_equal(memory.status.ports, PORTS_LEADER);
    assert_int_equal(memory.status.state, SHIM_RUNNING);
    // The agent counts as lost 10 s after its last word, the deadline is later.
    assert_int_equal(plan.wake_at.ns, S(120));
    plan = fixture_turn(&config, &memory, S(120), PORTS_LEADER);
    assert_int_equal(plan.wake_at.ns, S(130));
    plan = fixture_turn(&config, &memory, S(130), PORTS_LEADER);
    assert_int_equal(memory.status.state, SHIM_KILLING);
}

static void test_pause_wakes(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    struct fence_order order = {.incarnation = 1, .pause_end_ns = S(105)};

    (void)state;
    shim_started(&memory, AT(S(100)), 4711, 99, TAG_OLDER);
    fixture_order(&config, &memory, order, S(101));
    assert_int_equal(fixture_turn(&config, &memory, S(102), PORTS_NONE).wake_at.ns, S(105));
}

static void test_between_lives(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = first_life(&config);
    const struct fence_death *death = &memory.status.last_death;
    struct shim_plan plan = {0};

    (void)state;
    assert_int_equal(memory.status.pid, 0);
    assert_int_equal(memory.status.start_ticks, 0);
    assert_int_equal(memory.status.deadline_ns, 0);
    assert_int_equal(memory.status.permit, FENCE_ROLE_KEEP);
    assert_int_equal(death->decided_ns, S(120));
    assert_int_equal(death->dead_ns, S(121));
    assert_int_equal(death->deadline_ns, S(130));
    assert_int_equal(death->reason, FENCE_REASON_SUPERSEDED);
    // No read is younger than the death: the wait is bounded from the death.
    plan = fixture_turn(&config, &memory, S(125), PORTS_NONE);
    assert_int_equal(memory.status.state, SHIM_HOLDING);
    assert_int_equal(memory.status.hold, SHIM_HOLD_IDENTITY);
    assert_int_equal(memory.status.hold_until_ns, S(121) + S(30));
    assert_int_equal(plan.hold, SHIM_HOLD_IDENTITY);
    plan = fixture_turn(&config, &memory, S(151), PORTS_NONE);
    assert_true(plan.start);
    assert_int_equal(memory.status.hold, SHIM_HOLD_NONE);
    assert_int_equal(memory.status.hold_until_ns, 0);
}

static void test_exit_clears_the_hold(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = first_life(&config);
    struct shim_facts facts = {.now = AT(S(126)), .term_requested = true};
    struct shim_plan plan = {0};

    (void)state;
    (void)fixture_turn(&config, &memory, S(125), PORTS_NONE);
    shim_decide(&config, &facts, &memory, &plan);
    assert_true(plan.exit);
    assert_int_equal(memory.status.hold, SHIM_HOLD_NONE);
    assert_int_equal(memory.status.hold_until_ns, 0);
}

// A boot without any agent waits from the first turn on, not from the beginning of time.
static void test_first_wait_begins_with_the_first_turn(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};

    (void)state;
    (void)fixture_turn(&config, &memory, S(5000), PORTS_NONE);
    assert_int_equal(fixture_turn(&config, &memory, S(5001), PORTS_NONE).hold_until.ns,
                     S(5030));
}

static void test_a_restored_wait_begins_with_the_restore(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    struct fence_status left = {.incarnation = 3, .kills = 2};

    (void)state;
    shim_restore(&memory, &left, true, AT(S(5000)));
    assert_int_equal(memory.status.kills, 2);
    assert_int_equal(fixture_turn(&config, &memory, S(5001), PORTS_NONE).hold_until.ns,
                     S(5030));
}

static void test_a_new_life_inherits_no_verdict(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = first_life(&config);
    struct shim_plan plan = {0};

    (void)state;
    (void)fixture_turn(&config, &memory, S(125), PORTS_NONE);
    shim_started(&memory, AT(S(151)), 4712, 100, TAG_OWN);
    assert_int_equal(memory.status.permit, FENCE_ROLE_KEEP);
    assert_int_equal(memory.status.hold, SHIM_HOLD_NONE);
    assert_int_equal(memory.status.hold_until_ns, 0);
    assert_int_equal(memory.status.deadline_ns, 0);
    assert_int_equal(memory.status.system_id, 0);
    assert_int_equal(memory.status.timeline, 0);
    assert_int_equal(memory.status.term, 0);
    // Not killed for the old order; its service port was never open, so a closed one says
    // nothing.
    plan = fixture_turn(&config, &memory, S(152), PORTS_NONE);
    assert_false(plan.kill);
    assert_int_equal(plan.reason, FENCE_REASON_NONE);
    assert_false(memory.status.flags & (SHIM_ENGAGED | SHIM_SUPERSEDED));
    // Nor does the old permit hold for it: its lease is its own, not older than itself.
    plan = fixture_turn(&config, &memory, S(153), PORTS_LEADER);
    assert_false(plan.kill);
    assert_int_equal(memory.status.deadline_ns, S(151) + LEASE_ROOM);
    plan = fixture_turn(&config, &memory, S(151) + LEASE_ROOM, PORTS_LEADER);
    assert_true(plan.kill);
    assert_int_equal(plan.reason, FENCE_REASON_AGENT_LOST);
    shim_reaped(&config, &memory, AT(S(180)), 9);
    assert_int_equal(memory.status.last_death.deadline_ns, S(151) + LEASE_ROOM);
    // The next wait is counted from this death, not from the one before.
    assert_int_equal(fixture_turn(&config, &memory, S(181), PORTS_NONE).hold_until.ns,
                     S(180) + S(31));
}

// An end by itself keeps the deadline that applied, and has no decision.
static void test_death_without_kill(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};

    (void)state;
    shim_started(&memory, AT(S(100)), 4711, 99, TAG_OLDER);
    fixture_order(&config, &memory, leader_order, S(110));
    (void)fixture_turn(&config, &memory, S(111), PORTS_LEADER);
    shim_reaped(&config, &memory, AT(S(112)), 0);
    assert_int_equal(memory.status.last_death.deadline_ns, S(130));
    assert_int_equal(memory.status.last_death.decided_ns, 0);
    assert_int_equal(memory.status.last_death.reason, FENCE_REASON_NONE);
    assert_int_equal(memory.status.fences, 0);
}

// What an earlier incarnation was granted after a lost agent came back ends with it.
static void test_grace_ends_with_the_incarnation(void **state)
{
    struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    struct shim_facts away = {.now = AT(S(130)), .ports = PORTS_LEADER};
    struct fence_order keep = {.incarnation = 1, .flags = FENCE_ORDER_ARMED};
    struct shim_plan plan = {0};

    (void)state;
    config.when_agent_lost = SHIM_AGENT_LOST_HOLD;
    config.agent_silence_ns = S(1000);
    shim_started(&memory, AT(S(100)), 4711, 99, TAG_OLDER);
    fixture_order(&config, &memory, leader_order, S(110));
    shim_decide(&config, &away, &memory, &plan);
    assert_true(memory.status.flags & SHIM_SILENCE_HELD);
    fixture_order(&config, &memory, keep, S(131));
    plan = fixture_turn(&config, &memory, S(132), PORTS_LEADER);
    assert_int_equal(memory.status.deadline_ns, S(1131));
    shim_reaped(&config, &memory, AT(S(133)), 0);
    shim_started(&memory, AT(S(134)), 4711, 99, TAG_OWN);
    plan = fixture_turn(&config, &memory, S(135), PORTS_LEADER);
    assert_int_equal(memory.status.deadline_ns, S(134) + LEASE_ROOM);
    assert_false(plan.kill);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_living),
    cmocka_unit_test(test_pause_wakes),
    cmocka_unit_test(test_between_lives),
    cmocka_unit_test(test_exit_clears_the_hold),
    cmocka_unit_test(test_first_wait_begins_with_the_first_turn),
    cmocka_unit_test(test_a_restored_wait_begins_with_the_restore),
    cmocka_unit_test(test_a_new_life_inherits_no_verdict),
    cmocka_unit_test(test_death_without_kill),
    cmocka_unit_test(test_grace_ends_with_the_incarnation),
};

UNIT_MAIN(tests)
