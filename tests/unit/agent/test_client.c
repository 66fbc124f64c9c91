// SPDX-License-Identifier: Apache-2.0
// The status call against a server in the same loop that answers with scripted bytes.
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/grpc/client.h"

#define TIMEOUT_NS (400 * NS_PER_MS)

// HTTP/2 frames: length (3 bytes), type, flags, stream (4 bytes).
#define SETTINGS     "\0\0\0\4\0\0\0\0\0"
#define SETTINGS_ACK "\0\0\0\4\1\0\0\0\0"
// :status 200 (indexed), content-type (name 31 of the static table) application/grpc
#define HEADERS_200                                                                            \
    "\0\0\x14\1\4\0\0\0\1\x88\x0f\x10\x10"                                                     \
    "application/grpc"
#define HEADERS_12                                                                             \
    "\0\0\x24\1\5\0\0\0\1\x88\x0f\x10\x10"                                                     \
    "application/grpc"                                                                         \
    "\0\x0b"                                                                                   \
    "grpc-status"                                                                              \
    "\2"                                                                                       \
    "12"
#define DATA_RUNNING                                                                           \
    "\0\0\7\0\0\0\0\0\1"                                                                       \
    "\0\0\0\0\2\x08\3"
#define DATA_CUT                                                                               \
    "\0\0\7\0\0\0\0\0\1"                                                                       \
    "\0\0\0\0\x7f\x08\3"
#define TRAILERS_0                                                                             \
    "\0\0\x0f\1\5\0\0\0\1"                                                                     \
    "\0\x0b"                                                                                   \
    "grpc-status"                                                                              \
    "\1"                                                                                       \
    "0"
#define GOAWAY "\0\0\x8\7\0\0\0\0\0\0\0\0\0\0\0\0\2"
#define RESET  "\0\0\4\3\0\0\0\0\1\0\0\0\2"

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
    {"leading", BYTES(SETTINGS SETTINGS_ACK HEADERS_200 DATA_RUNNING TRAILERS_0), false,
     GRPC_LEADING, 3, false},
    {"unimplemented", BYTES(SETTINGS SETTINGS_ACK HEADERS_12), false, GRPC_FOLLOWING, 0, false},
    {"frame that lies", BYTES(SETTINGS SETTINGS_ACK HEADERS_200 DATA_CUT TRAILERS_0), false,
     GRPC_UNKNOWN, 0, false},
    {"end without trailers", BYTES(SETTINGS SETTINGS_ACK HEADERS_200 DATA_RUNNING), true,
     GRPC_UNKNOWN, 0, false},
    {"stream reset", BYTES(SETTINGS SETTINGS_ACK HEADERS_200 RESET), false, GRPC_UNKNOWN, 0,
     false},
    {"goaway", BYTES(SETTINGS GOAWAY), true, GRPC_UNKNOWN, 0, true},
    {"HTTP/1.1", BYTES("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), true, GRPC_UNKNOWN, 0,
     false},
    {"garbage", BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), true,
     GRPC_UNKNOWN, 0, false},
    {"closed at once", "", 0, true, GRPC_UNKNOWN, 0, false},
    {"silence", "", 0, false, GRPC_UNKNOWN, 0, false},
    {"silence after settings", BYTES(SETTINGS SETTINGS_ACK), false, GRPC_UNKNOWN, 0, false},
};

struct server {
    struct loop *loop;
    struct loop_io *listener_io;
    struct loop_io *conn_io;
    int listener;
    int conn;
    uint16_t port;
    int accepted;
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

static void drop_conn(struct server *server)
{
    loop_io_stop(server->conn_io);
    if (server->conn >= 0)
        close(server->conn);
    server->conn = -1;
}

// Answers once the request has begun to come.
static void on_conn(int fd, unsigned events, void *arg)
{
    struct server *server = arg;
    char request[4096];
    size_t i = server->current;

    (void)events;
    if (recv(fd, request, sizeof(request), MSG_DONTWAIT) <= 0) {
        drop_conn(server);
        return;
    }
    if (strncmp(request, "PRI * HTTP/2.0", 14) == 0 && cases[i].len > 0)
        assert_int_equal(send(fd, cases[i].bytes, cases[i].len, MSG_NOSIGNAL), cases[i].len);
    if (cases[i].closes)
        drop_conn(server);
}

static void on_accept(int fd, unsigned events, void *arg)
{
    struct server *server = arg;
    struct err err = {0};

    (void)events;
    drop_conn(server);
    server->conn = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    server->accepted++;
    assert_int_equal(loop_io_set(server->conn_io, server->conn, LOOP_READ, &err), 0);
}

static void server_init(struct server *server)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    struct err err = {0};

    *server = (struct server){.conn = -1};
    assert_int_equal(loop_new(&server->loop, &err), 0);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server->listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(server->listener, 8), 0);
    assert_int_equal(getsockname(server->listener, (struct sockaddr *)&addr, &len), 0);
    server->port = ntohs(addr.sin_port);
    server->listener_io = loop_io_new(server->loop, on_accept, server);
    server->conn_io = loop_io_new(server->loop, on_conn, server);
    assert_int_equal(loop_io_set(server->listener_io, server->listener, LOOP_READ, &err), 0);
}

static void server_done(struct server *server)
{
    drop_conn(server);
    loop_io_free(server->listener_io);
    loop_io_free(server->conn_io);
    if (server->listener >= 0)
        close(server->listener);
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
    config.port = server.port;
    client = grpc_client_new(server.loop, &config);
    for (server.current = 0; server.current < sizeof(cases) / sizeof(cases[0]);
         server.current++) {
        size_t i = server.current;
        struct instant begin = clock_now();

        server.accepted = 0;
        ask_and_wait(server.loop, client, &result);
        // A connection of its own for each call; curl tries again, five times at most, when the
        // server says that it has not looked at the request.
        if (server.accepted < 1 || server.accepted > (cases[i].may_retry ? 6 : 1))
            fail_msg("%s: %d connections", cases[i].name, server.accepted);
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
    config.port = server.port;
    server.current = sizeof(cases) / sizeof(cases[0]) - 2; // silence
    client = grpc_client_new(server.loop, &config);
    assert_int_equal(grpc_client_ask(client, clock_now(), &err), 0);
    while (server.accepted == 0)
        assert_true(loop_turn(server.loop));
    grpc_client_free(client); // in flight: no call back
    assert_int_equal(result.count, 0);
    loop_io_stop(server.listener_io);
    close(server.listener);
    server.listener = -1;
    drop_conn(&server);
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
