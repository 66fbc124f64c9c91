// SPDX-License-Identifier: Apache-2.0
// The record of recoveries and of dropped tables, with each version's catalog.
#include "tests/unit/pg/recovering.h"

#include <string.h>

// "<fragment> <job> <name or -> <table ids>, ..."
static const char *dropped(struct scene *s)
{
    return pgt_get(s->admin, "SELECT coalesce(string_agg(concat_ws(' ', id, job_id,"
                             " coalesce(name, '-'), '[' || tables || ']'), ', '), '')"
                             " FROM metafence.recovery_rows('svc') WHERE kind = 'dropped'");
}

// "<scope> <joined> <ended or ->, ..." of the present term, oldest first.
static const char *recoveries(struct scene *s)
{
    return pgt_get(s->admin, "SELECT string_agg(concat_ws(' ', r.scope, r.joined,"
                             " coalesce(r.ended, '-')), ', ' ORDER BY r.id) FROM"
                             " metafence.recovery AS r JOIN metafence.term AS t USING (term)");
}

static void test_dropped(void **state)
{
    struct scene *s = *state;

    drop_job(s->b1, 11);
    pgt_run(s->b1, "UPDATE fragment SET state_table_ids = '[1005]' WHERE job_id = 13;"
                   "UPDATE fragment SET vnode_count = 1, state_table_ids = '[1005, 1007]'"
                   " WHERE job_id = 13");
    assert_string_equal(dropped(s), "111 11 mv_one [1001 1002], 113 13 mv_three [1004 1006]");
    // Undone, it was not dropped.
    pgt_run(s->b1, "BEGIN; DELETE FROM object WHERE oid = 12; ROLLBACK");
    // One after the other goes; look-alikes inside of the deltas don't count.
    static const uint32_t alike[] = {1001};
    assert_string_equal(insert_delta(s->b1, DELTA_COMMIT, NULL, 0), "");
    assert_string_equal(insert_delta(s->b1, DELTA_COMPACTION, NULL, 0), "");
    assert_string_equal(dropped(s), "111 11 mv_one [1001 1002], 113 13 mv_three [1004 1006]");
    assert_string_equal(insert_delta(s->b1, DELTA_REMOVAL, alike, 1), "");
    assert_string_equal(dropped(s), "111 11 mv_one [1002], 113 13 mv_three [1004 1006]");
    pgt_run(s->b1, "BEGIN");
    assert_string_equal(remove_table(s->b1, 1002), "");
    pgt_run(s->b1, "ROLLBACK");
    static const uint32_t rest[] = {1006, 4711, 1002, 1002};
    assert_string_equal(insert_delta(s->b1, DELTA_REMOVAL, rest, 4), "");
    assert_string_equal(dropped(s), "113 13 mv_three [1004]");
    // A fragment without state tables, or with NULL, leaves nothing to wait for.
    create_job(s->b1, 20, "mv", "[]");
    pgt_run(s->b1, "UPDATE fragment SET state_table_ids = NULL WHERE job_id = 20;"
                   "DELETE FROM fragment WHERE job_id = 20");
    assert_string_equal(dropped(s), "113 13 mv_three [1004]");
    // The name of a sink.
    pgt_run(s->b1, "INSERT INTO object (oid, obj_type) VALUES (30, 'SINK');"
                   "INSERT INTO sink VALUES (30, 'out');"
                   "INSERT INTO fragment (fragment_id, job_id, state_table_ids) VALUES"
                   " (130, 30, '[1030]'), (131, 30, '[1031]')");
    drop_job(s->b1, 30);
    assert_string_equal(dropped(s),
                        "113 13 mv_three [1004], 130 30 out [1030], 131 30 out [1031]");
    // The purge of a recovery that committed has had all that its catalog no longer had.
    pgt_run(s->admin, "UPDATE metafence.gate SET expires_at = now()");
    begin_attempt(s->b1, 0);
    drop_job(s->b1, 12); // while it runs: the next purge's
    assert_string_equal(insert_delta(s->b1, DELTA_COMMIT, NULL, 0), "");
    assert_string_equal(dropped(s), "112 12 mv_two [1003]");
    begin_attempt(s->b1, 3); // one database purges nothing
    assert_string_equal(insert_delta(s->b1, DELTA_COMMIT, NULL, 0), "");
    assert_string_equal(dropped(s), "112 12 mv_two [1003]");
}

