// SPDX-License-Identifier: Apache-2.0
// Where the guard ends, and what Postgres does there: spilled transition tables, prepared
// transactions, writes through a parent table, a mode that changes under a transaction, a
// takeover that hangs. doctor names what an operator can change.
#include "tests/unit/pg/scene.h"

#include <string.h>

#include "agent/pg/survey.h"
#include "tests/unit/pg/installing.h"

#define WRITE "UPDATE hummock_sequence SET seq = seq + 1"

static void lead(struct scene *s)
{
    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->a1, "INSERT INTO hummock_sequence VALUES ('x', 1)");
}

static struct pg_survey survey_now(void)
{
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    struct pg_survey survey;
    struct err err;

    if (pg_survey(&options, &survey, &err) < 0)
        fail_msg("%s", err.msg);
    return survey;
}

// The rows of a statement are kept for its trigger, and beyond work_mem in a file.
static void test_temporary_files(void **state)
{
    struct scene *s = *state;

    lead(s);
    assert_int_equal(survey_now().temp_limit_kb, -1);
    pgt_run(s->admin, "ALTER ROLE meta SET temp_file_limit = '64kB'");
    int64_t limit_kb = survey_now().temp_limit_kb;
    PGconn *limited = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    pgt_run(limited, "SET work_mem = '64kB'");
    static const char *const large =
        "INSERT INTO hummock_gc_history SELECT i, now() FROM generate_series(1, 20000) i";
    const char *code = pgt_try(limited, large);
    pgt_run(s->admin, "ALTER ROLE meta RESET temp_file_limit");
    PQfinish(limited);
    assert_string_equal(code, "53400");
    assert_int_equal(limit_kb, 64);
    pgt_run(s->a1, "SET work_mem = '64kB'; %s", large);
    assert_int_equal(counter(s, "unreadable"), 0);
}

// It holds the lock that the takeover wants, and there is no session to end.
static void test_prepared_transaction(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->a1, "BEGIN; " WRITE "; PREPARE TRANSACTION 'late'");
    assert_int_equal(survey_now().prepared, 1);
    take_over(s, s->b1, "meta-b");
    PGconn *again = pgt_connect("meta", PGT_DATABASE, TAG_A1); // that session was ended
    const char *code = pgt_try(again, "INSERT INTO catalog_version VALUES ('x', 1)");
    // The limit: what was written before is committed after.
    pgt_run(again, "COMMIT PREPARED 'late'");
    PQfinish(again);
    assert_string_equal(code, "MF001");
    assert_int_equal(counter(s, "takeover_without_lock"), 1);
    assert_string_equal(pgt_get(s->admin, "SELECT seq FROM hummock_sequence"), "2");
    assert_int_equal(survey_now().prepared, 0);
    take_over(s, s->a2, "meta-a");
    assert_int_equal(counter(s, "takeover_without_lock"), 1);
}

// Triggers of a statement are those of the table that it names.
static void test_parent_table(void **state)
{
    struct scene *s = *state;

    lead(s);
    assert_string_equal(survey_now().partitions, "");
    pgt_run(s->psql, "CREATE TABLE whole (LIKE hummock_sequence); "
                     "ALTER TABLE hummock_sequence INHERIT whole");
    assert_string_equal(survey_now().partitions, "hummock_sequence");
    take_over(s, s->b1, "meta-b");
    assert_string_equal(pgt_try(s->a1, WRITE), "MF001");
    pgt_run(s->a1, "UPDATE whole SET seq = 7");
    assert_string_equal(pgt_get(s->admin, "SELECT seq FROM hummock_sequence"), "7");
}

// Off has no triggers, and a table gets them only when who has written it is through: until
// then it is shown as without.
static void test_guard_comes_on_under_a_transaction(void **state)
{
    struct scene *s = *state;
    static const char *const bare = "SELECT string_agg(name::text, ' ') FROM"
                                    " metafence.guarded_tables() WHERE NOT is_covered";

    lead(s);
    set_guard(s, "off");
    guard_tables(s->admin);
    pgt_run(s->a1, "BEGIN; " WRITE);
    set_guard(s, "enforce");
    while (strcmp(pgt_get(s->admin, "SELECT metafence.complete()"), "1") != 0)
        ;
    assert_string_equal(pgt_get(s->admin, bare), "hummock_sequence");
    take_over(s, s->b1, "meta-b");
    assert_string_equal(pgt_try(s->a1, "SAVEPOINT p; DELETE FROM catalog_version;"
                                       "INSERT INTO catalog_version VALUES ('x', 1)"),
                        "MF001");
    pgt_run(s->a1, "ROLLBACK TO p; COMMIT"); // the limit: of before the guard was on
    assert_string_equal(pgt_get(s->admin, "SELECT seq FROM hummock_sequence"), "2");
    while (strcmp(pgt_get(s->admin, "SELECT metafence.complete()"), "0") != 0)
        ;
    assert_string_equal(pgt_try(s->a1, WRITE), "MF001");
}

// Its COMMIT hangs, or its client does: a writer waits for five seconds and passes then, for it
// may be the rightful leader, and the takeover may never be. It is judged anew each time.
static void test_takeover_that_hangs(void **state)
{
    struct scene *s = *state;

    lead(s);
    pgt_run(s->b1, "BEGIN");
    pgt_run(s->admin, "UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
    assert_string_equal(pgt_campaign(s->b1, "meta-b"), "meta-b");
    pgt_run(s->a1, WRITE);
    assert_int_equal(counter(s, "unlocked"), 1);
    pgt_run(s->b1, "ROLLBACK");
    pgt_run(s->a1, WRITE);
    assert_int_equal(counter(s, "unlocked"), 1);
    take_over(s, s->b1, "meta-b");
    assert_string_equal(pgt_try(s->a1, WRITE), "MF001");
    assert_string_equal(pgt_get(s->admin, "SELECT seq FROM hummock_sequence"), "3");
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_temporary_files),     SCENE_TEST(test_prepared_transaction),
    SCENE_TEST(test_parent_table),        SCENE_TEST(test_guard_comes_on_under_a_transaction),
    SCENE_TEST(test_takeover_that_hangs),
};

UNIT_MAIN(tests)
