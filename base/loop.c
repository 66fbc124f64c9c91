// SPDX-License-Identifier: Apache-2.0
#include "base/loop.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/log.h"

struct loop {
    struct event_base *base;
    void (*turn_fn)(void *arg);
    void *turn_arg;
    bool is_stopped;
    bool had_callback;
};

struct loop_io {
    struct loop *loop;
    struct event *event;
    int fd; // -1 while paused
    unsigned events;
    loop_io_fn *fn;
    void *arg;
};

struct loop_timer {
    struct loop *loop;
    struct event *event;
    loop_timer_fn *fn;
    void *arg;
};

struct loop_deadline {
    struct loop_io *io;
    int fd;
    struct instant t;
    loop_deadline_fn *fn;
    void *arg;
};

struct loop_signal {
    struct loop *loop;
    struct event *event;
    loop_signal_fn *fn;
    void *arg;
};

static void *must_alloc(size_t size)
{
    void *memory = calloc(1, size);

    if (!memory)
        abort();
    return memory;
}

// Warnings reach us as return values, with more context; a broken invariant ends the process
// next.
static void on_libevent_log(int severity, const char *text)
{
    if (severity == EVENT_LOG_ERR)
        log_error("libevent gives up", kv_str("text", text));
}

int loop_new(struct loop **ret_loop, struct err *err)
{
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;

    if (!config)
        abort();
    event_set_log_callback(on_libevent_log);
    // Without PRECISE_TIMER libevent reads MONOTONIC_COARSE (4 ms) and rounds epoll's wait up
    // to a millisecond; without NO_CACHE_TIME timers armed in a callback count from the turn's
    // start.
    event_config_set_flag(config,
                          EVENT_BASE_FLAG_PRECISE_TIMER | EVENT_BASE_FLAG_NO_CACHE_TIME);
    base = event_base_new_with_config(config);
    event_config_free(config);
    if (!base)
        return err_set(err, ERR_TRANSIENT, errno, "no event loop: %m");
    *ret_loop = must_alloc(sizeof(**ret_loop));
    (*ret_loop)->base = base;
    return 0;
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    // Only what libevent itself put off is left, like the ends of cancelled look-ups: let it
    // free that.
    (void)event_base_loop(loop->base, EVLOOP_NONBLOCK);
    event_base_free(loop->base);
    free(loop);
}

bool loop_turn(struct loop *loop)
{
    loop->had_callback = false;
    if (event_base_loop(loop->base, EVLOOP_ONCE) != 0)
        return false;
    if (loop->had_callback && loop->turn_fn)
        loop->turn_fn(loop->turn_arg);
    return true;
}

int loop_run(struct loop *loop, struct err *err)
{
    loop->is_stopped = false;
    while (!loop->is_stopped)
        if (!loop_turn(loop))
            return err_set(err, ERR_BUG, errno, "the event loop has nothing to wait for");
    return 0;
}

void loop_stop(struct loop *loop)
{
    loop->is_stopped = true;
}

void loop_on_turn(struct loop *loop, void (*fn)(void *arg), void *arg)
{
    loop->turn_fn = fn;
    loop->turn_arg = arg;
}

struct event_base *loop_event_base(struct loop *loop)
{
    return loop->base;
}

static void on_io(evutil_socket_t fd, short what, void *arg)
{
    struct loop_io *io = arg;
    unsigned events = 0;

    if (what & EV_READ)
        events |= LOOP_READ;
    if (what & EV_WRITE)
        events |= LOOP_WRITE;
    io->loop->had_callback = true;
    io->fn(fd, events, io->arg); // may free io
}

struct loop_io *loop_io_new(struct loop *loop, loop_io_fn *fn, void *arg)
{
    struct loop_io *io = must_alloc(sizeof(*io));

    *io = (struct loop_io){.loop = loop, .fd = -1, .fn = fn, .arg = arg};
    io->event = event_new(loop->base, -1, 0, on_io, io);
    if (!io->event)
        abort();
    return io;
}

int loop_io_set(struct loop_io *io, int fd, unsigned events, struct err *err)
{
    short what = EV_PERSIST;

    if (fd < 0 || events == 0) {
        loop_io_stop(io);
        return 0;
    }
    if (fd == io->fd && events == io->events)
        return 0;
    if (events & LOOP_READ)
        what |= EV_READ;
    if (events & LOOP_WRITE)
        what |= EV_WRITE;
    loop_io_stop(io);
    if (event_assign(io->event, io->loop->base, fd, what, on_io, io) != 0 ||
        event_add(io->event, NULL) != 0)
        return err_set(err, ERR_INVALID, errno, "descriptor %d can't be watched: %m", fd);
    io->fd = fd;
    io->events = events;
    return 0;
}

void loop_io_stop(struct loop_io *io)
{
    if (io->fd < 0)
        return;
    (void)event_del(io->event); // fails only for an event that was never assigned
    io->fd = -1;
    io->events = 0;
}

