// SPDX-License-Identifier: Apache-2.0
// What the reconciler reads: what the leader's memory surely holds, and what others have
// changed since it was loaded.
#include "tests/unit/pg/scene.h"

#include <stdio.h>
#include <string.h>

#define INSERT_WORKER(id, host)                                                                \
    "INSERT INTO worker VALUES (" #id ", 'COMPUTE_NODE', '" host "', 5688, 'RUNNING')"

// A first leader with a row, then a handover: `b1` leads in term 2.
static void lead(struct scene *s)
{
    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->a1, INSERT_WORKER(1, "host-1"));
    take_over(s, s->b1, "meta-b");
}

// "<term> <mode> <known> <unknown>/<lost>/<reborn>"
static const char *state_of(struct scene *s)
{
    return pgt_get(s->admin, "SELECT concat_ws(' ', term, mode, is_known, concat_ws('/',"
                             " unknown_rows, lost_rows, reborn_rows))"
                             " FROM metafence.reconcile_state('svc', NULL)");
}

// The operation of the newest change by others, as the leader's agent remembers what it has
// mended.
static const char *newest_of(struct scene *s)
{
    return pgt_get(s->admin,
                   "SELECT coalesce((SELECT concat_ws(' ', m.operation, m.worker_id)"
                   " FROM metafence.mutation AS m WHERE m.id = r.newest),"
                   " r.newest::text) FROM metafence.reconcile_state('svc', NULL) AS r");
}

static const char *log_of(struct scene *s)
{
    return pgt_get(s->admin,
                   "SELECT coalesce(string_agg(concat_ws(' ', operation, worker_id, is_own),"
                   " ', ' ORDER BY id), '-') FROM metafence.reconcile_log('svc')");
}

static void test_own_rows(void **state)
{
    struct scene *s = *state;

    lead(s);
    assert_string_equal(state_of(s), "2 enforce t 0/0/0");
    assert_string_equal(log_of(s), "-"); // what was there before is not listed
    pgt_run(s->b1, INSERT_WORKER(2, "host-2"));
    pgt_run(s->b1, "UPDATE worker SET status = 'STARTING' WHERE worker_id = 2");
    assert_string_equal(log_of(s), "INSERT 2 t");
    assert_string_equal(state_of(s), "2 enforce t 0/0/0");
    pgt_run(s->b1, "DELETE FROM worker WHERE worker_id IN (1, 2)"); // its own doing
    assert_string_equal(state_of(s), "2 enforce t 0/0/0");
    assert_string_equal(newest_of(s), "0");
}

// What the superseded leader writes where the guard only observes.
static void test_foreign_rows(void **state)
{
    struct scene *s = *state;

    lead(s);
    set_guard(s, "observe");
    pgt_run(s->a1, INSERT_WORKER(7, "host-7"));
    assert_string_equal(state_of(s), "2 observe t 1/0/0");
    assert_string_equal(log_of(s), "INSERT 7 f");
    pgt_run(s->a1, "DELETE FROM worker WHERE worker_id = 1");
    assert_string_equal(state_of(s), "2 observe t 1/1/0");
    // The endpoint registers again, with the leader.
    assert_string_equal(newest_of(s), "DELETE 1");
    pgt_run(s->b1, INSERT_WORKER(9, "host-1"));
    assert_string_equal(state_of(s), "2 observe t 1/1/1");
    assert_string_equal(newest_of(s), "DELETE 1"); // not the leader's own
    // A restart loads it all.
    take_over(s, s->a2, "meta-a");
    assert_string_equal(state_of(s), "3 observe t 0/0/0");
    assert_string_equal(newest_of(s), "0");
    assert_string_equal(log_of(s), "-");
    // Somebody's psql.
    pgt_run(s->psql, "DELETE FROM worker WHERE worker_id = 9");
    assert_string_equal(state_of(s), "3 observe t 0/1/0");
}

