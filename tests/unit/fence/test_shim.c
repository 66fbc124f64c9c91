// SPDX-License-Identifier: Apache-2.0
// The living incarnation: what is permitted, when it is killed, for what reason.
#include "tests/unit/unit.h"

#include <string.h>

#include "tests/unit/fence/shim_fixture.h"

static uint32_t reasons_seen; // bit per enum fence_reason that killed in some row

// One life: started at 100 s; the first order comes at 110 s; at engaged_s the process shows
// signs of leading; a second order (if any) comes at order2_s; the judgement is at now_ns.
struct life {
    const char *name;
    struct fence_order order; // incarnation 1 unless other_incarnation
    bool other_incarnation;
    bool no_order;
    int64_t engaged_s; // 0: never
    struct fence_order order2;
    int64_t order2_s; // 0: no second one
    bool agent_gone;  // at the judgement
    bool require_agent;
    bool hold_when_lost;
    bool term;
    int64_t now_ns;
    enum fence_reason killed; // NONE: lives
    int64_t deadline_ns; // as shown; 0: none. Of a killed one: since when it had to be dead
    bool held;           // SHIM_SILENCE_HELD
};

#define ARMED          FENCE_ORDER_ARMED
#define OTHER_AT(sec)  .row = FENCE_ROW_OTHER, .read_ns = S(sec)
#define LEADER_TO(ns)  .role = FENCE_ROLE_LEADER, .deadline_ns = (ns), .row = FENCE_ROW_OURS
#define KILL(why)      .role = FENCE_ROLE_KILL, .reason = FENCE_REASON_##why
#define FOLLOWER_ARMED .role = FENCE_ROLE_FOLLOWER, .flags = ARMED, OTHER_AT(109)
#define FOLLOWER_LIMIT (S(109) + LEASE_ROOM)
#define LEADER_ARMED   .flags = ARMED, .read_ns = S(110), LEADER_TO(S(130))

