// SPDX-License-Identifier: Apache-2.0
// What the order of a recovery asks beyond the gate: rounds, what may be under construction,
// the deaths of those who led before; and the rows of several agents.
#include "tests/unit/pg/recovering.h"

static void record_death(struct scene *s, const char *tag)
{
    pgt_run(s->admin, "SELECT metafence.record_death('%s', 'id', 'permit', 'Superseded')", tag);
}

static void agent_was_there(struct scene *s, const char *tag, const char *dead_after)
{
    pgt_run(s->admin,
            "INSERT INTO metafence.gate VALUES ('svc', '%s', now(), now(), 'open', 1, %s)", tag,
            dead_after);
}

// meta-a led in term 1, meta-b leads in term 2.
static void test_deaths_of_those_who_led_before(void **state)
{
    struct scene *s = *state;

    assert_string_equal(state_of_recovery(s, "predecessor"), "NULL");
    // Its agent did not ensure anything: paused, for example.
    agent_was_there(s, TAG_A1, "NULL");
    assert_string_equal(state_of_recovery(s, "predecessor"), "NULL");
    pgt_run(s->admin,
            "UPDATE metafence.gate SET dead_after_ms = 3600000 WHERE agent_tag = '" TAG_A1 "'");
    assert_string_equal(state_of_recovery(s, "predecessor"), "NULL");
    pgt_run(s->admin,
            "UPDATE metafence.gate SET dead_after_ms = 0 WHERE agent_tag = '" TAG_A1 "'");
    assert_string_equal(state_of_recovery(s, "predecessor"), "implied");
    record_death(s, TAG_A1);
    assert_string_equal(state_of_recovery(s, "predecessor"), "confirmed");
    // The weakest counts.
    take_over(s, s->a2, "meta-a");
    assert_string_equal(state_of_recovery(s, "predecessor"), "NULL");
    record_death(s, TAG_B1);
    assert_string_equal(state_of_recovery(s, "predecessor"), "confirmed");
}

// A zombie of long ago does not keep everybody from resetting for ever: a later leader has
// recovered, and its compute nodes are not the zombie's.
static void test_a_death_that_nobody_knows_of_ages(void **state)
{
    struct scene *s = *state;

    take_over(s, s->a2, "meta-a");
    record_death(s, TAG_B1);
    pgt_run(s->admin, "UPDATE metafence.tag SET last_seen_heartbeat = now() - interval '11"
                      " minutes' WHERE tag = '" TAG_A1 "'");
    assert_string_equal(state_of_recovery(s, "predecessor"), "implied"); // term 2 has committed
    pgt_run(s->admin, "UPDATE metafence.recovery SET ended = 'superseded' WHERE ended ="
                      " 'committed'");
    assert_string_equal(state_of_recovery(s, "predecessor"), "NULL");
}

// Whose sessions have no tag can't be told dead.
static void test_an_untagged_leader_before(void **state)
{
    struct scene *s = *state;

    record_death(s, TAG_A1);
    assert_string_equal(state_of_recovery(s, "predecessor"), "confirmed");
    take_over(s, s->psql, "meta-c");
    take_over(s, s->a2, "meta-a");
    record_death(s, TAG_B1);
    assert_string_equal(state_of_recovery(s, "predecessor"), "NULL");
}

static void test_rounds(void **state)
{
    struct scene *s = *state;

    drop_job(s->b1, 11);
    begin_attempt(s->b1, 0);
    assert_string_equal(state_of_recovery(s, "round"), "0");
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
    begin_attempt(s->b1, 0); // the next of a refused one: nothing was built
    assert_string_equal(state_of_recovery(s, "round"), "0");
    acknowledge(s, 1, "reset");
    acknowledge(s, 2, "reset");
    assert_string_equal(remove_table(s->b1, 1001), "");
    assert_string_equal(state_of_recovery(s, "round"), "1");
    begin_attempt(s->b1, 0); // the one before has got past the gate
    assert_string_equal(state_of_recovery(s, "round"), "2");
    assert_string_equal(insert_delta(s->b1, DELTA_COMMIT, NULL, 0), "");
    begin_attempt(s->b1, 0);
    assert_string_equal(state_of_recovery(s, "round"), "0"); // another recovery
}

