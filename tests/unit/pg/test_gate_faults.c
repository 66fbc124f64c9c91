// SPDX-License-Identifier: Apache-2.0
// Whatever breaks inside the triggers of ordered recovery, meta does not notice it, and the
// gate is open and says so.
#include "tests/unit/pg/recovering.h"

#include <stdio.h>
#include <string.h>

// What the leader writes: a purge with all that leads to it, and a commit. Undone by the
// caller.
static void assert_unharmed(struct scene *s, const char *fault, const char *expected)
{
    pgt_run(s->b1, "BEGIN");
    begin_attempt(s->b1, 0);
    drop_job(s->b1, 11);
    pgt_run(s->b1, "UPDATE fragment SET state_table_ids = '[1005]' WHERE job_id = 13;"
                   "SAVEPOINT before");
    const char *sqlstate = remove_table(s->b1, 1001);
    if (strcmp(sqlstate, expected) != 0)
        fail_msg("after %s: %s, %s", fault, sqlstate, pgt_message(s->b1));
    if (sqlstate[0])
        pgt_run(s->b1, "ROLLBACK TO before");
    if (insert_delta(s->b1, DELTA_COMMIT, NULL, 0)[0])
        fail_msg("after %s: %s", fault, pgt_message(s->b1));
    pgt_run(s->b1, "ROLLBACK");
}

// A removal that is held is refused at once: not how long it waits is tested here.
static void make_impatient(struct scene *s)
{
    pgt_run(s->admin,
            "DO $$ DECLARE v_text text := pg_get_functiondef("
            "'metafence.await_acknowledgements'::regproc); BEGIN"
            " IF v_text !~ '900 ms' THEN RAISE EXCEPTION 'it waits for something else'; END IF;"
            " EXECUTE replace(v_text, '900 ms', '10 ms'); END $$");
}

// The takeover is never hindered; a campaign in a transaction that is undone.
static void assert_takeover(struct scene *s, const char *fault)
{
    pgt_run(s->a3, "BEGIN; UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
    if (strcmp(pgt_campaign(s->a3, "meta-a"), "meta-a") != 0)
        fail_msg("after %s: no takeover", fault);
    if (strcmp(pgt_get(s->a3, "SELECT count(*) FROM metafence.term WHERE term > 2"), "1") != 0)
        fail_msg("after %s: the term did not move", fault);
    pgt_run(s->a3, "ROLLBACK");
}

static const char *const parts[] = {
    "TABLE setting",
    "TABLE term",
    "TABLE tag",
    "TABLE recovery",
    "TABLE dropped",
    "TABLE gate",
    "TABLE acknowledgement",
    "TABLE purge",
    "TABLE verified",
    "SEQUENCE attempt",
    "SEQUENCE refused_attempt",
    "SEQUENCE refused_at",
    "SEQUENCE count_recovery_refused",
    "SEQUENCE count_recovery_failed",
    "FUNCTION session_tag",
    "FUNCTION count_recovery",
    "FUNCTION notify_recovery",
    "FUNCTION newest_migration",
    "FUNCTION job_name",
    "FUNCTION is_created",
    "FUNCTION marker_of",
    "FUNCTION open_recovery",
    "FUNCTION note_dropped",
    "FUNCTION removed_tables",
    "FUNCTION meta_schema",
    "FUNCTION catalog_version",
    "FUNCTION is_pooled",
    "FUNCTION workers",
    "FUNCTION missing_workers",
    "FUNCTION why_open",
    "FUNCTION await_acknowledgements",
    "FUNCTION hold_removal",
    "FUNCTION forget_dropped",
    "FUNCTION close_recovery",
    "FUNCTION judge_delta",
    "FUNCTION is_recovering",
};

// The gate refuses without what only counts, tells, or forgets; and without a record of what
// was dropped the nodes have to be reset all the same.
static const char *const unneeded[] = {"count_recovery_refused",
                                       "count_recovery_failed",
                                       "purge",
                                       "job_name",
                                       "is_created",
                                       "note_dropped",
                                       "close_recovery",
                                       "forget_dropped",
                                       NULL};
// Without them no term moves: test_trigger_faults.c.
static const char *const of_the_term[] = {"setting", "term", "tag", "session_tag", NULL};

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

static void grant_term(struct scene *s)
{
    pgt_run(s->admin, "GRANT USAGE ON SCHEMA metafence TO meta; GRANT SELECT ON metafence.term"
                      " TO meta");
}

static void test_each_part_missing(void **state)
{
    struct scene *s = *state;

    make_impatient(s);
    grant_term(s);
    assert_unharmed(s, "nothing", "MF003");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *name = strchr(parts[i], ' ') + 1;
        int kind = (int)(name - parts[i] - 1);
        pgt_run(s->admin, "ALTER %.*s metafence.%s RENAME TO x", kind, parts[i], name);
        bool is_needed = !is_one_of(name, unneeded);
        assert_unharmed(s, parts[i], is_needed ? "" : "MF003");
        if (!is_one_of(name, of_the_term))
            assert_takeover(s, parts[i]);
        pgt_run(s->admin, "ALTER %.*s metafence.x RENAME TO %s", kind, parts[i], name);
        assert_unharmed(s, "it is healed", "MF003");
    }
    assert_true(counter(s, "recovery_failed") > 0);
    pgt_run(s->admin,
            "DROP FUNCTION metafence.count_recovery, metafence.note_recovery,"
            " metafence.judge_delta, metafence.open_recovery, metafence.note_dropped");
    assert_unharmed(s, "most is gone", "");
    PGconn *fresh = pgt_connect("meta", PGT_DATABASE, TAG_B1);
    drop_job(fresh, 12);
    begin_attempt(fresh, 0);
    assert_string_equal(remove_table(fresh, 1003), "");
    PQfinish(fresh);
}

