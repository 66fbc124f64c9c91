// SPDX-License-Identifier: Apache-2.0
// Requests against a server whose every byte is scripted.
#include "tests/unit/k8s/script.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"

struct got {
    int count;
    struct k8s_result last;
    char kind[32];
};

static void on_result(const struct k8s_result *result, void *arg)
{
    struct got *got = arg;
    const char *kind = NULL;
    struct err err = {0};

    got->count++;
    got->last = *result;
    got->kind[0] = '\0';
    assert_int_equal(result->body != NULL, result->outcome == K8S_OK);
    assert_int_equal(result->err.msg[0] == '\0', result->outcome == K8S_OK);
    assert_null(strstr(result->err.msg, "token-"));
    assert_true(result->received_at.ns >= result->sent_at.ns);
    if (result->body && json_text(result->body, "kind", &kind, &err) == 0 && kind)
        (void)snprintf(got->kind, sizeof(got->kind), "%s", kind);
}

static const struct k8s_call get_call = {.method = "GET", .path = "/api/v1/x?limit=1"};
static const struct k8s_call patch_call = {.method = "PATCH",
                                           .path = "/api/v1/x",
                                           .content_type = "application/merge-patch+json",
                                           .body = "{\"a\":1}"};

static void ask(struct script *script, const struct k8s_call *call, struct got *got)
{
    int before = got->count;

    assert_non_null(k8s_send(script->k8s, call, on_result, got));
    assert_int_equal(got->count, before); // never from inside
    SCRIPT_UNTIL(script, got->count > before);
}

// --- one answer each ---

enum after { KEEP, CLOSE, RESET };

