// SPDX-License-Identifier: Apache-2.0
// One row per rule and per way into it, then priorities. The past of a row is [0, 10 s], the
// moment that is judged 11 s.
#include "tests/unit/core/scene.h"
#include "tests/unit/unit.h"

#include <stdio.h>

enum past { PAST_NONE, PAST_LED, PAST_FOLLOWED };

struct story {
    const char *name;
    enum past past;
    int64_t engaged_at_ns; // 0: not engaged
    void (*then)(struct scene *);
    enum rule rule;
    enum fence_role role;
    enum fence_reason reason;
    enum role_label label;
    uint32_t flags;       // that the order must have
    uint32_t not_covered; // exactly
};

static unsigned fired[RULE_COUNT];

static void other_wins(struct scene *scene)
{
    scene_read(scene, ROW_OTHER, 11 * S, 11 * S);
}

static void row_is_gone(struct scene *scene)
{
    scene_read(scene, ROW_ABSENT, 11 * S, 0);
}

static void still_ours(struct scene *scene)
{
    scene_read(scene, ROW_OURS, 11 * S, 11 * S);
}

static void still_ours_ports_up(struct scene *scene)
{
    still_ours(scene);
    scene_ports_up(scene);
}

static void manual_fence(struct scene *scene)
{
    still_ours(scene);
    scene->facts.orders.manual_fence = true;
}

static void manual_fence_first_boot(struct scene *scene)
{
    scene->facts.fence.status.incarnation = 0;
    scene->facts.fence.status.flags = 0;
    scene->facts.orders.manual_fence = true;
}

static void diverged(struct scene *scene)
{
    scene->facts.workers.diverged_incarnation = scene->facts.fence.status.incarnation;
}

static void diverged_leader(struct scene *scene)
{
    still_ours_ports_up(scene);
    diverged(scene);
}

static void diverged_predecessor(struct scene *scene)
{
    still_ours_ports_up(scene);
    scene->facts.workers.diverged_incarnation = scene->facts.fence.status.incarnation - 1;
}

static void diverged_promoting(struct scene *scene)
{
    still_ours(scene);
    diverged(scene);
}

static void diverged_follower(struct scene *scene)
{
    other_wins(scene);
    diverged(scene);
}

static void diverged_unproven(struct scene *scene)
{
    scene_ports_up(scene);
    row_is_gone(scene);
    diverged(scene);
}

static void handover(struct scene *scene)
{
    scene->facts.orders.handover = scene->facts.fence.status.incarnation;
}

static void handover_leader(struct scene *scene)
{
    still_ours_ports_up(scene);
    handover(scene);
}

static void handover_of_the_dead(struct scene *scene)
{
    still_ours_ports_up(scene);
    scene->facts.orders.handover = scene->facts.fence.status.incarnation - 1;
}

static void handover_promoting(struct scene *scene)
{
    still_ours(scene);
    handover(scene);
}

static void handover_follower(struct scene *scene)
{
    other_wins(scene);
    handover(scene);
}

static void pause(struct scene *scene)
{
    scene->facts.orders.pause_end.ns = SCENE_T0 + 60 * S;
}

static void pause_leader(struct scene *scene)
{
    still_ours_ports_up(scene);
    pause(scene);
}

static void pause_superseded(struct scene *scene)
{
    other_wins(scene);
    pause(scene);
}

static void pause_expired(struct scene *scene)
{
    scene_at(scene, 40 * S);
    pause(scene);
}

static void other_database(struct scene *scene)
{
    still_ours(scene);
    scene->facts.election.system_id = 4243;
}

static void other_timeline(struct scene *scene)
{
    still_ours(scene);
    scene->facts.election.timeline = 2;
}

static void term_down(struct scene *scene)
{
    still_ours(scene);
    scene->facts.election.term = 6;
}

static void other_database_and_id(struct scene *scene)
{
    other_wins(scene);
    scene->facts.election.system_id = 4243;
}

static void identity_unknown(struct scene *scene)
{
    still_ours_ports_up(scene);
    scene->facts.election.system_id = 0;
    scene->facts.election.timeline = 0;
    scene->facts.election.term_known = false;
}

static void latched_superseded(struct scene *scene)
{
    still_ours(scene);
    scene->facts.fence.status.flags |= SHIM_SUPERSEDED;
}

