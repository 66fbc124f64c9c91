// SPDX-License-Identifier: Apache-2.0
// The start gate: each hold, its reason, its end to the nanosecond, and that it ends by itself.
#include "tests/unit/unit.h"

#include "fence/gate.h"
#include "tests/unit/fence/shim_fixture.h"

static uint32_t holds_seen; // bit per enum shim_hold

// Incarnation 5 (TAG_OWN) died at 1000 s for `reason`, and something waits since then;
// `fresh_boot`: nothing is known of an earlier one and the wait began at 1000 s. The last order
// came at order_s.
struct gap {
    const char *name;
    bool fresh_boot;
    enum fence_reason reason;
    bool require_agent;
    uint32_t latches; // SHIM_*
    bool no_order;
    uint32_t order_flags;
    enum fence_row row;
    int64_t read_ns;
    int64_t still_ns;
    const char *writer;
    enum fence_database database;
    int64_t order_s;
    int64_t backoff_ns, storm_ns;
    int64_t now_ns;
    enum shim_hold hold;
    int64_t until_ns; // exact end of this hold
};

#define DEAD S(1000)

static const struct gap gaps[] = {
    {"boot without agent waits ttl", true, .no_order = true, .now_ns = DEAD,
     .hold = SHIM_HOLD_IDENTITY, .until_ns = DEAD + S(30)},
    {"boot without agent, after ttl", true, .no_order = true, .now_ns = DEAD + S(30)},
    {"boot, agent that never read", true, .order_s = 1001, .now_ns = S(1001),
     .hold = SHIM_HOLD_IDENTITY, .until_ns = DEAD + S(30)},
    {"boot, another id leads", true, .row = FENCE_ROW_OTHER, .read_ns = S(999), .order_s = 1001,
     .now_ns = S(1001)},
    {"boot, nobody leads", true, .row = FENCE_ROW_ABSENT, .read_ns = S(999), .order_s = 1001,
     .now_ns = S(1001)},
    {"boot, our id, nobody proven dead", true, .row = FENCE_ROW_OURS, .read_ns = S(1001),
     .writer = TAG_OWN, .still_ns = S(3), .order_s = 1001, .now_ns = S(1001),
     .hold = SHIM_HOLD_IDENTITY, .until_ns = S(1031)},
    {"boot, our id, still for ttl - 1 ns", true, .row = FENCE_ROW_OURS, .read_ns = S(1040),
     .still_ns = S(30) - 1, .order_s = 1040, .now_ns = S(1040), .hold = SHIM_HOLD_IDENTITY,
     .until_ns = S(1070)},
    {"boot, our id, still for ttl", true, .row = FENCE_ROW_OURS, .read_ns = S(1040),
     .still_ns = S(30), .order_s = 1040, .now_ns = S(1040)},
    {"boot, a twin renews: held beyond ttl while it is seen", true, .row = FENCE_ROW_OURS,
     .read_ns = S(5000), .writer = TAG_TWIN, .order_s = 5000, .now_ns = S(5000),
     .hold = SHIM_HOLD_IDENTITY, .until_ns = S(5030)},
    {"boot, a twin was seen ttl ago, no read since", true, .row = FENCE_ROW_OURS,
     .read_ns = S(5000), .writer = TAG_TWIN, .order_s = 5029, .now_ns = S(5030)},
    {"our id, written by the dead one", .row = FENCE_ROW_OURS, .read_ns = DEAD + 1,
     .writer = TAG_OWN, .order_s = 1001, .now_ns = S(1001)},
    {"our id, read at the very death", .row = FENCE_ROW_OURS, .read_ns = DEAD,
     .writer = TAG_OWN, .order_s = 1001, .now_ns = S(1001), .hold = SHIM_HOLD_IDENTITY,
     .until_ns = DEAD + S(30)},
    {"another id, read before the death", .row = FENCE_ROW_OTHER, .read_ns = S(999),
     .order_s = 1001, .now_ns = S(1001), .hold = SHIM_HOLD_IDENTITY, .until_ns = DEAD + S(30)},
    {"another id, read after the death", .row = FENCE_ROW_OTHER, .read_ns = DEAD + 1,
     .order_s = 1001, .now_ns = S(1001)},
    {"our id, guard off, still for 2.5 s - 1 ns", .row = FENCE_ROW_OURS, .read_ns = S(1003),
     .still_ns = S(5) / 2 - 1, .order_s = 1003, .now_ns = S(1003), .hold = SHIM_HOLD_IDENTITY,
     .until_ns = S(1033)},
    {"our id, guard off, still for 2.5 s", .row = FENCE_ROW_OURS, .read_ns = S(1003),
     .still_ns = S(5) / 2, .order_s = 1003, .now_ns = S(1003)},
    {"our id, written by an older one of this pod, still for 2.5 s", .row = FENCE_ROW_OURS,
     .read_ns = S(1003), .writer = TAG_OLDER, .still_ns = S(5) / 2, .order_s = 1003,
     .now_ns = S(1003)},
    {"our id, written by an older one of this pod just now", .row = FENCE_ROW_OURS,
     .read_ns = S(1003), .writer = TAG_OLDER, .order_s = 1003, .now_ns = S(1003),
     .hold = SHIM_HOLD_IDENTITY, .until_ns = S(1033)},
    {"our id, written by a twin that pauses for 2.5 s", .row = FENCE_ROW_OURS,
     .read_ns = S(1003), .writer = TAG_TWIN, .still_ns = S(5) / 2, .order_s = 1003,
     .now_ns = S(1003), .hold = SHIM_HOLD_IDENTITY, .until_ns = S(1033)},
    {"manual", .latches = SHIM_MANUAL, .row = FENCE_ROW_OTHER, .read_ns = DEAD + 1,
     .order_s = 1001, .now_ns = S(99999), .hold = SHIM_HOLD_MANUAL, .until_ns = INT64_MAX},
    {"manual, no agent", .latches = SHIM_MANUAL, .no_order = true, .now_ns = S(1001),
     .hold = SHIM_HOLD_MANUAL, .until_ns = INT64_MAX},
    {"agent required", .require_agent = true, .row = FENCE_ROW_OTHER, .read_ns = DEAD + 1,
     .order_s = 1001, .now_ns = S(1001), .hold = SHIM_HOLD_AGENT_REQUIRED,
     .until_ns = DEAD + S(30)},
    {"agent required and armed", .require_agent = true, .latches = SHIM_ARMED,
     .row = FENCE_ROW_OTHER, .read_ns = DEAD + 1, .order_s = 1001, .now_ns = S(1001)},
    {"twin hold ends ttl after the last order", .order_flags = FENCE_ORDER_TWIN_HOLD,
     .row = FENCE_ROW_OTHER, .read_ns = DEAD + 1, .order_s = 2000, .now_ns = S(2001),
     .hold = SHIM_HOLD_TWIN, .until_ns = S(2030)},
    {"phantom hold ends ttl after the death", .reason = FENCE_REASON_PHANTOM_LEADER,
     .order_flags = FENCE_ORDER_PHANTOM_HOLD, .row = FENCE_ROW_ABSENT, .read_ns = DEAD + 1,
     .order_s = 1001, .now_ns = S(1001), .hold = SHIM_HOLD_PHANTOM, .until_ns = DEAD + S(30)},
    {"phantom hold of a new metafence-run", true, .order_flags = FENCE_ORDER_PHANTOM_HOLD,
     .row = FENCE_ROW_ABSENT, .read_ns = DEAD + 1, .order_s = 1001, .now_ns = S(1001),
     .hold = SHIM_HOLD_PHANTOM, .until_ns = DEAD + S(30)},
    {"resets go on", .order_flags = FENCE_ORDER_RESET_HOLD, .row = FENCE_ROW_OURS,
     .read_ns = DEAD + 1, .writer = TAG_OWN, .order_s = 1001, .now_ns = S(1001),
     .hold = SHIM_HOLD_RESET, .until_ns = S(1011)},
    {"resets go on, the agent is silent", .order_flags = FENCE_ORDER_RESET_HOLD,
     .row = FENCE_ROW_OURS, .read_ns = DEAD + 1, .writer = TAG_OWN, .order_s = 1001,
     .now_ns = S(1011)},
    {"resets end with the lease", .order_flags = FENCE_ORDER_RESET_HOLD, .row = FENCE_ROW_OURS,
     .read_ns = DEAD + 1, .writer = TAG_OWN, .order_s = 1029, .now_ns = S(1029),
     .hold = SHIM_HOLD_RESET, .until_ns = DEAD + S(30)},
    {"nobody of ours has died", true, .order_flags = FENCE_ORDER_RESET_HOLD,
     .row = FENCE_ROW_ABSENT, .read_ns = S(1001), .order_s = 1001, .now_ns = S(1001)},
    {"after LeaseExpired without a read", .reason = FENCE_REASON_LEASE_EXPIRED,
     .no_order = true, .now_ns = S(1001), .hold = SHIM_HOLD_LEASE, .until_ns = DEAD + S(31)},
    {"after AgentLost without a read", .reason = FENCE_REASON_AGENT_LOST, .row = FENCE_ROW_OURS,
     .read_ns = DEAD, .writer = TAG_OWN, .order_s = 1001, .now_ns = S(1001),
     .hold = SHIM_HOLD_LEASE, .until_ns = DEAD + S(31)},
    {"after AgentLost with a read", .reason = FENCE_REASON_AGENT_LOST, .row = FENCE_ROW_OURS,
     .read_ns = DEAD + 1, .writer = TAG_OWN, .order_s = 1001, .now_ns = S(1001)},
    {"after AgentLost with a broken read", .reason = FENCE_REASON_AGENT_LOST,
     .row = FENCE_ROW_UNKNOWN, .read_ns = DEAD + 1, .order_s = 1001, .now_ns = S(1001),
     .hold = SHIM_HOLD_LEASE, .until_ns = DEAD + S(31)},
    {"after Superseded: no lease to leave to others", .reason = FENCE_REASON_SUPERSEDED,
     .no_order = true, .now_ns = S(1001), .hold = SHIM_HOLD_IDENTITY, .until_ns = DEAD + S(30)},
    {"handed over, nobody else yet", .reason = FENCE_REASON_HANDOVER, .row = FENCE_ROW_OURS,
     .read_ns = DEAD + 1, .writer = TAG_OWN, .order_s = 1001, .now_ns = S(1001),
     .hold = SHIM_HOLD_HANDOVER, .until_ns = DEAD + S(60)},
    {"handed over, another led before", .reason = FENCE_REASON_HANDOVER, .row = FENCE_ROW_OTHER,
     .read_ns = DEAD, .order_s = 1031, .now_ns = S(1031), .hold = SHIM_HOLD_HANDOVER,
     .until_ns = DEAD + S(60)},
    {"handed over, another leads", .reason = FENCE_REASON_HANDOVER, .row = FENCE_ROW_OTHER,
     .read_ns = DEAD + 1, .order_s = 1001, .now_ns = S(1001)},
    {"handed over, without an agent", .reason = FENCE_REASON_HANDOVER, .no_order = true,
     .now_ns = S(1031), .hold = SHIM_HOLD_HANDOVER, .until_ns = DEAD + S(60)},
    {"database down", .row = FENCE_ROW_OTHER, .read_ns = S(999),
     .database = FENCE_DATABASE_DOWN, .order_s = 1001, .now_ns = S(1001),
     .hold = SHIM_HOLD_DATABASE, .until_ns = DEAD + S(60)},
    {"database down, after the hold", true, .database = FENCE_DATABASE_DOWN, .order_s = 1059,
     .now_ns = S(1060)},
    {"database up again", .row = FENCE_ROW_OTHER, .read_ns = S(1002),
     .database = FENCE_DATABASE_UP, .order_s = 1002, .now_ns = S(1002)},
    {"storm", .row = FENCE_ROW_OTHER, .read_ns = DEAD + 1, .order_s = 1001, .storm_ns = S(1020),
     .backoff_ns = S(1001), .now_ns = S(1001), .hold = SHIM_HOLD_STORM, .until_ns = S(1020)},
    {"back-off", .row = FENCE_ROW_OTHER, .read_ns = DEAD + 1, .order_s = 1001,
     .backoff_ns = S(1004), .now_ns = S(1001), .hold = SHIM_HOLD_BACKOFF, .until_ns = S(1004)},
};