static const struct life lives[] = {
    {"a leader permit's deadline kills, 1 ns before",
     {LEADER_ARMED},
     .engaged_s = 111,
     .now_ns = S(130) - 1,
     .deadline_ns = S(130),
     .agent_gone = true},
    {"a leader permit's deadline kills, at it",
     {LEADER_ARMED},
     .engaged_s = 111,
     .now_ns = S(130),
     .killed = FENCE_REASON_AGENT_LOST,
     .deadline_ns = S(130),
     .agent_gone = true},
    {"a leader permit's deadline kills, 1 ns after",
     {LEADER_ARMED},
     .engaged_s = 111,
     .now_ns = S(130) + 1,
     .killed = FENCE_REASON_AGENT_LOST,
     .deadline_ns = S(130),
     .agent_gone = true},
    {"the agent still talks: the lease expired",
     {LEADER_ARMED},
     .engaged_s = 111,
     .order2 = {.flags = ARMED},
     .order2_s = 125,
     .now_ns = S(130),
     .killed = FENCE_REASON_LEASE_EXPIRED,
     .deadline_ns = S(130)},
    {"a connected agent silent for 10 s - 1 ns is there",
     {LEADER_ARMED},
     .engaged_s = 111,
     .order2 = {.flags = ARMED},
     .order2_s = 120,
     .now_ns = S(130) - 1,
     .deadline_ns = S(130)},
    {"a connected agent silent for 10 s is lost",
     {LEADER_ARMED},
     .engaged_s = 111,
     .order2 = {.flags = ARMED},
     .order2_s = 120,
     .now_ns = S(130),
     .killed = FENCE_REASON_AGENT_LOST,
     .deadline_ns = S(130)},
    {"a new leader permit extends",
     {LEADER_ARMED},
     .engaged_s = 111,
     .order2 = {.flags = ARMED, .read_ns = S(120), LEADER_TO(S(140))},
     .order2_s = 120,
     .now_ns = S(139),
     .deadline_ns = S(140),
     .agent_gone = true},
    {"a permit is never longer than a whole lease from now",
     {.flags = ARMED, .read_ns = S(110), LEADER_TO(INT64_MAX)},
     .engaged_s = 111,
     .now_ns = S(110) + LEASE_ROOM,
     .killed = FENCE_REASON_AGENT_LOST,
     .deadline_ns = S(110) + LEASE_ROOM},
    {"not engaged: a leader permit that ran out kills nobody",
     {LEADER_ARMED},
     .now_ns = S(500),
     .agent_gone = true},
    {"a follower is never killed for silence",
     {FOLLOWER_ARMED},
     .now_ns = S(100000),
     .agent_gone = true},
    {"engaged without leader permit, 1 ns before the local deadline",
     {FOLLOWER_ARMED},
     .engaged_s = 120,
     .now_ns = FOLLOWER_LIMIT - 1,
     .deadline_ns = FOLLOWER_LIMIT},
    {"engaged without leader permit, at the local deadline",
     {FOLLOWER_ARMED},
     .engaged_s = 120,
     .now_ns = FOLLOWER_LIMIT,
     .killed = FENCE_REASON_AGENT_LOST,
     .deadline_ns = FOLLOWER_LIMIT},
    {"our id, by somebody else: its own lease is younger than that read",
     {.role = FENCE_ROLE_FOLLOWER,
      .flags = ARMED,
      .row = FENCE_ROW_OURS,
      .read_ns = S(109),
      .heartbeat_age_ns = S(60)},
     .engaged_s = 120,
     .now_ns = FOLLOWER_LIMIT - 1,
     .deadline_ns = FOLLOWER_LIMIT},
    {"our id, by itself: its heartbeat counts",
     {.flags = ARMED, .row = FENCE_ROW_OURS, .read_ns = S(109), .heartbeat_age_ns = S(2)},
     .engaged_s = 110,
     .now_ns = FOLLOWER_LIMIT - S(2),
     .killed = FENCE_REASON_AGENT_LOST,
     .deadline_ns = FOLLOWER_LIMIT - S(2)},
    {"engaged later than the last read allows: at once",
     {FOLLOWER_ARMED},
     .engaged_s = 137,
     .now_ns = S(137),
     .killed = FENCE_REASON_AGENT_LOST,
     .deadline_ns = S(137)},
    {"no row in the read bounds the lease too",
     {.role = FENCE_ROLE_FOLLOWER, .flags = ARMED, .row = FENCE_ROW_ABSENT, .read_ns = S(108)},
     .engaged_s = 111,
     .now_ns = S(112),
     .deadline_ns = S(108) + LEASE_ROOM},
    {"our row in the read: its heartbeat bounds the lease",
     {.flags = ARMED, .row = FENCE_ROW_OURS, .read_ns = S(110), .heartbeat_age_ns = S(4)},
     .engaged_s = 111,
     .now_ns = S(112),
     .deadline_ns = S(106) + LEASE_ROOM},
    {"a heartbeat from the future bounds nothing later than its read",
     {.flags = ARMED, .row = FENCE_ROW_OURS, .read_ns = S(110), .heartbeat_age_ns = -S(4)},
     .engaged_s = 111,
     .now_ns = S(112),
     .deadline_ns = S(110) + LEASE_ROOM},
    {"armed without any read: a lease from the engagement",
     {.flags = ARMED},
     .engaged_s = 120,
     .now_ns = S(121),
     .deadline_ns = S(120) + LEASE_ROOM},
    {"a read that claims to be of the future counts as of now",
     {.role = FENCE_ROLE_FOLLOWER, .flags = ARMED, OTHER_AT(1000)},
     .engaged_s = 120,
     .now_ns = S(121),
     .deadline_ns = S(110) + LEASE_ROOM},
    {"a read after the engagement does not extend",
     {FOLLOWER_ARMED},
     .engaged_s = 112,
     .order2 = {.flags = ARMED, OTHER_AT(120)},
     .order2_s = 121,
     .now_ns = S(122),
     .deadline_ns = FOLLOWER_LIMIT},
    {"a late follower permit takes a leader's deadline from nobody",
     {LEADER_ARMED},
     .engaged_s = 111,
     .order2 = {.role = FENCE_ROLE_FOLLOWER, .flags = ARMED, OTHER_AT(120)},
     .order2_s = 121,
     .now_ns = S(122),
     .deadline_ns = S(130)},
    {"a follower permit ends a leader permit while not engaged",
     {LEADER_ARMED},
     .order2 = {.role = FENCE_ROLE_FOLLOWER, .flags = ARMED, OTHER_AT(120)},
     .order2_s = 121,
     .now_ns = S(300),
     .agent_gone = true},
    {"unarmed: no deadline",
     {.read_ns = S(110), LEADER_TO(S(130))},
     .engaged_s = 111,
     .now_ns = S(1000),
     .agent_gone = true},
    {"no agent at all: no deadline", .no_order = true, .engaged_s = 111, .now_ns = S(1000),
     .agent_gone = true},
    {"no agent at all, required: a lease from the engagement - 1 ns", .no_order = true,
     .engaged_s = 111, .require_agent = true, .now_ns = S(111) + LEASE_ROOM - 1,
     .deadline_ns = S(111) + LEASE_ROOM, .agent_gone = true},
    {"no agent at all, required: a lease from the engagement", .no_order = true,
     .engaged_s = 111, .require_agent = true, .now_ns = S(111) + LEASE_ROOM,
     .killed = FENCE_REASON_AGENT_LOST, .deadline_ns = S(111) + LEASE_ROOM, .agent_gone = true},
    {"armed stays armed although a new agent is not",
     {LEADER_ARMED},
     .engaged_s = 111,
     .order2 = {0},
     .order2_s = 129,
     .now_ns = S(130),
     .killed = FENCE_REASON_LEASE_EXPIRED,
     .deadline_ns = S(130)},
    {"held when the agent is lost",
     {LEADER_ARMED},
     .engaged_s = 111,
     .hold_when_lost = true,
     .agent_gone = true,
     .now_ns = S(130),
     .held = true},
    {"not held when the agent is there",
     {LEADER_ARMED},
     .engaged_s = 111,
     .hold_when_lost = true,
     .order2 = {.flags = ARMED},
     .order2_s = 129,
     .now_ns = S(130),
     .killed = FENCE_REASON_LEASE_EXPIRED,
     .deadline_ns = S(130)},
    {"an agent that comes back gets 10 s to permit again",
     {LEADER_ARMED},
     .engaged_s = 111,
     .hold_when_lost = true,
     .order2 = {.flags = ARMED},
     .order2_s = 150,
     .now_ns = S(160) - 1,
     .deadline_ns = S(160)},
    {"and is lost and held for again when it says nothing more",
     {LEADER_ARMED},
     .engaged_s = 111,
     .hold_when_lost = true,
     .order2 = {.flags = ARMED},
     .order2_s = 150,
     .now_ns = S(160),
     .held = true},
    {"a pause: no deadline kill before its end",
     {.flags = ARMED, .read_ns = S(110), LEADER_TO(S(130)), .pause_end_ns = S(200)},
     .engaged_s = 111,
     .now_ns = S(200) - 1,
     .deadline_ns = S(200),
     .agent_gone = true},
    {"a pause that ends with the deadline long past kills at once",
     {.flags = ARMED, .read_ns = S(110), LEADER_TO(S(130)), .pause_end_ns = S(200)},
     .engaged_s = 111,
     .now_ns = S(200),
     .killed = FENCE_REASON_AGENT_LOST,
     .deadline_ns = S(130),
     .agent_gone = true},
    {"a pause that ends before the deadline changes nothing",
     {.flags = ARMED, .read_ns = S(110), LEADER_TO(S(130)), .pause_end_ns = S(120)},
     .engaged_s = 111,
     .now_ns = S(129),
     .deadline_ns = S(130),
     .agent_gone = true},
    {"paused: an order to kill is not taken",
     {KILL(SUPERSEDED), .pause_end_ns = S(200)},
     .now_ns = S(150)},
    {"nor is it done when the pause ends, if nobody repeats it",
     {KILL(SUPERSEDED), .pause_end_ns = S(200)},
     .now_ns = S(201)},
    {
        "paused: a manual fence is done",
        {KILL(MANUAL), .pause_end_ns = S(200)},
        .now_ns = S(150),
        .killed = FENCE_REASON_MANUAL,
    },
    {"paused: latched superseded waits",
     {.flags = ARMED | FENCE_ORDER_ENGAGED | FENCE_ORDER_SUPERSEDED, .pause_end_ns = S(200)},
     .now_ns = S(200) - 1,
     .deadline_ns = S(200)},
    {"and is killed for it when the pause ends",
     {.flags = ARMED | FENCE_ORDER_ENGAGED | FENCE_ORDER_SUPERSEDED, .pause_end_ns = S(200)},
     .now_ns = S(200),
     .killed = FENCE_REASON_SUPERSEDED,
     .deadline_ns = S(110) + LEASE_ROOM},
    {"superseded, not engaged: a follower",
     {.flags = FENCE_ORDER_SUPERSEDED},
     .now_ns = S(120)},
    {"superseded, later engaged: killed without an agent",
     {.flags = FENCE_ORDER_SUPERSEDED},
     .engaged_s = 120,
     .now_ns = S(120),
     .killed = FENCE_REASON_SUPERSEDED,
     .agent_gone = true},
    {
        "order: superseded",
        {KILL(SUPERSEDED)},
        .now_ns = S(111),
        .killed = FENCE_REASON_SUPERSEDED,
    },
    {
        "order: twin",
        {KILL(TWIN_IDENTITY)},
        .now_ns = S(111),
        .killed = FENCE_REASON_TWIN_IDENTITY,
    },
    {
        "order: database replaced",
        {KILL(DATABASE_REPLACED)},
        .now_ns = S(111),
        .killed = FENCE_REASON_DATABASE_REPLACED,
    },
    {
        "order: phantom",
        {KILL(PHANTOM_LEADER)},
        .now_ns = S(111),
        .killed = FENCE_REASON_PHANTOM_LEADER,
    },
    {
        "order: diverged",
        {KILL(DIVERGED_LEADER)},
        .now_ns = S(111),
        .killed = FENCE_REASON_DIVERGED_LEADER,
    },
    {
        "order: handover",
        {KILL(HANDOVER)},
        .now_ns = S(111),
        .killed = FENCE_REASON_HANDOVER,
    },
    {
        "order: lease expired",
        {KILL(LEASE_EXPIRED)},
        .now_ns = S(111),
        .killed = FENCE_REASON_LEASE_EXPIRED,
    },
    {
        "a kill cannot be taken back",
        {KILL(SUPERSEDED)},
        .order2 = {FOLLOWER_ARMED},
        .order2_s = 111,
        .now_ns = S(112),
        .killed = FENCE_REASON_SUPERSEDED,
    },
    {"a kill for another incarnation kills nobody",
     {KILL(SUPERSEDED)},
     .other_incarnation = true,
     .now_ns = S(111)},
    {"a manual fence of another incarnation kills nobody",
     {KILL(MANUAL), .flags = FENCE_ORDER_MANUAL_HOLD},
     .other_incarnation = true,
     .now_ns = S(111)},
    {"engaged and superseded of another incarnation are not ours",
     {.flags = ARMED | FENCE_ORDER_ENGAGED | FENCE_ORDER_SUPERSEDED},
     .other_incarnation = true,
     .now_ns = S(111)},
    {"a leader permit for another incarnation permits nothing",
     {LEADER_ARMED},
     .other_incarnation = true,
     .engaged_s = 120,
     .now_ns = S(121),
     .deadline_ns = S(110) + LEASE_ROOM},
    {"armed and pause of another incarnation's order are taken",
     {.flags = ARMED, .pause_end_ns = S(300)},
     .other_incarnation = true,
     .engaged_s = 120,
     .now_ns = S(121),
     .deadline_ns = S(300)},
    {"TERM: a deadline still kills",
     {LEADER_ARMED},
     .engaged_s = 111,
     .term = true,
     .now_ns = S(130),
     .killed = FENCE_REASON_AGENT_LOST,
     .deadline_ns = S(130),
     .agent_gone = true},
};

