// SPDX-License-Identifier: Apache-2.0
// Tombstones are applied once, in the very takeover after their term, to exactly the row that
// was judged; intents keep a removal by endpoint to the id that was meant.
#include "tests/unit/pg/scene.h"

#include <stdio.h>
#include <string.h>

#include "sql/sql.h"

#define TAG_C1 "metafence:cccccccc:0000000000000001"
#define TAG_D1 "metafence:dddddddd:0000000000000001"

static void lead(struct scene *s)
{
    // Not what a busy machine gets done in a takeover's 450 ms: test_takeover has that bound.
    pgt_run(s->admin, "DO $$BEGIN EXECUTE replace(pg_get_functiondef("
                      "'metafence.on_campaign'::regproc), '450 ms', '60 s'); END$$");
    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->a1, "INSERT INTO worker SELECT i, 'COMPUTE_NODE', 'host-' || i, 5688, 'RUNNING'"
                   " FROM generate_series(1, 3) i;"
                   "INSERT INTO worker_property SELECT i, 4, true, true, false FROM"
                   " generate_series(1, 3) i");
}

static const char *bury(struct scene *s, int worker_id, int term, const char *lifetime)
{
    return pgt_get(s->admin,
                   "SELECT metafence.bury('svc', %d, w.worker_id, w.host, w.port,"
                   " w.row_version, 'pod-uid', '%s') FROM metafence.workers() AS w"
                   " WHERE w.worker_id = %d",
                   term, lifetime, worker_id);
}

static void assert_workers(struct scene *s, const char *expected)
{
    assert_string_equal(
        pgt_get(s->admin, "SELECT string_agg(worker_id::text, ' ' ORDER BY worker_id) FROM"
                          " worker"),
        expected);
}

static const char *outcome(struct scene *s, int worker_id)
{
    return pgt_get(s->admin,
                   "SELECT coalesce(outcome, '-') FROM metafence.tombstone WHERE"
                   " worker_id = %d ORDER BY term DESC LIMIT 1",
                   worker_id);
}

static void test_applied_once(void **state)
{
    struct scene *s = *state;

    lead(s);
    assert_string_equal(bury(s, 1, 1, "1 minute"), "t");
    assert_string_equal(bury(s, 2, 1, "1 minute"), "t");
    assert_workers(s, "1 2 3"); // never under a live leader
    (void)pgt_campaign(s->a1, "meta-a");
    assert_workers(s, "1 2 3");
    assert_string_equal(pgt_get(s->admin, "SELECT metafence.unbury('svc', 1, 2)"),
                        "t"); // it lives after all
    take_over(s, s->b1, "meta-b");
    assert_workers(s, "2 3");
    assert_string_equal(outcome(s, 1), "removed");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM worker_property"), "2");
    // By whom and in which term: the log says so.
    assert_string_equal(pgt_get(s->admin,
                                "SELECT concat_ws(' ', operation, worker_id, tag, term) FROM"
                                " metafence.mutation ORDER BY id DESC LIMIT 1"),
                        "DELETE 1 " TAG_B1 " 2");
    // The endpoint comes back with the same id: nothing of the old tombstone touches it.
    pgt_run(s->b1, "INSERT INTO worker VALUES (1, 'COMPUTE_NODE', 'host-1', 5688, 'RUNNING')");
    take_over(s, s->a2, "meta-a");
    assert_workers(s, "1 2 3");
}

