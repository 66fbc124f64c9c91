// SPDX-License-Identifier: Apache-2.0
// The guard on RisingWave's tables: who is refused, who is recorded, and that nobody else
// notices it, whatever breaks inside.
#include "tests/unit/pg/scene.h"

#include <stdio.h>
#include <string.h>

#include "sql/sql.h"

// A row of each guarded table with a key of its own, and how its key is named in a refusal.
static const struct {
    const char *table;
    const char *values; // #: the key
    const char *update; // a change without an effect
    const char *where;
    const char *key;
} tables[] = {
    {"worker", "#, 'COMPUTE_NODE', 'host-#', 5688, 'STARTING', NULL", "status = 'RUNNING'",
     "worker_id", "worker_id=#"},
    {"worker_property", "#, 4, true, true, false, NULL, NULL", "parallelism = 8", "worker_id",
     "worker_id=#"},
    {"catalog_version", "'#', 1", "version = 2", "name", "name=#"},
    {"hummock_version_delta", "#, 0, 0, 0, false, '\\xab'", "prev_id = 7", "id", "id=#"},
    {"hummock_version_stats", "#, '{}'", "stats = '{\"1\":2}'", "id", "id=#"},
    {"hummock_sequence", "'#', 1", "seq = 2", "name", "name=#"},
    {"hummock_pinned_version", "#, 1", "min_pinned_id = 2", "context_id", "context_id=#"},
    {"hummock_pinned_snapshot", "#, 1", "min_pinned_snapshot = 2", "context_id",
     "context_id=#"},
    {"compaction_task", "#, '\\xab', 1", "context_id = 2", "id", "id=#"},
    {"compaction_status", "#, '\\xab'", "status = '\\xcd'", "compaction_group_id",
     "compaction_group_id=#"},
    {"compaction_config", "#, '\\xab'", "config = '\\xcd'", "compaction_group_id",
     "compaction_group_id=#"},
    {"hummock_epoch_to_version", "#, 1, 1", "version_id = 2", "epoch", "epoch=#,table_id=1"},
    {"hummock_time_travel_version", "#, '\\xab'", "version = '\\xcd'", "version_id",
     "version_id=#"},
    {"hummock_time_travel_delta", "#, '\\xab'", "version_delta = '\\xcd'", "version_id",
     "version_id=#"},
    {"hummock_sstable_info", "#, 1, '\\xab'", "object_id = 2", "sst_id", "sst_id=#"},
    {"hummock_gc_history", "#, now()", "mark_delete_at = now()", "object_id", "object_id=#"},
    {"hummock_table_change_log", "#, 1, '{}', '\\xab', '\\xab'", "new_value_sst = '\\xcd'",
     "table_id", "table_id=#,checkpoint_epoch=1"},
};
#define TABLE_COUNT (sizeof tables / sizeof tables[0])

// The template with the key in place of each #.
static void fill(char *buf, size_t size, const char *template, int key)
{
    size_t len = 0;

    for (; *template; template ++) {
        int n = *template == '#' ? snprintf(buf + len, size - len, "%d", key)
                                 : snprintf(buf + len, size - len, "%c", *template);
        assert_true(n > 0 && (size_t)n < size - len);
        len += (size_t)n;
    }
}

enum kind { INSERT, UPDATE, DELETE };

// A statement of that kind on the row with that key.
static const char *statement(size_t table, enum kind kind, int key)
{
    static char sql[512];
    char values[256];

    switch (kind) {
    case INSERT:
        fill(values, sizeof values, tables[table].values, key);
        (void)snprintf(sql, sizeof sql, "INSERT INTO %s VALUES (%s)", tables[table].table,
                       values);
        break;
    case UPDATE:
        (void)snprintf(sql, sizeof sql, "UPDATE %s SET %s WHERE %s = '%d'", tables[table].table,
                       tables[table].update, tables[table].where, key);
        break;
    case DELETE:
        (void)snprintf(sql, sizeof sql, "DELETE FROM %s WHERE %s = '%d'", tables[table].table,
                       tables[table].where, key);
        break;
    }
    return sql;
}