// Each trigger calls one function in which something goes wrong.
static const struct {
    const char *name, *head;
    bool is_needed;
} insides[] = {
    {"marker_of", "marker_of(p_query text) RETURNS text", true},
    {"note_dropped",
     "note_dropped(p_schema text, p_fragment bigint, p_job bigint, p_old jsonb, p_new jsonb)"
     " RETURNS void",
     false},
    {"notify_recovery", "notify_recovery(p_text text) RETURNS void", true},
    {"is_pooled", "is_pooled() RETURNS boolean", true},
    {"forget_dropped", "forget_dropped(p_ids bigint[]) RETURNS void", false},
};

static PGresult *function_text(struct scene *s, const char *name)
{
    const char *values[] = {name};
    PGresult *result =
        PQexecParams(s->admin, "SELECT pg_get_functiondef(('metafence.' || $1::text)::regproc)",
                     1, NULL, values, NULL, NULL, 0);

    assert_int_equal(PQntuples(result), 1);
    return result;
}

static void replace_body(struct scene *s, const char *head, const char *body)
{
    pgt_run(s->admin,
            "CREATE OR REPLACE FUNCTION metafence.%s LANGUAGE plpgsql AS $$BEGIN %s; END $$",
            head, body);
}

static void test_raise_inside(void **state)
{
    struct scene *s = *state;
    static const char *const bodies[] = {
        "RAISE EXCEPTION 'boom'",
        "RAISE EXCEPTION USING ERRCODE = 'query_canceled', MESSAGE = 'boom'",
        "RAISE EXCEPTION USING ERRCODE = 'MF003', MESSAGE = 'boom'",
        "PERFORM 1/0",
        "RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'boom'",
        "RAISE EXCEPTION USING ERRCODE = '53200', MESSAGE = 'boom'",
        "PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(60)",
    };

    make_impatient(s);
    grant_term(s);
    drop_job(s->b1, 12); // something is pending
    for (size_t i = 0; i < sizeof insides / sizeof insides[0]; i++) {
        PGresult *saved = function_text(s, insides[i].name);
        // The record of what was dropped is not needed to refuse, nor is what comes behind it.
        const char *expected = insides[i].is_needed ? "" : "MF003";
        for (size_t k = 0; k < sizeof bodies / sizeof bodies[0]; k++) {
            replace_body(s, insides[i].head, bodies[k]);
            int64_t failed = counter(s, "recovery_failed");
            assert_unharmed(s, bodies[k], expected);
            assert_takeover(s, bodies[k]);
            // A removal outside of a recovery passes through the last one as well.
            assert_string_equal(remove_table(s->b1, 1), "");
            assert_true(counter(s, "recovery_failed") > failed);
        }
        pgt_run(s->admin, "%s", PQgetvalue(saved, 0, 0));
        PQclear(saved);
        assert_unharmed(s, "it is healed", "MF003");
    }
}

