// SPDX-License-Identifier: Apache-2.0
// From what Postgres, metafence-run and the election say to the facts of the order: whatever is
// missing, old or another's must not look like a permission.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "agent/reclaim/drops.h"
#include "agent/reclaim/known.h"

#define S        NS_PER_SEC
#define TAG      "metafence:aaaaaaaa:0000000000000001"
#define TAG_TWIN "metafence:bbbbbbbb:0000000000000002"

static void copy(char *to, size_t size, const char *text)
{
    (void)snprintf(to, size, "%s", text);
}

static struct known_state open_state(void)
{
    return (struct known_state){
        .is_known = true,
        .sent_at = {1000 * S},
        .received_at = {1000 * S + 1},
        .state = {.term = 7,
                  .owner_tag = TAG,
                  .mode = RECOVERY_ENFORCE,
                  .is_verified = true,
                  .id = 42,
                  .attempts = 1,
                  .attempt = 17,
                  .age_ms = 5000,
                  .is_hold_known = true,
                  .hold_left_ms = 58000,
                  .refused_ago_ms = -1,
                  .is_gate_fresh = true,
                  .is_catalog_known = true,
                  .live = 2,
                  .missing = 2,
                  .predecessor = RECOVERY_DEATHS_CONFIRMED},
    };
}

// --- mode ---

static void test_the_weaker_mode_counts(void **state)
{
    static const struct {
        const char *name;
        enum order_mode configured;
        enum recovery_mode schema;
        bool is_known, is_verified, is_pooled;
        enum order_mode want;
    } rows[] = {
        {"both enforce", ORDER_ENFORCE, RECOVERY_ENFORCE, true, true, false, ORDER_ENFORCE},
        {"agent observes", ORDER_OBSERVE, RECOVERY_ENFORCE, true, true, false, ORDER_OBSERVE},
        {"schema observes", ORDER_ENFORCE, RECOVERY_OBSERVE, true, true, false, ORDER_OBSERVE},
        {"schema is off", ORDER_ENFORCE, RECOVERY_OFF, true, true, false, ORDER_OFF},
        {"agent is off", ORDER_OFF, RECOVERY_ENFORCE, true, true, false, ORDER_OFF},
        {"not asked yet", ORDER_ENFORCE, RECOVERY_ENFORCE, false, true, false, ORDER_OFF},
        {"unverified", ORDER_ENFORCE, RECOVERY_ENFORCE, true, false, false, ORDER_OBSERVE},
        {"a pooler", ORDER_ENFORCE, RECOVERY_ENFORCE, true, true, true, ORDER_OBSERVE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct known_state known = open_state();

        known.is_known = rows[i].is_known;
        known.state.mode = rows[i].schema;
        known.state.is_verified = rows[i].is_verified;
        known.state.is_pooled = rows[i].is_pooled;
        if (known_mode(rows[i].configured, &known) != rows[i].want)
            fail_msg("%s", rows[i].name);
        if (known_is_weakened(rows[i].configured, &known) !=
            (rows[i].is_known && rows[i].configured == ORDER_ENFORCE &&
             rows[i].want != ORDER_ENFORCE))
            fail_msg("weakened: %s", rows[i].name);
    }
}

// --- the gate ---

static void test_gate(void **state)
{
    static const struct {
        const char *name;
        int64_t id, hold_left_ms;
        enum recovery_policy policy;
        uint32_t missing;
        bool is_hold_known, is_open;
    } rows[] = {
        {"held", 42, 1, RECOVERY_OPEN, 2, true, false},
        {"at maxHold", 42, 0, RECOVERY_OPEN, 2, true, true},
        {"at maxHold, policy hold", 42, 0, RECOVERY_HOLD, 2, true, false},
        {"nobody has told a maxHold", 42, 0, RECOVERY_OPEN, 2, false, false},
        {"all acknowledged", 42, 1000, RECOVERY_HOLD, 0, true, true},
        {"no recovery", 0, 0, RECOVERY_OPEN, 0, true, false},
    };
    const struct known_refusal none = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct known_state known = open_state();
        struct order_gate gate;

        known.state.id = rows[i].id;
        known.state.hold_left_ms = rows[i].hold_left_ms;
        known.state.is_hold_known = rows[i].is_hold_known;
        known.state.policy = rows[i].policy;
        known.state.missing = rows[i].missing;
        gate = known_gate(&known, &none, (struct instant){999 * S});
        if (gate.is_open != rows[i].is_open || !gate.known || gate.refused_at.ns != 0 ||
            gate.sent_at.ns != 1000 * S || gate.refreshed_at.ns != 999 * S)
            fail_msg("%s", rows[i].name);
    }
}

