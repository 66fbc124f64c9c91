// SPDX-License-Identifier: Apache-2.0
// From one incarnation to the next: engagement, latches, counting, back-off, storm limit, exit
// status, what a new metafence-run takes over.
#include "tests/unit/unit.h"

#include <string.h>

#include "tests/unit/fence/shim_fixture.h"

#define EXITED(code)     ((code) << 8)
#define SIGNALED(number) (number)

static const struct {
    const char *name;
    uint32_t before;
    uint32_t after;
    bool engaged;
} engagements[] = {
    {"service stays open", PORTS_FOLLOWER, PORTS_FOLLOWER, false},
    {"service not yet open", PORTS_NONE, PORTS_NONE, false},
    {"service opens", PORTS_NONE, PORTS_FOLLOWER, false},
    {"service closes", PORTS_FOLLOWER, PORTS_NONE, true},
    {"metrics opens", PORTS_NONE, SHIM_PORTS_KNOWN | SHIM_PORT_METRICS, true},
    {"dashboard opens", PORTS_FOLLOWER, PORTS_FOLLOWER | SHIM_PORT_DASHBOARD, true},
    {"table unreadable after open", PORTS_FOLLOWER, 0, false},
    {"bits without KNOWN mean nothing", PORTS_FOLLOWER, SHIM_PORT_METRICS, false},
};

static void test_engagement(void **state)
{
    const struct shim_config config = fixture_config();

    (void)state;
    for (size_t i = 0; i < sizeof(engagements) / sizeof(engagements[0]); i++) {
        struct shim_memory memory = {0};

        shim_started(&memory, AT(S(100)), 1, 1, TAG_OWN);
        (void)fixture_turn(&config, &memory, S(101), engagements[i].before);
        (void)fixture_turn(&config, &memory, S(102), engagements[i].after);
        if (!!(memory.status.flags & SHIM_ENGAGED) != engagements[i].engaged)
            fail_msg("%s: engaged %d", engagements[i].name, !engagements[i].engaged);
        if (engagements[i].engaged)
            assert_int_equal(memory.status.engaged_ns, S(102));
        // Latched: nothing that the ports show later takes it back.
        (void)fixture_turn(&config, &memory, S(103), PORTS_FOLLOWER);
        assert_int_equal(!!(memory.status.flags & SHIM_ENGAGED), engagements[i].engaged);
    }
}

static void test_latches_reset_with_the_incarnation(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    struct fence_order order = {.incarnation = 1,
                                .flags = FENCE_ORDER_ARMED | FENCE_ORDER_ENGAGED |
                                         FENCE_ORDER_SUPERSEDED | FENCE_ORDER_MANUAL_HOLD,
                                .pause_end_ns = S(900),
                                .read_ns = S(109),
                                .system_id = 42,
                                .timeline = 3,
                                .term = 9,
                                .role = FENCE_ROLE_LEADER,
                                .row = FENCE_ROW_OURS,
                                .deadline_ns = S(120)};

    (void)state;
    shim_started(&memory, AT(S(100)), 10, 11, TAG_OWN);
    assert_int_equal(memory.status.restarts, 0);
    fixture_order(&config, &memory, order, S(110));
    assert_int_equal(memory.status.system_id, 42);
    assert_int_equal(memory.status.timeline, 3);
    assert_int_equal(memory.status.term, 9);
    // The identity is that of the first permit.
    order.system_id = 43;
    order.timeline = 4;
    order.term = 10;
    fixture_order(&config, &memory, order, S(111));
    assert_int_equal(memory.status.system_id, 42);
    assert_int_equal(memory.status.timeline, 3);
    assert_int_equal(memory.status.term, 9);
    assert_true(memory.status.flags & SHIM_SUPERSEDED);
    shim_reaped(&config, &memory, AT(S(112)), 9);
    assert_string_equal(memory.status.last_death.tag, TAG_OWN);
    assert_int_equal(memory.status.last_death.engaged, 1);
    assert_int_equal(memory.status.last_death.dead_ns, S(112));
    assert_int_equal(memory.status.last_death.wait_status, 9);
    shim_started(&memory, AT(S(113)), 12, 13, TAG_OLDER);
    assert_int_equal(memory.status.incarnation, 2);
    assert_int_equal(memory.status.restarts, 1);
    assert_int_equal(memory.status.flags, SHIM_ARMED | SHIM_MANUAL | SHIM_ALIVE);
    assert_int_equal(memory.status.pause_end_ns, S(900));
    assert_int_equal(memory.status.system_id, 0);
    assert_int_equal(memory.status.permit, FENCE_ROLE_KEEP);
    assert_int_equal(memory.status.deadline_ns, 0);
    assert_int_equal(memory.status.engaged_ns, 0);
}

