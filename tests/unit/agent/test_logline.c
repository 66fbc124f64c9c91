// SPDX-License-Identifier: Apache-2.0
// Lines of the log taken apart, and secrets taken out of a text.
#include "tests/unit/unit.h"

#include <string.h>

#include "agent/cli/logline.h"
#include "agent/cli/redact.h"
#include "base/log.h"

#define STAMP "2026-11-30T13:49:36.123456Z"
#define HEAD  "ts=" STAMP " boot_ns=7 level=warn "

static bool parse(const char *line, struct logline *ret)
{
    return logline_parse(line, strlen(line), ret);
}

static void expect_text(const struct logline_text *text, const char *wanted)
{
    assert_int_equal(text->len, strlen(wanted));
    assert_memory_equal(text->data, wanted, text->len);
}

static void test_lines_of_ours(void **state)
{
    static const struct {
        const char *line;
        const char *prefix;
        const char *message; // as it is shown
        const char *pairs;
    } cases[] = {
        {HEAD "msg=recovery event=PurgeHeld note=\"a b\"", "", "recovery",
         "event=PurgeHeld note=\"a b\""},
        {HEAD "msg=\"lease renewed\"", "", "lease renewed", ""},
        {HEAD "msg=\"meta started\" ", "", "meta started", ""}, // metafence-run without pairs
        {HEAD "msg=\"a \\\"b\\\" \\\\ c\\n\" k=v", "", "a \"b\" \\ c\\n", "k=v"},
        {"[pod/meta-0/metafence] " HEAD "msg=x", "[pod/meta-0/metafence] ", "x", ""},
        {HEAD "msg=\"\" ts=1", "", "", "ts=1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct logline line;
        struct buf shown = {0};

        assert_true(parse(cases[i].line, &line));
        expect_text(&line.prefix, cases[i].prefix);
        expect_text(&line.time, STAMP);
        assert_int_equal(line.level, LOGLINE_WARN);
        expect_text(&line.pairs, cases[i].pairs);
        logline_put_message(&line.message, &shown);
        assert_string_equal(buf_str(&shown), cases[i].message);
        buf_done(&shown);
    }
}

static void test_what_the_logger_writes_is_understood(void **state)
{
    static const enum log_level levels[] = {LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN,
                                            LOG_LEVEL_ERROR};
    const struct log_stamp stamp = {.boot = {42}, .wall_s = 1796046576, .wall_ns = 123456789};
    char text[LOG_LINE_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        size_t len = log_format(text, &stamp, levels[i], "a \"b\"\n",
                                LOG_KVS(kv_str("note", "c=d\x01"), kv_bool("x", true)));
        struct logline line;

        assert_int_equal(text[len - 1], '\n');
        assert_true(logline_parse(text, len - 1, &line));
        assert_int_equal(line.level, i);
        expect_text(&line.pairs, "note=\"c=d\\x01\" x=true");
    }
}

static void test_lines_that_are_not_ours(void **state)
{
    static const char *const lines[] = {
        "",
        "ts=",
        "INFO risingwave_meta: started",
        "ts=yesterday boot_ns=7 level=warn msg=x",
        "ts=" STAMP " level=warn msg=x",
        "ts=" STAMP " boot_ns=7 level=loud msg=x",
        HEAD,
        HEAD "msg=",
        HEAD "msg=\"no end",
        HEAD "msg=\"no end\\\"",
        HEAD "msg=\"a\"b",
        HEAD "msg=x k=\033[31m",
    };
    struct logline line;

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        assert_false(parse(lines[i], &line));
    // Every beginning of a line, in memory that ends there.
    for (size_t len = 0; len < strlen(HEAD "msg=x"); len++) {
        char *copy = malloc(len ? len : 1);

        assert_non_null(copy);
        memcpy(copy, HEAD "msg=x", len);
        assert_false(logline_parse(copy, len, &line));
        free(copy);
    }
}

static void test_secrets_are_taken_out(void **state)
{
    static const struct {
        const char *text;
        const char *wanted;
    } cases[] = {
        {"", ""},
        {"x hunter2-secret y hunter2-secret", "x [redacted] y [redacted]"},
        {"{\"a\":\"in \\\"quotes\\\"\"}", "{\"a\":\"[redacted]\"}"}, // as JSON has it
        {"host=pg password=abc user=rw", "host=pg password=[redacted] user=rw"},
        {"password='a b' x", "password='[redacted]' x"},
        {"PGPASSWORD=abc", "PGPASSWORD=[redacted]"},
        {"postgres://rw:pw@pg:5432/d", "postgres://rw:[redacted]@pg:5432/d"},
        {"Authorization: Bearer eyJh.x", "Authorization: Bearer [redacted]"},
        {"://hunter2-secret:pw@x", "://[redacted]@x"},
        {"://a-hunter2-secret:pw@x", "://a-[redacted]@x"},
        {"://hunter2:-secret@x", "://[redacted]@x"},
        {"://password=abc:def@x", "://password=[redacted]"},
        {"password=password=hunter2-secret", "password=[redacted]"},
        // What is no secret.
        {"# password: environment PGPASSWORD", "# password: environment PGPASSWORD"},
        {"https://10.0.0.1:6443/x", "https://10.0.0.1:6443/x"},
        {"password= ", "password= "},
        {"short is a word", "short is a word"},
    };
    struct redact redact = {0};

    (void)state;
    redact_add(&redact, NULL);
    redact_add(&redact, "short");
    redact_add(&redact, "hunter2");
    redact_add(&redact, "hunter2-secret"); // the longest one counts
    redact_add(&redact, "in \"quotes\"");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf text = {0};

        buf_puts(&text, cases[i].text);
        redact_text(&redact, &text);
        assert_string_equal(buf_str(&text), cases[i].wanted);
        buf_done(&text);
    }
    for (int i = 0; i < 2 * REDACT_COUNT; i++)
        redact_add(&redact, "one too many");
    redact_done(&redact);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_lines_of_ours),
    cmocka_unit_test(test_what_the_logger_writes_is_understood),
    cmocka_unit_test(test_lines_that_are_not_ours),
    cmocka_unit_test(test_secrets_are_taken_out),
};

UNIT_MAIN(tests)
