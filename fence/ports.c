// SPDX-License-Identifier: Apache-2.0
#include "fence/ports.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fence/diag.h"

#define STATE_LISTEN  0x0a
#define TABLE_MAX     ((size_t)16 << 20) // 100,000 sockets; more would stall the loop
#define CLOSED_REREAD 2

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

// Exactly `digits` hex digits at *p; moves behind them.
static bool take_hex(const char **p, int digits, uint32_t *ret)
{
    uint32_t value = 0;

    for (int i = 0; i < digits; i++, (*p)++) {
        int digit = hex_value(**p);
        if (digit < 0)
            return false;
        value = value << 4 | (uint32_t)digit;
    }
    *ret = value;
    return true;
}

static bool take_char(const char **p, char c)
{
    if (**p != c)
        return false;
    (*p)++;
    return true;
}

// "0100007F:1F90" or the 32 digits of IPv6; which one is the same for a whole row.
static bool take_endpoint(const char **p, uint32_t *ret_port)
{
    uint32_t ignored = 0;
    int words = 0;

    while (words < 4 && take_hex(p, 8, &ignored)) {
        words++;
        if (**p == ':')
            break;
    }
    return (words == 1 || words == 4) && take_char(p, ':') && take_hex(p, 4, ret_port);
}

// "   0: 0100007F:1F90 00000000:0000 0A 00000000:…": number, local, remote, state; the rest is
// not ours.
static bool parse_row(const char *line, uint32_t *ret_port, uint32_t *ret_state)
{
    const char *p = line;
    uint32_t remote = 0;

    while (*p == ' ')
        p++;
    if (*p < '0' || *p > '9')
        return false;
    while (*p >= '0' && *p <= '9')
        p++;
    return take_char(&p, ':') && take_char(&p, ' ') && take_endpoint(&p, ret_port) &&
           take_char(&p, ' ') && take_endpoint(&p, &remote) && take_char(&p, ' ') &&
           take_hex(&p, 2, ret_state) && take_char(&p, ' ');
}

static uint32_t bit_of(const struct ports_wanted *wanted, uint32_t port)
{
    uint32_t bits = 0;

    if (port == wanted->service)
        bits |= SHIM_PORT_SERVICE;
    if (port == wanted->metrics)
        bits |= SHIM_PORT_METRICS;
    if (port == wanted->dashboard)
        bits |= SHIM_PORT_DASHBOARD;
    return bits;
}

static bool take_line(struct ports_table *table)
{
    static const char header[] = "  sl  local_address"; // tcp6 has another space behind it
    uint32_t port = 0;
    uint32_t state = 0;

    if (memchr(table->line, '\0', table->used))
        return false;
    table->line[table->used] = '\0';
    if (!table->header_seen) {
        table->header_seen = true;
        return strncmp(table->line, header, sizeof(header) - 1) == 0;
    }
    if (!parse_row(table->line, &port, &state))
        return false;
    if (state == STATE_LISTEN)
        table->listening |= bit_of(&table->wanted, port);
    return true;
}

void ports_feed(struct ports_table *table, const char *bytes, size_t size)
{
    table->fed += size;
    if (table->fed > TABLE_MAX)
        table->is_broken = true;
    for (size_t i = 0; i < size && !table->is_broken; i++) {
        if (bytes[i] == '\n') {
            table->is_broken = !take_line(table);
            table->used = 0;
        } else if (table->used < sizeof(table->line) - 1) {
            table->line[table->used++] = bytes[i];
        } else {
            table->is_broken = true;
        }
    }
}

bool ports_end(const struct ports_table *table, uint32_t *ret_listening)
{
    if (table->is_broken || !table->header_seen || table->used != 0)
        return false;
    *ret_listening = table->listening;
    return true;
}

static bool read_table(const char *path, const struct ports_wanted *wanted,
                       uint32_t *ret_listening)
{
    static char piece[16384];
    struct ports_table table = {.wanted = *wanted};
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    do {
        n = read(fd, piece, sizeof(piece));
        if (n > 0)
            ports_feed(&table, piece, (size_t)n);
    } while ((n > 0 && !table.is_broken) || (n < 0 && errno == EINTR));
    (void)close(fd);
    return n == 0 && ports_end(&table, ret_listening);
}

uint32_t ports_read_proc(const struct ports_wanted *wanted)
{
    uint32_t v4 = 0;
    uint32_t v6 = 0;

    if (!read_table("/proc/net/tcp", wanted, &v4))
        return 0;
    if (access("/proc/net/tcp6", F_OK) == 0 && !read_table("/proc/net/tcp6", wanted, &v6))
        return 0;
    return SHIM_PORTS_KNOWN | v4 | v6;
}

// ---- socket monitor

struct listeners {
    const struct ports_wanted *wanted;
    uint32_t bits;
};

static void note_listener(uint16_t port, void *arg)
{
    struct listeners *listeners = arg;

    listeners->bits |= bit_of(listeners->wanted, port);
}

void ports_open(struct ports_reader *reader, const struct ports_wanted *wanted)
{
    *reader = (struct ports_reader){.wanted = *wanted,
                                    .has_ipv6 = access("/proc/net/tcp6", F_OK) == 0,
                                    .diag_fd = diag_open()};
}

void ports_close(struct ports_reader *reader)
{
    if (reader->diag_fd >= 0)
        (void)close(reader->diag_fd);
    reader->diag_fd = -1;
}

uint32_t ports_read(struct ports_reader *reader)
{
    struct listeners found = {.wanted = &reader->wanted};

    if (reader->diag_fd >= 0 &&
        diag_listeners(reader->diag_fd, ++reader->seq, AF_INET, note_listener, &found) &&
        (!reader->has_ipv6 ||
         diag_listeners(reader->diag_fd, ++reader->seq, AF_INET6, note_listener, &found)))
        return SHIM_PORTS_KNOWN | found.bits;
    // Not answered, or not in full. What is left of that answer must not meet the next
    // question.
    ports_close(reader);
    found.bits = ports_read_proc(&reader->wanted);
    reader->diag_fd = diag_open();
    return found.bits;
}

uint32_t ports_read_stable(struct ports_reader *reader, uint32_t before)
{
    uint32_t now = ports_read(reader);

    // Seen open in any of the reads is open. One that is not understood leaves it unknown.
    for (int i = 0; i < CLOSED_REREAD && (now & SHIM_PORTS_KNOWN) && (before & ~now) != 0;
         i++) {
        uint32_t again = ports_read(reader);
        now = again & SHIM_PORTS_KNOWN ? now | again : 0;
    }
    return now;
}
