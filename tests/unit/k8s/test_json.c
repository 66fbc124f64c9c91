// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/k8s/parse.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "k8s/json.h"

static void refuse(const char *bytes, size_t len, const char *why)
{
    struct err err = {0};
    cJSON *object = json_parse(bytes, len, &err);

    if (object || err.kind != ERR_INVALID || !strstr(err.msg, why))
        fail_msg("%.60s: \"%s\", want \"%s\"", bytes, err.msg, why);
}

static void test_refused_bytes(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *why;
    } cases[] = {
        {"", 0, "error at byte 0"},
        {"  ", 2, "error at byte"},
        {"{\"a\":1", 6, "error at byte"},
        {"{\"a\":1}}", 8, "more bytes behind"},
        {"{} {}", 5, "more bytes behind"},
        {"{}\0", 3, "NUL"},
        {"{\"a\":\"b\0c\"}", 11, "control byte inside a string"},
        {"{\"a\":\"b\nc\"}", 11, "control byte inside a string"},
        {"{\"a\":\"b\\u0000c\"}", 16, "NUL byte inside a string"},
        {"{\"a\\u0000\":1}", 13, "NUL byte inside a string"},
        {"\"abc", 4, "the end inside a string"},
        {"\"abc\\", 5, "the end inside a string"},
        {"<html>", 6, "error at byte 0"},
        {"{\"a\":\"\\ud800\"}", 14, "error at byte"},
        {"{'a':1}", 7, "error at byte"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        // In memory of exactly this size: a byte too far is seen.
        char *bytes = malloc(cases[i].len ? cases[i].len : 1);

        assert_non_null(bytes);
        memcpy(bytes, cases[i].bytes, cases[i].len);
        refuse(bytes, cases[i].len, cases[i].why);
        free(bytes);
    }
}

static void test_depth_and_size(void **state)
{
    struct buf text = {0};
    struct err err = {0};
    cJSON *object = NULL;

    (void)state;
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        buf_putc(&text, '[');
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        buf_putc(&text, ']');
    object = json_parse(text.data, text.len, &err);
    assert_non_null(object);
    cJSON_Delete(object);
    buf_clear(&text);
    for (int i = 0; i <= JSON_DEPTH_MAX; i++)
        buf_putc(&text, '[');
    refuse(text.data, text.len, "nested deeper than 64");
    buf_clear(&text);
    for (int i = 0; i < 1000000; i++)
        buf_puts(&text, "{\"a\":");
    refuse(text.data, text.len, "nested deeper than 64");
    buf_clear(&text);
    buf_putc(&text, '[');
    for (int i = 0; i < 1000000; i++)
        buf_puts(&text, "0,");
    buf_puts(&text, "0]");
    refuse(text.data, text.len, "more than 200000 values");
    buf_done(&text);
}

static void test_brackets_in_strings(void **state)
{
    struct err err = {0};
    const char *text = NULL;
    cJSON *object = parse("{\"a\":\"[[[[\\\"{{{\",\"b\":\"\\\\\"}");

    (void)state;
    assert_int_equal(json_text(object, "a", &text, &err), 0);
    assert_string_equal(text, "[[[[\"{{{");
    assert_int_equal(json_text(object, "b", &text, &err), 0);
    assert_string_equal(text, "\\");
    cJSON_Delete(object);
}

static const char document[] =
    "{\"s\":\"text\",\"e\":\"\",\"n\":7,\"t\":true,\"f\":false,\"z\":null,"
    "\"o\":{\"in\":{\"s\":\"deep\",\"n\":-3}},\"a\":[1,\"2\"],"
    "\"map\":{\"x.y/z\":\"dotted\",\"n\":1,\"z\":null},\"s\":\"second\"}";

enum type { TEXT, NEED, BOOL, INT, OBJECT, ARRAY };

static int get(const cJSON *object, enum type type, const char *path, struct err *err)
{
    const char *text = "before";
    const cJSON *item = object;
    bool flag = true;
    int64_t number = 99;

    switch (type) {
    case TEXT: return json_text(object, path, &text, err);
    case NEED: return json_need_text(object, path, &text, err);
    case BOOL: return json_bool(object, path, &flag, err);
    case INT: return json_int(object, path, &number, err);
    case OBJECT: return json_object(object, path, &item, err);
    case ARRAY: return json_array(object, path, &item, err);
    }
    return -1;
}

