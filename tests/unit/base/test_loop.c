// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/loop.h"

#define GIVE_UP_NS (20 * NS_PER_SEC)

// What the callbacks of a test write to; `guard` ends a test that waits for ever.
struct world {
    struct loop *loop;
    struct loop_timer *guard;
    struct err err;
    int calls;
    int turns;
    unsigned events;
    struct instant at;
};

static void on_guard(void *arg)
{
    (void)arg;
    fail_msg("nothing happened for 20 s");
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    if (!w || loop_new(&w->loop, &w->err) < 0)
        return -1;
    w->guard = loop_timer_new(w->loop, on_guard, NULL);
    loop_timer_arm(w->guard, GIVE_UP_NS);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    loop_timer_free(w->guard);
    loop_free(w->loop);
    free(w);
    return 0;
}

static void count(void *arg)
{
    struct world *w = arg;

    w->calls++;
    w->at = clock_now();
}

static void on_ready(int fd, unsigned events, void *arg)
{
    struct world *w = arg;
    char byte = 0;

    w->events = events;
    if (events & LOOP_READ)
        assert_int_equal(read(fd, &byte, 1), 1);
    count(w);
}

static void on_deadline(struct instant deadline, void *arg)
{
    struct world *w = arg;

    assert_true(clock_now().ns >= deadline.ns);
    count(w);
}

static void turn_until(struct world *w, const int *counter, int value)
{
    while (*counter < value)
        assert_true(loop_turn(w->loop));
}

static void set_flag(void *arg)
{
    *(int *)arg = 1;
}

// Lets the loop turn for a while in which nothing else is expected.
static void turn_for(struct world *w, int64_t ns)
{
    int is_over = 0;
    struct loop_timer *timer = loop_timer_new(w->loop, set_flag, &is_over);

    loop_timer_arm(timer, ns);
    turn_until(w, &is_over, 1);
    loop_timer_free(timer);
}

static void test_timer_fires_once_not_early(void **state)
{
    struct world *w = *state;
    struct loop_timer *timer = loop_timer_new(w->loop, count, w);
    struct instant start = clock_now();

    loop_timer_arm(timer, 20 * NS_PER_MS);
    assert_true(loop_timer_is_armed(timer));
    turn_until(w, &w->calls, 1);
    assert_true(instant_since(w->at, start) >= 20 * NS_PER_MS);
    assert_false(loop_timer_is_armed(timer));
    loop_timer_free(timer);
}

static void test_timer_rearm_replaces_and_stop_stops(void **state)
{
    struct world *w = *state;
    struct loop_timer *stopped = loop_timer_new(w->loop, count, w);
    struct loop_timer *moved = loop_timer_new(w->loop, count, w);
    struct instant start = clock_now();

    loop_timer_arm(stopped, 1 * NS_PER_MS);
    loop_timer_stop(stopped);
    loop_timer_arm(moved, 1 * NS_PER_MS);
    loop_timer_arm(moved, 40 * NS_PER_MS);
    turn_until(w, &w->calls, 1);
    assert_true(instant_since(w->at, start) >= 40 * NS_PER_MS);
    assert_int_equal(w->calls, 1);
    loop_timer_arm(moved, -5);
    turn_until(w, &w->calls, 2);
    loop_timer_free(stopped);
    loop_timer_free(moved);
}

struct self_armed {
    struct world *w;
    struct loop_timer *timer;
};

static void on_self_armed(void *arg)
{
    struct self_armed *self = arg;
    struct instant spin_end = instant_add(clock_now(), 30 * NS_PER_MS);

    count(self->w);
    if (self->w->calls == 1) {
        while (!instant_reached(clock_now(), spin_end)) // a slow callback
            ;
        self->w->at = clock_now();
        loop_timer_arm(self->timer, 30 * NS_PER_MS);
    }
}

// A timer armed in a callback counts from the call, not from when the turn began.
static void test_timer_counts_from_the_call(void **state)
{
    struct world *w = *state;
    struct self_armed self = {.w = w};
    struct instant armed;

    self.timer = loop_timer_new(w->loop, on_self_armed, &self);
    loop_timer_arm(self.timer, 0);
    turn_until(w, &w->calls, 1);
    armed = w->at;
    turn_until(w, &w->calls, 2);
    assert_true(instant_since(w->at, armed) >= 30 * NS_PER_MS);
    loop_timer_free(self.timer);
}

static void free_own_timer(void *arg)
{
    struct self_armed *self = arg;

    count(self->w);
    loop_timer_free(self->timer);
}

