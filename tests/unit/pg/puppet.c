// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/pg/puppet.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define VISITORS_MAX 256

struct visitor {
    struct puppet *puppet;
    int fd;
    struct loop_io *io;
    uint8_t in[16384];
    size_t in_len;
    char sql[8192]; // of the statement that is being sent
    bool has_started, is_extended;
};

struct puppet {
    struct loop *loop;
    puppet_fn *fn;
    void *arg;
    int fd;
    uint16_t port;
    struct loop_io *io;
    struct visitor *visitors[VISITORS_MAX];
    unsigned count;
};

void puppet_raw(struct puppet_answer *answer, const void *bytes, size_t len)
{
    assert_true(answer->len + len <= sizeof answer->bytes);
    memcpy(answer->bytes + answer->len, bytes, len);
    answer->len += len;
}

static void put_int(struct puppet_answer *answer, uint32_t value, size_t size)
{
    for (size_t i = size; i-- > 0;) {
        uint8_t byte = (uint8_t)(value >> (8 * i));
        puppet_raw(answer, &byte, 1);
    }
}

// Returns where the length is, for close_message.
static size_t open_message(struct puppet_answer *answer, char kind)
{
    puppet_raw(answer, &kind, 1);
    put_int(answer, 0, 4);
    return answer->len - 4;
}

static void close_message(struct puppet_answer *answer, size_t at)
{
    uint32_t len = htonl((uint32_t)(answer->len - at));

    memcpy(answer->bytes + at, &len, 4);
}

void puppet_columns(struct puppet_answer *answer, size_t count)
{
    size_t at = open_message(answer, 'T');

    put_int(answer, (uint32_t)count, 2);
    for (size_t i = 0; i < count; i++) {
        puppet_raw(answer, "c", 2);
        put_int(answer, 0, 4);  // table
        put_int(answer, 0, 2);  // attribute
        put_int(answer, 25, 4); // text
        put_int(answer, 0xffff, 2);
        put_int(answer, 0xffffffff, 4);
        put_int(answer, 0, 2); // as text
    }
    close_message(answer, at);
}

void puppet_row(struct puppet_answer *answer, const char *const *fields, size_t count)
{
    size_t at = open_message(answer, 'D');

    put_int(answer, (uint32_t)count, 2);
    for (size_t i = 0; i < count; i++) {
        size_t len = fields[i] ? strlen(fields[i]) : 0;
        put_int(answer, fields[i] ? (uint32_t)len : 0xffffffff, 4);
        if (fields[i])
            puppet_raw(answer, fields[i], len);
    }
    close_message(answer, at);
}

void puppet_error(struct puppet_answer *answer, char kind, const char *sqlstate)
{
    size_t at = open_message(answer, kind);

    puppet_raw(answer, "SERROR", 7);
    puppet_raw(answer, "VERROR", 7);
    puppet_raw(answer, "C", 1);
    puppet_raw(answer, sqlstate, strlen(sqlstate) + 1);
    puppet_raw(answer, "Mas the test says", 18);
    puppet_raw(answer, "", 1);
    close_message(answer, at);
}

void puppet_end(struct puppet_answer *answer, const char *command)
{
    size_t at = 0;

    if (command) {
        at = open_message(answer, 'C');
        puppet_raw(answer, command, strlen(command) + 1);
        close_message(answer, at);
    }
    at = open_message(answer, 'Z');
    puppet_raw(answer, "I", 1);
    close_message(answer, at);
}

static void leave(struct visitor *visitor)
{
    if (visitor->fd < 0)
        return;
    loop_io_stop(visitor->io);
    (void)close(visitor->fd);
    visitor->fd = -1;
}

static void give(struct visitor *visitor, const struct puppet_answer *answer)
{
    ssize_t len = (ssize_t)answer->len;

    if (len > 0 && send(visitor->fd, answer->bytes, answer->len, MSG_NOSIGNAL) != len)
        leave(visitor);
    else if (answer->is_last)
        leave(visitor);
}

static void log_in(struct visitor *visitor)
{
    struct puppet_answer answer = {0};
    size_t at = open_message(&answer, 'R');

    put_int(&answer, 0, 4);
    close_message(&answer, at);
    at = open_message(&answer, 'K');
    put_int(&answer, 4711, 4);
    put_int(&answer, 4712, 4);
    close_message(&answer, at);
    puppet_end(&answer, NULL);
    give(visitor, &answer);
}

