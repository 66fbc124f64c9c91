// SPDX-License-Identifier: Apache-2.0
#include "base/httpd.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/listen.h"

#define READ_SIZE    2048
#define ACCEPT_BURST 16                // a turn
#define ANSWER_BURST 16                // pipelined requests of one connection a turn
#define LINGER_NS    NS_PER_SEC        // for a client that still sends what nobody wants
#define LINGER_MAX   (1024 * 1024)     // bytes
#define STARVED_NS   (100 * NS_PER_MS) // out of descriptors, and none of them is ours
#define PLAIN        "text/plain; charset=utf-8"

enum conn_state {
    CONN_READING = 0, // waits for a whole head
    CONN_WRITING,
    CONN_LINGERING, // the last answer is out: closing now would make the kernel take it back
};

struct httpd_conn {
    TAILQ_ENTRY(httpd_conn) link; // of httpd.conns
    struct httpd *httpd;
    int fd;
    enum conn_state state;
    struct loop_io *io;
    struct loop_timer *timer; // the end of what it may do now
    struct buf in;
    struct buf out;
    size_t drained;
    bool is_read_done; // the client sends no more
    bool is_last;      // the answer in `out` is
};

struct httpd {
    struct loop *loop;
    struct httpd_config config; // its address is not kept
    int fd;
    uint16_t port;
    struct loop_io *io;
    struct loop_timer *starved;
    struct buf body;
    // In the order in which they began what they do now, the oldest first.
    TAILQ_HEAD(, httpd_conn) conns;
    unsigned conn_count;
};

static void conn_close(struct httpd_conn *conn)
{
    TAILQ_REMOVE(&conn->httpd->conns, conn, link);
    conn->httpd->conn_count--;
    loop_io_free(conn->io);
    loop_timer_free(conn->timer);
    buf_done(&conn->in);
    buf_done(&conn->out);
    close(conn->fd);
    free(conn);
}

static void conn_enter(struct httpd_conn *conn, enum conn_state state)
{
    struct httpd *httpd = conn->httpd;

    conn->state = state;
    TAILQ_REMOVE(&httpd->conns, conn, link);
    TAILQ_INSERT_TAIL(&httpd->conns, conn, link);
}

// --- answers ---

static const char *status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].status == status)
            return texts[i].text;
    return "Unknown";
}

static void put_date(struct buf *out)
{
    struct timespec now = {0};
    struct tm tm = {0};
    char text[64];

    (void)clock_gettime(CLOCK_REALTIME, &now); // can't fail
    if (gmtime_r(&now.tv_sec, &tm) &&
        strftime(text, sizeof(text), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm) > 0)
        buf_puts(out, text);
}

static void put_answer(struct httpd_conn *conn, const struct httpd_answer *answer,
                       enum httphead_method method)
{
    struct buf *out = &conn->out;

    buf_printf(out, "HTTP/1.1 %d %s\r\n", answer->status, status_text(answer->status));
    put_date(out);
    if (method == HTTPHEAD_OPTIONS || answer->status == 405)
        buf_puts(out, "Allow: GET, HEAD, OPTIONS\r\n");
    buf_printf(out,
               "Content-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
               "X-Content-Type-Options: nosniff\r\nConnection: %s\r\n\r\n",
               answer->content_type, answer->body->len, conn->is_last ? "close" : "keep-alive");
    if (method != HTTPHEAD_HEAD)
        buf_append(out, buf_str(answer->body), answer->body->len);
    buf_done(answer->body); // rare, and metrics are large: not worth keeping
    conn_enter(conn, CONN_WRITING);
}

static void answer_error(struct httpd_conn *conn, int status, enum httphead_method method)
{
    struct httpd_answer answer = {status, PLAIN, &conn->httpd->body};

    buf_printf(answer.body, "%d %s\n", status, status_text(status));
    put_answer(conn, &answer, method);
}

static void answer_request(struct httpd_conn *conn, const struct httphead *head)
{
    struct httpd *httpd = conn->httpd;
    struct httpd_answer answer = {200, PLAIN, &httpd->body};

    switch (head->method) {
    case HTTPHEAD_GET:
    case HTTPHEAD_HEAD: httpd->config.fn(head, &answer, httpd->config.arg); break;
    case HTTPHEAD_OPTIONS: break;
    case HTTPHEAD_OTHER: answer_error(conn, 405, head->method); return;
    }
    put_answer(conn, &answer, head->method);
}

