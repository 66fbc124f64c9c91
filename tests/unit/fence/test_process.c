// SPDX-License-Identifier: Apache-2.0
// metafence-run as a process: its socket, its children, its files and its words, with a shell
// script as meta and this test as agent and as the owner of the ports that it looks at.
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fence/sock.h"
#include "tests/unit/fence/guard.h"

// Ends by TERM, says that HUP came, and has a child that no signal to the group reaches.
#define META                                                                                   \
    "trap 'exit 0' TERM; trap 'echo hup > $DIR/hup' HUP; "                                     \
    "setsid sh -c 'echo $$ > $DIR/left; exec sleep 1000' & "                                   \
    "while [ ! -s $DIR/left ]; do :; done; echo ok > $DIR/ready; "                             \
    "while :; do sleep 1000 & wait $!; done"

static int set_up(void **state)
{
    static struct guard guard;

    guard_make(&guard);
    guard.script = META;
    *state = &guard;
    return 0;
}

static int tear_down(void **state)
{
    guard_remove(*state);
    return 0;
}

// ---- what is waited for

static bool is_running(const struct fence_status *status)
{
    return status->state == SHIM_RUNNING && status->pid > 0;
}

static bool is_second(const struct fence_status *status)
{
    return status->incarnation == 2 && is_running(status);
}

static bool is_held(const struct fence_status *status)
{
    return status->state == SHIM_HOLDING && status->hold == SHIM_HOLD_MANUAL &&
           !(status->flags & SHIM_ALIVE) && status->last_death.reason == FENCE_REASON_MANUAL;
}

static bool is_lease_over(const struct fence_status *status)
{
    return status->last_death.reason == FENCE_REASON_LEASE_EXPIRED &&
           status->hold == SHIM_HOLD_LEASE;
}

static bool is_superseded(const struct fence_status *status)
{
    return status->flags & SHIM_SUPERSEDED;
}

static bool is_dead_superseded(const struct fence_status *status)
{
    return status->last_death.reason == FENCE_REASON_SUPERSEDED;
}

static bool is_engaged(const struct fence_status *status)
{
    return status->flags & SHIM_ENGAGED;
}

static bool is_follower(const struct fence_status *status)
{
    return status->permit == FENCE_ROLE_FOLLOWER;
}

static bool is_service_open(const struct fence_status *status)
{
    return status->ports & SHIM_PORT_SERVICE;
}

static bool is_waiting_for_database(const struct fence_status *status)
{
    return status->hold == SHIM_HOLD_DATABASE;
}

static bool is_known(const struct fence_status *status)
{
    return status->magic != 0;
}

// ---- ports