// What a process that never led was permitted on says nothing of a lease that it wins later;
// for one that leads it stands.
static void test_a_follower_has_no_identity(void **state)
{
    const struct shim_config config = fixture_config();

    (void)state;
    for (int leads = 0; leads <= 1; leads++) {
        struct shim_memory memory = {0};
        struct fence_order order = {.incarnation = 1,
                                    .system_id = 42,
                                    .timeline = 3,
                                    .term = 9,
                                    .role = FENCE_ROLE_LEADER,
                                    .row = FENCE_ROW_OURS,
                                    .deadline_ns = S(120)};

        shim_started(&memory, AT(S(100)), 10, 11, TAG_OWN);
        order.flags = leads ? FENCE_ORDER_ENGAGED : 0;
        fixture_order(&config, &memory, order, S(110));
        order.role = FENCE_ROLE_FOLLOWER;
        order.row = FENCE_ROW_OTHER;
        fixture_order(&config, &memory, order, S(111));
        assert_int_equal(memory.status.system_id, leads ? 42 : 0);
        assert_int_equal(memory.status.timeline, leads ? 3 : 0);
        assert_int_equal(memory.status.term, leads ? 9 : 0);
    }
}

// A crash-looping agent costs one fence: the next incarnation runs unarmed until an agent is
// back.
static void test_one_fence_for_a_lost_agent(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    struct fence_order order = {.incarnation = 1,
                                .flags = FENCE_ORDER_ARMED,
                                .role = FENCE_ROLE_LEADER,
                                .row = FENCE_ROW_OURS,
                                .read_ns = S(110),
                                .deadline_ns = S(130)};
    struct shim_plan plan = {0};

    (void)state;
    shim_started(&memory, AT(S(100)), 10, 11, TAG_OWN);
    fixture_order(&config, &memory, order, S(110));
    plan = fixture_turn(&config, &memory, S(111), PORTS_LEADER);
    assert_false(plan.kill);
    plan = fixture_turn(&config, &memory, S(130), PORTS_LEADER);
    assert_true(plan.kill);
    assert_int_equal(plan.reason, FENCE_REASON_AGENT_LOST);
    shim_reaped(&config, &memory, AT(S(131)), 9);
    assert_false(memory.status.flags & SHIM_ARMED);
    assert_int_equal(memory.status.fences, 1);
    shim_started(&memory, AT(S(170)), 12, 13, TAG_OLDER);
    plan = fixture_turn(&config, &memory, S(171), PORTS_LEADER);
    plan = fixture_turn(&config, &memory, S(9999), PORTS_LEADER);
    assert_false(plan.kill);
    fixture_order(&config, &memory,
                  (struct fence_order){.incarnation = 2, .flags = FENCE_ORDER_ARMED}, S(10000));
    assert_true(memory.status.flags & SHIM_ARMED);
}

