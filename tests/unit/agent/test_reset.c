// SPDX-License-Identifier: Apache-2.0
// Init and statistics against a server in the same loop that answers with scripted bytes, and
// sees what really came.
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/grpc/compute.h"
#include "tests/unit/agent/h2.h"

#define DEADLINE_NS (500 * NS_PER_MS)
#define ENDLESS     (-1)
#define LONG_NS     (60 * NS_PER_SEC)

#define BYTES(text) text, sizeof(text) - 1

struct reply {
    const char *name;
    const char *bytes;
    size_t len;
    bool closes; // after the answer
    enum grpc_outcome want;
    int code; // or ENDLESS
};

struct server {
    struct loop *loop;
    struct h2_server h2;
    const struct reply *reply;
    bool has_answered;
    // What came over the newest connection.
    int accepted;
    char in[4096];
    size_t in_len;
    char data[64]; // payload of DATA frames
    size_t data_len;
    bool has_ended; // END_STREAM
    bool is_closed;
    int error; // errno of the end
};

struct seen {
    int count;
    enum grpc_outcome outcome;
    int code;
    uint32_t running;
    char detail[160];
    int asked; // may_send
    bool forbids;
};

static void on_end(const struct grpc_compute_result *result, void *arg)
{
    static const uint32_t ids[] = {7, 9};
    static const struct grpc_fragments fragments = {ids, 2};
    struct seen *seen = arg;
    struct err err = {0};

    seen->count++;
    seen->outcome = result->outcome;
    seen->code = result->code;
    (void)snprintf(seen->detail, sizeof(seen->detail), "%s", result->detail);
    if (result->kind == COMPUTE_STATS && result->outcome == GRPC_CALL_OK)
        assert_int_equal(
            grpc_count_running(result->message, result->len, &fragments, &seen->running, &err),
            0);
}

static bool may_send(void *arg)
{
    struct seen *seen = arg;

    seen->asked++;
    return !seen->forbids;
}

// --- the server ---

static void parse_frames(struct server *server)
{
    size_t at = 24; // the preface

    server->data_len = 0;
    while (server->in_len >= at + 9) {
        const uint8_t *frame = (const uint8_t *)server->in + at;
        size_t len = (size_t)frame[0] << 16 | (size_t)frame[1] << 8 | frame[2];

        if (server->in_len < at + 9 + len)
            return;
        if (frame[3] == 0 && server->data_len + len <= sizeof(server->data)) {
            memcpy(server->data + server->data_len, frame + 9, len);
            server->data_len += len;
        }
        server->has_ended |= frame[3] <= 1 && (frame[4] & 1);
        at += 9 + len;
    }
}

static void on_conn(int fd, unsigned events, void *arg)
{
    struct server *server = arg;
    ssize_t got = 0;

    (void)events;
    if (server->accepted != server->h2.accepted)
        server->in_len = server->data_len = 0;
    server->accepted = server->h2.accepted;
    got = recv(fd, server->in + server->in_len, sizeof(server->in) - server->in_len,
               MSG_DONTWAIT);
    if (got <= 0) {
        server->is_closed = true;
        server->error = got < 0 ? errno : 0;
        h2_hang_up(&server->h2);
        return;
    }
    server->in_len += (size_t)got;
    parse_frames(server);
    if (server->has_answered || server->data_len < 5)
        return;
    server->has_answered = true;
    if (server->reply->len > 0)
        assert_int_equal(send(fd, server->reply->bytes, server->reply->len, MSG_NOSIGNAL),
                         server->reply->len);
    if (server->reply->closes)
        h2_hang_up(&server->h2);
}

static void server_listen(struct server *server, struct loop *loop, const struct reply *reply)
{
    *server = (struct server){.loop = loop, .reply = reply};
    h2_listen(&server->h2, loop, on_conn, server);
}

static void server_init(struct server *server, const struct reply *reply)
{
    struct loop *loop = NULL;
    struct err err = {0};

    assert_int_equal(loop_new(&loop, &err), 0);
    server_listen(server, loop, reply);
}

static void server_done(struct server *server)
{
    h2_done(&server->h2);
    loop_free(server->loop);
}

