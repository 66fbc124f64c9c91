// SPDX-License-Identifier: Apache-2.0
// Name servers as they are on a bad day: silent, slow, SERVFAIL, and five search domains for
// each name. A look-up ends when it should, and the loop does not stand still for it.
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/resolve.h"

#define TYPE_A     1
#define TICK_NS    (10 * NS_PER_MS)
#define KEPT_MAX   32
#define GIVE_UP_NS (20 * NS_PER_SEC)

enum mode { MODE_ANSWER, MODE_SERVFAIL, MODE_SILENT };

struct question {
    uint8_t bytes[512];
    size_t len;
    char name[256];
    bool is_a;
    struct sockaddr_in peer;
};

struct world {
    struct loop *loop;
    struct loop_timer *guard, *tick, *late;
    struct loop_io *server;
    int server_fd;
    enum mode mode;
    int64_t delay_ns;
    int questions;
    struct question kept[KEPT_MAX]; // of a slow server
    size_t kept_count;
    char conf[64], hosts[64];
    struct resolver *resolver;
    int ticks, answers;
    bool has_answer, has_err;
    struct resolve_answer answer;
    struct err err;
};

static void on_guard(void *arg)
{
    (void)arg;
    fail_msg("nothing happened for 20 s");
}

static void on_tick(void *arg)
{
    struct world *w = arg;

    w->ticks++;
    loop_timer_arm(w->tick, TICK_NS);
}

static void parse(struct question *q)
{
    size_t at = 12, len = 0;

    while (q->bytes[at]) {
        len += (size_t)snprintf(q->name + len, sizeof q->name - len, "%.*s.", q->bytes[at],
                                (const char *)q->bytes + at + 1);
        at += 1U + q->bytes[at];
    }
    q->is_a = q->bytes[at + 2] == TYPE_A;
    q->len = at + 5; // root label, type, class; no additional records
}

// Only names that end in "test." exist.
static void reply(struct world *w, struct question *q)
{
    const uint8_t record[] = {0xc0, 12, 0, TYPE_A, 0, 1, 0, 0, 0, 60, 0, 4, 10, 1, 2, 7};
    size_t len = strlen(q->name);
    bool exists = len > 5 && strcmp(q->name + len - 5, "test.") == 0;
    uint8_t code = w->mode == MODE_SERVFAIL ? 2 : exists ? 0 : 3;

    memset(q->bytes + 6, 0, 6);
    q->bytes[2] = 0x81;
    q->bytes[3] = (uint8_t)(0x80 | code);
    if (code == 0 && q->is_a) {
        q->bytes[7] = 1;
        memcpy(q->bytes + q->len, record, sizeof record);
        q->len += sizeof record;
    }
    assert_int_equal(
        sendto(w->server_fd, q->bytes, q->len, 0, (struct sockaddr *)&q->peer, sizeof q->peer),
        q->len);
}

static void on_late(void *arg)
{
    struct world *w = arg;

    for (size_t i = 0; i < w->kept_count; i++)
        reply(w, &w->kept[i]);
    w->kept_count = 0;
}

static void on_question(int fd, unsigned events, void *arg)
{
    struct world *w = arg;
    struct question q = {0};
    socklen_t len = sizeof q.peer;

    (void)events;
    assert_true(recvfrom(fd, q.bytes, sizeof q.bytes - 32, MSG_DONTWAIT,
                         (struct sockaddr *)&q.peer, &len) > 12);
    w->questions++;
    if (w->mode == MODE_SILENT)
        return;
    parse(&q);
    if (w->delay_ns == 0) {
        reply(w, &q);
        return;
    }
    assert_true(w->kept_count < KEPT_MAX);
    w->kept[w->kept_count++] = q;
    loop_timer_arm(w->late, w->delay_ns);
}

