// SPDX-License-Identifier: Apache-2.0
// The one precondition of an Init: each condition taken away alone, each boundary at -1, 0, +1
// ns.
#include "tests/unit/unit.h"

#include <string.h>

#include "tests/unit/recovery/scene.h"

static enum order_block ask(const struct scene *scene)
{
    return order_may_reset(&scene->config, &scene->facts, &scene->memory, NODE_A);
}

static void expect(const char *name, enum order_block got, enum order_block want)
{
    if (got != want)
        fail_msg("%s: \"%s\", want \"%s\"", name, order_block_name(got),
                 order_block_name(want));
}

// --- beside a live leader ---

static void observe(struct order_facts *f)
{
    f->mode = ORDER_OBSERVE;
}
static void off(struct order_facts *f)
{
    f->mode = ORDER_OFF;
}
static void lost(struct order_facts *f)
{
    f->is_leader = false;
}
static void other_term(struct order_facts *f)
{
    f->term = 8;
}
static void zombie(struct order_facts *f)
{
    f->predecessor = ORDER_DEATH_NONE;
}
static void implied(struct order_facts *f)
{
    f->predecessor = ORDER_DEATH_IMPLIED;
}
static void no_marker(struct order_facts *f)
{
    f->marker.id = 0;
}
static void of_a_database(struct order_facts *f)
{
    f->marker.is_global = false;
}
static void other_marker(struct order_facts *f)
{
    f->marker.id = 6;
}
static void other_round(struct order_facts *f)
{
    f->marker.round = 1;
}
static void open_gate(struct order_facts *f)
{
    f->gate.is_open = true;
}
static void no_state(struct order_facts *f)
{
    f->gate.known = false;
}
static void starting(struct order_facts *f)
{
    f->status.value = 1;
}
static void running(struct order_facts *f)
{
    f->status.value = 3;
}
static void beyond(struct order_facts *f)
{
    f->status.value = 4; // of a version to come
}
static void no_status(struct order_facts *f)
{
    f->status.value = 0;
}
static void status_before(struct order_facts *f)
{
    f->status.sent_at.ns--; // the hold
}
static void running_before(struct order_facts *f)
{
    f->status.value = 3;
    f->status.sent_at.ns--;
}
static void not_refused(struct order_facts *f)
{
    f->gate.refused_at.ns = 0;
}

static void test_recovery(void **state)
{
    static const struct {
        const char *name;
        void (*change)(struct order_facts *facts);
        enum order_block block;
    } rows[] = {
        {"observe", observe, ORDER_NOT_ENFORCED},
        {"off", off, ORDER_NOT_ENFORCED},
        {"lost", lost, ORDER_NOT_LEADER},
        {"term of another", other_term, ORDER_NOT_LEADER},
        {"old leader lives", zombie, ORDER_PREDECESSOR_LIVES},
        {"old leader's deadline has passed", implied, ORDER_MAY},
        {"no marker", no_marker, ORDER_NO_HOLD},
        {"of one database", of_a_database, ORDER_NO_HOLD},
        {"another marker", other_marker, ORDER_NO_HOLD},
        {"another round", other_round, ORDER_NO_HOLD},
        {"open", open_gate, ORDER_GATE_OPEN},
        {"no state", no_state, ORDER_STATE_UNREAD},
        {"starting", starting, ORDER_MAY},
        {"running", running, ORDER_RUNNING},
        {"unknown status", beyond, ORDER_RUNNING},
        {"no status", no_status, ORDER_STATUS_UNREAD},
        {"status from before", status_before, ORDER_STATUS_UNREAD},
        {"running, from before", running_before, ORDER_STATUS_UNREAD},
        {"nothing refused", not_refused, ORDER_NOT_REFUSED},
    };
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    expect("before the first turn", ask(&scene), ORDER_NO_HOLD);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene_recovery(&scene);
        scene_decide(&scene);
        expect("all is well", ask(&scene), ORDER_MAY);
        rows[i].change(&scene.facts);
        expect(rows[i].name, ask(&scene), rows[i].block);
        // No plan says otherwise.
        memset(&scene.memory, 0, sizeof(scene.memory));
        scene_decide(&scene);
        if (rows[i].block != ORDER_MAY && rows[i].change != other_marker &&
            rows[i].change != other_round)
            scene_acts(&scene, 0, 0);
    }
}

static void test_open_stays_open(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene.facts.gate.is_open = true;
    scene_decide(&scene);
    scene.facts.gate.is_open = false; // a read that is late, or lies
    scene_turn(&scene, S);
    expect("same round", ask(&scene), ORDER_GATE_OPEN);
    scene.facts.marker.round = 1;
    scene_turn(&scene, S);
    expect("next round", ask(&scene), ORDER_MAY);
}

