// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/pg/pgtest.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIRS_MAX 64

struct end {
    struct pair *pair;
    int fd;
    struct loop_io *io;
};

struct pair {
    struct relay *relay;
    struct end ends[2]; // client, server
    bool is_stalled;
    bool is_closed;
};

struct relay {
    struct pgt *pgt;
    uint16_t target_port, port;
    int fd;
    struct loop_io *io;
    enum relay_mode mode;
    struct pair pairs[PAIRS_MAX];
    unsigned count;
};

static void pair_close(struct pair *pair)
{
    const struct linger abort_it = {.l_onoff = 1, .l_linger = 0};

    if (pair->is_closed)
        return;
    pair->is_closed = true;
    for (size_t i = 0; i < 2; i++) {
        loop_io_stop(pair->ends[i].io);
        (void)setsockopt(pair->ends[i].fd, SOL_SOCKET, SO_LINGER, &abort_it, sizeof abort_it);
        (void)close(pair->ends[i].fd);
    }
}

static void end_on_io(int fd, unsigned events, void *arg)
{
    struct end *end = arg;
    struct pair *pair = end->pair;
    struct end *peer = &pair->ends[end == &pair->ends[0]];
    char bytes[16384];
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);

    (void)events;
    if (got <= 0 || send(peer->fd, bytes, (size_t)got, MSG_NOSIGNAL) != got)
        pair_close(pair);
}

static void end_watch(struct end *end)
{
    struct err err;

    assert_int_equal(loop_io_set(end->io, end->fd, end->pair->is_stalled ? 0 : LOOP_READ, &err),
                     0);
}

static void pair_update(struct pair *pair, bool is_stalled)
{
    if (pair->is_closed)
        return;
    pair->is_stalled = is_stalled;
    end_watch(&pair->ends[0]);
    end_watch(&pair->ends[1]);
}

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons(port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
}

static void relay_on_accept(int fd, unsigned events, void *arg)
{
    struct relay *relay = arg;
    struct sockaddr_in target = loopback(relay->target_port);
    struct pair *pair = &relay->pairs[relay->count++];

    (void)events;
    assert_true(relay->count < PAIRS_MAX);
    *pair = (struct pair){.relay = relay};
    pair->ends[0].fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    pair->ends[1].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(pair->ends[1].fd, (struct sockaddr *)&target, sizeof target), 0);
    for (size_t i = 0; i < 2; i++) {
        pair->ends[i].pair = pair;
        pair->ends[i].io = loop_io_new(relay->pgt->loop, end_on_io, &pair->ends[i]);
    }
    if (relay->mode == RELAY_RESET)
        pair_close(pair);
    else
        pair_update(pair, relay->mode == RELAY_STALL || relay->mode == RELAY_STALL_NEW);
}

struct relay *relay_new(struct pgt *pgt, uint16_t target_port)
{
    struct relay *relay = calloc(1, sizeof *relay);
    struct sockaddr_in addr = loopback(0);
    socklen_t len = sizeof addr;
    struct err err;

    relay->pgt = pgt;
    relay->target_port = target_port;
    relay->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(relay->fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(relay->fd, 16), 0);
    assert_int_equal(getsockname(relay->fd, (struct sockaddr *)&addr, &len), 0);
    relay->port = ntohs(addr.sin_port);
    relay->io = loop_io_new(pgt->loop, relay_on_accept, relay);
    assert_int_equal(loop_io_set(relay->io, relay->fd, LOOP_READ, &err), 0);
    return relay;
}

void relay_free(struct relay *relay)
{
    for (unsigned i = 0; i < relay->count; i++) {
        pair_close(&relay->pairs[i]);
        loop_io_free(relay->pairs[i].ends[0].io);
        loop_io_free(relay->pairs[i].ends[1].io);
    }
    loop_io_free(relay->io);
    (void)close(relay->fd);
    free(relay);
}

uint16_t relay_port(const struct relay *relay)
{
    return relay->port;
}

void relay_set(struct relay *relay, enum relay_mode mode)
{
    relay->mode = mode;
    for (unsigned i = 0; i < relay->count; i++) {
        if (mode == RELAY_RESET)
            pair_close(&relay->pairs[i]);
        else
            pair_update(&relay->pairs[i], mode == RELAY_STALL || mode == RELAY_STALL_OLD);
    }
}

void relay_retarget(struct relay *relay, uint16_t target_port)
{
    relay->target_port = target_port;
}

unsigned relay_accepted(const struct relay *relay)
{
    return relay->count;
}

unsigned relay_open(const struct relay *relay)
{
    unsigned open = 0;

    for (unsigned i = 0; i < relay->count; i++)
        open += !relay->pairs[i].is_closed;
    return open;
}
