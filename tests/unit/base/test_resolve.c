// SPDX-License-Identifier: Apache-2.0
// A name server of a few lines runs in the same loop: it answers, refuses, or is silent, as the
// test says.
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/resolve.h"

#define GIVE_UP_NS (20 * NS_PER_SEC)
#define TYPE_A     1

enum mode { MODE_ANSWER, MODE_NXDOMAIN, MODE_SILENT };

struct world {
    struct loop *loop;
    struct loop_timer *guard;
    struct loop_io *server;
    int server_fd;
    enum mode mode;
    uint8_t last_octet;
    int questions;
    char conf[64];
    char hosts[64];
    struct resolver *resolver;
    int answers;
    bool has_answer;
    bool has_err;
    struct resolve_answer answer;
    struct err err;
};

static void on_guard(void *arg)
{
    (void)arg;
    fail_msg("nothing happened for 20 s");
}

static void on_question(int fd, unsigned events, void *arg)
{
    struct world *w = arg;
    uint8_t msg[512];
    struct sockaddr_in peer;
    socklen_t peer_len = sizeof(peer);
    ssize_t got =
        recvfrom(fd, msg, sizeof(msg) - 32, MSG_DONTWAIT, (struct sockaddr *)&peer, &peer_len);
    size_t len = (size_t)got;
    size_t at = 12;
    const uint8_t record[] = {0xc0, 12, 0, TYPE_A, 0, 1, 0, 0, 0, 60, 0, 4, 10, 1, 2, 0};

    (void)events;
    assert_true(got > 12);
    w->questions++;
    if (w->mode == MODE_SILENT)
        return;
    while (msg[at]) // labels of the name
        at += 1U + msg[at];
    at += 5; // root label, type, class
    assert_true(at <= len);
    len = at; // without additional records
    memset(msg + 6, 0, 6);
    msg[2] = 0x81;
    msg[3] = w->mode == MODE_NXDOMAIN ? 0x83 : 0x80;
    if (w->mode == MODE_ANSWER && msg[at - 3] == TYPE_A) { // AAAA: no error, no record
        msg[7] = 1;
        memcpy(msg + len, record, sizeof(record));
        len += sizeof(record);
        msg[len - 1] = w->last_octet;
    }
    assert_int_equal(sendto(fd, msg, len, 0, (struct sockaddr *)&peer, peer_len), len);
}

