// SPDX-License-Identifier: Apache-2.0
// The gate before the purge: what it holds, for whom, for how long, and all that it lets pass.
#include "tests/unit/pg/recovering.h"

#include <string.h>

// The beginning of a purge that nobody has answered for: job 11 is dropped, an attempt begins.
static void pend(struct scene *s)
{
    drop_job(s->b1, 11);
    begin_attempt(s->b1, 0);
}

static void test_refused_until_acknowledged(void **state)
{
    struct scene *s = *state;

    pend(s);
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
    const char *message = pgt_message(s->b1);
    assert_non_null(strstr(message, "removal of 1 state tables (1001) refused"));
    assert_non_null(strstr(message, "of term 2"));
    assert_non_null(strstr(message, "1 cn-1:5688, 2 cn-2:5688"));
    assert_string_equal(state_of_recovery(s, "is_refused"), "true");
    assert_string_equal(state_of_recovery(s, "missing"), "2");
    assert_int_equal(counter(s, "recovery_refused"), 1);
    begin_attempt(s->b1, 0);
    acknowledge(s, 1, "reset");
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
    message = pgt_message(s->b1);
    assert_null(strstr(message, "cn-1"));
    assert_non_null(strstr(message, "2 cn-2:5688"));
    begin_attempt(s->b1, 0);
    acknowledge(s, 2, "gone");
    uint32_t ids[] = {1001, 1002};
    assert_string_equal(insert_delta(s->b1, DELTA_REMOVAL, ids, 2), "");
    assert_string_equal(newest_purge(s), "acknowledged 2 -");
    assert_string_equal(state_of_recovery(s, "dropped"), "0");
    // It goes on to build actors: another removal needs new ones.
    drop_job(s->b1, 12);
    assert_string_equal(remove_table(s->b1, 1003), "MF003");
    // A commit ends it.
    assert_string_equal(insert_delta(s->b1, DELTA_COMMIT, NULL, 0), "");
    assert_string_equal(state_of_recovery(s, "recovery_id"), "NULL");
    drop_job(s->b1, 13);
    assert_string_equal(remove_table(s->b1, 1004), "");
}

// Drops, cancels, replacements and the recovery of one database: none meets the gate.
static void test_never_refused(void **state)
{
    struct scene *s = *state;

    drop_job(s->b1, 11);
    assert_string_equal(remove_table(s->b1, 1001), "");
    begin_attempt(s->b1, 7);
    assert_string_equal(state_of_recovery(s, "has_database_recovery"), "true");
    assert_string_equal(remove_table(s->b1, 1002), "");
    pgt_run(s->b1, "UPDATE fragment SET state_table_ids = '[1004]' WHERE job_id = 13");
    assert_string_equal(remove_table(s->b1, 1005), "");
    assert_string_equal(remove_table(s->b1, 999), ""); // nobody knows it
    // In a global recovery: all that removes nothing.
    begin_attempt(s->b1, 0);
    assert_string_equal(insert_delta(s->b1, DELTA_COMPACTION, NULL, 0), "");
    assert_string_equal(insert_delta(s->b1, DELTA_REMOVAL, NULL, 0), "");
    assert_string_equal(state_of_recovery(s, "joined"), "1");
    // Others than the leader are the guard's business.
    assert_string_equal(remove_table(s->psql, 1006), "");
    assert_string_equal(remove_table(s->a1, 1006), "MF001");
    set_guard(s, "observe");
    assert_string_equal(remove_table(s->a1, 1006), "");
    assert_int_equal(counter(s, "recovery_refused") + counter(s, "recovery_open") +
                         counter(s, "recovery_failed") + counter(s, "recovery_unknown"),
                     0);
    assert_string_equal(newest_purge(s), "NULL");
}