static struct grpc_compute_call *start(const struct server *server,
                                       struct grpc_computes *computes,
                                       enum grpc_compute_kind kind, int64_t deadline_ns,
                                       struct seen *seen)
{
    struct instant now = clock_now();
    const struct grpc_compute_order order = {.kind = kind,
                                             .address = "127.0.0.1",
                                             .port = server->h2.port,
                                             .deadline = instant_add(now, deadline_ns),
                                             .may_send = may_send,
                                             .on_end = on_end,
                                             .arg = seen};
    struct grpc_compute_call *call = NULL;
    struct err err = {0};

    assert_int_equal(grpc_compute_begin(computes, &order, now, &call, &err), 0);
    assert_int_equal(seen->count, 0); // never from inside
    return call;
}

// --- Init ---

static const struct reply resets[] = {
    {"InitResponse", BYTES(H2_HELLO H2_HEADERS H2_DATA("\7") "\0\0\0\0\2\x0a\0"), false,
     GRPC_CALL_OK, 0},
    {"in pieces",
     BYTES(H2_HELLO H2_HEADERS H2_DATA("\1") "\0" H2_DATA("\5") "\0\0\0\2\x0a" H2_DATA(
         "\1") "\0"),
     false, GRPC_CALL_OK, 0},
    {"and more behind it", BYTES(H2_HELLO H2_HEADERS H2_DATA("\x9") "\0\0\0\0\2\x0a\0\0\0"),
     false, GRPC_CALL_OK, 0},
    {"another type", BYTES(H2_HELLO H2_HEADERS H2_DATA("\7") "\0\0\0\0\2\x12\0"), false,
     GRPC_CALL_UNKNOWN, 0},
    {"two types", BYTES(H2_HELLO H2_HEADERS H2_DATA("\x9") "\0\0\0\0\4\x0a\0\x12\0"), false,
     GRPC_CALL_UNKNOWN, 0},
    {"a number", BYTES(H2_HELLO H2_HEADERS H2_DATA("\7") "\0\0\0\0\2\x08\1"), false,
     GRPC_CALL_UNKNOWN, 0},
    {"garbage in it", BYTES(H2_HELLO H2_HEADERS H2_DATA("\x8") "\0\0\0\0\3\x0a\1\xff"), false,
     GRPC_CALL_UNKNOWN, 0},
    {"empty", BYTES(H2_HELLO H2_HEADERS H2_DATA("\5") "\0\0\0\0\0"), false, GRPC_CALL_UNKNOWN,
     0},
    {"compressed", BYTES(H2_HELLO H2_HEADERS H2_DATA("\7") "\1\0\0\0\2\x0a\0"), false,
     GRPC_CALL_UNKNOWN, 0},
    {"4 GB", BYTES(H2_HELLO H2_HEADERS H2_DATA("\7") "\0\xff\xff\xff\xff\x0a\0"), false,
     GRPC_CALL_UNKNOWN, 0},
    {"cut", BYTES(H2_HELLO H2_HEADERS H2_DATA("\6") "\0\0\0\0\2\x0a" H2_RESET), false,
     GRPC_CALL_UNKNOWN, 0},
    {"cut, with an end",
     BYTES(H2_HELLO H2_HEADERS H2_DATA("\6") "\0\0\0\0\2\x0a" H2_TRAILERS_0), false,
     GRPC_CALL_UNKNOWN, ENDLESS},
    {"ended without", BYTES(H2_HELLO H2_HEADERS H2_TRAILERS_0), false, GRPC_CALL_UNKNOWN,
     ENDLESS},
    {"trailers only, unimplemented", BYTES(H2_HELLO H2_HEADERS_12), false, GRPC_CALL_ERROR, 12},
    {"trailers only, unavailable", BYTES(H2_HELLO H2_HEADERS_14), false, GRPC_CALL_UNKNOWN, 0},
    {"goaway", BYTES(H2_HELLO H2_GOAWAY), true, GRPC_CALL_UNKNOWN, 0},
    {"HTTP/1.1", BYTES("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), true, GRPC_CALL_UNKNOWN,
     ENDLESS},
    {"garbage", BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), true,
     GRPC_CALL_UNKNOWN, ENDLESS},
    {"closed", "", 0, true, GRPC_CALL_UNKNOWN, 0},
    {"silence", "", 0, false, GRPC_CALL_UNKNOWN, 0},
};

