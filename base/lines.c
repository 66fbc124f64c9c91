// SPDX-License-Identifier: Apache-2.0
#include "base/lines.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"

#define BACKLOG   128
#define READ_SIZE 4096

struct lines_conn {
    struct lines_server *server;
    struct lines_conn *next;
    int fd;
    struct ucred peer;
    struct loop_io *io;
    struct loop_timer *idle; // also closes a dead connection from outside its callbacks
    struct buf in;
    struct buf out;
    bool had_line;
    bool is_read_done; // the peer sends no more
    bool is_finishing; // close once `out` is empty
    bool is_dead;      // close as soon as no caller is on the stack
};

struct lines_server {
    struct loop *loop;
    struct lines_config config;
    struct sockaddr_un addr; // config.path points into it
    int fd;
    dev_t dev;
    ino_t ino;
    struct loop_io *io;
    struct lines_conn *conns;
    unsigned conn_count;
};

static void conn_free(struct lines_conn *conn)
{
    loop_io_free(conn->io);
    loop_timer_free(conn->idle);
    buf_done(&conn->in);
    buf_done(&conn->out);
    close(conn->fd);
    free(conn);
}

static void conn_close(struct lines_conn *conn)
{
    struct lines_server *server = conn->server;
    struct lines_conn **at = &server->conns;

    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
    server->conn_count--;
    if (conn->had_line && server->config.on_gone)
        server->config.on_gone(conn, server->config.arg);
    conn_free(conn);
}

// Marks it; the closing itself happens in the loop, so that no caller holds a freed connection.
static void conn_kill(struct lines_conn *conn)
{
    if (conn->is_dead)
        return;
    conn->is_dead = true;
    loop_io_stop(conn->io);
    loop_timer_arm(conn->idle, 0);
}

static void conn_watch(struct lines_conn *conn)
{
    unsigned events = 0;
    struct err ignored; // a socket can always be watched, else the connection is of no use

    if (conn->is_dead)
        return;
    if (conn->is_finishing && conn->out.len == 0) {
        conn_kill(conn);
        return;
    }
    if (!conn->is_read_done && !conn->is_finishing)
        events |= LOOP_READ;
    if (conn->out.len > 0)
        events |= LOOP_WRITE;
    if (loop_io_set(conn->io, conn->fd, events, &ignored) < 0)
        conn_kill(conn);
}

static void conn_flush(struct lines_conn *conn)
{
    ssize_t sent = 0;

    if (conn->out.len == 0)
        return;
    sent = send(conn->fd, conn->out.data, conn->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
        buf_consume(&conn->out, (size_t)sent);
        loop_timer_arm(conn->idle, conn->server->config.idle_ns);
    } else if (errno != EAGAIN && errno != EINTR) {
        conn_kill(conn);
    }
}

// True when the peer has closed, not only ended its sending side.
static bool is_hung_up(int fd)
{
    struct pollfd state = {.fd = fd};

    return poll(&state, 1, 0) == 1 && (state.revents & (POLLHUP | POLLERR));
}

static void conn_deliver(struct lines_conn *conn)
{
    const struct lines_config *config = &conn->server->config;
    size_t len = 0;
    size_t done = 0;
    char *end = NULL;

    while (!conn->is_dead && !conn->is_finishing && done < conn->in.len) {
        end = memchr(conn->in.data + done, '\n', conn->in.len - done);
        len = end ? (size_t)(end - conn->in.data) - done : conn->in.len - done;
        if (len > config->max_line) {
            conn_kill(conn);
            return;
        }
        if (!end)
            break;
        *end = '\0';
        conn->had_line = true;
        loop_timer_arm(conn->idle, config->idle_ns);
        config->on_line(conn, conn->in.data + done, len, config->arg);
        done += len + 1;
    }
    buf_consume(&conn->in, done);
}

static void conn_read(struct lines_conn *conn)
{
    char *to = buf_reserve(&conn->in, READ_SIZE);
    ssize_t got = recv(conn->fd, to, READ_SIZE, MSG_DONTWAIT);

    if (got > 0) {
        buf_added(&conn->in, (size_t)got);
        conn_deliver(conn);
    } else if (got == 0) {
        conn->is_read_done = true; // an answer may still be on its way to a half-closed peer
        if (!conn->had_line || is_hung_up(conn->fd))
            conn_kill(conn);
    } else if (errno != EAGAIN && errno != EINTR) {
        conn_kill(conn);
    }
}

static void on_conn(int fd, unsigned events, void *arg)
{
    struct lines_conn *conn = arg;

    (void)fd;
    if (events & LOOP_WRITE)
        conn_flush(conn);
    if ((events & LOOP_READ) && !conn->is_dead)
        conn_read(conn);
    conn_watch(conn);
}

static void on_idle(void *arg)
{
    conn_close(arg);
}

static bool is_welcome(const struct lines_server *server, const struct ucred *peer)
{
    return server->conn_count < server->config.max_conns &&
           (peer->uid == 0 || peer->uid == geteuid());
}