static void test_acknowledged(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene_decide(&scene);
    scene_init(&scene, 0, ORDER_CALL_DONE);
    scene_decide(&scene);
    expect("a", ask(&scene), ORDER_ACKNOWLEDGED);
    expect("b", order_may_reset(&scene.config, &scene.facts, &scene.memory, NODE_B), ORDER_MAY);
}

// Each clock alone, around the instant from which on it is too late, or first early enough.
static void test_recovery_boundaries(void **state)
{
    static const struct {
        const char *name;
        int which;
        int64_t at;
        enum order_block before, then;
    } rows[] = {
        // opened at 999 s + 60 s - 1 s
        {"max hold", 0, 1058 * S, ORDER_MAY, ORDER_HOLD_OVER},
        // our row of 1000 s - 1 ns + 10 s - 1 s
        {"our row's age", 1, 1009 * S - 1, ORDER_MAY, ORDER_HOLD_OVER},
        {"status' age", 2, 1001 * S + 1, ORDER_MAY, ORDER_STATUS_UNREAD},
        {"state's age", 3, 1001 * S + 1, ORDER_MAY, ORDER_STATE_UNREAD},
        {"refusal's age", 4, 1007 * S + 1, ORDER_MAY, ORDER_NOT_REFUSED},
    };
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int delta = -1; delta <= 1; delta++) {
            struct order_facts *facts = &scene.facts;

            scene_recovery(&scene);
            scene_decide(&scene);
            facts->now.ns = rows[i].at + delta;
            facts->status.sent_at = rows[i].which == 2 ? facts->status.sent_at : facts->now;
            facts->gate.sent_at = rows[i].which == 3 ? facts->gate.sent_at : facts->now;
            if (rows[i].which != 1)
                facts->gate.refreshed_at.ns = facts->gate.sent_at.ns - 1;
            if (rows[i].which != 4)
                facts->gate.refused_at = facts->now;
            expect(rows[i].name, ask(&scene), delta < 0 ? rows[i].before : rows[i].then);
        }
    }
}

// While our row was too old, the gate was open: what was read before it was renewed says
// nothing.
static void test_gap_in_our_row(void **state)
{
    struct scene scene;

    (void)state;
    for (int delta = -1; delta <= 1; delta++) {
        struct order_facts *facts = &scene.facts;

        scene_recovery(&scene);
        scene_decide(&scene);
        facts->now.ns = facts->gate.refreshed_at.ns + 9 * S + delta; // stale, less the margin
        facts->gate.refreshed_at = facts->now;
        facts->gate.sent_at = facts->now;
        facts->status.sent_at = facts->gate.refused_at = facts->now;
        expect("at once", ask(&scene), delta < 0 ? ORDER_MAY : ORDER_STATE_UNREAD);
        scene_decide(&scene);
        facts->gate.sent_at.ns++;
        expect("read since", ask(&scene), ORDER_MAY);
    }
}

static void test_policy_hold(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene.config.holds_on = true;
    scene_turn(&scene, 3600 * S);
    expect("an hour later", ask(&scene), ORDER_MAY);
    assert_false(scene.plan.bound_reached);
}

// --- while nobody leads ---

static void lives(struct order_facts *f)
{
    f->meta_runs = true;
}
static void not_dead(struct order_facts *f)
{
    f->death.kind = ORDER_DEATH_NONE;
}
static void dead_by_deadline(struct order_facts *f)
{
    f->death.kind = ORDER_DEATH_IMPLIED;
}
static void other_leads(struct order_facts *f)
{
    f->row.holder = ORDER_ROW_OTHER;
}
static void other_led_before(struct order_facts *f)
{
    f->row = (struct order_row){.holder = ORDER_ROW_OTHER, .sent_at = {998 * S}};
}
static void no_row(struct order_facts *f)
{
    f->row.holder = ORDER_ROW_ABSENT;
}
static void never_read(struct order_facts *f)
{
    f->row.holder = ORDER_ROW_UNKNOWN;
}
static void other_death(struct order_facts *f)
{
    f->death.incarnation = 4;
}

