// SPDX-License-Identifier: Apache-2.0
// The old leader's transaction in flight at the takeover: finished, refused or ended, and the
// takeover within half a second.
#include "tests/unit/pg/scene.h"

#include <stdio.h>
#include <string.h>

#include "sql/sql.h"

#define CAMPAIGN(id)                                                                           \
    "INSERT INTO election_leader AS e VALUES ('svc', '" id                                     \
    "', NOW()) ON CONFLICT (service) DO"                                                       \
    " UPDATE SET id = CASE WHEN e.last_heartbeat < NOW() - interval '5s' THEN excluded.id "    \
    "ELSE"                                                                                     \
    " e.id END, last_heartbeat = CASE WHEN e.last_heartbeat < NOW() - interval '5s' OR e.id =" \
    " excluded.id THEN excluded.last_heartbeat ELSE e.last_heartbeat END RETURNING id"

static void lead(struct scene *s)
{
    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->a1,
            "INSERT INTO worker VALUES (1, 'C', 'host', 1, 'S'), (2, 'C', 'host', 2, 'S')");
    expire(s);
}

// b1 wins; returns how long it took: half a second at most, but for the time in which it waited
// for a processor, and where the machine was not late.
static int64_t timed_takeover(struct scene *s)
{
    struct pgt_lateness late = pgt_lateness_begin();
    int64_t starved_ns = pgt_starved_ns(s->b1);
    struct instant begin = clock_now();

    assert_string_equal(pgt_campaign(s->b1, "meta-b"), "meta-b");
    int64_t took_ns = instant_since(clock_now(), begin);
    int64_t took = took_ns / NS_PER_MS;
    starved_ns = pgt_starved_ns(s->b1) - starved_ns;
    if (pgt_lateness_end(&late) < PGT_LATE_MS / 5 && took_ns - starved_ns > NS_PER_SEC / 2)
        fail_msg("it took %lld ms, %lld of these without a processor", (long long)took,
                 (long long)(starved_ns / NS_PER_MS));
    assert_term(s, "2 " TAG_B1 " meta-b");
    return took;
}

static void assert_ended(PGconn *pq)
{
    assert_string_not_equal(pgt_try(pq, "SELECT 1"), "x");
    assert_int_equal(PQstatus(pq), CONNECTION_BAD);
}

static void assert_rows(struct scene *s, const char *expected)
{
    assert_string_equal(
        pgt_get(s->admin, "SELECT string_agg(concat(worker_id, status), ' ' ORDER BY worker_id)"
                          " FROM worker"),
        expected);
}

static void test_idle_in_transaction(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->a1, "BEGIN; DELETE FROM worker WHERE worker_id = 1");
    int64_t took = timed_takeover(s);
    assert_true(took >= 290); // the time for a short transaction to end by itself
    print_message("idle in transaction: %lld ms\n", (long long)took);
    assert_ended(s->a1);
    assert_rows(s, "1S 2S");
    assert_int_equal(counter(s, "ended"), 1);
    assert_int_equal(counter(s, "takeover_without_lock"), 0);
    pgt_run(s->b1, "DELETE FROM worker WHERE worker_id = 1");
}

static void test_short_transaction_may_end(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->a1, "BEGIN; DELETE FROM worker WHERE worker_id = 1");
    assert_int_equal(PQsendQuery(s->b1, "UPDATE election_leader SET id = 'meta-b',"
                                        " last_heartbeat = clock_timestamp()"),
                     1);
    await_lock_wait(s, s->b1);
    pgt_run(s->a1, "COMMIT"); // within the 300 ms, unless the machine stood still
    PGresult *result = PQgetResult(s->b1);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    assert_null(PQgetResult(s->b1));
    assert_rows(s, "2S");
    assert_string_equal(pgt_try(s->a1, "DELETE FROM worker"), "MF001");
}

