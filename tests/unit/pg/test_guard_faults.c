// SPDX-License-Identifier: Apache-2.0
// Whatever breaks inside the guard, the rightful leader does not notice it: tagged, with a tag
// that nobody knows yet, or without one.
#include "tests/unit/pg/scene.h"

#include <stdio.h>
#include <string.h>

#include "sql/sql.h"

#define WRITES                                                                                 \
    "UPDATE worker SET status = 'X';"                                                          \
    "INSERT INTO worker (worker_type, host, port, status) VALUES ('C', 'h', 1, 'S');"          \
    "DELETE FROM worker WHERE host = 'h';"                                                     \
    "UPDATE hummock_sequence SET seq = seq + 1;"                                               \
    "TRUNCATE hummock_gc_history"

// a1 led once, b1 leads; a3 is not known.
static void lead(struct scene *s)
{
    (void)pgt_campaign(s->a1, "meta-a");
    take_over(s, s->b1, "meta-b");
    pgt_run(s->b1, "INSERT INTO hummock_sequence VALUES ('x', 1);"
                   "INSERT INTO worker VALUES (100, 'C', 'host', 1, 'S')");
}

static void assert_unharmed(struct scene *s, const char *fault)
{
    PGconn *const writers[] = {s->b1, s->psql, s->a3};

    for (size_t i = 0; i < 3; i++) {
        const char *state = pgt_try(writers[i], WRITES);
        if (state[0])
            fail_msg("after %s, writer %zu: %s", fault, i, pgt_message(writers[i]));
    }
    if (strcmp(pgt_campaign(s->b1, "meta-b"), "meta-b") != 0)
        fail_msg("after %s: b1 lost the row", fault);
}

static const char *const names[] = {
    "TABLE setting",
    "TABLE tag",
    "TABLE term",
    "TABLE renewal",
    "TABLE mutation",
    "TABLE observed",
    "TABLE intent",
    "TABLE tombstone",
    "SEQUENCE moves",
    "SEQUENCE recovery_change",
    "SEQUENCE count_untagged",
    "SEQUENCE count_not_owner",
    "SEQUENCE count_unreadable",
    "SEQUENCE count_unlogged",
    "SEQUENCE mutation_id_seq",
    "FUNCTION judge",
    "FUNCTION judge_again",
    "FUNCTION pin_term",
    "FUNCTION refuse_rows",
    "FUNCTION session_tag",
    "FUNCTION is_plain",
    "FUNCTION key_of",
    "FUNCTION property_version",
    "FUNCTION wait_shared",
    "FUNCTION count_unreadable",
    "FUNCTION record_observed",
    "FUNCTION refusal",
    "FUNCTION apply_tombstones",
    "FUNCTION close_term",
    "FUNCTION end_writers",
    "FUNCTION end_lockers",
};

static void test_each_part_missing(void **state)
{
    struct scene *s = *state;

    lead(s);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *name = strchr(names[i], ' ') + 1;
        pgt_run(s->admin, "ALTER %.*s metafence.%s RENAME TO x", (int)(name - names[i] - 1),
                names[i], name);
        assert_unharmed(s, names[i]);
        pgt_run(s->admin, "ALTER %.*s metafence.x RENAME TO %s", (int)(name - names[i] - 1),
                names[i], name);
        // Healed, it guards again.
        assert_string_equal(pgt_try(s->a1, "UPDATE worker SET status = 'Z'"), "MF001");
    }
    assert_true(counter(s, "unreadable") > 0 && counter(s, "unlogged") > 0);
    // A superseded tag is refused also without what only makes the message better.
    pgt_run(s->admin, "DROP FUNCTION metafence.key_of, metafence.is_plain");
    assert_string_equal(pgt_try(s->a1, "UPDATE hummock_sequence SET seq = 0"), "MF001");
    assert_non_null(strstr(pgt_message(s->a1), "key ?"));
    pgt_run(s->admin, "ALTER TABLE metafence.term RENAME TO x");
    assert_string_not_equal(pgt_try(s->a1, "UPDATE hummock_sequence SET seq = 0"), "");
    pgt_run(s->admin, "DROP SCHEMA metafence CASCADE");
    assert_string_equal(pgt_try(s->a1, WRITES), "");
    assert_unharmed(s, "the schema is gone");
}