static void test_void(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->a1, "INSERT INTO worker SELECT i, 'COMPUTE_NODE', 'host-' || i, 5688, 'RUNNING'"
                   " FROM generate_series(4, 9) i");
    for (int id = 1; id <= 9; id++)
        assert_string_equal(bury(s, id, 1, id == 2 ? "0" : "1 minute"), "t");
    // 1: written since. 3: replaced by a row with the same id. 4: locked. 5: gone. 6: written
    // without the log's notice. 7: another endpoint.
    pgt_run(s->a1, "UPDATE worker SET status = 'STARTING' WHERE worker_id = 1");
    pgt_run(s->a1, "DELETE FROM worker WHERE worker_id IN (3, 5);"
                   "INSERT INTO worker VALUES (3, 'COMPUTE_NODE', 'host-3', 5688, 'RUNNING')");
    set_guard(s, "off");
    pgt_run(s->psql, "UPDATE worker SET status = 'RUNNING' WHERE worker_id = 6");
    pgt_run(s->psql, "BEGIN; SELECT FROM worker WHERE worker_id = 4 FOR UPDATE");
    set_guard(s, "enforce");
    pgt_run(s->admin, "UPDATE metafence.tombstone SET host = 'other' WHERE worker_id = 7");
    pgt_run(s->admin, "UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
    assert_string_equal(pgt_campaign(s->b1, "meta-b"), "meta-b");
    pgt_run(s->psql, "COMMIT");
    assert_workers(s, "1 2 3 4 6 7");
    static const char *const expected[] = {"",
                                           "void: the row was written since",
                                           "void: expired",
                                           "void: the row was written since",
                                           "gone or locked",
                                           "void: the row was written since",
                                           "changed",
                                           "gone or locked",
                                           "removed",
                                           "removed"};
    for (int id = 1; id <= 9; id++)
        assert_string_equal(outcome(s, id), expected[id]);
}