static uint32_t ports_of(const struct life *life, int64_t now_ns)
{
    if (life->engaged_s != 0 && now_ns >= S(life->engaged_s))
        return PORTS_NONE;
    return PORTS_FOLLOWER;
}

static struct shim_plan turn_of(const struct life *life, const struct shim_config *config,
                                struct shim_memory *memory, int64_t now_ns)
{
    const struct shim_facts facts = {.now = {now_ns},
                                     .agent_connected = !life->agent_gone,
                                     .term_requested = life->term,
                                     .ports = ports_of(life, now_ns)};
    struct shim_plan plan = {0};

    shim_decide(config, &facts, memory, &plan);
    return plan;
}

static struct shim_plan live(const struct life *life, struct shim_memory *memory)
{
    struct shim_config config = fixture_config();
    struct fence_order order = life->order;
    struct fence_order order2 = life->order2;
    struct shim_plan plan = {0};

    config.require_agent = life->require_agent;
    config.when_agent_lost =
        life->hold_when_lost ? SHIM_AGENT_LOST_HOLD : SHIM_AGENT_LOST_FENCE;
    shim_started(memory, AT(S(100)), 4711, 99, TAG_OWN);
    plan = turn_of(life, &config, memory, S(101));
    order.incarnation = life->other_incarnation ? 7 : 1;
    order2.incarnation = 1;
    if (!life->no_order) {
        fixture_order(&config, memory, order, S(110));
        plan = turn_of(life, &config, memory, S(110));
    }
    if (life->engaged_s != 0)
        plan = turn_of(life, &config, memory, S(life->engaged_s));
    if (life->order2_s != 0) {
        // Without a turn in between: the agent of these rows was away.
        plan = turn_of(&(struct life){.engaged_s = life->engaged_s, .agent_gone = true},
                       &config, memory, S(life->order2_s) - 1);
        fixture_order(&config, memory, order2, S(life->order2_s));
        plan = turn_of(life, &config, memory, S(life->order2_s));
    }
    if (life->now_ns > S(life->engaged_s))
        plan = turn_of(life, &config, memory, life->now_ns);
    return plan;
}