static void test_gate_without_a_catalog_is_not_known(void **state)
{
    struct known_state known = open_state();
    const struct known_refusal none = {0};

    (void)state;
    known.state.is_catalog_known = false;
    assert_false(known_gate(&known, &none, (struct instant){0}).known);
    known = (struct known_state){0};
    assert_false(known_gate(&known, &none, (struct instant){0}).known);
}

// maxHold counts from the first attempt, not from the marker's age.
static void test_marker(void **state)
{
    struct known_state known = open_state();
    struct order_marker marker = known_marker(&known, 60 * S);

    (void)state;
    assert_true(marker.id == 42 && marker.term == 7 && marker.is_global && marker.round == 0);
    assert_int_equal(marker.opened_at.ns, 998 * S);
    known.state.is_hold_known = false;
    assert_int_equal(known_marker(&known, 60 * S).opened_at.ns, 995 * S);
    known.state.id = 0;
    assert_int_equal(known_marker(&known, 60 * S).id, 0);
    known = open_state();
    known.is_known = false;
    assert_int_equal(known_marker(&known, 60 * S).id, 0);
}

static void expect_refusal(struct known_refusal *refusal, const struct known_state *known,
                           int64_t want_ns)
{
    known_refusal_update(refusal, known);
    assert_int_equal(refusal->at.ns, want_ns);
}

// Of this recovery and round alone: one from before a removal passed allows nothing.
static void test_refusals(void **state)
{
    struct known_state known = open_state();
    struct known_refusal refusal = {0};

    (void)state;
    known.state.refused_ago_ms = 3000; // of an earlier round, before we were there
    expect_refusal(&refusal, &known, 0);
    known.state.is_waiting = true;
    expect_refusal(&refusal, &known, 1000 * S);
    known.sent_at.ns = 1001 * S;
    known.state.is_waiting = false;
    known.state.is_refused = true;
    known.state.refused_ago_ms = 200;
    expect_refusal(&refusal, &known, 1001 * S - 200 * NS_PER_MS);
    known.state.is_refused = false; // the next attempt has begun: the same round
    expect_refusal(&refusal, &known, 1001 * S - 200 * NS_PER_MS);
    known.state.round = 1;
    expect_refusal(&refusal, &known, 0);
    known.state.is_waiting = true;
    expect_refusal(&refusal, &known, 1001 * S);
    known.state.id = 43;
    known.state.is_waiting = false;
    expect_refusal(&refusal, &known, 0);
}

static void test_predecessor(void **state)
{
    struct known_state known = open_state();

    (void)state;
    assert_int_equal(known_predecessor(&known, TAG), ORDER_DEATH_CONFIRMED);
    assert_int_equal(known_predecessor(&known, TAG_TWIN), ORDER_DEATH_NONE);
    assert_int_equal(known_predecessor(&known, ""), ORDER_DEATH_NONE);
    known.state.predecessor = RECOVERY_DEATHS_IMPLIED;
    assert_int_equal(known_predecessor(&known, TAG), ORDER_DEATH_IMPLIED);
    known.state.predecessor = RECOVERY_DEATHS_UNKNOWN;
    assert_int_equal(known_predecessor(&known, TAG), ORDER_DEATH_NONE);
    known = (struct known_state){0};
    assert_int_equal(known_predecessor(&known, TAG), ORDER_DEATH_NONE);
}

// --- our own meta ---

