// SPDX-License-Identifier: Apache-2.0
#pragma once
// loop: the one event loop of the agent, libevent behind it. It owns nothing but its watchers'
// memory: file descriptors stay the caller's. Invariant: callbacks run only from loop_run,
// never from inside another call of this header, and a watcher that was freed or stopped never
// calls back again, not even for an event that was already pending in the same turn. Every
// watcher may be freed inside its own callback. Out of memory aborts (the agent's death is
// safe).

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

struct event_base;
struct loop;
struct loop_io;
struct loop_timer;
struct loop_deadline;
struct loop_signal;

// Errors: TRANSIENT when the kernel gives no epoll or timer descriptor.
must_check int loop_new(struct loop **ret_loop, struct err *err);
// All watchers must have been freed. Accepts NULL.
void loop_free(struct loop *loop);

// Runs until loop_stop. Blocks. Errors: BUG when the kernel refuses to wait.
must_check int loop_run(struct loop *loop, struct err *err);
void loop_stop(struct loop *loop);

// Runs one turn: waits for at least one event, calls back for all that are ready, then the turn
// function. For tests; loop_run is made of it. Returns false when no watcher is left.
bool loop_turn(struct loop *loop);

// Called once at the end of each turn in which callbacks ran: callbacks translate to events and
// return, the turn function decides once on all of them. NULL takes it away.
void loop_on_turn(struct loop *loop, void (*fn)(void *arg), void *arg);

// For base/resolve.c only.
struct event_base *loop_event_base(struct loop *loop);

// --- file descriptors: sockets, pipes, pidfds ---

enum {
    LOOP_READ = 1,
    LOOP_WRITE = 2,
};

typedef void loop_io_fn(int fd, unsigned events, void *arg);

// A watcher of no descriptor yet, called back with what is ready (errors and hang-ups show as
// every event that was asked for). `arg` is borrowed.
struct loop_io *loop_io_new(struct loop *loop, loop_io_fn *fn, void *arg);
// Watches `fd` for `events` (LOOP_READ | LOOP_WRITE), level-triggered and persistent, in place
// of whatever it watched before; 0 events or fd -1 pause it. Cheap when nothing changes, so
// call it with what is wanted now (CURLMOPT_SOCKETFUNCTION). Stop the watcher before its
// descriptor is closed, also before a call that may close and reopen it under the same number
// (PQconnectPoll, PQreset). Errors: INVALID when the descriptor is closed or can't be polled (a
// regular file).
must_check int loop_io_set(struct loop_io *io, int fd, unsigned events, struct err *err);
void loop_io_stop(struct loop_io *io);
void loop_io_free(struct loop_io *io);

// --- relative timers: polls, back-off, time-outs of requests ---
// CLOCK_MONOTONIC underneath, counted from the call (not from the start of the turn). They
// stand still while the machine is suspended: what must not be late uses a loop_deadline.

typedef void loop_timer_fn(void *arg);

struct loop_timer *loop_timer_new(struct loop *loop, loop_timer_fn *fn, void *arg);
// Fires once after `after_ns` nanoseconds (<= 0: in the next turn of the loop); replaces an
// earlier arming. Suits CURLMOPT_TIMERFUNCTION, which must not call curl itself.
void loop_timer_arm(struct loop_timer *timer, int64_t after_ns);
void loop_timer_stop(struct loop_timer *timer);
bool loop_timer_is_armed(const struct loop_timer *timer);
void loop_timer_free(struct loop_timer *timer);

// --- absolute deadlines on CLOCK_BOOTTIME ---
// One timerfd each: right across suspends, and independent of libevent's idea of time.

typedef void loop_deadline_fn(struct instant deadline, void *arg);

// Errors: TRANSIENT when the kernel gives no timerfd.
must_check int loop_deadline_new(struct loop *loop, loop_deadline_fn *fn, void *arg,
                                 struct loop_deadline **ret_deadline, struct err *err);
// Fires once when `t` has come, at once if it has passed; INSTANT_NEVER disarms. Replaces an
// earlier one. Cheap when `t` does not change.
void loop_deadline_set(struct loop_deadline *deadline, struct instant t);
void loop_deadline_free(struct loop_deadline *deadline);

// --- signals ---

typedef void loop_signal_fn(int signo, void *arg);

// Calls back in the loop for each (coalesced) delivery of `signo`, whose disposition the loop
// takes over. Returns NULL with INVALID for a signal that can't be caught.
struct loop_signal *loop_signal_new(struct loop *loop, int signo, loop_signal_fn *fn, void *arg,
                                    struct err *err);
void loop_signal_free(struct loop_signal *signal);

// --- processes ---

// Opens a pidfd: readable once the process has died. Watch it with a loop_io for LOOP_READ; the
// descriptor is the caller's to close. Errors: TRANSIENT, code ESRCH when there is no such
// process.
must_check int loop_pidfd_open(int pid, int *ret_fd, struct err *err);
