// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: the wall clock of a program, and of its children, is off by what the file CLOCK_STEP holds: a
// long, in microseconds. It is looked at each time, so that a write to the file is a step of the clock.
// CLOCK_MONOTONIC and CLOCK_BOOTTIME stay.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long step_us(void)
{
    static const volatile long *step;
    static const long none;
    const char *path = getenv("CLOCK_STEP");

    if (!step) {
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, fd, 0);

        if (fd >= 0)
            close(fd);
        step = map == MAP_FAILED ? &none : map;
    }
    return *step;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    static int (*real)(struct timeval *, void *);
    int status;
    long us;

    if (!real)
        real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    status = real(now, zone);
    if (status == 0 && now) {
        us = now->tv_sec * 1000000L + now->tv_usec + step_us();
        now->tv_sec = us / 1000000;
        now->tv_usec = us % 1000000;
    }
    return status;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    int status;
    long us;

    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    status = real(clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        us = now->tv_sec * 1000000L + now->tv_nsec / 1000 + step_us();
        now->tv_nsec = us % 1000000 * 1000 + now->tv_nsec % 1000;
        now->tv_sec = us / 1000000;
    }
    return status;
}

time_t time(time_t *ret_now)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (ret_now)
        *ret_now = now.tv_sec;
    return now.tv_sec;
}