static void run_reset(const struct reply *reply)
{
    struct server server;
    struct seen seen = {0};
    struct grpc_computes *computes = NULL;
    // What never ends, or of which curl does not see the end, ends with the deadline.
    bool is_silent = (reply->len == 0 && !reply->closes) || reply->code == ENDLESS;

    server_init(&server, reply);
    computes = grpc_computes_new(server.loop);
    (void)start(&server, computes, COMPUTE_INIT, is_silent ? DEADLINE_NS : LONG_NS, &seen);
    while (seen.count == 0)
        assert_true(loop_turn(server.loop));
    if (seen.outcome != reply->want || seen.code != (reply->code == ENDLESS ? 0 : reply->code))
        fail_msg("%s: %s, code %d (%s)", reply->name, grpc_outcome_name(seen.outcome),
                 seen.code, seen.detail);
    assert_true((seen.outcome == GRPC_CALL_OK) == (seen.detail[0] == '\0'));
    // An empty Init in its frame, and a request that has not ended.
    assert_int_equal(server.data_len, 7);
    assert_memory_equal(server.data, "\0\0\0\0\2\x0a\0", 7);
    assert_false(server.has_ended);
    assert_int_equal(seen.asked, 1);
    while (server.h2.conn >= 0) // the connection goes with the call
        assert_true(loop_turn(server.loop));
    if (seen.outcome == GRPC_CALL_OK && server.error != 0)
        fail_msg("%s: %s, want an orderly end", reply->name, strerror(server.error));
    assert_int_equal(seen.count, 1);
    grpc_computes_free(computes);
    server_done(&server);
}

static void test_init(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(resets) / sizeof(resets[0]); i++)
        run_reset(&resets[i]);
}

static const struct reply silence = {"silence", "", 0, false, GRPC_CALL_UNKNOWN, 0};
static const struct reply hello = {"hello", BYTES(H2_HELLO), false, GRPC_CALL_UNKNOWN, 0};

// What is no longer allowed when the connection is there is never sent.
static void test_forbidden_at_the_last_moment(void **state)
{
    struct server server;
    struct seen seen = {.forbids = true};
    struct grpc_computes *computes = NULL;

    (void)state;
    server_init(&server, &silence);
    computes = grpc_computes_new(server.loop);
    (void)start(&server, computes, COMPUTE_INIT, LONG_NS, &seen);
    while (seen.count == 0 || server.h2.conn >= 0)
        assert_true(loop_turn(server.loop));
    assert_int_equal(seen.asked, 1);
    assert_int_equal(seen.outcome, GRPC_CALL_NOT_SENT);
    assert_int_equal(server.data_len, 0);
    grpc_computes_free(computes);
    server_done(&server);
}

static void test_cancel(void **state)
{
    struct server server;
    struct seen seen = {0};
    struct grpc_computes *computes = NULL;
    struct grpc_compute_call *call = NULL;

    (void)state;
    for (int by_free = 0; by_free <= 1; by_free++) {
        server_init(&server, &hello);
        computes = grpc_computes_new(server.loop);
        call = start(&server, computes, COMPUTE_INIT, LONG_NS, &seen);
        while (!server.has_answered)
            assert_true(loop_turn(server.loop));
        if (by_free)
            grpc_computes_free(computes);
        else
            grpc_compute_cancel(call);
        while (!server.is_closed)
            assert_true(loop_turn(server.loop));
        assert_int_equal(server.error, ECONNRESET); // nothing is sent any more
        assert_int_equal(seen.count, 0);
        if (!by_free)
            grpc_computes_free(computes);
        server_done(&server);
    }
}

static void test_nobody_listens(void **state)
{
    struct server server;
    struct grpc_computes *computes = NULL;

    (void)state;
    server_init(&server, &hello);
    h2_stop_listening(&server.h2);
    computes = grpc_computes_new(server.loop);
    for (int kind = COMPUTE_INIT; kind <= COMPUTE_STATS; kind++) {
        struct seen seen = {0};

        (void)start(&server, computes, (enum grpc_compute_kind)kind, LONG_NS, &seen);
        while (seen.count == 0)
            assert_true(loop_turn(server.loop));
        assert_int_equal(seen.outcome, GRPC_CALL_NOT_SENT);
        assert_int_equal(seen.asked, 0);
    }
    grpc_computes_free(computes);
    grpc_computes_free(NULL);
    server_done(&server);
}

