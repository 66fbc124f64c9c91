// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/procfs.h"
#include "tests/unit/unit.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/pidfd.h"

static void put_file(const struct procfs *procfs, int pid, const char *name, const char *bytes,
                     size_t size)
{
    char path[128];
    FILE *file = NULL;

    (void)snprintf(path, sizeof(path), "%s/%d/%s", procfs->root, pid, name);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

// Words end with NUL in /proc.
static void put_words(const struct procfs *procfs, int pid, const char *name, const char *words)
{
    char text[512];
    size_t size = strlen(words) + 1;

    (void)snprintf(text, sizeof(text), "%s", words);
    for (size_t i = 0; i < size; i++)
        if (text[i] == ' ')
            text[i] = '\0';
    put_file(procfs, pid, name, text, size);
}

void procfs_put(const struct procfs *procfs, const struct procfs_process *process)
{
    char path[128];
    char text[512];

    (void)snprintf(path, sizeof(path), "%s/%d", procfs->root, process->pid);
    (void)mkdir(path, 0755);
    (void)snprintf(
        text, sizeof(text),
        "%d (a ) R 1 name) %c %d 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 %llu 1 1\n",
        process->pid, process->state ? process->state : 'S', process->parent,
        (unsigned long long)process->start_ticks);
    put_file(procfs, process->pid, "stat", text, strlen(text));
    (void)snprintf(text, sizeof(text),
                   "Name:\ta\nUmask:\t0022\nUid:\t%u\t%u\t%u\t%u\nGid:\t9\n", process->uid,
                   process->uid, process->uid, process->uid);
    put_file(procfs, process->pid, "status", text, strlen(text));
    put_words(procfs, process->pid, "cmdline", process->arguments);
    (void)snprintf(path, sizeof(path), "%s/%d/environ", procfs->root, process->pid);
    (void)unlink(path);
    if (process->environment)
        put_words(procfs, process->pid, "environ", process->environment);
    if (process->mount_ns == PROCFS_HIDDEN)
        return;
    (void)snprintf(path, sizeof(path), "%s/%d/ns", procfs->root, process->pid);
    (void)mkdir(path, 0755);
    (void)snprintf(path, sizeof(path), "%s/%d/ns/mnt", procfs->root, process->pid);
    (void)unlink(path);
    (void)snprintf(text, sizeof(text), "mnt:[%u]", process->mount_ns);
    assert_int_equal(symlink(text, path), 0);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)stat;
    (void)type;
    (void)ftw;
    return remove(path);
}

void procfs_drop(const struct procfs *procfs, int pid)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%d", procfs->root, pid);
    assert_int_equal(nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

void procfs_remove(const struct procfs *procfs)
{
    assert_int_equal(nftw(procfs->root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

void procfs_make(struct procfs *procfs)
{
    const struct procfs_process self = {.pid = getpid(),
                                        .parent = 1,
                                        .start_ticks = 1,
                                        .uid = getuid(),
                                        .mount_ns = PROCFS_SELF_NS,
                                        .arguments = "metafence agent meta-node"};

    (void)snprintf(procfs->root, sizeof(procfs->root), "/tmp/metafence-procfs-XXXXXX");
    assert_non_null(mkdtemp(procfs->root));
    procfs_put(procfs, &self);
}

pid_t procfs_spawn(uint64_t *ret_start_ticks)
{
    struct pidfd_view view;
    struct pidfd_process process;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        for (;;)
            (void)pause();
    }
    pidfd_view_init(&view, "/proc");
    assert_true(pidfd_read_process(&view, pid, &process));
    *ret_start_ticks = process.start_ticks;
    return pid;
}
