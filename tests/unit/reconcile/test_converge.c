// SPDX-License-Identifier: Apache-2.0
// Evidence and its cure. Times are seconds.
#include "tests/unit/unit.h"

#include <string.h>

#include "agent/reconcile/converge.h"

#define S NS_PER_SEC

struct scene {
    struct converge_config config;
    struct converge_facts facts;
    struct converge_memory memory;
    struct converge_plan plan;
};

// At 1000 s: a verified leader whose log and actors were just read, nothing to be seen.
static struct scene scene_make(void)
{
    struct scene scene = {.config = CONVERGE_CONFIG};

    scene.facts = (struct converge_facts){.now = {1000 * S},
                                          .is_leader = true,
                                          .term = 7,
                                          .incarnation = 3,
                                          .log_known = true,
                                          .log_read_at = {1000 * S},
                                          .actors_known = true,
                                          .actors_read_at = {1000 * S},
                                          .status = CONVERGE_STATUS_RUNNING,
                                          .status_since = {900 * S}};
    return scene;
}

// The next look, all of it fresh.
static void look(struct scene *scene, int64_t after_ns)
{
    scene->facts.now.ns += after_ns;
    scene->facts.log_read_at = scene->facts.now;
    scene->facts.actors_read_at = scene->facts.now;
    scene->plan = converge_decide(&scene->config, &scene->facts, &scene->memory);
}

static void set_status(struct scene *scene, enum converge_status status)
{
    scene->facts.status = status;
    scene->facts.status_since = scene->facts.now;
}

// What became of the cure that was asked for in this look.
static void end_cure(struct scene *scene, enum converge_outcome outcome)
{
    scene->facts.outcome = outcome;
    scene->facts.outcome_at = scene->facts.now;
}

static void is(const struct scene *scene, enum converge_cure cure, enum converge_reason reason)
{
    if (scene->plan.cure != cure || scene->plan.reason != reason)
        fail_msg("%s %s, want %s %s", converge_cure_name(scene->plan.cure),
                 converge_reason_name(scene->plan.reason), converge_cure_name(cure),
                 converge_reason_name(reason));
}

static void test_fine(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_FINE);
    scene.facts.is_leader = false;
    scene.facts.unknown_rows = 1;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_NOT_LEADER);
    assert_false(scene.plan.wants_restart);
}

static void test_unreadable(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    scene.facts.log_known = false;
    scene.facts.actors_known = false;
    scene.facts.actor_ghosts = 5;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_UNREADABLE);
}

static void test_unknown_row_restarts_at_once(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    scene.facts.unknown_rows = 1;
    scene.facts.reborn_rows = 1;
    look(&scene, S);
    is(&scene, CURE_RESTART_LEADER, CONVERGE_UNKNOWN_ROW);
    assert_true(scene.plan.wants_restart);
    for (int i = 0; i < 100; i++) { // asked for once, wanted until the process is another
        look(&scene, S);
        is(&scene, CURE_NONE, CONVERGE_RUNNING);
        assert_true(scene.plan.wants_restart);
    }
    scene.facts.incarnation = 4;
    scene.facts.unknown_rows = 0;
    scene.facts.reborn_rows = 0;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_FINE);
    assert_false(scene.plan.wants_restart);
}

// A row without a tag may be the leader's own, written by a session that lost it: there is time
// for more such writes, by which Postgres tells.
static void test_unknown_row_without_a_tag(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    scene.facts.unknown_rows = scene.facts.untagged_rows = 1;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_UNSURE);
    look(&scene, 4 * S);
    is(&scene, CURE_NONE, CONVERGE_UNSURE);
    scene.facts.unknown_rows = scene.facts.untagged_rows = 0; // nothing without a tag counts
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_FINE);
    scene.facts.unknown_rows = scene.facts.untagged_rows = 1;
    look(&scene, S);
    look(&scene, 5 * S - 1);
    is(&scene, CURE_NONE, CONVERGE_UNSURE);
    look(&scene, 1);
    is(&scene, CURE_RESTART_LEADER, CONVERGE_UNKNOWN_ROW);
    scene = scene_make();
    scene.facts.unknown_rows = 2; // one of them is a superseded leader's
    scene.facts.untagged_rows = 1;
    look(&scene, S);
    is(&scene, CURE_RESTART_LEADER, CONVERGE_UNKNOWN_ROW);
}

