// SPDX-License-Identifier: Apache-2.0
// Streams: frames cut anywhere, silence, and every way of ending.
#include "tests/unit/k8s/script.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"

#define SILENCE_NS (20 * NS_PER_SEC)

struct got {
    struct script *script;
    struct k8s_request *stream;
    int opens;
    int lines;
    char text[512]; // of all lines, joined
    int ends;
    struct k8s_result last;
    int cancel_at; // line
};

static void on_open(void *arg)
{
    struct got *got = arg;

    assert_int_equal(got->opens++, 0);
    assert_int_equal(got->lines, 0);
}

static void on_line(const struct cJSON *object, void *arg)
{
    struct got *got = arg;
    const char *text = NULL;
    struct err err = {0};
    size_t len = strlen(got->text);

    assert_int_equal(got->opens, 1);
    assert_int_equal(got->ends, 0);
    assert_int_equal(json_text(object, "t", &text, &err), 0);
    (void)snprintf(got->text + len, sizeof(got->text) - len, "%s|", text ? text : "-");
    if (++got->lines == got->cancel_at) {
        k8s_cancel(got->stream);
        got->stream = NULL;
    }
}

static void on_end(const struct k8s_result *result, void *arg)
{
    struct got *got = arg;

    got->stream = NULL;
    got->ends++;
    got->last = *result;
    assert_null(result->body);
}

static const struct k8s_stream_ops ops = {
    .on_open = on_open, .on_line = on_line, .on_end = on_end};
static const struct k8s_call call = {.method = "GET", .path = "/watch?x=1"};

static void start(struct script *script, struct got *got, int64_t silence_ns)
{
    *got = (struct got){.script = script};
    got->stream = k8s_stream(script->k8s, &call, silence_ns, &ops, got);
    assert_non_null(got->stream);
}

static void begin_stream(struct script_conn *conn, const struct script_request *request)
{
    (void)request;
    script_stream(conn);
}

// Text with an escape, characters of several bytes, CR LF, empty lines, two lines at once.
static const char frames[] = "{\"t\":\"one\"}\n{\"t\":\"tw\\u00f6 \\\"x\\\"\"}\n\n\r\n"
                             "{\"t\":\"dr\xc3\xa4i \xf0\x9f\x92\xa1\"}\r\n{\"t\":\"vier\"}\n";
static const char want[] = "one|tw\xc3\xb6 \"x\"|dr\xc3\xa4i \xf0\x9f\x92\xa1|vier|";

static void test_split_anywhere(void **state)
{
    struct script script;
    struct got got;
    size_t len = sizeof(frames) - 1;

    (void)state;
    script_init(&script, begin_stream, NULL);
    script_client(&script);
    for (size_t cut = 1; cut < len; cut++) {
        start(&script, &got, SILENCE_NS);
        SCRIPT_UNTIL(&script, got.opens == 1);
        script_chunk(script.conns, frames, cut);
        // The first part is with the client, as far as it makes lines, before the rest is sent.
        SCRIPT_UNTIL(&script, memchr(frames, '\n', cut) == NULL || got.lines > 0);
        script_chunk(script.conns, frames + cut, len - cut);
        script_stream_end(script.conns);
        SCRIPT_UNTIL(&script, got.ends == 1);
        assert_int_equal(got.last.outcome, K8S_OK);
        assert_string_equal(got.text, want);
    }
    start(&script, &got, SILENCE_NS);
    SCRIPT_UNTIL(&script, got.opens == 1);
    for (size_t i = 0; i < len; i++)
        script_chunk(script.conns, frames + i, 1);
    script_stream_end(script.conns);
    SCRIPT_UNTIL(&script, got.ends == 1);
    assert_string_equal(got.text, want);
    script_done(&script);
}

// --- ends ---