// A port that opens and closes between two looks was never seen: what is not seen to serve may
// lead.
static void test_never_seen_to_serve(void **state)
{
    const struct shim_config config = fixture_config();
    const struct fence_order order = {.incarnation = 1,
                                      .role = FENCE_ROLE_FOLLOWER,
                                      .flags = FENCE_ORDER_ARMED,
                                      .row = FENCE_ROW_ABSENT,
                                      .read_ns = S(109)};
    const struct {
        uint32_t before, ports;
        int64_t now_ns;
        bool killed;
    } cases[] = {
        {PORTS_NONE, PORTS_NONE, S(109) + LEASE_ROOM - 1, false},
        {PORTS_NONE, PORTS_NONE, S(109) + LEASE_ROOM, true},
        {0, 0, S(500), false},
        {PORTS_FOLLOWER, PORTS_FOLLOWER, S(500), false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shim_memory memory = {0};
        shim_started(&memory, AT(S(100)), 10, 11, TAG_OWN);
        fixture_order(&config, &memory, order, S(110));
        fixture_turn(&config, &memory, S(110), cases[i].before);
        assert_int_equal(fixture_turn(&config, &memory, cases[i].now_ns, cases[i].ports).kill,
                         cases[i].killed);
        assert_false(memory.status.flags & SHIM_ENGAGED);
    }
}

// The row still has our id, long expired: what the new incarnation wins is as young as itself.
static void test_a_lease_is_not_older_than_its_incarnation(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    const struct fence_order expired = {.incarnation = 1,
                                        .flags = FENCE_ORDER_ARMED,
                                        .row = FENCE_ROW_OURS,
                                        .read_ns = S(199),
                                        .heartbeat_age_ns = S(100)};

    (void)state;
    shim_started(&memory, AT(S(100)), 10, 11, TAG_OLDER);
    shim_reaped(&config, &memory, AT(S(150)), 0);
    fixture_order(&config, &memory, expired, S(199));
    shim_started(&memory, AT(S(200)), 12, 13, TAG_OWN);
    fixture_turn(&config, &memory, S(201), PORTS_FOLLOWER);
    assert_false(fixture_turn(&config, &memory, S(202), PORTS_LEADER).kill);
    assert_int_equal(memory.status.deadline_ns, S(200) + LEASE_ROOM);
}

static void test_term_is_forwarded_once_and_nothing_starts(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    struct shim_facts facts = {.now = AT(S(101)), .term_requested = true};
    struct shim_plan plan = {0};

    (void)state;
    shim_started(&memory, AT(S(100)), 10, 11, TAG_OWN);
    shim_decide(&config, &facts, &memory, &plan);
    assert_true(plan.forward_term);
    assert_false(plan.kill);
    assert_int_equal(memory.status.state, SHIM_TERMINATING);
    shim_decide(&config, &facts, &memory, &plan);
    assert_false(plan.forward_term);
    shim_reaped(&config, &memory, AT(S(102)), 0);
    facts.now = AT(S(500));
    shim_decide(&config, &facts, &memory, &plan);
    assert_true(plan.exit);
    assert_false(plan.start);
    assert_int_equal(plan.exit_status, 0);
    assert_int_equal(memory.status.state, SHIM_ENDED);
}

static void test_term_while_held_exits_zero(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    struct shim_facts facts = {.now = AT(S(103)), .term_requested = true};
    struct shim_plan plan = {0};

    (void)state;
    shim_started(&memory, AT(S(100)), 10, 11, TAG_OWN);
    fixture_order(&config, &memory,
                  (struct fence_order){
                      .incarnation = 1, .role = FENCE_ROLE_KILL, .reason = FENCE_REASON_MANUAL},
                  S(101));
    plan = fixture_turn(&config, &memory, S(101), PORTS_FOLLOWER);
    shim_reaped(&config, &memory, AT(S(102)), 9);
    shim_decide(&config, &facts, &memory, &plan);
    assert_true(plan.exit);
    assert_int_equal(plan.exit_status, 0);
}

// How one incarnation ends and what follows. It is started at 100 s and ends at dead_ns.
static const struct {
    const char *name;
    enum fence_reason killed; // ordered at the end; NONE: it ended by itself
    int wait_status;
    int64_t dead_ns;
    bool container;
    int exit_status;  // -1: started again in place
    int64_t start_ns; // earliest next start in place
    uint32_t kills;   // counted for the storm limit
} ends[] = {
    {"exit 0 at once", 0, EXITED(0), S(100), false, -1, S(101), 0},
    {"exit 0 after 3 s", 0, EXITED(0), S(103), false, -1, S(104), 0},
    {"exit 0 after 10 s - 1 ns", 0, EXITED(0), S(110) - 1, false, -1, S(111) - 1, 0},
    {"exit 0 after 10 s", 0, EXITED(0), S(110), false, -1, S(110), 0},
    {"abort after 1 s", 0, SIGNALED(6), S(101), false, -1, S(102), 0},
    {"code 134 after 1 s", 0, EXITED(134), S(101), false, -1, S(102), 0},
    {"code 134 after 60 s - 1 ns", 0, EXITED(134), S(160) - 1, false, -1, S(160) - 1, 0},
    {"code 134 after 60 s counts", 0, EXITED(134), S(160), false, -1, S(160), 1},
    {"abort after 60 s counts", 0, SIGNALED(6), S(160), false, -1, S(160), 1},
    {"code 1", 0, EXITED(1), S(150), false, 1, 0, 0},
    {"code 255", 0, EXITED(255), S(150), false, 255, 0, 0},
    {"code 133", 0, EXITED(133), S(150), false, 133, 0, 0},
    {"SEGV", 0, SIGNALED(11), S(150), false, 139, 0, 0},
    {"SEGV with core", 0, SIGNALED(11) | 0x80, S(150), false, 139, 0, 0},
    {"KILL by a stranger", 0, SIGNALED(9), S(150), false, 137, 0, 0},
    {"container: exit 0", 0, EXITED(0), S(150), true, 0, 0, 0},
    {"container: abort", 0, SIGNALED(6), S(101), true, 134, 0, 0},
    {"container: fenced", FENCE_REASON_SUPERSEDED, SIGNALED(9), S(150), true, 137, 0, 1},
    {"fenced", FENCE_REASON_SUPERSEDED, SIGNALED(9), S(150), false, -1, S(150), 1},
    {"fenced right after the start", FENCE_REASON_SUPERSEDED, SIGNALED(9), S(100), false, -1,
     S(101), 1},
    {"fenced while it exits with 3", FENCE_REASON_SUPERSEDED, EXITED(3), S(150), false, -1,
     S(150), 1},
    {"manual", FENCE_REASON_MANUAL, SIGNALED(9), S(150), false, -1, S(150), 0},
    {"handover", FENCE_REASON_HANDOVER, SIGNALED(9), S(150), false, -1, S(150), 0},
};

static struct shim_plan end_life(const struct shim_config *config, struct shim_memory *memory,
                                 enum fence_reason killed, int wait_status, int64_t dead_ns)
{
    struct fence_order order = {
        .incarnation = memory->status.incarnation, .row = FENCE_ROW_OTHER, .read_ns = dead_ns};

    if (killed != FENCE_REASON_NONE) {
        order.role = FENCE_ROLE_KILL;
        order.reason = killed;
        fixture_order(config, memory, order, dead_ns);
        assert_true(fixture_turn(config, memory, dead_ns, PORTS_FOLLOWER).kill);
    }
    shim_reaped(config, memory, AT(dead_ns), wait_status);
    // A read after the death: the identity is clear, only back-off and storm hold.
    fixture_order(config, memory,
                  (struct fence_order){.row = FENCE_ROW_OTHER, .read_ns = dead_ns + 1},
                  dead_ns + 1);
    return fixture_turn(config, memory, dead_ns + 1, PORTS_NONE);
}

static void test_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct shim_config config = fixture_config();
        struct shim_memory memory = {0};
        struct shim_plan plan = {0};
        int status = 0;

        if (ends[i].container)
            config.restart = SHIM_RESTART_CONTAINER;
        shim_started(&memory, AT(S(100)), 1, 1, TAG_OWN);
        plan = end_life(&config, &memory, ends[i].killed, ends[i].wait_status, ends[i].dead_ns);
        status = plan.exit ? plan.exit_status : -1;
        if (status != ends[i].exit_status || memory.status.kills != ends[i].kills)
            fail_msg("%s: exit %d, kills %u", ends[i].name, status, memory.status.kills);
        assert_int_equal(memory.status.last_death.reason, ends[i].killed);
        if (plan.exit)
            continue;
        if (ends[i].start_ns > ends[i].dead_ns + 1) {
            assert_int_equal(plan.hold, SHIM_HOLD_BACKOFF);
            assert_int_equal(plan.hold_until.ns, ends[i].start_ns);
            assert_int_equal(plan.wake_at.ns, ends[i].start_ns);
            assert_false(
                fixture_turn(&config, &memory, ends[i].start_ns - 1, PORTS_NONE).start);
            plan = fixture_turn(&config, &memory, ends[i].start_ns, PORTS_NONE);
        }
        if (!plan.start)
            fail_msg("%s: held for %s", ends[i].name, shim_hold_name(plan.hold));
    }
}

