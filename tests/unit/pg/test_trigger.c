// SPDX-License-Identifier: Apache-2.0
// The term trigger on a real Postgres: who owns the term after handovers, restarts and twins,
// and that the election's statement never notices it.
#include "tests/unit/pg/pgtest.h"

#include <stdio.h>
#include <string.h>

#include "sql/sql.h"

// Tags of different incarnations: letter of the pod, number of the start.
#define TAG_A1 "metafence:aaaaaaaa:0000000000000001"
#define TAG_A2 "metafence:aaaaaaaa:0000000000000002"
#define TAG_A3 "metafence:aaaaaaaa:0000000000000003"
#define TAG_B1 "metafence:bbbbbbbb:0000000000000001"

struct scene {
    PGconn *admin;
    PGconn *a1, *a2, *a3, *b1; // sessions of role meta with these tags
    PGconn *psql;              // an untagged session of role meta
};

static int scene_setup(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);

    pgt_fresh_database();
    scene->admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    scene->a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    scene->a2 = pgt_connect("meta", PGT_DATABASE, TAG_A2);
    scene->a3 = pgt_connect("meta", PGT_DATABASE, TAG_A3);
    scene->b1 = pgt_connect("meta", PGT_DATABASE, TAG_B1);
    scene->psql = pgt_connect("meta", PGT_DATABASE, "psql");
    pgt_run(scene->psql, PGT_TABLES);
    // By an owner that is not the meta: its sessions must need no right in the schema.
    PGresult *result = PQexec(scene->admin, sql_schema);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    pgt_run(scene->admin,
            "CREATE TRIGGER " SQL_TRIGGER_NAME " AFTER INSERT OR UPDATE ON election_leader"
            " FOR EACH ROW EXECUTE FUNCTION metafence.on_campaign()");
    *state = scene;
    return 0;
}

static int scene_teardown(void **state)
{
    struct scene *scene = *state;

    PQfinish(scene->a1);
    PQfinish(scene->a2);
    PQfinish(scene->a3);
    PQfinish(scene->b1);
    PQfinish(scene->psql);
    PQfinish(scene->admin);
    free(scene);
    return 0;
}

#define TERM                                                                                   \
    "(SELECT concat_ws(' ', term, coalesce(owner_tag, '-'), owner_id) FROM metafence.term)"

static void assert_term(struct scene *scene, const char *expected)
{
    assert_string_equal(pgt_get(scene->admin, "SELECT " TERM), expected);
}

static const char *tag_row(struct scene *scene, const char *tag)
{
    return pgt_get(scene->admin,
                   "SELECT concat_ws(' ', coalesce(owned_term::text, '-'), superseded) FROM"
                   " metafence.tag WHERE tag = '%s'",
                   tag);
}

