// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <string.h>

#include "base/clock.h"

static void test_parse_accepts(void **state)
{
    static const struct {
        const char *text;
        int64_t ns;
    } cases[] = {
        {"0s", 0},
        {"0ns", 0},
        {"7ns", 7},
        {"5us", 5000},
        {"250ms", 250 * NS_PER_MS},
        {"30s", 30 * NS_PER_SEC},
        {"10m", 600 * NS_PER_SEC},
        {"1h", 3600 * NS_PER_SEC},
        {"0030s", 30 * NS_PER_SEC},
        {"9223372036854775807ns", INT64_MAX},
        {"9223372036s", INT64_C(9223372036) * NS_PER_SEC},
        {"2562047h", INT64_C(2562047) * 3600 * NS_PER_SEC},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        int64_t ns = -1;

        if (duration_parse(cases[i].text, &ns, &err) < 0)
            fail_msg("%s refused: %s", cases[i].text, err.msg);
        if (ns != cases[i].ns)
            fail_msg("%s parsed as %lld", cases[i].text, (long long)ns);
    }
}

static void test_parse_refuses(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        {"", "whole number and a unit"},
        {"s", "whole number and a unit"},
        {" 1s", "whole number and a unit"},
        {"-1s", "whole number and a unit"},
        {"+1s", "whole number and a unit"},
        {".5s", "whole number and a unit"},
        {"30", "lacks a unit"},
        {"1.5s", "none of ns us ms s m h"},
        {"1 s", "none of ns us ms s m h"},
        {"1s ", "none of ns us ms s m h"},
        {"1S", "none of ns us ms s m h"},
        {"1sec", "none of ns us ms s m h"},
        {"1d", "none of ns us ms s m h"},
        {"1h30m", "none of ns us ms s m h"},
        {"1s\n", "none of ns us ms s m h"},
        {"0x10s", "none of ns us ms s m h"},
        {"9223372036854775808ns", "too long"},
        {"9223372037s", "too long"},
        {"2562048h", "too long"},
        {"99999999999999999999999999999999999999999999999999h", "too long"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        int64_t ns = 42;

        if (duration_parse(cases[i].text, &ns, &err) == 0)
            fail_msg("\"%s\" accepted as %lld", cases[i].text, (long long)ns);
        assert_int_equal(err.kind, ERR_INVALID);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("\"%s\" refused with: %s", cases[i].text, err.msg);
        if (ns != 42)
            fail_msg("\"%s\" was refused but wrote the result", cases[i].text);
    }
}

static void test_format_round_trips(void **state)
{
    static const struct {
        int64_t ns;
        const char *text;
    } cases[] = {
        {0, "0s"},
        {1, "1ns"},
        {-1, "-1ns"},
        {1000, "1us"},
        {1500 * NS_PER_MS, "1500ms"},
        {2 * NS_PER_SEC, "2s"},
        {-2 * NS_PER_SEC, "-2s"},
        {90 * NS_PER_SEC, "90s"},
        {600 * NS_PER_SEC, "10m"},
        {7200 * NS_PER_SEC, "2h"},
        {INT64_MAX, "9223372036854775807ns"},
        {INT64_MIN, "-9223372036854775808ns"},
    };
    char text[40];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        int64_t ns = 0;

        assert_string_equal(duration_format(cases[i].ns, text, sizeof(text)), cases[i].text);
        if (cases[i].ns < 0)
            continue;
        assert_int_equal(duration_parse(text, &ns, &err), 0);
        assert_true(ns == cases[i].ns);
    }
}

static void test_format_truncates_inside_its_buffer(void **state)
{
    char text[4] = "xxx";

    (void)state;
    assert_string_equal(duration_format(1500 * NS_PER_MS, text, sizeof(text)), "150");
}

static void test_instants_saturate(void **state)
{
    static const struct {
        int64_t ns;
        int64_t delta;
        int64_t sum;
    } cases[] = {
        {0, 5, 5},
        {10, -15, -5},
        {INT64_MAX - 1, 1, INT64_MAX},
        {INT64_MAX - 1, 2, INT64_MAX},
        {INT64_MAX, -1, INT64_MAX}, // never stays never
        {INT64_MAX, INT64_MIN, INT64_MAX},
        {INT64_MIN + 1, -2, INT64_MIN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_true(instant_add((struct instant){cases[i].ns}, cases[i].delta).ns ==
                    cases[i].sum);
    assert_true(instant_since((struct instant){7}, (struct instant){9}) == -2);
    assert_true(instant_since(INSTANT_NEVER, (struct instant){-1}) == INT64_MAX);
    assert_true(instant_since((struct instant){INT64_MIN}, (struct instant){1}) == INT64_MIN);
}

static void test_instants_compare(void **state)
{
    const struct instant at = {100};

    (void)state;
    assert_false(instant_reached((struct instant){99}, at));
    assert_true(instant_reached((struct instant){100}, at));
    assert_true(instant_reached((struct instant){101}, at));
    assert_true(instant_before((struct instant){99}, at));
    assert_false(instant_before((struct instant){100}, at));
    assert_true(instant_max(at, INSTANT_NEVER).ns == INT64_MAX);
    assert_true(instant_min(at, INSTANT_NEVER).ns == 100);
}

static void test_clock_advances(void **state)
{
    struct instant first = clock_now();
    struct instant mono = clock_monotonic();
    struct instant second = clock_now();

    (void)state;
    assert_true(first.ns > 0);
    assert_true(second.ns >= first.ns);
    assert_true(mono.ns > 0 &&
                mono.ns <= second.ns); // BOOTTIME adds suspends, never takes away
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_parse_accepts),
    cmocka_unit_test(test_parse_refuses),
    cmocka_unit_test(test_format_round_trips),
    cmocka_unit_test(test_format_truncates_inside_its_buffer),
    cmocka_unit_test(test_instants_saturate),
    cmocka_unit_test(test_instants_compare),
    cmocka_unit_test(test_clock_advances),
};

UNIT_MAIN(tests)