// The term was healed after a takeover whose bookkeeping had failed, or the log was cut: it
// can't say that nothing was written, but what it shows was.
static void test_log_with_holes_is_evidence_of_what_it_has(void **state)
{
    static const struct {
        uint32_t unknown_rows, reborn_rows;
        enum converge_cure cure;
        enum converge_reason reason;
    } cases[] = {
        {0, 0, CURE_NONE, CONVERGE_UNREADABLE},
        {1, 0, CURE_RESTART_LEADER, CONVERGE_UNKNOWN_ROW},
        {0, 1, CURE_RECOVER, CONVERGE_REBORN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene = scene_make();

        scene.facts.log_known = false;
        scene.facts.actors_known = false;
        scene.facts.unknown_rows = cases[i].unknown_rows;
        scene.facts.lost_rows = cases[i].reborn_rows;
        scene.facts.reborn_rows = cases[i].reborn_rows;
        scene.facts.foreign_log_id = cases[i].unknown_rows + cases[i].reborn_rows ? 40 : 0;
        look(&scene, S);
        is(&scene, cases[i].cure, cases[i].reason);
    }
}

// … also while a Recover is under way, which doesn't help against that.
static void test_unknown_row_beside_a_recover(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    scene.facts.reborn_rows = 1;
    scene.facts.foreign_log_id = 40;
    look(&scene, S);
    is(&scene, CURE_RECOVER, CONVERGE_REBORN);
    scene.facts.outcome = CONVERGE_PENDING;
    scene.facts.outcome_at = scene.facts.now;
    scene.facts.unknown_rows = 1;
    look(&scene, S);
    is(&scene, CURE_RESTART_LEADER, CONVERGE_UNKNOWN_ROW);
}

static void test_restarts_are_bounded(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    scene.facts.unknown_rows = 1;
    look(&scene, S);
    is(&scene, CURE_RESTART_LEADER, CONVERGE_UNKNOWN_ROW);
    scene.facts.incarnation++;
    scene.facts.term++;
    look(&scene, S);
    is(&scene, CURE_RESTART_LEADER, CONVERGE_UNKNOWN_ROW);
    scene.facts.incarnation++;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_GAVE_UP);
    assert_false(scene.plan.wants_restart);
    look(&scene, 500 * S);
    is(&scene, CURE_NONE, CONVERGE_GAVE_UP);
    look(&scene, 100 * S); // the window is over
    is(&scene, CURE_RESTART_LEADER, CONVERGE_UNKNOWN_ROW);
}

static void test_reborn_is_recovered_once(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    scene.facts.lost_rows = 1;
    scene.facts.reborn_rows = 1;
    scene.facts.foreign_log_id = 40;
    look(&scene, S);
    is(&scene, CURE_RECOVER, CONVERGE_REBORN);
    assert_false(scene.plan.wants_restart);
    scene.facts.outcome = CONVERGE_PENDING;
    scene.facts.outcome_at = scene.facts.now;
    look(&scene, 20 * S);
    is(&scene, CURE_NONE, CONVERGE_RUNNING);
    scene.facts.outcome = CONVERGE_DONE;
    scene.facts.outcome_at = scene.facts.now;
    look(&scene, 10 * S - 1);
    is(&scene, CURE_NONE, CONVERGE_SETTLING);
    look(&scene, S); // the log still has the entry: it is cured
    is(&scene, CURE_NONE, CONVERGE_FINE);
    scene.facts.foreign_log_id = 41; // another one
    look(&scene, S);
    is(&scene, CURE_RECOVER, CONVERGE_REBORN);
}

