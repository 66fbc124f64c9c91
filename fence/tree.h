// SPDX-License-Identifier: Apache-2.0
#pragma once
// tree: all processes that come from meta. We are their subreaper (or PID 1), so that whatever
// is double forked or starts a session of its own comes back to us when its parent ends.
// Invariant: the tree is dead when waitpid says that we have no child left, never because a
// signal was sent.

#include <stdbool.h>
#include <sys/types.h>

// Makes us the subreaper. Returns 0, or -1 with errno.
int tree_adopt(void);

// SIGKILL to root and its group at once, then to every descendant of ours. `round` counts the
// calls for one death: a tree that forks faster than we look is met by kill(-1) if we are
// PID 1. Repeat until dead.
void tree_kill(pid_t root, unsigned round);

struct tree_end {
    bool root_ended;
    int wait_status; // of root
    bool is_empty;   // no child of any kind is left
};

// Reaps what has ended. Fields of *end are only ever set, so it may be called again and again
// for one root.
void tree_reap(pid_t root, struct tree_end *end);
