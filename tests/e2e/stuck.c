// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD in tests of the agent. The call named by STUCK never returns once the file
// STUCK_FILE exists. SHIFT_S is added to every reading of the wall clock, and SHIFT_PERCENT of
// the time since the start, as on a host whose clock is wrong and drifts.
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static __thread bool is_asking;

static void maybe_stuck(const char *call)
{
    const char *stuck = NULL, *file = NULL;

    if (is_asking)
        return;
    is_asking = true;
    stuck = getenv("STUCK");
    file = getenv("STUCK_FILE");
    if (stuck && file && strcmp(stuck, call) == 0 && syscall(SYS_access, file, 0) == 0) {
        for (;;)
            (void)syscall(SYS_pause);
    }
    is_asking = false;
}

ssize_t recv(int fd, void *bytes, size_t size, int flags)
{
    maybe_stuck("recv");
    return syscall(SYS_recvfrom, fd, bytes, size, flags, NULL, NULL);
}

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    maybe_stuck("send");
    return syscall(SYS_sendto, fd, bytes, size, flags, NULL, 0);
}

int epoll_wait(int fd, struct epoll_event *events, int count, int timeout_ms)
{
    maybe_stuck("epoll_wait");
    return (int)syscall(SYS_epoll_pwait, fd, events, count, timeout_ms, NULL, 8);
}

void *__libc_malloc(size_t size);
void *malloc(size_t size)
{
    static __thread unsigned calls;

    // A login with SCRAM takes thousands: a system call for each is longer than its time-out
    // where the processor is busy.
    if (++calls % 64 == 0)
        maybe_stuck("malloc");
    return __libc_malloc(size);
}

// A number of the environment, 0 without.
static int64_t number(const char *name)
{
    const char *text = getenv(name);
    long long value = 0;

    return text && sscanf(text, "%lld", &value) == 1 ? value : 0;
}

static int64_t shift_ns(const struct timespec *now)
{
    static int64_t start_s;

    if (start_s == 0)
        start_s = now->tv_sec;
    return number("SHIFT_S") * 1000000000 +
           (now->tv_sec - start_s) * number("SHIFT_PERCENT") * 10000000;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int64_t ns = 0;

    maybe_stuck("clock_gettime");
    if (syscall(SYS_clock_gettime, clock, ret) != 0)
        return -1;
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return 0;
    ns = ret->tv_nsec + shift_ns(ret);
    ret->tv_sec += ns / 1000000000;
    ret->tv_nsec = ns % 1000000000;
    if (ret->tv_nsec < 0) {
        ret->tv_nsec += 1000000000;
        ret->tv_sec--;
    }
    return 0;
}