static void ask(struct visitor *visitor)
{
    struct puppet_answer answer = {0};

    if (visitor->is_extended) {
        close_message(&answer, open_message(&answer, '1'));
        close_message(&answer, open_message(&answer, '2'));
    }
    visitor->puppet->fn(visitor->sql, &answer, visitor->puppet->arg);
    visitor->is_extended = false;
    give(visitor, &answer);
}

static void take(struct visitor *visitor, char kind, const char *body, size_t len)
{
    size_t skip = kind == 'P' ? strnlen(body, len) + 1 : 0; // the statement's name

    if (kind == 'X') {
        leave(visitor);
        return;
    }
    if (kind == 'P' || kind == 'Q')
        (void)snprintf(visitor->sql, sizeof visitor->sql, "%s", body + skip);
    visitor->is_extended = visitor->is_extended || kind == 'P';
    if (kind == 'Q' || kind == 'S')
        ask(visitor);
}

static void take_all(struct visitor *visitor)
{
    size_t at = 0;

    while (visitor->fd >= 0) {
        size_t head = visitor->has_started ? 5 : 4; // the first message has no kind
        uint32_t len = 0;

        if (visitor->in_len - at < head)
            break;
        memcpy(&len, visitor->in + at + head - 4, 4);
        len = ntohl(len) + (uint32_t)head - 4;
        if (visitor->in_len - at < len)
            break;
        if (visitor->has_started)
            take(visitor, (char)visitor->in[at], (char *)visitor->in + at + head, len - head);
        else
            log_in(visitor);
        visitor->has_started = true;
        at += len;
    }
    memmove(visitor->in, visitor->in + at, visitor->in_len - at);
    visitor->in_len -= at;
}

static void on_bytes(int fd, unsigned events, void *arg)
{
    struct visitor *visitor = arg;
    ssize_t got = recv(fd, visitor->in + visitor->in_len, sizeof visitor->in - visitor->in_len,
                       MSG_DONTWAIT);

    (void)events;
    if (got <= 0) {
        leave(visitor);
        return;
    }
    visitor->in_len += (size_t)got;
    take_all(visitor);
}

static void on_accept(int fd, unsigned events, void *arg)
{
    struct puppet *puppet = arg;
    struct visitor *visitor = calloc(1, sizeof *visitor);
    struct err err;

    (void)events;
    assert_true(puppet->count < VISITORS_MAX);
    puppet->visitors[puppet->count++] = visitor;
    visitor->puppet = puppet;
    visitor->fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    visitor->io = loop_io_new(puppet->loop, on_bytes, visitor);
    assert_int_equal(loop_io_set(visitor->io, visitor->fd, LOOP_READ, &err), 0);
}

struct puppet *puppet_new(struct loop *loop, puppet_fn *fn, void *arg)
{
    struct puppet *puppet = calloc(1, sizeof *puppet);
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    struct err err;

    *puppet = (struct puppet){.loop = loop, .fn = fn, .arg = arg};
    puppet->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(puppet->fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(puppet->fd, 64), 0);
    assert_int_equal(getsockname(puppet->fd, (struct sockaddr *)&addr, &len), 0);
    puppet->port = ntohs(addr.sin_port);
    puppet->io = loop_io_new(loop, on_accept, puppet);
    assert_int_equal(loop_io_set(puppet->io, puppet->fd, LOOP_READ, &err), 0);
    return puppet;
}

void puppet_free(struct puppet *puppet)
{
    for (unsigned i = 0; i < puppet->count; i++) {
        leave(puppet->visitors[i]);
        loop_io_free(puppet->visitors[i]->io);
        free(puppet->visitors[i]);
    }
    loop_io_free(puppet->io);
    (void)close(puppet->fd);
    free(puppet);
}

uint16_t puppet_port(const struct puppet *puppet)
{
    return puppet->port;
}

unsigned puppet_accepted(const struct puppet *puppet)
{
    return puppet->count;
}

unsigned puppet_open(const struct puppet *puppet)
{
    unsigned open = 0;

    for (unsigned i = 0; i < puppet->count; i++)
        open += puppet->visitors[i]->fd >= 0;
    return open;
}
