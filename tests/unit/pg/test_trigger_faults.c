// SPDX-License-Identifier: Apache-2.0
// Whatever goes wrong inside the term trigger, the election's statement does not notice; and
// the functions beside it.
#include "tests/unit/pg/scene.h"

#include <stdio.h>
#include <string.h>

#include "sql/sql.h"

// --- faults inside the trigger ---

static void test_lost_bookkeeping(void **state)
{
    struct scene *s = *state;

    set_guard(s, "observe"); // two incarnations take turns for ever
    (void)pgt_campaign(s->a1, "meta-a");
    static const char *const faults[] = {
        "ALTER TABLE metafence.renewal RENAME TO x",
        "ALTER TABLE metafence.x RENAME TO renewal",
        "ALTER TABLE metafence.tag RENAME TO x",
        "ALTER TABLE metafence.x RENAME TO tag",
        "ALTER TABLE metafence.term RENAME TO x",
        "ALTER TABLE metafence.x RENAME TO term",
        "ALTER FUNCTION metafence.move_term RENAME TO x",
        "ALTER FUNCTION metafence.x RENAME TO move_term",
        "REVOKE ALL ON metafence.term FROM postgres",
        "GRANT ALL ON metafence.term TO postgres",
        "ALTER TABLE metafence.term ADD CHECK (term < 2) NOT VALID",
        "ALTER TABLE metafence.term DROP CONSTRAINT term_term_check",
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        pgt_run(s->admin, "%s", faults[i]);
        if (i % 2 == 0) {
            expire(s);
            assert_string_equal(pgt_campaign(s->b1, "meta-b"), "meta-b");
            expire(s);
            assert_string_equal(pgt_campaign(s->a2, "meta-a"), "meta-a");
        } else {
            // Healed: the next renewal makes up for it.
            assert_string_equal(pgt_campaign(s->a2, "meta-a"), "meta-a");
            assert_string_equal(pgt_get(s->admin, "SELECT owner_id FROM metafence.term"),
                                "meta-a");
        }
    }
    // A new session compiles the function anew: nothing of it may fail then.
    pgt_run(s->admin,
            "DROP TABLE metafence.term, metafence.tag, metafence.renewal, metafence.setting");
    PGconn *fresh = pgt_connect("meta", PGT_DATABASE, TAG_A3);
    assert_string_equal(pgt_campaign(fresh, "meta-a"), "meta-a");
    pgt_run(s->admin, "DROP FUNCTION metafence.session_tag, metafence.move_term");
    assert_string_equal(pgt_campaign(fresh, "meta-a"), "meta-a");
    PQfinish(fresh);
}

static void test_raise_inside(void **state)
{
    struct scene *s = *state;
    static const char *const bodies[] = {
        "RAISE EXCEPTION 'boom'",
        "RAISE EXCEPTION USING ERRCODE = 'query_canceled', MESSAGE = 'boom'",
        "PERFORM 1/0",
        "RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'boom'",
        "PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(1)",
    };

    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        pgt_run(s->admin,
                "CREATE OR REPLACE FUNCTION metafence.session_tag() RETURNS text LANGUAGE "
                "plpgsql AS $$"
                "BEGIN %s; RETURN NULL; END $$",
                bodies[i]);
        assert_string_equal(pgt_campaign(s->a1, "meta-a"), "meta-a");
        assert_string_equal(pgt_get(s->psql, "SELECT id FROM election_leader"), "meta-a");
    }
}

static void test_statement_timeout_inside(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->admin, "BEGIN; LOCK TABLE metafence.term IN ACCESS EXCLUSIVE MODE");
    // The trigger's own limit: the campaign goes on after 100 ms, without an error and a term.
    struct instant begin = clock_now();
    assert_string_equal(pgt_campaign(s->a1, "meta-a"), "meta-a");
    assert_in_range(instant_since(clock_now(), begin) / NS_PER_MS, 95, 2000);
    pgt_run(s->admin, "COMMIT");
    // The session's statement_timeout strikes while the trigger waits: swallowed as well.
    pgt_run(s->admin, "ALTER FUNCTION metafence.on_campaign() SET lock_timeout = '20s'");
    pgt_run(s->admin, "BEGIN; LOCK TABLE metafence.term IN ACCESS EXCLUSIVE MODE");
    pgt_run(s->a1, "SET statement_timeout = '150ms'");
    begin = clock_now();
    assert_string_equal(pgt_campaign(s->a1, "meta-a"), "meta-a");
    assert_in_range(instant_since(clock_now(), begin) / NS_PER_MS, 145, 5000);
    pgt_run(s->admin, "COMMIT");
    // The limit is the function's own, not the session's.
    assert_string_equal(pgt_get(s->a1, "SHOW lock_timeout"), "0");
}

static void test_cancel_inside(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->admin, "ALTER FUNCTION metafence.on_campaign() SET lock_timeout = '10s'");
    pgt_run(s->admin, "BEGIN; LOCK TABLE metafence.term IN ACCESS EXCLUSIVE MODE");
    assert_int_equal(
        PQsendQuery(s->a1, "UPDATE election_leader SET last_heartbeat = '2030-01-01'"), 1);
    while (strcmp(pgt_get(s->psql,
                          "SELECT count(*) FROM pg_stat_activity WHERE pid = %d AND"
                          " wait_event_type = 'Lock'",
                          PQbackendPID(s->a1)),
                  "1") != 0)
        ;
    pgt_run(s->psql, "SELECT pg_cancel_backend(%d)", PQbackendPID(s->a1));
    PGresult *result = PQgetResult(s->a1);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    assert_null(PQgetResult(s->a1));
    pgt_run(s->admin, "COMMIT");
    assert_string_equal(pgt_get(s->psql, "SELECT last_heartbeat::date FROM election_leader"),
                        "2030-01-01");
}

