// SPDX-License-Identifier: Apache-2.0
#include "agent/pidfd.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/proc.h"

#define PATH_SIZE       4096
#define ANCESTORS_MAX   64
#define ARGUMENTS_SIZE  65536 // of one process: what is behind is not looked at
#define ENVIRONMENT_MAX 262144
#define TAG_VARIABLE    "PGAPPNAME="
#define TAG_PREFIX      "metafence:"

// --- reading ---

// At most size - 1 bytes and a NUL. Returns the length, -1: gone or not readable.
static ssize_t read_file(const struct pidfd_view *view, int pid, const char *name, char *buf,
                         size_t size)
{
    char path[PATH_SIZE];

    (void)snprintf(path, sizeof(path), "%s/%d/%s", view->root, pid, name);
    return proc_read(path, buf, size);
}

static bool take_number(const char **p, uint64_t *ret)
{
    uint64_t value = 0;

    while (**p == ' ' || **p == '\t')
        (*p)++;
    if (**p < '0' || **p > '9')
        return false;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        value = value * 10 + (uint64_t)(**p - '0');
    *ret = value;
    return true;
}

bool pidfd_read_stat(const struct pidfd_view *view, int pid, struct pidfd_process *ret)
{
    char text[1024];
    struct proc_stat stat = {0};

    if (read_file(view, pid, "stat", text, sizeof(text)) <= 0 || !proc_stat_parse(text, &stat))
        return false;
    ret->parent = stat.parent;
    ret->state = stat.state;
    ret->start_ticks = stat.start_ticks;
    return true;
}

static uint64_t read_mount_ns(const struct pidfd_view *view, int pid)
{
    char path[PATH_SIZE];
    char target[64];
    const char *p = NULL;
    uint64_t inode = 0;
    ssize_t n = 0;

    (void)snprintf(path, sizeof(path), "%s/%d/ns/mnt", view->root, pid);
    n = readlink(path, target, sizeof(target) - 1);
    if (n <= 0)
        return 0;
    target[n] = '\0';
    p = strchr(target, '['); // "mnt:[4026531841]"
    if (!p)
        return 0;
    p++;
    return take_number(&p, &inode) ? inode : 0;
}

static bool read_uid(const struct pidfd_view *view, int pid, uint32_t *ret)
{
    char text[4096];
    const char *p = NULL;
    uint64_t uid = 0;

    if (read_file(view, pid, "status", text, sizeof(text)) <= 0)
        return false;
    p = strstr(text, "\nUid:");
    if (!p)
        return false;
    p += strlen("\nUid:");
    if (!take_number(&p, &uid))
        return false;
    *ret = (uint32_t)uid;
    return true;
}

void pidfd_view_init(struct pidfd_view *view, const char *root)
{
    *view = (struct pidfd_view){.root = root, .self = getpid(), .uid = getuid()};
    view->mount_ns = read_mount_ns(view, view->self);
}

bool pidfd_read_process(const struct pidfd_view *view, int pid, struct pidfd_process *ret)
{
    struct pidfd_process process = {.pid = pid};

    if (!pidfd_read_stat(view, pid, &process) || !read_uid(view, pid, &process.uid))
        return false;
    process.mount_ns = read_mount_ns(view, pid);
    *ret = process;
    return true;
}

bool pidfd_is_alive(const struct pidfd_process *process)
{
    return process->state != 'Z' && process->state != 'X';
}

void pidfd_read_tag(const struct pidfd_view *view, int pid, char tag[FENCE_TAG_SIZE])
{
    static char text[ENVIRONMENT_MAX];
    ssize_t size = read_file(view, pid, "environ", text, sizeof(text));

    tag[0] = '\0';
    for (const char *p = text; size > 0 && p < text + size; p += strlen(p) + 1) {
        if (strncmp(p, TAG_VARIABLE TAG_PREFIX, strlen(TAG_VARIABLE TAG_PREFIX)) != 0)
            continue;
        (void)snprintf(tag, FENCE_TAG_SIZE, "%s", p + strlen(TAG_VARIABLE));
        break;
    }
    if (size > 0)
        explicit_bzero(text, (size_t)size); // meta's secrets are none of our business
}