static const struct answer {
    const char *name;
    const char *bytes;
    enum after after;
    enum k8s_outcome want;
    int status;
    int64_t retry_after_s;
} answers[] = {
    {"object", "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"kind\":\"Pod\"}", KEEP, K8S_OK,
     200, 0},
    {"chunked",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", KEEP,
     K8S_OK, 200, 0},
    {"until the close", "HTTP/1.1 200 OK\r\n\r\n{}", CLOSE, K8S_OK, 200, 0},
    {"Connection: close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
     CLOSE, K8S_OK, 200, 0},
    {"no JSON", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\noops", KEEP, K8S_GARBAGE, 200, 0},
    {"half a JSON", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{\"a\"", KEEP, K8S_GARBAGE,
     200, 0},
    {"cut in the middle", "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{\"a\":1", CLOSE,
     K8S_UNKNOWN, 200, 0},
    {"cut chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", CLOSE,
     K8S_UNKNOWN, 200, 0},
    {"reset in the middle", "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{\"a\":1", RESET,
     K8S_UNKNOWN, -1, 0},
    {"closed before it", "", CLOSE, K8S_UNKNOWN, 0, 0},
    {"reset before it", "", RESET, K8S_UNKNOWN, 0, 0},
    {"no HTTP", "SSH-2.0-OpenSSH\r\n", CLOSE, K8S_UNKNOWN, 0, 0},
    {"redirect",
     "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", KEEP,
     K8S_GARBAGE, 302, 0},
    {"bad request", "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n", KEEP, K8S_REFUSED, 400, 0},
    {"forbidden", "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", KEEP, K8S_DENIED, 403, 0},
    {"not found", "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", KEEP, K8S_NOT_FOUND, 404, 0},
    {"conflict", "HTTP/1.1 409 No\r\nContent-Length: 0\r\n\r\n", KEEP, K8S_CONFLICT, 409, 0},
    {"gone", "HTTP/1.1 410 No\r\nContent-Length: 0\r\n\r\n", KEEP, K8S_GONE, 410, 0},
    {"unprocessable", "HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n", KEEP, K8S_REFUSED, 422,
     0},
    {"too many", "HTTP/1.1 429 No\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", KEEP,
     K8S_BUSY, 429, 7},
    {"too long a wait", "HTTP/1.1 429 No\r\nRetry-After: 86400\r\nContent-Length: 0\r\n\r\n",
     KEEP, K8S_BUSY, 429, 600},
    {"no number", "HTTP/1.1 503 No\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n", KEEP,
     K8S_BUSY, 503, 0},
    {"broken server", "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", KEEP, K8S_BUSY, 500, 0},
};

static void answer_by_table(struct script_conn *conn, const struct script_request *request)
{
    const struct answer *answer = conn->script->arg;

    (void)request;
    if (answer->after == RESET && answer->bytes[0] == '\0') {
        script_reset(conn);
        return;
    }
    if (answer->after != KEEP)
        conn->is_closing = answer->after == CLOSE;
    script_send(conn, answer->bytes, strlen(answer->bytes));
    if (answer->after == RESET)
        script_reset(conn);
}

static void test_answers(void **state)
{
    struct script script;
    struct got got = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        const struct answer *answer = &answers[i];

        // A client of its own: curl repeats on a used connection.
        script_init(&script, answer_by_table, NULL);
        script_client(&script);
        memcpy(&script.arg, &answer, sizeof(answer));
        ask(&script, i % 2 ? &patch_call : &get_call, &got);
        if (got.last.outcome != answer->want ||
            (answer->status >= 0 && got.last.http_status != answer->status) ||
            got.last.retry_after_ns != answer->retry_after_s * NS_PER_SEC)
            fail_msg("%s: %s %d %s", answer->name, k8s_outcome_name(got.last.outcome),
                     got.last.http_status, got.last.err.msg);
        assert_int_equal(script.requests, 1);
        script_done(&script);
    }
}

// --- what is sent ---

struct seen {
    char head[4096];
    char body[256];
};

static void answer_and_note(struct script_conn *conn, const struct script_request *request)
{
    struct seen *seen = conn->script->arg;

    (void)snprintf(seen->head, sizeof(seen->head), "%s", request->head);
    (void)snprintf(seen->body, sizeof(seen->body), "%s", request->body);
    script_reply(conn, 200, "{\"kind\":\"Pod\"}");
}

static void test_request(void **state)
{
    struct script script;
    struct seen seen = {0};
    struct got got = {0};
    struct k8s_stats stats;

    (void)state;
    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
    assert_int_equal(setenv("ALL_PROXY", "http://127.0.0.1:1", 1), 0);
    script_init(&script, answer_and_note, &seen);
    script_client(&script);
    assert_string_equal(k8s_namespace(script.k8s), "ns");
    ask(&script, &patch_call, &got);
    assert_int_equal(got.last.outcome, K8S_OK);
    assert_string_equal(got.kind, "Pod");
    assert_true(strncmp(seen.head, "PATCH /api/v1/x HTTP/1.1\r\n", 26) == 0);
    assert_non_null(strstr(seen.head, "\r\nAuthorization: Bearer token-1\r\n"));
    assert_non_null(strstr(seen.head, "\r\nAccept: application/json\r\n"));
    assert_non_null(strstr(seen.head, "\r\nContent-Type: application/merge-patch+json\r\n"));
    assert_null(strstr(seen.head, "Accept-Encoding"));
    assert_null(strstr(seen.head, "Expect"));
    assert_string_equal(seen.body, "{\"a\":1}");
    ask(&script, &get_call, &got);
    assert_true(strncmp(seen.head, "GET /api/v1/x?limit=1 HTTP/1.1\r\n", 32) == 0);
    assert_null(strstr(seen.head, "Content-"));
    assert_int_equal(script.accepted, 1); // one connection for both
    k8s_get_stats(script.k8s, &stats);
    assert_int_equal(stats.requests, 2);
    assert_int_equal(stats.answers[K8S_OK], 2);
    assert_int_equal(stats.connects, 1);
    assert_int_equal(stats.token_reads, 1);
    assert_true(stats.answered_at.ns >= got.last.sent_at.ns);
    script_done(&script);
    assert_int_equal(unsetenv("http_proxy"), 0);
    assert_int_equal(unsetenv("ALL_PROXY"), 0);
}

// With an open connection the kernel has the bytes when k8s_send returns.
static void test_on_the_wire(void **state)
{
    struct script script;
    struct seen seen = {0};
    struct got got = {0};
    char bytes[2048] = "";

    (void)state;
    script_init(&script, answer_and_note, &seen);
    script_client(&script);
    ask(&script, &get_call, &got);
    assert_non_null(k8s_send(script.k8s, &patch_call, on_result, &got));
    assert_true(recv(script.conns->fd, bytes, sizeof(bytes) - 1, MSG_PEEK | MSG_DONTWAIT) > 0);
    assert_non_null(strstr(bytes, "\r\n\r\n{\"a\":1}"));
    SCRIPT_UNTIL(&script, got.count == 2);
    assert_int_equal(got.last.outcome, K8S_OK);
    script_done(&script);
}

// --- the token ---

// Only "token-2" is right.
static void answer_by_token(struct script_conn *conn, const struct script_request *request)
{
    bool is_good = strstr(request->head, "Authorization: Bearer token-2\r\n") != NULL;

    if (conn->script->arg)
        script_write_file(conn->script->token_file, conn->script->arg);
    script_reply(conn, is_good ? 200 : 401, "{\"message\":\"Unauthorized\"}");
}

static void test_token(void **state)
{
    static char second[] = "token-2\n";
    struct script script;
    struct got got = {0};

    (void)state;
    script_init(&script, answer_by_token, NULL);
    script_client(&script);
    ask(&script, &get_call, &got); // once more with the same, then it is a denial
    assert_int_equal(got.last.outcome, K8S_DENIED);
    assert_int_equal(got.last.http_status, 401);
    assert_int_equal(script.requests, 2);
    script.arg = second; // rotated while the request is under way
    ask(&script, &patch_call, &got);
    assert_int_equal(got.last.outcome, K8S_OK);
    assert_int_equal(script.requests, 4);
    script.arg = NULL;
    assert_int_equal(remove(script.token_file), 0); // the old one is kept
    ask(&script, &get_call, &got);
    assert_int_equal(got.last.outcome, K8S_OK);
    script_write_file(script.token_file, "token-3"); // seen before it is used
    ask(&script, &get_call, &got);
    assert_int_equal(got.last.outcome, K8S_DENIED);
    script_done(&script);
}

static void test_no_token(void **state)
{
    struct script script;
    struct got got = {0};

    (void)state;
    script_init(&script, answer_by_token, NULL);
    assert_int_equal(remove(script.token_file), 0);
    script_client(&script);
    ask(&script, &get_call, &got);
    assert_int_equal(got.last.outcome, K8S_NOT_SENT);
    assert_non_null(strstr(got.last.err.msg, script.token_file));
    assert_int_equal(script.accepted, 0);
    script_write_file(script.token_file, "token-2");
    ask(&script, &get_call, &got);
    assert_int_equal(got.last.outcome, K8S_OK);
    k8s_free(script.k8s);
    script.config.token_file = NULL; // anonymous: a 401 is a denial at once
    script_client(&script);
    script.requests = 0;
    ask(&script, &get_call, &got);
    assert_int_equal(got.last.outcome, K8S_DENIED);
    assert_int_equal(script.requests, 1);
    script_done(&script);
}

// --- time-outs, connections ---

static void answer_never(struct script_conn *conn, const struct script_request *request)
{
    (void)conn;
    (void)request;
}

static void test_timeout(void **state)
{
    struct script script;
    struct got got = {0};
    struct k8s_call call = get_call;
    unsigned accepted = 0;

    (void)state;
    script_init(&script, answer_never, NULL);
    script_client(&script);
    call.timeout_ns = 50 * NS_PER_MS;
    ask(&script, &call, &got);
    assert_int_equal(got.last.outcome, K8S_UNKNOWN);
    assert_int_equal(got.last.err.kind, ERR_UNKNOWN_OUTCOME);
    accepted = script.accepted;
    ask(&script, &call, &got); // not over the connection that was silent
    assert_int_equal(got.last.outcome, K8S_UNKNOWN);
    assert_int_equal(script.accepted, accepted + 1);
    script_done(&script);
}

static void test_not_sent(void **state)
{
    struct script script;
    struct got got = {0};
    struct k8s_call call = get_call;

    (void)state;
    script_init(&script, answer_never, NULL);
    script_client(&script);
    script_listen_end(&script);
    ask(&script, &call, &got);
    assert_int_equal(got.last.outcome, K8S_NOT_SENT);
    assert_non_null(strstr(got.last.err.msg, "GET /api/v1/x: "));
    assert_null(strstr(got.last.err.msg, "limit"));
    script_done(&script);
}

static const char whole_answer[] =
    "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"kind\":\"Pod\"}";

static void answer_then_close(struct script_conn *conn, const struct script_request *request)
{
    (void)request;
    conn->is_closing = true;
    script_send(conn, whole_answer, sizeof(whole_answer) - 1);
}

// A server that closes after each answer without a word is no trouble.
static void test_closed_idle(void **state)
{
    struct script script;
    struct got got = {0};

    (void)state;
    script_init(&script, answer_then_close, NULL);
    script_client(&script);
    for (int i = 0; i < 5; i++) {
        ask(&script, &get_call, &got);
        assert_int_equal(got.last.outcome, K8S_OK);
    }
    assert_int_equal(script.accepted, 5);
    script_done(&script);
}

// --- a server with a name ---

// Asked for without a thread: curl's own resolver would start one.
static unsigned count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    unsigned count = 0;

    assert_non_null(tasks);
    for (const struct dirent *entry = readdir(tasks); entry; entry = readdir(tasks))
        count += entry->d_name[0] != '.';
    (void)closedir(tasks);
    return count;
}