static void expire(struct scene *scene)
{
    pgt_run(scene->psql, "UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
}

static void test_first_and_renewals(void **state)
{
    struct scene *s = *state;

    assert_string_equal(pgt_campaign(s->a1, "meta-a"), "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    assert_string_equal(tag_row(s, TAG_A1), "1 f");
    for (int i = 0; i < 5; i++)
        assert_string_equal(pgt_campaign(s->a1, "meta-a"), "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    assert_string_equal(pgt_get(s->admin,
                                "SELECT r.tag FROM metafence.renewal r JOIN election_leader l"
                                " ON l.last_heartbeat = r.heartbeat"),
                        TAG_A1);
    // A follower rewrites the row unchanged: it leaves no trace.
    assert_string_equal(pgt_campaign(s->b1, "meta-b"), "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    assert_string_equal(tag_row(s, TAG_B1), "NULL");
    // The database that granted it.
    assert_string_equal(
        pgt_get(s->admin, "SELECT t.system_id = c.system_identifier::text AND t.timeline ="
                          " '00000001' FROM metafence.term t, pg_control_system() c"),
        "t");
}

static void test_handovers(void **state)
{
    struct scene *s = *state;
    char expected[128];

    // k1: fifty forced handovers, the right owner each time, every incarnation with its own
    // tag.
    for (int i = 1; i <= 50; i++) {
        char tag[64], id[8];
        (void)snprintf(tag, sizeof tag, "metafence:cccccccc:%016x", (unsigned)i);
        (void)snprintf(id, sizeof id, "meta-%d", i % 3);
        if (i % 2)
            pgt_run(s->psql, "DELETE FROM election_leader"); // as a resign does it
        else
            expire(s);
        pgt_run(s->b1, "SET application_name = '%s'", tag);
        assert_string_equal(pgt_campaign(s->b1, id), id);
        (void)snprintf(expected, sizeof expected, "%d %s %s", i, tag, id);
        assert_term(s, expected);
    }
    assert_string_equal(
        pgt_get(s->admin, "SELECT count(*) FROM metafence.tag WHERE superseded"), "49");
}

static void test_restart_inside_lease(void **state)
{
    struct scene *s = *state;

    // k2: same id, new incarnation: the term moves although the id does not.
    (void)pgt_campaign(s->a1, "meta-a");
    (void)pgt_campaign(s->a2, "meta-a");
    assert_term(s, "2 " TAG_A2 " meta-a");
    assert_string_equal(tag_row(s, TAG_A1), "1 t");
    assert_string_equal(tag_row(s, TAG_A2), "2 f");
}

static void test_psql_renewals(void **state)
{
    struct scene *s = *state;

    // k3: an untagged session is no incarnation.
    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->psql, "UPDATE election_leader SET last_heartbeat = now()");
    assert_term(s, "1 " TAG_A1 " meta-a");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.tag"), "1");
    // … and who reads sees that this heartbeat is not the owner's.
    assert_string_equal(
        pgt_get(s->admin, "SELECT count(*) FROM metafence.renewal r JOIN election_leader l"
                          " ON l.last_heartbeat = r.heartbeat"),
        "0");
    // Names that only look like a tag.
    static const char *const names[] = {"metafence", "metafence:", "metafence:aaaaaaaa:xyz",
                                        "metafence:aaaaaaaa:00000000000000011",
                                        "metafence:pod-1:0000000000000001"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        pgt_run(s->psql,
                "SET application_name = '%s'; UPDATE election_leader SET last_heartbeat = "
                "clock_timestamp()",
                names[i]);
        assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.tag"), "1");
    }
}

static void test_untagged_change_of_id(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->psql, "UPDATE election_leader SET id = 'other', last_heartbeat = now()");
    assert_term(s, "2 - other");
    assert_string_equal(tag_row(s, TAG_A1), "1 t");
    // Back again by psql: no tag yet. The superseded one renews and does not get it, a new one
    // does.
    pgt_run(s->psql, "UPDATE election_leader SET id = 'meta-a', last_heartbeat = now()");
    assert_term(s, "3 - meta-a");
    (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "3 - meta-a");
    (void)pgt_campaign(s->a2, "meta-a");
    assert_term(s, "4 " TAG_A2 " meta-a");
}

static void test_twins(void **state)
{
    struct scene *s = *state;

    // i1: two processes with one id, both renew once a second: the term moves once, to the
    // younger.
    (void)pgt_campaign(s->a1, "meta-a");
    for (int i = 0; i < 10; i++) {
        (void)pgt_campaign(s->a2, "meta-a");
        (void)pgt_campaign(s->a1, "meta-a");
    }
    assert_term(s, "2 " TAG_A2 " meta-a");
    // The elder's heartbeats are still told apart.
    assert_string_equal(pgt_get(s->admin, "SELECT tag FROM metafence.renewal"), TAG_A1);
    assert_string_equal(
        pgt_get(s->admin,
                "SELECT g.last_seen_heartbeat = l.last_heartbeat FROM metafence.tag g,"
                " election_leader l WHERE g.tag = '" TAG_A1 "'"),
        "t");
    (void)pgt_campaign(s->a3, "meta-a");
    (void)pgt_campaign(s->a2, "meta-a");
    assert_term(s, "3 " TAG_A3 " meta-a");
}

