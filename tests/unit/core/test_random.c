// SPDX-License-Identifier: Apache-2.0
// Properties that hold whatever the facts say, over random sequences of turns with fixed seeds.
// Facts are drawn from a few values each, so that they meet often; broken ones are among them.
#include "tests/unit/core/scene.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#define SEEDS 500
#define TURNS 120

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

static bool chance(uint64_t percent)
{
    return draw(100) < percent;
}

static const char *draw_tag(void)
{
    static const char *const tags[] = {SCENE_TAG, SCENE_DEAD, SCENE_FOREIGN, "", "psql"};

    return tags[draw(5)];
}

static void draw_tags(struct election_fact *election)
{
    if (chance(30))
        (void)snprintf(election->heartbeat_tag, FENCE_TAG_SIZE, "%s", draw_tag());
    if (chance(30))
        (void)snprintf(election->owner_tag, FENCE_TAG_SIZE, "%s", draw_tag());
    if (chance(20))
        (void)snprintf(election->asked_tag, FENCE_TAG_SIZE, "%s", draw_tag());
    election->tag_owned_term = chance(5);
    election->tag_superseded = election->tag_owned_term && chance(30);
    election->guard_enforcing = chance(50);
}

static void draw_read(struct scene *scene, int64_t at)
{
    static const enum row_state rows[] = {ROW_OURS,  ROW_OURS,   ROW_OURS,
                                          ROW_OTHER, ROW_ABSENT, ROW_BROKEN};
    struct election_fact *election = &scene->facts.election;
    int64_t sent = at - (int64_t)draw(3 * S);
    int64_t beat = sent - (int64_t)draw(chance(90) ? 2 * S : 40 * S);

    scene_read(scene, rows[draw(6)], sent, beat);
    election->received_at.ns = SCENE_T0 + at;
    election->members_known = chance(80);
    election->other_members = chance(90) ? 0 : 1;
    draw_tags(election);
    if (chance(3))
        election->sent_at.ns += 10 * S; // from the future
    if (chance(3))
        election->age_ns = chance(50) ? INT64_MIN : INT64_MAX;
    if (chance(3))
        election->heartbeat_us = (int64_t)draw(3) - 1;
    if (chance(3))
        election->db_now_us = chance(50) ? INT64_MAX : -1;
    if (chance(2))
        election->timeline = (uint32_t)draw(3);
    if (chance(2))
        election->system_id = draw(3);
    election->term_known = chance(90);
    if (chance(2))
        election->term = draw(9);
}

static void draw_status(struct scene *scene, int64_t at)
{
    struct fence_status *status = &scene->facts.fence.status;

    scene->facts.fence.known = chance(95);
    if (chance(8))
        scene_engage(scene, at);
    if (chance(4))
        scene_ports_up(scene);
    if (chance(1))
        scene_die(scene, (enum fence_reason)draw(FENCE_REASON_LAST + 1), at);
    if (!(status->flags & SHIM_ALIVE) && chance(20)) {
        status->incarnation++;
        status->started_ns = SCENE_T0 + at;
        status->flags = SHIM_ALIVE;
        status->engaged_ns = 0;
        status->ports = SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE;
    }
}

static void draw_rest(struct scene *scene, int64_t at)
{
    struct facts *facts = &scene->facts;

    facts->suspended_ns = chance(2) ? (int64_t)draw(3 * S) : 0;
    facts->database.state = (enum database_state)draw(5);
    facts->rpc = (struct rpc_fact){.answer = (enum rpc_answer)(chance(2) ? 1 : draw(4) & 2U),
                                   .incarnation = facts->fence.status.incarnation,
                                   .observed_at = {SCENE_T0 + at}};
    facts->api = (struct api_fact){
        .known = chance(50), .lists_our_uid = chance(80), .lists_other_uid = chance(2)};
    facts->orders.manual_fence = chance(1);
    facts->orders.handover = chance(2) ? facts->fence.status.incarnation : draw(2);
    facts->orders.pause_end.ns = chance(3) ? SCENE_T0 + at + 5 * S : 0;
    facts->cleanup.sessions_gone = draw(5);
    facts->cleanup.death_recorded = draw(5);
    facts->workers.diverged_incarnation = chance(5) ? facts->fence.status.incarnation : draw(2);
}

static bool is_lease_verdict(uint32_t reason)
{
    return reason == FENCE_REASON_LEASE_EXPIRED || reason == FENCE_REASON_DATABASE_REPLACED ||
           reason == FENCE_REASON_SUPERSEDED;
}

static void check_kill(const struct scene *scene)
{
    const struct fence_order *order = &scene->plan.order;
    const struct facts *facts = &scene->facts;

    if (order->role != FENCE_ROLE_KILL || order->reason == FENCE_REASON_MANUAL)
        return;
    assert_true(order->flags & FENCE_ORDER_ARMED);
    assert_true(facts->orders.pause_end.ns <= facts->now.ns);
    if (facts->fence.known)
        assert_true(facts->fence.status.flags & SHIM_ALIVE);
    if (is_lease_verdict(order->reason))
        assert_true(order->flags & FENCE_ORDER_ENGAGED);
    assert_int_equal(scene->plan.label, LABEL_UNKNOWN);
    assert_int_equal(order->deadline_ns, 0);
}