static void tag_superseded(struct scene *scene)
{
    still_ours(scene);
    scene->facts.election.tag_owned_term = true;
    scene->facts.election.tag_superseded = true;
    // A zombie that won the row back: the term is still the one of the last rightful owner.
    (void)snprintf(scene->facts.election.term_owner_id, FACT_ID_SIZE, "%s", SCENE_OTHER);
    (void)snprintf(scene->facts.election.owner_tag, FENCE_TAG_SIZE, "%s", SCENE_FOREIGN);
}

static void tag_of_the_dead_superseded(struct scene *scene)
{
    tag_superseded(scene);
    (void)snprintf(scene->facts.election.asked_tag, FENCE_TAG_SIZE, "%s", SCENE_DEAD);
}

static void owner_tag_foreign(struct scene *scene)
{
    still_ours(scene);
    (void)snprintf(scene->facts.election.owner_tag, FENCE_TAG_SIZE, "%s", SCENE_FOREIGN);
}

static void newer_twin(struct scene *scene)
{
    owner_tag_foreign(scene);
    scene->facts.election.tag_owned_term = true;
    scene->facts.election.tag_superseded = true;
}

static void newer_twin_of_the_dead(struct scene *scene)
{
    owner_tag_foreign(scene);
    (void)snprintf(scene->facts.election.owner_tag, FENCE_TAG_SIZE, "%s", SCENE_DEAD);
    scene->facts.election.tag_owned_term = true;
}

static void twin_renews(struct scene *scene)
{
    owner_tag_foreign(scene);
    (void)snprintf(scene->facts.election.heartbeat_tag, FENCE_TAG_SIZE, "%s", SCENE_FOREIGN);
}

static void twin_renews_api_known(struct scene *scene)
{
    twin_renews(scene);
    scene->facts.api.known = true;
    scene->facts.api.lists_our_uid = true;
}

static void api_lists_other(struct scene *scene)
{
    still_ours(scene);
    scene->facts.api.known = true;
    scene->facts.api.lists_other_uid = true;
}

static void api_lists_other_row_other(struct scene *scene)
{
    other_wins(scene);
    scene->facts.api.known = true;
    scene->facts.api.lists_other_uid = true;
}

static void silence(struct scene *scene)
{
    scene_at(scene, 40 * S);
    scene->facts.database.state = DATABASE_SILENT;
}

static void silence_alone_too_short(struct scene *scene)
{
    silence(scene);
    scene->facts.api.known = true;
    scene->facts.api.lists_our_uid = true;
}

static void blind(struct scene *scene)
{
    silence(scene);
    scene->facts.database.state = DATABASE_REFUSES;
    scene->facts.election.guard_enforcing = true;
}

static void refused_without_guard(struct scene *scene)
{
    silence(scene);
    scene->facts.database.state = DATABASE_REFUSES;
}

static void unarmed_silence(struct scene *scene)
{
    scene->facts.database.state = DATABASE_SILENT;
    scene_at(scene, 4000 * S);
}

static void phantom(struct scene *scene)
{
    for (int64_t at = 11 * S; at <= 71 * S; at += S) {
        scene->facts.rpc = (struct rpc_fact){.answer = RPC_FOLLOWING,
                                             .incarnation = 3,
                                             .sent_at = {SCENE_T0 + at},
                                             .observed_at = {SCENE_T0 + at}};
        scene_lead(scene, at, at);
    }
}

static void slow_promotion(struct scene *scene)
{
    scene_lead(scene, 11 * S, 612 * S);
}

static void not_promoting_yet_unengaged(struct scene *scene)
{
    still_ours(scene);
    scene->facts.fence.status.ports = SHIM_PORTS_KNOWN;
}

static void broken(struct scene *scene)
{
    still_ours(scene);
    scene->facts.election.row = ROW_BROKEN;
    scene->facts.election.defect = ROW_DEFECT_HEARTBEAT_NULL;
}

static void broken_on_another_timeline(struct scene *scene)
{
    broken(scene);
    scene->facts.election.timeline = 2;
}

static void broken_in_an_older_term(struct scene *scene)
{
    broken(scene);
    scene->facts.election.term = 6;
}

