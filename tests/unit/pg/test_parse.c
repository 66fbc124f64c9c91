// SPDX-License-Identifier: Apache-2.0
// The pure parts of agent/pg: what Postgres may answer, and what we make of it.
#include "tests/unit/unit.h"

#include <string.h>

#include "agent/pg/election.h"
#include "base/buf.h"

#define TAG "metafence:aaaaaaaa:0123456789abcdef"
#define NOW "1764444444000000"

// The columns of a complete, good answer; a case replaces one of them.
static const char *const good[ELECTION_FIELDS] = {
    "f",
    "7713679011970258076",
    "0000000A",
    NOW,
    "t",
    "meta:1",
    "1764444443000001",
    "2",
    "7",
    "meta:1",
    TAG,
    "7713679011970258076",
    "00000009",
    TAG,
    "t",
    "f",
    "enforce",
};

static int parse_with(size_t col, const char *value, struct election_read *read,
                      struct err *err)
{
    const char *fields[ELECTION_FIELDS];

    memcpy(fields, good, sizeof fields);
    if (col < ELECTION_FIELDS)
        fields[col] = value;
    return election_parse(fields, ELECTION_FIELDS, read, err);
}

static void test_parse_good(void **state)
{
    struct election_read read = {.sent_at = {5}, .received_at = {9}, .was_hedged = true};
    struct err err;

    (void)state;
    assert_int_equal(parse_with(99, NULL, &read, &err), 0);
    assert_int_equal(read.status, ELECTION_OK);
    assert_int_equal(read.sent_at.ns, 5);
    assert_int_equal(read.received_at.ns, 9);
    assert_true(read.was_hedged);
    assert_true(read.system_id == UINT64_C(7713679011970258076));
    assert_int_equal(read.timeline, 10);
    assert_true(read.row_present && !read.id_is_null && !read.heartbeat_is_null);
    assert_string_equal(read.id, "meta:1");
    assert_true(read.db_now_us == INT64_C(1764444444000000));
    assert_true(read.heartbeat_us == INT64_C(1764444443000001));
    assert_true(read.age_ns == INT64_C(999999000));
    assert_true(read.members_known);
    assert_int_equal(read.other_members, 2);
    assert_true(read.term_known && read.term == 7);
    assert_string_equal(read.term_owner_id, "meta:1");
    assert_string_equal(read.owner_tag, TAG);
    assert_string_equal(read.heartbeat_tag, TAG);
    assert_int_equal(read.term_timeline, 9);
    assert_true(read.tag_owned_term && !read.tag_superseded && read.guard_enforcing);
}

static char long_id[ELECTION_ID_SIZE + 1];
static char longest_id[ELECTION_ID_SIZE];

static void test_parse_each_column(void **state)
{
    static const struct {
        size_t col;
        const char *value;
        bool is_good;
    } cases[] = {
        {0, NULL, false},
        {0, "", false},
        {0, "true", false},
        {0, "x", false},
        {1, NULL, true},
        {1, "", false},
        {1, "-1", false},
        {1, "18446744073709551615", true},
        {1, "18446744073709551616", false},
        {1, "1x", false},
        {2, NULL, true},
        {2, "0000000", false},
        {2, "0000000g", false},
        {2, "FFFFFFFF", true},
        {2, "000000010", false},
        {3, NULL, false},
        {3, "", false},
        {3, "1.5", false},
        {3, "-5", true},
        {4, NULL, false},
        {4, "1", false},
        {4, "f", true},
        {5, NULL, true},
        {5, "", true},
        {5, long_id, false},
        {5, longest_id, true},
        {6, NULL, true},
        {6, "", false},
        {6, "infinity", true},
        {6, "-infinity", true},
        {6, "2026-01-01", false},
        {6, "99999999999999999999999", true},
        {6, "-", false},
        {7, NULL, true},
        {7, "-1", false},
        {7, "4294967295", true},
        {7, "4294967296", false},
        {8, NULL, true},
        {8, "9223372036854775807", true},
        {9, NULL, true},
        {10, NULL, true},
        {10, "x", true},
        {11, NULL, true},
        {12, NULL, true},
        {13, NULL, true},
        {14, NULL, true},
        {15, NULL, true},
        {16, NULL, true},
        {16, "off", true},
    };

    (void)state;
    memset(long_id, 'i', sizeof long_id - 1);
    memset(longest_id, 'i', sizeof longest_id - 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct election_read read = {0};
        struct err err = {0};
        int rc = parse_with(cases[i].col, cases[i].value, &read, &err);
        if (rc != (cases[i].is_good ? 0 : -1))
            fail_msg("column %zu = %s: %d, %s", cases[i].col, cases[i].value, rc, err.msg);
        if (rc == 0)
            continue;
        assert_int_equal(err.kind, ERR_INVALID);
        // A broken answer leaves nothing behind that could be taken for a fact.
        assert_false(read.row_present || read.term_known || read.members_known);
        assert_int_equal(read.system_id, 0);
    }
}