static void test_attempts(void **state)
{
    struct scene *s = *state;

    begin_attempt(s->b1, 0);
    begin_attempt(s->b1, 5);
    begin_attempt(s->b1, 0);
    assert_string_equal(recoveries(s), "global 0 committed, global 2 -, database 1 -");
    // Only the leader's own.
    begin_attempt(s->a1, 0);
    begin_attempt(s->psql, 0);
    assert_string_equal(recoveries(s), "global 0 committed, global 2 -, database 1 -");
    pgt_run(s->b1, "BEGIN");
    begin_attempt(s->b1, 0);
    pgt_run(s->b1, "ROLLBACK");
    assert_string_equal(state_of_recovery(s, "joined"), "2");
    assert_string_equal(insert_delta(s->b1, DELTA_COMPACTION, NULL, 0), "");
    assert_string_equal(insert_delta(s->a3, DELTA_COMMIT, NULL, 0), "");
    assert_string_equal(recoveries(s), "global 0 committed, global 2 -, database 1 -");
    assert_string_equal(insert_delta(s->b1, DELTA_COMMIT, NULL, 0), "");
    assert_string_equal(recoveries(s),
                        "global 0 committed, global 2 committed, database 1 committed");
    begin_attempt(s->b1, 0);
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.recovery WHERE"
                                          " closed_at IS NULL"),
                        "1");
}

// A session that saw nothing pending looks no more until there is a change. While who makes one
// is under way it is counted already and not to be seen: nothing is kept then.
static void test_change_under_way(void **state)
{
    struct scene *s = *state;

    for (int how = 0; how < 2; how++) {
        assert_string_equal(insert_delta(s->b1, DELTA_COMPACTION, NULL, 0), "");
        const char *calm = pgt_get(s->b1, "SHOW metafence.calm");
        assert_string_equal(calm, pgt_get(s->admin, "SELECT last_value FROM"
                                                    " metafence.recovery_change"));
        PGconn *other = pgt_connect("meta", PGT_DATABASE, TAG_B1);
        pgt_run(other, "BEGIN");
        if (how == 0)
            drop_job(other, 12);
        else
            begin_attempt(other, 0);
        assert_string_equal(insert_delta(s->b1, DELTA_COMPACTION, NULL, 0), "");
        assert_string_equal(pgt_get(s->b1, "SHOW metafence.calm"), calm);
        pgt_run(other, "COMMIT");
        PQfinish(other);
        // Seen by the very next delta: what is removed is forgotten, the recovery closed.
        if (how == 0) {
            assert_string_equal(dropped(s), "112 12 mv_two [1003]");
            assert_string_equal(remove_table(s->b1, 1003), "");
            assert_string_equal(dropped(s), "");
        } else {
            assert_string_equal(insert_delta(s->b1, DELTA_COMMIT, NULL, 0), "");
            assert_string_equal(state_of_recovery(s, "recovery_id"), "NULL");
        }
    }
    assert_int_equal(counter(s, "recovery_failed"), 0);
}