struct instant pidfd_started_at(const struct pidfd_process *process)
{
    int64_t ticks = sysconf(_SC_CLK_TCK);
    int64_t ns = 0;

    if (ticks <= 0 || process->start_ticks > INT64_MAX / (uint64_t)NS_PER_SEC)
        return clock_now();
    ns = (int64_t)process->start_ticks * (NS_PER_SEC / ticks);
    return instant_min((struct instant){ns}, clock_now());
}

int pidfd_each(const struct pidfd_view *view, void (*fn)(int pid, void *arg), void *arg)
{
    DIR *dir = opendir(view->root);
    struct dirent *entry = NULL;

    if (!dir)
        return -1;
    while ((entry = readdir(dir)) != NULL) {
        const char *p = entry->d_name;
        uint64_t pid = 0;

        if (take_number(&p, &pid) && *p == '\0' && pid > 0 && pid <= INT32_MAX)
            fn((int)pid, arg);
    }
    (void)closedir(dir);
    return 0;
}

bool pidfd_comes_from(const struct pidfd_view *view, int pid, int ancestor)
{
    struct pidfd_process process = {0};

    for (int i = 0; i < ANCESTORS_MAX && pid > 0; i++) {
        if (pid == ancestor)
            return true;
        if (!pidfd_read_stat(view, pid, &process))
            return false;
        pid = process.parent;
    }
    return false;
}

// --- finding ---

static bool has_argument(const struct pidfd_view *view, int pid, const char *command)
{
    static char text[ARGUMENTS_SIZE];
    ssize_t size = read_file(view, pid, "cmdline", text, sizeof(text));
    const char *p = text;

    if (size <= 0)
        return false;
    for (p += strlen(p) + 1; p < text + size; p += strlen(p) + 1)
        if (strcmp(p, command) == 0)
            return true;
    return false;
}

static bool is_elder(const struct pidfd_process *a, const struct pidfd_process *b)
{
    return a->start_ticks < b->start_ticks ||
           (a->start_ticks == b->start_ticks && a->pid < b->pid);
}

struct finding {
    const struct pidfd_view *view;
    const char *command;
    struct pidfd_search *result;
};

// In one container: by its mount namespace, or where that is not known by descent.
static bool same_container(const struct pidfd_view *view, const struct pidfd_process *a,
                           const struct pidfd_process *b)
{
    if (a->mount_ns != 0 && b->mount_ns != 0)
        return a->mount_ns == b->mount_ns;
    return pidfd_comes_from(view, a->pid, b->pid) || pidfd_comes_from(view, b->pid, a->pid);
}

static void weigh(struct finding *finding, const struct pidfd_process *process)
{
    struct pidfd_search *result = finding->result;
    struct pidfd_process *best = &result->process;
    bool is_ours = process->uid == finding->view->uid;
    bool is_best_ours = best->pid != 0 && best->uid == finding->view->uid;

    if (best->pid == 0 || (is_ours && !is_best_ours)) {
        *best = *process;
        result->ambiguous = (struct pidfd_process){0};
        return;
    }
    if (is_ours != is_best_ours)
        return;
    if (!same_container(finding->view, best, process))
        result->ambiguous = *process;
    else if (is_elder(process, best))
        *best = *process;
}

static void consider(int pid, void *arg)
{
    struct finding *finding = arg;
    const struct pidfd_view *view = finding->view;
    struct pidfd_process process = {0};

    if (pid == view->self || !has_argument(view, pid, finding->command) ||
        !pidfd_read_process(view, pid, &process) || !pidfd_is_alive(&process) ||
        pidfd_comes_from(view, pid, view->self))
        return;
    if (process.mount_ns != 0 && process.mount_ns == view->mount_ns)
        return; // in our own container
    weigh(finding, &process);
}

int pidfd_find(const struct pidfd_view *view, const char *command, struct pidfd_search *ret,
               struct err *err)
{
    struct finding finding = {.view = view, .command = command, .result = ret};

    *ret = (struct pidfd_search){0};
    if (pidfd_each(view, consider, &finding) < 0)
        return err_set(err, ERR_TRANSIENT, errno, "%.100s can't be listed: %m", view->root);
    ret->is_mount_unknown = ret->process.pid != 0 && ret->process.mount_ns == 0;
    return 0;
}
