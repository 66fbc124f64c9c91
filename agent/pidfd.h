// SPDX-License-Identifier: Apache-2.0
#pragma once
// pidfd: processes by what /proc says of them, and their end by pidfd. A process is named by
// its pid and its start time, so that a number that now belongs to another one is never hit.
// Invariants: a group is dead when every pidfd that was opened for it is readable and two looks
// in a row find no other member alive, never because a signal was sent; ourselves and our
// descendants are no members of anything.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "fence/proto.h"

#define PIDFD_MEMBERS_MAX 256 // pidfds of one group; more processes are met in the next round

struct pidfd_process {
    int pid; // 0: none
    int parent;
    char state;           // R S D T t Z X …
    uint64_t start_ticks; // since boot; field 22 of stat
    uint32_t uid;         // real
    uint64_t mount_ns; // of its mount namespace, which is its container's; 0: may not be read
};

// What /proc looks like to us. `root` is "/proc", or a folder that a test has made.
struct pidfd_view {
    const char *root;
    int self;
    uint32_t uid;
    uint64_t mount_ns; // ours; 0: not known
};

// The present process in `root`.
void pidfd_view_init(struct pidfd_view *view, const char *root);

// False: there is no such process, or no longer.
bool pidfd_read_process(const struct pidfd_view *view, int pid, struct pidfd_process *ret);

// State, parent and start time alone. False as above.
bool pidfd_read_stat(const struct pidfd_view *view, int pid, struct pidfd_process *ret);

// No zombie.
bool pidfd_is_alive(const struct pidfd_process *process);

// By our clock, as exact as the kernel's ticks; never later than now.
struct instant pidfd_started_at(const struct pidfd_process *process);

// Is `pid` the process `ancestor`, or one that it or its children have started?
bool pidfd_comes_from(const struct pidfd_view *view, int pid, int ancestor);

// Calls fn for each process, in the kernel's order. Returns -1 with errno when the folder can't
// be listed.
int pidfd_each(const struct pidfd_view *view, void (*fn)(int pid, void *arg), void *arg);

// The session tag in its environment, if it is one of ours; else, or if it may not be read, "".
void pidfd_read_tag(const struct pidfd_view *view, int pid, char tag[FENCE_TAG_SIZE]);

struct pidfd_search {
    struct pidfd_process process;   // the eldest that fits, of our own user if there is one
    struct pidfd_process ambiguous; // pid 0; or one that fits in another container than that
    bool is_mount_unknown;          // … whose mount namespace may not be read
};

// Looks for a process with `command` as one whole argument behind the program's name, in
// another mount namespace than ours. Errors: TRANSIENT when /proc can't be listed.
must_check int pidfd_find(const struct pidfd_view *view, const char *command,
                          struct pidfd_search *ret, struct err *err);

struct pidfd_member {
    int pid;
    uint64_t start_ticks;
    int fd;
    bool is_dead;
};

// A process and all that ends with it: who is in its mount namespace; where that is ours or may
// not be read, its descendants; and with a tag all that carry it. Zero is no group.
struct pidfd_group {
    const struct pidfd_view *view; // borrowed
    struct pidfd_process leader;
    int spared;               // pid that is left alone; 0: none
    char tag[FENCE_TAG_SIZE]; // "": membership is not known by it
    size_t count;
    struct pidfd_member members[PIDFD_MEMBERS_MAX];
};

// Opens the leader's pidfd and makes sure that it still is the process described. Errors:
// TRANSIENT (it is not), code ESRCH.
must_check int pidfd_group_open(struct pidfd_group *group, const struct pidfd_view *view,
                                const struct pidfd_process *leader, struct err *err);
// Accepts a zero group, and makes one of it.
void pidfd_group_close(struct pidfd_group *group);

// Whether we may kill its leader: nothing is sent. Errors: DENIED, TRANSIENT (ESRCH: it is
// dead).
must_check int pidfd_group_may_kill(const struct pidfd_group *group, struct err *err);

bool pidfd_group_leader_lives(struct pidfd_group *group);

// Of a member that was not seen dead, for a watch; -1: none.
int pidfd_group_watch_fd(const struct pidfd_group *group);

// Looks for members. True: the group is dead.
bool pidfd_group_look(struct pidfd_group *group);

// SIGKILL to all known members at once, then to those that a look finds. Repeat until dead.
// Errors: DENIED, for the first member that we may not kill; the others were killed.
must_check int pidfd_group_kill(struct pidfd_group *group, struct err *err);