// While we were stopped, the agent has ordered a kill and then done it by itself.
static void test_a_kill_that_somebody_else_has_done(void **state)
{
    const struct shim_config config = fixture_config();
    const struct fence_order order = {
        .incarnation = 1, .role = FENCE_ROLE_KILL, .reason = FENCE_REASON_SUPERSEDED};

    (void)state;
    for (int number = 9; number <= 11; number += 2) {
        struct shim_memory memory = {0};
        bool is_kill = number == 9;

        shim_started(&memory, AT(S(100)), 10, 11, TAG_OWN);
        fixture_order(&config, &memory, order, S(110));
        shim_reaped(&config, &memory, AT(S(111)), SIGNALED(number));
        assert_int_equal(memory.status.fences, is_kill ? 1 : 0);
        assert_int_equal(memory.status.last_death.reason,
                         is_kill ? FENCE_REASON_SUPERSEDED : FENCE_REASON_NONE);
        assert_int_equal(memory.exit_pending, !is_kill); // a fence is followed by a restart
    }
}

static void test_backoff_grows_and_resets(void **state)
{
    static const int64_t delays_s[] = {1, 2, 4, 8, 10, 10};
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    int64_t now_ns = S(1000);

    (void)state;
    for (size_t i = 0; i < sizeof(delays_s) / sizeof(delays_s[0]); i++) {
        struct shim_plan plan = {0};
        shim_started(&memory, AT(now_ns), 1, 1, TAG_OWN);
        now_ns += S(9);
        plan = end_life(&config, &memory, FENCE_REASON_NONE, EXITED(0), now_ns);
        assert_int_equal(plan.hold_until.ns, now_ns + S(delays_s[i]));
        now_ns = plan.hold_until.ns;
    }
    shim_started(&memory, AT(now_ns), 1, 1, TAG_OWN);
    (void)end_life(&config, &memory, FENCE_REASON_NONE, EXITED(0), now_ns + S(10));
    shim_started(&memory, AT(now_ns + S(20)), 1, 1, TAG_OWN);
    assert_int_equal(
        end_life(&config, &memory, FENCE_REASON_NONE, EXITED(0), now_ns + S(22)).hold_until.ns,
        now_ns + S(23));
}

