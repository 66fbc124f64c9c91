// SPDX-License-Identifier: Apache-2.0
#pragma once
// proc: what /proc says about processes, without allocation. A process may end between any two
// calls: "gone" is an ordinary answer.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_stat {
    pid_t parent;
    char state;           // R S D T t Z X …
    uint64_t start_ticks; // with the pid it names a process for good
};

// False: gone or unreadable.
bool proc_stat_read(pid_t pid, struct proc_stat *ret);

// From the text of /proc/PID/stat; the command in its parentheses may hold anything. False: not
// understood.
bool proc_stat_parse(const char *text, struct proc_stat *ret);

// Calls fn for each process that we see, in the kernel's order. Returns -1 if /proc cannot be
// listed.
typedef void proc_fn(pid_t pid, void *arg);
int proc_each(proc_fn *fn, void *arg);

// Calls fn for each child of each thread of pid, zombies included: from
// /proc/PID/task/TID/children where the kernel has it, else by looking at the parent of every
// process.
void proc_each_child(pid_t pid, proc_fn *fn, void *arg);

// At most size - 1 bytes of the file and a NUL. Returns the length, or -1: gone or unreadable.
ssize_t proc_read(const char *path, char *buf, size_t size);