// A node that registers again and gets its id again writes worker_property alone, until it is
// activated.
static void test_registered_again(void **state)
{
    struct scene *s = *state;

    lead(s);
    for (int id = 1; id <= 3; id++)
        assert_string_equal(bury(s, id, 1, "1 minute"), "t");
    pgt_run(s->a1, "UPDATE worker_property SET parallelism = 8 WHERE worker_id = 1");
    pgt_run(s->psql, "BEGIN; UPDATE worker_property SET parallelism = 8 WHERE worker_id = 2");
    pgt_run(s->admin, "UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
    assert_string_equal(pgt_campaign(s->b1, "meta-b"), "meta-b");
    pgt_run(s->psql, "COMMIT");
    assert_workers(s, "1 2");
    assert_string_equal(outcome(s, 1), "changed");
    assert_string_equal(outcome(s, 2), "changed"); // under way
    assert_string_equal(outcome(s, 3), "removed");
    // Without that row, or that table, there is the row of worker alone.
    pgt_run(s->b1, "DELETE FROM worker_property WHERE worker_id = 1");
    assert_string_equal(bury(s, 1, 2, "1 minute"), "t");
    take_over(s, s->a2, "meta-a");
    assert_string_equal(outcome(s, 1), "removed");
    pgt_run(s->psql, "DROP TABLE worker_property");
    assert_string_equal(bury(s, 2, 3, "1 minute"), "t");
    take_over(s, s->a3, "meta-c");
    assert_string_equal(outcome(s, 2), "removed");
}

static void test_only_of_the_term_before(void **state)
{
    struct scene *s = *state;

    lead(s);
    assert_string_equal(bury(s, 1, 2, "1 minute"), "f"); // not this term
    assert_string_equal(bury(s, 1, 0, "1 minute"), "f");
    assert_string_equal(bury(s, 1, 1, "1 minute"), "t");
    set_guard(s, "off"); // then nothing is decided
    take_over(s, s->b1, "meta-b");
    assert_string_equal(outcome(s, 1), "-");
    set_guard(s, "enforce");
    take_over(s, s->a2, "meta-a");
    assert_workers(s, "1 2 3");
    assert_string_equal(outcome(s, 1), "void: of an older term");
    assert_string_equal(bury(s, 1, 2, "1 minute"), "f");
}

// Only the statement by which an incarnation won: later its meta may have read the table.
static void test_never_under_a_live_leader(void **state)
{
    struct scene *s = *state;
    PGconn *c1 = pgt_connect("meta", PGT_DATABASE, TAG_C1);
    PGconn *d1 = pgt_connect("meta", PGT_DATABASE, TAG_D1);

    lead(s);
    // The bookkeeping of b1's win fails and is made up for at its next renewal.
    (void)bury(s, 1, 1, "1 minute");
    pgt_run(s->admin, "ALTER FUNCTION metafence.move_term RENAME TO x");
    take_over(s, s->b1, "meta-b");
    pgt_run(s->admin, "ALTER FUNCTION metafence.x RENAME TO move_term");
    assert_string_equal(pgt_campaign(s->b1, "meta-b"), "meta-b");
    assert_term(s, "2 " TAG_B1 " meta-b");
    assert_string_equal(outcome(s, 1), "void: the new leader may have read the table already");
    // psql changes the id, and somebody who may have read it renews.
    (void)bury(s, 1, 2, "1 minute");
    pgt_run(s->psql, "UPDATE election_leader SET id = 'meta-c', last_heartbeat ="
                     " clock_timestamp()");
    assert_string_equal(outcome(s, 1), "void: the new leader may have read the table already");
    (void)bury(s, 1, 3, "1 minute");
    (void)pgt_campaign(c1, "meta-c");
    assert_term(s, "4 " TAG_C1 " meta-c");
    assert_string_equal(outcome(s, 1), "void: the new leader may have read the table already");
    // A restart inside the lease: the heartbeat before was noted as the dead one's …
    (void)bury(s, 1, 4, "1 minute");
    (void)pgt_campaign(c1, "meta-c");
    (void)pgt_campaign(d1, "meta-c");
    assert_term(s, "5 " TAG_D1 " meta-c");
    assert_string_equal(outcome(s, 1), "removed");
    // … and where it was not, the first renewals of the new one may have been lost.
    (void)bury(s, 2, 5, "1 minute");
    pgt_run(s->admin, "ALTER TABLE metafence.renewal RENAME TO x");
    (void)pgt_campaign(s->a2, "meta-c");
    pgt_run(s->admin, "ALTER TABLE metafence.x RENAME TO renewal");
    (void)pgt_campaign(s->a2, "meta-c");
    assert_term(s, "6 " TAG_A2 " meta-c");
    assert_string_equal(outcome(s, 2), "void: the new leader may have read the table already");
    assert_workers(s, "2 3");
    PQfinish(c1);
    PQfinish(d1);
}

static void test_failures_cost_the_row_alone(void **state)
{
    struct scene *s = *state;

    lead(s);
    for (int id = 1; id <= 3; id++)
        (void)bury(s, id, 1, "1 minute");
    pgt_run(s->psql, "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
                     " IF OLD.worker_id = 2 THEN RAISE EXCEPTION 'no'; END IF;"
                     " RETURN OLD; END $$;"
                     "CREATE TRIGGER no BEFORE DELETE ON worker FOR EACH ROW EXECUTE FUNCTION"
                     " no()");
    take_over(s, s->b1, "meta-b");
    assert_term(s, "2 " TAG_B1 " meta-b");
    assert_workers(s, "2");
    assert_string_equal(outcome(s, 2), "failed: no");
    // All of it fails: the term moves all the same.
    (void)bury(s, 2, 2, "1 minute");
    pgt_run(s->admin, "ALTER TABLE metafence.mutation RENAME TO x");
    take_over(s, s->a2, "meta-a");
    assert_term(s, "3 " TAG_A2 " meta-a");
    assert_string_equal(outcome(s, 2), "-");
}

static void test_at_most_a_hundred(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->a1, "INSERT INTO worker SELECT i, 'COMPUTE_NODE', 'host-' || i, 5688, 'RUNNING'"
                   " FROM generate_series(4, 1200) i");
    assert_string_equal(
        pgt_get(s->admin, "SELECT count(*) FILTER (WHERE metafence.bury('svc', 1, w.worker_id,"
                          " w.host, w.port, w.row_version, NULL, '1 minute')) FROM"
                          " metafence.workers() AS w"),
        "1000"); // bounded
    struct instant begin = clock_now();
    take_over(s, s->b1, "meta-b");
    print_message("takeover with 1000 tombstones: %lld ms\n",
                  (long long)(instant_since(clock_now(), begin) / NS_PER_MS));
    int64_t left = 0;
    assert_true(election_parse_count(pgt_get(s->admin, "SELECT count(*) FROM worker"), &left));
    assert_in_range(left, 1100, 1199);
}

