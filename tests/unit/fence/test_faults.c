// SPDX-License-Identifier: Apache-2.0
// metafence-run with its n-th call failing, for each n of a whole life: it ends as a program
// ends, says why where it could not begin, and leaves no process behind.
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/probe.h"
#include "fence/proc.h"
#include "fence/run.h"
#include "fence/sock.h"
#include "fence/spawn.h"
#include "fence/state.h"
#include "tests/unit/fence/faults.h"
#include "tests/unit/fence/shim_fixture.h"

#define CALLS_MAX 2000 // of one life; more would mean that it does not end

static struct {
    char dir[64], socket[96], state[96], log[96];
} place = {.dir = "/tmp/metafence-faults-XXXXXX"};

static int make_place(void **state)
{
    (void)state;
    if (!mkdtemp(place.dir))
        return -1;
    (void)snprintf(place.socket, sizeof(place.socket), "%s/socket", place.dir);
    (void)snprintf(place.state, sizeof(place.state), "%s/state", place.dir);
    (void)snprintf(place.log, sizeof(place.log), "%s/log", place.dir);
    // Whatever a life leaves behind comes to us.
    return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

static void empty_place(void)
{
    (void)unlink(place.socket);
    (void)unlink(place.state);
    (void)unlink(place.log);
}

static int remove_place(void **state)
{
    (void)state;
    empty_place();
    return rmdir(place.dir);
}

static int count_fds(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

// ---- parts: an error or what was asked for, and no descriptor that nobody closes

static void part_state(struct err *err)
{
    struct fence_status status = {.incarnation = 3};
    struct fence_status left = {0};
    bool has_left = false;
    int fd = -1;

    if (state_open(place.state, &fd, &left, &has_left, err) < 0)
        return;
    fence_status_seal(&status);
    (void)!state_write(fd, &status, err);
    (void)close(fd);
    (void)!state_read(place.state, &left, err);
}

static void part_sock(struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct sock sock = {0};
    struct fence_order order = {.row = FENCE_ROW_UNKNOWN};
    struct fence_status status = {0};
    int peer = -1;
    int fd = -1;

    if (sock_listen(&sock, place.socket, geteuid(), err) < 0)
        return;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", place.socket);
    faults_spare(true);
    peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(peer, (const struct sockaddr *)&address, sizeof(address)), 0);
    faults_spare(false);
    fd = sock_accept(&sock, err);
    order.seq = 1;
    fence_order_seal(&order);
    faults_spare(true);
    (void)!send(peer, &order, sizeof(order), MSG_NOSIGNAL); // it may be closed
    faults_spare(false);
    if (fd >= 0 && sock_receive(&sock, fd, &order, err) == SOCK_INPUT_CLOSED)
        (void)err_set(err, ERR_TRANSIENT, 0, "the peer is gone");
    if (sock_send(&sock, &status, true) > 0)
        (void)err_set(err, ERR_TRANSIENT, 0, "the peer was dropped");
    (void)close(peer);
    sock_close(&sock);
}

static void part_spawn(struct err *err)
{
    char command[] = "/bin/true";
    char *argv[] = {command, NULL};
    struct spawn spawn = {0};
    struct spawned spawned = {0};

    (void)sigprocmask(SIG_BLOCK, NULL, &spawn.child_mask);
    if (spawn_init(&spawn, argv, "11111111", err) < 0)
        return;
    if (spawn_start(&spawn, &spawned, err) == 0) {
        faults_spare(true);
        assert_int_equal(waitpid(spawned.pid, NULL, 0), spawned.pid);
        faults_spare(false);
    }
    free(spawn.environment);
}

static void note(pid_t pid, void *arg)
{
    *(int *)arg += pid > 0;
}

static void part_proc(struct err *err)
{
    struct proc_stat stat = {0};
    int count = 0;
    char boot_id[64];

    if (!proc_stat_read(getpid(), &stat))
        (void)err_set(err, ERR_TRANSIENT, 0, "no stat");
    if (proc_each(note, &count) < 0)
        (void)err_set(err, ERR_TRANSIENT, 0, "no /proc");
    proc_each_child(getpid(), note, &count);
    state_boot_id(boot_id, sizeof(boot_id));
    if (boot_id[0] == '\0')
        (void)err_set(err, ERR_TRANSIENT, 0, "no boot id");
}

static const struct {
    const char *name;
    void (*run)(struct err *err);
    int least; // calls that it makes
} parts[] = {{"state", part_state, 5},
             {"sock", part_sock, 6},
             {"spawn", part_spawn, 4},
             {"proc", part_proc, 6}};

static const int codes[] = {EIO, EINTR, EAGAIN, EMFILE, ENOMEM};

static int sweep_part(size_t part, int code)
{
    int n = 1;

    for (;; n++) {
        struct err err = {0};
        int fds = count_fds();
        bool came = false;
        empty_place();
        faults_arm(n, code);
        parts[part].run(&err);
        came = faults_disarm();
        if (count_fds() != fds)
            fail_msg("%s: a descriptor stays open when %s (%d) fails", parts[part].name,
                     faults_hit(), n);
        if (!came)
            break;
        if (err.msg[0] != '\0' && err.msg[sizeof(err.msg) - 1] != '\0')
            fail_msg("%s: no whole message when %s fails", parts[part].name, faults_hit());
        assert_true(n < CALLS_MAX);
    }
    return n - 1;
}

static void test_parts(void **state)
{
    (void)state;
    for (size_t part = 0; part < sizeof(parts) / sizeof(parts[0]); part++)
        for (size_t code = 0; code < sizeof(codes) / sizeof(codes[0]); code++)
            assert_true(sweep_part(part, codes[code]) >= parts[part].least);
}

// ---- a whole life

#define NOTHING_FAILED 200 // and it ended as its meta did

// In a process of its own: its status is what run() returned.
static _Noreturn void live(int n, int code)
{
    char command[] = "/bin/sh", dash[] = "-c", script[] = "setsid sleep 1000 & exit 3";
    char *argv[] = {command, dash, script, NULL};
    struct options options = {.socket_path = place.socket,
                              .state_path = place.state,
                              .pod_uid = "11111111",
                              .peer_uid = geteuid(),
                              .ports = {.service = 5690, .metrics = 1250, .dashboard = 5691},
                              .shim = fixture_config(),
                              .argv = argv};
    int log = open(place.log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int status = 0;
    bool came = false;

    (void)dup2(log, STDERR_FILENO);
    // It starts without an agent as soon as there is no reason to wait for one.
    options.shim.ttl_ns = NS_PER_MS * 20;
    options.shim.margin_ns = options.shim.kill_budget_ns = NS_PER_MS;
    options.shim.restart = SHIM_RESTART_CONTAINER;
    faults_arm(n, code);
    status = run(&options);
    came = faults_disarm();
    if (!came)
        status = status == 3 ? NOTHING_FAILED : NOTHING_FAILED + 1;
    exit(status); // NOLINT(concurrency-mt-unsafe): of one thread
}

static int wait_status(pid_t pid)
{
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

// What it left behind would be our child by now.
static void check_nobody_is_left(int n)
{
    int status = 0;
    pid_t pid = 0;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        ;
    if (pid == 0)
        fail_msg("call %d: a process is left", n);
    assert_int_equal(errno, ECHILD);
}

static void check_says_why(int n)
{
    char text[8192] = "";

    assert_true(proc_read(place.log, text, sizeof(text)) > 0);
    if (!strstr(text, "err="))
        fail_msg("call %d: it does not say why: %s", n, text);
}

static int sweep_life(int code)
{
    for (int n = 1; n < CALLS_MAX; n++) {
        int status = 0;
        pid_t pid = 0;
        empty_place();
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            live(n, code);
        status = wait_status(pid);
        if (!WIFEXITED(status))
            fail_msg("call %d: signal %d", n, WTERMSIG(status));
        check_nobody_is_left(n);
        if (WEXITSTATUS(status) == NOTHING_FAILED)
            return n - 1;
        assert_true(WEXITSTATUS(status) < NOTHING_FAILED);
        if (WEXITSTATUS(status) == 1)
            check_says_why(n);
    }
    fail_msg("it makes more than %d calls", CALLS_MAX);
    return 0;
}

static void test_life(void **state)
{
    int calls = 0;

    (void)state;
    calls = sweep_life(EIO);
    if (calls < 20)
        fail_msg("a life of %d calls", calls);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_parts),
    cmocka_unit_test(test_life),
};

int main(void)
{
    cmocka_set_test_filter(getenv("METAFENCE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
