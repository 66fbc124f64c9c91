// SPDX-License-Identifier: Apache-2.0
#include "agent/fencelink.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fence/state.h"

#define RETRY_NS       (100 * NS_PER_MS)
#define SILENCE_NS     NS_PER_SEC
#define LAST_WORDS_MAX 16

struct fencelink {
    struct loop *loop;
    const char *path;
    const struct fencelink_ops *ops;
    void *arg;
    int fd; // -1: down
    struct loop_io *io;
    struct loop_timer *retry;
    struct loop_timer *silence; // armed by a connection, until its first status
    uint64_t seq;
    bool is_proven; // a status came on this connection
    bool was_down_told;
    bool is_pending;
    struct fence_order pending;
};

static void go_down(struct fencelink *link, const struct err *err)
{
    loop_io_stop(link->io);
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->is_pending = false;
    loop_timer_stop(link->silence);
    loop_timer_arm(link->retry, RETRY_NS);
    if (link->was_down_told)
        return;
    link->was_down_told = true;
    link->ops->on_down(err, link->arg);
}

static void take_status(struct fencelink *link, const struct fence_status *status)
{
    if (!link->is_proven) {
        link->is_proven = true;
        link->was_down_told = false;
        loop_timer_stop(link->silence);
        link->ops->on_up(link->arg);
    }
    link->ops->on_status(status, link->arg);
}

static int watch(struct fencelink *link, struct err *err)
{
    unsigned events = LOOP_READ | (link->is_pending ? LOOP_WRITE : 0U);

    return loop_io_set(link->io, link->fd, events, err);
}

// Sends the pending order if the socket takes it. Returns -1 when the connection is lost.
static int flush(struct fencelink *link, struct err *err)
{
    ssize_t n = 0;

    if (!link->is_pending)
        return 0;
    n = send(link->fd, &link->pending, sizeof(link->pending), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS))
        return watch(link, err);
    if (n != (ssize_t)sizeof(link->pending))
        return err_set(err, ERR_TRANSIENT, errno, "metafence-run at %.150s: %m", link->path);
    link->is_pending = false;
    return watch(link, err);
}

// One packet. Returns 1 when one was taken, 0 when there is none, -1 when the connection is
// lost.
static int receive(struct fencelink *link, struct err *err)
{
    // One byte more than a status, so that a longer packet shows.
    union {
        struct fence_status status;
        char bytes[sizeof(struct fence_status) + 1];
    } packet;
    struct fence_status status;
    ssize_t n = recv(link->fd, packet.bytes, sizeof(packet.bytes), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0)
        return err_set(err, ERR_TRANSIENT, errno, "metafence-run at %.150s: %m", link->path);
    if (n == 0)
        return err_set(err, ERR_TRANSIENT, 0, "metafence-run at %.150s closed the connection",
                       link->path);
    if (fence_status_parse(packet.bytes, (size_t)n, &status, err) < 0)
        link->ops->on_garbage(err, link->arg);
    else
        take_status(link, &status);
    return 1;
}

// What metafence-run said before it ended waits in our queue. Where it left an order of ours
// unread the kernel tells of that first, once.
static void take_last_words(struct fencelink *link)
{
    struct err ignored = {0};
    int silences = 0;

    for (int i = 0; i < LAST_WORDS_MAX && silences < 2; i++)
        silences = receive(link, &ignored) > 0 ? 0 : silences + 1;
}

static void on_ready(int fd, unsigned events, void *arg)
{
    struct fencelink *link = arg;
    struct err err = {0};
    int r = 0;

    (void)fd;
    if (events & LOOP_WRITE)
        r = flush(link, &err);
    if (r == 0)
        r = receive(link, &err);
    if (r < 0) {
        take_last_words(link);
        go_down(link, &err);
    }
}

static int open_socket(const char *path, int *ret_fd, struct err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = -1;
    int saved = 0;

    if (strlen(path) >= sizeof(addr.sun_path))
        return err_set(err, ERR_INVALID, 0, "socket path %.120s is too long", path);
    memcpy(addr.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, ERR_TRANSIENT, errno, "no socket: %m");
    if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0) {
        *ret_fd = fd;
        return 0;
    }
    saved = errno;
    close(fd);
    errno = saved;
    return err_set(err, ERR_TRANSIENT, saved, "metafence-run at %.150s: %m", path);
}

// The kernel takes connections for a stopped process. What it wrote last is what it would say
// now: it has done nothing since. A file of an earlier boot tells of no process.
static void on_silence(void *arg)
{
    struct fencelink *link = arg;
    const char *slash = strrchr(link->path, '/');
    char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
    struct fence_status status;
    char boot_id[sizeof(status.boot_id)];
    struct err err = {0};

    (void)snprintf(path, sizeof(path), "%.*s/state", (int)(slash ? slash - link->path : 0),
                   link->path);
    if (state_read(path, &status, &err) < 0)
        return;
    state_boot_id(boot_id, sizeof(boot_id));
    if (strcmp(boot_id, status.boot_id) == 0)
        link->ops->on_status(&status, link->arg);
}

static void on_retry(void *arg)
{
    struct fencelink *link = arg;
    struct err err = {0};

    if (open_socket(link->path, &link->fd, &err) < 0 || watch(link, &err) < 0) {
        go_down(link, &err);
        return;
    }
    link->seq = 0;
    link->is_proven = false;
    loop_timer_arm(link->silence, SILENCE_NS);
}

struct fencelink *fencelink_new(struct loop *loop, const char *path,
                                const struct fencelink_ops *ops, void *arg)
{
    struct fencelink *link = calloc(1, sizeof(*link));

    if (!link)
        abort();
    *link = (struct fencelink){.loop = loop, .path = path, .ops = ops, .arg = arg, .fd = -1};
    link->io = loop_io_new(loop, on_ready, link);
    link->retry = loop_timer_new(loop, on_retry, link);
    link->silence = loop_timer_new(loop, on_silence, link);
    loop_timer_arm(link->retry, 0);
    return link;
}

void fencelink_free(struct fencelink *link)
{
    if (!link)
        return;
    loop_io_free(link->io);
    loop_timer_free(link->retry);
    loop_timer_free(link->silence);
    if (link->fd >= 0)
        close(link->fd);
    free(link);
}

bool fencelink_is_up(const struct fencelink *link)
{
    return link->fd >= 0;
}

bool fencelink_send(struct fencelink *link, const struct fence_order *order)
{
    struct err err = {0};

    if (link->fd < 0)
        return false;
    link->pending = *order;
    link->pending.seq = ++link->seq;
    fence_order_seal(&link->pending);
    link->is_pending = true;
    if (flush(link, &err) == 0)
        return true;
    // The loss is told by the watcher in the next turn of the loop, not from inside this call.
    link->is_pending = false;
    return false;
}