static void test_bad_orders(void **state)
{
    static const struct {
        const char *address;
        int64_t deadline_ns;
        enum err_kind kind;
    } rows[] = {
        {"compute-0.compute", LONG_NS, ERR_INVALID},
        {"", LONG_NS, ERR_INVALID},
        {"127.0.0.1/x?", LONG_NS, ERR_INVALID},
        {"[::1]", LONG_NS, ERR_INVALID},
        {"127.0.0.1", 0, ERR_TRANSIENT},
        {"127.0.0.1", -1, ERR_TRANSIENT},
    };
    struct server server;
    struct grpc_computes *computes = NULL;

    (void)state;
    server_init(&server, &hello);
    computes = grpc_computes_new(server.loop);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct instant now = clock_now();
        const struct grpc_compute_order order = {.address = rows[i].address,
                                                 .port = server.h2.port,
                                                 .deadline =
                                                     instant_add(now, rows[i].deadline_ns)};
        struct grpc_compute_call *call = NULL;
        struct err err = {0};

        assert_int_equal(grpc_compute_begin(computes, &order, now, &call, &err), -1);
        if (err.kind != rows[i].kind)
            fail_msg("%s: %s", rows[i].address, err.msg);
    }
    grpc_computes_free(computes);
    server_done(&server);
}

// Several at a time, each with its own end.
static void test_parallel(void **state)
{
    static const struct reply ok = {"ok",
                                    BYTES(H2_HELLO H2_HEADERS H2_DATA("\7") "\0\0\0\0\2\x0a\0"),
                                    false, GRPC_CALL_OK, 0};
    struct server servers[3];
    struct seen seen[3] = {{0}};
    struct grpc_computes *computes = NULL;

    (void)state;
    server_init(&servers[0], &ok);
    for (int i = 1; i < 3; i++) // all on one loop
        server_listen(&servers[i], servers[0].loop, &ok);
    computes = grpc_computes_new(servers[0].loop);
    for (int i = 0; i < 3; i++)
        (void)start(&servers[i], computes, COMPUTE_INIT, LONG_NS, &seen[i]);
    while (seen[0].count + seen[1].count + seen[2].count < 3)
        assert_true(loop_turn(servers[0].loop));
    for (int i = 0; i < 3; i++)
        assert_true(seen[i].count == 1 && seen[i].outcome == GRPC_CALL_OK);
    grpc_computes_free(computes);
    for (int i = 1; i < 3; i++)
        h2_done(&servers[i].h2);
    server_done(&servers[0]);
}

// --- statistics ---

static void test_stats(void **state)
{
    // Fragments 7 (no actors), 9 (two) and 8 (one).
    static const struct reply rows[] = {
        {"three",
         BYTES(H2_HELLO H2_HEADERS H2_DATA("\x1b") "\0\0\0\0\x16"
                                                   "\x12\4\x08\7\x12\0"
                                                   "\x12\6\x08\x09\x12\2\x10\2"
                                                   "\x12\6\x08\x08\x12\2\x10\1" H2_TRAILERS_0),
         false, GRPC_CALL_OK, 1},
        {"none", BYTES(H2_HELLO H2_HEADERS H2_DATA("\5") "\0\0\0\0\0" H2_TRAILERS_0), false,
         GRPC_CALL_OK, 0},
        {"no end", BYTES(H2_HELLO H2_HEADERS H2_DATA("\5") "\0\0\0\0\0" H2_RESET), false,
         GRPC_CALL_UNKNOWN, 0},
        {"trailers only", BYTES(H2_HELLO H2_HEADERS_12), false, GRPC_CALL_ERROR, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct server server;
        struct seen seen = {0};
        struct grpc_computes *computes = NULL;

        server_init(&server, &rows[i]);
        computes = grpc_computes_new(server.loop);
        (void)start(&server, computes, COMPUTE_STATS, LONG_NS, &seen);
        while (seen.count == 0)
            assert_true(loop_turn(server.loop));
        if (seen.outcome != rows[i].want || seen.running != (uint32_t)rows[i].code)
            fail_msg("%s: %s, %u running (%s)", rows[i].name, grpc_outcome_name(seen.outcome),
                     seen.running, seen.detail);
        assert_true(server.has_ended); // a unary request
        assert_int_equal(seen.asked, 0);
        grpc_computes_free(computes);
        server_done(&server);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_init),       cmocka_unit_test(test_forbidden_at_the_last_moment),
    cmocka_unit_test(test_cancel),     cmocka_unit_test(test_nobody_listens),
    cmocka_unit_test(test_bad_orders), cmocka_unit_test(test_parallel),
    cmocka_unit_test(test_stats),
};

UNIT_MAIN(tests)