// --- the steps of a connection ---

// What became of a connection in a step.
enum step { STEP_ON = 0, STEP_WAIT, STEP_GONE };

// Takes the next whole head from what has been read and answers it.
static enum step conn_answer(struct httpd_conn *conn)
{
    struct httphead head;
    size_t len = 0;
    int status = 0;
    enum httphead_result result =
        httphead_parse(buf_str(&conn->in), conn->in.len, &head, &len, &status);

    if (result == HTTPHEAD_PARTIAL && conn->in.len < conn->httpd->config.max_head) {
        if (!conn->is_read_done)
            return STEP_WAIT;
        conn_close(conn);
        return STEP_GONE;
    }
    if (result == HTTPHEAD_WHOLE) {
        // A body is never read: where the next request begins is then not known.
        conn->is_last =
            !head.is_persistent || head.has_body || (conn->is_read_done && conn->in.len == len);
        answer_request(conn, &head);
        buf_consume(&conn->in, len);
        return STEP_ON;
    }
    conn->is_last = true;
    answer_error(conn, result == HTTPHEAD_REFUSED ? status : 431, HTTPHEAD_GET);
    return STEP_ON;
}

static enum step conn_linger(struct httpd_conn *conn)
{
    if (conn->is_read_done || shutdown(conn->fd, SHUT_WR) != 0) {
        conn_close(conn);
        return STEP_GONE;
    }
    buf_done(&conn->in);
    loop_timer_arm(conn->timer, LINGER_NS);
    conn_enter(conn, CONN_LINGERING);
    return STEP_WAIT;
}

// The answer is out.
static enum step conn_answered(struct httpd_conn *conn)
{
    const struct httpd_config *config = &conn->httpd->config;

    buf_done(&conn->out);
    if (conn->is_last)
        return conn_linger(conn);
    if (conn->in.len == 0)
        buf_done(&conn->in);
    loop_timer_arm(conn->timer, conn->in.len > 0 ? config->request_ns : config->idle_ns);
    conn_enter(conn, CONN_READING);
    return STEP_ON;
}

static enum step conn_write(struct httpd_conn *conn)
{
    ssize_t sent = send(conn->fd, conn->out.data, conn->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        conn_close(conn);
        return STEP_GONE;
    }
    if (sent > 0)
        buf_consume(&conn->out, (size_t)sent);
    return conn->out.len == 0 ? conn_answered(conn) : STEP_WAIT;
}

static enum step conn_read(struct httpd_conn *conn)
{
    size_t room = conn->httpd->config.max_head - conn->in.len;
    size_t size = room < READ_SIZE ? room : READ_SIZE;
    ssize_t got = 0;

    if (room == 0)
        return STEP_ON; // what is there has to be answered first
    got = recv(conn->fd, buf_reserve(&conn->in, size), size, MSG_DONTWAIT);
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
        conn_close(conn);
        return STEP_GONE;
    }
    if (got > 0) {
        if (conn->in.len == 0)
            loop_timer_arm(conn->timer, conn->httpd->config.request_ns);
        buf_added(&conn->in, (size_t)got);
    }
    conn->is_read_done = conn->is_read_done || got == 0;
    return STEP_ON;
}

static enum step conn_drain(struct httpd_conn *conn)
{
    char bytes[8192];
    ssize_t got = recv(conn->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (got > 0)
        conn->drained += (size_t)got;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR) ||
        conn->drained > LINGER_MAX) {
        conn_close(conn);
        return STEP_GONE;
    }
    return STEP_WAIT;
}

static enum step conn_step(struct httpd_conn *conn)
{
    switch (conn->state) {
    case CONN_READING: return conn_answer(conn);
    case CONN_WRITING: return conn_write(conn);
    case CONN_LINGERING: break;
    }
    return conn_drain(conn);
}

static void conn_run(struct httpd_conn *conn)
{
    enum step step = conn->state == CONN_READING ? conn_read(conn) : STEP_ON;
    bool is_ready = false; // does more of its own accord, when others have had their turn
    struct err ignored;    // a socket can always be watched, else it is of no use

    for (int i = 0; i < 2 * ANSWER_BURST && step == STEP_ON; i++)
        step = conn_step(conn);
    if (step == STEP_GONE)
        return;
    is_ready = step == STEP_ON;
    if (loop_io_set(conn->io, conn->fd,
                    conn->state == CONN_WRITING || is_ready ? LOOP_WRITE : LOOP_READ,
                    &ignored) < 0)
        conn_close(conn);
}

