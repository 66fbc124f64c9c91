// SPDX-License-Identifier: Apache-2.0
#pragma once
// run_state: everything that the loop of metafence-run owns, for prepare.c and run.c.

#include <stdbool.h>
#include <sys/types.h>

#include "fence/options.h"
#include "fence/shim.h"
#include "fence/sock.h"
#include "fence/spawn.h"
#include "fence/tree.h"

struct run {
    const struct options *options; // borrowed
    struct shim_memory memory;
    struct shim_facts facts;
    struct instant now;

    struct spawn spawn;
    pid_t root; // meta; 0: none
    struct tree_end end;
    unsigned kill_round; // of this death; 0: not killing
    int64_t kill_gap_ns;
    struct instant kill_at;
    int term_signal;  // the first of TERM and INT that came
    int failed_start; // exit status when meta cannot be executed

    int signal_fd;
    int timer_fd;
    int state_fd;
    struct ports_reader ports;
    struct sock sock;
    struct instant wake_at;
    struct instant sample_at;
    struct instant rewrite_at;

    struct fence_status published; // as last written and sent
    bool state_failed;
    bool ports_failed;
    unsigned long long garbage;
    struct instant garbage_log_at;
};
