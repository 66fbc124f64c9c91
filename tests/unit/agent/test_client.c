// SPDX-License-Identifier: Apache-2.0
// The status call against a server in the same loop that answers with scripted bytes.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/grpc/client.h"
#include "tests/unit/agent/h2.h"

#define TIMEOUT_NS (400 * NS_PER_MS)

#define DATA_RUNNING H2_DATA("\7") "\0\0\0\0\2\x08\3"
#define DATA_CUT     H2_DATA("\7") "\0\0\0\0\x7f\x08\3"

#define BYTES(text) text, sizeof(text) - 1

static const struct {
    const char *name;
    const char *bytes;
    size_t len;
    bool closes; // after the answer
    enum grpc_answer want;
    int status;
    bool may_retry;
} cases[] = {
    {"leading", BYTES(H2_HELLO H2_HEADERS DATA_RUNNING H2_TRAILERS_0), false, GRPC_LEADING, 3,
     false},
    {"unimplemented", BYTES(H2_HELLO H2_HEADERS_12), false, GRPC_FOLLOWING, 0, false},
    {"frame that lies", BYTES(H2_HELLO H2_HEADERS DATA_CUT H2_TRAILERS_0), false, GRPC_UNKNOWN,
     0, false},
    {"end without trailers", BYTES(H2_HELLO H2_HEADERS DATA_RUNNING), true, GRPC_UNKNOWN, 0,
     false},
    {"stream reset", BYTES(H2_HELLO H2_HEADERS H2_RESET), false, GRPC_UNKNOWN, 0, false},
    {"goaway", BYTES(H2_SETTINGS H2_GOAWAY), true, GRPC_UNKNOWN, 0, true},
    {"HTTP/1.1", BYTES("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), true, GRPC_UNKNOWN, 0,
     false},
    {"garbage", BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), true,
     GRPC_UNKNOWN, 0, false},
    {"closed at once", "", 0, true, GRPC_UNKNOWN, 0, false},
    {"silence", "", 0, false, GRPC_UNKNOWN, 0, false},
    {"silence after settings", BYTES(H2_HELLO), false, GRPC_UNKNOWN, 0, false},
};

struct server {
    struct loop *loop;
    struct h2_server h2;
    size_t current; // case
};

struct result {
    int count;
    struct grpc_result last;
};

static void on_result(const struct grpc_result *result, void *arg)
{
    struct result *got = arg;

    got->count++;
    got->last = *result;
}

// Answers once the request has begun to come.
static void on_conn(int fd, unsigned events, void *arg)
{
    struct server *server = arg;
    char request[4096];
    size_t i = server->current;

    (void)events;
    if (recv(fd, request, sizeof(request), MSG_DONTWAIT) <= 0) {
        h2_hang_up(&server->h2);
        return;
    }
    if (strncmp(request, "PRI * HTTP/2.0", 14) == 0 && cases[i].len > 0)
        assert_int_equal(send(fd, cases[i].bytes, cases[i].len, MSG_NOSIGNAL), cases[i].len);
    if (cases[i].closes)
        h2_hang_up(&server->h2);
}

static void server_init(struct server *server)
{
    struct err err = {0};

    *server = (struct server){0};
    assert_int_equal(loop_new(&server->loop, &err), 0);
    h2_listen(&server->h2, server->loop, on_conn, server);
}

static void server_done(struct server *server)
{
    h2_done(&server->h2);
    loop_free(server->loop);
}

static void ask_and_wait(struct loop *loop, struct grpc_client *client, struct result *result)
{
    struct err err = {0};
    int before = result->count;

    assert_int_equal(grpc_client_ask(client, clock_now(), &err), 0);
    assert_true(grpc_client_is_busy(client));
    assert_int_equal(grpc_client_ask(client, clock_now(), &err), -1);
    assert_int_equal(err.kind, ERR_CONFLICT);
    assert_int_equal(result->count, before); // never from inside
    while (result->count == before)
        assert_true(loop_turn(loop));
    assert_false(grpc_client_is_busy(client));
}

static void test_answers(void **state)
{
    struct server server;
    struct result result = {0};
    struct grpc_client_config config = {
        .timeout_ns = TIMEOUT_NS, .on_result = on_result, .arg = &result};
    struct grpc_client *client = NULL;

    (void)state;
    server_init(&server);
    config.port = server.h2.port;
    client = grpc_client_new(server.loop, &config);
    for (server.current = 0; server.current < sizeof(cases) / sizeof(cases[0]);
         server.current++) {
        size_t i = server.current;
        struct instant begin = clock_now();

        server.h2.accepted = 0;
        ask_and_wait(server.loop, client, &result);
        // A connection of its own for each call; curl tries again, five times at most, when the
        // server says that it has not looked at the request.
        if (server.h2.accepted < 1 || server.h2.accepted > (cases[i].may_retry ? 6 : 1))
            fail_msg("%s: %d connections", cases[i].name, server.h2.accepted);
        if (result.last.answer != cases[i].want ||
            result.last.recovery_status != cases[i].status)
            fail_msg("%s: answer %d status %d (%s)", cases[i].name, (int)result.last.answer,
                     result.last.recovery_status, result.last.detail);
        assert_true((cases[i].want == GRPC_UNKNOWN) == (result.last.detail[0] != '\0'));
        assert_true(instant_since(clock_now(), begin) < 10 * TIMEOUT_NS);
        assert_true(result.last.sent_at.ns >= begin.ns);
    }
    grpc_client_free(client);
    server_done(&server);
}

static void test_refused_and_given_up(void **state)
{
    struct server server;
    struct result result = {0};
    struct grpc_client_config config = {
        .timeout_ns = TIMEOUT_NS, .on_result = on_result, .arg = &result};
    struct grpc_client *client = NULL;
    struct err err = {0};

    (void)state;
    server_init(&server);
    config.port = server.h2.port;
    server.current = sizeof(cases) / sizeof(cases[0]) - 2; // silence
    client = grpc_client_new(server.loop, &config);
    assert_int_equal(grpc_client_ask(client, clock_now(), &err), 0);
    while (server.h2.accepted == 0)
        assert_true(loop_turn(server.loop));
    grpc_client_free(client); // in flight: no call back
    assert_int_equal(result.count, 0);
    h2_stop_listening(&server.h2);
    h2_hang_up(&server.h2);
    client = grpc_client_new(server.loop, &config);
    ask_and_wait(server.loop, client, &result);
    assert_int_equal(result.last.answer, GRPC_REFUSED);
    grpc_client_free(client);
    grpc_client_free(NULL);
    server_done(&server);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_answers),
    cmocka_unit_test(test_refused_and_given_up),
};

UNIT_MAIN(tests)