// A Recover that is refused, or waits behind a recovery that is under way, says nothing about
// the leader's memory: it is tried again, and then left to a person, never to a restart.
static void test_recover_that_failed(void **state)
{
    static const struct {
        enum converge_outcome outcome;
        int64_t again_ns; // after that it is asked for again
        uint32_t reborn, ghosts;
    } cases[] = {
        {CONVERGE_FAILED, 10 * S, 1, 0},       {CONVERGE_UNKNOWN_SENT, 30 * S, 1, 0},
        {CONVERGE_IDLE, 10 * S, 1, 0},         {CONVERGE_FAILED, 10 * S, 0, 1},
        {CONVERGE_UNKNOWN_SENT, 30 * S, 0, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        enum converge_reason reason = cases[i].reborn ? CONVERGE_REBORN : CONVERGE_GHOST;
        struct scene scene = scene_make();

        scene.facts.reborn_rows = cases[i].reborn;
        scene.facts.actor_ghosts = cases[i].ghosts;
        scene.facts.foreign_log_id = 40;
        look(&scene, S);
        if (cases[i].ghosts)
            look(&scene, S);
        is(&scene, CURE_RECOVER, reason);
        end_cure(&scene, cases[i].outcome);
        look(&scene, cases[i].again_ns - 1);
        assert_int_equal(scene.plan.cure, CURE_NONE);
        look(&scene, 1);
        if (cases[i].ghosts)
            look(&scene, S);
        is(&scene, CURE_RECOVER, reason);
        end_cure(&scene, cases[i].outcome);
        for (int64_t waited = cases[i].again_ns; waited < 590 * S; waited += 10 * S) {
            look(&scene, waited == cases[i].again_ns ? waited : 10 * S);
            assert_int_equal(scene.plan.cure, CURE_NONE);
            assert_false(scene.plan.wants_restart);
        }
        is(&scene, CURE_NONE, CONVERGE_GAVE_UP);
        look(&scene, 21 * S); // the window is over
        is(&scene, CURE_RECOVER, reason);
    }
}

// Recover was done, and the ghosts are there as before: twice is enough.
static void test_ghosts_that_outlive_a_recovery(void **state)
{
    for (int clean = 0; clean < 2; clean++) {
        struct scene scene = scene_make();

        (void)state;
        scene.facts.actor_ghosts = 1;
        for (int i = 0; i < 2; i++) {
            look(&scene, 20 * S);
            look(&scene, S);
            is(&scene, CURE_RECOVER, CONVERGE_GHOST);
            end_cure(&scene, CONVERGE_DONE);
        }
        if (clean) { // the second one helped; these are others
            scene.facts.actor_ghosts = 0;
            look(&scene, 20 * S);
            is(&scene, CURE_NONE, CONVERGE_FINE);
            scene.facts.actor_ghosts = 1;
        }
        look(&scene, 20 * S);
        look(&scene, S);
        if (clean)
            is(&scene, CURE_NONE, CONVERGE_GAVE_UP);
        else
            is(&scene, CURE_RESTART_LEADER, CONVERGE_NO_EFFECT);
    }
}

// A script that deletes rows of dead workers, whose endpoints are handed on: each Recover did
// what it was for.
static void test_more_of_the_same_is_no_failure(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    scene.facts.lost_rows = scene.facts.reborn_rows = 1;
    for (uint64_t i = 0; i < 2; i++) {
        scene.facts.foreign_log_id = 40 + i;
        look(&scene, 20 * S);
        is(&scene, CURE_RECOVER, CONVERGE_REBORN);
        end_cure(&scene, CONVERGE_DONE);
    }
    scene.facts.foreign_log_id = 42;
    look(&scene, 20 * S);
    is(&scene, CURE_NONE, CONVERGE_GAVE_UP);
}

static void test_ghosts_are_looked_at_twice(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    scene.facts.actor_ghosts = 1;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_UNSURE);
    // The same answer again is no second look.
    scene.plan = converge_decide(&scene.config, &scene.facts, &scene.memory);
    is(&scene, CURE_NONE, CONVERGE_UNSURE);
    scene.facts.actor_ghosts = 0; // it was stale
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_FINE);
    scene.facts.actor_ghosts = 1;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_UNSURE);
    look(&scene, S);
    is(&scene, CURE_RECOVER, CONVERGE_GHOST);
    // What was read before the cure was done says nothing about it.
    scene.facts.outcome = CONVERGE_DONE;
    scene.facts.outcome_at.ns = scene.facts.now.ns + 15 * S;
    look(&scene, 12 * S);
    is(&scene, CURE_NONE, CONVERGE_SETTLING);
    scene.facts.now.ns += 20 * S;
    scene.plan = converge_decide(&scene.config, &scene.facts, &scene.memory);
    is(&scene, CURE_NONE, CONVERGE_FINE);
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_UNSURE);
}