// Incarnation 5 led, is dead, and its successor waits.
static struct facts dead(void)
{
    struct facts facts = {
        .now = {1000 * S},
        .election = {.known = true,
                     .sent_at = {1000 * S},
                     .received_at = {1000 * S},
                     .row = ROW_OTHER, // the core compares the id by itself
                     .owner_id = "M1:5690",
                     .heartbeat_tag = TAG,
                     .age_ns = 2 * S},
        .fence = {.known = true,
                  .status = {.incarnation = 5,
                             .state = SHIM_HOLDING,
                             .last_death = {.incarnation = 5,
                                            .tag = TAG,
                                            .dead_ns = 999 * S,
                                            .engaged = 1}}},
    };

    return facts;
}

static void not_engaged(struct facts *f)
{
    f->fence.status.last_death.engaged = 0;
}
static void no_death(struct facts *f)
{
    f->fence.status.last_death.incarnation = 0;
}
static void of_an_older_one(struct facts *f)
{
    f->fence.status.incarnation = 6;
}
static void no_shim(struct facts *f)
{
    f->methods.by_pidfd = true;
}
static void silent(struct facts *f)
{
    f->fence.known = false;
}

static void test_death(void **state)
{
    static const struct {
        const char *name;
        void (*change)(struct facts *facts);
    } rows[] = {
        {"it did not lead", not_engaged},        {"none", no_death},
        {"its successor runs", of_an_older_one}, {"nothing holds a start", no_shim},
        {"metafence-run is not there", silent},
    };
    struct facts facts = dead();

    (void)state;
    assert_int_equal(known_death(&facts).kind, ORDER_DEATH_CONFIRMED);
    assert_int_equal(known_death(&facts).at.ns, 999 * S);
    assert_int_equal(known_death(&facts).incarnation, 5);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        facts = dead();
        rows[i].change(&facts);
        if (known_death(&facts).kind != ORDER_DEATH_NONE)
            fail_msg("%s", rows[i].name);
    }
}

static void test_meta_runs_unless_it_is_held(void **state)
{
    struct facts facts = dead();

    (void)state;
    assert_false(known_meta_runs(&facts, 0));
    assert_false(known_meta_runs(&facts, 4));
    assert_true(known_meta_runs(&facts, 5)); // it was allowed to start
    facts.fence.status.flags = SHIM_ALIVE;
    assert_true(known_meta_runs(&facts, 0));
    facts.fence.status.flags = 0;
    facts.fence.status.state = SHIM_RUNNING;
    assert_true(known_meta_runs(&facts, 0));
    facts = dead();
    facts.fence.known = false;
    assert_true(known_meta_runs(&facts, 0));
}

static void test_what_is_older_than_the_death(void **state)
{
    struct known_state known = open_state();
    struct order_facts facts = {.death = {.kind = ORDER_DEATH_CONFIRMED, .at = {1000 * S - 1}}};

    (void)state;
    assert_true(known_is_current(&known, &facts));
    facts.death.at.ns = 1000 * S;
    assert_false(known_is_current(&known, &facts));
    facts.meta_runs = true;
    assert_true(known_is_current(&known, &facts));
    facts.meta_runs = false;
    facts.death.kind = ORDER_DEATH_NONE;
    assert_true(known_is_current(&known, &facts));
}

static void other_id(struct facts *f)
{
    copy(f->election.owner_id, sizeof(f->election.owner_id), "m2:5690");
}
static void twin(struct facts *f)
{
    copy(f->election.heartbeat_tag, sizeof(f->election.heartbeat_tag), TAG_TWIN);
}
static void alive(struct facts *f)
{
    f->fence.status.last_death = (struct fence_death){0};
    copy(f->fence.status.tag, sizeof(f->fence.status.tag), TAG);
    f->fence.status.flags = SHIM_ALIVE;
}
static void untagged(struct facts *f)
{
    f->election.heartbeat_tag[0] = '\0';
}
static void absent(struct facts *f)
{
    f->election.row = ROW_ABSENT;
}
static void broken(struct facts *f)
{
    f->election.row = ROW_BROKEN;
}
static void unread(struct facts *f)
{
    f->election.known = false;
}
static void unchanged(struct facts *f)
{
    (void)f;
}
static void in_the_future(struct facts *f)
{
    f->election.age_ns = -S;
}