static void test_types(void **state)
{
    static const struct {
        enum type type;
        const char *path;
        const char *err; // NULL: fine
    } cases[] = {
        {TEXT, "s", NULL},
        {TEXT, "z", NULL},
        {TEXT, "nothing", NULL},
        {TEXT, "nothing.at.all", NULL},
        {TEXT, "z.below", NULL},
        {TEXT, "o.in.s", NULL},
        {TEXT, "n", "n: a number, want a string"},
        {TEXT, "t", "t: a boolean, want a string"},
        {TEXT, "o", "o: an object, want a string"},
        {TEXT, "a", "a: an array, want a string"},
        {TEXT, "o.in.n", "o.in.n: a number, want a string"},
        {TEXT, "s.below", "s: a string, want an object"},
        {TEXT, "o.in.n.x", "o.in.n: a number, want an object"},
        {TEXT, "a.0", "a: an array, want an object"},
        {NEED, "s", NULL},
        {NEED, "e", "e: empty, want a string"},
        {NEED, "z", "z: nothing, want a string"},
        {NEED, "o.x", "o.x: nothing, want a string"},
        {BOOL, "t", NULL},
        {BOOL, "f", NULL},
        {BOOL, "z", NULL},
        {BOOL, "s", "s: a string, want a boolean"},
        {BOOL, "n", "n: a number, want a boolean"},
        {INT, "n", NULL},
        {INT, "o.in.n", NULL},
        {INT, "s", "s: a string, want a whole number"},
        {INT, "t", "t: a boolean, want a whole number"},
        {OBJECT, "o", NULL},
        {OBJECT, "z", NULL},
        {OBJECT, "a", "a: an array, want an object"},
        {OBJECT, "s", "s: a string, want an object"},
        {ARRAY, "a", NULL},
        {ARRAY, "o", "o: an object, want an array"},
        {ARRAY, "f", "f: a boolean, want an array"},
    };
    cJSON *object = parse(document);

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        int result = get(object, cases[i].type, cases[i].path, &err);

        if ((result < 0) != (cases[i].err != NULL) || (result < 0 && err.kind != ERR_INVALID) ||
            strcmp(err.msg, cases[i].err ? cases[i].err : "") != 0)
            fail_msg("%s: %d \"%s\"", cases[i].path, result, err.msg);
    }
    cJSON_Delete(object);
}

static void test_values(void **state)
{
    cJSON *object = parse(document);
    cJSON *number = parse("5");
    struct err err = {0};
    const char *text = NULL;
    int64_t value = 0;
    bool flag = false;

    (void)state;
    assert_int_equal(json_text(object, "s", &text, &err), 0);
    assert_string_equal(text, "text"); // the first of two
    assert_int_equal(json_text(object, "nothing", &text, &err), 0);
    assert_null(text);
    assert_int_equal(json_bool(object, "t", &flag, &err), 0);
    assert_true(flag);
    assert_int_equal(json_int(object, "o.in.n", &value, &err), 0);
    assert_int_equal(value, -3);
    assert_int_equal(json_map_text(object, "map", "x.y/z", &text, &err), 0);
    assert_string_equal(text, "dotted");
    assert_int_equal(json_map_text(object, "map", "z", &text, &err), 0);
    assert_null(text);
    assert_int_equal(json_map_text(object, "nothing", "z", &text, &err), 0);
    assert_null(text);
    assert_int_equal(json_map_text(object, "map", "n", &text, &err), -1);
    assert_string_equal(err.msg, "map[\"n\"]: a number, want a string");
    assert_int_equal(json_map_text(object, "a", "n", &text, &err), -1);
    assert_int_equal(json_text(number, "x", &text, &err), -1);
    assert_string_equal(err.msg, "a number, want an object");
    cJSON_Delete(object);
    cJSON_Delete(number);
}

static void test_numbers(void **state)
{
    static const struct {
        const char *text;
        bool is_good;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"5688.0", true, 5688},
        {"5.688e3", true, 5688},
        {"2147483648", true, INT64_C(2147483648)},
        {"9007199254740991", true, INT64_C(9007199254740991)},
        {"-9007199254740991", true, INT64_C(-9007199254740991)},
        {"9007199254740992", false, 0},
        {"9007199254740993", false, 0},
        {"-9007199254740993", false, 0},
        {"18446744073709551615", false, 0},
        {"1e400", false, 0},
        {"-1e400", false, 0},
        {"0.5", false, 0},
        {"123456789012345678901234567890", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[128];
        struct err err = {0};
        int64_t value = 1;
        cJSON *object = NULL;
        int result = 0;

        (void)snprintf(text, sizeof(text), "{\"n\":%s}", cases[i].text);
        object = parse(text);
        result = json_int(object, "n", &value, &err);
        if ((result == 0) != cases[i].is_good || (result == 0 && value != cases[i].value))
            fail_msg("%s: %d %lld \"%s\"", text, result, (long long)value, err.msg);
        if (result < 0)
            assert_true(strncmp(err.msg, "n: ", 3) == 0);
        cJSON_Delete(object);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_refused_bytes),
    cmocka_unit_test(test_depth_and_size),
    cmocka_unit_test(test_brackets_in_strings),
    cmocka_unit_test(test_types),
    cmocka_unit_test(test_values),
    cmocka_unit_test(test_numbers),
};

UNIT_MAIN(tests)
