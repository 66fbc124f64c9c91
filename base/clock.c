// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct unit {
    const char *name;
    int64_t ns;
} units[] = {
    {"h", 3600 * NS_PER_SEC}, {"m", 60 * NS_PER_SEC}, {"s", NS_PER_SEC},
    {"ms", NS_PER_MS},        {"us", 1000},           {"ns", 1},
};

#define UNIT_COUNT (sizeof(units) / sizeof(units[0]))

static struct instant read_clock(clockid_t id)
{
    struct timespec ts = {0};

    // Fails only for an unknown clock or a bad pointer: neither is possible here.
    (void)clock_gettime(id, &ts);
    return (struct instant){(int64_t)ts.tv_sec * NS_PER_SEC + ts.tv_nsec};
}

struct instant clock_now(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

struct instant clock_monotonic(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

// Reads the digits at *text, moves *text behind them. Returns false on none or on overflow.
static bool read_digits(const char **text, int64_t *ret_value)
{
    const char *p = *text;
    int64_t value = 0;

    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *p - '0', &value))
            return false;
    *text = p;
    *ret_value = value;
    return true;
}

static const struct unit *find_unit(const char *name)
{
    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (strcmp(units[i].name, name) == 0)
            return &units[i];
    return NULL;
}

int duration_parse(const char *text, int64_t *ret_ns, struct err *err)
{
    const char *p = text;
    const struct unit *unit = NULL;
    int64_t count = 0;
    int64_t ns = 0;

    if (*p < '0' || *p > '9')
        return err_set(err, ERR_INVALID, 0,
                       "\"%.40s\" is not a duration: write a whole number and a unit, "
                       "like 250ms, 30s, 10m",
                       text);
    if (!read_digits(&p, &count))
        return err_set(err, ERR_INVALID, 0, "\"%.40s\" is too long a duration (max about 292y)",
                       text);
    unit = find_unit(p);
    if (!unit)
        return err_set(err, ERR_INVALID, 0,
                       *p ? "\"%.40s\" has a unit that is none of ns us ms s m h"
                          : "\"%.40s\" lacks a unit: append one of ns us ms s m h",
                       text);
    if (__builtin_mul_overflow(count, unit->ns, &ns))
        return err_set(err, ERR_INVALID, 0, "\"%.40s\" is too long a duration (max about 292y)",
                       text);
    *ret_ns = ns;
    return 0;
}

const char *duration_format(int64_t ns, char *buf, size_t size)
{
    const struct unit *unit = &units[UNIT_COUNT - 1];

    if (ns == 0) {
        (void)snprintf(buf, size, "0s");
        return buf;
    }
    for (size_t i = 0; i < UNIT_COUNT; i++) {
        if (ns % units[i].ns == 0) {
            unit = &units[i];
            break;
        }
    }
    (void)snprintf(buf, size, "%" PRId64 "%s", ns / unit->ns, unit->name);
    return buf;
}
