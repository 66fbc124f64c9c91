// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static const struct log_stamp stamp = {{123456789}, 1700000000, 42001999};

#define HEAD "ts=2023-11-14T22:13:20.042001Z boot_ns=123456789 level=info "

static const char *format(const struct kv *kvs)
{
    static char line[LOG_LINE_MAX + 1];
    size_t len = log_format(line, &stamp, LOG_LEVEL_INFO, "m", kvs);

    assert_true(len > 0 && len <= LOG_LINE_MAX);
    assert_int_equal(line[len - 1], '\n');
    line[len] = '\0';
    return line;
}

static void test_kinds(void **state)
{
    struct err err = {.kind = ERR_TRANSIENT, .msg = "no answer"};

    (void)state;
    assert_string_equal(format(LOG_KVS()), HEAD "msg=m\n");
    assert_string_equal(
        format(LOG_KVS(kv_str("s", "plain"), kv_int("i", -7), kv_bool("t", true),
                       kv_bool("f", false), kv_dur("d", 1500 * NS_PER_MS),
                       kv_instant("at", (struct instant){9}), kv_err(&err))),
        HEAD "msg=m s=plain i=-7 t=true f=false d=1500ms at=9 err=\"no answer\"\n");
}

static void test_quoting(void **state)
{
    static const struct {
        const char *value;
        const char *written;
    } cases[] = {
        {"plain-value_1.2/3:4,[]", "plain-value_1.2/3:4,[]"},
        {"", "\"\""},
        {NULL, "\"\""},
        {"two words", "\"two words\""},
        {"a=b", "\"a=b\""},
        {"say \"hi\"", "\"say \\\"hi\\\"\""},
        {"back\\slash", "\"back\\\\slash\""},
        {"line\nts=forged", "\"line\\nts=forged\""},
        {"cr\rtab\t", "\"cr\\rtab\\t\""},
        {"esc\x1b[31m", "\"esc\\x1b[31m\""},
        {"del\x7f", "\"del\\x7f\""},
        {"\xc3\xa4\xe2\x82\xac", "\xc3\xa4\xe2\x82\xac"},
    };
    char expected[256];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)snprintf(expected, sizeof(expected), HEAD "msg=m v=%s\n", cases[i].written);
        assert_string_equal(format(LOG_KVS(kv_str("v", cases[i].value))), expected);
    }
}

// Whole pairs are lost, the line stays one line of at most LOG_LINE_MAX bytes and says so.
static void test_too_long_lines_lose_whole_pairs(void **state)
{
    char value[LOG_LINE_MAX * 2];
    const char *line = NULL;
    bool was_cut = false;
    bool was_whole = false;

    (void)state;
    for (size_t len = LOG_LINE_MAX - 200; len < LOG_LINE_MAX + 200; len++) {
        memset(value, '\n', len / 2); // each becomes two bytes
        value[len / 2] = '\0';
        line = format(LOG_KVS(kv_int("first", 1), kv_str("v", value), kv_int("last", 2)));
        if (strstr(line, "truncated=true")) {
            was_cut = true;
            assert_non_null(strstr(line, " first=1 "));
            assert_null(strstr(line, "last=2"));
        } else {
            was_whole = true;
            assert_non_null(strstr(line, "\" last=2\n"));
        }
        assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    }
    assert_true(was_cut && was_whole);
}

static void test_level_parse(void **state)
{
    enum log_level level = LOG_LEVEL_INFO;
    struct err err = {0};

    (void)state;
    assert_int_equal(log_level_parse("debug", &level, &err), 0);
    assert_int_equal(level, LOG_LEVEL_DEBUG);
    assert_int_equal(log_level_parse("verbose", &level, &err), -1);
    assert_int_equal(err.kind, ERR_INVALID);
    assert_non_null(strstr(err.msg, "debug, info, warn or error"));
    assert_int_equal(level, LOG_LEVEL_DEBUG);
}

static void test_levels_filter(void **state)
{
    int fds[2];
    char text[LOG_LINE_MAX * 2] = "";

    (void)state;
    assert_int_equal(pipe(fds), 0);
    log_set_fd(fds[1]);
    log_set_level(LOG_LEVEL_WARN);
    log_info("quiet");
    log_warn("loud", kv_int("n", 1));
    log_set_level(LOG_LEVEL_INFO);
    assert_true(read(fds[0], text, sizeof(text) - 1) > 0);
    assert_null(strstr(text, "quiet"));
    assert_non_null(strstr(text, " level=warn msg=loud n=1\n"));
    log_set_fd(STDERR_FILENO);
    close(fds[0]);
    close(fds[1]);
}

// A reader that has stopped must not stop us: a blocking pipe gets full, lines are dropped,
// counted and reported once there is room.
static void test_full_pipe_never_blocks(void **state)
{
    int fds[2];
    char text[1 << 17];
    ssize_t got = 0;
    uint64_t before = log_dropped();

    (void)state;
    assert_int_equal(pipe(fds), 0);
    log_set_fd(fds[1]);
    for (int i = 0; i < 2000; i++)
        log_info("a line of some length that fills the pipe of 64 KiB in time");
    assert_true(log_dropped() > before);
    got = read(fds[0], text, sizeof(text) - 1);
    assert_true(got > 0);
    assert_int_equal(text[got - 1], '\n'); // only whole lines
    log_info("after");
    got = read(fds[0], text, sizeof(text) - 1);
    assert_true(got > 0);
    text[got] = '\0';
    assert_non_null(strstr(text, "msg=\"log lines dropped\" dropped="));
    assert_non_null(strstr(text, "msg=after\n"));
    log_info("again");
    got = read(fds[0], text, sizeof(text) - 1);
    assert_true(got > 0);
    text[got] = '\0';
    assert_null(strstr(text, "dropped"));
    log_set_fd(STDERR_FILENO);
    close(fds[0]);
    close(fds[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_kinds),
    cmocka_unit_test(test_quoting),
    cmocka_unit_test(test_too_long_lines_lose_whole_pairs),
    cmocka_unit_test(test_level_parse),
    cmocka_unit_test(test_levels_filter),
    cmocka_unit_test(test_full_pipe_never_blocks),
};

UNIT_MAIN(tests)