static const struct ending {
    const char *name;
    const char *bytes; // after the headers of a stream; NULL: instead of them, `head`
    const char *head;
    enum { END, CLOSE, RESET, NOTHING } how;
    int lines;
    enum k8s_outcome want;
    const char *err;
} endings[] = {
    {"in good order", "{\"t\":\"a\"}\n", NULL, END, 1, K8S_OK, ""},
    {"at once", "", NULL, END, 0, K8S_OK, ""},
    {"cut between lines", "{\"t\":\"a\"}\n", NULL, CLOSE, 1, K8S_UNKNOWN, ""},
    {"cut in a line", "{\"t\":\"a\"}\n{\"t\"", NULL, CLOSE, 1, K8S_UNKNOWN, ""},
    {"half a line at the end", "{\"t\":\"a\"}\n{\"t\":\"b\"}", NULL, END, 1, K8S_UNKNOWN,
     "middle of a line"},
    {"reset", "", NULL, RESET, 0, K8S_UNKNOWN, ""},
    {"no JSON", "{\"t\":\"a\"}\noops\n{\"t\":\"b\"}\n", NULL, NOTHING, 1, K8S_GARBAGE,
     "no JSON"},
    {"no object", "[1]\n", NULL, NOTHING, 0, K8S_GARBAGE, "no object"},
    {"410", NULL, "HTTP/1.1 410 Gone\r\nContent-Length: 17\r\n\r\n{\"message\":\"old\"}",
     NOTHING, 0, K8S_GONE, "HTTP 410: old"},
    {"503", NULL, "HTTP/1.1 503 No\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n", NOTHING, 0,
     K8S_BUSY, "HTTP 503"},
    {"401", NULL, "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", NOTHING, 0, K8S_DENIED,
     "401"},
};

static void end_by_table(struct script_conn *conn, const struct script_request *request)
{
    const struct ending *ending = conn->script->arg;

    (void)request;
    if (ending->head) {
        script_send(conn, ending->head, strlen(ending->head));
        return;
    }
    script_stream(conn);
    if (ending->bytes[0])
        script_chunk_text(conn, ending->bytes);
    if (ending->how == END)
        script_stream_end(conn);
    else if (ending->how == CLOSE)
        script_close(conn);
    else if (ending->how == RESET)
        script_reset(conn);
}

static void test_endings(void **state)
{
    struct script script;
    struct got got;

    (void)state;
    script_init(&script, end_by_table, NULL);
    script_client(&script);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        const struct ending *ending = &endings[i];

        memcpy(&script.arg, &ending, sizeof(ending));
        start(&script, &got, SILENCE_NS);
        SCRIPT_UNTIL(&script, got.ends == 1);
        // Bytes behind which a reset comes may or may not be read.
        if (got.last.outcome != ending->want || !strstr(got.last.err.msg, ending->err) ||
            (ending->how != RESET && got.lines != ending->lines))
            fail_msg("%s: %s %d lines \"%s\"", ending->name, k8s_outcome_name(got.last.outcome),
                     got.lines, got.last.err.msg);
        assert_int_equal(got.last.retry_after_ns,
                         ending->want == K8S_BUSY ? 3 * NS_PER_SEC : 0);
    }
    script_done(&script);
}

static void answer_never(struct script_conn *conn, const struct script_request *request)
{
    (void)conn;
    (void)request;
}

static void test_silence(void **state)
{
    struct script script;
    struct got got;

    (void)state;
    script_init(&script, begin_stream, NULL);
    script_client(&script);
    start(&script, &got, 50 * NS_PER_MS);
    SCRIPT_UNTIL(&script, got.ends == 1);
    assert_int_equal(got.opens, 1);
    assert_int_equal(got.last.outcome, K8S_UNKNOWN);
    assert_non_null(strstr(got.last.err.msg, "silent"));
    start(&script, &got, 300 * NS_PER_MS); // and after a line
    SCRIPT_UNTIL(&script, got.opens == 1);
    script_chunk_text(script.conns, "{\"t\":\"a\"}\n{");
    SCRIPT_UNTIL(&script, got.ends == 1);
    assert_int_equal(got.lines, 1);
    assert_int_equal(got.last.outcome, K8S_UNKNOWN);
    k8s_free(script.k8s);
    script.on_request = answer_never;
    script.config.timeout_ns = 50 * NS_PER_MS;
    script_client(&script);
    start(&script, &got, SILENCE_NS); // not even a header
    SCRIPT_UNTIL(&script, got.ends == 1);
    assert_int_equal(got.opens, 0);
    assert_int_equal(got.last.outcome, K8S_UNKNOWN);
    script_done(&script);
}