static void test_lives(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
        const struct life *life = &lives[i];
        struct shim_memory memory = {0};
        struct shim_plan plan = live(life, &memory);
        bool held = memory.status.flags & SHIM_SILENCE_HELD;
        int64_t deadline_ns = plan.kill ? memory.kill_deadline_ns : memory.status.deadline_ns;

        if (plan.kill != (life->killed != FENCE_REASON_NONE) || plan.reason != life->killed ||
            deadline_ns != life->deadline_ns || held != life->held || plan.start)
            fail_msg("%s: kill %d for %s (want %s), deadline %lld (want %lld), held %d",
                     life->name, plan.kill, fence_reason_name(plan.reason),
                     fence_reason_name(life->killed), (long long)deadline_ns,
                     (long long)life->deadline_ns, held);
        if (plan.kill) {
            reasons_seen |= 1U << plan.reason;
            // Probes fail once the budget of the kill is used up, not before.
            assert_int_equal(memory.status.deadline_ns,
                             memory.kill_decided.ns + NS_PER_SEC / 2);
        }
        // Nobody has to guess when to look again.
        if (!plan.kill && memory.status.deadline_ns != 0)
            assert_true(plan.wake_at.ns <= memory.status.deadline_ns);
        assert_true(plan.wake_at.ns > life->now_ns);
    }
}

