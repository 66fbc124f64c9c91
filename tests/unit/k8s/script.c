// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/k8s/script.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "base/clock.h"

static const char flood_bytes[65536] = {[0 ... 65535] = 'x'};

static void on_guard(void *arg)
{
    (void)arg;
    fail_msg("nothing more happened");
}

static void conn_free(struct script_conn *conn)
{
    struct script_conn **at = &conn->script->conns;

    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
    SSL_free(conn->tls);
    loop_io_free(conn->io);
    close(conn->fd);
    buf_done(&conn->in);
    buf_done(&conn->out);
    free(conn);
}

// > 0: bytes, 0: ended, -1: later
static ssize_t conn_read(struct script_conn *conn, char *bytes, size_t size)
{
    ssize_t got = 0;

    if (conn->tls) {
        int count = SSL_read(conn->tls, bytes, (int)size);

        if (count > 0)
            return count;
        return SSL_get_error(conn->tls, count) == SSL_ERROR_WANT_READ ? -1 : 0;
    }
    got = recv(conn->fd, bytes, size, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return -1;
    return got < 0 ? 0 : got;
}

static ssize_t conn_write(struct script_conn *conn, const char *bytes, size_t len)
{
    if (conn->tls)
        return SSL_write(conn->tls, bytes, (int)len);
    return send(conn->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void want(struct script_conn *conn)
{
    struct err err = {0};
    bool has_more = conn->out.len > 0 || conn->flood > 0;

    assert_int_equal(
        loop_io_set(conn->io, conn->fd, LOOP_READ | (has_more ? LOOP_WRITE : 0), &err), 0);
}

// Returns false when the connection is gone.
static bool flush(struct script_conn *conn)
{
    while (conn->out.len > 0) {
        ssize_t sent = conn_write(conn, conn->out.data, conn->out.len);

        if (sent <= 0)
            break;
        buf_consume(&conn->out, (size_t)sent);
    }
    while (conn->out.len == 0 && conn->flood > 0) {
        size_t len = conn->flood < sizeof(flood_bytes) ? conn->flood : sizeof(flood_bytes);
        ssize_t sent = conn_write(conn, flood_bytes, len);

        if (sent <= 0)
            break;
        conn->flood -= (size_t)sent;
    }
    if (conn->is_closing && conn->out.len == 0 && conn->flood == 0) {
        conn_free(conn);
        return false;
    }
    want(conn);
    return true;
}

static size_t body_length(const char *head)
{
    const char *line = strcasestr(head, "\r\ncontent-length:");
    size_t length = 0;

    if (line)
        assert_int_equal(sscanf(strchr(line, ':') + 1, "%zu", &length), 1);
    return length;
}

// One whole request out of the buffer; returns false when there is none.
static bool take_request(struct script_conn *conn)
{
    struct script_request request = {0};
    char *end = conn->in.len ? strstr(conn->in.data, "\r\n\r\n") : NULL;
    size_t head_len = end ? (size_t)(end + 4 - conn->in.data) : 0;
    size_t body_len = 0;
    struct buf copy = {0};

    if (!end)
        return false;
    end[2] = '\0';
    body_len = body_length(conn->in.data);
    end[2] = '\r';
    if (conn->in.len < head_len + body_len)
        return false;
    buf_append(&copy, conn->in.data, head_len + body_len);
    buf_consume(&conn->in, head_len + body_len);
    copy.data[head_len - 1] = '\0';
    request.head = copy.data;
    request.body = copy.data + head_len;
    assert_int_equal(sscanf(copy.data, "%15s %1023s", request.method, request.path), 2);
    conn->script->requests++;
    conn->script->on_request(conn, &request);
    buf_done(&copy);
    return true;
}

static void on_conn(int fd, unsigned events, void *arg)
{
    struct script_conn *conn = arg;
    struct script *script = conn->script;
    char bytes[16384];

    (void)fd;
    if (conn->tls && !SSL_is_init_finished(conn->tls)) {
        int result = SSL_accept(conn->tls);

        if (result <= 0 && SSL_get_error(conn->tls, result) != SSL_ERROR_WANT_READ)
            conn_free(conn);
        if (result <= 0)
            return;
    }
    if (events & LOOP_READ) {
        ssize_t got = 0;

        while ((got = conn_read(conn, bytes, sizeof(bytes))) > 0)
            buf_append(&conn->in, bytes, (size_t)got);
        if (got == 0) {
            conn_free(conn);
            return;
        }
        while (take_request(conn)) {
            struct script_conn *left = script->conns;

            while (left && left != conn)
                left = left->next;
            if (!left)
                return; // the handler closed it
        }
    }
    (void)flush(conn);
}

static void on_accept(int fd, unsigned events, void *arg)
{
    struct script *script = arg;
    struct script_conn *conn = calloc(1, sizeof(*conn));

    (void)events;
    assert_non_null(conn);
    conn->script = script;
    conn->fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(conn->fd >= 0);
    conn->next = script->conns;
    script->conns = conn;
    script->accepted++;
    conn->io = loop_io_new(script->loop, on_conn, conn);
    if (script->tls) {
        conn->tls = SSL_new(script->tls);
        assert_int_equal(SSL_set_fd(conn->tls, conn->fd), 1);
        SSL_set_accept_state(conn->tls);
        SSL_set_mode(conn->tls,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    }
    want(conn);
}

void script_write_file(const char *path, const char *text)
{
    char temporary[128];
    int fd = -1;

    (void)snprintf(temporary, sizeof(temporary), "%s.new", path);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_int_equal(rename(temporary, path), 0);
}

void script_init(struct script *script, script_fn *on_request, void *arg)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    struct err err = {0};

    assert_true(signal(SIGPIPE, SIG_IGN) != SIG_ERR); // OpenSSL writes without MSG_NOSIGNAL
    *script = (struct script){.on_request = on_request, .arg = arg};
    assert_int_equal(loop_new(&script->loop, &err), 0);
    script->guard = loop_timer_new(script->loop, on_guard, NULL);
    loop_timer_arm(script->guard, GUARD_NS);
    script->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(script->listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(script->listener, 64), 0);
    assert_int_equal(getsockname(script->listener, (struct sockaddr *)&addr, &len), 0);
    script->port = ntohs(addr.sin_port);
    script->listener_io = loop_io_new(script->loop, on_accept, script);
    assert_int_equal(loop_io_set(script->listener_io, script->listener, LOOP_READ, &err), 0);
    (void)snprintf(script->dir, sizeof(script->dir), "/tmp/metafence-k8s-XXXXXX");
    assert_non_null(mkdtemp(script->dir));
    (void)snprintf(script->token_file, sizeof(script->token_file), "%s/token", script->dir);
    (void)snprintf(script->ca_file, sizeof(script->ca_file), "%s/ca.crt", script->dir);
    (void)snprintf(script->url, sizeof(script->url), "http://127.0.0.1:%d", script->port);
    script_write_file(script->token_file, "token-1\n");
    script->config = (struct k8s_config){.server = script->url,
                                         .token_file = script->token_file,
                                         .name_space = "ns",
                                         .timeout_ns = 20 * NS_PER_SEC};
}

void script_client(struct script *script)
{
    struct err err = {0};

    if (k8s_new(script->loop, &script->config, &script->k8s, &err) < 0)
        fail_msg("%s", err.msg);
}

void script_listen_end(struct script *script)
{
    loop_io_stop(script->listener_io);
    if (script->listener >= 0)
        close(script->listener);
    script->listener = -1;
}

void script_done(struct script *script)
{
    k8s_free(script->k8s);
    while (script->conns)
        conn_free(script->conns);
    script_listen_end(script);
    loop_io_free(script->listener_io);
    loop_timer_free(script->guard);
    loop_free(script->loop);
    (void)unlink(script->token_file);
    (void)unlink(script->ca_file);
    assert_int_equal(rmdir(script->dir), 0);
}

void script_send(struct script_conn *conn, const void *bytes, size_t len)
{
    buf_append(&conn->out, bytes, len);
    (void)flush(conn);
}

void script_reply(struct script_conn *conn, int status, const char *body)
{
    struct buf text = {0};

    buf_printf(&text,
               "HTTP/1.1 %d Text\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n%s",
               status, strlen(body), body);
    script_send(conn, text.data, text.len);
    buf_done(&text);
}

void script_stream(struct script_conn *conn)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";

    conn->is_stream = true;
    script_send(conn, head, sizeof(head) - 1);
}

void script_chunk(struct script_conn *conn, const void *bytes, size_t len)
{
    struct buf text = {0};

    buf_printf(&text, "%zx\r\n", len);
    buf_append(&text, bytes, len);
    buf_puts(&text, "\r\n");
    script_send(conn, text.data, text.len);
    buf_done(&text);
}

void script_chunk_text(struct script_conn *conn, const char *text)
{
    script_chunk(conn, text, strlen(text));
}

void script_stream_end(struct script_conn *conn)
{
    script_send(conn, "0\r\n\r\n", 5);
}

void script_play(struct script_conn *conn, const char *lines, enum script_how how)
{
    script_stream(conn);
    if (lines)
        script_chunk_text(conn, lines);
    if (how == ENDS)
        script_stream_end(conn);
    if (how == BREAK)
        script_close(conn);
}

void script_close(struct script_conn *conn)
{
    conn->is_closing = true;
    (void)flush(conn);
}

void script_reset(struct script_conn *conn)
{
    struct linger linger = {.l_onoff = 1};

    (void)setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    conn_free(conn);
}