// A listener of ours on a port that the kernel picks.
static int listen_somewhere(uint16_t *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

static void start_and_let_in(struct guard *guard)
{
    guard_start(guard);
    guard_connect(guard);
    guard_send(guard, guard_order(guard, FENCE_ROLE_KEEP));
    guard_until(guard, is_running);
    guard_until_file(guard, "ready");
}

// ---- words

static void test_words(void **state)
{
    static const struct {
        const char *words[6];
        int status;
        const char *says;
    } cases[] = {
        {{"--version", NULL}, 0, "metafence-run " METAFENCE_VERSION},
        {{"--help", NULL}, 0, "usage: metafence-run"},
        {{NULL}, 0, "usage: metafence-run"},
        {{"--bogus", NULL}, 2, "is no option of metafence-run"},
        {{"probe", "death", "--state", "x", NULL}, 2, "is none of startup, liveness"},
        {{"probe", "startup", "--state", "/no/such", NULL}, 1, "fail: /no/such: ENOENT"},
        {{"status", "--state", "/no/such", NULL}, 1, "metafence-run: /no/such: ENOENT"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(guard_run(*state, cases[i].words), cases[i].status);
        guard_until_logged(*state, cases[i].says);
    }
}

// ---- start and end

static void test_exit_status_is_metas(void **state)
{
    struct guard *guard = *state;
    const char *options[] = {"--restart", "container", NULL};

    guard->options = options;
    guard->script = "exit 7";
    guard_start(guard);
    guard_connect(guard);
    guard_send(guard, guard_order(guard, FENCE_ROLE_KEEP));
    assert_int_equal(guard_wait(guard), 7);
    guard_until_logged(guard, "meta ended by itself");
    guard_until_logged(guard, "exit_code=7");
    assert_int_equal(access(guard->socket, F_OK), -1);
}

static void test_what_cannot_be_executed(void **state)
{
    static const struct {
        const char *command;
        int status;
    } cases[] = {{"/no/such/meta", 127}, {"/etc", 126}};
    struct guard *guard = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        guard->command = cases[i].command;
        guard_start(guard);
        guard_connect(guard);
        guard_send(guard, guard_order(guard, FENCE_ROLE_KEEP));
        assert_int_equal(guard_wait(guard), cases[i].status);
        guard_until_logged(guard, "meta cannot be started");
        guard_until_logged(guard, cases[i].command);
    }
}

static void test_end_while_held(void **state)
{
    struct guard *guard = *state;
    struct fence_order order = {0};

    guard_start(guard);
    guard_connect(guard);
    order = guard_order(guard, FENCE_ROLE_KEEP);
    order.database = FENCE_DATABASE_DOWN;
    guard_send(guard, order);
    guard_until(guard, is_waiting_for_database);
    guard_until_logged(guard, "hold=Database");
    assert_int_equal(kill(guard->pid, SIGINT), 0);
    assert_int_equal(guard_wait(guard), 0);
}

// Forwarded to meta's group; who is not in it, is killed once meta has ended.
static void test_signals(void **state)
{
    struct guard *guard = *state;
    pid_t left = 0;

    start_and_let_in(guard);
    left = guard_pid_in(guard, "left");
    assert_int_equal(kill(guard->pid, SIGHUP), 0);
    guard_until_file(guard, "hup");
    assert_int_equal(kill(guard->pid, SIGTERM), 0);
    assert_int_equal(guard_wait(guard), 0);
    guard_until_logged(guard, "asked to stop");
    guard_until_logged(guard, "left processes behind");
    guard_until_dead(left);
}

// ---- orders

static void test_manual_fence(void **state)
{
    struct guard *guard = *state;
    struct fence_order order = {0};
    pid_t left = 0;

    start_and_let_in(guard);
    left = guard_pid_in(guard, "left");
    order = guard_order(guard, FENCE_ROLE_KILL);
    order.reason = FENCE_REASON_MANUAL;
    order.flags |= FENCE_ORDER_MANUAL_HOLD;
    guard_send(guard, order);
    guard_until(guard, is_held);
    guard_until_dead(left);
    guard_until_logged(guard, "killing meta");
    guard_until_logged(guard, "manual fence is set");
    guard_send(guard, guard_order(guard, FENCE_ROLE_KEEP));
    guard_until(guard, is_second);
    guard_until_logged(guard, "manual fence is lifted");
}

// By its own clock, at the deadline that the agent gave; then healthy peers go first.
static void test_deadline(void **state)
{
    struct guard *guard = *state;
    struct fence_order order = {0};

    start_and_let_in(guard);
    order = guard_order(guard, FENCE_ROLE_LEADER);
    order.flags |= FENCE_ORDER_ENGAGED;
    order.row = FENCE_ROW_OURS;
    order.deadline_ns = clock_now().ns + 200 * NS_PER_MS;
    guard_send(guard, order);
    guard_until(guard, is_lease_over);
    assert_true(guard->status.last_death.engaged);
    assert_true(guard->status.last_death.decided_ns >= order.deadline_ns);
    guard_until_logged(guard, "reason=LeaseExpired");
    guard_until_logged(guard, "hold=Lease");
}

static bool is_silence_held(const struct fence_status *status)
{
    return status->flags & SHIM_SILENCE_HELD;
}

static bool is_covered(const struct fence_status *status)
{
    return !is_silence_held(status) && status->permit == FENCE_ROLE_LEADER;
}

static bool is_agent_lost(const struct fence_status *status)
{
    return status->last_death.reason == FENCE_REASON_AGENT_LOST;
}

static struct fence_order short_permit(const struct guard *guard)
{
    struct fence_order order = guard_order(guard, FENCE_ROLE_LEADER);

    order.flags |= FENCE_ORDER_ENGAGED;
    order.row = FENCE_ROW_OURS;
    order.deadline_ns = clock_now().ns + NS_PER_SEC;
    return order;
}

// Nobody orders any more, and the last permit runs out.
static void test_lost_agent_fence(void **state)
{
    static const char *const options[] = {"--ttl", "6s", NULL};
    struct guard *guard = *state;

    guard->options = options;
    start_and_let_in(guard);
    guard_send(guard, short_permit(guard));
    guard_until(guard, is_engaged);
    (void)close(guard->fd);
    guard->fd = -1;
    guard_until_logged(guard, "agent is lost");
    guard_until_logged(guard, "reason=AgentLost");
    guard_until_logged(guard, "unarmed until an agent is back");
    guard_connect(guard);
    guard_send(guard, guard_order(guard, FENCE_ROLE_KEEP));
    guard_until(guard, is_second);
    assert_true(is_agent_lost(&guard->status));
}

// The same, where the operator wants it to live on: told, and over with the first order.
static void test_lost_agent_hold(void **state)
{
    static const char *const options[] = {"--ttl", "6s", "--when-agent-lost", "hold", NULL};
    struct guard *guard = *state;
    struct fence_order order = {0};

    guard->options = options;
    start_and_let_in(guard);
    guard_send(guard, short_permit(guard));
    guard_until(guard, is_engaged);
    (void)close(guard->fd);
    guard->fd = -1;
    guard_until_logged(guard, "meta lives on, not covered");
    guard_connect(guard);
    guard_until(guard, is_silence_held);
    order = short_permit(guard);
    order.deadline_ns += 3600 * NS_PER_SEC;
    guard_send(guard, order);
    guard_until(guard, is_covered);
    guard_until_logged(guard, "covered again");
    assert_int_equal(guard->status.incarnation, 1);
}

// A pause spares it; without the pause the same order kills.
static void test_superseded(void **state)
{
    struct guard *guard = *state;
    struct fence_order order = {0};

    start_and_let_in(guard);
    order = guard_order(guard, FENCE_ROLE_KILL);
    order.reason = FENCE_REASON_SUPERSEDED;
    order.flags |= FENCE_ORDER_SUPERSEDED;
    order.pause_end_ns = clock_now().ns + 3600 * NS_PER_SEC;
    guard_send(guard, order);
    guard_until(guard, is_superseded);
    guard_until_logged(guard, "pause changed");
    assert_int_equal(guard->status.incarnation, 1);
    order.pause_end_ns = 0;
    guard_send(guard, order);
    guard_until(guard, is_dead_superseded);
    guard_send(guard, guard_order(guard, FENCE_ROLE_KEEP)); // a read from after its death
    guard_until(guard, is_second);
    assert_int_equal(guard->status.restarts, 1);
}

static void test_ports(void **state)
{
    struct guard *guard = *state;
    char number[16];
    const char *options[] = {"--service-port", number, NULL};
    uint16_t port = 0;
    int listener = listen_somewhere(&port);

    (void)snprintf(number, sizeof(number), "%u", port);
    guard->options = options;
    start_and_let_in(guard);
    guard_send(guard, guard_order(guard, FENCE_ROLE_FOLLOWER));
    guard_until(guard, is_follower);
    guard_until(guard, is_service_open);
    assert_false(is_engaged(&guard->status));
    (void)close(listener);
    guard_until(guard, is_engaged);
    guard_until_logged(guard, "meta shows signs of leading");
}

// ---- peers

static bool is_closed(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    struct fence_status status = {0};

    while (poll(&ready, 1, 60000) > 0) {
        ssize_t n = recv(fd, &status, sizeof(status), 0);
        if (n <= 0)
            return true;
    }
    return false;
}

static void test_garbage(void **state)
{
    struct guard *guard = *state;
    int fd = -1;

    start_and_let_in(guard);
    fd = guard_dial(guard);
    assert_int_equal(send(fd, "garbage", 7, MSG_NOSIGNAL), 7);
    assert_true(is_closed(fd));
    guard_until_logged(guard, "connection refused");
    (void)close(fd);
    guard_send(guard, guard_order(guard, FENCE_ROLE_FOLLOWER)); // the agent stays
    guard_until(guard, is_follower);
}

// The youngest that orders is the agent: what the older one says is not heard any more.
static void test_younger_agent(void **state)
{
    struct guard *guard = *state;
    struct fence_order kill_it = {0};
    int old = -1;

    start_and_let_in(guard);
    old = guard->fd;
    guard->fd = -1;
    guard_connect(guard);
    guard_send(guard, guard_order(guard, FENCE_ROLE_FOLLOWER));
    guard_until(guard, is_follower);
    kill_it = guard_order(guard, FENCE_ROLE_KILL);
    kill_it.reason = FENCE_REASON_MANUAL;
    guard_send_by(old, kill_it, 100);
    // Both are read before anything is decided of the second.
    guard_send(guard, guard_order(guard, FENCE_ROLE_FOLLOWER));
    guard->status.magic = 0;
    guard_until(guard, is_known);
    assert_int_equal(guard->status.incarnation, 1);
    assert_true(is_running(&guard->status));
    (void)close(old);
}

static void test_many_silent_peers(void **state)
{
    struct guard *guard = *state;
    int fds[8];

    start_and_let_in(guard);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        fds[i] = guard_dial(guard);
    assert_true(is_closed(fds[0])); // the oldest made room
    guard_send(guard, guard_order(guard, FENCE_ROLE_FOLLOWER));
    guard_until(guard, is_follower);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        (void)close(fds[i]);
}

static void test_peer_that_does_not_read(void **state)
{
    struct guard *guard = *state;
    struct sock sock = {0};
    struct fence_status status = {0};
    struct err err = {0};
    int fd = -1;
    int dropped = 0;

    assert_int_equal(sock_listen(&sock, guard->socket, geteuid(), &err), 0);
    fd = guard_dial(guard);
    assert_true(sock_accept(&sock, &err) >= 0);
    for (int i = 0; i < 100000 && dropped == 0; i++)
        dropped = sock_send(&sock, &status, true);
    assert_int_equal(dropped, 1);
    assert_int_equal(sock_send(&sock, &status, true), 0);
    assert_false(sock_is_asked(&sock));
    (void)close(fd);
    sock_close(&sock);
}

static void test_foreign_user(void **state)
{
    struct guard *guard = *state;
    char number[16];
    const char *options[] = {"--peer-uid", number, NULL};
    int fd = -1;

    (void)snprintf(number, sizeof(number), "%u", geteuid() + 1);
    guard->options = options;
    guard_start(guard);
    fd = guard_dial(guard);
    assert_true(is_closed(fd));
    (void)close(fd);
    guard_until_logged(guard, "is not the agent's user");
}

// ---- files

static void test_second_guard(void **state)
{
    struct guard *guard = *state;
    char other[128];
    const char *words[] = {"--socket", guard->socket, "--state", guard->state, "--pod-uid",
                           "11111111", "--",          "true",    NULL};

    guard_start(guard);
    guard_connect(guard);
    guard_until(guard, is_known);
    assert_int_equal(guard_run(guard, words), 1);
    guard_until_logged(guard, "another metafence-run guards this meta");
    (void)snprintf(other, sizeof(other), "%s/ready", guard->dir);
    words[3] = other;
    assert_int_equal(guard_run(guard, words), 1);
    guard_until_logged(guard, "another process listens there");
}

static void test_bad_socket_paths(void **state)
{
    struct guard *guard = *state;
    const char *words[] = {"--socket", guard->log, "--state", guard->state, "--pod-uid",
                           "11111111", "--",       "true",    NULL};

    assert_int_equal(guard_run(guard, words), 1);
    guard_until_logged(guard, "exists and is no socket");
    words[1] = "/no/such/folder/socket";
    assert_int_equal(guard_run(guard, words), 1);
    guard_until_logged(guard, "its directory does not exist");
}

// Killed as nothing can be caught: what is left of the tree ends before anything starts.
static void test_successor(void **state)
{
    struct guard *guard = *state;
    pid_t left = 0;
    pid_t meta = 0;

    start_and_let_in(guard);
    left = guard_pid_in(guard, "left");
    meta = guard->status.pid;
    assert_int_equal(kill(guard->pid, SIGKILL), 0);
    assert_int_equal(guard_wait(guard), -1);
    guard_until_dead(meta); // its parent's death is its own
    guard_start(guard);
    guard_connect(guard);
    guard_until_dead(left);
    guard_until_logged(guard, "took over from an earlier metafence-run");
    guard_send(guard, guard_order(guard, FENCE_ROLE_KEEP));
    guard_until(guard, is_second);
}

// What the kubelet runs, beside a process that is well.
static void test_probes_of_a_process(void **state)
{
    struct guard *guard = *state;
    static const char *const kinds[] = {"startup", "liveness"};
    const char *ready[] = {"probe", "readiness", "--state", guard->state, NULL};
    const char *status[] = {"status", "--state", guard->state, NULL};

    start_and_let_in(guard);
    for (size_t i = 0; i < 2; i++) {
        const char *words[] = {"probe", kinds[i], "--state", guard->state, NULL};
        assert_int_equal(guard_run(guard, words), 0);
    }
    guard_until_logged(guard, "ok: meta runs");
    assert_int_equal(guard_run(guard, ready), 1);
    guard_until_logged(guard, "fail: service port does not listen");
    assert_int_equal(guard_run(guard, status), 0);
    guard_until_logged(guard, "{\"state\":\"Running\",\"hold\":\"None\"");
    guard_until_logged(guard, "\"last_death\":{\"incarnation\":0");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    CASE(test_words),
    CASE(test_exit_status_is_metas),
    CASE(test_what_cannot_be_executed),
    CASE(test_end_while_held),
    CASE(test_signals),
    CASE(test_manual_fence),
    CASE(test_deadline),
    CASE(test_lost_agent_fence),
    CASE(test_lost_agent_hold),
    CASE(test_superseded),
    CASE(test_ports),
    CASE(test_garbage),
    CASE(test_younger_agent),
    CASE(test_many_silent_peers),
    CASE(test_peer_that_does_not_read),
    CASE(test_foreign_user),
    CASE(test_second_guard),
    CASE(test_bad_socket_paths),
    CASE(test_successor),
    CASE(test_probes_of_a_process),
};

UNIT_MAIN(tests)