static void test_row(void **state)
{
    static const struct {
        const char *name;
        void (*change)(struct facts *facts);
        enum order_holder holder;
        int64_t lease_end_ns;
    } rows[] = {
        {"ours", unchanged, ORDER_ROW_OURS, 1026 * S},
        {"ours, by the living", alive, ORDER_ROW_OURS, 1026 * S},
        {"ours, ahead of the clock", in_the_future, ORDER_ROW_OURS, 1028 * S},
        {"ours, by whom is not known", untagged, ORDER_ROW_OURS, 1026 * S},
        {"our id, by another process", twin, ORDER_ROW_OTHER, 0},
        {"another id", other_id, ORDER_ROW_OTHER, 0},
        {"absent", absent, ORDER_ROW_ABSENT, 0},
        {"broken", broken, ORDER_ROW_UNKNOWN, 0},
        {"unread", unread, ORDER_ROW_UNKNOWN, 0},
    };
    const struct core_config config = {.id = "m1:5690", .ttl_ns = 30 * S, .margin_ns = 2 * S};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct facts facts = dead();
        struct order_row row;

        rows[i].change(&facts);
        row = known_row(&config, &facts);
        if (row.holder != rows[i].holder || row.lease_end.ns != rows[i].lease_end_ns)
            fail_msg("%s: holder %d, lease end %lld", rows[i].name, (int)row.holder,
                     (long long)row.lease_end.ns);
    }
}

struct led {
    struct facts facts;
    struct core_memory memory;
    struct plan plan;
};

static struct led leading(void)
{
    struct led led = {.memory = {.incarnation = 5, .deadline = {1020 * S}},
                      .plan = {.rule = RULE_LEADER}};

    led.facts = dead();
    led.facts.fence.status.state = SHIM_RUNNING;
    led.facts.fence.status.flags = SHIM_ALIVE;
    copy(led.facts.fence.status.tag, sizeof(led.facts.fence.status.tag), TAG);
    led.facts.election.term_known = true;
    copy(led.facts.election.owner_tag, sizeof(led.facts.election.owner_tag), TAG);
    return led;
}

static void rule_of_another(struct led *led)
{
    led->plan.rule = RULE_PROMOTING;
}
static void term_of_another(struct led *led)
{
    copy(led->facts.election.owner_tag, sizeof(led->facts.election.owner_tag), TAG_TWIN);
}
static void no_tag(struct led *led)
{
    led->facts.fence.status.tag[0] = led->facts.election.owner_tag[0] = '\0';
}
static void no_term(struct led *led)
{
    led->facts.election.term_known = false;
}
static void just_died(struct led *led)
{
    led->facts.fence.status.flags = 0;
}
static void just_restarted(struct led *led)
{
    led->facts.fence.status.incarnation = 6;
}
static void lease_over(struct led *led)
{
    led->memory.deadline.ns = 1000 * S;
}

static void test_leader(void **state)
{
    static const struct {
        const char *name;
        void (*change)(struct led *led);
    } rows[] = {
        {"another rule", rule_of_another},
        {"another's term", term_of_another},
        {"no tag", no_tag},
        {"no term", no_term},
        {"dead", just_died},
        {"another incarnation", just_restarted},
        {"at its deadline", lease_over},
    };
    struct led led = leading();
    const struct known_own own = {&led.facts, &led.memory, &led.plan};

    (void)state;
    assert_true(known_is_leader(&own, led.facts.now));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        led = leading();
        rows[i].change(&led);
        if (known_is_leader(&own, led.facts.now))
            fail_msg("%s", rows[i].name);
    }
}

// --- drops ---

static void add(struct drops *drops, enum recovery_kind kind, int64_t id, const char *tables)
{
    const struct recovery_row row = {
        .kind = kind, .id = id, .job_id = 11, .name = "mv", .tables = tables, .age_ms = 5};

    drops_add(drops, &row);
}