static void test_ten_attempts(void **state)
{
    struct scene *s = *state;
    char id[24], left[24];
    int64_t left_ms = 0, now_ms = 0;

    drop_job(s->b1, 11);
    for (int i = 0; i < 10; i++) {
        begin_attempt(s->b1, 0);
        if (i == 0) {
            (void)snprintf(id, sizeof id, "%s", state_of_recovery(s, "recovery_id"));
            (void)snprintf(left, sizeof left, "%s", state_of_recovery(s, "hold_left_ms"));
            acknowledge(s, 1, "reset");
        }
        assert_string_equal(remove_table(s->b1, 1001), "MF003");
        assert_null(strstr(pgt_message(s->b1), "cn-1"));
        assert_string_equal(state_of_recovery(s, "recovery_id"), id);
        assert_string_equal(state_of_recovery(s, "missing"), "1");
    }
    assert_string_equal(state_of_recovery(s, "joined"), "10");
    assert_string_equal(state_of_recovery(s, "refused"), "10");
    // One maxHold, which goes on.
    assert_true(election_parse_count(left, &left_ms));
    assert_true(election_parse_count(state_of_recovery(s, "hold_left_ms"), &now_ms));
    assert_true(left_ms <= 600000 && now_ms <= left_ms - 10 * 900);
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.recovery WHERE"
                                          " closed_at IS NULL"),
                        "1");
}

// An attempt that the gate has not ended may have built actors: what was known before it is
// void.
static void test_attempt_in_between(void **state)
{
    struct scene *s = *state;

    begin_attempt(s->b1, 0);
    acknowledge(s, 1, "reset");
    acknowledge(s, 2, "reset");
    assert_string_equal(state_of_recovery(s, "missing"), "0");
    // With nothing to remove it got by the gate, and failed somewhere behind it.
    begin_attempt(s->b1, 0);
    assert_string_equal(state_of_recovery(s, "missing"), "2");
    drop_job(s->b1, 11);
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
    acknowledge(s, 1, "reset");
    acknowledge(s, 2, "reset");
    begin_attempt(s->b1, 0);
    assert_string_equal(remove_table(s->b1, 1001), "");
    // Evidence from before the removal, written down after it.
    pgt_run(s->admin, "CREATE TABLE public.old AS SELECT (metafence.recovery_state('svc'))"
                      ".snapshot AS snapshot");
    drop_job(s->b1, 12);
    begin_attempt(s->b1, 0);
    for (int i = 1; i <= 2; i++)
        assert_string_equal(
            pgt_get(s->admin,
                    "SELECT metafence.acknowledge(r.recovery_id, %d, 'cn-%d', 5688, 'reset',"
                    " NULL, o.snapshot::pg_snapshot) FROM metafence.recovery_state('svc') AS r,"
                    " public.old AS o",
                    i, i),
            "t");
    assert_string_equal(state_of_recovery(s, "missing"), "2");
    assert_string_equal(remove_table(s->b1, 1003), "MF003");
}

// "Runs none of the dropped fragments" is said about those that were known.
static void test_evidence_of_stats(void **state)
{
    struct scene *s = *state;

    pend(s);
    acknowledge(s, 1, "none");
    acknowledge(s, 2, "none");
    assert_string_equal(remove_table(s->b1, 4711), "MF003"); // who dropped that?
    begin_attempt(s->b1, 0);
    drop_job(s->b1, 12); // later than the look
    assert_string_equal(remove_table(s->b1, 1003), "MF003");
    begin_attempt(s->b1, 0);
    assert_string_equal(remove_table(s->b1, 1001), "");
}

// The endpoint counts, not the id alone; a node that is starting has no actors; one that is
// gone from the table gets no delta.
static void test_which_nodes(void **state)
{
    struct scene *s = *state;

    pend(s);
    acknowledge(s, 1, "reset");
    pgt_run(s->b1, "UPDATE worker SET host = 'cn-9' WHERE worker_id = 1");
    pgt_run(s->b1, "DELETE FROM worker WHERE worker_id = 2");
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
    assert_non_null(strstr(pgt_message(s->b1), ": 1 cn-9:5688\n"));
    pgt_run(s->b1, "UPDATE worker SET status = 'STARTING' WHERE worker_id = 1");
    begin_attempt(s->b1, 0);
    assert_string_equal(remove_table(s->b1, 1001), "");
    assert_string_equal(newest_purge(s), "acknowledged 1 -");
}