static void test_serializable(void **state)
{
    struct scene *s = *state;

    pgt_run(s->a1, "SET default_transaction_isolation = 'serializable'");
    pgt_run(s->b1, "SET default_transaction_isolation = 'repeatable read'");
    (void)pgt_campaign(s->a1, "meta-a");
    expire(s);
    assert_string_equal(pgt_campaign(s->b1, "meta-b"), "meta-b");
    assert_term(s, "2 " TAG_B1 " meta-b");
}

// --- functions ---

static void test_end_sessions(void **state)
{
    struct scene *s = *state;

    // A statement of a dead process that waits on a lock would still commit (m1).
    pgt_run(s->admin, "CREATE TABLE data (i int); GRANT ALL ON data TO meta");
    pgt_run(s->admin, "BEGIN; LOCK TABLE data");
    assert_int_equal(PQsendQuery(s->a1, "INSERT INTO data VALUES (1)"), 1);
    PGconn *other = pgt_connect("postgres", PGT_DATABASE, "scene");
    // The same tag in another database is not ours to end.
    PGconn *elsewhere = pgt_connect("meta", "postgres", TAG_A1);
    assert_string_equal(pgt_get(other, "SELECT metafence.end_sessions('" TAG_A1 "')"), "1");
    while (strcmp(pgt_get(other, "SELECT metafence.end_sessions('" TAG_A1 "')"), "0") != 0)
        ;
    pgt_run(s->admin, "COMMIT");
    assert_string_equal(pgt_get(other, "SELECT count(*) FROM data"), "0");
    assert_string_equal(pgt_get(elsewhere, "SELECT 1"), "1");
    assert_string_equal(pgt_get(s->b1, "SELECT 1"), "1");
    assert_string_equal(pgt_try(other, "SELECT metafence.end_sessions('psql')"), "22023");
    assert_string_equal(pgt_try(other, "SELECT metafence.end_sessions(NULL)"), "22023");
    PQfinish(other);
    PQfinish(elsewhere);
}

static void test_end_sessions_without_right(void **state)
{
    struct scene *s = *state;

    // An owner of the schema that may not end the meta's sessions must not say "none left".
    pgt_run(s->admin, "DROP ROLE IF EXISTS weak; CREATE ROLE weak");
    pgt_run(s->admin, "GRANT USAGE ON SCHEMA metafence TO weak; GRANT EXECUTE ON FUNCTION "
                      "metafence.end_sessions TO"
                      " weak; ALTER FUNCTION metafence.end_sessions OWNER TO weak");
    assert_string_equal(pgt_try(s->admin, "SELECT metafence.end_sessions('" TAG_A1 "')"),
                        "42501");
    pgt_run(s->admin, "GRANT pg_signal_backend TO weak");
    assert_string_equal(pgt_try(s->admin, "SELECT metafence.end_sessions('" TAG_A1 "')"), "");
    pgt_run(s->admin, "ALTER FUNCTION metafence.end_sessions OWNER TO postgres; DROP OWNED BY "
                      "weak; DROP ROLE weak");
}

static void test_deaths_and_phantom(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    assert_string_equal(pgt_get(s->admin, "SELECT metafence.record_death('" TAG_A1
                                          "', 'meta-a', 'permit', 'x')"),
                        "t");
    assert_string_equal(pgt_get(s->admin, "SELECT metafence.record_death('" TAG_A1
                                          "', 'meta-a', 'permit', 'y')"),
                        "f");
    assert_string_equal(
        pgt_get(s->admin,
                "SELECT concat_ws(' ', id, term, method, reason) FROM metafence.death"),
        "meta-a 1 permit x");
    assert_string_equal(
        pgt_get(s->admin, "SELECT metafence.drop_phantom('svc', 'meta-a', now())"), "0");
    assert_string_equal(
        pgt_get(s->admin, "SELECT metafence.drop_phantom('svc', 'meta-b', last_heartbeat) FROM"
                          " election_leader"),
        "0");
    assert_string_equal(
        pgt_get(s->admin, "SELECT metafence.drop_phantom('svc', 'meta-a', last_heartbeat) FROM"
                          " election_leader"),
        "1");
    // Nobody else may call any of it, or read the tables.
    assert_string_equal(pgt_try(s->psql, "SELECT metafence.record_death('a', 'b', 'c', 'd')"),
                        "42501");
    assert_string_equal(pgt_try(s->psql, "SELECT * FROM metafence.term"), "42501");
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_lost_bookkeeping),
    SCENE_TEST(test_raise_inside),
    SCENE_TEST(test_statement_timeout_inside),
    SCENE_TEST(test_cancel_inside),
    SCENE_TEST(test_serializable),
    SCENE_TEST(test_end_sessions),
    SCENE_TEST(test_end_sessions_without_right),
    SCENE_TEST(test_deaths_and_phantom),
};

UNIT_MAIN(tests)
