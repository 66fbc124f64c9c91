// SPDX-License-Identifier: Apache-2.0
// A server that speaks HTTP/2 and says good-bye (GOAWAY) before, while and after it answers, as
// API servers do by chance, by age and after so many requests. Every call gets one answer, and
// the next one finds a connection.
#include "tests/unit/k8s/script.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "tests/unit/k8s/cert.h"

#define PREFACE_LEN 24
#define HEAD_LEN    9
#define VISITORS    64

enum frame { FRAME_DATA = 0, FRAME_HEADERS = 1, FRAME_SETTINGS = 4, FRAME_GOAWAY = 7 };

enum manner {
    STAYS,      // answers for ever
    AFTER,      // answers, then says good-bye
    WHILE,      // says good-bye, then answers what it has taken
    BEFORE,     // takes nothing
    UNANSWERED, // says that it took the last one, and closes
};

struct visitor {
    struct world *world;
    int fd;
    SSL *tls;
    struct loop_io *io;
    uint8_t in[65536];
    size_t in_len;
    bool has_greeted;
};

struct world {
    struct script script; // client, loop and files; its own server stays unused
    struct cert_authority *authority;
    SSL_CTX *tls;
    int listener;
    struct loop_io *listener_io;
    struct visitor *visitors[VISITORS];
    unsigned accepted, requests;
    enum manner manner;
    int answers;
    struct k8s_result last;
};

static void leave(struct visitor *v)
{
    if (v->fd < 0)
        return;
    loop_io_stop(v->io);
    (void)close(v->fd);
    v->fd = -1;
}

static void put_frame(struct visitor *v, enum frame type, uint8_t flags, uint32_t stream,
                      const void *body, size_t len)
{
    uint8_t bytes[256] = {0, (uint8_t)(len >> 8), (uint8_t)len, (uint8_t)type, flags};
    uint32_t id = htonl(stream);

    assert_true(HEAD_LEN + len <= sizeof bytes);
    memcpy(bytes + 5, &id, 4);
    if (len > 0)
        memcpy(bytes + HEAD_LEN, body, len);
    if (v->fd >= 0 && SSL_write(v->tls, bytes, (int)(HEAD_LEN + len)) <= 0)
        leave(v);
}

static void say_goodbye(struct visitor *v, uint32_t last_stream)
{
    uint32_t body[2] = {htonl(last_stream), 0}; // no error

    put_frame(v, FRAME_GOAWAY, 0, 0, body, sizeof body);
}

static void put_answer(struct visitor *v, uint32_t stream)
{
    static const char status_200 = (char)0x88; // of HPACK's static table

    put_frame(v, FRAME_HEADERS, 4, stream, &status_200, 1);
    put_frame(v, FRAME_DATA, 1, stream, "{}", 2);
}

static void on_request(struct visitor *v, uint32_t stream)
{
    v->world->requests++;
    switch (v->world->manner) {
    case STAYS: put_answer(v, stream); break;
    case AFTER:
        put_answer(v, stream);
        say_goodbye(v, stream);
        break;
    case WHILE:
        say_goodbye(v, stream);
        put_answer(v, stream);
        break;
    case BEFORE:
        say_goodbye(v, 0);
        leave(v);
        break;
    case UNANSWERED:
        say_goodbye(v, stream);
        leave(v);
        break;
    }
}

static void on_frame(struct visitor *v, const uint8_t *head)
{
    uint32_t stream = 0;

    memcpy(&stream, head + 5, 4);
    stream = ntohl(stream) & 0x7fffffff;
    if (head[3] == FRAME_SETTINGS && !(head[4] & 1))
        put_frame(v, FRAME_SETTINGS, 1, 0, NULL, 0);
    else if ((head[3] == FRAME_HEADERS || head[3] == FRAME_DATA) && (head[4] & 1))
        on_request(v, stream);
}

static void take_frames(struct visitor *v)
{
    size_t at = 0;

    if (!v->has_greeted) {
        if (v->in_len < PREFACE_LEN)
            return;
        at = PREFACE_LEN;
        v->has_greeted = true;
        put_frame(v, FRAME_SETTINGS, 0, 0, NULL, 0);
    }
    while (v->fd >= 0 && v->in_len - at >= HEAD_LEN) {
        const uint8_t *head = v->in + at;
        size_t len = HEAD_LEN + ((size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2]);

        if (v->in_len - at < len)
            break;
        on_frame(v, head);
        at += len;
    }
    memmove(v->in, v->in + at, v->in_len - at);
    v->in_len -= at;
}

static void on_bytes(int fd, unsigned events, void *arg)
{
    struct visitor *v = arg;

    (void)fd;
    (void)events;
    while (v->fd >= 0) {
        int got = SSL_read(v->tls, v->in + v->in_len, (int)(sizeof v->in - v->in_len));

        if (got <= 0) {
            if (SSL_get_error(v->tls, got) != SSL_ERROR_WANT_READ)
                leave(v);
            return;
        }
        v->in_len += (size_t)got;
        take_frames(v);
    }
}