// m1 and the like: the writer's statement waits on a row lock, or just takes long; its process
// may be dead. It must not commit after the takeover.
static void test_statement_under_way(void **state)
{
    struct scene *s = *state;
    static const char *const statements[] = {
        "UPDATE worker SET status = 'LATE'",
        "UPDATE worker SET status = 'LATE' WHERE pg_sleep(3) IS NOT NULL",
    };

    for (size_t i = 0; i < 2; i++) {
        lead(s);
        if (i == 0)
            pgt_run(s->admin, "BEGIN; UPDATE worker SET status = 'OK' WHERE worker_id = 2");
        assert_int_equal(PQsendQuery(s->a1, statements[i]), 1);
        if (i == 0)
            await_lock_wait(s, s->a1);
        else
            while (strcmp(pgt_get(s->admin,
                                  "SELECT count(*) FROM pg_stat_activity WHERE pid ="
                                  " %d AND wait_event = 'PgSleep'",
                                  PQbackendPID(s->a1)),
                          "1") != 0)
                ;
        print_message("statement %zu: %lld ms\n", i, (long long)timed_takeover(s));
        if (i == 0)
            pgt_run(s->admin, "COMMIT");
        PGresult *result = PQgetResult(s->a1);
        assert_int_equal(PQresultStatus(result), PGRES_FATAL_ERROR);
        PQclear(result);
        assert_ended(s->a1);
        assert_rows(s, i == 0 ? "1S 2OK" : "1S 2S");
        assert_int_equal(counter(s, "takeover_without_lock"), 0);
        scene_teardown((void *[]){s});
        void *fresh = NULL;
        scene_setup(&fresh);
        *state = s = fresh;
    }
}

// Who comes while the takeover waits queues behind it, and is refused when it has happened.
static void test_writers_queue_behind(void **state)
{
    struct scene *s = *state;
    PGconn *late = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    PGconn *untagged = pgt_connect("meta", PGT_DATABASE, "psql");

    lead(s);
    // An incarnation that nobody knows: not to be ended, so the takeover goes on without the
    // lock.
    pgt_run(s->a3, "BEGIN; INSERT INTO hummock_sequence VALUES ('x', 1)");
    assert_int_equal(PQsendQuery(s->b1, "UPDATE election_leader SET id = 'meta-b',"
                                        " last_heartbeat = clock_timestamp()"),
                     1);
    await_lock_wait(s, s->b1);
    assert_int_equal(PQsendQuery(late, "UPDATE worker SET status = 'L' WHERE worker_id = 1"),
                     1);
    // Sessions without a tag don't wait.
    pgt_run(untagged, "UPDATE worker SET status = 'U' WHERE worker_id = 2");
    PGresult *result = PQgetResult(s->b1);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    assert_null(PQgetResult(s->b1));
    assert_term(s, "2 " TAG_B1 " meta-b");
    // Ended or refused; or it came through between two waits, before the term moved.
    result = PQgetResult(late);
    bool is_done = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    assert_rows(s, is_done ? "1L 2U" : "1S 2U");
    pgt_run(s->a3, "COMMIT");
    assert_int_equal(counter(s, "takeover_without_lock"), 1);
    PQfinish(late);
    PQfinish(untagged);
}

static void test_observe_ends_nobody(void **state)
{
    struct scene *s = *state;

    set_guard(s, "observe");
    lead(s);
    pgt_run(s->a1, "BEGIN; DELETE FROM worker WHERE worker_id = 1");
    (void)timed_takeover(s);
    pgt_run(s->a1, "COMMIT");
    assert_rows(s, "2S");
    assert_int_equal(counter(s, "ended"), 0);
    // The mutation log shows the late commit: the new leader's snapshot could not have it.
    assert_string_equal(pgt_get(s->admin,
                                "SELECT concat_ws(' ', operation, tag, owned_term) FROM"
                                " metafence.mutation ORDER BY id DESC LIMIT 1"),
                        "DELETE " TAG_A1 " 1");
    set_guard(s, "off");
    pgt_run(s->a1, "BEGIN; DELETE FROM worker WHERE worker_id = 2");
    struct instant begin = clock_now();
    take_over(s, s->a2, "meta-a");
    assert_true(instant_since(clock_now(), begin) < NS_PER_SEC);
    pgt_run(s->a1, "COMMIT");
}

// An earlier leader's session that still holds the lock is ended too.
static void test_older_zombie_holds_the_lock(void **state)
{
    struct scene *s = *state;

    set_guard(s, "observe");
    lead(s);
    pgt_run(s->a1, "BEGIN; DELETE FROM worker WHERE worker_id = 1");
    (void)timed_takeover(s);
    set_guard(s, "enforce");
    take_over(s, s->a2, "meta-a"); // b1 is idle, a1 is in the way
    assert_ended(s->a1);
    assert_rows(s, "1S 2S");
    assert_int_equal(counter(s, "takeover_without_lock"), 1); // the one in observe
}