static void flood(struct script_conn *conn, const struct script_request *request)
{
    static const char head[] = "HTTP/1.1 200 OK\r\n\r\n{\"t\":\"a\"}\n";

    (void)request;
    conn->flood = (size_t)50 << 20;
    script_send(conn, head, sizeof(head) - 1);
}

static void test_endless_line(void **state)
{
    struct script script;
    struct got got;
    struct rusage before;
    struct rusage after;

    (void)state;
    script_init(&script, flood, NULL);
    script_client(&script);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    start(&script, &got, SILENCE_NS);
    SCRIPT_UNTIL(&script, got.ends == 1);
    assert_int_equal(got.lines, 1);
    assert_int_equal(got.last.outcome, K8S_GARBAGE);
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_true(after.ru_maxrss - before.ru_maxrss < 32 * 1024); // KiB
    script_done(&script);
}

static void test_cancel(void **state)
{
    struct script script;
    struct got got;

    (void)state;
    script_init(&script, begin_stream, NULL);
    script_client(&script);
    for (int at = 1; at <= 3; at++) { // from inside a line
        start(&script, &got, SILENCE_NS);
        got.cancel_at = at;
        SCRIPT_UNTIL(&script, got.opens == 1);
        script_chunk_text(script.conns,
                          "{\"t\":\"a\"}\n{\"t\":\"b\"}\n{\"t\":\"c\"}\n{\"t\":\"d\"}\n");
        SCRIPT_UNTIL(&script, got.stream == NULL);
        SCRIPT_UNTIL(&script, script.conns == NULL); // its connection is closed
        assert_int_equal(got.lines, at);
        assert_int_equal(got.ends, 0);
    }
    for (int turns = 0; turns < 12; turns++) { // at any moment
        start(&script, &got, SILENCE_NS);
        for (int i = 0; i < turns && got.opens == 0; i++) // then it would be silent
            assert_true(loop_turn(script.loop));
        if (got.opens > 0)
            script_chunk_text(script.conns, "{\"t\":\"a\"}\n{\"t\"");
        k8s_cancel(got.stream);
        assert_int_equal(got.ends, 0);
    }
    start(&script, &got, SILENCE_NS);
    SCRIPT_UNTIL(&script, got.opens == 1);
    script_chunk_text(script.conns, "{\"t\":\"a\"}\n{\"t\"");
    SCRIPT_UNTIL(&script, got.lines == 1);
    script_done(&script); // with a stream in the middle of a line
    assert_int_equal(got.ends, 0);
}

static void one_of_each(struct script_conn *conn, const struct script_request *request)
{
    if (strncmp(request->path, "/watch", 6) == 0)
        script_stream(conn);
    else
        script_reply(conn, 200, "{}");
}

static void on_result(const struct k8s_result *result, void *arg)
{
    int *count = arg;

    assert_int_equal(result->outcome, K8S_OK);
    (*count)++;
}

// A request has nothing to do with a stream's connection.
static void test_beside_requests(void **state)
{
    static const struct k8s_call other = {.method = "GET", .path = "/other"};
    struct script script;
    struct got got;
    int count = 0;

    (void)state;
    script_init(&script, one_of_each, NULL);
    script_client(&script);
    start(&script, &got, SILENCE_NS);
    SCRIPT_UNTIL(&script, got.opens == 1);
    for (int i = 1; i <= 3; i++) {
        (void)k8s_send(script.k8s, &other, on_result, &count);
        SCRIPT_UNTIL(&script, count == i);
    }
    assert_int_equal(script.accepted, 2);
    assert_int_equal(got.ends, 0);
    script_done(&script);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_split_anywhere), cmocka_unit_test(test_endings),
    cmocka_unit_test(test_silence),        cmocka_unit_test(test_endless_line),
    cmocka_unit_test(test_cancel),         cmocka_unit_test(test_beside_requests),
};

UNIT_MAIN(tests)