static void test_name(void **state)
{
    struct script script;
    struct seen seen = {0};
    struct got got = {0};
    unsigned threads = count_threads();

    (void)state;
    script_init(&script, answer_and_note, &seen);
    (void)snprintf(script.url, sizeof(script.url), "http://localhost:%d", script.port);
    script_client(&script);
    (void)k8s_send(script.k8s, &get_call, on_result, &got); // two wait for one answer
    ask(&script, &patch_call, &got);
    SCRIPT_UNTIL(&script, got.count == 2);
    assert_int_equal(got.last.outcome, K8S_OK);
    assert_non_null(strstr(seen.head, "\r\nHost: localhost:"));
    assert_int_equal(count_threads(), threads);
    k8s_cancel(k8s_send(script.k8s, &get_call, on_result, &got));
    k8s_free(script.k8s);
    script_client(&script);
    k8s_cancel(k8s_send(script.k8s, &get_call, on_result, &got)); // while it waits for it
    (void)k8s_send(script.k8s, &get_call, on_result, &got);
    script_done(&script);
    assert_int_equal(got.count, 2);
}

static void test_unknown_name(void **state)
{
    struct script script;
    struct got got = {0};

    (void)state;
    script_init(&script, answer_never, NULL);
    script.config.server = "http://no-such-host.invalid:1";
    script.config.timeout_ns = 300 * NS_PER_MS;
    script_client(&script);
    for (int i = 0; i < 2; i++) {
        ask(&script, &get_call, &got);
        assert_int_equal(got.last.outcome, K8S_NOT_SENT);
    }
    script_done(&script);
}

