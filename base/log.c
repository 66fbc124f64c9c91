// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TAIL_SIZE sizeof(" truncated=true\n") // kept free at the end of each line

static struct {
    enum log_level level;
    int fd;
    uint64_t dropped;
    uint64_t dropped_said;
} state = {.level = LOG_LEVEL_INFO, .fd = STDERR_FILENO};

static const char *const level_names[] = {
    [LOG_LEVEL_DEBUG] = "debug",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_WARN] = "warn",
    [LOG_LEVEL_ERROR] = "error",
};

// A cursor over the line. `room` keeps space for the tail; once something did not fit, `full`
// stays.
struct line {
    char *data;
    size_t len;
    size_t room;
    bool full;
};

static void put(struct line *line, const char *text, size_t len)
{
    if (line->full || len > line->room - line->len) {
        line->full = true;
        return;
    }
    memcpy(line->data + line->len, text, len);
    line->len += len;
}

static void put_str(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

static bool needs_quotes(const char *text)
{
    if (!*text)
        return true;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p <= ' ' || *p == '"' || *p == '=' || *p == '\\' || *p == 0x7f)
            return true;
    return false;
}

static void put_escaped(struct line *line, unsigned char c)
{
    char hex[8];

    switch (c) {
    case '"': put_str(line, "\\\""); break;
    case '\\': put_str(line, "\\\\"); break;
    case '\n': put_str(line, "\\n"); break;
    case '\r': put_str(line, "\\r"); break;
    case '\t': put_str(line, "\\t"); break;
    default:
        if (c < 0x20 || c == 0x7f) {
            (void)snprintf(hex, sizeof(hex), "\\x%02x", c);
            put_str(line, hex);
        } else {
            put(line, (const char *)&c, 1);
        }
    }
}

static void put_value(struct line *line, const char *text)
{
    if (!needs_quotes(text)) {
        put_str(line, text);
        return;
    }
    put_str(line, "\"");
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        put_escaped(line, *p);
    put_str(line, "\"");
}

static void put_pair(struct line *line, const struct kv *kv)
{
    char number[40];

    put_str(line, " ");
    put_str(line, kv->key);
    put_str(line, "=");
    switch (kv->kind) {
    case KV_STR: put_value(line, kv->str ? kv->str : ""); break;
    case KV_BOOL: put_str(line, kv->num ? "true" : "false"); break;
    case KV_DUR: put_str(line, duration_format(kv->num, number, sizeof(number))); break;
    case KV_INT:
        (void)snprintf(number, sizeof(number), "%" PRId64, kv->num);
        put_str(line, number);
        break;
    }
}

static void put_stamp(struct line *line, const struct log_stamp *stamp)
{
    time_t wall = (time_t)stamp->wall_s;
    struct tm tm = {0};
    char text[64];
    size_t len = 0;

    if (!gmtime_r(&wall, &tm))
        tm = (struct tm){.tm_year = 70, .tm_mday = 1};
    len = strftime(text, sizeof(text), "ts=%Y-%m-%dT%H:%M:%S", &tm);
    put(line, text, len);
    (void)snprintf(text, sizeof(text), ".%06" PRId64 "Z", stamp->wall_ns / 1000);
    put_str(line, text);
    put_pair(line, &(struct kv){.key = "boot_ns", .kind = KV_INT, .num = stamp->boot.ns});
}

size_t log_format(char line[LOG_LINE_MAX], const struct log_stamp *stamp, enum log_level level,
                  const char *msg, const struct kv *kvs)
{
    struct line out = {.data = line, .room = LOG_LINE_MAX - TAIL_SIZE};
    struct kv head[] = {kv_str("level", level_names[level]), kv_str("msg", msg)};
    size_t whole = 0;

    put_stamp(&out, stamp);
    whole = out.len;
    for (size_t i = 0; i < 2 && !out.full; i++) {
        put_pair(&out, &head[i]);
        whole = out.full ? whole : out.len;
    }
    for (; kvs->key && !out.full; kvs++) {
        put_pair(&out, kvs);
        whole = out.full ? whole : out.len;
    }
    if (out.full) {
        out = (struct line){.data = line, .len = whole, .room = LOG_LINE_MAX - 1};
        put_str(&out, " truncated=true");
    }
    line[out.len] = '\n';
    return out.len + 1;
}

void log_set_level(enum log_level level)
{
    state.level = level;
}

int log_level_parse(const char *text, enum log_level *ret_level, struct err *err)
{
    for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, 0,
                   "\"%.40s\" is not a log level: use debug, info, warn or error", text);
}

void log_set_fd(int fd)
{
    state.fd = fd;
}

uint64_t log_dropped(void)
{
    return state.dropped;
}

// One write, never blocking: a pipe or socket that polls writable takes LOG_LINE_MAX bytes.
static bool write_line(const char *line, size_t len)
{
    struct pollfd ready = {.fd = state.fd, .events = POLLOUT};

    if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT))
        return false;
    return write(state.fd, line, len) == (ssize_t)len;
}

void log_write(enum log_level level, const char *msg, const struct kv *kvs)
{
    char line[LOG_LINE_MAX];
    struct timespec wall = {0};
    struct log_stamp stamp = {.boot = clock_now()};
    size_t len = 0;

    if (level < state.level)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &wall); // for people only, never compared
    stamp.wall_s = wall.tv_sec;
    stamp.wall_ns = wall.tv_nsec;
    if (state.dropped != state.dropped_said) {
        len = log_format(
            line, &stamp, LOG_LEVEL_WARN, "log lines dropped",
            LOG_KVS(kv_int("dropped", (int64_t)(state.dropped - state.dropped_said))));
        if (write_line(line, len))
            state.dropped_said = state.dropped;
    }
    len = log_format(line, &stamp, level, msg, kvs);
    if (!write_line(line, len))
        state.dropped++;
}