static void write_all(PGconn *pq, int key)
{
    static const enum kind kinds[] = {INSERT, UPDATE, DELETE};

    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < TABLE_COUNT; i++)
            pgt_run(pq, "%s", statement(i, kinds[k], key));
    }
}

// a1 led term 1, b1 leads term 2; row 1 of each table is a1's.
static void two_terms(struct scene *s)
{
    (void)pgt_campaign(s->a1, "meta-a");
    for (size_t i = 0; i < TABLE_COUNT; i++)
        pgt_run(s->a1, "%s", statement(i, INSERT, 1));
    take_over(s, s->b1, "meta-b");
    assert_term(s, "2 " TAG_B1 " meta-b");
}

static void assert_refused(PGconn *pq, const char *sql, const char *table, const char *key)
{
    char expected[160];
    const char *message = NULL;

    assert_string_equal(pgt_try(pq, "%s", sql), "MF001");
    message = pgt_message(pq);
    (void)snprintf(expected, sizeof expected, " of %s refused: key %s, session ", table, key);
    if (!strstr(message, expected) || !strstr(message, TAG_A1 " led term 1, the term is 2") ||
        !strstr(message, "The leader is meta-b"))
        fail_msg("%s: %s", expected, message);
}

static void test_every_table(void **state)
{
    struct scene *s = *state;
    char key[64];
    int64_t refused = 0;

    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.guarded_tables()"
                                          " WHERE is_covered"),
                        "17");
    two_terms(s);
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        fill(key, sizeof key, tables[i].key, 1);
        assert_refused(s->a1, statement(i, UPDATE, 1), tables[i].table, key);
        assert_refused(s->a1, statement(i, DELETE, 1), tables[i].table, key);
        (void)snprintf(key, sizeof key, "TRUNCATE %s CASCADE", tables[i].table);
        assert_string_equal(pgt_try(s->a1, "%s", key), "MF001");
        // worker_property 2 would fail for its missing worker otherwise.
        fill(key, sizeof key, tables[i].key, 2);
        if (strcmp(tables[i].table, "worker_property") != 0)
            assert_refused(s->a1, statement(i, INSERT, 2), tables[i].table, key);
        refused += strcmp(tables[i].table, "worker_property") != 0 ? 4 : 3;
    }
    assert_int_equal(counter(s, "refused"), refused);
    for (size_t i = 0; i < TABLE_COUNT; i++)
        assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM %s", tables[i].table), "1");
    pgt_run(s->a1, "INSERT INTO cluster VALUES (gen_random_uuid())"); // not guarded
    // Nobody else is.
    write_all(s->b1, 3);
    assert_int_equal(counter(s, "untagged") + counter(s, "not_owner"), 0);
    write_all(s->psql, 4);
    assert_true(counter(s, "untagged") > 0);
    write_all(s->a3, 5);
    assert_true(counter(s, "not_owner") > 0);
    assert_int_equal(counter(s, "refused"), refused);
    assert_int_equal(counter(s, "unreadable") + counter(s, "unlogged"), 0);
}