// Whoever can't be ended keeps nobody else's rows locked: one session of the old leader is a
// superuser's here, which the functions' owner may not touch.
static void test_one_may_not_be_ended(void **state)
{
    struct scene *s = *state;
    PGconn *strong = pgt_connect("postgres", PGT_DATABASE, TAG_A1);

    pgt_run(s->admin, "DROP ROLE IF EXISTS feeble; CREATE ROLE feeble IN ROLE meta;"
                      "GRANT USAGE ON SCHEMA metafence TO feeble;"
                      "GRANT ALL ON ALL TABLES IN SCHEMA metafence TO feeble;"
                      "GRANT ALL ON ALL SEQUENCES IN SCHEMA metafence TO feeble;"
                      "ALTER FUNCTION metafence.end_lockers OWNER TO feeble");
    lead(s);
    pgt_run(strong, "BEGIN; SELECT FROM worker WHERE worker_id = 1 FOR UPDATE");
    pgt_run(s->a1, "BEGIN; SELECT FROM worker WHERE worker_id = 2 FOR UPDATE");
    take_over(s, s->b1, "meta-b");
    assert_ended(s->a1);
    assert_string_equal(pgt_get(strong, "SELECT 1"), "1");
    assert_int_equal(counter(s, "ended"), 1);
    assert_int_equal(counter(s, "takeover_without_lock"), 0);
    pgt_run(s->b1, "UPDATE worker SET status = 'N' WHERE worker_id = 2");
    // It still has its row, and can do no more with it.
    assert_string_equal(pgt_try(strong, "UPDATE worker SET status = 'L' WHERE worker_id = 1"),
                        "MF001");
    pgt_run(strong, "ROLLBACK");
    assert_rows(s, "1S 2N");
    pgt_run(s->admin, "ALTER FUNCTION metafence.end_lockers OWNER TO postgres;"
                      "DROP OWNED BY feeble; DROP ROLE feeble");
    PQfinish(strong);
}

// Ending the old leader's writers is not all: an earlier one's rows are freed in the same
// takeover, though it holds no lock of ours.
static void test_older_zombie_has_rows(void **state)
{
    struct scene *s = *state;

    lead(s);
    take_over(s, s->b1, "meta-b");
    pgt_run(s->a1, "BEGIN; SELECT FROM worker WHERE worker_id = 1 FOR UPDATE");
    pgt_run(s->b1, "BEGIN; UPDATE worker SET status = 'B' WHERE worker_id = 2");
    take_over(s, s->a2, "meta-a");
    assert_ended(s->b1);
    assert_ended(s->a1);
    assert_int_equal(counter(s, "ended"), 1); // a takeover, not a session
    pgt_run(s->a2, "UPDATE worker SET status = 'N'");
    assert_rows(s, "1N 2N");
}

// The election's statement has a statement_timeout or is cancelled while it waits for the lock:
// no error, and the term moves all the same.
static void test_time_out_and_cancel_while_waiting(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->a1, "BEGIN; DELETE FROM worker WHERE worker_id = 1");
    pgt_run(s->b1, "SET statement_timeout = '150ms'");
    (void)timed_takeover(s);
    assert_ended(s->a1);
    pgt_run(s->b1, "SET statement_timeout = 0; BEGIN; DELETE FROM worker WHERE worker_id = 1");
    expire(s);
    assert_int_equal(PQsendQuery(s->a2, "UPDATE election_leader SET id = 'meta-a',"
                                        " last_heartbeat = clock_timestamp()"),
                     1);
    await_lock_wait(s, s->a2);
    pgt_run(s->psql, "SELECT pg_cancel_backend(%d)", PQbackendPID(s->a2));
    PGresult *result = PQgetResult(s->a2);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    assert_null(PQgetResult(s->a2));
    assert_term(s, "3 " TAG_A2 " meta-a");
    assert_ended(s->b1);
    assert_rows(s, "1S 2S");
    assert_int_equal(counter(s, "takeover_without_lock"), 0);
    assert_int_equal(counter(s, "unrecorded"), 0);
}

