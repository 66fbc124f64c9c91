// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

static void test_set_fills_and_returns_minus_one(void **state)
{
    struct err err = {0};

    (void)state;
    assert_int_equal(err_set(&err, ERR_DENIED, EACCES, "open %s: %d", "x", 7), -1);
    assert_int_equal(err.kind, ERR_DENIED);
    assert_int_equal(err.code, EACCES);
    assert_string_equal(err.msg, "open x: 7");
}

static void test_set_truncates(void **state)
{
    struct err err = {0};
    char longer[1000];

    (void)state;
    memset(longer, 'a', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(err_set(&err, ERR_INVALID, 0, "%s", longer), -1);
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
}

static void test_wrap_keeps_kind_code_and_context(void **state)
{
    struct err err = {0};

    (void)state;
    (void)err_set(&err, ERR_TRANSIENT, ETIMEDOUT, "no answer");
    assert_int_equal(err_wrap(&err, "read row of %s", "m1"), -1);
    assert_int_equal(err_wrap(&err, "turn"), -1);
    assert_int_equal(err.kind, ERR_TRANSIENT);
    assert_int_equal(err.code, ETIMEDOUT);
    assert_string_equal(err.msg, "turn: read row of m1: no answer");
}

static void test_wrap_loses_the_end_not_the_context(void **state)
{
    struct err err = {0};
    char longer[sizeof(err.msg)];

    (void)state;
    memset(longer, 'a', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    (void)err_set(&err, ERR_INVALID, 0, "%s", longer);
    (void)err_wrap(&err, "context");
    assert_int_equal(strncmp(err.msg, "context: aaa", 12), 0);
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
}

static void test_wrap_with_a_context_that_fills_all(void **state)
{
    struct err err = {0};
    char longer[sizeof(err.msg) + 20];

    (void)state;
    memset(longer, 'c', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    (void)err_set(&err, ERR_INVALID, 0, "inner");
    (void)err_wrap(&err, "%s", longer);
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
    assert_int_equal(err.msg[sizeof(err.msg) - 2], 'c');
}

static void test_null_error_is_ignored(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, ERR_BUG, 0, "x"), -1);
    assert_int_equal(err_wrap(NULL, "x"), -1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_set_fills_and_returns_minus_one),
    cmocka_unit_test(test_set_truncates),
    cmocka_unit_test(test_wrap_keeps_kind_code_and_context),
    cmocka_unit_test(test_wrap_loses_the_end_not_the_context),
    cmocka_unit_test(test_wrap_with_a_context_that_fills_all),
    cmocka_unit_test(test_null_error_is_ignored),
};

UNIT_MAIN(tests)
