// SPDX-License-Identifier: Apache-2.0
#include "fence/remains.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fence/proc.h"

#define PATIENCE_NS (10 * NS_PER_SEC)
#define PAUSE_NS    (10 * NS_PER_MS)

struct search {
    const struct fence_status *left;
    char variable[sizeof("PGAPPNAME=") + FENCE_TAG_SIZE];
    pid_t found; // one that still lives; 0: none
};

static bool has_variable(pid_t pid, const char *variable)
{
    static char environment[262144];
    char path[64];
    ssize_t size = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    size = proc_read(path, environment, sizeof(environment));
    // With its NUL: no tag is the beginning of another one.
    return size > 0 && memmem(environment, (size_t)size, variable, strlen(variable) + 1);
}

static bool is_remains(const struct search *search, pid_t pid, struct proc_stat *ret_stat)
{
    if (pid == getpid() || !proc_stat_read(pid, ret_stat) || ret_stat->state == 'Z' ||
        ret_stat->state == 'X')
        return false;
    if (pid == search->left->pid && ret_stat->start_ticks == search->left->start_ticks)
        return true;
    return has_variable(pid, search->variable);
}

static void kill_if_remains(pid_t pid, void *arg)
{
    struct search *search = arg;
    struct proc_stat before = {0};
    struct proc_stat after = {0};
    int fd = -1;

    if (!is_remains(search, pid, &before))
        return;
    search->found = pid;
    fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return; // gone meanwhile, or the kernel is too old: then it is found again until we
                // give up
    if (proc_stat_read(pid, &after) && after.start_ticks == before.start_ticks)
        (void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    (void)close(fd);
}

int remains_kill(const struct fence_status *left, struct err *err)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct instant end = instant_add(clock_now(), PATIENCE_NS);
    struct search search = {.left = left};

    (void)snprintf(search.variable, sizeof(search.variable), "PGAPPNAME=%s", left->tag);
    for (;;) {
        search.found = 0;
        if (proc_each(kill_if_remains, &search) < 0)
            return err_set(err, ERR_TRANSIENT, 0, "/proc cannot be listed: mount it");
        if (search.found == 0)
            return 0;
        if (instant_reached(clock_now(), end))
            return err_set(err, ERR_TRANSIENT, 0,
                           "process %d of the incarnation before (%s) does not die: nothing is "
                           "started next to it",
                           search.found, left->tag);
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    }
}