static void test_removal_runs_as_the_owner(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->psql, "CREATE TABLE ran_as (who text); GRANT INSERT ON ran_as TO PUBLIC;"
                     "CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
                     " INSERT INTO public.ran_as VALUES (current_user); RETURN OLD; END $$;"
                     "CREATE TRIGGER spy BEFORE DELETE ON worker FOR EACH ROW EXECUTE FUNCTION"
                     " spy()");
    (void)bury(s, 1, 1, "1 minute");
    take_over(s, s->b1, "meta-b");
    assert_workers(s, "2 3");
    assert_string_equal(pgt_get(s->admin, "SELECT string_agg(who, ' ') FROM ran_as"), "meta");
}

// The guard shows rows as JSON, and a type of the table's owner may have a cast to that.
static void test_no_cast_of_the_owner_runs(void **state)
{
    struct scene *s = *state;

    lead(s);
    take_over(s, s->b1, "meta-b");
    pgt_run(s->psql, "CREATE SEQUENCE spied_on; GRANT USAGE ON SEQUENCE spied_on TO PUBLIC;"
                     "CREATE TYPE spied AS ENUM ('RUNNING', 'STARTING');"
                     "CREATE FUNCTION spy(spied) RETURNS json LANGUAGE plpgsql AS $$BEGIN"
                     " IF current_user <> 'meta' THEN PERFORM nextval('public.spied_on'); END"
                     " IF; RETURN '1'; END $$;"
                     "CREATE CAST (spied AS json) WITH FUNCTION spy(spied);"
                     "ALTER TABLE worker ALTER status TYPE spied USING status::spied");
    pgt_run(s->b1, "UPDATE worker SET status = 'STARTING' WHERE worker_id = 1");
    assert_string_equal(pgt_try(s->a1, "DELETE FROM worker"), "MF001");
    assert_string_equal(pgt_get(s->admin, "SELECT is_called FROM spied_on"), "f");
    assert_string_equal(pgt_get(s->admin, "SELECT new IS NULL AND worker_id IS NULL FROM"
                                          " metafence.mutation ORDER BY id DESC LIMIT 1"),
                        "t");
}

// --- intents ---

static const char *intend(struct scene *s, int worker_id, int term)
{
    return pgt_get(s->admin,
                   "SELECT metafence.intend('svc', %d, w.worker_id, w.host, w.port,"
                   " w.row_version) FROM metafence.workers() AS w WHERE w.worker_id = %d",
                   term, worker_id);
}

// What meta does for a DeleteWorkerNode, and for a node that its checker has expired.
static const char *delete_at(PGconn *session, const char *host)
{
    return pgt_try(session, "DELETE FROM worker WHERE host = '%s'", host);
}

static void test_intent(void **state)
{
    struct scene *s = *state;
    static const char *const modes[] = {"enforce", "observe"};

    lead(s);
    pgt_run(s->a1, "DELETE FROM worker_property");
    assert_string_equal(intend(s, 1, 2), "f"); // not this term
    assert_string_equal(
        pgt_get(s->admin, "SELECT metafence.intend('svc', 1, 9, 'host-9', 5688, NULL)"), "f");
    for (size_t i = 0; i < 2; i++) {
        set_guard(s, modes[i]);
        assert_string_equal(intend(s, 1, 1), "t");
        // Meta's delete by endpoint meets the row that was meant, or, registered again, not.
        pgt_run(s->a1, "UPDATE worker SET worker_id = 17 WHERE worker_id = 1");
        assert_string_equal(pgt_try(s->a1, "DELETE FROM worker WHERE host = 'host-1'"),
                            "MF002");
        assert_non_null(strstr(pgt_message(s->a1), "worker_id=17"));
        assert_non_null(strstr(pgt_message(s->a1), "worker_id=1 at host-1:5688"));
        pgt_run(s->a1, "DELETE FROM worker WHERE worker_id = 3; INSERT INTO worker VALUES (3,"
                       " 'COMPUTE_NODE', 'host-3', 5688, 'S')"); // others are free
        pgt_run(s->a1, "UPDATE worker SET worker_id = 1 WHERE worker_id = 17");
    }
    assert_string_equal(intend(s, 1, 1), "t");
    assert_string_equal(delete_at(s->a1, "host-1"), ""); // the one that was meant
    pgt_run(s->a1, "INSERT INTO worker VALUES (18, 'COMPUTE_NODE', 'host-2', 1, 'S')");
    // The term ends it.
    assert_string_equal(intend(s, 2, 1), "t");
    pgt_run(s->a1, "UPDATE worker SET worker_id = 19 WHERE worker_id = 2");
    take_over(s, s->b1, "meta-b");
    pgt_run(s->b1, "DELETE FROM worker WHERE host = 'host-2'");
    assert_int_equal(counter(s, "intended"), 2);
}