// Kills of one incarnation after the other, 20 s apart: after how many is the next start
// delayed, and for how long.
static void test_storm(void **state)
{
    static const int64_t delays_s[] = {0,   0,   0,   10,  20,  40,  80,  120, 120, 120,
                                       120, 120, 120, 120, 120, 120, 120, 120, 120, 120};
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    int64_t now_ns = S(1000);

    (void)state;
    for (size_t i = 0; i < sizeof(delays_s) / sizeof(delays_s[0]); i++) {
        struct shim_plan plan = {0};
        int64_t until_ns = now_ns + S(20) + S(delays_s[i]);

        shim_started(&memory, AT(now_ns), 1, 1, TAG_OWN);
        plan = end_life(&config, &memory, FENCE_REASON_SUPERSEDED, SIGNALED(9), now_ns + S(20));
        if (delays_s[i] == 0) {
            assert_true(plan.start);
        } else {
            assert_int_equal(plan.hold, SHIM_HOLD_STORM);
            assert_int_equal(plan.hold_until.ns, until_ns);
            assert_false(fixture_turn(&config, &memory, until_ns - 1, PORTS_NONE).start);
            assert_true(fixture_turn(&config, &memory, until_ns, PORTS_NONE).start);
        }
        now_ns = now_ns + S(20); // the delay is only judged here: kills come each 20 s
    }
    assert_int_equal(memory.status.kills, 20);
    assert_int_equal(memory.status.fences, 20);
}

