// SPDX-License-Identifier: Apache-2.0
#pragma once
// driver: the command line of a simulation that is a function of its seed: many schedules,
// those that once failed, one to look at, and planted bugs that have to be found. What fails is
// run again with as few faults as still break the same promise.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/shrink.h"

#define DRIVER_WHY_SIZE 256

struct driver_run {
    uint64_t seed;
    int plant;
    bool is_verbose;
    struct muted muted;        // faults that do not begin
    int fault_count;           // set by the run: how many there were, muted ones included
    char why[DRIVER_WHY_SIZE]; // set by a run that fails
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

    // True: it broke a promise. `stats` has stats_bytes, zero at first.
    bool (*run)(struct driver_run *run, void *stats);
    // Prints what came up; the number of kinds that never did.
    int (*print_counts)(const void *stats);
};

// The exit status.
int driver_main(const struct driver *driver, int argc, char **argv);
