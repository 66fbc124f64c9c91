// SPDX-License-Identifier: Apache-2.0
#pragma once
// follow: the changes of a collection from a list on. It goes on by itself where a stream ended
// in good order or broke, from the version that it had come to; where changes may have been
// missed (410 in both disguises, garbage, two failures in a row) it says so once and stands
// still until it is begun again with the version of a new list. It makes no lists: who needs to
// be sure looks for himself.

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"
#include "k8s/change.h"
#include "k8s/client.h"

struct k8s_follow;

struct k8s_follow_ops {
    // Never a bookmark; borrowed for the call. Returns < 0 with *err if it can't be used: that
    // is a change that was missed.
    int (*on_change)(const struct k8s_change *change, void *arg, struct err *err);
    void (*on_lost)(const struct err *err, void *arg);
};

struct k8s_follow_call {
    const char *path;     // both as in struct k8s_list_call
    const char *selector; // NULL: all
};

// `call` is copied, `ops` borrowed. Does nothing before k8s_follow_begin.
struct k8s_follow *k8s_follow_new(struct k8s *k8s, struct loop *loop,
                                  const struct k8s_follow_call *call,
                                  const struct k8s_follow_ops *ops, void *arg);
// From behind `version`. While it stands or goes on by itself this does nothing. Not from
// inside a callback of this follow.
void k8s_follow_begin(struct k8s_follow *follow, const char *version);
bool k8s_follow_is_lost(const struct k8s_follow *follow); // or was never begun
// At any moment, but not from inside its callbacks. Accepts NULL.
void k8s_follow_free(struct k8s_follow *follow);

// In place of 150 s and half a second, for tests; before the first begin.
void k8s_follow_set_times(struct k8s_follow *follow, int64_t silence_ns, int64_t retry_ns);
// Times that changes may have been missed, for metrics.
uint64_t k8s_follow_losses(const struct k8s_follow *follow);
