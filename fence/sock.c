// SPDX-License-Identifier: Apache-2.0
#include "fence/sock.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int make_socket(struct err *err)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return err_set(err, ERR_DENIED, errno, "socket: %s", strerrorname_np(errno));
    return fd;
}

// Removes what an earlier metafence-run left. Anything else is not ours to remove.
static int clear_path(const struct sockaddr_un *address, struct err *err)
{
    const char *path = address->sun_path;
    struct stat stat = {0};
    int fd = -1;
    int answer = 0;
    int code = 0;

    if (lstat(path, &stat) < 0)
        return 0; // bind says what is wrong, if anything is
    if (!S_ISSOCK(stat.st_mode))
        return err_set(err, ERR_CONFLICT, EEXIST, "--socket %.110s exists and is no socket",
                       path);
    fd = make_socket(err);
    if (fd < 0)
        return -1;
    answer = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    code = errno;
    (void)close(fd);
    // EAGAIN: its queue is full, so somebody has it.
    if (answer == 0 || code == EAGAIN)
        return err_set(err, ERR_CONFLICT, EADDRINUSE,
                       "--socket %.110s: another process listens there", path);
    if (code == ECONNREFUSED)
        (void)unlink(path);
    return 0;
}

int sock_listen(struct sock *sock, const char *path, uid_t peer_uid, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t mask = 0;
    int result = 0;
    int fd = -1;

    for (size_t i = 0; i < SOCK_PEERS_MAX; i++)
        sock->peers[i].fd = -1;
    sock->fd = -1;
    sock->path = path;
    sock->peer_uid = peer_uid;
    strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    if (clear_path(&address, err) < 0)
        return -1;
    fd = make_socket(err);
    if (fd < 0)
        return -1;
    // Everybody may connect; SO_PEERCRED decides who stays. Not by chmod: that follows a link
    // which somebody puts in the socket's place.
    mask = umask(0);
    result = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    (void)umask(mask);
    if (result < 0 || listen(fd, SOCK_PEERS_MAX) < 0) {
        int code = errno;
        (void)close(fd);
        return err_set(err, ERR_DENIED, code, "--socket %.110s: %s%s", path,
                       strerrorname_np(code),
                       code == ENOENT ? ": its directory does not exist" : "");
    }
    sock->fd = fd;
    return 0;
}

static void drop(struct sock_peer *peer)
{
    (void)close(peer->fd);
    *peer = (struct sock_peer){.fd = -1};
}

void sock_close(struct sock *sock)
{
    for (size_t i = 0; i < SOCK_PEERS_MAX; i++)
        if (sock->peers[i].fd >= 0)
            drop(&sock->peers[i]);
    if (sock->fd >= 0) {
        (void)close(sock->fd);
        (void)unlink(sock->path);
    }
    sock->fd = -1;
}

size_t sock_polls(const struct sock *sock, struct pollfd fds[SOCK_POLLS_MAX])
{
    size_t count = 0;

    fds[count++] = (struct pollfd){.fd = sock->fd, .events = POLLIN};
    for (size_t i = 0; i < SOCK_PEERS_MAX; i++)
        if (sock->peers[i].fd >= 0)
            fds[count++] = (struct pollfd){.fd = sock->peers[i].fd, .events = POLLIN};
    return count;
}

// A younger connection has ordered.
static bool is_replaced(const struct sock *sock, const struct sock_peer *peer)
{
    for (size_t i = 0; i < SOCK_PEERS_MAX; i++) {
        const struct sock_peer *other = &sock->peers[i];
        if (other->fd >= 0 && other->has_ordered && other->id > peer->id)
            return true;
    }
    return false;
}

static bool is_agent(const struct sock *sock, const struct sock_peer *peer)
{
    return peer->has_ordered && !is_replaced(sock, peer);
}

// A free place, or that of the oldest who is not the agent: many silent ones displace each
// other.
static struct sock_peer *find_place(struct sock *sock)
{
    struct sock_peer *oldest = NULL;