static uint64_t revision_of(int64_t first, int64_t second, const char *tables)
{
    struct drops drops = {0};
    uint64_t revision = 0;

    drops_clear(&drops);
    add(&drops, RECOVERY_DROPPED, first, tables);
    if (second)
        add(&drops, RECOVERY_DROPPED, second, "1003");
    revision = drops.revision;
    drops_clear(&drops);
    return revision;
}

static void test_drops(void **state)
{
    struct drops drops = {0};
    const struct recovery_state known = {.is_catalog_known = true, .dropped = 4};
    struct order_drops facts;

    (void)state;
    drops_clear(&drops);
    add(&drops, RECOVERY_WORKER, 1, NULL);
    add(&drops, RECOVERY_DROPPED, 112, "1002");
    add(&drops, RECOVERY_DROPPED, 111, "1001");
    add(&drops, RECOVERY_DROPPED, 112, "1003");
    drops_close(&drops);
    assert_int_equal(drops.fragment_count, 2);
    assert_true(drops.fragments[0] == 111 && drops.fragments[1] == 112);
    facts = drops_facts(&drops, &known);
    assert_true(facts.known && facts.is_complete && !facts.may_build);
    assert_true(facts.fragments == 2 && facts.creating == 0);
    add(&drops, RECOVERY_CREATING, 12, NULL);
    facts = drops_facts(&drops, &known);
    assert_true(facts.may_build && facts.creating == 1);
    assert_true(drops.dropped_shown_count == 3 && drops.creating_shown_count == 1);
    drops_clear(&drops);
    assert_int_equal(drops.fragment_count + drops.dropped_shown_count, 0);
}

static void test_drops_that_are_not_all_known(void **state)
{
    struct drops drops = {0};
    struct recovery_state known = {.is_catalog_known = true, .dropped = DROPS_COMPLETE};

    (void)state;
    assert_false(drops_facts(NULL, &known).known);
    assert_false(drops_facts(&drops, &known).is_complete);
    known.dropped--;
    assert_true(drops_facts(&drops, &known).is_complete);
    known.may_build = true;
    assert_true(drops_facts(&drops, &known).may_build);
    known.may_build = false;
    known.is_catalog_known = false;
    assert_true(drops_facts(&drops, &known).may_build);
}

static void test_another_drop_is_another_revision(void **state)
{
    uint64_t one = revision_of(111, 0, "1001");

    (void)state;
    assert_true(one == revision_of(111, 0, "1001"));
    assert_true(one != revision_of(112, 0, "1001"));
    assert_true(one != revision_of(111, 0, "1001 1002"));
    assert_true(one != revision_of(111, 112, "1001"));
}

static void test_many_drops_are_shown_in_part(void **state)
{
    struct drops drops = {0};

    (void)state;
    drops_clear(&drops);
    for (int i = 0; i < 1000; i++) {
        add(&drops, RECOVERY_DROPPED, 2000 - i, NULL);
        add(&drops, RECOVERY_CREATING, i, NULL);
    }
    drops_close(&drops);
    assert_true(drops.fragment_count == 1000 && drops.creating == 1000);
    assert_true(drops.fragments[0] == 1001 && drops.fragments[999] == 2000);
    assert_int_equal(drops.dropped_shown_count, DROPS_SHOWN_MAX);
    assert_int_equal(drops.creating_shown_count, DROPS_SHOWN_MAX);
    drops_clear(&drops);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_weaker_mode_counts),
    cmocka_unit_test(test_gate),
    cmocka_unit_test(test_gate_without_a_catalog_is_not_known),
    cmocka_unit_test(test_marker),
    cmocka_unit_test(test_refusals),
    cmocka_unit_test(test_predecessor),
    cmocka_unit_test(test_death),
    cmocka_unit_test(test_meta_runs_unless_it_is_held),
    cmocka_unit_test(test_what_is_older_than_the_death),
    cmocka_unit_test(test_row),
    cmocka_unit_test(test_leader),
    cmocka_unit_test(test_drops),
    cmocka_unit_test(test_drops_that_are_not_all_known),
    cmocka_unit_test(test_another_drop_is_another_revision),
    cmocka_unit_test(test_many_drops_are_shown_in_part),
};

UNIT_MAIN(tests)