static void expire_hold(struct scene *s)
{
    pgt_run(s->admin, "UPDATE metafence.recovery SET held_from = held_from - interval '1 hour'"
                      " WHERE closed_at IS NULL");
}

static void test_bound(void **state)
{
    struct scene *s = *state;

    pend(s);
    assert_string_equal(refresh_gate(s, "hold", 600000), "t");
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
    begin_attempt(s->b1, 0);
    expire_hold(s);
    assert_string_equal(state_of_recovery(s, "hold_left_ms"), "0");
    assert_string_equal(remove_table(s->b1, 1001), "MF003"); // policy hold
    begin_attempt(s->b1, 0);
    assert_string_equal(refresh_gate(s, "open", 600000), "t");
    acknowledge(s, 1, "reset");
    assert_string_equal(remove_table(s->b1, 1001), "");
    assert_string_equal(newest_purge(s), "bound 1 2 cn-2:5688");
    assert_int_equal(counter(s, "recovery_bound"), 1);
}

// Other failures between refusals don't lengthen the hold; a recovery that comes much later has
// its own.
static void test_bound_of_a_later_recovery(void **state)
{
    struct scene *s = *state;
    int64_t left_ms = 0;

    pend(s);
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
    begin_attempt(s->b1, 0); // fails before the purge
    begin_attempt(s->b1, 0);
    expire_hold(s);
    begin_attempt(s->b1, 0);
    assert_string_equal(state_of_recovery(s, "hold_left_ms"), "0");
    pgt_run(s->admin, "SELECT setval('metafence.refused_at', 1)");
    begin_attempt(s->b1, 0);
    assert_true(election_parse_count(state_of_recovery(s, "hold_left_ms"), &left_ms));
    assert_true(left_ms > 500000);
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
}

// Whoever can't answer for a removal does not hold it: no agent, one of another term, an
// isolation that would not see acknowledgements, a pooler, no tag.
static void test_open_in_doubt(void **state)
{
    struct scene *s = *state;

    drop_job(s->b1, 11);
    begin_attempt(s->b1, 0);
    pgt_run(s->admin, "UPDATE metafence.gate SET expires_at = now()");
    assert_string_equal(remove_table(s->b1, 1001), "");
    assert_string_equal(newest_purge(s), "open: no agent 1 1 cn-1:5688, 2 cn-2:5688");
    assert_string_equal(refresh_gate(s, "open", 600000), "t");
    // That of another incarnation's agent says nothing.
    pgt_run(s->admin, "UPDATE metafence.gate SET agent_tag = '" TAG_A1 "'");
    assert_string_equal(remove_table(s->b1, 1001), "");
    assert_string_equal(refresh_gate(s, "open", 600000), "t");
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
    static const char *const levels[] = {"REPEATABLE READ", "SERIALIZABLE"};
    for (size_t i = 0; i < 2; i++) {
        pgt_run(s->b1, "BEGIN ISOLATION LEVEL %s", levels[i]);
        assert_string_equal(remove_table(s->b1, 1001), "");
        pgt_run(s->b1, "COMMIT");
        assert_non_null(strstr(newest_purge(s), i ? "serializable" : "repeatable read"));
    }
    pgt_run(s->admin, "UPDATE metafence.tag SET backend = (SELECT backend FROM metafence.tag"
                      " WHERE tag = '" TAG_B1 "')");
    assert_string_equal(remove_table(s->b1, 1001), "");
    assert_non_null(strstr(newest_purge(s), "pooler"));
    assert_string_equal(state_of_recovery(s, "is_pooled"), "true");
    assert_int_equal(counter(s, "recovery_open"), 5);
    // A leader without a tag.
    take_over(s, s->psql, "meta-c");
    begin_attempt(s->psql, 0);
    assert_string_equal(remove_table(s->psql, 1001), "");
    assert_non_null(strstr(newest_purge(s), "no session tag"));
}