// A global recovery reads the table by itself; how long it takes is only told.
static void test_recovery_is_an_alarm(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    set_status(&scene, CONVERGE_STATUS_RECOVERING);
    look(&scene, 60 * S - 1);
    is(&scene, CURE_NONE, CONVERGE_FINE);
    look(&scene, 1);
    is(&scene, CURE_NONE, CONVERGE_SLOW);
    assert_true(converge_is_alarm(scene.plan.reason));
    scene.facts.lost_rows = 1;
    scene.facts.foreign_log_id = 40;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_STUCK);
    assert_true(converge_is_alarm(scene.plan.reason));
    scene.facts.unknown_rows = 1; // it may abort the leader at each try
    look(&scene, S);
    is(&scene, CURE_RESTART_LEADER, CONVERGE_UNKNOWN_ROW);
}

// An operator deletes a dead worker's row, by whatever way, while a recovery waits for workers.
static void test_delete_in_a_long_recovery(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    set_status(&scene, CONVERGE_STATUS_RECOVERING);
    scene.facts.lost_rows = scene.facts.reborn_rows = 1;
    scene.facts.actor_ghosts = 1;
    scene.facts.foreign_log_id = 40;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_RECOVERING);
    for (int i = 0; i < 1000; i++) {
        look(&scene, S);
        assert_int_equal(scene.plan.cure, CURE_NONE);
    }
    // It may have read the table before.
    set_status(&scene, CONVERGE_STATUS_RUNNING);
    look(&scene, S);
    is(&scene, CURE_RECOVER, CONVERGE_REBORN);
    end_cure(&scene, CONVERGE_PENDING);
    set_status(&scene, CONVERGE_STATUS_RECOVERING);
    look(&scene, 50 * S);
    is(&scene, CURE_NONE, CONVERGE_RUNNING);
    look(&scene, 20 * S);
    is(&scene, CURE_NONE, CONVERGE_STUCK); // also beside our own
    // Its answer was not waited for; its end was seen.
    end_cure(&scene, CONVERGE_UNKNOWN_SENT);
    look(&scene, 100 * S);
    assert_int_equal(scene.plan.cure, CURE_NONE);
    set_status(&scene, CONVERGE_STATUS_RUNNING);
    scene.facts.actor_ghosts = 0;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_FINE);
}

// Any recovery that began after the row was deleted has read the table without it.
static void test_recovery_by_others_cures(void **state)
{
    static const struct {
        int looks_before; // with the deletion in the log, before the recovery is seen
        enum converge_reason reason;
    } cases[] = {{0, CONVERGE_REBORN}, {1, CONVERGE_REBORN}, {2, CONVERGE_FINE}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene = scene_make();

        look(&scene, S);
        scene.facts.lost_rows = 1; // its endpoint has not registered anew yet
        scene.facts.foreign_log_id = 40;
        for (int k = 0; k < cases[i].looks_before; k++) {
            look(&scene, S);
            is(&scene, CURE_NONE, CONVERGE_FINE);
        }
        set_status(&scene, CONVERGE_STATUS_RECOVERING);
        look(&scene, S);
        is(&scene, CURE_NONE, CONVERGE_RECOVERING);
        set_status(&scene, CONVERGE_STATUS_RUNNING);
        scene.facts.reborn_rows = 1;
        look(&scene, S);
        assert_int_equal(scene.plan.reason, cases[i].reason);
    }
}