static void no_fence(struct scene *scene)
{
    still_ours(scene);
    scene->facts.fence.known = false;
}

static void untagged(struct scene *scene)
{
    still_ours_ports_up(scene);
    scene->facts.election.term_known = false;
    scene->facts.election.heartbeat_tag[0] = '\0';
}

static void spelled_otherwise(struct scene *scene)
{
    still_ours_ports_up(scene);
    scene->facts.election.row = ROW_OTHER;
    (void)snprintf(scene->facts.election.owner_id, FACT_ID_SIZE, "META-0.Meta:5690");
}

static void contradiction(struct scene *scene)
{
    still_ours(scene);
    (void)snprintf(scene->facts.election.owner_id, FACT_ID_SIZE, SCENE_OTHER);
}

static void future_heartbeat(struct scene *scene)
{
    scene_read(scene, ROW_OURS, 11 * S, 12 * S + 1000);
    scene->facts.election.age_ns = -(1 * S) - 1;
}

static void nothing(struct scene *scene)
{
    (void)scene;
}

#define KILL(why)  .role = FENCE_ROLE_KILL, .reason = FENCE_REASON_##why, .label = LABEL_UNKNOWN
#define LEAD       .role = FENCE_ROLE_LEADER, .label = LABEL_LEADER
#define LEAD_QUIET .role = FENCE_ROLE_LEADER, .label = LABEL_UNKNOWN
#define FOLLOW     .role = FENCE_ROLE_FOLLOWER, .label = LABEL_FOLLOWER
#define KEEP       .role = FENCE_ROLE_KEEP, .label = LABEL_UNKNOWN

static void untagged_writers(struct scene *scene)
{
    still_ours_ports_up(scene);
    scene->facts.workers.untagged_writers = true;
}