static void test_superseded_never_owns_again(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    expire(s);
    (void)pgt_campaign(s->b1, "meta-b");
    assert_term(s, "2 " TAG_B1 " meta-b");
    // b14: the zombie wins the row again.
    expire(s);
    assert_string_equal(pgt_campaign(s->a1, "meta-a"), "meta-a");
    assert_term(s, "3 - meta-a");
    assert_string_equal(tag_row(s, TAG_A1), "1 t");
    assert_string_equal(tag_row(s, TAG_B1), "2 t");
    for (int i = 0; i < 3; i++)
        (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "3 - meta-a");
    // Its successor in the same pod is a clean owner.
    (void)pgt_campaign(s->a2, "meta-a");
    assert_term(s, "4 " TAG_A2 " meta-a");
}

static void test_delete_and_same_owner(void **state)
{
    struct scene *s = *state;

    // d: the row is deleted under a live leader, which inserts itself again: still its term.
    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->psql, "DELETE FROM election_leader");
    (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    pgt_run(s->psql, "TRUNCATE election_leader");
    (void)pgt_campaign(s->b1, "meta-b");
    assert_term(s, "2 " TAG_B1 " meta-b");
}

static void test_odd_rows(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->psql, "UPDATE election_leader SET last_heartbeat = NULL");
    assert_term(s, "1 " TAG_A1 " meta-a");
    (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    pgt_run(s->psql, "UPDATE election_leader SET last_heartbeat = 'infinity'");
    pgt_run(s->psql, "UPDATE election_leader SET id = NULL");
    assert_term(s, "2 -");
    pgt_run(s->psql, "UPDATE election_leader SET id = 'META-A', last_heartbeat = now()");
    assert_term(s, "3 - META-A");
    // Another spelling of the same id is no other owner (p).
    pgt_run(s->psql,
            "UPDATE election_leader SET id = 'meta-a', last_heartbeat = clock_timestamp()");
    assert_term(s, "3 - META-A");
    pgt_run(s->psql, "UPDATE election_leader SET id = repeat('x', 20000)");
    assert_string_equal(pgt_get(s->admin, "SELECT term FROM metafence.term"), "4");
    // A second election in the same table keeps its own term.
    pgt_run(s->a2, "INSERT INTO election_leader VALUES ('another', 'meta-z', now())");
    assert_string_equal(
        pgt_get(s->admin, "SELECT term FROM metafence.term WHERE service = 'another'"), "1");
}

static void test_migrations_stay_possible(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->psql,
            "ALTER TABLE election_leader ALTER COLUMN id TYPE text, ADD COLUMN extra int");
    (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    pgt_run(s->psql, "ALTER TABLE election_leader RENAME COLUMN id TO identity");
    pgt_run(s->psql,
            "UPDATE election_leader SET last_heartbeat = now()"); // weak, but no error
    pgt_run(s->psql, "ALTER TABLE election_leader DROP COLUMN last_heartbeat");
    pgt_run(s->psql, "UPDATE election_leader SET identity = 'q'");
}