// --- sizes ---

static void answer_flood(struct script_conn *conn, const struct script_request *request)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Length: 52428800\r\n\r\n";

    (void)request;
    conn->flood = 52428800;
    script_send(conn, head, sizeof(head) - 1);
}

static void test_flood(void **state)
{
    struct script script;
    struct got got = {0};
    struct rusage before;
    struct rusage after;

    (void)state;
    script_init(&script, answer_flood, NULL);
    script_client(&script);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    ask(&script, &get_call, &got);
    assert_int_equal(got.last.outcome, K8S_GARBAGE);
    assert_non_null(strstr(got.last.err.msg, "too long"));
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_true(after.ru_maxrss - before.ru_maxrss < 32 * 1024); // KiB
    script_done(&script);
}

// --- cancelling ---

static void test_cancel(void **state)
{
    struct script script;
    struct got got = {0};
    struct seen seen = {0};
    struct k8s_request *request = NULL;

    (void)state;
    script_init(&script, answer_and_note, &seen);
    script_client(&script);
    k8s_cancel(NULL);
    k8s_cancel(k8s_send(script.k8s, &get_call, on_result, &got)); // while connecting
    for (unsigned turns = 0; turns < 12; turns++) {
        unsigned requests = script.requests;

        // At every moment of its life, as far as it gets in so many turns.
        request = k8s_send(script.k8s, &get_call, on_result, &got);
        for (unsigned i = 0; i < turns && got.count == 0; i++)
            assert_true(loop_turn(script.loop));
        if (got.count > 0)
            break;
        k8s_cancel(request);
        assert_true(script.requests <= requests + 1);
    }
    got.count = 0;
    ask(&script, &get_call, &got);
    assert_int_equal(got.last.outcome, K8S_OK);
    (void)k8s_send(script.k8s, &get_call, on_result, &got);
    (void)k8s_send(script.k8s, &patch_call, on_result, &got);
    script_done(&script); // with requests in flight
    assert_int_equal(got.count, 1);
}

