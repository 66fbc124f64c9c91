// SPDX-License-Identifier: Apache-2.0
// The server against clients that are good, hasty, slow, silent, greedy and many. Clients are
// plain sockets in this process; the loop is turned by hand.
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/httpd.h"
#include "base/listen.h"

#define GIVE_UP_NS (20 * NS_PER_SEC)
#define GET(path)  "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define CLIENTS    600

struct world {
    struct loop *loop;
    struct loop_timer *guard;
    struct loop_timer *pulse; // a turn without an event is none: the clients need theirs
    struct httpd *httpd;
    struct httpd_config config;
    size_t answer_size; // of "/big"
    int requests;
    struct err err;
};

static void on_guard(void *arg)
{
    (void)arg;
    fail_msg("nothing happened for 20 s");
}

static void on_pulse(void *arg)
{
    struct world *w = arg;

    loop_timer_arm(w->pulse, NS_PER_MS);
}

static void on_request(const struct httphead *head, struct httpd_answer *answer, void *arg)
{
    struct world *w = arg;

    w->requests++;
    if (httphead_text_is(head->path, "/down"))
        answer->status = 503;
    if (httphead_text_is(head->path, "/json"))
        answer->content_type = "application/json";
    buf_printf(answer->body, "path=%.*s;", (int)head->path.len, head->path.data);
    if (httphead_text_is(head->path, "/big")) {
        memset(buf_reserve(answer->body, w->answer_size), 'b', w->answer_size);
        buf_added(answer->body, w->answer_size);
    }
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    if (!w || loop_new(&w->loop, &w->err) < 0)
        return -1;
    w->guard = loop_timer_new(w->loop, on_guard, NULL);
    loop_timer_arm(w->guard, GIVE_UP_NS);
    w->pulse = loop_timer_new(w->loop, on_pulse, w);
    loop_timer_arm(w->pulse, 0);
    w->config = (struct httpd_config){.address = "127.0.0.1",
                                      .max_conns = 8,
                                      .max_head = 1024,
                                      .request_ns = GIVE_UP_NS,
                                      .idle_ns = GIVE_UP_NS,
                                      .fn = on_request,
                                      .arg = w};
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    httpd_free(w->httpd);
    loop_timer_free(w->pulse);
    loop_timer_free(w->guard);
    loop_free(w->loop);
    free(w);
    return 0;
}

static void start(struct world *w)
{
    if (httpd_new(w->loop, &w->config, &w->httpd, &w->err) < 0)
        fail_msg("%s", w->err.msg);
}

static int dial(const struct world *w)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons(httpd_port(w->httpd)),
                               .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

// Reads what is there. False at the end of the connection.
static bool take(int fd, struct buf *answer)
{
    ssize_t got = recv(fd, buf_reserve(answer, 4096), 4096, 0);

    if (got > 0)
        buf_added(answer, (size_t)got);
    return got > 0 || (got < 0 && errno == EAGAIN);
}

// Turns the loop until the answer's text has come.
static void expect(struct world *w, int fd, struct buf *answer, const char *text)
{
    while (!strstr(buf_str(answer), text)) {
        assert_true(loop_turn(w->loop));
        if (!take(fd, answer) && !strstr(buf_str(answer), text))
            fail_msg("closed; no \"%s\" in \"%s\"", text, buf_str(answer));
    }
}

// … until the server has closed, with all that it has said.
static void expect_end(struct world *w, int fd, struct buf *answer)
{
    do {
        assert_true(loop_turn(w->loop));
    } while (take(fd, answer));
}

static void turn_until_conns(struct world *w, unsigned count)
{
    while (httpd_conns(w->httpd) != count)
        assert_true(loop_turn(w->loop));
}

static unsigned count_of(const struct buf *answer, const char *text)
{
    unsigned count = 0;

    for (const char *at = buf_str(answer); (at = strstr(at, text)); at++)
        count++;
    return count;
}

// One request on a connection of its own; the caller frees the answer.
static struct buf ask(struct world *w, const char *request)
{
    struct buf answer = {0};
    int fd = dial(w);

    say(fd, request);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    expect_end(w, fd, &answer);
    close(fd);
    return answer;
}

