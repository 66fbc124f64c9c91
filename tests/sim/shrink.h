// SPDX-License-Identifier: Apache-2.0
#pragma once
// shrink: from a schedule that breaks a promise to one with fewer faults that still breaks it.
// A schedule's faults have numbers from 0 on; which of them are muted is a set of bits.

#include <stdbool.h>
#include <stdint.h>

#define MUTED_MAX 1024

struct muted {
    uint64_t bits[MUTED_MAX / 64];
};

bool muted_has(const struct muted *muted, int fault);
void muted_set(struct muted *muted, int fault, bool is_muted);

// All of them but those that a list names, "3,17,40". False: that is no list.
bool muted_keep(struct muted *ret_muted, const char *list);

// Does the schedule still break the same promise without these?
typedef bool (*shrink_fails)(void *arg, const struct muted *muted);

// Mutes ever smaller groups of the first `count` faults, and keeps what still fails, with
// `tries` runs at most. *muted is where it begins and what comes out. Returns how many are
// left.
int shrink_muted(struct muted *muted, int count, int tries, shrink_fails fails, void *arg);

// The promise is what stands before the colon. Does `why` break the one that `first` did?
bool shrink_is_same(const char *first, const char *why);

// Prints " --keep 3,17": what muted_keep reads.
void shrink_print_kept(const struct muted *muted, int count);