static void test_timer_may_free_itself(void **state)
{
    struct world *w = *state;
    struct self_armed self = {.w = w};

    self.timer = loop_timer_new(w->loop, free_own_timer, &self);
    loop_timer_arm(self.timer, 0);
    turn_until(w, &w->calls, 1);
}

static void test_deadline_fires_at_its_time(void **state)
{
    struct world *w = *state;
    struct loop_deadline *deadline = NULL;
    struct instant t = instant_add(clock_now(), 30 * NS_PER_MS);

    assert_int_equal(loop_deadline_new(w->loop, on_deadline, w, &deadline, &w->err), 0);
    loop_deadline_set(deadline, t);
    loop_deadline_set(deadline, t);
    turn_until(w, &w->calls, 1);
    assert_true(w->at.ns >= t.ns);
    loop_deadline_set(deadline, (struct instant){1}); // long past: at once
    turn_until(w, &w->calls, 2);
    loop_deadline_set(deadline, (struct instant){-1});
    turn_until(w, &w->calls, 3);
    // The same instant again is a new order once the first has fired.
    loop_deadline_set(deadline, (struct instant){-1});
    turn_until(w, &w->calls, 4);
    loop_deadline_free(deadline);
}

static void test_deadline_moves_and_disarms(void **state)
{
    struct world *w = *state;
    struct loop_deadline *moved = NULL;
    struct loop_deadline *disarmed = NULL;
    struct instant late = instant_add(clock_now(), 50 * NS_PER_MS);

    assert_int_equal(loop_deadline_new(w->loop, on_deadline, w, &moved, &w->err), 0);
    assert_int_equal(loop_deadline_new(w->loop, on_deadline, w, &disarmed, &w->err), 0);
    loop_deadline_set(disarmed, instant_add(clock_now(), NS_PER_MS));
    loop_deadline_set(disarmed, INSTANT_NEVER);
    loop_deadline_set(moved, instant_add(clock_now(), NS_PER_MS));
    loop_deadline_set(moved, late);
    turn_until(w, &w->calls, 1);
    assert_true(w->at.ns >= late.ns);
    assert_int_equal(w->calls, 1);
    loop_deadline_free(moved);
    loop_deadline_free(disarmed);
}

struct mover {
    struct world *w;
    struct loop_deadline *other;
};

static void move_the_other(struct instant t, void *arg)
{
    struct mover *mover = arg;

    (void)t;
    mover->w->calls++;
    loop_deadline_set(mover->other, INSTANT_NEVER);
}

// Both are due in the same turn, the first to run takes the other's deadline away: it must not
// fire.
static void test_deadline_disarmed_in_the_same_turn(void **state)
{
    struct world *w = *state;
    struct mover a = {.w = w};
    struct mover b = {.w = w};
    struct loop_deadline *first = NULL;
    struct loop_deadline *second = NULL;

    assert_int_equal(loop_deadline_new(w->loop, move_the_other, &a, &first, &w->err), 0);
    assert_int_equal(loop_deadline_new(w->loop, move_the_other, &b, &second, &w->err), 0);
    a.other = second;
    b.other = first;
    loop_deadline_set(first, (struct instant){1});
    loop_deadline_set(second, (struct instant){1});
    turn_until(w, &w->calls, 1);
    turn_for(w, 5 * NS_PER_MS);
    assert_int_equal(w->calls, 1);
    loop_deadline_free(first);
    loop_deadline_free(second);
}

static void test_io_read_write_and_pause(void **state)
{
    struct world *w = *state;
    struct loop_io *io = loop_io_new(w->loop, on_ready, w);
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(loop_io_set(io, fds[0], LOOP_READ | LOOP_WRITE, &w->err), 0);
    turn_until(w, &w->calls, 1);
    assert_int_equal(w->events, LOOP_WRITE);
    assert_int_equal(loop_io_set(io, fds[0], LOOP_READ, &w->err), 0);
    assert_int_equal(write(fds[1], "ab", 2), 2);
    turn_until(w, &w->calls, 2);
    turn_until(w, &w->calls, 3); // level-triggered: the second byte calls again
    assert_int_equal(w->events, LOOP_READ);
    assert_int_equal(loop_io_set(io, fds[0], 0, &w->err), 0);
    assert_int_equal(write(fds[1], "c", 1), 1);
    turn_for(w, 5 * NS_PER_MS);
    assert_int_equal(w->calls, 3);
    assert_int_equal(loop_io_set(io, fds[0], LOOP_READ, &w->err), 0);
    turn_until(w, &w->calls, 4);
    loop_io_free(io);
    close(fds[0]);
    close(fds[1]);
}