void loop_io_free(struct loop_io *io)
{
    if (!io)
        return;
    loop_io_stop(io);
    event_free(io->event);
    free(io);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct loop_timer *timer = arg;

    (void)fd;
    (void)what;
    timer->loop->had_callback = true;
    timer->fn(timer->arg); // may free timer
}

struct loop_timer *loop_timer_new(struct loop *loop, loop_timer_fn *fn, void *arg)
{
    struct loop_timer *timer = must_alloc(sizeof(*timer));

    *timer = (struct loop_timer){.loop = loop, .fn = fn, .arg = arg};
    timer->event = evtimer_new(loop->base, on_timer, timer);
    if (!timer->event)
        abort();
    return timer;
}

void loop_timer_arm(struct loop_timer *timer, int64_t after_ns)
{
    int64_t us = after_ns <= 0 ? 0 : after_ns / 1000 + (after_ns % 1000 != 0);
    struct timeval tv = {.tv_sec = us / 1000000, .tv_usec = us % 1000000};

    if (evtimer_add(timer->event, &tv) != 0)
        abort(); // a timer is heap memory only
}

void loop_timer_stop(struct loop_timer *timer)
{
    (void)evtimer_del(timer->event);
}

bool loop_timer_is_armed(const struct loop_timer *timer)
{
    return evtimer_pending(timer->event, NULL) != 0;
}

void loop_timer_free(struct loop_timer *timer)
{
    if (!timer)
        return;
    event_free(timer->event); // deletes it first
    free(timer);
}

static void on_deadline(int fd, unsigned events, void *arg)
{
    struct loop_deadline *deadline = arg;
    struct instant t = deadline->t;
    uint64_t expirations = 0;

    (void)events;
    // EAGAIN: the deadline was moved after the descriptor got ready in this turn.
    if (read(fd, &expirations, sizeof(expirations)) != (ssize_t)sizeof(expirations))
        return;
    deadline->t = INSTANT_NEVER;
    deadline->fn(t, deadline->arg); // may free deadline
}

int loop_deadline_new(struct loop *loop, loop_deadline_fn *fn, void *arg,
                      struct loop_deadline **ret_deadline, struct err *err)
{
    int fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    struct loop_deadline *deadline = NULL;

    if (fd < 0)
        return err_set(err, ERR_TRANSIENT, errno, "no timer descriptor: %m");
    deadline = must_alloc(sizeof(*deadline));
    *deadline = (struct loop_deadline){.fd = fd, .t = INSTANT_NEVER, .fn = fn, .arg = arg};
    deadline->io = loop_io_new(loop, on_deadline, deadline);
    if (loop_io_set(deadline->io, fd, LOOP_READ, err) < 0) {
        loop_deadline_free(deadline);
        return err_wrap(err, "deadline");
    }
    *ret_deadline = deadline;
    return 0;
}

void loop_deadline_set(struct loop_deadline *deadline, struct instant t)
{
    struct itimerspec spec = {0};
    int64_t ns = t.ns > 0 ? t.ns : 1; // zero would disarm, the past fires at once

    if (t.ns == deadline->t.ns)
        return;
    if (t.ns != INSTANT_NEVER.ns) {
        spec.it_value.tv_sec = ns / NS_PER_SEC;
        spec.it_value.tv_nsec = ns % NS_PER_SEC;
    }
    deadline->t = t;
    if (timerfd_settime(deadline->fd, TFD_TIMER_ABSTIME, &spec, NULL) != 0)
        abort(); // only for arguments that can't occur; a deadline that is not armed must not
                 // live on
}

void loop_deadline_free(struct loop_deadline *deadline)
{
    if (!deadline)
        return;
    loop_io_free(deadline->io);
    close(deadline->fd);
    free(deadline);
}

static void on_signal(evutil_socket_t signo, short what, void *arg)
{
    struct loop_signal *signal = arg;

    (void)what;
    signal->loop->had_callback = true;
    signal->fn(signo, signal->arg);
}

struct loop_signal *loop_signal_new(struct loop *loop, int signo, loop_signal_fn *fn, void *arg,
                                    struct err *err)
{
    struct loop_signal *signal = must_alloc(sizeof(*signal));

    *signal = (struct loop_signal){.loop = loop, .fn = fn, .arg = arg};
    signal->event = evsignal_new(loop->base, signo, on_signal, signal);
    if (!signal->event || evsignal_add(signal->event, NULL) != 0) {
        loop_signal_free(signal);
        (void)err_set(err, ERR_INVALID, errno, "signal %d can't be caught", signo);
        return NULL;
    }
    return signal;
}

void loop_signal_free(struct loop_signal *signal)
{
    if (!signal)
        return;
    if (signal->event)
        event_free(signal->event);
    free(signal);
}

int loop_pidfd_open(int pid, int *ret_fd, struct err *err)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0)
        return err_set(err, ERR_TRANSIENT, errno, "pidfd of process %d: %m", pid);
    *ret_fd = fd;
    return 0;
}