static void test_modes(void **state)
{
    struct scene *s = *state;

    pend(s);
    set_recovery(s, "observe");
    struct instant begin = clock_now();
    assert_string_equal(remove_table(s->b1, 1001), "");
    assert_string_equal(newest_purge(s), "observed 1 1 cn-1:5688, 2 cn-2:5688");
    assert_int_equal(counter(s, "recovery_observed"), 1);
    print_message("observe: %lld us\n", (long long)(instant_since(clock_now(), begin) / 1000));
    set_recovery(s, "enforce");
    assert_string_equal(remove_table(s->b1, 1002), "MF003");
    // A version that nobody has looked at.
    pgt_run(s->psql, LEDGER("m20991231_000000_new"));
    assert_string_equal(remove_table(s->b1, 1002), "");
    assert_non_null(strstr(newest_purge(s), "observed"));
    assert_string_equal(state_of_recovery(s, "is_verified"), "false");
    pgt_run(s->admin,
            "INSERT INTO metafence.verified VALUES ('m20991231', 'm20991231_z', 'x')");
    assert_string_equal(remove_table(s->b1, 1002), "MF003");
    pgt_run(s->psql, "DROP TABLE seaql_migrations");
    assert_string_equal(remove_table(s->b1, 1002), "");
    set_recovery(s, "off");
    assert_string_equal(state_of_recovery(s, "recovery_id"), "NULL");
    assert_string_equal(state_of_recovery(s, "dropped"), "0");
    pend(s);
    drop_job(s->b1, 12);
    assert_string_equal(remove_table(s->b1, 1003), "");
    assert_string_equal(state_of_recovery(s, "dropped"), "0");
    assert_string_equal(state_of_recovery(s, "recovery_id"), "NULL");
    assert_string_equal(pgt_try(s->admin, "UPDATE metafence.setting SET value = 'on' WHERE"
                                          " name = 'recovery'"),
                        "23514");
}

// An acknowledgement that comes while the removal waits lets it pass.
static void test_wait_sees_acknowledgements(void **state)
{
    struct scene *s = *state;
    uint32_t id = 1001;

    for (int tries = 1;; tries++) {
        struct delta delta = delta_of(DELTA_REMOVAL, 77, &id, 1);
        char text[8192] = "INSERT INTO hummock_version_delta VALUES (77, 76, 0, 0, false, '\\x";
        size_t len = strlen(text);
        for (size_t i = 0; i < delta.len; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, "%02x", delta.bytes[i]);
        (void)snprintf(text + len, sizeof text - len, "')");
        delta_free(&delta);
        if (tries == 1)
            drop_job(s->b1, 11);
        begin_attempt(s->b1, 0);
        acknowledge(s, 1, "reset");
        assert_int_equal(PQsendQuery(s->b1, text), 1);
        bool was_waiting = false;
        while (!was_waiting && !(PQconsumeInput(s->b1) && !PQisBusy(s->b1)))
            was_waiting = strcmp(state_of_recovery(s, "is_waiting"), "true") == 0;
        acknowledge(s, 2, "reset");
        PGresult *result = PQgetResult(s->b1);
        bool is_passed = PQresultStatus(result) == PGRES_COMMAND_OK;
        if (!is_passed)
            assert_string_equal(PQresultErrorField(result, PG_DIAG_SQLSTATE), "MF003");
        PQclear(result);
        assert_null(PQgetResult(s->b1));
        if (is_passed && was_waiting)
            break;
        // This machine was slower than the wait is long.
        assert_false(is_passed);
        assert_true(tries < 20);
        pgt_run(s->admin, "DELETE FROM metafence.acknowledgement");
    }
    assert_string_equal(newest_purge(s), "acknowledged 1 -");
    assert_string_equal(state_of_recovery(s, "is_waiting"), "false");
}

