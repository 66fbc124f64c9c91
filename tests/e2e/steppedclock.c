// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: the wall clock of a program, and of its children, is off by what the file
// CLOCK_STEP holds: a long, in microseconds. It is looked at each time, so that a write to the
// file is a step of the clock. CLOCK_MONOTONIC and CLOCK_BOOTTIME stay.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int clock_fn(clockid_t clock, struct timespec *now);

// What the C library calls so; names of our own, as its declarations promise what callers don't
// keep.
int stepped_gettimeofday(struct timeval *now, void *zone) __asm__("gettimeofday");
int stepped_gettime(clockid_t clock, struct timespec *now) __asm__("clock_gettime");
time_t stepped_time(time_t *ret_now) __asm__("time");

static long step_us(void)
{
    static const volatile long *step;
    static const long none;
    const char *path = getenv("CLOCK_STEP");
    void *map = MAP_FAILED;

    if (!step) {
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

        if (fd >= 0) {
            map = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, fd, 0);
            close(fd);
        }
        step = map == MAP_FAILED ? &none : map;
    }
    return *step;
}

int stepped_gettime(clockid_t clock, struct timespec *now)
{
    static clock_fn *real;
    int status;
    long us;

    if (!real)
        real = (clock_fn *)dlsym(RTLD_NEXT, "clock_gettime");
    status = real(clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        us = now->tv_sec * 1000000L + now->tv_nsec / 1000 + step_us();
        now->tv_nsec = us % 1000000 * 1000 + now->tv_nsec % 1000;
        now->tv_sec = us / 1000000;
    }
    return status;
}

// The zone is no clock's, and nobody asks for it any more.
int stepped_gettimeofday(struct timeval *now, void *zone)
{
    struct timespec exact;
    int status = stepped_gettime(CLOCK_REALTIME, &exact);

    (void)zone;
    if (status == 0 && now) {
        now->tv_sec = exact.tv_sec;
        now->tv_usec = exact.tv_nsec / 1000;
    }
    return status;
}

time_t stepped_time(time_t *ret_now)
{
    struct timespec exact;

    stepped_gettime(CLOCK_REALTIME, &exact);
    if (ret_now)
        *ret_now = exact.tv_sec;
    return exact.tv_sec;
}