static void test_get(void **state)
{
    struct world *w = *state;
    struct buf answer;

    start(w);
    answer = ask(w, GET("/json"));
    assert_non_null(strstr(answer.data, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(answer.data, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(answer.data, "Content-Length: 11\r\n"));
    assert_non_null(strstr(answer.data, "\r\nDate: "));
    assert_non_null(strstr(answer.data, "\r\n\r\npath=/json;"));
    buf_done(&answer);
    answer = ask(w, GET("/down"));
    assert_non_null(strstr(answer.data, "HTTP/1.1 503 Service Unavailable\r\n"));
    buf_done(&answer);
}

static void test_head(void **state)
{
    struct world *w = *state;
    struct buf answer;

    start(w);
    answer = ask(w, "HEAD /json HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_non_null(strstr(answer.data, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(answer.data, "Content-Length: 11\r\n"));
    assert_string_equal(answer.data + answer.len - 4, "\r\n\r\n"); // and no body
    buf_done(&answer);
}

static const struct {
    const char *request;
    const char *status;
} refusals[] = {
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 405 "},
    {"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 405 "},
    {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
    {"GET /\r\n\r\n", "HTTP/1.1 400 "},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 505 "},
    {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     "HTTP/1.1 501 "},
};

static void test_refusals(void **state)
{
    struct world *w = *state;

    start(w);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct buf answer = ask(w, refusals[i].request);

        if (strncmp(buf_str(&answer), refusals[i].status, strlen(refusals[i].status)) != 0)
            fail_msg("%s -> %s", refusals[i].request, buf_str(&answer));
        assert_int_equal(count_of(&answer, "HTTP/1.1 "), 1);
        buf_done(&answer);
    }
    assert_int_equal(w->requests, 0);
}

static void test_options(void **state)
{
    struct world *w = *state;
    struct buf answer;

    start(w);
    answer = ask(w, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_non_null(strstr(answer.data, "HTTP/1.1 200 OK\r\nDate"));
    assert_non_null(strstr(answer.data, "\r\nAllow: GET, HEAD, OPTIONS\r\n"));
    buf_done(&answer);
    answer = ask(w, "PUT / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_non_null(strstr(answer.data, "\r\nAllow: GET, HEAD, OPTIONS\r\n"));
    buf_done(&answer);
    assert_int_equal(w->requests, 0);
}

static void test_keep_alive(void **state)
{
    struct world *w = *state;
    struct buf answer = {0};
    int fd = -1;

    start(w);
    fd = dial(w);
    for (int i = 0; i < 50; i++) {
        say(fd, GET("/a"));
        expect(w, fd, &answer, "path=/a;");
        assert_non_null(strstr(answer.data, "Connection: keep-alive\r\n"));
        buf_clear(&answer);
    }
    say(fd, "GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    expect_end(w, fd, &answer);
    assert_non_null(strstr(answer.data, "Connection: close\r\n"));
    assert_int_equal(w->requests, 51);
    close(fd);
    turn_until_conns(w, 0);
    buf_done(&answer);
}

// More requests in one packet than are answered in one turn, and the last byte comes later.
static void test_pipelined(void **state)
{
    struct world *w = *state;
    struct buf answer = {0};
    struct buf request = {0};
    int fd = -1;

    w->config.max_head = 2048;
    start(w);
    fd = dial(w);
    for (int i = 0; i < 60; i++)
        buf_puts(&request, GET("/a"));
    assert_int_equal(send(fd, request.data, request.len - 1, 0), request.len - 1);
    while (count_of(&answer, "path=/a;") < 59) {
        assert_true(loop_turn(w->loop));
        assert_true(take(fd, &answer));
    }
    say(fd, "\n");
    while (count_of(&answer, "path=/a;") < 60) {
        assert_true(loop_turn(w->loop));
        assert_true(take(fd, &answer));
    }
    assert_int_equal(w->requests, 60);
    close(fd);
    buf_done(&answer);
    buf_done(&request);
}

static void test_byte_by_byte(void **state)
{
    static const char request[] = GET("/slow");
    struct world *w = *state;
    struct buf answer = {0};
    int fd = -1;

    start(w);
    fd = dial(w);
    for (size_t i = 0; i < sizeof(request) - 1; i++) {
        assert_int_equal(send(fd, request + i, 1, 0), 1);
        assert_true(loop_turn(w->loop));
    }
    expect(w, fd, &answer, "path=/slow;");
    close(fd);
    buf_done(&answer);
}

// A head that never ends is refused once it is too large, and the client gets to read why
// although it goes on sending.
static void test_large_head(void **state)
{
    struct world *w = *state;
    struct buf answer = {0};
    char block[512];
    size_t sent = 0;
    int fd = -1;

    start(w);
    fd = dial(w);
    say(fd, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    memset(block, 'x', sizeof(block));
    while (sent < 256 * 1024) {
        ssize_t put = send(fd, block, sizeof(block), MSG_NOSIGNAL);

        assert_true(put > 0 || errno == EAGAIN);
        sent += put > 0 ? (size_t)put : 0;
        assert_true(loop_turn(w->loop));
        assert_true(take(fd, &answer) || answer.len > 0);
    }
    assert_non_null(strstr(buf_str(&answer), "HTTP/1.1 431 "));
    assert_int_equal(w->requests, 0);
    close(fd);
    turn_until_conns(w, 0);
    buf_done(&answer);
}

// One that lingers for ever is cut although it sends all the time.
static void test_endless_sender(void **state)
{
    struct world *w = *state;
    char block[16384];
    int fd = -1;

    start(w);
    fd = dial(w);
    memset(block, 'x', sizeof(block));
    while (send(fd, block, sizeof(block), MSG_NOSIGNAL) > 0 || errno == EAGAIN)
        assert_true(loop_turn(w->loop));
    assert_true(errno == EPIPE || errno == ECONNRESET);
    close(fd);
    turn_until_conns(w, 0);
}

static void test_slow_head_is_cut(void **state)
{
    struct world *w = *state;
    struct buf answer = {0};
    int fd = -1;

    w->config.request_ns = 50 * NS_PER_MS;
    start(w);
    fd = dial(w);
    // A byte now and then does not buy time.
    for (int sent = 0; take(fd, &answer); sent++) {
        if (sent < 500) // else it would be too large
            (void)send(fd, "G", 1, MSG_NOSIGNAL);
        assert_true(loop_turn(w->loop));
    }
    assert_int_equal(answer.len, 0);
    close(fd);
    assert_int_equal(httpd_conns(w->httpd), 0);
    buf_done(&answer);
}

static void test_silent_is_cut(void **state)
{
    struct world *w = *state;
    struct buf answer = {0};
    int fd = -1;

    w->config.request_ns = 20 * NS_PER_MS;
    start(w);
    fd = dial(w);
    expect_end(w, fd, &answer);
    assert_int_equal(answer.len, 0);
    close(fd);
    buf_done(&answer);
}

static void test_idle_is_cut(void **state)
{
    struct world *w = *state;
    struct buf answer = {0};
    int fd = -1;

    w->config.idle_ns = 20 * NS_PER_MS;
    start(w);
    fd = dial(w);
    say(fd, GET("/a"));
    expect(w, fd, &answer, "path=/a;");
    expect_end(w, fd, &answer);
    close(fd);
    assert_int_equal(httpd_conns(w->httpd), 0);
    buf_done(&answer);
}

// A client that does not read its answer does not keep it for ever.
static void test_slow_reader_is_cut(void **state)
{
    struct world *w = *state;
    int fd = -1;

    w->config.request_ns = 100 * NS_PER_MS;
    w->answer_size = 32 << 20;
    start(w);
    fd = dial(w);
    say(fd, GET("/big"));
    while (w->requests == 0)
        assert_true(loop_turn(w->loop));
    turn_until_conns(w, 0);
    close(fd);
}

static void test_large_answer(void **state)
{
    struct world *w = *state;
    struct buf answer;

    w->answer_size = 8 << 20;
    start(w);
    answer = ask(w, GET("/big"));
    assert_true(answer.len > w->answer_size);
    buf_done(&answer);
}

// Hundreds that say nothing: the newest one is answered, and the bound holds.
static void test_many_connections(void **state)
{
    static int fds[CLIENTS];
    struct world *w = *state;

    start(w);
    for (size_t i = 0; i < CLIENTS; i++) {
        fds[i] = dial(w);
        assert_true(loop_turn(w->loop));
        assert_true(httpd_conns(w->httpd) <= w->config.max_conns);
        if (i % 50 == 49) {
            struct buf answer = ask(w, GET("/probe"));

            assert_non_null(strstr(buf_str(&answer), "path=/probe;"));
            buf_done(&answer);
        }
    }
    for (size_t i = 0; i < CLIENTS; i++)
        close(fds[i]);
    turn_until_conns(w, 0);
}

// Out of descriptors: the oldest makes room.
static void test_no_descriptors(void **state)
{
    struct world *w = *state;
    struct rlimit before;
    struct rlimit tight;
    int fds[4];
    int last = -1;

    start(w);
    for (size_t i = 0; i < 4; i++)
        fds[i] = dial(w);
    turn_until_conns(w, 4);
    last = dial(w); // waits in the backlog
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t)last + 1;
    for (int i = 0; i <= last; i++)
        if (fcntl(i, F_GETFD) < 0)
            (void)dup2(last, i); // no hole is left below the limit
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    say(last, GET("/last"));
    while (w->requests == 0)
        assert_true(loop_turn(w->loop));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (size_t i = 0; i < 4; i++)
        close(fds[i]);
    close(last);
}

static int dial_v6(const struct world *w)
{
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6,
                                .sin6_port = htons(httpd_port(w->httpd)),
                                .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static bool has_v6(void)
{
    struct err err = {0};
    uint16_t port = 0;
    int fd = -1;

    if (listen_tcp("::1", 0, &fd, &port, &err) < 0)
        return false;
    close(fd);
    return true;
}

static void test_both_families(void **state)
{
    struct world *w = *state;
    struct buf answer;
    int fd = -1;

    w->config.address = "";
    start(w);
    answer = ask(w, GET("/v4"));
    assert_non_null(strstr(buf_str(&answer), "path=/v4;"));
    buf_clear(&answer);
    if (has_v6()) {
        fd = dial_v6(w);
        assert_true(fd >= 0);
        say(fd, GET("/v6"));
        expect(w, fd, &answer, "path=/v6;");
        close(fd);
    }
    buf_done(&answer);
}

static void test_v6_alone(void **state)
{
    struct world *w = *state;
    struct buf answer = {0};
    int fd = -1;

    if (!has_v6())
        return;
    w->config.address = "::1";
    start(w);
    fd = dial_v6(w);
    say(fd, GET("/v6"));
    expect(w, fd, &answer, "path=/v6;");
    close(fd);
    buf_done(&answer);
}

static void test_port_taken(void **state)
{
    struct world *w = *state;
    struct httpd *second = NULL;

    start(w);
    w->config.port = httpd_port(w->httpd);
    assert_int_equal(httpd_new(w->loop, &w->config, &second, &w->err), -1);
    assert_int_equal(w->err.kind, ERR_CONFLICT);
    assert_non_null(strstr(w->err.msg, "can't listen on 127.0.0.1 port "));
    httpd_free(w->httpd);
    w->httpd = NULL;
    start(w); // free again at once
}

static void test_bad_address(void **state)
{
    static const char *const bad[] = {"localhost", "[::1]", "1.2.3", "127.0.0.1:80", " "};
    struct world *w = *state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        w->config.address = bad[i];
        assert_int_equal(httpd_new(w->loop, &w->config, &w->httpd, &w->err), -1);
        assert_int_equal(w->err.kind, ERR_INVALID);
        assert_non_null(strstr(w->err.msg, bad[i]));
    }
}

static void test_free_with_connections(void **state)
{
    struct world *w = *state;
    int fds[3];

    start(w);
    for (size_t i = 0; i < 3; i++)
        fds[i] = dial(w);
    say(fds[0], "GET / HT");
    turn_until_conns(w, 3);
    httpd_free(w->httpd);
    w->httpd = NULL;
    for (size_t i = 0; i < 3; i++)
        close(fds[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_get),
    TEST(test_head),
    TEST(test_refusals),
    TEST(test_options),
    TEST(test_keep_alive),
    TEST(test_pipelined),
    TEST(test_byte_by_byte),
    TEST(test_large_head),
    TEST(test_endless_sender),
    TEST(test_slow_head_is_cut),
    TEST(test_silent_is_cut),
    TEST(test_idle_is_cut),
    TEST(test_slow_reader_is_cut),
    TEST(test_large_answer),
    TEST(test_many_connections),
    TEST(test_no_descriptors),
    TEST(test_both_families),
    TEST(test_v6_alone),
    TEST(test_port_taken),
    TEST(test_bad_address),
    TEST(test_free_with_connections),
};

UNIT_MAIN(tests)
