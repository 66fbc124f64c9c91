// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <string.h>

#include "base/buf.h"

static void test_zeroed_is_empty(void **state)
{
    struct buf buf = {0};

    (void)state;
    assert_string_equal(buf_str(&buf), "");
    buf_consume(&buf, 10);
    buf_clear(&buf);
    buf_append(&buf, NULL, 0);
    assert_int_equal(buf.len, 0);
    assert_string_equal(buf_str(&buf), "");
    buf_done(&buf);
    buf_done(&buf);
}

static void test_grows_and_stays_terminated(void **state)
{
    struct buf buf = {0};

    (void)state;
    for (int i = 0; i < 10000; i++) {
        buf_putc(&buf, (char)('a' + i % 26));
        assert_int_equal(buf.data[buf.len], '\0');
    }
    assert_int_equal(buf.len, 10000);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(buf.data[i], 'a' + i % 26);
    buf_done(&buf);
    assert_null(buf.data);
}

static void test_exact_capacity_boundary(void **state)
{
    struct buf buf = {0};
    size_t cap = 0;

    (void)state;
    buf_putc(&buf, 'x');
    cap = buf.cap;
    for (size_t len = 1; len < cap - 1; len++)
        buf_putc(&buf, 'x');
    assert_int_equal(buf.cap, cap); // cap - 1 bytes and the NUL
    buf_putc(&buf, 'y');
    assert_true(buf.cap > cap);
    assert_int_equal(buf.len, cap);
    buf_done(&buf);
}

static void test_printf_of_any_length(void **state)
{
    struct buf buf = {0};
    char longer[5000];

    (void)state;
    memset(longer, 'z', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    buf_printf(&buf, "%d-%s", 42, "x");
    assert_string_equal(buf_str(&buf), "42-x");
    buf_printf(&buf, "[%s]", longer);
    assert_int_equal(buf.len, 4 + 2 + sizeof(longer) - 1);
    assert_int_equal(buf.data[buf.len - 1], ']');
    buf_done(&buf);
}

static void test_reserve_then_added(void **state)
{
    struct buf buf = {0};

    (void)state;
    buf_puts(&buf, "ab");
    memcpy(buf_reserve(&buf, 100), "cdef", 4);
    buf_added(&buf, 3);
    assert_string_equal(buf_str(&buf), "abcde");
    buf_done(&buf);
}

static void test_consume(void **state)
{
    struct buf buf = {0};

    (void)state;
    buf_puts(&buf, "hello world");
    buf_consume(&buf, 6);
    assert_string_equal(buf_str(&buf), "world");
    buf_consume(&buf, 0);
    assert_string_equal(buf_str(&buf), "world");
    buf_consume(&buf, 5);
    assert_string_equal(buf_str(&buf), "");
    buf_puts(&buf, "again");
    assert_string_equal(buf_str(&buf), "again");
    buf_done(&buf);
}

static void test_json_escapes(void **state)
{
    struct buf buf = {0};

    (void)state;
    buf_put_json(&buf, "a\"b\\c\nd\re\tf\x01\x1f\x7f\xc3\xa4/");
    assert_string_equal(buf_str(&buf),
                        "\"a\\\"b\\\\c\\nd\\re\\tf\\u0001\\u001f\\u007f\xc3\xa4/\"");
    buf_done(&buf);
}

static void test_json_of_no_utf8(void **state)
{
    static const struct {
        const char *text, *json;
    } cases[] = {
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf",
         "\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\""},
        {"a\xff", "\"a\\ufffd\""},
        {"\xe2\x82", "\"\\ufffd\\ufffd\""},                  // cut
        {"\xf0\x9f\x98\"", "\"\\ufffd\\ufffd\\ufffd\\\"\""}, // no quote is swallowed
        {"\xc0\xaf", "\"\\ufffd\\ufffd\""},                  // overlong
        {"\xe0\x9f\xbf", "\"\\ufffd\\ufffd\\ufffd\""},
        {"\xf0\x8f\xbf\xbf", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""},
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""}, // a surrogate
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""},
        {"\xf5\x80\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""},
        {"\x80z", "\"\\ufffdz\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf buf = {0};

        buf_put_json(&buf, cases[i].text);
        assert_string_equal(buf_str(&buf), cases[i].json);
        buf_done(&buf);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_zeroed_is_empty),
    cmocka_unit_test(test_grows_and_stays_terminated),
    cmocka_unit_test(test_exact_capacity_boundary),
    cmocka_unit_test(test_printf_of_any_length),
    cmocka_unit_test(test_reserve_then_added),
    cmocka_unit_test(test_consume),
    cmocka_unit_test(test_json_escapes),
    cmocka_unit_test(test_json_of_no_utf8),
};

UNIT_MAIN(tests)