// A writer that waits for a takeover and is cancelled must not slip through.
static void test_cancelled_writer(void **state)
{
    struct scene *s = *state;
    PGconn *late = pgt_connect("meta", PGT_DATABASE, TAG_A1);

    lead(s);
    pgt_run(s->b1, "BEGIN; UPDATE election_leader SET id = 'meta-b', last_heartbeat ="
                   " clock_timestamp()"); // not committed yet
    pgt_run(late, "SET statement_timeout = '200ms'");
    assert_string_equal(pgt_try(late, "DELETE FROM worker"), "57014");
    pgt_run(s->b1, "COMMIT");
    assert_string_equal(pgt_try(late, "DELETE FROM worker"), "MF001");
    assert_rows(s, "1S 2S");
    PQfinish(late);
}

// The function's owner may not end sessions: the takeover goes on, counted.
static void test_without_the_right_to_end(void **state)
{
    struct scene *s = *state;

    pgt_run(s->admin, "DROP ROLE IF EXISTS feeble; CREATE ROLE feeble;"
                      "GRANT USAGE ON SCHEMA metafence TO feeble;"
                      "GRANT ALL ON ALL TABLES IN SCHEMA metafence TO feeble;"
                      "GRANT ALL ON ALL SEQUENCES IN SCHEMA metafence TO feeble;"
                      "ALTER FUNCTION metafence.end_writers OWNER TO feeble;"
                      "ALTER FUNCTION metafence.end_lockers OWNER TO feeble");
    lead(s);
    pgt_run(s->a1, "BEGIN; DELETE FROM worker WHERE worker_id = 1");
    (void)timed_takeover(s);
    assert_int_equal(counter(s, "takeover_without_lock"), 1);
    pgt_run(s->a1, "ROLLBACK");
    assert_string_equal(pgt_try(s->a1, "DELETE FROM worker"), "MF001");
    pgt_run(s->admin, "ALTER FUNCTION metafence.end_writers OWNER TO postgres;"
                      "ALTER FUNCTION metafence.end_lockers OWNER TO postgres;"
                      "DROP OWNED BY feeble; DROP ROLE feeble");
}

// l2: the winner's heartbeat is from before it waited. It must not look so old that the next
// candidate takes the row away at once.
static void test_waiting_costs_no_lease(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->a1, "BEGIN; DELETE FROM worker WHERE worker_id = 1"); // for ever
    assert_int_equal(PQsendQuery(s->b1, CAMPAIGN("meta-b")), 1);
    await_lock_wait(s, s->b1);
    // Another queues behind it on the row, with l3's lock_timeout.
    pgt_run(s->a3, "SET lock_timeout = '2s'");
    assert_string_equal(pgt_try(s->a3, CAMPAIGN("meta-c")), "");
    PGresult *result = PQgetResult(s->b1);
    assert_int_equal(PQresultStatus(result), PGRES_TUPLES_OK);
    PQclear(result);
    assert_null(PQgetResult(s->b1));
    assert_term(s, "2 " TAG_B1 " meta-b");
    assert_string_equal(pgt_get(s->admin, "SELECT id FROM election_leader"), "meta-b");
    assert_int_equal(counter(s, "ended"), 1);
}

// l3: a lock_timeout of the session, shorter than the wait: it is not that of our triggers.
static void test_lock_timeout_of_the_session(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->a1, "BEGIN; DELETE FROM worker WHERE worker_id = 1");
    pgt_run(s->b1, "SET lock_timeout = '20ms'");
    (void)timed_takeover(s);
    assert_ended(s->a1);
    assert_string_equal(pgt_get(s->b1, "SHOW lock_timeout"), "20ms");
    assert_int_equal(counter(s, "takeover_without_lock"), 0);
    // A writer with one, while a takeover waits: it waits for that, not for 20 ms.
    pgt_run(s->b1, "BEGIN; INSERT INTO hummock_sequence VALUES ('x', 1)");
    expire(s);
    assert_int_equal(PQsendQuery(s->a2, CAMPAIGN("meta-a")), 1);
    await_lock_wait(s, s->a2);
    pgt_run(s->a3, "SET lock_timeout = '20ms'");
    assert_string_equal(pgt_try(s->a3, "INSERT INTO hummock_sequence VALUES ('y', 1)"), "");
    PGresult *result = PQgetResult(s->a2);
    assert_int_equal(PQresultStatus(result), PGRES_TUPLES_OK);
    PQclear(result);
    assert_null(PQgetResult(s->a2));
    assert_term(s, "3 " TAG_A2 " meta-a");
}