// The new leader's first recovery: what was reset before it began counts, though its jobs that
// were being made are dropped only then.
static void test_takeover(void **state)
{
    struct scene *s = *state;

    drop_job(s->b1, 11);
    pgt_run(s->admin, "CREATE TABLE public.before AS SELECT (metafence.recovery_state('svc'))"
                      ".snapshot AS snapshot");
    take_over(s, s->a2, "meta-a");
    assert_string_equal(state_of_recovery(s, "joined"), "0");
    assert_string_equal(refresh_gate(s, "open", 600000), "t");
    for (int i = 1; i <= 2; i++)
        assert_string_equal(
            pgt_get(s->admin,
                    "SELECT metafence.acknowledge(r.recovery_id, %d, 'cn-%d', 5688, 'reset',"
                    " NULL, b.snapshot::pg_snapshot) FROM metafence.recovery_state('svc') AS r,"
                    " public.before AS b",
                    i, i),
            "t");
    begin_attempt(s->a2, 0);
    drop_job(s->a2, 12);
    uint32_t ids[] = {1001, 1002, 1003};
    assert_string_equal(insert_delta(s->a2, DELTA_REMOVAL, ids, 3), "");
    assert_string_equal(newest_purge(s), "acknowledged 3 -");
    assert_string_equal(insert_delta(s->a2, DELTA_COMMIT, NULL, 0), "");
    // The old term's recoveries are closed, and nobody can acknowledge in them.
    begin_attempt(s->a2, 0);
    take_over(s, s->a3, "meta-a");
    assert_string_equal(pgt_get(s->admin, "SELECT string_agg(ended, ' ' ORDER BY id) FROM"
                                          " metafence.recovery WHERE term IN (2, 3)"),
                        "committed committed superseded");
    assert_string_equal(pgt_get(s->admin, "SELECT metafence.acknowledge(max(id), 1, 'cn-1',"
                                          " 5688, 'reset', NULL, NULL) FROM"
                                          " metafence.recovery WHERE term = 3"),
                        "f");
    assert_string_equal(pgt_get(s->admin, "SELECT metafence.refresh_gate('svc', '" TAG_A2
                                          "', 'open', 1, 1, 1)"),
                        "f");
}

static void test_end_by_status(void **state)
{
    struct scene *s = *state;

    pend(s);
    begin_attempt(s->b1, 0);
    static const char end[] = "SELECT metafence.end_recovery(recovery_id, attempt - %d) FROM"
                              " metafence.recovery_state('svc')";
    assert_string_equal(pgt_get(s->admin, end, 1), "f"); // another attempt since
    assert_string_equal(pgt_get(s->admin, end, 0), "t");
    assert_string_equal(remove_table(s->b1, 1001), "");
    assert_string_equal(
        pgt_get(s->admin, "SELECT ended FROM metafence.recovery ORDER BY id DESC LIMIT 1"),
        "running");
}

static void test_bounded(void **state)
{
    struct scene *s = *state;
    int64_t recoveries = 0;

    pgt_run(s->admin, "UPDATE metafence.gate SET expires_at = now()");
    for (int i = 0; i < 1100; i++) {
        begin_attempt(s->b1, 0);
        if (i % 100 == 0)
            acknowledge(s, 1, "reset");
        assert_string_equal(remove_table(s->b1, 1), "");
        assert_string_equal(insert_delta(s->b1, DELTA_COMMIT, NULL, 0), "");
    }
    assert_true(election_parse_count(
        pgt_get(s->admin, "SELECT count(*) FROM metafence.recovery"), &recoveries));
    assert_in_range(recoveries, 100, 200);
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.purge"), "500");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.acknowledgement"),
                        "0");
}

static const struct CMUnitTest tests[] = {
    RECOVERY_TEST(test_refused_until_acknowledged),
    RECOVERY_TEST(test_never_refused),
    RECOVERY_TEST(test_ten_attempts),
    RECOVERY_TEST(test_attempt_in_between),
    RECOVERY_TEST(test_evidence_of_stats),
    RECOVERY_TEST(test_which_nodes),
    RECOVERY_TEST(test_bound),
    RECOVERY_TEST(test_bound_of_a_later_recovery),
    RECOVERY_TEST(test_open_in_doubt),
    RECOVERY_TEST(test_modes),
    RECOVERY_TEST(test_wait_sees_acknowledgements),
    RECOVERY_TEST(test_takeover),
    RECOVERY_TEST(test_end_by_status),
    RECOVERY_TEST(test_bounded),
};

UNIT_MAIN(tests)
