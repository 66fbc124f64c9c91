// SPDX-License-Identifier: Apache-2.0
// What Postgres says of the workers: whole, or refused with column and value.
#include "tests/unit/unit.h"

#include <string.h>

#include "agent/workers/store.h"
#include "base/buf.h"

struct bad {
    size_t column;
    const char *value;
    const char *said;
};

static void test_state(void **state)
{
    static const char *const good[STORE_STATE_FIELDS] = {
        "f",       "7", "metafence:aaaaaaaa:0000000000000001",
        "enforce", "t", "1",
        "2",       "3", "4",
        "5",       "6", "8",
        "1",       "t"};
    static const struct bad bad[] = {
        {0, NULL, "pg_is_in_recovery"},
        {1, NULL, "no term yet"},
        {1, "0", "column term"},
        {1, "seven", "column term is \"seven\""},
        {4, "yes", "is_known"},
        {5, "-1", "tombstones"},
        {6, "4294967296", "intents"},
        {7, NULL, "unknown_rows is NULL"},
        {8, "", "lost_rows"},
        {9, "1e3", "reborn_rows"},
        {10, "x", "ghosts"},
        {11, "9223372036854775808", "newest"},
        {12, NULL, "untagged_rows"},
        {13, NULL, "untagged_writers"},
        {2, "0123456789012345678901234567890123456789012345678901234567890123", "owner_tag"}};
    struct store_state parsed = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(store_parse_state(good, &parsed, &err), 0);
    assert_int_equal(parsed.term, 7);
    assert_int_equal(parsed.guard, RECONCILE_GUARD_ENFORCE);
    assert_true(parsed.is_known && !parsed.is_standby && parsed.ghosts_known);
    assert_int_equal(parsed.reborn_rows, 5);
    assert_int_equal(parsed.ghosts, 6);
    assert_int_equal(parsed.newest, 8);
    assert_int_equal(parsed.untagged_rows, 1);
    assert_true(parsed.untagged_writers);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *fields[STORE_STATE_FIELDS];

        memcpy(fields, good, sizeof(good));
        fields[bad[i].column] = bad[i].value;
        parsed.term = 4711;
        assert_int_equal(store_parse_state(fields, &parsed, &err), -1);
        assert_int_equal(parsed.term, 4711); // not touched
        if (!strstr(err.msg, bad[i].said))
            fail_msg("\"%s\" does not say \"%s\"", err.msg, bad[i].said);
    }
}

// A mode that nobody knows is no guard; no tag and no actors are no error.
static void test_state_without(void **state)
{
    const char *fields[STORE_STATE_FIELDS] = {"t", "1", NULL, "strict", "f", "0", "0",
                                              "0", "0", "0",  NULL,     "0", "0", "f"};
    struct store_state parsed = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(store_parse_state(fields, &parsed, &err), 0);
    assert_true(parsed.is_standby && !parsed.ghosts_known);
    assert_int_equal(parsed.guard, RECONCILE_GUARD_OFF);
    assert_string_equal(parsed.owner_tag, "");
    fields[3] = NULL;
    assert_int_equal(store_parse_state(fields, &parsed, &err), 0);
    assert_int_equal(parsed.guard, RECONCILE_GUARD_OFF);
}

static void test_rows(void **state)
{
    static const char *const good[STORE_ROW_FIELDS] = {"7",    "COMPUTE_NODE", "c-0.c",
                                                       "5688", "RUNNING",      "812 (0,4)"};
    const char *odd[STORE_ROW_FIELDS] = {"-1", "SPACESHIP", NULL, NULL, "WARPING", "1 (0,1)"};
    struct worker_row row = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(store_parse_row(good, &row, &err), 0);
    assert_int_equal(row.id, 7);
    assert_int_equal(row.type, WORKER_COMPUTE);
    assert_int_equal(row.status, WORKER_RUNNING);
    assert_int_equal(row.port, 5688);
    assert_string_equal(row.host, "c-0.c");
    assert_false(row.leader_knows);
    // Nothing of it is known: it is a row all the same, and left alone.
    assert_int_equal(store_parse_row(odd, &row, &err), 0);
    assert_int_equal(row.type, WORKER_OTHER);
    assert_int_equal(row.status, WORKER_STATUS_OTHER);
    assert_null(row.host);
    odd[3] = "70000000000";
    assert_int_equal(store_parse_row(odd, &row, &err), -1);
    assert_non_null(strstr(err.msg, "worker_id -1"));
    assert_non_null(strstr(err.msg, "port"));
    odd[3] = NULL;
    odd[5] = NULL;
    assert_int_equal(store_parse_row(odd, &row, &err), -1);
    assert_non_null(strstr(err.msg, "row_version"));
    odd[0] = NULL;
    assert_int_equal(store_parse_row(odd, &row, &err), -1);
    assert_non_null(strstr(err.msg, "worker_id is NULL"));
}

static void test_entries(void **state)
{
    const char *entry[STORE_ENTRY_FIELDS] = {"12", "t", "f", "t", "10.0.0.7", "6660"};
    struct store_entry parsed = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(store_parse_entry(entry, &parsed, &err), 0);
    assert_true(parsed.worker_id == 12 && parsed.is_own && !parsed.is_insert);
    assert_true(parsed.is_delete && parsed.port == 6660);
    assert_string_equal(parsed.host, "10.0.0.7");
    entry[4] = NULL; // a row may have none
    entry[5] = NULL;
    assert_int_equal(store_parse_entry(entry, &parsed, &err), 0);
    assert_true(!parsed.host && parsed.port == 0);
    entry[5] = "no port";
    assert_int_equal(store_parse_entry(entry, &parsed, &err), -1);
    entry[5] = NULL;
    entry[1] = NULL;
    assert_int_equal(store_parse_entry(entry, &parsed, &err), -1);
}

static void test_ids_and_fixes(void **state)
{
    static const uint32_t ids[] = {1, 4294967295U};
    struct pg_fault denied = {.kind = PG_REFUSAL, .sqlstate = "42501"};
    struct pg_fault missing = {.kind = PG_MISSING, .sqlstate = "42883"};
    struct pg_fault silent = {.kind = PG_SILENT};
    struct buf text = {0};

    (void)state;
    store_put_ids(&text, ids, 2);
    assert_string_equal(buf_str(&text), "{1,4294967295}");
    buf_clear(&text);
    store_put_ids(&text, ids, 0);
    assert_string_equal(buf_str(&text), "{}");
    buf_done(&text);
    assert_non_null(strstr(store_fix(&denied), "EXECUTE"));
    assert_non_null(strstr(store_fix(&missing), "sql install"));
    assert_null(store_fix(&silent));
    assert_true(store_is_true("t"));
    assert_false(store_is_true("f"));
    assert_false(store_is_true(NULL));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_state),         cmocka_unit_test(test_state_without),
    cmocka_unit_test(test_rows),          cmocka_unit_test(test_entries),
    cmocka_unit_test(test_ids_and_fixes),
};

UNIT_MAIN(tests)