static void test_takeover(void **state)
{
    static const struct {
        const char *name;
        void (*change)(struct order_facts *facts);
        enum order_block block;
    } rows[] = {
        {"observe", observe, ORDER_NOT_ENFORCED},
        {"off", off, ORDER_NOT_ENFORCED},
        {"meta runs again", lives, ORDER_META_LIVES},
        {"not dead", not_dead, ORDER_NO_HOLD},
        {"its deadline has passed", dead_by_deadline, ORDER_MAY},
        {"another leads", other_leads, ORDER_ANOTHER_LEADS},
        {"another led before the death", other_led_before, ORDER_ANOTHER_LEADS},
        {"one before it lives", zombie, ORDER_PREDECESSOR_LIVES},
        {"no row", no_row, ORDER_NO_LEASE},
        {"row never read", never_read, ORDER_ROW_UNREAD},
        {"another has died", other_death, ORDER_NO_HOLD},
    };
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene_takeover(&scene);
        scene_decide(&scene);
        expect("all is well", ask(&scene), ORDER_MAY);
        scene_acts(&scene, 0, ORDER_SEND_INIT);
        assert_true(scene.plan.hold_start);
        rows[i].change(&scene.facts);
        expect(rows[i].name, ask(&scene), rows[i].block);
        scene_decide(&scene);
        assert_int_equal(scene.plan.stop,
                         order_must_stop(rows[i].block) || rows[i].change == other_death);
    }
}

static void test_takeover_boundaries(void **state)
{
    struct scene scene;

    (void)state;
    for (int delta = -1; delta <= 1; delta++) {
        scene_takeover(&scene); // the read's sending, around the death
        scene_decide(&scene);
        scene.facts.row.sent_at.ns = 999 * S + delta;
        expect("row", ask(&scene), delta <= 0 ? ORDER_ROW_UNREAD : ORDER_MAY);

        scene.facts.row.sent_at.ns = 1000 * S; // resetBeforeStart after the death
        scene.facts.now.ns = 1014 * S + delta;
        expect("hold", ask(&scene), delta < 0 ? ORDER_MAY : ORDER_HOLD_OVER);
        scene_decide(&scene);
        assert_int_equal(scene.plan.hold_start, delta < 0);
        assert_int_equal(scene.plan.bound_reached, delta >= 0);

        scene.facts.row.lease_end.ns = 1010 * S; // the lease
        scene.facts.now.ns = 1010 * S + delta;
        expect("lease", ask(&scene), delta < 0 ? ORDER_MAY : ORDER_HOLD_OVER);
        scene_decide(&scene);
        assert_int_equal(scene.plan.hold_start, delta < 0);
        if (delta < 0)
            assert_int_equal(scene.plan.wake_at.ns, 1010 * S);
    }
}

// --- deadlines ---

static void test_deadline_is_inside_the_hold(void **state)
{
    struct scene scene;

    (void)state;
    scene_recovery(&scene);
    scene_decide(&scene);
    assert_int_equal(scene.plan.nodes[0].init_deadline.ns, 1020 * S); // its own time-out
    for (int delta = -1; delta <= 1; delta++) {
        scene_recovery(&scene); // opened 60 s - 1 s - 20 s ago, about
        scene.facts.marker.opened_at.ns = 961 * S - delta;
        scene_decide(&scene);
        assert_int_equal(scene.plan.nodes[0].init_deadline.ns,
                         1020 * S - (delta > 0 ? delta : 0));
    }
    scene_takeover(&scene);
    scene_decide(&scene);
    assert_int_equal(scene.plan.nodes[0].init_deadline.ns, 1014 * S);
    scene_takeover(&scene);
    scene.facts.row.lease_end.ns = 1003 * S;
    scene_decide(&scene);
    assert_int_equal(scene.plan.nodes[0].init_deadline.ns, 1003 * S);
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < ORDER_BLOCKS; i++)
        assert_non_null(order_block_name((enum order_block)i));
    for (int i = 0; i < ORDER_WAITS; i++)
        assert_non_null(order_wait_name((enum order_wait)i));
    for (int i = 0; i < ORDER_STEPS; i++)
        assert_non_null(order_step_name((enum order_step)i));
    for (int i = 0; i < ORDER_EVIDENCES; i++)
        assert_non_null(order_evidence_name((enum order_evidence)i));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_recovery),
    cmocka_unit_test(test_open_stays_open),
    cmocka_unit_test(test_acknowledged),
    cmocka_unit_test(test_recovery_boundaries),
    cmocka_unit_test(test_gap_in_our_row),
    cmocka_unit_test(test_policy_hold),
    cmocka_unit_test(test_takeover),
    cmocka_unit_test(test_takeover_boundaries),
    cmocka_unit_test(test_deadline_is_inside_the_hold),
    cmocka_unit_test(test_names),
};

UNIT_MAIN(tests)