static void test_several_rows_and_none(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    assert_string_equal(pgt_try(s->a1, "DELETE FROM worker WHERE host = 'nobody'"), "");
    assert_string_equal(pgt_try(s->a1, "WITH gone AS (DELETE FROM worker RETURNING 1)"
                                       " SELECT count(*) FROM gone"),
                        "MF001");
    assert_string_equal(pgt_try(s->a1, "COPY hummock_sequence FROM PROGRAM 'true'"), "42501");
    assert_string_equal(pgt_try(s->a1, "INSERT INTO hummock_sequence VALUES ('1', 5) ON"
                                       " CONFLICT (name) DO UPDATE SET seq = excluded.seq"),
                        "MF001");
    assert_string_equal(pgt_try(s->a1, "MERGE INTO hummock_sequence h USING (SELECT 1) x ON"
                                       " h.name = '1' WHEN MATCHED THEN UPDATE SET seq = 9"),
                        "MF001");
    // In the middle of a transaction: all of it is gone.
    pgt_run(s->a1, "BEGIN; INSERT INTO cluster VALUES (gen_random_uuid())");
    assert_string_equal(pgt_try(s->a1, "UPDATE catalog_version SET version = 3"), "MF001");
    pgt_run(s->a1, "COMMIT");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM cluster"), "0");
    // The gate is the transaction's, not the session's: the next user of it is judged anew.
    pgt_run(s->a1, "BEGIN; DELETE FROM worker WHERE host = 'nobody';"
                   "SET LOCAL application_name = 'psql';"
                   "UPDATE catalog_version SET version = 4; COMMIT");
    assert_string_equal(pgt_get(s->admin, "SELECT version FROM catalog_version"), "4");
}

static void test_any_search_path(void **state)
{
    struct scene *s = *state;

    pgt_run(s->admin, "CREATE SCHEMA evil AUTHORIZATION meta");
    pgt_run(s->psql, "CREATE TABLE evil.setting (name text, value text);"
                     "CREATE FUNCTION evil.format(text, VARIADIC text[]) RETURNS text LANGUAGE"
                     " sql AS 'SELECT $$evil$$';"
                     "CREATE FUNCTION evil.current_setting(text, bool) RETURNS text LANGUAGE"
                     " sql AS 'SELECT NULL::text'");
    two_terms(s);
    pgt_run(s->a1, "SET search_path = evil, public, pg_catalog");
    assert_refused(s->a1, "DELETE FROM worker", "worker", "worker_id=1");
    pgt_run(s->a1, "SET search_path = ''");
    assert_refused(s->a1, "DELETE FROM public.worker", "worker", "worker_id=1");
    pgt_run(s->b1, "SET search_path = evil, public, pg_catalog; DELETE FROM worker");
}

static void test_snapshot_from_before(void **state)
{
    struct scene *s = *state;
    static const char *const levels[] = {"REPEATABLE READ", "SERIALIZABLE"};

    two_terms(s);
    for (unsigned i = 0; i < 2; i++) {
        pgt_run(s->a2, "SET application_name = 'metafence:cccccccc:%016x'", i);
        pgt_run(s->a3, "SET application_name = 'metafence:dddddddd:%016x'", i);
        take_over(s, s->a2, "meta-c");
        // The owner, at that level: nothing to notice.
        pgt_run(s->a2, "BEGIN ISOLATION LEVEL %s; UPDATE worker SET status = 'X'; COMMIT",
                levels[i]);
        pgt_run(s->a2, "BEGIN ISOLATION LEVEL %s; SELECT count(*) FROM worker", levels[i]);
        take_over(s, s->a3, "meta-d");
        assert_string_equal(pgt_try(s->a2, "UPDATE worker SET status = 'OLD'"), "40001");
        pgt_run(s->a2, "ROLLBACK; BEGIN ISOLATION LEVEL %s", levels[i]);
        assert_string_equal(pgt_try(s->a2, "UPDATE worker SET status = 'OLD'"), "MF001");
        pgt_run(s->a2, "ROLLBACK; BEGIN ISOLATION LEVEL READ COMMITTED; SELECT 1");
        assert_string_equal(pgt_try(s->a2, "UPDATE worker SET status = 'OLD'"), "MF001");
        pgt_run(s->a2, "ROLLBACK");
    }
    assert_int_equal(counter(s, "takeover_without_lock"), 0);
}