// libpq closes a socket and opens the next under the same number.
static void test_io_same_number_after_stop(void **state)
{
    struct world *w = *state;
    struct loop_io *io = loop_io_new(w->loop, on_ready, w);
    int old_fds[2];
    int new_fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, old_fds), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, new_fds), 0);
    assert_int_equal(loop_io_set(io, old_fds[0], LOOP_READ, &w->err), 0);
    loop_io_stop(io);
    assert_int_equal(dup2(new_fds[0], old_fds[0]), old_fds[0]);
    assert_int_equal(loop_io_set(io, old_fds[0], LOOP_READ, &w->err), 0);
    assert_int_equal(write(new_fds[1], "x", 1), 1);
    turn_until(w, &w->calls, 1);
    loop_io_free(io);
    for (int i = 0; i < 2; i++) {
        close(old_fds[i]);
        close(new_fds[i]);
    }
}

static void test_io_refuses_what_cannot_be_polled(void **state)
{
    struct world *w = *state;
    struct loop_io *io = loop_io_new(w->loop, on_ready, w);
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(loop_io_set(io, fd, LOOP_READ, &w->err), -1);
    assert_int_equal(w->err.kind, ERR_INVALID);
    close(fd);
    assert_int_equal(loop_io_set(io, fd, LOOP_READ, &w->err), -1);
    assert_int_equal(w->err.code, EBADF);
    loop_io_free(io);
}

static void on_signal(int signo, void *arg)
{
    assert_int_equal(signo, SIGUSR1);
    count(arg);
}

static void test_signal_arrives_in_the_loop(void **state)
{
    struct world *w = *state;
    struct loop_signal *signal = loop_signal_new(w->loop, SIGUSR1, on_signal, w, &w->err);

    assert_non_null(signal);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(w->calls, 0); // not in the handler
    turn_until(w, &w->calls, 1);
    loop_signal_free(signal);
    assert_null(loop_signal_new(w->loop, SIGKILL, on_signal, w, &w->err));
    assert_int_equal(w->err.kind, ERR_INVALID);
}

static void on_death(int fd, unsigned events, void *arg)
{
    (void)fd;
    assert_true(events & LOOP_READ);
    count(arg);
}

static void test_pidfd(void **state)
{
    struct world *w = *state;
    struct loop_io *io = loop_io_new(w->loop, on_death, w);
    int fd = -1;
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(pause());
    assert_int_equal(loop_pidfd_open(pid, &fd, &w->err), 0);
    assert_int_equal(loop_io_set(io, fd, LOOP_READ, &w->err), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    turn_until(w, &w->calls, 1);
    loop_io_free(io);
    close(fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(loop_pidfd_open(pid, &fd, &w->err), -1);
    assert_int_equal(w->err.code, ESRCH);
}

static void on_turn(void *arg)
{
    struct world *w = arg;

    w->turns++;
    if (w->calls >= 2)
        loop_stop(w->loop);
}

// Two events of one turn are one decision.
static void test_turn_function_runs_once_a_turn(void **state)
{
    struct world *w = *state;
    struct loop_timer *a = loop_timer_new(w->loop, count, w);
    struct loop_timer *b = loop_timer_new(w->loop, count, w);

    loop_on_turn(w->loop, on_turn, w);
    loop_timer_arm(a, 0);
    loop_timer_arm(b, 0);
    assert_int_equal(loop_run(w->loop, &w->err), 0);
    assert_int_equal(w->calls, 2);
    assert_int_equal(w->turns, 1);
    loop_timer_free(a);
    loop_timer_free(b);
}

static void test_run_without_watchers_is_an_error(void **state)
{
    struct world *w = *state;

    loop_timer_stop(w->guard);
    assert_int_equal(loop_run(w->loop, &w->err), -1);
    assert_int_equal(w->err.kind, ERR_BUG);
}

#define LOOP_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
    LOOP_TEST(test_timer_fires_once_not_early),
    LOOP_TEST(test_timer_rearm_replaces_and_stop_stops),
    LOOP_TEST(test_timer_counts_from_the_call),
    LOOP_TEST(test_timer_may_free_itself),
    LOOP_TEST(test_deadline_fires_at_its_time),
    LOOP_TEST(test_deadline_moves_and_disarms),
    LOOP_TEST(test_deadline_disarmed_in_the_same_turn),
    LOOP_TEST(test_io_read_write_and_pause),
    LOOP_TEST(test_io_same_number_after_stop),
    LOOP_TEST(test_io_refuses_what_cannot_be_polled),
    LOOP_TEST(test_signal_arrives_in_the_loop),
    LOOP_TEST(test_pidfd),
    LOOP_TEST(test_turn_function_runs_once_a_turn),
    LOOP_TEST(test_run_without_watchers_is_an_error),
};

UNIT_MAIN(tests)