// A new session compiles everything anew.
static void test_fresh_sessions(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->admin, "DROP TABLE metafence.setting, metafence.tag, metafence.term,"
                      " metafence.renewal, metafence.mutation, metafence.observed,"
                      " metafence.intent, metafence.tombstone");
    PGconn *fresh = pgt_connect("meta", PGT_DATABASE, TAG_B1);
    assert_string_equal(pgt_try(fresh, WRITES), "");
    assert_string_equal(pgt_campaign(fresh, "meta-b"), "meta-b");
    PQfinish(fresh);
}

// Statements that go wrong in the middle of a trigger, by way of a function that it calls.
static void test_raise_inside(void **state)
{
    struct scene *s = *state;
    static const char *const bodies[] = {
        "RAISE EXCEPTION 'boom'",
        "RAISE EXCEPTION USING ERRCODE = 'query_canceled', MESSAGE = 'boom'",
        "PERFORM 1/0",
        "RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'boom'",
        "RAISE EXCEPTION USING ERRCODE = '53200', MESSAGE = 'boom'",
        "PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(1)",
    };

    lead(s);
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        pgt_run(s->admin,
                "CREATE OR REPLACE FUNCTION metafence.session_tag() RETURNS text LANGUAGE"
                " plpgsql AS $$BEGIN %s; RETURN NULL; END $$;"
                "CREATE OR REPLACE FUNCTION metafence.is_plain(p_relation oid) RETURNS boolean"
                " LANGUAGE plpgsql AS $$BEGIN %s; RETURN false; END $$",
                bodies[i], bodies[i]);
        pgt_run(s->admin, "DELETE FROM metafence.intent; INSERT INTO metafence.intent VALUES"
                          " (1, 'q', 1, 'svc', 2, now())");
        assert_unharmed(s, bodies[i]);
        assert_string_equal(pgt_try(s->a1, "UPDATE worker SET status = 'Z'"), "MF001");
    }
}

static void test_locked_tables(void **state)
{
    struct scene *s = *state;
    static const char *const locked[] = {"setting", "tag", "mutation", "intent"};

    lead(s);
    for (size_t i = 0; i < 4; i++) {
        pgt_run(s->admin, "BEGIN; LOCK TABLE metafence.%s IN ACCESS EXCLUSIVE MODE", locked[i]);
        struct instant begin = clock_now();
        assert_string_equal(pgt_try(s->b1, "DELETE FROM worker WHERE worker_id = %zu", i), "");
        assert_true(instant_since(clock_now(), begin) < 5 * NS_PER_SEC);
        // The session's own limit strikes inside of our trigger: swallowed as well.
        pgt_run(s->b1, "SET statement_timeout = '200ms'");
        assert_string_equal(pgt_try(s->b1, "UPDATE worker SET status = 'T'"), "");
        pgt_run(s->b1, "SET statement_timeout = 0");
        // So is a cancel.
        assert_int_equal(PQsendQuery(s->b1, "UPDATE worker SET status = 'U'"), 1);
        if (i < 2) {
            PGcancel *cancel = PQgetCancel(s->b1);
            char text[128];
            assert_int_equal(PQcancel(cancel, text, sizeof text), 1);
            PQfreeCancel(cancel);
        }
        PGresult *result = PQgetResult(s->b1);
        const char *state_of = PQresultErrorField(result, PG_DIAG_SQLSTATE);
        // Cancelled before it came to our trigger, it is an ordinary cancel.
        assert_true(!state_of || strcmp(state_of, "57014") == 0);
        PQclear(result);
        assert_null(PQgetResult(s->b1));
        pgt_run(s->admin, "COMMIT");
        assert_string_equal(pgt_get(s->b1, "SHOW lock_timeout"), "0");
    }
}