static void test_modes(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    assert_string_equal(pgt_try(s->a1, "DELETE FROM worker"), "MF001");
    set_guard(s, "off");
    int64_t untagged = counter(s, "untagged");
    pgt_run(s->a1, "UPDATE catalog_version SET version = 3");
    pgt_run(s->psql, "UPDATE catalog_version SET version = 4");
    assert_int_equal(counter(s, "untagged"), untagged);
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.observed"), "0");
    set_guard(s, "observe");
    pgt_run(s->a1, "UPDATE catalog_version SET version = 5");
    pgt_run(s->psql, "UPDATE catalog_version SET version = 6");
    assert_string_equal(
        pgt_get(s->admin, "SELECT concat_ws(' ', relation, operation, key, tag, owned_term,"
                          " term) FROM metafence.observed"),
        "catalog_version UPDATE name=1 " TAG_A1 " 1 2");
    pgt_run(s->a1, "TRUNCATE hummock_gc_history");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.observed WHERE"
                                          " operation = 'TRUNCATE'"),
                        "1");
    // Its owner's role can't invent a mode.
    assert_string_equal(
        pgt_try(s->admin, "UPDATE metafence.setting SET value = 'on' WHERE name = 'guard'"),
        "23514");
    set_guard(s, "enforce");
    assert_string_equal(pgt_try(s->a1, "DELETE FROM worker"), "MF001");
}

static void test_records_are_bounded(void **state)
{
    struct scene *s = *state;
    int64_t size = 0;

    two_terms(s);
    set_guard(s, "observe");
    // One statement, many rows: a few lines.
    pgt_run(s->a1, "INSERT INTO hummock_gc_history SELECT i, now() FROM"
                   " generate_series(100, 5100) i");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.observed"), "20");
    // Many statements: the newest.
    pgt_run(s->a1, "DO $$ BEGIN FOR i IN 1..3000 LOOP UPDATE hummock_sequence SET seq = i;"
                   " UPDATE worker SET transaction_id = i; COMMIT; END LOOP; END $$");
    assert_true(election_parse_count(
        pgt_get(s->admin, "SELECT count(*) FROM metafence.observed"), &size));
    assert_in_range(size, 1000, 1200);
    assert_true(election_parse_count(
        pgt_get(s->admin, "SELECT count(*) FROM metafence.mutation"), &size));
    assert_in_range(size, 2000, 2200);
    assert_int_equal(counter(s, "observed"), 20 + 6000);
    assert_string_equal(pgt_get(s->admin, "SELECT new->>'transaction_id' FROM"
                                          " metafence.mutation ORDER BY id DESC LIMIT 1"),
                        "3000");
}

static void test_mutation_log(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    pgt_run(s->b1, "UPDATE worker SET status = 'RUNNING'");
    pgt_run(s->psql, "DELETE FROM worker");
    set_guard(s, "observe");
    pgt_run(s->a1, "INSERT INTO worker VALUES (9, 'COMPUTE_NODE', 'late', 1, 'STARTING')");
    static const char *const expected[] = {
        "INSERT 1 " TAG_A1 " 1 1 - STARTING", "UPDATE 1 " TAG_B1 " 2 2 STARTING RUNNING",
        "DELETE 1 - - 2 RUNNING -", "INSERT 9 " TAG_A1 " 1 2 - STARTING"};
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(
            pgt_get(s->admin,
                    "SELECT concat_ws(' ', operation, worker_id, coalesce(tag, '-'),"
                    " coalesce(owned_term::text, '-'), term, coalesce(old->>'status', '-'),"
                    " coalesce(new->>'status', '-')) FROM metafence.mutation ORDER BY id"
                    " OFFSET %zu LIMIT 1",
                    i),
            expected[i]);
    // By the xid one sees what a snapshot did not show yet.
    assert_string_equal(
        pgt_get(s->admin, "SELECT bool_and(pg_visible_in_snapshot(xid, pg_current_snapshot()))"
                          " FROM metafence.mutation"),
        "t");
}

// --- the lease of a superseded tag ---