static const struct story stories[] = {
    {"manual fence of a leader", PAST_LED, 5 * S, manual_fence, RULE_MANUAL_FENCE, KILL(MANUAL),
     .flags = FENCE_ORDER_MANUAL_HOLD | FENCE_ORDER_ARMED | FENCE_ORDER_ENGAGED},
    {"manual fence before any start", PAST_NONE, 0, manual_fence_first_boot, RULE_MANUAL_FENCE,
     KEEP, .flags = FENCE_ORDER_MANUAL_HOLD, .not_covered = NOT_COVERED_UNARMED},
    {"paused leader", PAST_LED, 5 * S, pause_leader, RULE_PAUSED, LEAD,
     .not_covered = NOT_COVERED_PAUSED},
    {"paused while superseded", PAST_LED, 5 * S, pause_superseded, RULE_PAUSED, KEEP,
     .flags = FENCE_ORDER_SUPERSEDED, .not_covered = NOT_COVERED_PAUSED},
    {"paused past the deadline", PAST_LED, 5 * S, pause_expired, RULE_PAUSED, KEEP,
     .not_covered = NOT_COVERED_PAUSED},
    {"other system identifier", PAST_LED, 5 * S, other_database, RULE_DATABASE_REPLACED,
     KILL(DATABASE_REPLACED)},
    {"other timeline", PAST_LED, 5 * S, other_timeline, RULE_DATABASE_REPLACED,
     KILL(DATABASE_REPLACED)},
    {"term went down", PAST_LED, 5 * S, term_down, RULE_DATABASE_REPLACED,
     KILL(DATABASE_REPLACED)},
    {"other timeline beside a broken row", PAST_LED, 5 * S, broken_on_another_timeline,
     RULE_DATABASE_REPLACED, KILL(DATABASE_REPLACED)},
    {"term went down beside a broken row", PAST_LED, 5 * S, broken_in_an_older_term,
     RULE_DATABASE_REPLACED, KILL(DATABASE_REPLACED)},
    {"replaced goes before superseded", PAST_LED, 5 * S, other_database_and_id,
     RULE_DATABASE_REPLACED, KILL(DATABASE_REPLACED), .flags = FENCE_ORDER_SUPERSEDED},
    {"replaced while not engaged", PAST_LED, 0, other_database, RULE_LEADER, LEAD},
    {"identity unknown", PAST_LED, 5 * S, identity_unknown, RULE_LEADER, LEAD,
     .not_covered = NOT_COVERED_UNTAGGED},
    {"another id while engaged", PAST_LED, 5 * S, other_wins, RULE_SUPERSEDED, KILL(SUPERSEDED),
     .flags = FENCE_ORDER_SUPERSEDED | FENCE_ORDER_ENGAGED},
    {"latched in metafence-run", PAST_LED, 5 * S, latched_superseded, RULE_SUPERSEDED,
     KILL(SUPERSEDED)},
    {"marked in Postgres, row ours again", PAST_LED, 5 * S, tag_superseded, RULE_SUPERSEDED,
     KILL(SUPERSEDED)},
    {"marked in Postgres, no other sign", PAST_FOLLOWED, 0, tag_superseded, RULE_SUPERSEDED,
     KILL(SUPERSEDED), .flags = FENCE_ORDER_ENGAGED},
    {"the mark is a dead incarnation's", PAST_FOLLOWED, 0, tag_of_the_dead_superseded,
     RULE_UNKNOWN, LEAD_QUIET},
    {"another id while a follower", PAST_FOLLOWED, 0, other_wins, RULE_FOLLOWER, FOLLOW},
    {"newer tag owns our id", PAST_LED, 5 * S, newer_twin, RULE_TWIN_IDENTITY,
     KILL(TWIN_IDENTITY), .flags = FENCE_ORDER_TWIN_HOLD},
    {"the newer tag is our own dead one", PAST_LED, 5 * S, newer_twin_of_the_dead,
     RULE_PROMOTING, LEAD_QUIET},
    {"foreign tag renews, API unknown", PAST_LED, 5 * S, twin_renews, RULE_TWIN_IDENTITY,
     KILL(TWIN_IDENTITY), .flags = FENCE_ORDER_TWIN_HOLD},
    {"foreign tag renews, API lists us", PAST_LED, 5 * S, twin_renews_api_known, RULE_UNKNOWN,
     LEAD_QUIET},
    {"foreign owner, we renew", PAST_LED, 5 * S, owner_tag_foreign, RULE_PROMOTING, LEAD_QUIET},
    {"API lists another uid", PAST_LED, 5 * S, api_lists_other, RULE_TWIN_IDENTITY,
     KILL(TWIN_IDENTITY), .flags = FENCE_ORDER_TWIN_HOLD},
    {"API lists another uid, not engaged", PAST_LED, 0, api_lists_other, RULE_TWIN_IDENTITY,
     KILL(TWIN_IDENTITY), .flags = FENCE_ORDER_TWIN_HOLD},
    {"API lists another uid, row other", PAST_FOLLOWED, 0, api_lists_other_row_other,
     RULE_FOLLOWER, FOLLOW},
    {"silence past the deadline", PAST_LED, 5 * S, silence, RULE_LEASE_EXPIRED,
     KILL(LEASE_EXPIRED)},
    {"silence for a follower", PAST_FOLLOWED, 0, silence, RULE_FOLLOWER, FOLLOW},
    {"silence for one that is ours by row", PAST_LED, 0, silence, RULE_UNKNOWN, KEEP},
    {"silence, engaged since a follower's read", PAST_FOLLOWED, 15 * S, silence,
     RULE_LEASE_EXPIRED, KILL(LEASE_EXPIRED)},
    {"silence before any read", PAST_NONE, 5 * S, unarmed_silence, RULE_UNKNOWN, KEEP,
     .not_covered = NOT_COVERED_UNARMED},
    {"alone, but not for long enough", PAST_LED, 5 * S, silence_alone_too_short,
     RULE_LEASE_EXPIRED, KILL(LEASE_EXPIRED)},
    {"refused while the guard enforces", PAST_LED, 5 * S, blind, RULE_UNKNOWN, KEEP,
     .not_covered = NOT_COVERED_AGENT_BLIND},
    {"refused without guard", PAST_LED, 5 * S, refused_without_guard, RULE_LEASE_EXPIRED,
     KILL(LEASE_EXPIRED)},
    {"phantom", PAST_LED, 0, phantom, RULE_PHANTOM_LEADER, KILL(PHANTOM_LEADER),
     .flags = FENCE_ORDER_PHANTOM_HOLD},
    {"promotion without end", PAST_LED, 5 * S, slow_promotion, RULE_PHANTOM_LEADER,
     KILL(PHANTOM_LEADER), .flags = FENCE_ORDER_PHANTOM_HOLD},
    {"promoting", PAST_LED, 5 * S, still_ours, RULE_PROMOTING, LEAD_QUIET},
    {"to hand over", PAST_LED, 5 * S, handover_leader, RULE_HANDOVER, KILL(HANDOVER)},
    {"who was to hand over is dead", PAST_LED, 5 * S, handover_of_the_dead, RULE_LEADER, LEAD},
    {"to hand over, but it promotes", PAST_LED, 5 * S, handover_promoting, RULE_PROMOTING,
     LEAD_QUIET},
    {"to hand over, but it follows", PAST_FOLLOWED, 0, handover_follower, RULE_FOLLOWER,
     FOLLOW},
    {"memory diverged", PAST_LED, 5 * S, diverged_leader, RULE_DIVERGED_LEADER,
     KILL(DIVERGED_LEADER)},
    {"the predecessor's memory had", PAST_LED, 5 * S, diverged_predecessor, RULE_LEADER, LEAD},
    {"what promotes loads it yet", PAST_LED, 5 * S, diverged_promoting, RULE_PROMOTING,
     LEAD_QUIET},
    {"a follower's memory", PAST_FOLLOWED, 0, diverged_follower, RULE_FOLLOWER, FOLLOW},
    {"diverged, but not provably leading", PAST_LED, 5 * S, diverged_unproven, RULE_UNKNOWN,
     LEAD_QUIET},
    {"5690 not open yet, not engaged", PAST_LED, 0, not_promoting_yet_unengaged, RULE_LEADER,
     LEAD},
    {"leader", PAST_LED, 5 * S, still_ours_ports_up, RULE_LEADER, LEAD},
    {"leader without tags", PAST_LED, 5 * S, untagged, RULE_LEADER, LEAD,
     .not_covered = NOT_COVERED_UNTAGGED},
    {"a pooler loses tags", PAST_LED, 5 * S, untagged_writers, RULE_LEADER, LEAD,
     .not_covered = NOT_COVERED_UNTAGGED_WRITERS},
    {"leader in another spelling", PAST_LED, 5 * S, spelled_otherwise, RULE_LEADER, LEAD},
    {"leader, metafence-run gone", PAST_LED, 0, no_fence, RULE_LEADER, LEAD,
     .not_covered = NOT_COVERED_NO_FENCE},
    {"follower", PAST_FOLLOWED, 0, nothing, RULE_FOLLOWER, FOLLOW},
    {"row broken", PAST_LED, 5 * S, broken, RULE_ROW_BROKEN, LEAD_QUIET},
    {"row and owner contradict", PAST_LED, 5 * S, contradiction, RULE_ROW_BROKEN, LEAD_QUIET},
    {"heartbeat in the future", PAST_LED, 5 * S, future_heartbeat, RULE_ROW_BROKEN, LEAD_QUIET},
    {"row absent while leading", PAST_LED, 5 * S, row_is_gone, RULE_UNKNOWN, LEAD_QUIET},
    {"row absent, not engaged", PAST_FOLLOWED, 0, row_is_gone, RULE_UNKNOWN,
     .role = FENCE_ROLE_FOLLOWER, .label = LABEL_UNKNOWN},
    {"nothing known", PAST_NONE, 0, nothing, RULE_UNKNOWN, KEEP,
     .not_covered = NOT_COVERED_UNARMED},
};