    for (size_t i = 0; i < SOCK_PEERS_MAX; i++) {
        struct sock_peer *peer = &sock->peers[i];
        if (peer->fd < 0)
            return peer;
        if (!is_agent(sock, peer) && (!oldest || peer->id < oldest->id))
            oldest = peer;
    }
    drop(oldest); // only one of them is the agent
    return oldest;
}

int sock_accept(struct sock *sock, struct err *err)
{
    struct ucred who = {0};
    socklen_t size = sizeof(who);
    struct sock_peer *place = NULL;
    int fd = accept4(sock->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0)
        return err_set(err, ERR_NONE, errno, "accept: %s", strerrorname_np(errno));
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0 || who.uid != sock->peer_uid) {
        (void)close(fd);
        return err_set(err, ERR_DENIED, 0, "process %d of user %u is not the agent's user %u",
                       who.pid, who.uid, sock->peer_uid);
    }
    place = find_place(sock);
    *place = (struct sock_peer){
        .fd = fd, .id = ++sock->last_id, .wants_status = true, .pid = who.pid};
    return fd;
}

static struct sock_peer *find_peer(struct sock *sock, int fd)
{
    for (size_t i = 0; i < SOCK_PEERS_MAX; i++)
        if (sock->peers[i].fd == fd)
            return &sock->peers[i];
    return NULL;
}

enum sock_input sock_receive(struct sock *sock, int fd, struct fence_order *ret_order,
                             struct err *err)
{
    struct sock_peer *peer = find_peer(sock, fd);
    char bytes[sizeof(*ret_order) + 1]; // one more shows a packet that is too long
    ssize_t n = 0;

    if (!peer || fd < 0)
        return SOCK_INPUT_NONE;
    n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return SOCK_INPUT_NONE;
    if (n <= 0) {
        drop(peer);
        return SOCK_INPUT_CLOSED;
    }
    if (fence_order_parse(bytes, (size_t)n, ret_order, err) < 0) {
        drop(peer);
        return SOCK_INPUT_REFUSED;
    }
    if (is_replaced(sock, peer) || (peer->has_ordered && ret_order->seq <= peer->last_seq))
        return SOCK_INPUT_IGNORED;
    peer->has_ordered = true;
    peer->last_seq = ret_order->seq;
    peer->wants_status = true;
    return SOCK_INPUT_ORDER;
}

// Returns false if the peer does not read.
static bool send_one(struct sock_peer *peer, const struct fence_status *status)
{
    struct fence_status own = *status;

    peer->wants_status = false;
    own.order_seq = peer->last_seq;
    fence_status_seal(&own);
    if (send(peer->fd, &own, sizeof(own), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return true;
    // It does not read, or the kernel has no memory: it connects again and gets the newest.
    if (errno != EPIPE && errno != ECONNRESET)
        return false;
    // It has closed. Not dropped here: its last order may still wait to be read.
    peer->is_shut = true;
    return true;
}

int sock_send(struct sock *sock, const struct fence_status *status, bool is_news)
{
    int dropped = 0;

    for (size_t i = 0; i < SOCK_PEERS_MAX; i++) {
        struct sock_peer *peer = &sock->peers[i];
        if (peer->fd < 0 || peer->is_shut || !(is_news || peer->wants_status))
            continue;
        if (!send_one(peer, status)) {
            drop(peer);
            dropped++;
        }
    }
    return dropped;
}

bool sock_is_asked(const struct sock *sock)
{
    for (size_t i = 0; i < SOCK_PEERS_MAX; i++)
        if (sock->peers[i].fd >= 0 && sock->peers[i].wants_status)
            return true;
    return false;
}

bool sock_has_agent(const struct sock *sock)
{
    for (size_t i = 0; i < SOCK_PEERS_MAX; i++)
        if (sock->peers[i].fd >= 0 && sock->peers[i].has_ordered)
            return true;
    return false;
}