// The id alone does not tell a row that was judged from the live one that it has become.
static void test_intent_is_for_the_row_as_judged(void **state)
{
    struct scene *s = *state;

    lead(s);
    assert_string_equal(intend(s, 1, 1), "t");
    pgt_run(s->a1, "UPDATE worker_property SET parallelism = 8 WHERE worker_id = 1");
    assert_string_equal(delete_at(s->a1, "host-1"), "MF002");
    assert_non_null(strstr(pgt_message(s->a1), "before it was written again"));
    assert_string_equal(intend(s, 1, 1), "t"); // gone once more
    pgt_run(s->psql, "BEGIN; UPDATE worker_property SET parallelism = 4 WHERE worker_id = 1");
    assert_string_equal(delete_at(s->a1, "host-1"), "MF002"); // under way
    pgt_run(s->psql, "ROLLBACK");
    assert_string_equal(delete_at(s->a1, "host-1"), "");
    assert_string_equal(intend(s, 2, 1), "t");
    pgt_run(s->a1, "UPDATE worker SET status = 'STARTING' WHERE worker_id = 2");
    assert_string_equal(delete_at(s->a1, "host-2"), "MF002");
    assert_workers(s, "2 3");
    assert_int_equal(counter(s, "intended"), 3);
    assert_int_equal(counter(s, "unreadable"), 0);
}

// A removal that may still be under way bars no other one that is announced itself.
static void test_intents_at_one_endpoint(void **state)
{
    struct scene *s = *state;

    lead(s);
    assert_string_equal(intend(s, 1, 1), "t");
    pgt_run(s->a1, "DELETE FROM worker_property WHERE worker_id = 1;"
                   "UPDATE worker SET worker_id = 17 WHERE worker_id = 1");
    assert_string_equal(delete_at(s->a1, "host-1"), "MF002");
    assert_string_equal(intend(s, 17, 1), "t");
    assert_string_equal(delete_at(s->a1, "host-1"), "");
    assert_workers(s, "2 3");
}

static const char *withdraw(struct scene *s, int worker_id, int term)
{
    return pgt_get(s->admin, "SELECT metafence.withdraw('svc', %d, %d)", term, worker_id);
}

// What is announced again before it was withdrawn: an earlier call has no answer, and may still
// come when the later one is answered and the row gone.
static void test_intent_after_no_answer(void **state)
{
    struct scene *s = *state;

    lead(s);
    assert_string_equal(intend(s, 2, 1), "t");
    assert_string_equal(withdraw(s, 2, 2), "f"); // another term's
    assert_string_equal(withdraw(s, 2, 1), "t");
    assert_string_equal(withdraw(s, 2, 1), "f");
    assert_string_equal(intend(s, 1, 1), "t");
    assert_string_equal(intend(s, 1, 1), "t");
    assert_string_equal(delete_at(s->a1, "host-1"), "");
    assert_string_equal(withdraw(s, 1, 1), "f");
    pgt_run(s->a1, "INSERT INTO worker VALUES (4, 'COMPUTE_NODE', 'host-1', 5688, 'STARTING')");
    assert_string_equal(delete_at(s->a1, "host-1"), "MF002");
    take_over(s, s->b1, "meta-b"); // ends it
    assert_string_equal(delete_at(s->b1, "host-1"), "");
}