// l4: whoever is not in the way stays: other tags, and the same tag in another database.
static void test_ends_only_who_is_in_the_way(void **state)
{
    struct scene *s = *state;
    PGconn *elsewhere = pgt_connect("meta", "postgres", TAG_A1);

    pgt_run(elsewhere, "BEGIN; SELECT pg_advisory_xact_lock_shared(1296453187, 1)");
    lead(s);
    pgt_run(s->a1, "BEGIN; DELETE FROM worker WHERE worker_id = 1");
    pgt_run(s->psql, "BEGIN; UPDATE worker SET status = 'P' WHERE worker_id = 2");
    (void)timed_takeover(s);
    assert_ended(s->a1);
    assert_string_equal(pgt_get(elsewhere, "SELECT 1"), "1");
    assert_string_equal(pgt_get(s->a2, "SELECT 1"), "1");
    assert_string_equal(pgt_get(s->a3, "SELECT 1"), "1");
    pgt_run(s->psql, "COMMIT");
    assert_rows(s, "1S 2P");
    assert_int_equal(counter(s, "takeover_without_lock"), 0);
    PQfinish(elsewhere);
}

// What the owner's session knows of itself rests on the lock, which each statement has.
static void test_known_owner_has_the_lock(void **state)
{
    struct scene *s = *state;
    static const char *const held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
                                    " AND objid = 1 AND pid = %d";
    static const char *const writes[] = {"UPDATE worker SET status = 'X'",
                                         "UPDATE catalog_version SET version = version + 1"};

    lead(s);
    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->a1, "INSERT INTO catalog_version VALUES ('x', 1)");
    assert_string_equal(pgt_get(s->a1, "SHOW metafence.owner"), TAG_A1);
    for (size_t i = 0; i < sizeof writes / sizeof writes[0]; i++) {
        pgt_run(s->a1, "BEGIN; SAVEPOINT p; %s", writes[i]);
        assert_string_equal(pgt_get(s->admin, held, PQbackendPID(s->a1)), "1");
        pgt_run(s->a1, "ROLLBACK TO p");
        assert_string_equal(pgt_get(s->admin, held, PQbackendPID(s->a1)), "0");
        pgt_run(s->a1, "%s", writes[i]);
        assert_string_equal(pgt_get(s->admin, held, PQbackendPID(s->a1)), "1");
        pgt_run(s->a1, "ROLLBACK");
    }
    pgt_run(s->a1, "BEGIN; SAVEPOINT p; %s; ROLLBACK TO p", writes[1]);
    take_over(s, s->b1, "meta-b");
    assert_string_equal(pgt_try(s->a1, "%s", writes[1]), "MF001");
    pgt_run(s->a1, "ROLLBACK");
    // Nor is it another tag's.
    pgt_run(s->b1, "BEGIN; UPDATE worker SET status = 'Y'; COMMIT");
    pgt_run(s->b1, "BEGIN; UPDATE worker SET status = 'Y';"
                   "SET LOCAL application_name = '" TAG_A1 "'");
    assert_string_equal(pgt_try(s->b1, "UPDATE worker SET status = 'Z'"), "MF001");
    pgt_run(s->b1, "ROLLBACK");
    assert_rows(s, "1Y 2Y");
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_idle_in_transaction),
    SCENE_TEST(test_short_transaction_may_end),
    SCENE_TEST(test_statement_under_way),
    SCENE_TEST(test_writers_queue_behind),
    SCENE_TEST(test_observe_ends_nobody),
    SCENE_TEST(test_older_zombie_holds_the_lock),
    SCENE_TEST(test_one_may_not_be_ended),
    SCENE_TEST(test_older_zombie_has_rows),
    SCENE_TEST(test_time_out_and_cancel_while_waiting),
    SCENE_TEST(test_cancelled_writer),
    SCENE_TEST(test_without_the_right_to_end),
    SCENE_TEST(test_waiting_costs_no_lease),
    SCENE_TEST(test_lock_timeout_of_the_session),
    SCENE_TEST(test_ends_only_who_is_in_the_way),
    SCENE_TEST(test_known_owner_has_the_lock),
};

UNIT_MAIN(tests)
