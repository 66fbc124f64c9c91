// SPDX-License-Identifier: Apache-2.0
#pragma once
// spawn: one incarnation of meta: a fresh session tag in its environment, its own process
// group, and SIGKILL for it when we die. All memory is taken in spawn_init.

#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "fence/proto.h"

struct spawn {
    char **argv; // borrowed
    char **environment;
    char tag_variable[sizeof("PGAPPNAME=") + FENCE_TAG_SIZE];
    char pod[9];              // first 8 characters of the pod's uid
    sigset_t child_mask;      // signals blocked in meta
    struct rlimit child_core; // meta keeps the limit that we were given
};

struct spawned {
    pid_t pid;
    uint64_t start_ticks;
    const char *tag; // in struct spawn, until the next spawn_start
};

// Builds the environment; the only allocation. Errors: TRANSIENT (no memory).
must_check int spawn_init(struct spawn *spawn, char **argv, const char *pod_uid,
                          struct err *err);

// Starts argv with a new tag and returns once it is executed. Errors: TRANSIENT (fork, random
// numbers), INVALID (cannot be executed; code is errno). Nothing is left running on an error.
must_check int spawn_start(struct spawn *spawn, struct spawned *ret, struct err *err);