static void test_texts(void **state)
{
    struct scene *s = *state;
    static const struct {
        const char *sql, *marker;
    } cases[] = {
        {"DELETE FROM \"object\" WHERE \"object\".\"obj_type\" = $1 AND \"object\".\"oid\" NOT"
         " IN (SELECT \"subscription_id\" FROM \"subscription\")",
         "global"},
        {"delete from object where obj_type = 'SUBSCRIPTION' and oid not in (select 1)",
         "global"},
        {"DELETE FROM \"object\" WHERE \"object\".\"obj_type\" = $1 AND \"object\".\"oid\" NOT"
         " IN (SELECT \"subscription_id\" FROM \"subscription\") AND \"object\".\"database_id\""
         " = $3",
         "database"},
        {"DELETE FROM \"object\" WHERE \"object\".\"oid\" IN ($1, $2)", "NULL"},
        {"DELETE FROM \"object\" WHERE \"object\".\"oid\" = $1", "NULL"},
        {"DELETE FROM object WHERE oid=7", "NULL"},
        {"DELETE FROM object", "?"},
        {"DELETE FROM object WHERE obj_type = $1", "?"},
        {"EXECUTE clean(1)", "?"},
        {"", "?"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(
            pgt_get(s->admin, "SELECT metafence.marker_of($sql$%s$sql$)", cases[i].sql),
            cases[i].marker);
    assert_string_equal(pgt_get(s->admin, "SELECT metafence.marker_of(NULL)"), "?");
    // One that nobody knows: counted, said, and nothing is held for it.
    pgt_run(s->b1, "DELETE FROM object WHERE obj_type = 'NONE'");
    assert_int_equal(counter(s, "recovery_unknown"), 1);
    assert_string_equal(state_of_recovery(s, "recovery_id"), "NULL");
    assert_string_equal(remove_table(s->b1, 1001), "");
}

static void test_lists(void **state)
{
    struct scene *s = *state;

    pgt_run(s->b1,
            "UPDATE streaming_job SET job_status = 'CREATING' WHERE job_id = 12;"
            "UPDATE object SET created_at = created_at - interval '90 s' WHERE oid = 12");
    assert_string_equal(state_of_recovery(s, "creating"), "1");
    assert_string_equal(pgt_get(s->admin,
                                "SELECT concat_ws(' ', id, name, status, age_ms BETWEEN 90000"
                                " AND 390000) FROM metafence.recovery_rows('svc') WHERE kind ="
                                " 'creating'"),
                        "12 mv_two CREATING t");
    begin_attempt(s->b1, 0);
    acknowledge(s, 1, "reset");
    acknowledge(s, 1, "none");
    pgt_run(s->b1, "UPDATE worker SET status = 'STARTING' WHERE worker_id = 2");
    assert_string_equal(
        pgt_get(s->admin, "SELECT string_agg(concat_ws(' ', id, host, port, status,"
                          " coalesce(how, '-')), ', ') FROM metafence.recovery_rows('svc')"
                          " WHERE kind = 'worker'"),
        "1 cn-1 5688 RUNNING none reset, 2 cn-2 5688 STARTING -");
    assert_string_equal(state_of_recovery(s, "live"), "1");
    assert_string_equal(state_of_recovery(s, "version"), "m20260804_000000_worker");
    // A catalog that can't be read is said, and breaks nothing.
    pgt_run(s->psql, "ALTER TABLE streaming_job RENAME COLUMN job_status TO state");
    assert_string_equal(state_of_recovery(s, "creating"), "NULL");
    pgt_run(s->admin, "ALTER TABLE worker RENAME COLUMN host TO h");
    assert_string_equal(state_of_recovery(s, "live"), "NULL");
    assert_string_equal(
        pgt_get(s->admin, "SELECT count(*) FROM metafence.recovery_rows('svc')"), "0");
}

// RisingWave's own migrations run with the triggers on, and each version is recorded.
static void test_versions(void **state)
{
    struct scene *s = *state;
    static const char *const steps[] = {CATALOG_V2_6, CATALOG_TO_V2_8, CATALOG_TO_V3,
                                        CATALOG_TO_HEAD};

    (void)pgt_campaign(s->b1, "meta-b");
    set_recovery(s, "enforce");
    for (int i = 0; i < 4; i++) {
        pgt_run(s->psql, "%s", steps[i]);
        while (strcmp(pgt_get(s->admin, "SELECT metafence.complete()"), "0") != 0)
            ;
        assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.recovery_tables()"
                                              " WHERE is_covered"),
                            "4");
        assert_string_equal(state_of_recovery(s, "is_verified"), "true");
        pgt_run(s->b1, "DELETE FROM worker; INSERT INTO worker VALUES"
                       " (1, 'COMPUTE_NODE', 'cn-1', 5688, 'RUNNING')");
        assert_string_equal(refresh_gate(s, "open", 600000), "t");
        create_job(s->b1, 11, "mv", "[1001]");
        begin_attempt(s->b1, 0);
        drop_job(s->b1, 11);
        assert_string_equal(remove_table(s->b1, 1001), "MF003");
        begin_attempt(s->b1, 0);
        acknowledge(s, 1, "reset");
        assert_string_equal(remove_table(s->b1, 1001), "");
        assert_string_equal(dropped(s), "");
        assert_string_equal(insert_delta(s->b1, DELTA_COMMIT, NULL, 0), "");
    }
    assert_int_equal(counter(s, "recovery_failed") + counter(s, "recovery_unknown"), 0);
}