// "<unknown>/<of these without a tag>/<lost>/<reborn> <untagged writers>"
static const char *untagged_of(struct scene *s, const char *is_pooled)
{
    char query[256];

    (void)snprintf(query, sizeof(query),
                   "SELECT concat_ws(' ', concat_ws('/', unknown_rows, untagged_rows,"
                   " lost_rows, reborn_rows), untagged_writers)"
                   " FROM metafence.reconcile_state('svc', NULL, %s)",
                   is_pooled);
    return pgt_get(s->admin, "%s", query);
}

// A pooler that drops application_name on some connections: the leader's own rows look like
// somebody's. That shows in what else is written without a tag, and then none of it counts.
static void test_untagged_writers(void **state)
{
    static const char guarded[] = "UPDATE hummock_sequence SET seq = seq + 1";
    struct scene *s = *state;

    lead(s);
    pgt_run(s->psql, "%s", guarded); // before this leader's term
    take_over(s, s->a2, "meta-a");
    assert_string_equal(untagged_of(s, "false"), "0/0/0/0 f");
    // Somebody's psql: a row and its property.
    pgt_run(s->psql, INSERT_WORKER(7, "host-7"));
    assert_string_equal(untagged_of(s, "false"), "1/1/0/0 f");
    pgt_run(s->psql, "INSERT INTO worker_property (worker_id, is_streaming, is_serving,"
                     " is_unschedulable) VALUES (7, true, true, false)");
    assert_string_equal(untagged_of(s, "false"), "1/1/0/0 f");
    assert_string_equal(untagged_of(s, "true"), "0/0/0/0 f"); // the agent sees a pooler
    // A checkpoint without a tag: whoever writes these is a leader.
    pgt_run(s->psql, "%s", guarded);
    assert_string_equal(untagged_of(s, "false"), "0/0/0/0 t");
    pgt_run(s->psql, "DELETE FROM worker WHERE worker_id = 1");
    pgt_run(s->psql, "%s", guarded);
    pgt_run(s->psql, "%s", guarded);
    pgt_run(s->psql, INSERT_WORKER(8, "host-1"));
    assert_string_equal(untagged_of(s, "false"), "0/0/0/0 t");
    assert_string_equal(newest_of(s), "0");
    assert_string_equal(pgt_get(s->admin, "SELECT ghosts FROM metafence.reconcile_state('svc',"
                                          " '{1, 2}')"),
                        "1"); // 1 may be the leader's own doing
    // What a superseded leader writes is known by its tag all the same.
    set_guard(s, "observe");
    pgt_run(s->b1, INSERT_WORKER(9, "host-9"));
    assert_string_equal(untagged_of(s, "false"), "1/0/0/0 t");
    take_over(s, s->a3, "meta-a");
    assert_string_equal(untagged_of(s, "false"), "0/0/0/0 f");
}

// A second cluster's tables in another schema: the one beside the election's table is meant,
// and what happens in the other is nothing to us. Where that does not tell, nothing is read.
static void test_two_tables_of_workers(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->admin,
            "CREATE SCHEMA two; GRANT ALL ON SCHEMA two TO meta;"
            " CREATE TABLE two.worker (LIKE public.worker INCLUDING ALL);"
            " CREATE TABLE two.election_leader (LIKE public.election_leader INCLUDING ALL);"
            " CREATE TRIGGER metafence_log AFTER INSERT OR UPDATE OR DELETE ON two.worker"
            " FOR EACH ROW EXECUTE FUNCTION metafence.log_worker();"
            " GRANT ALL ON two.worker TO meta");
    pgt_run(s->psql, "INSERT INTO two.worker VALUES (1, 'FRONTEND', 'other', 1, 'RUNNING')");
    assert_string_equal(pgt_get(s->admin, "SELECT string_agg(concat_ws(' ', worker_id, host),"
                                          " ',') FROM metafence.workers()"),
                        "1 host-1");
    assert_string_equal(state_of(s), "2 enforce t 0/0/0");
    pgt_run(s->admin, "CREATE TRIGGER metafence_term AFTER INSERT OR UPDATE ON"
                      " two.election_leader FOR EACH ROW EXECUTE FUNCTION"
                      " metafence.on_campaign()");
    assert_string_equal(pgt_try(s->admin, "SELECT metafence.workers()"), "42P09");
    assert_non_null(strstr(PQerrorMessage(s->admin),
                           "public.worker and two.worker are both guarded, and the election's "
                           "table is beside both of them"));
    // No meta of either is kept from its work by that.
    pgt_run(s->b1, INSERT_WORKER(3, "host-3"));
    pgt_run(s->b1, "DELETE FROM worker WHERE worker_id = 3");
    take_over(s, s->a2, "meta-a");
    pgt_run(s->admin, "DROP TRIGGER metafence_log ON two.worker");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.workers()"), "1");
}

