// SPDX-License-Identifier: Apache-2.0
#include "fence/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/proc.h"

extern char **environ;

static const char tag_prefix[] = "PGAPPNAME=";

int spawn_init(struct spawn *spawn, char **argv, const char *pod_uid, struct err *err)
{
    size_t count = 0;
    size_t used = 0;

    for (; environ[count]; count++)
        ;
    spawn->argv = argv;
    (void)snprintf(spawn->pod, sizeof(spawn->pod), "%s", pod_uid);
    spawn->environment = calloc(count + 2, sizeof(*spawn->environment));
    if (!spawn->environment)
        return err_set(err, ERR_TRANSIENT, ENOMEM, "no memory for %zu variables", count);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], tag_prefix, sizeof(tag_prefix) - 1) != 0)
            spawn->environment[used++] = environ[i];
    spawn->environment[used] = spawn->tag_variable;
    return 0;
}

static int new_tag(struct spawn *spawn, struct err *err)
{
    uint64_t number = 0;

    // Fails early in a boot only, before the kernel has gathered any randomness.
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number))
        return err_set(err, ERR_TRANSIENT, errno, "no random number for the session tag: %s",
                       strerrorname_np(errno));
    (void)snprintf(spawn->tag_variable, sizeof(spawn->tag_variable), "%smetafence:%s:%016llx",
                   tag_prefix, spawn->pod, (unsigned long long)number);
    return 0;
}

// In the child, between fork and exec. The errno goes through the pipe; exec closes it.
static _Noreturn void become_meta(const struct spawn *spawn, pid_t parent, int report_fd)
{
    int code = 0;

    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    // Our parent may have died before that call.
    if (getppid() != parent)
        _exit(128 + SIGKILL);
    (void)setrlimit(RLIMIT_CORE, &spawn->child_core);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &spawn->child_mask, NULL);
    (void)execvpe(spawn->argv[0], spawn->argv, spawn->environment);
    code = errno;
    (void)!write(report_fd, &code, sizeof(code));
    _exit(code == ENOENT ? 127 : 126);
}

// 0: executed. Otherwise the errno of exec.
static int read_report(int fd)
{
    int code = 0;
    ssize_t n = 0;

    do
        n = read(fd, &code, sizeof(code));
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(code) ? code : 0;
}

int spawn_start(struct spawn *spawn, struct spawned *ret, struct err *err)
{
    struct proc_stat stat = {0};
    pid_t self = getpid();
    int report[2] = {-1, -1};
    int code = 0;
    pid_t pid = 0;

    if (new_tag(spawn, err) < 0)
        return -1;
    if (pipe2(report, O_CLOEXEC) < 0)
        return err_set(err, ERR_TRANSIENT, errno, "pipe: %s", strerrorname_np(errno));
    pid = fork();
    if (pid == 0)
        become_meta(spawn, self, report[1]);
    code = errno;
    (void)close(report[1]);
    if (pid < 0) {
        (void)close(report[0]);
        return err_set(err, ERR_TRANSIENT, code, "fork: %s", strerrorname_np(code));
    }
    (void)setpgid(pid, pid); // whoever is first: signals to the group must reach it
    code = read_report(report[0]);
    (void)close(report[0]);
    if (code != 0) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        return err_set(err, ERR_INVALID, code,
                       "cannot execute \"%.100s\": %s: give meta's command after --",
                       spawn->argv[0], strerrorname_np(code));
    }
    (void)proc_stat_read(pid, &stat); // it may have ended already
    *ret = (struct spawned){.pid = pid,
                            .start_ticks = stat.start_ticks,
                            .tag = spawn->tag_variable + sizeof(tag_prefix) - 1};
    return 0;
}
