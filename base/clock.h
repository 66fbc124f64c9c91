// SPDX-License-Identifier: Apache-2.0
#pragma once
// clock: the one clock of all decisions, CLOCK_BOOTTIME, wrapped so that wall time cannot be
// mixed in. Instants may travel from the agent to metafence-run: same node, neither has a time
// namespace of its own. Durations are plain int64_t nanoseconds named *_ns.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct instant {
    int64_t ns; // CLOCK_BOOTTIME
};

#define INSTANT_NEVER ((struct instant){INT64_MAX})
#define NS_PER_MS     INT64_C(1000000)
#define NS_PER_SEC    INT64_C(1000000000)

struct instant clock_now(void); // CLOCK_BOOTTIME
struct instant
clock_monotonic(void); // CLOCK_MONOTONIC, only to see suspends: never mixed with the above

// Saturating: never overflows, INSTANT_NEVER stays never. Pure, so the core may use them.
static inline struct instant instant_add(struct instant t, int64_t delta_ns)
{
    int64_t sum = 0;
    if (t.ns == INT64_MAX)
        return t;
    if (__builtin_add_overflow(t.ns, delta_ns, &sum))
        sum = delta_ns > 0 ? INT64_MAX : INT64_MIN;
    return (struct instant){sum};
}

// a - b in nanoseconds, saturating.
static inline int64_t instant_since(struct instant a, struct instant b)
{
    int64_t diff = 0;
    if (__builtin_sub_overflow(a.ns, b.ns, &diff))
        diff = a.ns > b.ns ? INT64_MAX : INT64_MIN;
    return diff;
}

static inline bool instant_before(struct instant a, struct instant b)
{
    return a.ns < b.ns;
}

static inline bool instant_reached(struct instant now, struct instant t)
{
    return now.ns >= t.ns;
}

static inline struct instant instant_max(struct instant a, struct instant b)
{
    return a.ns > b.ns ? a : b;
}

static inline struct instant instant_min(struct instant a, struct instant b)
{
    return a.ns < b.ns ? a : b;
}

// Parses "250ms", "30s", "10m", "1h", "5us", "7ns": an unsigned integer and a unit, nothing
// else. Errors: INVALID, the message names the text and the fix.
must_check int duration_parse(const char *text, int64_t *ret_ns, struct err *err);

// Writes the shortest exact form ("2s", "1500ms"). Returns buf.
const char *duration_format(int64_t ns, char *buf, size_t size);