// A transaction that was open in the takeover: the leader can't have loaded what it commits.
static void test_in_flight(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    set_guard(s, "observe"); // enforce ends such sessions
    pgt_run(s->a1, "BEGIN");
    pgt_run(s->a1, INSERT_WORKER(5, "host-5"));
    take_over(s, s->b1, "meta-b");
    assert_string_equal(state_of(s), "2 observe t 0/0/0");
    pgt_run(s->a1, "COMMIT");
    assert_string_equal(state_of(s), "2 observe t 1/0/0");
    assert_string_equal(log_of(s), "INSERT 5 f");
}

// Whatever leaves a gap in the log leaves the memory unknown until the next takeover.
static void test_gaps(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    // The guard came later than its snapshot may be.
    assert_string_equal(state_of(s), "1 enforce t 0/0/0");
    set_guard(s, "off");
    assert_string_equal(state_of(s), "1 off f 0/0/0");
    set_guard(s, "enforce");
    assert_string_equal(state_of(s), "1 enforce f 0/0/0");
    take_over(s, s->b1, "meta-b");
    assert_string_equal(state_of(s), "2 enforce t 0/0/0");
    pgt_run(s->admin, "SELECT nextval('metafence.count_unlogged')");
    assert_string_equal(state_of(s), "2 enforce f 0/0/0");
    take_over(s, s->a2, "meta-a");
    assert_string_equal(state_of(s), "3 enforce t 0/0/0");
    // More entries than the log keeps.
    pgt_run(s->a2, INSERT_WORKER(1, "host-1"));
    for (int i = 0; i < 24; i++)
        pgt_run(s->a2,
                "INSERT INTO worker SELECT i, 'FRONTEND', 'f' || i, 4567, 'RUNNING' FROM"
                " generate_series(100, 199) i; DELETE FROM worker WHERE worker_id >= 100");
    assert_string_equal(state_of(s), "3 enforce f 0/0/0");
    // No row tells of a TRUNCATE. One that is refused is none, and so is another table's.
    take_over(s, s->a3, "meta-b");
    pgt_run(s->psql, "TRUNCATE hummock_gc_history");
    assert_string_equal(pgt_try(s->a2, "TRUNCATE worker CASCADE"), "MF001");
    assert_string_equal(state_of(s), "4 enforce t 0/0/0");
    pgt_run(s->psql, "TRUNCATE worker CASCADE");
    assert_string_equal(state_of(s), "4 enforce f 0/0/0");
    // Off at the takeover.
    set_guard(s, "off");
    take_over(s, s->b1, "meta-b");
    assert_string_equal(tag_row(s, TAG_A2), "3 t");
}