// A cancel strikes while the writer is judged; once, as statement_timeout does. It must not be
// a way past the guard, and the owner must not write without the lock that a takeover waits
// for.
static void test_cancel_inside(void **state)
{
    struct scene *s = *state;
    static const char *const writes[] = {"UPDATE hummock_sequence SET seq = 9",
                                         "UPDATE worker SET status = 'Z'",
                                         "TRUNCATE hummock_gc_history"};

    lead(s);
    // Above READ COMMITTED judge calls it, after it took the lock.
    pgt_run(s->admin, "CREATE SEQUENCE struck; GRANT ALL ON SEQUENCE struck TO PUBLIC;"
                      "CREATE OR REPLACE FUNCTION metafence.pin_term() RETURNS void LANGUAGE"
                      " plpgsql SECURITY DEFINER AS $$BEGIN"
                      " IF nextval('public.struck') = 1 THEN"
                      " PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(60);"
                      " END IF; END $$");
    for (size_t i = 0; i < sizeof writes / sizeof writes[0]; i++) {
        pgt_run(s->admin, "ALTER SEQUENCE struck RESTART");
        pgt_run(s->a1, "BEGIN ISOLATION LEVEL REPEATABLE READ");
        assert_string_equal(pgt_try(s->a1, "%s", writes[i]), "MF001");
        pgt_run(s->a1, "ROLLBACK");
        pgt_run(s->admin, "ALTER SEQUENCE struck RESTART");
        pgt_run(s->b1, "RESET metafence.owner; BEGIN ISOLATION LEVEL REPEATABLE READ; %s",
                writes[i]);
        assert_string_equal(pgt_get(s->admin,
                                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
                                    " AND objid = 1 AND granted AND pid = %d",
                                    PQbackendPID(s->b1)),
                            "1");
        pgt_run(s->b1, "ROLLBACK");
    }
    assert_int_equal(counter(s, "unreadable"), 0);
}

// The right owner_id or not, the term's or the election's row missing: no tag that was never
// superseded is refused, the one that was always is.
static void test_doubts(void **state)
{
    struct scene *s = *state;
    static const char *const doubts[] = {
        "UPDATE metafence.term SET owner_id = 'somebody'",
        "UPDATE metafence.term SET owner_tag = NULL",
        "UPDATE metafence.term SET owner_tag = '" TAG_A1 "'",
        "DELETE FROM metafence.term",
        "DELETE FROM metafence.renewal",
        "DELETE FROM election_leader",
        "DELETE FROM metafence.tag WHERE tag = '" TAG_B1 "'",
        "UPDATE metafence.tag SET owned_term = 99 WHERE tag = '" TAG_B1 "'",
    };

    lead(s);
    for (size_t i = 0; i < sizeof doubts / sizeof doubts[0]; i++) {
        pgt_run(s->admin, "%s", doubts[i]);
        PGconn *const writers[] = {s->b1, s->psql, s->a3};
        for (size_t k = 0; k < 3; k++) {
            if (pgt_try(writers[k], WRITES)[0])
                fail_msg("%s: %s", doubts[i], pgt_message(writers[k]));
        }
        assert_string_equal(pgt_try(s->a1, "UPDATE worker SET status = 'Z'"), "MF001");
    }
    (void)pgt_campaign(s->b1, "meta-b");
    // Bookkeeping that fails leaves the guard open, not stale.
    pgt_run(s->admin, "ALTER TABLE metafence.term ADD CHECK (term < 0) NOT VALID");
    take_over(s, s->a2, "meta-a");
    assert_string_equal(pgt_try(s->a2, WRITES), "");
    assert_string_equal(pgt_try(s->b1, WRITES), "");
    assert_true(counter(s, "unrecorded") > 0 && counter(s, "not_owner") > 0);
    // Healed at the next renewal.
    pgt_run(s->admin, "ALTER TABLE metafence.term DROP CONSTRAINT term_term_check");
    (void)pgt_campaign(s->a2, "meta-a");
    assert_string_equal(pgt_try(s->a2, WRITES), "");
    assert_string_equal(pgt_try(s->b1, WRITES), "MF001");
}

// Each step of an uninstallation leaves a guard that is right or none.
static void test_half_uninstalled(void **state)
{
    struct scene *s = *state;
    static const char *const steps[] = {
        "DROP TRIGGER metafence_update ON hummock_sequence",
        "DROP TRIGGER metafence_key ON worker",
        "DROP TRIGGER metafence_guard ON worker",
        "DROP TRIGGER metafence_log ON worker",
        "DROP TRIGGER metafence_hold ON election_leader",
        "DROP TRIGGER metafence_term ON election_leader",
    };

    lead(s);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        pgt_run(s->admin, "%s", steps[i]);
        assert_unharmed(s, steps[i]);
        if (i < 4) {
            assert_string_equal(pgt_try(s->a1, "UPDATE catalog_version SET version = 0"), "");
            assert_string_equal(pgt_try(s->a1, "TRUNCATE compaction_task"), "MF001");
        }
    }
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_each_part_missing), SCENE_TEST(test_fresh_sessions),
    SCENE_TEST(test_raise_inside),      SCENE_TEST(test_locked_tables),
    SCENE_TEST(test_cancel_inside),     SCENE_TEST(test_doubts),
    SCENE_TEST(test_half_uninstalled),
};

UNIT_MAIN(tests)
