// SPDX-License-Identifier: Apache-2.0
// Reading a version delta: look-alikes, odd encodings, truncated, foreign and huge ones. None
// of them fails the insert.
#include "tests/unit/pg/recovering.h"

#include <stdio.h>
#include <string.h>

enum { HUGE_COUNT = 100000 };

// "<ids> <is_commit> <is_valid>" of a delta of version 7.
static const char *read_delta(struct scene *s, const struct delta *delta, bool to_end)
{
    static char answer[8192];
    const char *values[] = {delta->bytes ? (const char *)delta->bytes : "", to_end ? "t" : "f"};
    const int lengths[] = {(int)delta->len, 0};
    const int formats[] = {1, 0};
    PGresult *result = PQexecParams(
        s->admin,
        "SELECT concat_ws(' ', CASE WHEN cardinality(ids) > 100 THEN cardinality(ids)::text"
        " ELSE ids::text END, is_commit, is_valid) FROM metafence.removed_tables($1::bytea, 7,"
        " $2::boolean)",
        2, NULL, values, lengths, formats, 0);

    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    (void)snprintf(answer, sizeof answer, "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    return answer;
}

static void test_ordinary(void **state)
{
    struct scene *s = *state;
    static const uint32_t ids[] = {0, 127, 128, 300, UINT32_MAX};
    static const struct {
        enum delta_kind kind;
        size_t count;
        const char *short_answer, *answer;
    } cases[] = {
        {DELTA_COMPACTION, 0, "{} f t", "{} f t"},
        {DELTA_COMMIT, 0, "{} f t", "{} t t"}, // it stops before field 11
        {DELTA_REMOVAL, 5, "{0,127,128,300,4294967295} f t", "{0,127,128,300,4294967295} f t"},
        {DELTA_REMOVAL, 1, "{0} f t", "{0} f t"},
        {DELTA_REMOVAL, 0, "{} f t", "{} f t"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct delta delta = delta_of(cases[i].kind, 7, ids, cases[i].count);
        assert_string_equal(read_delta(s, &delta, false), cases[i].short_answer);
        assert_string_equal(read_delta(s, &delta, true), cases[i].answer);
        delta_free(&delta);
    }
    struct delta empty = {0};
    assert_string_equal(read_delta(s, &empty, true), "{} f t");
}

// Several packed runs, ids one by one, a fixed-width field that is not known, an empty run.
static void test_encodings(void **state)
{
    struct scene *s = *state;
    static const uint32_t first[] = {1, 2}, second[] = {3};
    struct delta delta = {0};

    delta_put_number(&delta, 1, 7);
    delta_put_varint(&delta, 7 << 3 | 1); // 8 bytes
    for (int i = 0; i < 8; i++)
        delta_put_varint(&delta, 0x4a);
    delta_put_removed(&delta, first, 2);
    delta_put_number(&delta, 9, 4);
    delta_put_bytes(&delta, 9, "", 0);
    delta_put_removed(&delta, second, 1);
    delta_put_bytes(&delta, 13, "\x4a\x01\x09", 3); // a field to come
    delta_put_varint(&delta, 14 << 3 | 5);          // 4 bytes
    for (int i = 0; i < 4; i++)
        delta_put_varint(&delta, 0x4a);
    assert_string_equal(read_delta(s, &delta, true), "{1,2,4,3} f t");
    delta_free(&delta);
}

// Each prefix of a delta is either whole, by chance between two fields, or said to be broken.
static void test_truncated(void **state)
{
    struct scene *s = *state;
    static const uint32_t ids[] = {1001, 1002};
    struct delta delta = delta_of(DELTA_REMOVAL, 7, ids, 2);
    size_t whole = 0;

    for (size_t len = 0; len < delta.len; len++) {
        struct delta part = {.bytes = delta.bytes, .len = len};
        const char *answer = read_delta(s, &part, true);
        whole += strcmp(answer, "{} f t") == 0;
        assert_true(strcmp(answer, "{} f t") == 0 || strstr(answer, "f f"));
    }
    assert_int_equal(whole, 8); // nothing, and behind each of its seven first fields
    delta_free(&delta);
}

static void test_foreign(void **state)
{
    struct scene *s = *state;
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
        {"\xab\xab\xab\xab", 4},                              // no end
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}, // too long a varint
        {"\x00\x01", 2},                                      // field 0
        {"\x0b", 1},                                          // a group
        {"\x08\x08", 2},                                      // another version's
        {"\x0a\x01x", 3},                                     // field 1 is no text
        {"\x18\x01", 2},                                      // field 3 no number
        {"\x4d\x01\x02\x03\x04", 5},                          // field 9 no float
        {"\x58\x01", 2},                                      // field 11 no number
        {"\x4a\x06\xff\xff\xff\xff\xff\x0f", 8},              // no uint32
        {"\x4a\x02\xe9", 3},                                  // ids cut
        {"\x4a\x01\xe9\x07", 4},                              // an id beyond its run
        {"\x4a\xff\xff\xff\xff\x0f", 6},                      // 4 GiB
        {"\x4a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}, // a negative length
        {"{\"id\": 7, \"removed_table_ids\": [1001]}", 38},
    };

    drop_job(s->b1, 11);
    begin_attempt(s->b1, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct delta delta = {0};
        delta_put(&delta, cases[i].bytes, cases[i].len);
        const char *answer = read_delta(s, &delta, true);
        if (!strstr(answer, " f") || answer[strlen(answer) - 1] != 'f')
            fail_msg("case %zu: %s", i, answer);
        assert_string_equal(insert_bytes(s->b1, 7, &delta), ""); // open
        assert_int_equal(counter(s, "recovery_unknown"), (int64_t)i + 1);
        delta_free(&delta);
    }
    struct delta none = {0};
    assert_string_equal(insert_bytes(s->b1, 7, &none), "");
    assert_string_equal(pgt_try(s->b1, "INSERT INTO hummock_version_delta VALUES (8, 7, 0, 0,"
                                       " false, NULL)"),
                        "");
    assert_int_equal(counter(s, "recovery_failed"), 0);
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
}

static void test_huge(void **state)
{
    struct scene *s = *state;
    static uint32_t ids[HUGE_COUNT];

    for (uint32_t i = 0; i < HUGE_COUNT; i++)
        ids[i] = 1000000 + 3 * i;
    ids[HUGE_COUNT - 1] = 1001;
    struct delta delta = delta_of(DELTA_REMOVAL, 7, ids, HUGE_COUNT);
    struct instant begin = clock_now();
    assert_string_equal(read_delta(s, &delta, true), "100000 f t");
    print_message("%d ids: %lld ms\n", HUGE_COUNT,
                  (long long)(instant_since(clock_now(), begin) / NS_PER_MS));
    drop_job(s->b1, 11);
    begin_attempt(s->b1, 0);
    assert_string_equal(insert_bytes(s->b1, 7, &delta), "MF003");
    assert_true(strlen(pgt_message(s->b1)) < 1000);
    acknowledge(s, 1, "reset");
    acknowledge(s, 2, "reset");
    begin_attempt(s->b1, 0);
    assert_string_equal(insert_bytes(s->b1, 7, &delta), "");
    assert_string_equal(newest_purge(s), "acknowledged 100000 -");
    assert_string_equal(pgt_get(s->admin, "SELECT table_ids FROM metafence.dropped"), "{1002}");
    delta_free(&delta);
}

static const struct CMUnitTest tests[] = {
    RECOVERY_TEST(test_ordinary), RECOVERY_TEST(test_encodings), RECOVERY_TEST(test_truncated),
    RECOVERY_TEST(test_foreign),  RECOVERY_TEST(test_huge),
};

UNIT_MAIN(tests)