static void write_file(char *path, size_t size, const char *content)
{
    int fd = -1;

    (void)snprintf(path, size, "/tmp/metafence-resolve-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    close(fd);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t addr_len = sizeof(addr);
    struct resolve_config config = {.query_timeout_ns = 100 * NS_PER_MS};
    char text[64];

    if (!w || loop_new(&w->loop, &w->err) < 0)
        return -1;
    w->guard = loop_timer_new(w->loop, on_guard, NULL);
    loop_timer_arm(w->guard, GIVE_UP_NS);
    w->server_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (bind(w->server_fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
        getsockname(w->server_fd, (struct sockaddr *)&addr, &addr_len) != 0)
        return -1;
    w->server = loop_io_new(w->loop, on_question, w);
    if (loop_io_set(w->server, w->server_fd, LOOP_READ, &w->err) < 0)
        return -1;
    w->last_octet = 7;
    (void)snprintf(text, sizeof(text), "nameserver 127.0.0.1:%d\n", ntohs(addr.sin_port));
    write_file(w->conf, sizeof(w->conf), text);
    write_file(w->hosts, sizeof(w->hosts), "10.9.8.7 in-hosts\n");
    config.resolv_conf = w->conf;
    config.hosts = w->hosts;
    if (resolver_new(w->loop, &config, &w->resolver, &w->err) < 0)
        return -1;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    resolver_free(w->resolver);
    loop_io_free(w->server);
    loop_timer_free(w->guard);
    loop_free(w->loop);
    close(w->server_fd);
    (void)unlink(w->conf);
    (void)unlink(w->hosts);
    free(w);
    return 0;
}

static void on_result(const struct resolve_answer *answer, const struct err *err, void *arg)
{
    struct world *w = arg;

    w->answers++;
    w->has_answer = answer != NULL;
    w->has_err = err != NULL;
    if (answer)
        w->answer = *answer;
    if (err)
        w->err = *err;
}

static void look_up(struct world *w, const char *host, int64_t timeout_ns)
{
    int before = w->answers;

    assert_non_null(resolve_start(w->resolver, host, timeout_ns, on_result, w));
    assert_int_equal(w->answers, before); // never from inside the call
    while (w->answers == before)
        assert_true(loop_turn(w->loop));
    assert_int_equal(w->answers, before + 1);
}

static void test_answers_without_a_server(void **state)
{
    static const struct {
        const char *host;
        const char *addr;
    } cases[] = {
        {"127.0.0.1", "127.0.0.1"},
        {"fd00::1", "fd00::1"},
        {"in-hosts", "10.9.8.7"},
    };
    struct world *w = *state;

    w->mode = MODE_SILENT;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        look_up(w, cases[i].host, GIVE_UP_NS);
        assert_true(w->has_answer && !w->has_err);
        assert_string_equal(w->answer.addrs[0], cases[i].addr);
        assert_false(w->answer.is_stale);
    }
    assert_int_equal(w->questions, 0);
}

static void test_last_good_answer_outlives_the_server(void **state)
{
    struct world *w = *state;
    struct instant confirmed;

    look_up(w, "pg.example.test", GIVE_UP_NS);
    assert_true(w->has_answer && !w->has_err);
    assert_int_equal(w->answer.count, 1);
    assert_string_equal(w->answer.addrs[0], "10.1.2.7");
    confirmed = w->answer.since;

    w->mode = MODE_SILENT;
    look_up(w, "PG.example.test", 50 * NS_PER_MS); // our time-out
    assert_true(w->has_answer && w->has_err);
    assert_string_equal(w->answer.addrs[0], "10.1.2.7");
    assert_true(w->answer.is_stale);
    assert_true(w->answer.since.ns == confirmed.ns);
    assert_int_equal(w->err.kind, ERR_TRANSIENT);

    look_up(w, "pg.example.test", GIVE_UP_NS); // evdns's own time-outs
    assert_true(w->has_answer && w->has_err && w->answer.is_stale);

    w->mode = MODE_NXDOMAIN;
    look_up(w, "pg.example.test", GIVE_UP_NS);
    assert_true(w->has_answer && w->has_err && w->answer.is_stale);
    assert_int_equal(w->err.kind, ERR_DENIED);

    w->mode = MODE_ANSWER;
    w->last_octet = 8;
    look_up(w, "pg.example.test", GIVE_UP_NS);
    assert_true(w->has_answer && !w->has_err && !w->answer.is_stale);
    assert_string_equal(w->answer.addrs[0], "10.1.2.8");
}

static void test_unknown_names_are_errors(void **state)
{
    struct world *w = *state;
    char longer[400];

    w->mode = MODE_NXDOMAIN;
    look_up(w, "nope.example.test", GIVE_UP_NS);
    assert_true(!w->has_answer && w->has_err);
    assert_int_equal(w->err.kind, ERR_DENIED);
    assert_non_null(strstr(w->err.msg, "nope.example.test"));

    w->mode = MODE_SILENT;
    look_up(w, "silent.example.test", 30 * NS_PER_MS);
    assert_true(!w->has_answer && w->has_err);
    assert_int_equal(w->err.kind, ERR_TRANSIENT);

    memset(longer, 'h', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    look_up(w, longer, GIVE_UP_NS);
    assert_int_equal(w->err.kind, ERR_INVALID);
    look_up(w, "", GIVE_UP_NS);
    assert_int_equal(w->err.kind, ERR_INVALID);
}

static void test_cancel_and_free_call_nobody(void **state)
{
    struct world *w = *state;
    struct resolve_query *query = NULL;

    w->mode = MODE_SILENT;
    query = resolve_start(w->resolver, "a.example.test", GIVE_UP_NS, on_result, w);
    resolve_cancel(query);
    query = resolve_start(w->resolver, "127.0.0.1", GIVE_UP_NS, on_result, w);
    resolve_cancel(query);
    query = resolve_start(w->resolver, "b.example.test", GIVE_UP_NS, on_result, w);
    while (w->questions == 0)
        assert_true(loop_turn(w->loop));
    resolve_cancel(query);
    look_up(w, "127.0.0.1", GIVE_UP_NS);
    assert_int_equal(w->answers, 1);
    // Left to resolver_free of the teardown.
    assert_non_null(resolve_start(w->resolver, "c.example.test", GIVE_UP_NS, on_result, w));
    assert_non_null(resolve_start(w->resolver, "127.0.0.2", GIVE_UP_NS, on_result, w));
}

#define RESOLVE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
    RESOLVE_TEST(test_answers_without_a_server),
    RESOLVE_TEST(test_last_good_answer_outlives_the_server),
    RESOLVE_TEST(test_unknown_names_are_errors),
    RESOLVE_TEST(test_cancel_and_free_call_nobody),
};

UNIT_MAIN(tests)