static void write_file(char *path, size_t size, const char *content)
{
    (void)snprintf(path, size, "/tmp/metafence-dns-XXXXXX");
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    close(fd);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof addr;
    struct resolve_config config = {.query_timeout_ns = 300 * NS_PER_MS};
    char text[256];

    assert_int_equal(loop_new(&w->loop, &w->err), 0);
    w->guard = loop_timer_new(w->loop, on_guard, NULL);
    w->tick = loop_timer_new(w->loop, on_tick, w);
    w->late = loop_timer_new(w->loop, on_late, w);
    loop_timer_arm(w->guard, GIVE_UP_NS);
    loop_timer_arm(w->tick, TICK_NS);
    w->server_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(w->server_fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(getsockname(w->server_fd, (struct sockaddr *)&addr, &len), 0);
    w->server = loop_io_new(w->loop, on_question, w);
    assert_int_equal(loop_io_set(w->server, w->server_fd, LOOP_READ, &w->err), 0);
    // As the kubelet writes it.
    (void)snprintf(text, sizeof text,
                   "nameserver 127.0.0.1:%d\nsearch ns.svc.cluster.local svc.cluster.local "
                   "cluster.local corp.example example\noptions ndots:5\n",
                   ntohs(addr.sin_port));
    write_file(w->conf, sizeof w->conf, text);
    write_file(w->hosts, sizeof w->hosts, "127.0.0.1 localhost\n");
    config.resolv_conf = w->conf;
    config.hosts = w->hosts;
    assert_int_equal(resolver_new(w->loop, &config, &w->resolver, &w->err), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    resolver_free(w->resolver);
    loop_io_free(w->server);
    loop_timer_free(w->guard);
    loop_timer_free(w->tick);
    loop_timer_free(w->late);
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

// How long it took, in ms. The loop goes on meanwhile: one that was blocked ticks once, at the
// end.
static int64_t look_up(struct world *w, const char *host, int64_t timeout_ms)
{
    struct instant begin = clock_now();
    int before = w->answers, ticks = w->ticks;

    assert_non_null(resolve_start(w->resolver, host, timeout_ms * NS_PER_MS, on_result, w));
    assert_true(instant_since(clock_now(), begin) < 50 * NS_PER_MS);
    while (w->answers == before)
        assert_true(loop_turn(w->loop));
    int64_t took_ms = instant_since(clock_now(), begin) / NS_PER_MS;
    assert_true(took_ms < 5 * TICK_NS / NS_PER_MS || w->ticks - ticks >= 2);
    return took_ms;
}

static void test_silent(void **state)
{
    struct world *w = *state;

    w->mode = MODE_SILENT;
    assert_in_range(look_up(w, "pg.example.test", 400), 390, 1500);
    assert_true(w->has_err && !w->has_answer);
    assert_int_equal(w->err.kind, ERR_TRANSIENT);
}

static void test_slow(void **state)
{
    struct world *w = *state;
    bool is_hurried = false;

    // Too slow for the one who asks, then fast enough for one with patience.
    w->delay_ns = 200 * NS_PER_MS;
    assert_in_range(look_up(w, "pg.a.b.c.d.test.", 100), 90, 1000);
    assert_true(w->has_err && !w->has_answer);
    look_up(w, "pg.a.b.c.d.test.", 5000);
    assert_true(w->has_answer && !w->has_err);
    assert_string_equal(w->answer.addrs[0], "10.1.2.7");
    // From then on a slow server costs the time-out, not the address.
    assert_in_range(look_up(w, "pg.a.b.c.d.test.", 100), 90, 1000);
    assert_true(w->has_answer && w->answer.is_stale);
    // Then less, so that the address can be tried for the rest; and the whole again.
    assert_in_range(look_up(w, "pg.a.b.c.d.test.", 8000), 150, 7000);
    assert_true(w->has_answer && !w->answer.is_stale);
    w->mode = MODE_SILENT;
    w->delay_ns = 0;
    for (int i = 0; i < 5 && !is_hurried; i++) { // a busy machine makes any of them long
        assert_in_range(look_up(w, "pg.a.b.c.d.test.", 500), 490, 10000);
        is_hurried = look_up(w, "pg.a.b.c.d.test.", 500) < 490;
        assert_true(w->has_answer && w->answer.is_stale);
    }
    assert_true(is_hurried);
}

static void test_servfail(void **state)
{
    struct world *w = *state;

    look_up(w, "pg.a.b.c.d.test.", 5000);
    assert_true(w->has_answer && !w->answer.is_stale);
    w->mode = MODE_SERVFAIL;
    look_up(w, "pg.a.b.c.d.test.", 3000);
    assert_true(w->has_answer && w->answer.is_stale && w->has_err);
    assert_int_equal(w->err.kind, ERR_TRANSIENT);
    look_up(w, "other.a.b.c.d.test.", 3000);
    assert_true(!w->has_answer && w->has_err);
    w->mode = MODE_ANSWER;
    look_up(w, "pg.a.b.c.d.test.", 5000);
    assert_true(w->has_answer && !w->answer.is_stale && !w->has_err);
}

// With ndots:5 a name is first asked for in every search domain: many questions, one bound.
static void test_search_domains(void **state)
{
    struct world *w = *state;

    look_up(w, "pg.example.test", 5000);
    assert_true(w->has_answer && !w->has_err);
    assert_string_equal(w->answer.addrs[0], "10.1.2.7");
    assert_in_range(w->questions, 2, 24); // six names, two types, a repeat each
    w->mode = MODE_SILENT;
    assert_in_range(look_up(w, "pg.example.test", 300), 290, 1500);
    assert_true(w->has_answer && w->answer.is_stale);
}

#define DNS_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
    DNS_TEST(test_silent),
    DNS_TEST(test_slow),
    DNS_TEST(test_servfail),
    DNS_TEST(test_search_domains),
};

UNIT_MAIN(tests)