static void test_timeouts_and_cancels(void **state)
{
    struct scene *s = *state;
    char text[4096] = "INSERT INTO hummock_version_delta VALUES (1, 0, 0, 0, false, '\\x";

    drop_job(s->b1, 11);
    begin_attempt(s->b1, 0);
    // The session's own limit strikes while the removal waits.
    pgt_run(s->b1, "SET statement_timeout = '200ms'");
    assert_string_equal(remove_table(s->b1, 1001), "");
    pgt_run(s->b1, "SET statement_timeout = 0");
    assert_non_null(strstr(newest_purge(s), "failed: "));
    assert_non_null(strstr(newest_purge(s), "57014"));
    assert_int_equal(counter(s, "recovery_failed"), 1);
    // So does a cancel.
    uint32_t id = 1002;
    struct delta delta = delta_of(DELTA_REMOVAL, 1, &id, 1);
    size_t len = strlen(text);
    for (size_t i = 0; i < delta.len; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%02x", delta.bytes[i]);
    (void)snprintf(text + len, sizeof text - len, "')");
    delta_free(&delta);
    bool is_cancelled = false;
    for (int tries = 0; !is_cancelled; tries++) {
        assert_true(tries < 20); // refused before this machine came to cancel it
        begin_attempt(s->b1, 0);
        assert_int_equal(PQsendQuery(s->b1, text), 1);
        bool was_waiting = false;
        while (!was_waiting && !(PQconsumeInput(s->b1) && !PQisBusy(s->b1)))
            was_waiting = strcmp(state_of_recovery(s, "is_waiting"), "true") == 0;
        PGcancel *cancel = PQgetCancel(s->b1);
        char error[128];
        assert_int_equal(PQcancel(cancel, error, sizeof error), 1);
        PQfreeCancel(cancel);
        PGresult *result = PQgetResult(s->b1);
        const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
        is_cancelled = !sqlstate;
        assert_true(is_cancelled || strcmp(sqlstate, "MF003") == 0);
        PQclear(result);
        assert_null(PQgetResult(s->b1));
        (void)pgt_try(s->b1, "SELECT 1"); // a cancel that came late ends here
    }
    assert_string_equal(pgt_get(s->b1, "SHOW lock_timeout"), "0");
    assert_int_equal(counter(s, "recovery_failed"), 2);
}

// Somebody holds what the triggers want to write.
static void test_locked_tables(void **state)
{
    struct scene *s = *state;
    static const char *const locked[] = {"setting", "recovery", "dropped",
                                         "gate",    "purge",    "acknowledgement"};

    make_impatient(s);
    grant_term(s);
    for (size_t i = 0; i < sizeof locked / sizeof locked[0]; i++) {
        pgt_run(s->admin, "BEGIN; LOCK TABLE metafence.%s IN ACCESS EXCLUSIVE MODE", locked[i]);
        struct instant begin = clock_now();
        assert_unharmed(s, locked[i], strcmp(locked[i], "purge") == 0 ? "MF003" : "");
        if (i > 0) // on_hold itself passes
            assert_takeover(s, locked[i]);
        assert_true(instant_since(clock_now(), begin) < 30 * NS_PER_SEC);
        pgt_run(s->admin, "COMMIT");
    }
    assert_unharmed(s, "they are free", "MF003");
}

// Each trigger missing or off, as an uninstallation under way leaves it.
static void test_half_uninstalled(void **state)
{
    struct scene *s = *state;
    static const char *const tables[] = {"object", "streaming_job", "fragment",
                                         "hummock_version_delta"};
    static const char *const expected[] = {"", "MF003", "MF003", ""};

    make_impatient(s);
    for (size_t i = 0; i < 4; i++) {
        pgt_run(s->admin, "ALTER TABLE %s DISABLE TRIGGER metafence_recovery", tables[i]);
        assert_unharmed(s, tables[i], expected[i]);
        assert_string_equal(pgt_get(s->admin, "SELECT string_agg(name, ' ') FROM"
                                              " metafence.uncovered_tables()"),
                            tables[i]);
        while (strcmp(pgt_get(s->admin, "SELECT metafence.complete()"), "0") != 0)
            ;
        assert_unharmed(s, "it is completed", "MF003");
    }
    // The guard's triggers are put there anew without those of the recovery.
    pgt_run(s->admin, "DROP TRIGGER metafence_insert ON hummock_version_delta");
    guard_tables(s->admin);
    assert_unharmed(s, "the guard is completed", "MF003");
}

static const struct CMUnitTest tests[] = {
    RECOVERY_TEST(test_each_part_missing),    RECOVERY_TEST(test_raise_inside),
    RECOVERY_TEST(test_timeouts_and_cancels), RECOVERY_TEST(test_locked_tables),
    RECOVERY_TEST(test_half_uninstalled),
};

UNIT_MAIN(tests)
