// SPDX-License-Identifier: Apache-2.0
#pragma once
// pidstate: what pidfence knows of meta, in a file that outlives the agent: metafence-run's
// state file, in the folder of the fence's socket. Without it (a full disk, another owner) the
// fence works on; that is said once, and tried again.

#include <stdbool.h>

#include "agent/config.h"
#include "fence/proto.h"
#include "fence/shim.h"

struct pidstate {
    char path[CONFIG_SOCKET_SIZE + 8];
    int fd; // -1: none yet
    struct instant due;
    bool is_failed;
    struct fence_status written;
};

void pidstate_init(struct pidstate *state, const char *socket_path);
void pidstate_close(struct pidstate *state);

// True: *ret_left is what an earlier agent left.
bool pidstate_open(struct pidstate *state, struct fence_status *ret_left, struct instant now);

// Writes the sealed status if it says something new.
void pidstate_write(struct pidstate *state, const struct fence_status *status,
                    struct instant now);

// Whether they differ in more than when they were written.
bool pidstate_is_news(const struct fence_status *before, const struct fence_status *after);

// What an earlier agent left of an incarnation that still lives, as memory of its life.
void pidstate_resume(const struct fence_status *left, struct shim_memory *ret_memory);
