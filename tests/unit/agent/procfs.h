// SPDX-License-Identifier: Apache-2.0
#pragma once
// procfs: a /proc of our own making in a temporary folder, for real and for imagined processes.

#include <stdint.h>
#include <sys/types.h>

#define PROCFS_SELF_NS 1 // mount namespace of the test's own container
#define PROCFS_META_NS 7
#define PROCFS_HIDDEN  0 // may not be read

struct procfs {
    char root[64];
};

struct procfs_process {
    int pid;
    int parent;
    uint64_t start_ticks;
    unsigned uid;
    unsigned mount_ns;
    char state;              // 0: S
    const char *arguments;   // words, separated by spaces
    const char *environment; // same; NULL: may not be read
};

// With an entry for ourselves.
void procfs_make(struct procfs *procfs);
void procfs_put(const struct procfs *procfs, const struct procfs_process *process);
void procfs_drop(const struct procfs *procfs, int pid);
void procfs_remove(const struct procfs *procfs);

// A child that sleeps until it is killed; its start time as the kernel knows it.
pid_t procfs_spawn(uint64_t *ret_start_ticks);