static void check_permit(const struct scene *scene, const struct election_fact *last_ours)
{
    const struct fence_order *order = &scene->plan.order;

    if (order->role != FENCE_ROLE_LEADER) {
        assert_int_equal(order->deadline_ns, 0);
        return;
    }
    assert_true(order->deadline_ns > scene->facts.now.ns);
    assert_true(last_ours->known);
    assert_true(order->deadline_ns <=
                lease_deadline(&scene->config, last_ours->sent_at, last_ours->age_ns).ns);
}

static void check_shape(const struct scene *scene)
{
    struct fence_order order = scene->plan.order;

    assert_true(scene->plan.rule < RULE_COUNT);
    assert_true(scene->plan.action_count <= PLAN_ACTIONS_MAX);
    assert_true(scene->plan.wake_at.ns > scene->facts.now.ns);
    assert_int_equal(scene_has(scene, ACTION_ORDER), scene->facts.fence.known);
    if (scene->facts.fence.known) {
        struct fence_order parsed;
        struct err err = {0};

        order.seq = 1;
        fence_order_seal(&order);
        if (fence_order_parse(&order, sizeof(order), &parsed, &err) < 0)
            fail_msg("metafence-run refuses the order: %s", err.msg);
    }
    if (scene->plan.label == LABEL_LEADER)
        assert_int_equal(scene->plan.order.role, FENCE_ROLE_LEADER);
}

// A silent database is no verdict: the same turn with an answering one kills and permits the
// same.
static void check_silence_is_no_verdict(const struct scene *before)
{
    static const enum database_state states[] = {DATABASE_UNKNOWN, DATABASE_SILENT,
                                                 DATABASE_STANDBY};
    struct scene answers = *before;

    answers.facts.database.state = DATABASE_ANSWERS;
    scene_decide(&answers);
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        struct scene other = *before;

        other.facts.database.state = states[i];
        scene_decide(&other);
        assert_int_equal(other.plan.order.role, answers.plan.order.role);
        assert_int_equal(other.plan.rule, answers.plan.rule);
    }
}

static void note_read(const struct scene *scene, struct election_fact *last_ours,
                      struct instant *newest)
{
    const struct election_fact *election = &scene->facts.election;

    if (!election->known || election->sent_at.ns > scene->facts.now.ns ||
        election->sent_at.ns <= newest->ns)
        return;
    *newest = election->sent_at;
    if (election->row == ROW_OURS && election->age_ns >= -scene->config.max_clock_jump_ns)
        *last_ours = *election;
}

static void play_seed(uint64_t seed, unsigned *fired)
{
    struct scene scene;
    struct election_fact last_ours = {0};
    struct instant newest = {0};
    int64_t at = 0;

    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    scene_init(&scene);
    scene.config.phantom_after_ns = 20 * S;
    scene.config.promote_after_ns = 30 * S;
    for (int turn = 0; turn < TURNS; turn++) {
        struct scene before;

        at += (int64_t)draw(chance(98) ? S : 40 * S) + 1;
        scene_at(&scene, at);
        draw_status(&scene, at);
        if (chance(80))
            draw_read(&scene, at);
        draw_rest(&scene, at);
        note_read(&scene, &last_ours, &newest);
        before = scene;
        scene_decide(&scene);
        fired[scene.plan.rule]++;
        check_shape(&scene);
        check_kill(&scene);
        check_permit(&scene, &last_ours);
        check_silence_is_no_verdict(&before);
    }
}

static void test_properties(void **state)
{
    unsigned fired[RULE_COUNT] = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        play_seed(seed, fired);
    for (int rule = 0; rule < RULE_COUNT; rule++)
        if (!fired[rule])
            fail_msg("%s never fired: the draw is too narrow", rule_name((enum rule)rule));
}

// 20 hours of a leader that renews each second, reads with any latency up to the time-outs, one
// read in ten lost, refusals and agent restarts in between: nobody is killed.
static void test_healthy_leader_lives(void **state)
{
    struct scene scene;
    int64_t at = 0;

    (void)state;
    random_state = 4711;
    scene_init(&scene);
    scene_lead(&scene, 0, 4 * S);
    scene_engage(&scene, 5 * S);
    scene_ports_up(&scene);
    scene.facts.fence.status.flags |= SHIM_ARMED;
    for (at = 5 * S; at < 20 * 3600 * S;) {
        int64_t late = (int64_t)draw(chance(90) ? 20 * MS : 4 * S);
        int64_t beat = (at + late) / S * S - (int64_t)draw(2 * S);

        scene_at(&scene, at + late + 1);
        if (chance(90)) {
            // The statement reached Postgres just before the answer left.
            scene_read(&scene, ROW_OURS, at, beat);
            scene.facts.election.age_ns = at + late - beat;
            scene.facts.election.db_now_us = SCENE_DB_US + (at + late) / 1000;
            scene.facts.election.received_at = scene.facts.now;
        }
        scene.facts.database.state = chance(90) ? DATABASE_ANSWERS : DATABASE_REFUSES;
        scene_decide(&scene);
        assert_int_equal(scene.plan.order.role, FENCE_ROLE_LEADER);
        scene.facts.fence.status.permit = FENCE_ROLE_LEADER;
        scene.facts.fence.status.deadline_ns = scene.plan.order.deadline_ns;
        if (chance(1))
            memset(&scene.memory, 0, sizeof(scene.memory));
        at += late + 250 * MS;
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_properties),
    cmocka_unit_test(test_healthy_leader_lives),
};

UNIT_MAIN(tests)