static void on_accept(int fd, unsigned events, void *arg)
{
    struct world *w = arg;
    struct visitor *v = calloc(1, sizeof *v);
    struct err err;

    (void)events;
    assert_true(w->accepted < VISITORS);
    w->visitors[w->accepted++] = v;
    v->world = w;
    v->fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    v->tls = SSL_new(w->tls);
    assert_int_equal(SSL_set_fd(v->tls, v->fd), 1);
    SSL_set_accept_state(v->tls);
    v->io = loop_io_new(w->script.loop, on_bytes, v);
    assert_int_equal(loop_io_set(v->io, v->fd, LOOP_READ, &err), 0);
}

static int choose_h2(SSL *tls, const unsigned char **out, unsigned char *out_len,
                     const unsigned char *in, unsigned int in_len, void *arg)
{
    static const unsigned char h2[] = "\2h2";
    unsigned char *chosen = NULL;

    (void)tls;
    (void)arg;
    if (SSL_select_next_proto(&chosen, out_len, h2, 3, in, in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static void unused(struct script_conn *conn, const struct script_request *request)
{
    (void)conn;
    (void)request;
    fail_msg("the other server was asked");
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    struct err err;

    script_init(&w->script, unused, NULL);
    w->authority = cert_authority_new("here");
    cert_authority_write(w->authority, w->script.ca_file);
    w->tls = cert_server(w->authority, "IP:127.0.0.1", false);
    SSL_CTX_set_alpn_select_cb(w->tls, choose_h2, NULL);
    w->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(w->listener, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(w->listener, 64), 0);
    assert_int_equal(getsockname(w->listener, (struct sockaddr *)&addr, &len), 0);
    w->listener_io = loop_io_new(w->script.loop, on_accept, w);
    assert_int_equal(loop_io_set(w->listener_io, w->listener, LOOP_READ, &err), 0);
    (void)snprintf(w->script.url, sizeof w->script.url, "https://127.0.0.1:%d",
                   ntohs(addr.sin_port));
    w->script.config.ca_file = w->script.ca_file;
    w->script.config.timeout_ns = 5 * NS_PER_SEC;
    script_client(&w->script);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    k8s_free(w->script.k8s);
    w->script.k8s = NULL;
    for (unsigned i = 0; i < w->accepted; i++) {
        leave(w->visitors[i]);
        SSL_free(w->visitors[i]->tls);
        loop_io_free(w->visitors[i]->io);
        free(w->visitors[i]);
    }
    loop_io_free(w->listener_io);
    (void)close(w->listener);
    script_done(&w->script);
    SSL_CTX_free(w->tls);
    cert_authority_free(w->authority);
    free(w);
    return 0;
}

static void on_result(const struct k8s_result *result, void *arg)
{
    struct world *w = arg;

    w->answers++;
    w->last = *result;
}

static const struct k8s_call get_call = {.method = "GET", .path = "/api/v1/x"};
static const struct k8s_call patch_call = {.method = "PATCH",
                                           .path = "/api/v1/x",
                                           .content_type = "application/merge-patch+json",
                                           .body = "{\"a\":1}"};

static enum k8s_outcome ask(struct world *w, const struct k8s_call *call)
{
    int before = w->answers;

    assert_non_null(k8s_send(w->script.k8s, call, on_result, w));
    SCRIPT_UNTIL(&w->script, w->answers > before);
    assert_int_equal(w->answers, before + 1);
    return w->last.outcome;
}

// After each answer, or while it is under way: nobody notices but the server, which sees
// another connection.
static void check_polite(struct world *w, enum manner manner)
{
    w->manner = manner;
    for (int i = 0; i < 10; i++) {
        if (ask(w, i % 2 ? &patch_call : &get_call) != K8S_OK)
            fail_msg("manner %d, call %d: %s", (int)manner, i, w->last.err.msg);
    }
}

// It took the request or it did not, nobody knows: UNKNOWN, or asked again by itself on another
// connection. The next one works either way, without a pause.
static void check_rude(struct world *w, enum manner manner)
{
    for (int i = 0; i < 10; i++) {
        w->manner = manner;
        unsigned requests = w->requests;
        enum k8s_outcome outcome = ask(w, i % 2 ? &patch_call : &get_call);

        assert_true(outcome == K8S_UNKNOWN || outcome == K8S_NOT_SENT);
        assert_in_range(w->requests - requests, 1, 6); // repeated, but not for ever
        w->manner = STAYS;
        if (ask(w, &get_call) != K8S_OK)
            fail_msg("manner %d, behind call %d: %s", (int)manner, i, w->last.err.msg);
        assert_int_equal(w->last.outcome, K8S_OK);
    }
}

static void test_goaway(void **state)
{
    struct world *w = *state;

    check_polite(w, STAYS);
    assert_int_equal(w->accepted, 1);
    check_polite(w, AFTER);
    assert_in_range(w->accepted, 5, 11);
    check_polite(w, WHILE);
    assert_int_equal(w->requests, 30);
}

static void test_goaway_without_answer(void **state)
{
    check_rude(*state, UNANSWERED);
}

static void test_goaway_before_anything(void **state)
{
    check_rude(*state, BEFORE);
}

#define GOODBYE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
    GOODBYE_TEST(test_goaway),
    GOODBYE_TEST(test_goaway_without_answer),
    GOODBYE_TEST(test_goaway_before_anything),
};

UNIT_MAIN(tests)
