// SPDX-License-Identifier: Apache-2.0
#pragma once
// options: the command line of simulate.

#include "tests/sim/cluster.h"

#define OPTIONS_JOBS_MAX 64

struct options {
    uint64_t seed;
    uint64_t count;
    int64_t ttl_ns; // 0: three in four at 5 s, the others at 30 s
    bool verbose;
    bool plants;
    enum plant plant;
    const char *seeds;
    uint64_t calm_hours;
    bool plain, with_cluster, with_hosts; // whatever the seed
    uint64_t minutes; // 0: every fifth lasts for ten, the others for two or three
    uint64_t jobs;    // processes
    struct muted muted;
};

// False after a line on standard error: what is asked for makes no sense.
bool options_parse(int argc, char **argv, struct options *options);

// What a test run sets for all simulations. False: it is no number.
bool options_take_environment(struct options *options);

// Digits behind blanks, up to the first other character. False: none, or too many.
bool options_take_number(const char **at, uint64_t *ret);
