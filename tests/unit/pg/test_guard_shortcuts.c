// SPDX-License-Identifier: Apache-2.0
// The owner is judged once a session and move of the term: whatever a session does with its
// transaction, its settings and its statements, a superseded tag gets nothing by it.
#include "tests/unit/pg/scene.h"

#include <stdio.h>
#include <string.h>

#include "sql/sql.h"

#define WRITE "UPDATE hummock_sequence SET seq = seq + 1"

// a1 led term 1, b1 leads term 2.
static void two_terms(struct scene *s)
{
    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->a1, "INSERT INTO hummock_sequence VALUES ('x', 1)");
    take_over(s, s->b1, "meta-b");
}

static void assert_refused(PGconn *pq, const char *sql)
{
    const char *state = pgt_try(pq, "%s", sql);

    if (strcmp(state, "MF001") != 0)
        fail_msg("%s: \"%s\"", sql, state);
}

static void test_what_a_session_knows(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    // Of itself, beyond its transaction …
    pgt_run(s->b1, "BEGIN; " WRITE "; COMMIT");
    assert_string_equal(pgt_get(s->b1, "SHOW metafence.owner"), TAG_B1);
    // … until the term moves …
    assert_string_equal(pgt_get(s->a1, "SHOW metafence.owner"), TAG_A1);
    assert_refused(s->a1, WRITE);
    // … and of nobody else.
    pgt_run(s->a1, "SET metafence.owner = '" TAG_B1 "'");
    assert_refused(s->a1, WRITE);
    pgt_run(s->a1, "SET metafence.gate = ''");
    assert_refused(s->a1, WRITE);
    // Who knows better could as well take off its tag: what is kept out are metas.
    const char *moves = pgt_get(s->admin, "SELECT last_value FROM metafence.moves");
    pgt_run(s->a1,
            "SET metafence.owner = '" TAG_A1 "'; SET metafence.owner_since = '%s';" WRITE,
            moves);
    pgt_run(s->a1, "RESET metafence.owner_since");
    assert_refused(s->a1, WRITE);
    // An installation from before another has nothing in common with it.
    pgt_run(s->admin, "DROP SEQUENCE metafence.moves");
    PGresult *again = PQexec(s->admin, sql_schema);
    assert_int_equal(PQresultStatus(again), PGRES_COMMAND_OK);
    PQclear(again);
    assert_string_equal(pgt_get(s->admin, "SELECT last_value > %s FROM metafence.moves", moves),
                        "t");
}

