// SPDX-License-Identifier: Apache-2.0
#pragma once
// await: which watch states are older than a write of ours. The answer to a write names
// the version that it made; until the watch shows that version, what it shows may be from
// before the write. A new list may jump over that version: who waited for KUBE_AWAIT_NS writes
// again, or reads. Pure. Versions are opaque and only compared for equality.

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define KUBE_VERSION_SIZE 64
#define KUBE_AWAIT_NS     (3 * NS_PER_SEC)

struct kube_await {
    bool is_waiting;
    char version[KUBE_VERSION_SIZE]; // "": not known
    struct instant since, until;
};

// A write was answered with `version` (NULL: not said); `seen` is what the watch showed last.
static inline void kube_await_begin(struct kube_await *await, const char *version,
                                    const char *seen, struct instant now)
{
    (void)snprintf(await->version, sizeof(await->version), "%s", version ? version : "");
    // A write that changed nothing is answered with the version that there was.
    await->is_waiting = !await->version[0] || strcmp(await->version, seen) != 0;
    await->since = now;
    await->until = instant_add(now, KUBE_AWAIT_NS);
}

// Whether the state `seen` may be older than the write, however long ago that was.
static inline bool kube_await_is_older(struct kube_await *await, const char *seen)
{
    if (await->is_waiting && await->version[0] && strcmp(await->version, seen) == 0)
        await->is_waiting = false;
    return await->is_waiting;
}

// The same, with an end.
static inline bool kube_await_blocks(struct kube_await *await, const char *seen,
                                     struct instant now)
{
    if (instant_reached(now, await->until))
        await->is_waiting = false;
    return kube_await_is_older(await, seen);
}

// A read of the newest state, asked for at `sent_at`.
static inline void kube_await_read(struct kube_await *await, struct instant sent_at)
{
    if (!instant_before(sent_at, await->since))
        await->is_waiting = false;
}