static void on_conn(int fd, unsigned events, void *arg)
{
    (void)fd;
    (void)events;
    conn_run(arg);
}

static void on_conn_late(void *arg)
{
    conn_close(arg);
}

// --- the listener ---

static struct httpd_conn *oldest_in(const struct httpd *httpd, enum conn_state state)
{
    struct httpd_conn *conn = TAILQ_FIRST(&httpd->conns);

    while (conn && conn->state != state)
        conn = TAILQ_NEXT(conn, link);
    return conn;
}

// The one that is missed least: one that was answered and lingers, then the one that has been
// silent for longest, then the slowest reader.
static void close_oldest(struct httpd *httpd)
{
    static const enum conn_state order[] = {CONN_LINGERING, CONN_READING, CONN_WRITING};

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        struct httpd_conn *conn = oldest_in(httpd, order[i]);

        if (conn) {
            conn_close(conn);
            return;
        }
    }
}

static void add_conn(struct httpd *httpd, int fd)
{
    struct httpd_conn *conn = calloc(1, sizeof(*conn));
    const int on = 1;

    if (!conn)
        abort();
    if (httpd->conn_count >= httpd->config.max_conns)
        close_oldest(httpd);
    // Without effect on a socket that is none of TCP's, which it never is.
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    *conn = (struct httpd_conn){.httpd = httpd, .fd = fd};
    conn->io = loop_io_new(httpd->loop, on_conn, conn);
    conn->timer = loop_timer_new(httpd->loop, on_conn_late, conn);
    TAILQ_INSERT_TAIL(&httpd->conns, conn, link);
    httpd->conn_count++;
    loop_timer_arm(conn->timer, httpd->config.request_ns);
    conn_run(conn); // the request is often there already
}

static void listener_resume(void *arg)
{
    struct httpd *httpd = arg;
    struct err err = {0};

    if (loop_io_set(httpd->io, httpd->fd, LOOP_READ, &err) < 0)
        loop_timer_arm(httpd->starved, STARVED_NS);
}

// No descriptor is left: one of ours makes room, else the listener rests, because it would stay
// ready and keep the loop turning.
static void on_starved(struct httpd *httpd)
{
    if (httpd->conn_count > 0) {
        close_oldest(httpd);
        return;
    }
    loop_io_stop(httpd->io);
    loop_timer_arm(httpd->starved, STARVED_NS);
}

static void on_accept(int fd, unsigned events, void *arg)
{
    struct httpd *httpd = arg;

    (void)events;
    for (int i = 0; i < ACCEPT_BURST; i++) {
        int conn_fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (conn_fd >= 0) {
            add_conn(httpd, conn_fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            on_starved(httpd);
            return;
        } else if (errno == EAGAIN) {
            return;
        } // else the client has gone again
    }
}

int httpd_new(struct loop *loop, const struct httpd_config *config, struct httpd **ret_httpd,
              struct err *err)
{
    struct httpd *httpd = calloc(1, sizeof(*httpd));

    if (!httpd)
        abort();
    *httpd = (struct httpd){.loop = loop, .config = *config, .fd = -1};
    TAILQ_INIT(&httpd->conns);
    httpd->io = loop_io_new(loop, on_accept, httpd);
    httpd->starved = loop_timer_new(loop, listener_resume, httpd);
    if (listen_tcp(config->address, config->port, &httpd->fd, &httpd->port, err) < 0 ||
        loop_io_set(httpd->io, httpd->fd, LOOP_READ, err) < 0) {
        httpd_free(httpd);
        return -1;
    }
    *ret_httpd = httpd;
    return 0;
}

void httpd_free(struct httpd *httpd)
{
    if (!httpd)
        return;
    while (!TAILQ_EMPTY(&httpd->conns))
        conn_close(TAILQ_FIRST(&httpd->conns));
    loop_io_free(httpd->io);
    loop_timer_free(httpd->starved);
    if (httpd->fd >= 0)
        close(httpd->fd);
    buf_done(&httpd->body);
    free(httpd);
}

uint16_t httpd_port(const struct httpd *httpd)
{
    return httpd->port;
}

unsigned httpd_conns(const struct httpd *httpd)
{
    return httpd->conn_count;
}