static void test_every_reason_fired(void **state)
{
    (void)state;
    for (uint32_t r = FENCE_REASON_MANUAL; r <= FENCE_REASON_LAST; r++)
        if (!(reasons_seen & (1U << r)))
            fail_msg("no row kills for %s", fence_reason_name((enum fence_reason)r));
}

// Orders that waited together are taken in one turn.
static void test_orders_of_one_turn(void **state)
{
    static const struct {
        enum fence_reason killed, when_paused, after;
    } rows[] = {
        {FENCE_REASON_SUPERSEDED, FENCE_REASON_NONE, FENCE_REASON_NONE},
        {FENCE_REASON_MANUAL, FENCE_REASON_MANUAL, FENCE_REASON_MANUAL},
    };
    const struct shim_config config = fixture_config();

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct shim_memory memory = {0};
        struct fence_order kill = {.incarnation = 1,
                                   .role = FENCE_ROLE_KILL,
                                   .reason = rows[i].killed,
                                   .flags = FENCE_ORDER_ARMED};
        struct fence_order permit = {.incarnation = 1,
                                     .role = FENCE_ROLE_LEADER,
                                     .deadline_ns = S(135),
                                     .flags = FENCE_ORDER_ARMED};
        struct fence_order pause = {.incarnation = 1, .pause_end_ns = S(120)};

        shim_started(&memory, AT(S(100)), 4711, 99, TAG_OWN);
        fixture_order(&config, &memory, kill, S(110));
        fixture_order(&config, &memory, permit, S(110));
        assert_int_equal(memory.kill_order, rows[i].killed); // a permit takes no kill back
        fixture_order(&config, &memory, pause, S(110));
        assert_int_equal(fixture_turn(&config, &memory, S(110), PORTS_FOLLOWER).reason,
                         rows[i].when_paused);
        assert_int_equal(fixture_turn(&config, &memory, S(121), PORTS_FOLLOWER).reason,
                         rows[i].after);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_lives),
    cmocka_unit_test(test_every_reason_fired),
    cmocka_unit_test(test_orders_of_one_turn),
};

UNIT_MAIN(tests)