static struct shim_memory memory_of(const struct gap *gap, const struct shim_config *config)
{
    struct shim_memory memory = {0};
    struct fence_order order = {.flags = gap->order_flags,
                                .row = gap->row,
                                .read_ns = gap->read_ns,
                                .heartbeat_still_ns = gap->still_ns,
                                .database = gap->database};

    memory.status.flags = gap->latches;
    memory.hold_since = AT(DEAD);
    memory.backoff_until = AT(gap->backoff_ns);
    memory.storm_until = AT(gap->storm_ns);
    if (!gap->fresh_boot)
        memory.status.last_death = (struct fence_death){
            .incarnation = 5, .tag = TAG_OWN, .reason = gap->reason, .dead_ns = DEAD};
    if (gap->writer)
        for (size_t i = 0; gap->writer[i] && i < sizeof(order.heartbeat_tag) - 1; i++)
            order.heartbeat_tag[i] = gap->writer[i];
    if (!gap->no_order) {
        uint32_t latches = memory.status.flags;
        fixture_order(config, &memory, order, S(gap->order_s));
        memory.status.flags = latches; // MANUAL of the row, whatever the order says
    }
    return memory;
}

static void test_gaps(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++) {
        struct shim_config config = fixture_config();
        struct shim_memory memory = memory_of(&gaps[i], &config);
        struct instant until = {0};
        enum shim_hold hold = SHIM_HOLD_NONE;

        config.require_agent = gaps[i].require_agent;
        hold = gate_hold(&config, &memory, AT(gaps[i].now_ns), &until);
        holds_seen |= 1U << hold;
        if (hold != gaps[i].hold || (hold != SHIM_HOLD_NONE && until.ns != gaps[i].until_ns))
            fail_msg("%s: %s until %lld (want %s until %lld)", gaps[i].name,
                     shim_hold_name(hold), (long long)until.ns, shim_hold_name(gaps[i].hold),
                     (long long)gaps[i].until_ns);
    }
}