// The row counts whatever our own tables say.
static void test_parse_broken_term(void **state)
{
    static const char too_long[] =
        "0123456789012345678901234567890123456789012345678901234567890123";
    static const struct {
        size_t col;
        const char *value;
    } cases[] = {
        {8, "9223372036854775808"},
        {8, ""},
        {9, long_id},
        {10, too_long},
        {11, "abc"},
        {12, "zz"},
        {13, too_long},
        {14, "yes"},
        {15, ""},
    };

    (void)state;
    memset(long_id, 'i', sizeof long_id - 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct election_read read = {0};
        struct err err = {0};

        if (parse_with(cases[i].col, cases[i].value, &read, &err) < 0)
            fail_msg("column %zu = %s: %s", cases[i].col, cases[i].value, err.msg);
        assert_true(read.row_present && read.members_known && read.system_id != 0);
        assert_string_equal(read.id, "meta:1");
        assert_false(read.term_known || read.tag_owned_term || read.guard_enforcing);
        assert_true(read.term == 0 && !read.owner_tag[0] && !read.heartbeat_tag[0]);
    }
}

static void test_parse_meaning(void **state)
{
    struct election_read read = {0};
    struct err err;

    (void)state;
    assert_int_equal(parse_with(5, NULL, &read, &err), 0);
    assert_true(read.id_is_null && read.row_present);
    assert_int_equal(parse_with(6, NULL, &read, &err), 0);
    assert_true(read.heartbeat_is_null);
    assert_int_equal(parse_with(6, "infinity", &read, &err), 0);
    assert_true(read.heartbeat_us == INT64_MAX && read.age_ns < 0);
    assert_int_equal(parse_with(6, "-infinity", &read, &err), 0);
    assert_true(read.age_ns == INT64_MAX);
    assert_int_equal(parse_with(6, "1764444445000000", &read, &err), 0);
    assert_true(read.age_ns == -NS_PER_SEC);
    assert_int_equal(parse_with(4, "f", &read, &err), 0);
    assert_true(!read.row_present && read.id[0] == '\0' && read.term_known);
    assert_int_equal(parse_with(0, "t", &read, &err), 0);
    assert_int_equal(read.status, ELECTION_STANDBY);
    assert_true(!read.row_present && !read.term_known);
    assert_int_equal(parse_with(8, NULL, &read, &err), 0);
    assert_false(read.term_known);
    assert_int_equal(parse_with(7, NULL, &read, &err), 0);
    assert_false(read.members_known);
    assert_int_equal(election_parse(good, ELECTION_FIELDS - 1, &read, &err), -1);
    assert_int_equal(election_parse(NULL, 0, &read, &err), -1);
}

static void test_parse_probe(void **state)
{
    const char *fields[ELECTION_PROBE_FIELDS] = {"t", "t", "t", "f", "4", "3",
                                                 "t", "f", "t", "t", "f"};
    struct election_caps caps;
    struct err err;

    (void)state;
    assert_int_equal(election_parse_probe(fields, ELECTION_PROBE_FIELDS, &caps, &err), 0);
    assert_true(caps.leader_exists && caps.leader_typed && caps.member_denied);
    assert_true(caps.schema_denied && !caps.schema_readable && caps.can_end &&
                !caps.can_record);
    fields[5] = "4";
    assert_int_equal(election_parse_probe(fields, ELECTION_PROBE_FIELDS, &caps, &err), 0);
    assert_true(caps.schema_readable && !caps.schema_denied && !caps.can_complete);
    fields[5] = "x";
    assert_int_equal(election_parse_probe(fields, ELECTION_PROBE_FIELDS, &caps, &err), -1);
    fields[5] = "4";
    fields[0] = NULL;
    assert_int_equal(election_parse_probe(fields, ELECTION_PROBE_FIELDS, &caps, &err), -1);
    assert_int_equal(election_parse_probe(fields, 3, &caps, &err), -1);
}

