// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fence/guard.h"

#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/proc.h"

#define PATIENCE_NS (120 * NS_PER_SEC)
#define ARGS_MAX    40

static void pause_until(struct instant end, const char *what)
{
    if (instant_reached(clock_now(), end))
        fail_msg("waited in vain for %s", what);
    (void)poll(NULL, 0, 5);
}

static struct instant patience(void)
{
    return instant_add(clock_now(), PATIENCE_NS);
}

void guard_make(struct guard *guard)
{
    *guard = (struct guard){.dir = "/tmp/metafence-guard-XXXXXX", .fd = -1};
    assert_non_null(mkdtemp(guard->dir));
    (void)snprintf(guard->socket, sizeof(guard->socket), "%s/socket", guard->dir);
    (void)snprintf(guard->state, sizeof(guard->state), "%s/state", guard->dir);
    (void)snprintf(guard->log, sizeof(guard->log), "%s/log", guard->dir);
}

void guard_remove(struct guard *guard)
{
    static const char *const names[] = {"socket", "state", "log", "left", "hup", "ready"};
    char path[128];

    if (guard->fd >= 0)
        (void)close(guard->fd);
    if (guard->pid > 0) {
        (void)kill(guard->pid, SIGTERM);
        (void)guard_wait(guard);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", guard->dir, names[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(guard->dir), 0);
}

// ---- processes

static void execute(const struct guard *guard, char **argv)
{
    sigset_t none;
    int fd = open(guard->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)dup2(fd, STDERR_FILENO);
    (void)dup2(fd, STDOUT_FILENO);
    (void)setenv("DIR", guard->dir, 1);
    (void)setenv("PGAPPNAME", "not meta's", 1);
    (void)signal(SIGHUP, SIG_DFL); // under nohup it would be ignored by meta, too
    (void)execv(METAFENCE_RUN, argv);
    _exit(99);
}

static pid_t begin(const struct guard *guard, char **argv)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        execute(guard, argv);
    return pid;
}

// argv's strings are not changed by anybody.
static char *plain(const char *text)
{
    char *word = NULL;

    memcpy(&word, &text, sizeof(word));
    return word;
}

void guard_start(struct guard *guard)
{
    const char *fixed[] = {"metafence-run", "--socket",  guard->socket,  "--state",
                           guard->state,    "--pod-uid", "11111111-2222"};
    char *argv[ARGS_MAX];
    size_t used = 0;

    for (; used < sizeof(fixed) / sizeof(fixed[0]); used++)
        argv[used] = plain(fixed[used]);
    for (const char *const *option = guard->options; option && *option; option++)
        argv[used++] = plain(*option);
    argv[used++] = plain("--");
    argv[used++] = plain(guard->command ? guard->command : "/bin/sh");
    argv[used++] = plain("-c");
    argv[used++] = plain(guard->script);
    argv[used] = NULL;
    assert_int_equal(guard->pid, 0);
    guard->pid = begin(guard, argv);
}

static int wait_for(pid_t pid)
{
    struct instant end = patience();
    int status = 0;
    pid_t ended = 0;

    while ((ended = waitpid(pid, &status, WNOHANG)) == 0)
        pause_until(end, "the end of metafence-run");
    assert_int_equal(ended, pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int guard_wait(struct guard *guard)
{
    pid_t pid = guard->pid;

    guard->pid = 0;
    return wait_for(pid);
}

int guard_run(struct guard *guard, const char *const *words)
{
    char *argv[ARGS_MAX] = {plain("metafence-run")};

    for (size_t i = 0; words[i]; i++)
        argv[i + 1] = plain(words[i]);
    return wait_for(begin(guard, argv));
}

// ---- the agent

int guard_dial(const struct guard *guard)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct instant end = patience();

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", guard->socket);
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
            return fd;
        (void)close(fd);
        pause_until(end, "metafence-run's socket");
    }
}

void guard_connect(struct guard *guard)
{
    if (guard->fd >= 0)
        (void)close(guard->fd);
    guard->fd = guard_dial(guard);
    guard->seq = 0;
}

struct fence_order guard_order(const struct guard *guard, enum fence_role role)
{
    return (struct fence_order){.role = (uint32_t)role,
                                .incarnation = guard->status.incarnation,
                                .row = FENCE_ROW_OTHER,
                                .database = FENCE_DATABASE_UP,
                                .flags = FENCE_ORDER_ARMED,
                                .read_ns = clock_now().ns};
}

void guard_send_by(int fd, struct fence_order order, uint64_t seq)
{
    order.seq = seq;
    fence_order_seal(&order);
    assert_int_equal(send(fd, &order, sizeof(order), MSG_NOSIGNAL), sizeof(order));
}

void guard_send(struct guard *guard, struct fence_order order)
{
    guard_send_by(guard->fd, order, ++guard->seq);
}

void guard_until(struct guard *guard, guard_wants *wants)
{
    struct instant end = patience();
    struct pollfd ready = {.fd = guard->fd, .events = POLLIN};

    while (!wants(&guard->status)) {
        struct err err = {0};
        struct fence_status heard = {0};
        ssize_t n = 0;
        if (poll(&ready, 1, 100) <= 0) {
            pause_until(end, "a status");
            continue;
        }
        n = recv(guard->fd, &heard, sizeof(heard), MSG_DONTWAIT);
        assert_true(n > 0);
        if (fence_status_parse(&heard, (size_t)n, &guard->status, &err) < 0)
            fail_msg("%s", err.msg);
    }
}

// ---- what it left in the folder

void guard_until_logged(const struct guard *guard, const char *text)
{
    static char bytes[1 << 20];
    struct instant end = patience();

    while (proc_read(guard->log, bytes, sizeof(bytes)) < 0 || !strstr(bytes, text))
        pause_until(end, text);
}

void guard_until_file(const struct guard *guard, const char *name)
{
    char path[128];
    char bytes[64];
    struct instant end = patience();

    (void)snprintf(path, sizeof(path), "%s/%s", guard->dir, name);
    while (proc_read(path, bytes, sizeof(bytes)) <= 0)
        pause_until(end, name);
}

pid_t guard_pid_in(const struct guard *guard, const char *name)
{
    char path[128];
    char bytes[64] = "";
    pid_t pid = 0;

    guard_until_file(guard, name);
    (void)snprintf(path, sizeof(path), "%s/%s", guard->dir, name);
    assert_true(proc_read(path, bytes, sizeof(bytes)) > 0);
    for (const char *c = bytes; *c >= '0' && *c <= '9'; c++)
        pid = pid * 10 + (*c - '0');
    return pid;
}

// Nobody may have reaped it yet.
void guard_until_dead(pid_t pid)
{
    struct instant end = patience();
    struct proc_stat stat = {0};

    while (proc_stat_read(pid, &stat) && stat.state != 'Z' && stat.state != 'X')
        pause_until(end, "the death of a process");
}