// Columns that are missing or of another type: nothing breaks, nothing is held, it is counted.
static void test_shapes(void **state)
{
    struct scene *s = *state;
    static const struct {
        const char *change, *statement;
    } cases[] = {
        {"ALTER TABLE fragment RENAME COLUMN state_table_ids TO x",
         "DELETE FROM fragment WHERE fragment_id = 111"},
        {"ALTER TABLE fragment ALTER COLUMN x TYPE text", "UPDATE fragment SET x = '[]'"},
        {"ALTER TABLE fragment RENAME COLUMN x TO state_table_ids",
         "DELETE FROM fragment WHERE fragment_id = 112"},
        {"ALTER TABLE fragment RENAME COLUMN fragment_id TO id",
         "DELETE FROM fragment WHERE id = 113"},
        {"DROP TABLE fragment", "DELETE FROM object WHERE oid = 12"},
        {"ALTER TABLE object DROP COLUMN database_id", "DELETE FROM object WHERE oid = 13"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pgt_run(s->psql, "%s", cases[i].change);
        pgt_run(s->b1, "%s", cases[i].statement);
    }
    assert_true(counter(s, "recovery_failed") >= 4);
    assert_string_equal(dropped(s), "");
    begin_attempt(s->b1, 0);
    assert_string_equal(remove_table(s->b1, 1), "MF003");
    int64_t failed = counter(s, "recovery_failed");
    pgt_run(s->psql, BEYOND_HEAD);
    pgt_run(s->b1, "INSERT INTO hummock_version_delta (id, prev_id, max_committed_epoch,"
                   " trivial_move, full_version_delta) VALUES (1, 0, 0, false, 'x')");
    assert_int_equal(counter(s, "recovery_failed"), failed + 1);
}

static void test_dropped_is_bounded(void **state)
{
    struct scene *s = *state;

    pgt_run(s->b1,
            "INSERT INTO fragment (fragment_id, job_id, state_table_ids) SELECT i, 12, '[1]'"
            " FROM generate_series(1000, 11300) AS i;"
            "DELETE FROM fragment WHERE job_id = 12");
    assert_string_equal(
        pgt_get(s->admin, "SELECT count(*) BETWEEN 10000 AND 10100 FROM metafence.dropped"),
        "t");
}

// The agent's session hears of an attempt when it is committed, and of what passed.
static void test_notifications(void **state)
{
    struct scene *s = *state;
    static const char *const expected[] = {"recovery ", "passed "};

    pgt_run(s->admin,
            "LISTEN metafence_recovery; UPDATE metafence.gate SET expires_at = now()");
    begin_attempt(s->b1, 0);
    assert_string_equal(remove_table(s->b1, 1), "");
    for (size_t i = 0; i < 2; i++) {
        PGnotify *note = NULL;
        while (!note) {
            (void)pgt_get(s->admin, "SELECT 1");
            note = PQnotifies(s->admin);
        }
        assert_string_equal(note->relname, "metafence_recovery");
        assert_int_equal(strncmp(note->extra, expected[i], strlen(expected[i])), 0);
        PQfreemem(note);
    }
}

// Nobody has a right by default; the triggers need none of whoever fires them.
static void test_rights(void **state)
{
    struct scene *s = *state;
    static const char *const calls[] = {
        "SELECT metafence.recovery_state('svc')",
        "SELECT metafence.recovery_rows('svc')",
        "SELECT metafence.refresh_gate('svc', 'tag', 'open', 1, 1, 1)",
        "SELECT metafence.acknowledge(1, 1, 'h', 1, 'reset', NULL, NULL)",
        "SELECT metafence.end_recovery(1, 1)",
        "SELECT metafence.purged(1)",
        "SELECT metafence.open_recovery('svc', 2, NULL, 'global', true)",
        "SELECT metafence.note_dropped('public', 1, 1, '[1]', NULL)",
        "SELECT metafence.hold_removal(1, '{1}')",
        "TABLE metafence.recovery",
        "DELETE FROM metafence.dropped",
        "INSERT INTO metafence.verified VALUES ('a', 'b', 'c')",
    };

    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        assert_string_equal(pgt_try(s->psql, "%s", calls[i]), "42501");
}

static const struct CMUnitTest tests[] = {
    RECOVERY_TEST(test_dropped),
    RECOVERY_TEST(test_attempts),
    RECOVERY_TEST(test_change_under_way),
    RECOVERY_TEST(test_texts),
    RECOVERY_TEST(test_lists),
    SCENE_TEST(test_versions),
    RECOVERY_TEST(test_shapes),
    RECOVERY_TEST(test_dropped_is_bounded),
    RECOVERY_TEST(test_notifications),
    RECOVERY_TEST(test_rights),
};

UNIT_MAIN(tests)