static void test_ghosts(void **state)
{
    struct scene *s = *state;

    lead(s);
    assert_string_equal(pgt_get(s->admin, "SELECT ghosts FROM metafence.reconcile_state('svc',"
                                          " '{1, 4, 4, 5}')"),
                        "2");
    assert_string_equal(
        pgt_get(s->admin, "SELECT ghosts FROM metafence.reconcile_state('svc', '{}')"), "0");
    assert_string_equal(
        pgt_get(s->admin, "SELECT coalesce(ghosts, -1) FROM metafence.reconcile_state('svc',"
                          " NULL)"),
        "-1");
    // An expired worker's actors stay where they are shown until a recovery has placed them
    // anew, and that may wait for long: the leader knows what it has deleted itself.
    pgt_run(s->b1, "DELETE FROM worker WHERE worker_id = 1");
    assert_string_equal(
        pgt_get(s->admin, "SELECT ghosts FROM metafence.reconcile_state('svc', '{1}')"), "0");
    pgt_run(s->b1, INSERT_WORKER(2, "host-2"));
    pgt_run(s->psql, "DELETE FROM worker WHERE worker_id = 2");
    assert_string_equal(
        pgt_get(s->admin, "SELECT ghosts FROM metafence.reconcile_state('svc', '{1, 2}')"),
        "1");
}

static void test_records(void **state)
{
    struct scene *s = *state;

    lead(s);
    assert_string_equal(pgt_get(s->admin, "SELECT metafence.intend('svc', 2, 1, 'host-1',"
                                          " 5688)"),
                        "t");
    assert_string_equal(pgt_get(s->admin, "SELECT concat_ws(' ', worker_id, host, port) FROM"
                                          " metafence.intents('svc')"),
                        "1 host-1 5688");
    assert_string_equal(
        pgt_get(s->admin, "SELECT intents FROM metafence.reconcile_state('svc', NULL)"), "1");
    assert_string_equal(pgt_get(s->admin, "SELECT metafence.note_reconcile('svc', 2, 'delete',"
                                          " 1, 'host-1:5688', 'PodEnded', 'pod x', 'ok')"),
                        "t");
    assert_string_equal(pgt_get(s->admin, "SELECT metafence.note_reconcile('svc', 1, 'delete',"
                                          " 1, 'host-1:5688', 'PodEnded', 'pod x', 'ok')"),
                        "f"); // not the term
    assert_string_equal(
        pgt_get(s->admin, "SELECT concat_ws(' ', term, action, worker_id, endpoint, reason,"
                          " evidence, outcome) FROM metafence.reconcile"),
        "2 delete 1 host-1:5688 PodEnded pod x ok");
    // Bounded.
    pgt_run(s->admin, "SELECT metafence.note_reconcile('svc', 2, 'delete', i, 'e', 'r', NULL,"
                      " 'o') FROM generate_series(1, 2300) i");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) <= 1100 FROM metafence.reconcile"),
                        "t");
    take_over(s, s->a2, "meta-a");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.intents('svc')"),
                        "0");
}

// Bookkeeping that fails costs nobody the lead: the memory is just not known.
static void test_note_fails(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->admin, "ALTER TABLE metafence.takeover RENAME TO x");
    take_over(s, s->b1, "meta-b");
    assert_term(s, "2 " TAG_B1 " meta-b");
    pgt_run(s->admin, "ALTER TABLE metafence.x RENAME TO takeover");
    assert_string_equal(state_of(s), "2 enforce f 0/0/0"); // term 1's note
    take_over(s, s->a2, "meta-a");
    assert_string_equal(state_of(s), "3 enforce t 0/0/0");
}

// Nobody has a right by default.
static void test_rights(void **state)
{
    static const char *const calls[] = {
        "SELECT metafence.reconcile_state('svc', '{1}')",
        "SELECT metafence.reconcile_log('svc')",
        "SELECT metafence.intents('svc')",
        "SELECT metafence.note_reconcile('svc', 2, 'a', 1, 'e', 'r', NULL, 'o')",
    };
    struct scene *s = *state;

    lead(s);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        assert_string_equal(pgt_try(s->psql, "%s", calls[i]), "42501");
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_own_rows),         SCENE_TEST(test_foreign_rows),
    SCENE_TEST(test_in_flight),        SCENE_TEST(test_gaps),
    SCENE_TEST(test_ghosts),           SCENE_TEST(test_records),
    SCENE_TEST(test_note_fails),       SCENE_TEST(test_rights),
    SCENE_TEST(test_untagged_writers), SCENE_TEST(test_two_tables_of_workers),
};

UNIT_MAIN(tests)