static void test_zombie_cannot_hold_the_lease(void **state)
{
    struct scene *s = *state;

    two_terms(s);
    // b14: the leader dies, the zombie campaigns first: it gets the row as it was …
    expire(s);
    assert_string_equal(pgt_campaign(s->a1, "meta-a"), "meta-b");
    assert_string_equal(pgt_campaign(s->a1, "meta-a"), "meta-b");
    assert_term(s, "2 " TAG_B1 " meta-b");
    // … and the next candidate wins at once.
    assert_string_equal(pgt_campaign(s->a2, "meta-a"), "meta-a");
    assert_term(s, "3 " TAG_A2 " meta-a");
    // The row is deleted (a resign) and the zombie is the first to insert.
    pgt_run(s->psql, "DELETE FROM election_leader");
    assert_string_equal(pgt_campaign(s->b1, "meta-b"), "meta-a");
    assert_string_equal(pgt_get(s->admin,
                                "SELECT last_heartbeat < now() - interval '1 day' FROM"
                                " election_leader"),
                        "t");
    // The owner goes on in its term as if nothing was …
    assert_string_equal(pgt_campaign(s->a2, "meta-a"), "meta-a");
    assert_term(s, "3 " TAG_A2 " meta-a");
    // … or, if it is gone, the next one wins at once.
    pgt_run(s->psql, "DELETE FROM election_leader");
    assert_string_equal(pgt_campaign(s->b1, "meta-b"), "meta-a");
    assert_string_equal(pgt_campaign(s->a3, "meta-c"), "meta-c");
    assert_term(s, "4 " TAG_A3 " meta-c");
    assert_int_equal(counter(s, "held"), 4);
}

static void test_elder_twin_cannot_renew(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    (void)pgt_campaign(s->a2, "meta-a");
    char before[64];
    (void)snprintf(before, sizeof before, "%s",
                   pgt_get(s->admin, "SELECT last_heartbeat FROM election_leader"));
    for (int i = 0; i < 5; i++)
        (void)pgt_campaign(s->a1, "meta-a");
    assert_string_equal(pgt_get(s->admin, "SELECT last_heartbeat FROM election_leader"),
                        before);
    assert_string_equal(pgt_get(s->admin, "SELECT tag FROM metafence.renewal"), TAG_A2);
    assert_term(s, "2 " TAG_A2 " meta-a");
    (void)pgt_campaign(s->a2, "meta-a");
    assert_string_not_equal(pgt_get(s->admin, "SELECT last_heartbeat FROM election_leader"),
                            before);
}

// The proposed row of a zombie is marked before anybody knows whether it meets another: when
// the second trigger fails, the live lease must not take the mark.
static void test_mark_never_reaches_a_live_lease(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    (void)pgt_campaign(s->a2, "meta-a");
    pgt_run(s->admin,
            "CREATE FUNCTION trip() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$"
            "BEGIN IF TG_OP = 'UPDATE' THEN ALTER TABLE metafence.setting RENAME TO x; END IF;"
            " RETURN NEW; END $$;"
            "CREATE TRIGGER a_trip BEFORE UPDATE ON election_leader FOR EACH ROW EXECUTE"
            " FUNCTION trip()");
    (void)pgt_campaign(s->a1, "meta-a");
    assert_string_equal(pgt_get(s->admin,
                                "SELECT last_heartbeat > now() - interval '1 minute' FROM"
                                " election_leader"),
                        "t");
    assert_string_equal(pgt_get(s->admin, "SELECT to_regclass('metafence.x')"), "metafence.x");
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_every_table),
    SCENE_TEST(test_several_rows_and_none),
    SCENE_TEST(test_any_search_path),
    SCENE_TEST(test_snapshot_from_before),
    SCENE_TEST(test_modes),
    SCENE_TEST(test_records_are_bounded),
    SCENE_TEST(test_mutation_log),
    SCENE_TEST(test_zombie_cannot_hold_the_lease),
    SCENE_TEST(test_elder_twin_cannot_renew),
    SCENE_TEST(test_mark_never_reaches_a_live_lease),
};

UNIT_MAIN(tests)