struct chain {
    struct script *script;
    struct k8s_request *other;
    int left;
    struct got got;
};

static void on_other(const struct k8s_result *result, void *arg)
{
    struct chain *chain = arg;

    chain->other = NULL;
    on_result(result, &chain->got);
}

static void send_next(const struct k8s_result *result, void *arg)
{
    struct chain *chain = arg;

    on_result(result, &chain->got);
    k8s_cancel(chain->other); // another one, from inside
    chain->other = NULL;
    if (chain->left-- == 0)
        return;
    chain->other = k8s_send(chain->script->k8s, &patch_call, on_other, chain);
    (void)k8s_send(chain->script->k8s, &get_call, send_next, chain);
}

static void test_from_inside(void **state)
{
    struct script script;
    struct seen seen = {0};
    struct chain chain = {.script = &script, .left = 5};

    (void)state;
    script_init(&script, answer_and_note, &seen);
    script_client(&script);
    (void)k8s_send(script.k8s, &get_call, send_next, &chain);
    SCRIPT_UNTIL(&script, chain.left < 0);
    assert_int_equal(chain.got.last.outcome, K8S_OK);
    script_done(&script);
}

static void test_bad_config(void **state)
{
    struct script script;
    struct err err = {0};

    (void)state;
    script_init(&script, answer_never, NULL);
    script.config.server = "https://127.0.0.1:1";
    assert_int_equal(k8s_new(script.loop, &script.config, &script.k8s, &err), -1);
    assert_int_equal(err.kind, ERR_INVALID);
    assert_non_null(strstr(err.msg, "caFile"));
    script.config.server = "nonsense";
    assert_int_equal(k8s_new(script.loop, &script.config, &script.k8s, &err), -1);
    assert_int_equal(err.kind, ERR_INVALID);
    assert_null(script.k8s);
    script_done(&script);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_answers),     cmocka_unit_test(test_request),
    cmocka_unit_test(test_on_the_wire), cmocka_unit_test(test_token),
    cmocka_unit_test(test_no_token),    cmocka_unit_test(test_timeout),
    cmocka_unit_test(test_not_sent),    cmocka_unit_test(test_closed_idle),
    cmocka_unit_test(test_name),        cmocka_unit_test(test_unknown_name),
    cmocka_unit_test(test_flood),       cmocka_unit_test(test_cancel),
    cmocka_unit_test(test_from_inside), cmocka_unit_test(test_bad_config),
};

UNIT_MAIN(tests)