static void play(const struct story *story, struct scene *scene)
{
    scene_init(scene);
    if (story->past == PAST_LED)
        scene_lead(scene, 0, 4 * S);
    if (story->past == PAST_FOLLOWED)
        scene_follow(scene, 0, 10 * S);
    if (story->engaged_at_ns)
        scene_engage(scene, story->engaged_at_ns);
    if (story->past == PAST_LED)
        scene_lead(scene, 5 * S, 10 * S);
    scene_at(scene, 11 * S);
    story->then(scene);
    scene_decide(scene);
}

static void check(const struct story *story)
{
    struct scene scene;
    const struct plan *plan = &scene.plan;

    play(story, &scene);
    fired[plan->rule]++;
    if (plan->rule != story->rule || plan->order.role != story->role ||
        plan->order.reason != story->reason || plan->label != story->label ||
        (plan->order.flags & story->flags) != story->flags ||
        plan->not_covered != story->not_covered)
        fail_msg("%s: rule %s role %u reason %u label %u flags %x not covered %x", story->name,
                 rule_name(plan->rule), plan->order.role, plan->order.reason, plan->label,
                 plan->order.flags, plan->not_covered);
}

static void test_stories(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++)
        check(&stories[i]);
}

// A rule that no row fires is a rule that nobody has tested.
static void test_every_rule_fired(void **state)
{
    (void)state;
    for (int rule = 0; rule < RULE_COUNT; rule++)
        if (!fired[rule])
            fail_msg("no row fires rule %s", rule_name((enum rule)rule));
}

