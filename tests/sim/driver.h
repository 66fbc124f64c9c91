// SPDX-License-Identifier: Apache-2.0
#pragma once
// driver: a simulation that is a function of its seed. The command line: many schedules, those
// that once failed, one to look at, and planted bugs that have to be found; what fails is run
// again with as few faults as still break the same promise. And what each world needs of the
// schedule that it plays: chance, time, the timeline, and the first promise that it breaks.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/shrink.h"

#define DRIVER_WHY_SIZE 256

struct driver_run {
    uint64_t seed;
    int plant;
    bool is_verbose;
    struct muted muted; // faults that do not begin

    // Of the world that plays it; the driver begins each run with zeros, and rng by the seed.
    uint64_t rng;
    int64_t now;               // ns, virtual
    int fault_count;           // muted ones included
    bool failed;               // it broke a promise, …
    char why[DRIVER_WHY_SIZE]; // … the first of them
};

struct driver_plant {
    const char *name;
    const char *breaks; // how the failure begins
};

struct driver {
    const char *name;                  // "simulate-order"
    const struct driver_plant *plants; // the first is none
    int plant_count;
    size_t stats_bytes;
    uint64_t count;   // schedules, unless they are asked for
    uint64_t share;   // … or METAFENCE_SIM_SCHEDULES says so: one in so many of those
    bool needs_seeds; // a file of seeds without one is a failure

    // `stats` has stats_bytes, zero at first.
    void (*play)(struct driver_run *run, void *stats);
    // Prints what came up; the number of kinds that never did.
    int (*print_counts)(const void *stats);
};

// ---- for the world

// From low to below high; low, and nothing drawn, when that is empty.
int64_t driver_between(struct driver_run *run, int64_t low, int64_t high);
bool driver_chance(struct driver_run *run, int percent);
// Counts a fault that is about to begin; true: it is muted.
bool driver_mutes_next(struct driver_run *run);
// A line of the timeline, when somebody looks.
void driver_say(const struct driver_run *run, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// Only the first failure counts: what comes after it may be its consequence.
void driver_fail(struct driver_run *run, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

// ---- for main()

// The exit status.
int driver_main(const struct driver *driver, int argc, char **argv);