// What was read before the recovery ended says nothing.
static void test_ghosts_of_a_recovery(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    scene.facts.actor_ghosts = 1;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_UNSURE);
    set_status(&scene, CONVERGE_STATUS_RECOVERING);
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_FINE);
    scene.facts.status = CONVERGE_STATUS_RUNNING;
    scene.facts.status_since.ns = scene.facts.now.ns + 2 * S;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_FINE);
    look(&scene, 2 * S);
    is(&scene, CURE_NONE, CONVERGE_UNSURE);
    look(&scene, S);
    is(&scene, CURE_RECOVER, CONVERGE_GHOST);
}

static void test_lost_row(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    scene.facts.lost_rows = 1;
    scene.facts.foreign_log_id = 40;
    look(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_FINE);
}

static void look_for_orphans(struct scene *scene, int64_t after_ns)
{
    scene->facts.orphans_read_at.ns = scene->facts.now.ns + after_ns;
    look(scene, after_ns);
}

// A zombie has deleted the row of a worker that beats at our leader: it never registers again.
static void test_orphan_restarts_the_leader(void **state)
{
    struct scene scene = scene_make();

    (void)state;
    scene.facts.lost_rows = 1;
    scene.facts.foreign_log_id = 40;
    scene.facts.orphans_known = true;
    scene.facts.orphan_rows = 1;
    look_for_orphans(&scene, S);
    look(&scene, 100 * S); // no second look
    is(&scene, CURE_NONE, CONVERGE_FINE);
    scene.facts.orphan_rows = 0; // it has registered
    look_for_orphans(&scene, S);
    scene.facts.orphan_rows = 1; // another one
    look_for_orphans(&scene, S);
    look_for_orphans(&scene, 60 * S - 1);
    is(&scene, CURE_NONE, CONVERGE_FINE);
    look_for_orphans(&scene, 1);
    is(&scene, CURE_RESTART_LEADER, CONVERGE_ORPHAN);
    assert_true(scene.plan.wants_restart);
    // The next process is judged by looks of its own, and tries are bounded.
    scene.facts.incarnation++;
    look_for_orphans(&scene, S);
    is(&scene, CURE_NONE, CONVERGE_FINE);
    look_for_orphans(&scene, 60 * S);
    is(&scene, CURE_RESTART_LEADER, CONVERGE_ORPHAN);
    scene.facts.incarnation++;
    look_for_orphans(&scene, S);
    look_for_orphans(&scene, 60 * S);
    is(&scene, CURE_NONE, CONVERGE_GAVE_UP);
    assert_false(scene.plan.wants_restart);
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < CONVERGE_REASONS; i++) {
        for (int k = 0; k < i; k++)
            assert_string_not_equal(converge_reason_name((enum converge_reason)i),
                                    converge_reason_name((enum converge_reason)k));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_fine),
    cmocka_unit_test(test_unreadable),
    cmocka_unit_test(test_unknown_row_restarts_at_once),
    cmocka_unit_test(test_unknown_row_beside_a_recover),
    cmocka_unit_test(test_unknown_row_without_a_tag),
    cmocka_unit_test(test_restarts_are_bounded),
    cmocka_unit_test(test_reborn_is_recovered_once),
    cmocka_unit_test(test_recover_that_failed),
    cmocka_unit_test(test_ghosts_are_looked_at_twice),
    cmocka_unit_test(test_ghosts_that_outlive_a_recovery),
    cmocka_unit_test(test_more_of_the_same_is_no_failure),
    cmocka_unit_test(test_recovery_is_an_alarm),
    cmocka_unit_test(test_delete_in_a_long_recovery),
    cmocka_unit_test(test_recovery_by_others_cures),
    cmocka_unit_test(test_ghosts_of_a_recovery),
    cmocka_unit_test(test_lost_row),
    cmocka_unit_test(test_log_with_holes_is_evidence_of_what_it_has),
    cmocka_unit_test(test_orphan_restarts_the_leader),
    cmocka_unit_test(test_names),
};

UNIT_MAIN(tests)