static void on_accept(int fd, unsigned events, void *arg)
{
    struct lines_server *server = arg;
    struct lines_conn *conn = NULL;
    struct ucred peer = {0};
    socklen_t peer_len = sizeof(peer);
    int conn_fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)events;
    if (conn_fd < 0)
        return; // the peer has gone again, or we are out of descriptors until one is closed
    if (getsockopt(conn_fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_len) != 0 ||
        !is_welcome(server, &peer)) {
        close(conn_fd);
        return;
    }
    conn = calloc(1, sizeof(*conn));
    if (!conn)
        abort();
    *conn = (struct lines_conn){
        .server = server, .next = server->conns, .fd = conn_fd, .peer = peer};
    conn->io = loop_io_new(server->loop, on_conn, conn);
    conn->idle = loop_timer_new(server->loop, on_idle, conn);
    server->conns = conn;
    server->conn_count++;
    loop_timer_arm(conn->idle, server->config.idle_ns);
    conn_watch(conn);
}

// Removes a socket file that nobody listens on any more.
static int clear_path(const struct sockaddr_un *addr, struct err *err)
{
    struct stat st;
    int fd = -1;
    int rc = 0;
    int code = 0;

    if (lstat(addr->sun_path, &st) != 0)
        return 0; // bind will say what is wrong, if anything
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, ERR_INVALID, EEXIST, "%s exists and is not a socket: remove it",
                       addr->sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, ERR_TRANSIENT, errno, "no socket: %m");
    rc = connect(fd, (const struct sockaddr *)addr, sizeof(*addr));
    code = errno;
    close(fd);
    if (rc == 0 || code == EAGAIN)
        return err_set(err, ERR_CONFLICT, EADDRINUSE, "another process listens on %s",
                       addr->sun_path);
    if (code == ECONNREFUSED && unlink(addr->sun_path) != 0)
        return err_set(err, ERR_DENIED, errno, "can't remove the stale socket %s: %m",
                       addr->sun_path);
    return 0;
}

static int listen_on(struct lines_server *server, struct err *err)
{
    const char *path = server->addr.sun_path;
    struct stat st;
    mode_t mask = 0;
    int rc = 0;

    if (clear_path(&server->addr, err) < 0)
        return -1;
    server->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server->fd < 0)
        return err_set(err, ERR_TRANSIENT, errno, "no socket: %m");
    mask = umask(0777 & ~server->config.mode); // no moment with wider rights
    rc = bind(server->fd, (const struct sockaddr *)&server->addr, sizeof(server->addr));
    (void)umask(mask);
    if (rc != 0 || listen(server->fd, BACKLOG) != 0 || lstat(path, &st) != 0)
        return err_set(err, errno == EADDRINUSE ? ERR_CONFLICT : ERR_DENIED, errno,
                       "can't listen on %s: %m", path);
    server->dev = st.st_dev;
    server->ino = st.st_ino;
    return loop_io_set(server->io, server->fd, LOOP_READ, err);
}

int lines_server_new(struct loop *loop, const struct lines_config *config,
                     struct lines_server **ret_server, struct err *err)
{
    struct lines_server *server = NULL;

    if (strlen(config->path) >= sizeof(server->addr.sun_path))
        return err_set(err, ERR_INVALID, ENAMETOOLONG,
                       "socket path %.100s... is longer than %zu bytes: use a shorter one",
                       config->path, sizeof(server->addr.sun_path) - 1);
    server = calloc(1, sizeof(*server));
    if (!server)
        abort();
    *server = (struct lines_server){.loop = loop, .config = *config, .fd = -1};
    server->addr.sun_family = AF_UNIX;
    memcpy(server->addr.sun_path, config->path, strlen(config->path));
    server->config.path = server->addr.sun_path;
    server->io = loop_io_new(loop, on_accept, server);
    if (listen_on(server, err) < 0) {
        lines_server_free(server);
        return -1;
    }
    *ret_server = server;
    return 0;
}

void lines_server_free(struct lines_server *server)
{
    struct stat st;
    struct lines_conn *next = NULL;

    if (!server)
        return;
    for (struct lines_conn *conn = server->conns; conn; conn = next) {
        next = conn->next;
        conn_free(conn);
    }
    loop_io_free(server->io);
    if (server->fd >= 0)
        close(server->fd);
    // A successor may have replaced the file: only our own inode is removed.
    if (server->ino && lstat(server->addr.sun_path, &st) == 0 && st.st_dev == server->dev &&
        st.st_ino == server->ino)
        (void)unlink(server->addr.sun_path);
    free(server);
}

void lines_send(struct lines_conn *conn, const void *data, size_t len)
{
    if (conn->is_dead || conn->is_finishing)
        return;
    buf_append(&conn->out, data, len);
    conn_flush(conn);
    if (conn->out.len > conn->server->config.max_unsent)
        conn_kill(conn);
    conn_watch(conn);
}

void lines_finish(struct lines_conn *conn)
{
    conn->is_finishing = true;
    conn_watch(conn);
}

uid_t lines_peer_uid(const struct lines_conn *conn)
{
    return conn->peer.uid;
}