// Each bounded hold lasts to its end - 1 ns and is over at its end, whatever comes next.
static void test_ends_to_the_nanosecond(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++) {
        struct shim_config config = fixture_config();
        struct shim_memory memory = memory_of(&gaps[i], &config);
        struct instant end = AT(gaps[i].until_ns);
        struct instant until = {0};

        config.require_agent = gaps[i].require_agent;
        if (gaps[i].hold == SHIM_HOLD_NONE || gaps[i].hold == SHIM_HOLD_MANUAL)
            continue;
        if (gate_hold(&config, &memory, instant_add(end, -1), &until) != gaps[i].hold)
            fail_msg("%s: over before its end", gaps[i].name);
        if (gate_hold(&config, &memory, end, &until) == gaps[i].hold)
            fail_msg("%s: not over at its end", gaps[i].name);
        if (gate_hold(&config, &memory, instant_add(end, 1), &until) == gaps[i].hold)
            fail_msg("%s: not over after its end", gaps[i].name);
    }
}

// Nothing but Manual can keep meta down for longer than all bounds together, if nobody speaks
// any more.
static void test_all_holds_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++) {
        struct shim_config config = fixture_config();
        struct shim_memory memory = memory_of(&gaps[i], &config);
        struct instant now = AT(gaps[i].now_ns);
        struct instant last = instant_add(now, S(120));
        enum shim_hold hold = SHIM_HOLD_NONE;

        config.require_agent = gaps[i].require_agent;
        for (int step = 0; step < 20; step++) {
            struct instant until = {0};
            hold = gate_hold(&config, &memory, now, &until);
            if (hold == SHIM_HOLD_NONE || hold == SHIM_HOLD_MANUAL)
                break;
            assert_true(instant_before(now, until));
            now = until;
        }
        assert_int_equal(hold,
                         gaps[i].latches & SHIM_MANUAL ? SHIM_HOLD_MANUAL : SHIM_HOLD_NONE);
        assert_false(instant_before(last, now));
    }
}

static void test_every_hold_fired(void **state)
{
    (void)state;
    for (uint32_t h = SHIM_HOLD_NONE; h <= SHIM_HOLD_LAST; h++)
        if (!(holds_seen & (1U << h)))
            fail_msg("no row holds for %s", shim_hold_name((enum shim_hold)h));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_gaps),
    cmocka_unit_test(test_ends_to_the_nanosecond),
    cmocka_unit_test(test_all_holds_end),
    cmocka_unit_test(test_every_hold_fired),
};

UNIT_MAIN(tests)