static void test_what_may_be_under_construction(void **state)
{
    struct scene *s = *state;

    assert_string_equal(state_of_recovery(s, "may_build"), "false");
    // A replaced job loses a table while it is there, and created.
    pgt_run(s->b1, "UPDATE fragment SET state_table_ids = '[1004]' WHERE job_id = 13");
    assert_string_equal(state_of_recovery(s, "may_build"), "false");
    pgt_run(s->b1, "UPDATE streaming_job SET job_status = 'CREATING' WHERE job_id = 12;"
                   "UPDATE fragment SET state_table_ids = '[]' WHERE job_id = 12");
    assert_string_equal(state_of_recovery(s, "may_build"), "true");
    pgt_run(s->admin, "DELETE FROM metafence.dropped");
    assert_string_equal(state_of_recovery(s, "may_build"), "false");
    // A plain DROP: its job's row goes before its fragments do.
    drop_job(s->b1, 11);
    assert_string_equal(state_of_recovery(s, "dropped"), "1");
    assert_string_equal(state_of_recovery(s, "may_build"), "false");
    pgt_run(s->b1, "UPDATE streaming_job SET job_status = 'CREATING' WHERE job_id = 13");
    drop_job(s->b1, 13);
    assert_string_equal(state_of_recovery(s, "may_build"), "true");
    pgt_run(s->admin, "DELETE FROM metafence.dropped;"
                      "ALTER TABLE streaming_job DISABLE TRIGGER metafence_recovery");
    create_job(s->b1, 14, "mv_four", "[1005]");
    drop_job(s->b1, 14); // nobody has seen what it was
    assert_string_equal(state_of_recovery(s, "may_build"), "true");
    pgt_run(s->admin, "DELETE FROM metafence.dropped");
    // The last recovery has not come to its commit.
    begin_attempt(s->b1, 0);
    take_over(s, s->a2, "meta-a");
    assert_string_equal(state_of_recovery(s, "may_build"), "true");
}

// It takes its row away, and has its actors still: only its end, or its reset, is one.
static void test_who_is_being_killed(void **state)
{
    struct scene *s = *state;

    drop_job(s->b1, 11);
    begin_attempt(s->b1, 0);
    acknowledge(s, 1, "reset");
    acknowledge(s, 2, "asked");
    assert_string_equal(state_of_recovery(s, "missing"), "1"); // once
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
    pgt_run(s->b1, "DELETE FROM worker WHERE worker_id = 2");
    begin_attempt(s->b1, 0);
    assert_string_equal(state_of_recovery(s, "missing"), "1");
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
    // Its successor begins under another id, and has no actors yet.
    pgt_run(s->b1, "INSERT INTO worker VALUES (9, 'COMPUTE_NODE', 'cn-2', 5688, 'STARTING')");
    assert_string_equal(state_of_recovery(s, "missing"), "1");
    assert_string_equal(
        pgt_get(s->admin, "SELECT string_agg(concat_ws(' ', id, coalesce(how, '-')), ', ')"
                          " FROM metafence.recovery_rows('svc') WHERE kind = 'worker'"),
        "1 reset, 9 -");
    acknowledge(s, 2, "gone");
    assert_string_equal(state_of_recovery(s, "missing"), "0");
    begin_attempt(s->b1, 0);
    assert_string_equal(remove_table(s->b1, 1001), "");
    // That it was asked for does not outlast what was acknowledged.
    pgt_run(s->b1, "DELETE FROM worker");
    assert_string_equal(state_of_recovery(s, "missing"), "0");
}

// Each agent has a row, so that a winner's purge meets its own.
static void test_rows_of_agents(void **state)
{
    struct scene *s = *state;
    static const char refresh[] = "SELECT metafence.refresh_gate('svc', '%s', 'hold', 5000,"
                                  " 60000, NULL)";

    (void)pgt_campaign(s->a2, "meta-a"); // a follower
    assert_string_equal(pgt_get(s->admin, refresh, TAG_A2), "t");
    pgt_run(s->admin, "UPDATE metafence.gate SET expires_at = 'infinity'");
    drop_job(s->b1, 11);
    take_over(s, s->a2, "meta-a");
    assert_string_equal(state_of_recovery(s, "is_gate_fresh"), "true");
    assert_string_equal(state_of_recovery(s, "policy"), "hold");
    begin_attempt(s->a2, 0);
    assert_string_equal(remove_table(s->a2, 1001), "MF003");
    assert_string_equal(pgt_get(s->admin, refresh, TAG_B1), "f"); // it has lost its term
    // What owned nothing is not kept; what owned a term is, by its death.
    pgt_run(s->admin, "UPDATE metafence.gate SET refreshed_at = now() - interval '1 hour'");
    agent_was_there(s, "metafence:cccccccc:0000000000000009", "1");
    pgt_run(s->admin, "UPDATE metafence.gate SET refreshed_at = now() - interval '1 hour'");
    assert_string_equal(pgt_get(s->admin, refresh, TAG_A2), "t");
    assert_string_equal(pgt_get(s->admin, "SELECT string_agg(agent_tag, ' ' ORDER BY agent_tag)"
                                          " FROM metafence.gate"),
                        TAG_A2 " " TAG_B1);
}

static const struct CMUnitTest tests[] = {
    RECOVERY_TEST(test_deaths_of_those_who_led_before),
    RECOVERY_TEST(test_a_death_that_nobody_knows_of_ages),
    RECOVERY_TEST(test_an_untagged_leader_before),
    RECOVERY_TEST(test_rounds),
    RECOVERY_TEST(test_what_may_be_under_construction),
    RECOVERY_TEST(test_who_is_being_killed),
    RECOVERY_TEST(test_rows_of_agents),
};

UNIT_MAIN(tests)
