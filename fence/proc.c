// SPDX-License-Identifier: Apache-2.0
#include "fence/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ssize_t proc_read(const char *path, char *buf, size_t size)
{
    size_t used = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    do {
        n = read(fd, buf + used, size - 1 - used);
        if (n > 0)
            used += (size_t)n;
    } while ((n > 0 && used < size - 1) || (n < 0 && errno == EINTR));
    (void)close(fd);
    if (n < 0)
        return -1;
    buf[used] = '\0';
    return (ssize_t)used;
}

static bool take_number(const char **p, uint64_t *ret)
{
    uint64_t value = 0;

    while (**p == ' ')
        (*p)++;
    if (**p == '-') // some fields may be -1; none of ours is
        (*p)++;
    if (**p < '0' || **p > '9')
        return false;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        value = value * 10 + (uint64_t)(**p - '0');
    *ret = value;
    return true;
}

bool proc_stat_parse(const char *text, struct proc_stat *ret)
{
    const char *p = strrchr(text, ')');
    struct proc_stat stat = {0};
    uint64_t number = 0;

    if (!p || p[1] != ' ' || p[2] == '\0')
        return false;
    stat.state = p[2];
    p += 3;
    // Field 4 is the parent, field 22 the start time.
    for (int field = 4; field <= 22; field++) {
        if (!take_number(&p, &number))
            return false;
        if (field == 4)
            stat.parent = (pid_t)number;
    }
    stat.start_ticks = number;
    *ret = stat;
    return true;
}

bool proc_stat_read(pid_t pid, struct proc_stat *ret)
{
    char path[64];
    char text[1024];

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    return proc_read(path, text, sizeof(text)) > 0 && proc_stat_parse(text, ret);
}

// A directory's name as a pid; 0: it is none.
static pid_t pid_of(const char *name)
{
    pid_t pid = 0;

    for (; *name >= '0' && *name <= '9' && pid < 100000000; name++)
        pid = pid * 10 + (*name - '0');
    return *name == '\0' ? pid : 0;
}

// Calls fn for each entry of the directory that is a number.
static int each_number(const char *path, char *entries, size_t size, proc_fn *fn, void *arg)
{
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    while ((n = getdents64(fd, entries, size)) > 0) { // opendir would allocate
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *entry = (const void *)(entries + at);
            pid_t pid = pid_of(entry->d_name);
            at += entry->d_reclen;
            if (pid > 0)
                fn(pid, arg);
        }
    }
    (void)close(fd);
    return n < 0 ? -1 : 0;
}

int proc_each(proc_fn *fn, void *arg)
{
    static char entries[32768] __attribute__((aligned(16)));

    return each_number("/proc", entries, sizeof(entries), fn, arg);
}

struct family {
    pid_t parent;
    proc_fn *fn;
    void *arg;
};

static void call_if_child(pid_t pid, void *arg)
{
    const struct family *family = arg;
    struct proc_stat stat = {0};

    if (proc_stat_read(pid, &stat) && stat.parent == family->parent)
        family->fn(pid, family->arg);
}

static void each_child_of_thread(pid_t thread, void *arg)
{
    static char text[65536];
    const struct family *family = arg;
    const char *p = text;
    uint64_t pid = 0;
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", family->parent, thread);
    if (proc_read(path, text, sizeof(text)) <= 0)
        return;
    while (take_number(&p, &pid))
        family->fn((pid_t)pid, family->arg);
}

void proc_each_child(pid_t pid, proc_fn *fn, void *arg)
{
    static char threads[32768] __attribute__((aligned(16)));
    struct family family = {.parent = pid, .fn = fn, .arg = arg};
    char path[64];

    if (access("/proc/thread-self/children", F_OK) != 0) {
        (void)proc_each(call_if_child, &family); // a kernel without CONFIG_PROC_CHILDREN
        return;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
    (void)each_number(path, threads, sizeof(threads), each_child_of_thread, &family);
}