static void test_table_names(void **state)
{
    static const struct {
        const char *name;
        const char *quoted; // NULL: refused
    } cases[] = {
        {"election_leader", "\"election_leader\""},
        {"public.election_leader", "\"public\".\"election_leader\""},
        {"", NULL},
        {".", NULL},
        {"a.", NULL},
        {".a", NULL},
        {"a.b.c", NULL},
        {"a\"b", NULL},
        {"a;b", NULL},
        {"a b", NULL},
        {"a'b", NULL},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL},
    };
    char quoted[200];
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int rc = election_table_quote(cases[i].name, quoted, sizeof quoted, &err);
        assert_int_equal(rc, cases[i].quoted ? 0 : -1);
        if (cases[i].quoted)
            assert_string_equal(quoted, cases[i].quoted);
    }
}

static void test_fault_kinds(void **state)
{
    static const struct {
        const char *sqlstate;
        enum pg_fault_kind kind;
    } cases[] = {
        {NULL, PG_SILENT},     {"", PG_SILENT},       {"28P01", PG_REFUSAL},
        {"28000", PG_REFUSAL}, {"42501", PG_REFUSAL}, {"3D000", PG_REFUSAL},
        {"53300", PG_REFUSAL}, {"57P03", PG_SILENT},  {"57P01", PG_SILENT},
        {"57014", PG_FAILED},  {"42P01", PG_MISSING}, {"42703", PG_MISSING},
        {"40001", PG_FAILED},  {"53200", PG_FAILED},  {"08006", PG_SILENT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(pg_fault_kind_of(cases[i].sqlstate), cases[i].kind);
}

static void test_fault_from_connect(void **state)
{
    struct pg_fault fault;

    (void)state;
    pg_fault_from_connect(
        &fault,
        "connection to server at \"127.0.0.1\", port 1 failed: FATAL:  28P01: password "
        "authentication failed for user \"meta\"\nLOCATION:  auth_failed, auth.c:338\n",
        "hunter2");
    assert_int_equal(fault.kind, PG_REFUSAL);
    assert_string_equal(fault.sqlstate, "28P01");
    assert_int_equal(fault.err.kind, ERR_DENIED);
    assert_string_equal(fault.err.msg,
                        "connection to server at \"127.0.0.1\", port 1 failed: FATAL: password "
                        "authentication failed for user \"meta\", SQLSTATE 28P01");
    pg_fault_from_connect(
        &fault,
        "connection to server at \"h\", port 1 failed: Connection refused\n\tIs it "
        "running?\n",
        NULL);
    assert_int_equal(fault.kind, PG_SILENT);
    assert_string_equal(fault.sqlstate, "");
    pg_fault_from_connect(&fault, "", NULL);
    assert_string_equal(fault.err.msg, "connection lost");
    pg_fault_from_connect(&fault, "weird:  28P0", NULL);
    assert_int_equal(fault.kind, PG_SILENT);
    // Should a server ever repeat the secret, it is not passed on.
    pg_fault_from_connect(&fault, "FATAL:  XX000: oops hunter2 and hunter2", "hunter2");
    assert_null(strstr(fault.err.msg, "hunter2"));
    pg_fault_set(&fault, "XX000", "a\tb\n\nc\x01 ", NULL);
    assert_string_equal(fault.err.msg, "a b c, SQLSTATE XX000");
}

static void test_sql_asks_for_no_more(void **state)
{
    const struct election_config config = {"svc", "election_leader", "election_member",
                                           "meta:1"};
    struct election_caps caps = {.known = true};
    struct buf sql = {0};
    struct err err;

    (void)state;
    assert_int_equal(election_sql_read(&sql, &config, &caps, &err), 0);
    assert_null(strstr(buf_str(&sql), "metafence."));
    assert_null(strstr(buf_str(&sql), "election_member"));
    assert_null(strstr(buf_str(&sql), "pg_control_system"));
    buf_clear(&sql);
    caps.schema_readable = caps.member_readable = caps.can_identify = true;
    assert_int_equal(election_sql_read(&sql, &config, &caps, &err), 0);
    assert_non_null(strstr(buf_str(&sql), "metafence.term"));
    assert_non_null(strstr(buf_str(&sql), "election_member"));
    assert_non_null(strstr(buf_str(&sql), "pg_control_system"));
    buf_done(&sql);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_parse_good),           cmocka_unit_test(test_parse_each_column),
    cmocka_unit_test(test_parse_broken_term),    cmocka_unit_test(test_parse_meaning),
    cmocka_unit_test(test_parse_probe),          cmocka_unit_test(test_table_names),
    cmocka_unit_test(test_fault_kinds),          cmocka_unit_test(test_fault_from_connect),
    cmocka_unit_test(test_sql_asks_for_no_more),
};

UNIT_MAIN(tests)