// Evidence of two rules at once: the earlier in the list wins.
static void test_priorities(void **state)
{
    static const struct {
        void (*first)(struct scene *);
        void (*second)(struct scene *);
        enum rule rule;
    } cases[] = {
        {other_wins, manual_fence_first_boot, RULE_MANUAL_FENCE},
        {pause_superseded, manual_fence, RULE_MANUAL_FENCE},
        {other_database, pause, RULE_PAUSED},
        {newer_twin, pause, RULE_PAUSED},
        {newer_twin, latched_superseded, RULE_SUPERSEDED},
        {api_lists_other, silence, RULE_TWIN_IDENTITY},
        {other_database_and_id, nothing, RULE_DATABASE_REPLACED},
        {other_wins, silence, RULE_SUPERSEDED},
        {other_wins, diverged, RULE_SUPERSEDED},
        {still_ours, diverged, RULE_PROMOTING},
        {pause_leader, diverged, RULE_PAUSED},
        {silence, diverged, RULE_LEASE_EXPIRED},
        {diverged_leader, handover, RULE_HANDOVER},
        {pause_leader, handover, RULE_PAUSED},
        {silence, handover, RULE_LEASE_EXPIRED},
        {other_wins, blind, RULE_SUPERSEDED},
        {broken, silence, RULE_LEASE_EXPIRED},
        {row_is_gone, silence, RULE_LEASE_EXPIRED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct story story = {"", PAST_LED, 5 * S, cases[i].first, RULE_UNKNOWN, 0, 0, 0, 0, 0};
        struct scene scene;

        play(&story, &scene);
        cases[i].second(&scene);
        scene_decide(&scene);
        if (scene.plan.rule != cases[i].rule)
            fail_msg("case %zu: %s", i, rule_name(scene.plan.rule));
    }
}

static bool is_same_order(const struct fence_order *a, const struct fence_order *b)
{
    return a->incarnation == b->incarnation && a->role == b->role && a->reason == b->reason &&
           a->flags == b->flags && a->row == b->row && a->deadline_ns == b->deadline_ns &&
           a->pause_end_ns == b->pause_end_ns && a->read_ns == b->read_ns &&
           a->heartbeat_still_ns == b->heartbeat_still_ns && a->term == b->term;
}

static bool is_same_plan(const struct plan *a, const struct plan *b)
{
    if (a->action_count != b->action_count)
        return false;
    for (uint32_t i = 0; i < a->action_count; i++)
        if (a->actions[i].kind != b->actions[i].kind)
            return false;
    return a->rule == b->rule && a->label == b->label && a->not_covered == b->not_covered &&
           a->wake_at.ns == b->wake_at.ns && is_same_order(&a->order, &b->order);
}

// Same facts again: same order, same rule.
static void test_level_triggered(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++) {
        struct scene scene;
        struct plan first;

        play(&stories[i], &scene);
        first = scene.plan;
        scene_decide(&scene);
        if (!is_same_plan(&first, &scene.plan))
            fail_msg("%s: a second turn plans something else", stories[i].name);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(rule_name(RULE_LEASE_EXPIRED), "LeaseExpired");
    assert_string_equal(rule_name(RULE_COUNT), "None");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_stories),    cmocka_unit_test(test_every_rule_fired),
    cmocka_unit_test(test_priorities), cmocka_unit_test(test_level_triggered),
    cmocka_unit_test(test_names),
};

UNIT_MAIN(tests)