static void test_storm_forgets_after_the_window(void **state)
{
    const struct shim_config config = fixture_config();

    (void)state;
    for (int64_t late = -1; late <= 0; late++) {
        struct shim_memory memory = {0};
        struct shim_plan plan = {0};
        int64_t last_ns = S(1000) + config.kill_window_ns + late;

        for (int64_t i = 0; i < 3; i++) {
            shim_started(&memory, AT(S(990)), 1, 1, TAG_OWN);
            plan = end_life(&config, &memory, FENCE_REASON_SUPERSEDED, SIGNALED(9), S(1000));
            assert_true(plan.start);
        }
        shim_started(&memory, AT(last_ns - S(20)), 1, 1, TAG_OWN);
        plan = end_life(&config, &memory, FENCE_REASON_SUPERSEDED, SIGNALED(9), last_ns);
        assert_int_equal(plan.start, late == 0);
    }
}

static void test_ten_manual_fences_are_no_storm(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};

    (void)state;
    for (int64_t i = 0; i < 10; i++) {
        shim_started(&memory, AT(S(100 + i * 2)), 1, 1, TAG_OWN);
        assert_true(
            end_life(&config, &memory, FENCE_REASON_MANUAL, SIGNALED(9), S(101 + i * 2)).start);
    }
    assert_int_equal(memory.status.kills, 0);
    assert_int_equal(memory.status.fences, 10);
}

static void test_a_kill_that_counts_not_during_term(void **state)
{
    const struct shim_config config = fixture_config();
    struct shim_memory memory = {0};
    struct shim_facts facts = {.now = AT(S(101)), .term_requested = true};
    struct shim_plan plan = {0};

    (void)state;
    shim_started(&memory, AT(S(100)), 1, 1, TAG_OWN);
    shim_decide(&config, &facts, &memory, &plan);
    plan = end_life(&config, &memory, FENCE_REASON_SUPERSEDED, SIGNALED(9), S(200));
    assert_true(plan.exit);
    assert_int_equal(plan.exit_status, 137);
    assert_int_equal(memory.status.kills, 0);
    assert_int_equal(memory.status.fences, 1);
}

// What an earlier metafence-run left, written at 500 s; the new one starts at 600 s.
struct left {
    const char *name;
    bool alive;
    bool other_boot;
    bool tree_is_dead;
    uint32_t flags;
    int64_t deadline_ns;
    uint64_t death; // incarnation of last_death afterwards; 0: no proof
    enum fence_reason reason;
    int64_t dead_ns;
    int64_t pause_end_ns;
};

static const struct left lefts[] = {
    {"down", false, false, true, SHIM_MANUAL | SHIM_ARMED, 0, 6, FENCE_REASON_AGENT_LOST,
     S(400), S(700)},
    {"down, another boot", false, true, true, SHIM_MANUAL, 0, 6, FENCE_REASON_AGENT_LOST,
     S(600), 0},
    {"alive then, dead now", true, false, true, SHIM_ARMED, 0, 7, FENCE_REASON_NONE, S(600),
     S(700)},
    {"alive then, leading within its deadline", true, false, true, SHIM_ENGAGED, S(600) + 1, 7,
     FENCE_REASON_NONE, S(600), S(700)},
    {"alive then, ended by others past its deadline", true, false, true, SHIM_ENGAGED, S(600),
     7, FENCE_REASON_LEASE_EXPIRED, S(600), S(700)},
    {"alive then, unproven", true, false, false, SHIM_ENGAGED, S(600), 0, FENCE_REASON_NONE, 0,
     S(700)},
    {"alive then, another boot", true, true, true, SHIM_ENGAGED, S(900), 7, FENCE_REASON_NONE,
     S(600), 0},
};