// In observe nobody is refused for having lost the lead: a call that the old leader did late
// is bound to its own term's intents.
static void test_late_call_of_the_old_leader(void **state)
{
    struct scene *s = *state;

    lead(s);
    set_guard(s, "observe");
    for (int id = 1; id <= 3; id++)
        assert_string_equal(intend(s, id, 1), "t");
    take_over(s, s->b1, "meta-b");
    pgt_run(s->b1, "UPDATE worker_property SET parallelism = 8 WHERE worker_id IN (1, 2)");
    assert_string_equal(intend(s, 3, 2), "t"); // leaves the older ones alone
    assert_string_equal(delete_at(s->a1, "host-1"), "MF002");
    assert_string_equal(delete_at(s->a1, "host-3"), ""); // as it was judged
    assert_string_equal(delete_at(s->b1, "host-2"), ""); // not bound by them
    assert_workers(s, "1");
    assert_string_equal(withdraw(s, 3, 2), "t");
    // Enforce refuses all that he does.
    set_guard(s, "enforce");
    assert_string_equal(delete_at(s->a1, "host-1"), "MF001");
    // They don't pile up.
    for (int i = 0; i < 6; i++) {
        pgt_run(s->admin, "UPDATE metafence.term SET term = term + 2");
        (void)intend(s, 1, 4 + 2 * i);
    }
    assert_string_equal(pgt_get(s->admin,
                                "SELECT string_agg(term::text, ' ' ORDER BY term) FROM"
                                " metafence.intent"),
                        "4 6 8 10 12 14");
}

// An agent of the version before: it knows neither versions nor what it must not withdraw.
static void test_intents_of_older_agents(void **state)
{
    struct scene *s = *state;
    static const char old[] = "SELECT metafence.intend('svc', 1, 1, 'host-1', 5688)";

    lead(s);
    assert_string_equal(pgt_get(s->admin, old), "t");
    pgt_run(s->a1, "UPDATE worker_property SET parallelism = 8 WHERE worker_id = 1");
    assert_string_equal(pgt_get(s->admin, old), "t");
    assert_string_equal(delete_at(s->a1, "host-1"), "MF002");
    assert_string_equal(pgt_get(s->admin, "SELECT metafence.withdraw(1)"), "f");
    assert_string_equal(delete_at(s->a1, "host-1"), "MF002");
    assert_string_equal(
        pgt_get(s->admin, "SELECT metafence.intend('svc', 1, 9, 'host-9', 5688)"), "f");
}

static void install_again(struct scene *s)
{
    PGresult *result = PQexec(s->admin, sql_schema);

    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    PQclear(result);
}

// Intents as they were without a version: nothing at their endpoint passes until the next one.
static void test_intents_are_upgraded(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->admin, "ALTER TABLE metafence.intent DROP COLUMN row_version, DROP COLUMN"
                      " is_repeated, DROP CONSTRAINT intent_pkey, ADD PRIMARY KEY (worker_id);"
                      "INSERT INTO metafence.intent VALUES (1, 'host-1', 5688, 'svc', 1,"
                      " now())");
    install_again(s);
    install_again(s);
    assert_string_equal(delete_at(s->a1, "host-1"), "MF002");
    assert_string_equal(intend(s, 1, 1), "t");
    assert_string_equal(delete_at(s->a1, "host-1"), "");
    take_over(s, s->b1, "meta-b");
    assert_string_equal(intend(s, 2, 2), "t");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.intent"), "2");
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_applied_once),
    SCENE_TEST(test_void),
    SCENE_TEST(test_registered_again),
    SCENE_TEST(test_only_of_the_term_before),
    SCENE_TEST(test_never_under_a_live_leader),
    SCENE_TEST(test_failures_cost_the_row_alone),
    SCENE_TEST(test_at_most_a_hundred),
    SCENE_TEST(test_removal_runs_as_the_owner),
    SCENE_TEST(test_no_cast_of_the_owner_runs),
    SCENE_TEST(test_intent),
    SCENE_TEST(test_intent_is_for_the_row_as_judged),
    SCENE_TEST(test_intents_at_one_endpoint),
    SCENE_TEST(test_intent_after_no_answer),
    SCENE_TEST(test_late_call_of_the_old_leader),
    SCENE_TEST(test_intents_of_older_agents),
    SCENE_TEST(test_intents_are_upgraded),
};

UNIT_MAIN(tests)
