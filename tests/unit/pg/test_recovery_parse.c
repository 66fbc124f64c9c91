// SPDX-License-Identifier: Apache-2.0
// The answers about recoveries as plain strings: whole, with what may be NULL, and broken.
#include "tests/unit/unit.h"

#include <string.h>

#include "agent/pg/recovery.h"

static const char *const whole[RECOVERY_STATE_FIELDS] = {
    "f",        "7",           "metafence:aaaaaaaa:0000000000000001",
    "enforce",  "m20260804_x", "t",
    "10:20:12", "42",          "3",
    "17",       "2",           "1500",
    "58500",    "hold",        "t",
    "t",        "t",           "900",
    "4",        "9000",        "1",
    "5",        "2",           "f",
    "f",        "1",           "t",
    "implied"};

static void test_state(void **state)
{
    struct recovery_state s;
    struct err err;

    (void)state;
    assert_int_equal(recovery_parse_state(whole, &s, &err), 0);
    assert_true(s.term == 7 && s.mode == RECOVERY_ENFORCE && s.is_verified && !s.is_standby);
    assert_string_equal(s.owner_tag, "metafence:aaaaaaaa:0000000000000001");
    assert_string_equal(s.version, "m20260804_x");
    assert_string_equal(s.snapshot, "10:20:12");
    assert_true(s.id == 42 && s.attempts == 3 && s.attempt == 17 && s.refused == 2);
    assert_true(s.age_ms == 1500 && s.is_hold_known && s.hold_left_ms == 58500);
    assert_true(s.policy == RECOVERY_HOLD && s.is_gate_fresh && s.is_waiting && s.is_refused);
    assert_true(s.refused_ago_ms == 900 && s.dropped == 4 && s.dropped_age_ms == 9000);
    assert_true(s.is_catalog_known && s.creating == 1 && s.live == 5 && s.missing == 2);
    assert_true(!s.has_database_recovery && !s.is_pooled);
    assert_true(s.round == 1 && s.may_build && s.predecessor == RECOVERY_DEATHS_IMPLIED);
}

// No recovery, no gate, no catalog, a mode to come.
static void test_nothing_open(void **state)
{
    const char *fields[RECOVERY_STATE_FIELDS] = {"f", "7", NULL, "strict", NULL, "f", "1:1:"};
    static const int flags[] = {14, 15, 16, 23, 24, 26};
    static char snapshot[RECOVERY_SNAPSHOT_SIZE + 1];
    struct recovery_state s;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        fields[flags[i]] = "f";
    fields[18] = "0";
    assert_int_equal(recovery_parse_state(fields, &s, &err), 0);
    assert_true(s.mode == RECOVERY_OFF && s.id == 0 && s.attempt == 0 && !s.is_hold_known);
    assert_true(s.policy == RECOVERY_OPEN && s.refused_ago_ms == -1 && !s.is_catalog_known);
    assert_true(s.owner_tag[0] == '\0' && s.version[0] == '\0');
    assert_true(s.round == 0 && !s.may_build && s.predecessor == RECOVERY_DEATHS_UNKNOWN);
    // A snapshot of many transactions is left out: its acknowledgements count for less.
    memset(snapshot, '1', sizeof snapshot - 1);
    fields[6] = snapshot;
    assert_int_equal(recovery_parse_state(fields, &s, &err), 0);
    assert_string_equal(s.snapshot, "");
    snapshot[RECOVERY_SNAPSHOT_SIZE - 1] = '\0';
    assert_int_equal(recovery_parse_state(fields, &s, &err), 0);
    assert_int_equal(strlen(s.snapshot), RECOVERY_SNAPSHOT_SIZE - 1);
}

static void test_broken_state(void **state)
{
    static const struct {
        int column;
        const char *text, *said;
    } cases[] = {
        {0, NULL, "pg_is_in_recovery is \"NULL\": expected t or f"},
        {1, NULL, "no term yet"},
        {1, "x", "column term is \"x\": expected a count"},
        {5, "maybe", "is_verified is \"maybe\""},
        {7, "-1", "recovery_id is \"-1\""},
        {8, "4294967296", "joined is"},
        {9, "9223372036854775808", "attempt is"},
        {12, "", "hold_left_ms is \"\""},
        {15, "", "is_waiting is \"\""},
        {18, "1.5", "dropped is \"1.5\""},
        {22, "many", "missing is \"many\""},
        {24, NULL, "is_pooled is \"NULL\""},
        {25, "-", "round is \"-\""},
        {26, NULL, "may_build is \"NULL\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *fields[RECOVERY_STATE_FIELDS];
        struct recovery_state s = {.term = 99};
        struct err err;
        memcpy(fields, whole, sizeof fields);
        fields[cases[i].column] = cases[i].text;
        assert_int_equal(recovery_parse_state(fields, &s, &err), -1);
        assert_int_equal(err.kind, ERR_INVALID);
        if (!strstr(err.msg, cases[i].said))
            fail_msg("case %zu: %s", i, err.msg);
        assert_int_equal(s.term, 99);
    }
}

static void test_rows(void **state)
{
    const char *worker[] = {"worker", "3",       NULL,         NULL, "cn-3",
                            "5688",   "RUNNING", "none reset", NULL, NULL};
    const char *dropped[] = {"dropped", "111", "11", "mv",        NULL,
                             NULL,      NULL,  NULL, "1001 1002", "90000"};
    const char *creating[] = {"creating", "12",       "12", NULL, NULL,
                              NULL,       "CREATING", NULL, NULL, NULL};
    struct recovery_row row;
    struct err err;

    (void)state;
    assert_int_equal(recovery_parse_row(worker, &row, &err), 0);
    assert_true(row.kind == RECOVERY_WORKER && row.id == 3 && row.port == 5688);
    assert_true(row.is_running && row.has_none && row.has_reset && !row.has_gone);
    assert_string_equal(row.host, "cn-3");
    assert_int_equal(recovery_parse_row(dropped, &row, &err), 0);
    assert_true(row.kind == RECOVERY_DROPPED && row.id == 111 && row.job_id == 11);
    assert_string_equal(row.tables, "1001 1002");
    assert_true(row.age_ms == 90000 && !row.is_running && !row.has_reset);
    assert_int_equal(recovery_parse_row(creating, &row, &err), 0);
    assert_true(row.kind == RECOVERY_CREATING && row.age_ms == 0 && !row.name);
    worker[4] = NULL;
    assert_int_equal(recovery_parse_row(worker, &row, &err), -1);
    assert_non_null(strstr(err.msg, "column host is \"NULL\""));
    dropped[1] = NULL;
    assert_int_equal(recovery_parse_row(dropped, &row, &err), -1);
    assert_non_null(strstr(err.msg, "column id is \"NULL\""));
    creating[0] = "made";
    assert_int_equal(recovery_parse_row(creating, &row, &err), -1);
    creating[0] = NULL;
    assert_int_equal(recovery_parse_row(creating, &row, &err), -1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_state),
    cmocka_unit_test(test_nothing_open),
    cmocka_unit_test(test_broken_state),
    cmocka_unit_test(test_rows),
};

UNIT_MAIN(tests)
