// SPDX-License-Identifier: Apache-2.0
#pragma once
// guard: a real metafence-run in a folder of its own, a shell script as its meta, and its
// agent's end of the socket. Waits are for conditions, with a bound that only a broken program
// reaches.

#include <stdbool.h>
#include <sys/types.h>

#include "fence/proto.h"

struct guard {
    char dir[64];
    char socket[96];
    char state[96];
    char log[96];
    const char *const *options; // more of them, NULL-terminated; may be NULL
    const char *script;         // of meta; $DIR is the folder
    const char *command;        // what it is given to; NULL: a shell
    pid_t pid;                  // 0: not running
    int fd;                     // the agent's end; -1: none
    uint64_t seq;
    struct fence_status status; // last heard
};

// A folder, and nothing that runs.
void guard_make(struct guard *guard);
void guard_remove(struct guard *guard); // ends what still runs

void guard_start(struct guard *guard);
int guard_wait(struct guard *guard); // its exit status; -1: a signal ended it

// Runs metafence-run with these words to its end: its exit status. Its output goes to the log.
int guard_run(struct guard *guard, const char *const *words);

int guard_dial(
    const struct guard *guard); // one more connection, as soon as there is a listener
void guard_connect(struct guard *guard);

// A good read of this very moment that names another owner: the start gate opens.
struct fence_order guard_order(const struct guard *guard, enum fence_role role);
void guard_send(struct guard *guard, struct fence_order order);
void guard_send_by(int fd, struct fence_order order, uint64_t seq);

// Reads statuses until one is as wanted.
typedef bool guard_wants(const struct fence_status *status);
void guard_until(struct guard *guard, guard_wants *wants);

void guard_until_logged(const struct guard *guard, const char *text);
void guard_until_file(const struct guard *guard, const char *name); // in the folder, not empty
pid_t guard_pid_in(const struct guard *guard, const char *name);
void guard_until_dead(pid_t pid);