// A takeover that got no lock is under way: its move is counted, and not to be seen yet. What
// is judged meanwhile holds for that statement alone.
static void test_nothing_is_kept_while_it_moves(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    set_guard(s, "observe"); // ends nobody
    pgt_run(s->b1, "BEGIN; " WRITE);
    pgt_run(s->a2, "BEGIN");
    pgt_run(s->admin, "UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
    assert_string_equal(pgt_campaign(s->a2, "meta-c"), "meta-c");
    assert_int_equal(counter(s, "takeover_without_lock"), 1);
    pgt_run(s->b1, WRITE);
    assert_int_equal(counter(s, "observed"), 0);
    pgt_run(s->a2, "COMMIT");
    pgt_run(s->b1, WRITE);
    assert_int_equal(counter(s, "observed"),
                     1); // though the lock and the transaction are the same
    pgt_run(s->b1, "COMMIT");
    set_guard(s, "enforce");
    assert_refused(s->b1, WRITE);
    pgt_run(s->a2, WRITE);
    assert_string_equal(pgt_get(s->a2, "SHOW metafence.owner"), TAG_A2);
}

// What a transaction gives back it has to be given again.
static void test_what_gives_up_the_lock(void **state)
{
    struct scene *s = *state;
    static const char *const ends[] = {
        "ROLLBACK TO before", "ROLLBACK TO before; RELEASE before",
        "ROLLBACK; BEGIN",    "COMMIT; BEGIN",
        "COMMIT AND CHAIN",   "COMMIT",
    };
    char tag[64];

    two_terms(s);
    for (unsigned i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        (void)snprintf(tag, sizeof tag, "metafence:cccccccc:%016x", i);
        pgt_run(s->a2, "SET application_name = '%s'", tag);
        take_over(s, s->a2, "meta-c");
        pgt_run(s->a2, "BEGIN; SAVEPOINT before; " WRITE);
        pgt_run(s->a2, "%s", ends[i]);
        if (strcmp(ends[i], "COMMIT") == 0) {
            pgt_run(s->a2, "DISCARD ALL");
            pgt_run(s->a2, "SET application_name = '%s'", tag);
        }
        pgt_run(s->a3, "SET application_name = 'metafence:dddddddd:%016x'", i);
        take_over(s, s->a3, "meta-d");
        assert_refused(s->a2, WRITE);
        (void)pgt_try(s->a2, "ROLLBACK");
    }
    assert_int_equal(counter(s, "ended") + counter(s, "takeover_without_lock"), 0);
}

// In the middle of a transaction that has been let pass.
static void test_settings_within_a_transaction(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    // A pooler hands the session on, or it is renamed.
    pgt_run(s->b1, "BEGIN; " WRITE "; SET LOCAL application_name = '" TAG_A1 "'");
    assert_refused(s->b1, WRITE);
    pgt_run(s->b1, "ROLLBACK; " WRITE);
    pgt_run(s->b1, "SET application_name = '" TAG_A1 "'");
    assert_refused(s->b1, WRITE);
    pgt_run(s->b1, "SET application_name = '" TAG_B1 "'; " WRITE);
    // Its settings are gone: judged again, and let pass again.
    pgt_run(s->b1, "BEGIN; " WRITE "; RESET ALL; " WRITE "; COMMIT");
    // Nameless after a tag: untagged, and nothing worse.
    pgt_run(s->b1, "BEGIN; " WRITE "; SET LOCAL application_name = ''; " WRITE "; COMMIT");
    // Counted, as each without a tag: a pooler that takes names off is known by that.
    int64_t before = counter(s, "untagged");
    pgt_run(s->b1, "SET application_name = ''; " WRITE);
    assert_int_equal(counter(s, "untagged"), before + 1);
    assert_int_equal(counter(s, "refused"), 2);
}

static void test_mode_within_a_transaction(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    set_guard(s, "observe");
    pgt_run(s->a1, "BEGIN; " WRITE);
    pgt_run(s->b1, "BEGIN; INSERT INTO catalog_version VALUES ('x', 1)");
    set_guard(s, "enforce");
    assert_refused(s->a1, WRITE);
    pgt_run(s->a1, "ROLLBACK; BEGIN");
    set_guard(s, "off");
    pgt_run(s->a1, "INSERT INTO hummock_gc_history VALUES (1, now())");
    set_guard(s, "enforce");
    assert_refused(s->a1, "DELETE FROM hummock_gc_history");
    pgt_run(s->a1, "ROLLBACK");
    pgt_run(s->b1, "UPDATE catalog_version SET version = 2; COMMIT");
    assert_int_equal(counter(s, "observed"), 1); // its record went back with it
}

static void test_another_role(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    if (strcmp(pgt_get(s->admin, "SELECT count(*) FROM pg_roles WHERE rolname = 'deputy'"),
               "0") == 0)
        pgt_run(s->admin, "CREATE ROLE deputy");
    pgt_run(s->admin, "GRANT deputy TO meta; GRANT ALL ON hummock_sequence TO deputy");
    PGconn *const sessions[] = {s->a1, s->b1};
    for (size_t i = 0; i < 2; i++)
        pgt_run(sessions[i], "SET ROLE deputy");
    assert_refused(s->a1, WRITE);
    pgt_run(s->b1, "BEGIN; " WRITE "; " WRITE "; COMMIT"); // without a right in our schema
    assert_int_equal(counter(s, "unreadable"), 0);
    for (size_t i = 0; i < 2; i++)
        pgt_run(sessions[i], "RESET ROLE");
    pgt_run(s->admin, "DROP OWNED BY deputy; DROP ROLE deputy");
}

// --- kinds of statements ---

static void copy_in(PGconn *pq, const char *rows, const char *expected)
{
    PGresult *result = PQexec(pq, "COPY hummock_sequence FROM STDIN");

    assert_int_equal(PQresultStatus(result), PGRES_COPY_IN);
    PQclear(result);
    assert_int_equal(PQputCopyData(pq, rows, (int)strlen(rows)), 1);
    assert_int_equal(PQputCopyEnd(pq, NULL), 1);
    result = PQgetResult(pq);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    assert_string_equal(state ? state : "", expected);
    if (state)
        assert_non_null(strstr(PQresultErrorMessage(result), "key name=y"));
    PQclear(result);
    assert_null(PQgetResult(pq));
}

static void test_kinds_of_statements(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    copy_in(s->a1, "y\t1\nz\t1\n", "MF001");
    copy_in(s->b1, "y\t1\nz\t1\n", "");
    assert_refused(s->a1, "WITH gone AS (DELETE FROM hummock_sequence RETURNING 1), new AS"
                          " (INSERT INTO catalog_version VALUES ('n', 1) RETURNING 1)"
                          " SELECT count(*) FROM gone, new");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM hummock_sequence"), "3");
    assert_refused(s->a1, "INSERT INTO hummock_sequence VALUES ('x', 9) ON CONFLICT (name) DO"
                          " UPDATE SET seq = excluded.seq");
    assert_non_null(
        strstr(pgt_message(s->a1), "UPDATE of hummock_sequence refused: key name=x"));
    // What writes nothing is not refused.
    pgt_run(s->a1, "INSERT INTO hummock_sequence VALUES ('x', 9) ON CONFLICT DO NOTHING");
    pgt_run(s->a1, WRITE " WHERE name = 'nobody'");
    assert_refused(s->a1, "DO $$ BEGIN UPDATE hummock_sequence SET seq = 9; END $$");
    assert_string_equal(pgt_get(s->admin, "SELECT max(seq) FROM hummock_sequence"), "1");
}

static void test_prepared_statements(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    // Beyond the plans that are made for their parameters.
    pgt_run(s->b1, "PREPARE w(bigint) AS UPDATE hummock_sequence SET seq = $1");
    for (int i = 0; i < 8; i++)
        pgt_run(s->b1, "EXECUTE w(2)");
    pgt_run(s->b1, "BEGIN; EXECUTE w(3); EXECUTE w(3); COMMIT");
    take_over(s, s->a2, "meta-a");
    assert_refused(s->b1, "EXECUTE w(4)");
    pgt_run(s->b1, "BEGIN");
    assert_refused(s->b1, "EXECUTE w(5)");
    pgt_run(s->b1, "ROLLBACK");
    assert_string_equal(pgt_get(s->admin, "SELECT seq FROM hummock_sequence"), "3");
}

// A statement is judged at its end. Until then it has no lock that a takeover would wait for,
// but rows that the new leader may need: what is not soon at its end is ended, and so is who
// only keeps rows.
static void test_statement_in_flight(void **state)
{
    struct scene *s = *state;
    static const char *const statements[] = {
        WRITE,
        WRITE " WHERE name = 'x' OR pg_sleep(600) IS NULL",
        "BEGIN; SELECT FROM hummock_sequence FOR UPDATE; SELECT pg_sleep(600)",
    };

    two_terms(s);
    pgt_run(s->b1, "INSERT INTO hummock_sequence VALUES ('y', 1)");
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        PGconn *old = pgt_connect("meta", PGT_DATABASE, "");
        pgt_run(old, "SET application_name = 'metafence:cccccccc:%016zx'", i);
        take_over(s, old, "meta-c");
        if (i == 0) // it has x, and waits for y
            pgt_run(s->psql, "BEGIN; UPDATE hummock_sequence SET seq = 2 WHERE name = 'y'");
        assert_int_equal(PQsendQuery(old, statements[i]), 1);
        while (strcmp(pgt_get(s->admin,
                              "SELECT count(*) FROM pg_stat_activity WHERE pid = %d AND"
                              " wait_event IN ('PgSleep', 'transactionid')",
                              PQbackendPID(old)),
                      "1") != 0)
            ;
        pgt_run(s->admin, "UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
        pgt_run(s->a3, "SET application_name = 'metafence:dddddddd:%016zx'", i);
        assert_string_equal(pgt_campaign(s->a3, "meta-d"), "meta-d");
        assert_int_equal(counter(s, "ended"), i + 1);
        // The new leader waits for nobody.
        pgt_run(s->a3, "SET statement_timeout = '60s'; " WRITE " WHERE name = 'x';"
                       "SET statement_timeout = 0");
        PGresult *result;
        while ((result = PQgetResult(old)))
            PQclear(result);
        assert_int_equal(PQstatus(old), CONNECTION_BAD);
        PQfinish(old);
        if (i == 0)
            pgt_run(s->psql, "ROLLBACK");
    }
    assert_int_equal(counter(s, "takeover_without_lock"), 0);
    assert_string_equal(pgt_get(s->admin, "SELECT sum(seq) FROM hummock_sequence"), "5");
}

// Who is at its end and waits for the takeover is refused, and says why.
static void test_statement_at_its_end(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    pgt_run(s->a3, "BEGIN");
    pgt_run(s->admin, "UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
    assert_string_equal(pgt_campaign(s->a3, "meta-c"), "meta-c"); // not committed yet
    assert_int_equal(PQsendQuery(s->b1, WRITE), 1);
    await_lock_wait(s, s->b1);
    pgt_run(s->a3, "COMMIT");
    PGresult *result = PQgetResult(s->b1);
    assert_string_equal(PQresultErrorField(result, PG_DIAG_SQLSTATE), "MF001");
    PQclear(result);
    assert_null(PQgetResult(s->b1));
    assert_int_equal(counter(s, "ended") + counter(s, "takeover_without_lock"), 0);
}

// --- who can put names in our way ---

// The shortcuts run with the session's search_path and our rights.
static void test_hostile_names(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    pgt_run(s->admin, "SELECT metafence.cover_recovery('hummock_version_delta')");
    pgt_run(s->admin, "CREATE SCHEMA evil AUTHORIZATION meta");
    pgt_run(s->psql,
            "CREATE SEQUENCE evil.spied_on; GRANT USAGE ON SEQUENCE evil.spied_on TO PUBLIC;"
            "CREATE TABLE evil.metafence_rows (x int); CREATE TABLE evil.tag (tag text);"
            "CREATE FUNCTION evil.spy(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN"
            " IF current_user <> 'meta' THEN PERFORM nextval('evil.spied_on'); END IF;"
            " RETURN true; END$$;"
            "CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.spy);"
            "CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.spy);"
            "CREATE OPERATOR evil.~~ (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.spy);"
            "CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE sql AS"
            " 'SELECT $$psql$$';"
            "CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS"
            " 'SELECT $$psql$$';"
            "CREATE FUNCTION evil.format(text, VARIADIC text[]) RETURNS text LANGUAGE sql AS"
            " 'SELECT $$evil$$'");
    static const char *const paths[] = {"evil, public, pg_catalog", "''"};
    for (size_t i = 0; i < 2; i++) {
        pgt_run(s->a1, "SET search_path = %s", paths[i]);
        pgt_run(s->b1, "SET search_path = %s", paths[i]);
        assert_refused(s->a1, "UPDATE public.hummock_sequence SET seq = 9");
        assert_non_null(strstr(pgt_message(s->a1), "key name=x, session " TAG_A1));
        pgt_run(s->b1,
                "BEGIN; UPDATE public.hummock_sequence SET seq = 5;"
                "INSERT INTO public.hummock_version_delta VALUES (%zu, 0, 0, 0, false,"
                " '\\x4a'); COMMIT",
                i);
    }
    assert_string_equal(pgt_get(s->admin, "SELECT is_called FROM evil.spied_on"), "f");
    assert_int_equal(counter(s, "unreadable") + counter(s, "recovery_failed"), 0);
}

// Types and tables are looked for in pg_temp first, whatever the search_path says: a domain
// there has a constraint, which would run with our rights wherever a function declares a bare
// name.
static void test_hostile_types(void **state)
{
    struct scene *s = *state;
    static const char *const tags[] = {TAG_A1, TAG_B1};
    static const char *const types[] = {"text", "jsonb", "bool",  "int4",   "int8",   "oid",
                                        "name", "bytea", "_text", "_jsonb", "regtype"};

    two_terms(s);
    pgt_run(s->admin, "SELECT metafence.cover_recovery('hummock_version_delta');"
                      "CREATE SEQUENCE public.spied_on;"
                      "GRANT USAGE ON SEQUENCE public.spied_on TO PUBLIC;"
                      "INSERT INTO metafence.dropped (fragment_id, job_id, table_ids, xid,"
                      " dropped_at) VALUES (1, 1, '{7}', pg_current_xact_id(), now())");
    for (size_t i = 0; i < 2; i++) {
        PGconn *fresh = pgt_connect("meta", PGT_DATABASE, tags[i]); // nothing is compiled yet
        pgt_run(fresh,
                "CREATE FUNCTION pg_temp.spy(anyelement) RETURNS boolean LANGUAGE plpgsql AS $$"
                "BEGIN IF current_user <> 'meta' THEN PERFORM nextval('public.spied_on');"
                " END IF; RETURN true; END$$");
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++)
            pgt_run(fresh,
                    "CREATE DOMAIN pg_temp.%s AS pg_catalog.%s"
                    " CHECK (pg_temp.spy(VALUE))",
                    types[k], types[k]);
        const char *write = "UPDATE hummock_sequence SET seq = 5";
        if (i == 0)
            assert_refused(fresh, write);
        else
            pgt_run(
                fresh,
                "%s; DELETE FROM worker; INSERT INTO hummock_version_delta VALUES (1, 0, 0, 0,"
                " false, '\\x08014a0107')",
                write);
        assert_string_equal(pgt_campaign(fresh, "meta-b"), "meta-b");
        PQfinish(fresh);
    }
    // The delta was read.
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.dropped"), "0");
    assert_string_equal(pgt_get(s->admin, "SELECT is_called FROM public.spied_on"), "f");
    assert_int_equal(counter(s, "unreadable") + counter(s, "recovery_failed"), 0);
}

// Whoever plans a SELECT runs what the table's owner has put into the predicate of an index.
static void test_hostile_index(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    pgt_run(s->b1, "INSERT INTO worker VALUES (1, 'C', 'host', 1, 'S')");
    pgt_run(s->psql,
            "CREATE SEQUENCE spied_on; GRANT USAGE ON SEQUENCE spied_on TO PUBLIC;"
            "CREATE FUNCTION spy(integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$BEGIN"
            " IF current_user <> 'meta' THEN PERFORM nextval('public.spied_on'); END IF;"
            " RETURN true; END$$;"
            "CREATE INDEX ON worker (worker_id) WHERE spy(1);"
            "CREATE INDEX ON worker_property (worker_id) WHERE spy(1);"
            "CREATE INDEX ON hummock_sequence (name) WHERE spy(1)");
    assert_string_equal(pgt_get(s->admin,
                                "SELECT metafence.intend('svc', 2, 1, 'host', 1, row_version)"
                                " FROM metafence.workers()"),
                        "t");
    PGconn *fresh = pgt_connect("meta", PGT_DATABASE, TAG_B1); // nothing is planned yet
    pgt_run(fresh, "DELETE FROM worker; " WRITE);
    PQfinish(fresh);
    fresh = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    assert_refused(fresh, WRITE);
    PQfinish(fresh);
    assert_string_equal(pgt_get(s->admin, "SELECT is_called FROM spied_on"), "f");
    assert_int_equal(counter(s, "unreadable") + counter(s, "intended"), 0);
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_what_a_session_knows),
    SCENE_TEST(test_nothing_is_kept_while_it_moves),
    SCENE_TEST(test_what_gives_up_the_lock),
    SCENE_TEST(test_settings_within_a_transaction),
    SCENE_TEST(test_mode_within_a_transaction),
    SCENE_TEST(test_another_role),
    SCENE_TEST(test_kinds_of_statements),
    SCENE_TEST(test_prepared_statements),
    SCENE_TEST(test_statement_in_flight),
    SCENE_TEST(test_statement_at_its_end),
    SCENE_TEST(test_hostile_names),
    SCENE_TEST(test_hostile_types),
    SCENE_TEST(test_hostile_index),
};

UNIT_MAIN(tests)