static void test_restore(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(lefts) / sizeof(lefts[0]); i++) {
        const struct left *row = &lefts[i];
        struct shim_memory memory = {.status = {.boot_id = "this"}};
        struct fence_status left = {.boot_id = "this",
                                    .incarnation = 7,
                                    .restarts = 6,
                                    .kills = 2,
                                    .fences = 5,
                                    .tag = TAG_OWN,
                                    .pause_end_ns = S(700),
                                    .flags = row->flags | (row->alive ? SHIM_ALIVE : 0),
                                    .deadline_ns = row->deadline_ns,
                                    .last_death = {.incarnation = 6,
                                                   .tag = TAG_OLDER,
                                                   .reason = FENCE_REASON_AGENT_LOST,
                                                   .dead_ns = S(400)}};

        if (row->other_boot)
            memcpy(left.boot_id, "that", sizeof("that"));
        shim_restore(&memory, &left, row->tree_is_dead, AT(S(600)));
        if (memory.status.last_death.incarnation != row->death ||
            memory.status.last_death.reason != row->reason ||
            memory.status.last_death.dead_ns != row->dead_ns ||
            memory.status.pause_end_ns != row->pause_end_ns)
            fail_msg("%s: death of %llu, %s, at %lld, pause %lld", row->name,
                     (unsigned long long)memory.status.last_death.incarnation,
                     fence_reason_name((enum fence_reason)memory.status.last_death.reason),
                     (long long)memory.status.last_death.dead_ns,
                     (long long)memory.status.pause_end_ns);
        // Latches of the incarnation and of the agent are gone, the operator's stay.
        assert_int_equal(memory.status.flags, row->flags & SHIM_MANUAL);
        assert_int_equal(memory.status.fences, 5);
        shim_started(&memory, AT(S(700)), 1, 1, TAG_OWN);
        assert_int_equal(memory.status.incarnation, 8);
        assert_int_equal(memory.status.restarts, 7);
    }
}

static void test_config(void **state)
{
    static const struct {
        const char *name;
        int64_t ttl, margin, budget;
        uint32_t max_kills;
        const char *message; // NULL: good
    } cases[] = {
        {"defaults", S(30), S(2), NS_PER_SEC / 2, 3, NULL},
        {"1 ns of room", S(30), S(20), S(10) - 1, 3, NULL},
        {"no room", S(30), S(20), S(10), 3,
         "--margin 20s + --kill-budget 10s must be less than --ttl 30s"},
        {"1 ns too much", S(30), S(20), S(10) + 1, 3, "must be less than --ttl 30s"},
        {"no margin", S(30), 0, 1, 3, NULL},
        {"negative margin", S(30), -1, 1, 3, "must be less than --ttl 30s"},
        {"overflow", S(30), INT64_MAX, INT64_MAX, 3, "must be less than --ttl 30s"},
        {"no ttl", 0, 0, 0, 3, "--ttl is 0s"},
        {"no budget", S(30), S(2), 0, 3, "--kill-budget is 0s"},
        {"most kills", S(30), S(2), 1, 10, NULL},
        {"too many kills", S(30), S(2), 1, 11, "--max-kills is 11: at most 10"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shim_config config = fixture_config();
        struct err err = {0};
        int result = 0;

        config.ttl_ns = cases[i].ttl;
        config.margin_ns = cases[i].margin;
        config.kill_budget_ns = cases[i].budget;
        config.max_kills = cases[i].max_kills;
        result = shim_config_check(&config, &err);
        if (!!cases[i].message != (result < 0))
            fail_msg("%s: %d %s", cases[i].name, result, err.msg);
        if (cases[i].message && !strstr(err.msg, cases[i].message))
            fail_msg("%s: message is \"%s\"", cases[i].name, err.msg);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_engagement),
    cmocka_unit_test(test_latches_reset_with_the_incarnation),
    cmocka_unit_test(test_a_follower_has_no_identity),
    cmocka_unit_test(test_one_fence_for_a_lost_agent),
    cmocka_unit_test(test_never_seen_to_serve),
    cmocka_unit_test(test_a_lease_is_not_older_than_its_incarnation),
    cmocka_unit_test(test_term_is_forwarded_once_and_nothing_starts),
    cmocka_unit_test(test_term_while_held_exits_zero),
    cmocka_unit_test(test_ends),
    cmocka_unit_test(test_a_kill_that_somebody_else_has_done),
    cmocka_unit_test(test_backoff_grows_and_resets),
    cmocka_unit_test(test_storm),
    cmocka_unit_test(test_storm_forgets_after_the_window),
    cmocka_unit_test(test_ten_manual_fences_are_no_storm),
    cmocka_unit_test(test_a_kill_that_counts_not_during_term),
    cmocka_unit_test(test_restore),
    cmocka_unit_test(test_config),
};

UNIT_MAIN(tests)