static void test_any_search_path(void **state)
{
    struct scene *s = *state;

    pgt_run(s->admin, "CREATE SCHEMA evil AUTHORIZATION meta");
    pgt_run(s->psql,
            "CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE sql AS 'SELECT $$evil$$';"
            "CREATE TABLE evil.term (service text, term bigint)");
    pgt_run(s->a1, "SET search_path = evil, public, pg_catalog");
    pgt_run(s->a2, "SET search_path = ''");
    (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    pgt_run(s->a2, "UPDATE public.election_leader SET last_heartbeat = now()");
    assert_term(s, "2 " TAG_A2 " meta-a");
}

static void test_notify(void **state)
{
    struct scene *s = *state;

    pgt_run(s->psql, "LISTEN " SQL_CHANNEL);
    (void)pgt_campaign(s->a1, "meta-a");
    (void)pgt_campaign(s->a1, "meta-a"); // a renewal says nothing
    pgt_run(s->psql, "UPDATE election_leader SET id = 'other'");
    const char *const expected[] = {"1 " TAG_A1 " meta-a", "2 - other"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(PQconsumeInput(s->psql), 1);
        PGnotify *note = PQnotifies(s->psql);
        assert_non_null(note);
        assert_string_equal(note->extra, expected[i]);
        PQfreemem(note);
    }
    assert_null(PQnotifies(s->psql));
}

// --- faults inside the trigger ---

static void test_lost_bookkeeping(void **state)
{
    struct scene *s = *state;

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

// Sends one statement on each session before any answer is read, and wants all of them to
// succeed.
static void at_once(PGconn *const *sessions, const char *const *statements, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(PQsendQuery(sessions[i], statements[i]), 1);
    for (size_t i = 0; i < count; i++) {
        PGresult *result = PQgetResult(sessions[i]);
        if (PQresultStatus(result) != PGRES_TUPLES_OK &&
            PQresultStatus(result) != PGRES_COMMAND_OK)
            fail_msg("session %zu: %s", i, PQresultErrorMessage(result));
        PQclear(result);
        assert_null(PQgetResult(sessions[i]));
    }
}

static void test_concurrent_campaigns(void **state)
{
    struct scene *s = *state;
    PGconn *const sessions[] = {s->a1, s->b1, s->a3, s->psql};
    const char *const deletes = "DELETE FROM election_leader";
    const char *const expires =
        "UPDATE election_leader SET last_heartbeat = now() - interval '6s'";
    static char campaigns[3][1024];
    static const char *const ids[] = {"meta-a", "meta-b", "meta-c"};
    long long term = 0;

    pgt_run(s->admin, "LISTEN " SQL_CHANNEL);
    for (size_t i = 0; i < 3; i++)
        (void)snprintf(
            campaigns[i], sizeof campaigns[i],
            "INSERT INTO election_leader AS e VALUES ('svc', '%s', NOW()) ON CONFLICT"
            " (service) DO UPDATE SET id = CASE WHEN e.last_heartbeat < NOW() - interval"
            " '5s' THEN excluded.id ELSE e.id END, last_heartbeat = CASE WHEN"
            " e.last_heartbeat < NOW() - interval '5s' OR e.id = excluded.id THEN"
            " excluded.last_heartbeat ELSE e.last_heartbeat END RETURNING id",
            ids[i]);
    for (int round = 1; round <= 200; round++) {
        const char *const statements[] = {campaigns[0], campaigns[1], campaigns[2],
                                          round % 3 ? expires : deletes};
        for (size_t i = 0; i < 3; i++) // every process is a new incarnation each time
            pgt_run(sessions[i], "SET application_name = 'metafence:pod-000%zu:%016x'", i,
                    (unsigned)round);
        at_once(sessions, statements, 4);
        at_once(sessions, statements, 3);
        // The term is the row's, and its owner is the incarnation that wrote the row.
        assert_string_equal(pgt_get(s->admin,
                                    "SELECT t.owner_id = l.id AND t.owner_tag = r.tag AND"
                                    " r.heartbeat = l.last_heartbeat FROM election_leader"
                                    " l, metafence.term t, metafence.renewal r"),
                            "t");
    }
    // Each move was told once, in order, without a gap.
    assert_int_equal(PQconsumeInput(s->admin), 1);
    for (PGnotify *note = PQnotifies(s->admin); note; note = PQnotifies(s->admin)) {
        int64_t told = 0;
        note->extra[strcspn(note->extra, " ")] = '\0';
        assert_true(election_parse_count(note->extra, &told));
        assert_int_equal(told, ++term);
        PQfreemem(note);
    }
    char expected[24];
    (void)snprintf(expected, sizeof expected, "%lld", term);
    assert_string_equal(pgt_get(s->admin, "SELECT term FROM metafence.term"), expected);
    assert_true(term >= 200);
}

static void test_old_tags_are_trimmed(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    (void)pgt_campaign(s->a2, "meta-a");
    pgt_run(s->admin, "UPDATE metafence.tag SET first_seen = now() - interval '91 days',"
                      " last_seen_heartbeat = now() - interval '91 days'");
    pgt_run(s->admin,
            "INSERT INTO metafence.death VALUES ('x', 'i', 1, 'm', 'r', now() - interval"
            " '91 days'), ('y', 'i', 1, 'm', 'r', now() - interval '89 days')");
    (void)pgt_campaign(s->a3, "meta-a");
    assert_string_equal(tag_row(s, TAG_A1), "NULL");
    assert_string_equal(tag_row(s, TAG_A2), "2 t"); // led for 91 days, superseded just now
    assert_string_equal(
        pgt_get(s->admin, "SELECT string_agg(incarnation_tag, ' ') FROM metafence.death"), "y");
    // The owner of the moment stays known, however long it leads.
    pgt_run(s->admin, "UPDATE metafence.tag SET first_seen = now() - interval '91 days',"
                      " last_seen_heartbeat = now() - interval '91 days'");
    pgt_run(s->psql, "UPDATE election_leader SET last_heartbeat = clock_timestamp()");
    assert_string_equal(tag_row(s, TAG_A3), "3 f");
}

static void test_size(void **state)
{
    struct scene *s = *state;
    // A day of renewals, or a short version of it.
    int renewals = getenv("METAFENCE_LONG") ? 86400 : 5000;

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->a1,
            "DO $$ BEGIN FOR i IN 1..%d LOOP UPDATE election_leader SET last_heartbeat = "
            "clock_timestamp();"
            " COMMIT; END LOOP; END $$",
            renewals);
    assert_term(s, "1 " TAG_A1 " meta-a");
    const char *bytes =
        pgt_get(s->admin, "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE"
                          " relnamespace = 'metafence'::regnamespace AND relkind = 'r'");
    int64_t size = 0;
    assert_true(election_parse_count(bytes, &size));
    print_message("%d renewals: %lld bytes\n", renewals, (long long)size);
    assert_true(size <= 1024 * 1024);
}

#define SCENE_TEST(fn) cmocka_unit_test_setup_teardown(fn, scene_setup, scene_teardown)

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_first_and_renewals),
    SCENE_TEST(test_handovers),
    SCENE_TEST(test_restart_inside_lease),
    SCENE_TEST(test_psql_renewals),
    SCENE_TEST(test_untagged_change_of_id),
    SCENE_TEST(test_twins),
    SCENE_TEST(test_superseded_never_owns_again),
    SCENE_TEST(test_delete_and_same_owner),
    SCENE_TEST(test_odd_rows),
    SCENE_TEST(test_migrations_stay_possible),
    SCENE_TEST(test_any_search_path),
    SCENE_TEST(test_notify),
    SCENE_TEST(test_lost_bookkeeping),
    SCENE_TEST(test_raise_inside),
    SCENE_TEST(test_statement_timeout_inside),
    SCENE_TEST(test_cancel_inside),
    SCENE_TEST(test_serializable),
    SCENE_TEST(test_end_sessions),
    SCENE_TEST(test_end_sessions_without_right),
    SCENE_TEST(test_deaths_and_phantom),
    SCENE_TEST(test_concurrent_campaigns),
    SCENE_TEST(test_old_tags_are_trimmed),
    SCENE_TEST(test_size),
};

UNIT_MAIN(tests)
