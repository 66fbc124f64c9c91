// SPDX-License-Identifier: Apache-2.0
#pragma once
// log: logfmt lines on stderr, one write(2) a line. A line is at most LOG_LINE_MAX bytes, so
// that a pipe takes it whole; a pipe that is full never blocks the caller: the line is dropped
// and counted, and a line of its own says how many (dropped=N) once there is room again. Only
// main, agent and execute log; libraries return errors. Callers log edges and never log a
// secret.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

#define LOG_LINE_MAX 4096 // PIPE_BUF: what a ready pipe takes without blocking

enum log_level {
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_INFO,
    LOG_LEVEL_WARN,
    LOG_LEVEL_ERROR,
};

enum kv_kind { KV_STR, KV_INT, KV_BOOL, KV_DUR };

// One key=value pair. Keys are literals of [a-z0-9_]; strings are borrowed for the call.
struct kv {
    const char *key;
    enum kv_kind kind;
    int64_t num;
    const char *str;
};

// A NULL string is written as an empty value.
static inline struct kv kv_str(const char *key, const char *value)
{
    return (struct kv){.key = key, .kind = KV_STR, .str = value};
}

static inline struct kv kv_int(const char *key, int64_t value)
{
    return (struct kv){.key = key, .kind = KV_INT, .num = value};
}

static inline struct kv kv_bool(const char *key, bool value)
{
    return (struct kv){.key = key, .kind = KV_BOOL, .num = value};
}

static inline struct kv kv_dur(const char *key, int64_t ns)
{
    return (struct kv){.key = key, .kind = KV_DUR, .num = ns};
}

// CLOCK_BOOTTIME nanoseconds, to lay lines of several processes on one time axis.
static inline struct kv kv_instant(const char *key, struct instant t)
{
    return kv_int(key, t.ns);
}

// err=... with the message only.
static inline struct kv kv_err(const struct err *err)
{
    return kv_str("err", err->msg);
}

// Lines below `level` are not written. Default INFO.
void log_set_level(enum log_level level);

// "debug", "info", "warn", "error". Errors: INVALID.
must_check int log_level_parse(const char *text, enum log_level *ret_level, struct err *err);

// Where lines go, for tests; default is fd 2. The fd stays the caller's.
void log_set_fd(int fd);

// How many lines were dropped since the start because the reader was slow.
uint64_t log_dropped(void);

// Writes one line. `kvs` ends at the first element with a NULL key.
void log_write(enum log_level level, const char *msg, const struct kv *kvs);

// Formats a line (with its newline) into `line` without writing it. Returns its length. Values
// are quoted when they need it, control bytes escaped; a line that gets too long loses whole
// pairs from its end and says truncated=true. Pure but for the clocks, which the caller reads.
struct log_stamp {
    struct instant boot;
    int64_t wall_s;
    int64_t wall_ns;
};
size_t log_format(char line[LOG_LINE_MAX], const struct log_stamp *stamp, enum log_level level,
                  const char *msg, const struct kv *kvs);

#define LOG_KVS(...)        ((const struct kv[]){__VA_ARGS__ __VA_OPT__(, ){.key = NULL}})
#define log_debug(msg, ...) log_write(LOG_LEVEL_DEBUG, msg, LOG_KVS(__VA_ARGS__))
#define log_info(msg, ...)  log_write(LOG_LEVEL_INFO, msg, LOG_KVS(__VA_ARGS__))
#define log_warn(msg, ...)  log_write(LOG_LEVEL_WARN, msg, LOG_KVS(__VA_ARGS__))
#define log_error(msg, ...) log_write(LOG_LEVEL_ERROR, msg, LOG_KVS(__VA_ARGS__))
