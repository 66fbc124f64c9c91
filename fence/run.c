// SPDX-License-Identifier: Apache-2.0
#include "fence/run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "fence/edges.h"
#include "fence/log.h"
#include "fence/prepare.h"
#include "fence/run_state.h"
#include "fence/sock.h"
#include "fence/state.h"
#include "fence/tree.h"

#define SAMPLE_NS      (100 * NS_PER_MS)
#define REWRITE_NS     NS_PER_SEC
#define KILL_FIRST_NS  NS_PER_MS         // then doubling: what forks is met soon,
#define KILL_CALM_NS   (100 * NS_PER_MS) // what cannot die is not hammered
#define GARBAGE_LOG_NS NS_PER_SEC
#define ORDERS_MAX     512 // of one peer in one turn: more than a socket's queue holds
#define QUOTE_SIZE     320

static bool is_alive(const struct run *run)
{
    return run->memory.status.flags & SHIM_ALIVE;
}

// ---- what is told to the world

static bool is_news(const struct fence_status *before, const struct fence_status *after)
{
    struct fence_status then = *before;
    struct fence_status now = *after;

    then.written_ns = now.written_ns = 0;
    then.checksum = now.checksum = 0;
    then.order_seq = now.order_seq = 0;
    return memcmp(&then, &now, sizeof(now)) != 0;
}

static void write_state(struct run *run)
{
    struct err err = {0};
    char quoted[QUOTE_SIZE];
    bool failed = state_write(run->state_fd, &run->memory.status, &err) < 0;

    if (failed && !run->state_failed)
        fence_log(FENCE_LOG_ERROR, "probes see old news", "err=%s",
                  fence_log_quote(err.msg, quoted, sizeof(quoted)));
    if (!failed && run->state_failed)
        fence_log(FENCE_LOG_INFO, "state file is written again", "incarnation=%llu",
                  (unsigned long long)run->memory.status.incarnation);
    run->state_failed = failed;
}

// After each turn: log edges, write the state file, tell the agent.
static void publish(struct run *run)
{
    struct fence_status *status = &run->memory.status;
    bool news = is_news(&run->published, status);
    bool asked = sock_is_asked(&run->sock);
    int dropped = 0;

    if (!news && !asked && instant_before(run->now, run->rewrite_at))
        return;
    status->written_ns = run->now.ns;
    fence_status_seal(status);
    // The file first: who hears of it from us may look there.
    if (news || instant_reached(run->now, run->rewrite_at)) {
        write_state(run);
        run->rewrite_at = instant_add(run->now, REWRITE_NS);
    }
    dropped = sock_send(&run->sock, status, news);
    if (dropped > 0)
        fence_log(FENCE_LOG_WARN, "a peer that does not read was dropped", "count=%d", dropped);
    edges_log(&run->published, status);
    run->published = *status;
}

// ---- observation

static void observe_ports(struct run *run)
{
    bool failed = false;

    if (!is_alive(run)) {
        run->facts.ports = 0;
        return;
    }
    if (instant_before(run->now, run->sample_at))
        return;
    run->facts.ports = ports_read_stable(&run->ports, run->facts.ports);
    run->sample_at = instant_add(run->now, SAMPLE_NS);
    failed = !(run->facts.ports & SHIM_PORTS_KNOWN);
    if (failed != run->ports_failed)
        fence_log(FENCE_LOG_WARN,
                  failed ? "socket tables are not understood: ports unknown"
                         : "socket tables are understood again",
                  "incarnation=%llu", (unsigned long long)run->memory.status.incarnation);
    run->ports_failed = failed;
}

static void observe_children(struct run *run)
{
    tree_reap(run->root, &run->end);
    if (!is_alive(run) || !run->end.root_ended || !run->end.is_empty)
        return;
    shim_reaped(&run->options->shim, &run->memory, run->now, run->end.wait_status);
    run->root = 0;
}

// Meta's group: a wrapper shell and what it runs get it alike.
static void forward(const struct run *run, int number)
{
    if (is_alive(run) && !run->end.root_ended)
        (void)kill(-run->root, number);
}

static void observe_signals(struct run *run)
{
    struct signalfd_siginfo info = {0};

    while (read(run->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int number = (int)info.ssi_signo;
        bool stops = number == SIGTERM || number == SIGINT;

        if (number == SIGCHLD) {
            // Children are looked at in every turn. One that ends while we kill may have left a
            // new one.
            run->kill_at = run->now;
            continue;
        }
        if (stops && !run->facts.term_requested) {
            fence_log(FENCE_LOG_INFO, "asked to stop: nothing is started any more", "signal=%d",
                      number);
            run->facts.term_requested = true;
            run->term_signal = number; // forwarded by the plan
        } else {
            forward(run, number);
        }
    }
}

static void log_garbage(struct run *run, const struct err *err)
{
    char quoted[QUOTE_SIZE];

    run->garbage++;
    if (instant_before(run->now, run->garbage_log_at))
        return;
    fence_log(FENCE_LOG_WARN, "connection refused", "err=%s refused=%llu",
              fence_log_quote(err->msg, quoted, sizeof(quoted)),
              (unsigned long long)run->garbage);
    run->garbage_log_at = instant_add(run->now, GARBAGE_LOG_NS);
}

static void observe_connections(struct run *run)
{
    struct err err = {0};

    if (sock_accept(&run->sock, &err) < 0 && err.kind == ERR_DENIED)
        log_garbage(run, &err);
}

// Returns false when there is nothing more to read.
static bool observe_packet(struct run *run, int fd)
{
    struct fence_order order = {0};
    struct err err = {0};

    switch (sock_receive(&run->sock, fd, &order, &err)) {
    case SOCK_INPUT_IGNORED: return true;
    case SOCK_INPUT_NONE:
    case SOCK_INPUT_CLOSED: return false;
    case SOCK_INPUT_REFUSED: log_garbage(run, &err); return false;
    case SOCK_INPUT_ORDER: break;
    }
    shim_take_order(&run->options->shim, &run->memory, &order, run->now);
    run->sample_at = run->now;
    return true;
}

// All that waits is taken before anything is decided: after a time without CPU the oldest
// permit in the queue has run out, and a healthy leader lives by the newest. Kills and latches
// in between are kept by shim_take_order.
static void observe_peer(struct run *run, int fd)
{
    for (int i = 0; i < ORDERS_MAX && observe_packet(run, fd); i++)
        ;
}

// ---- action

static void sweep(struct run *run)
{
    if (instant_before(run->now, run->kill_at))
        return;
    tree_kill(run->end.root_ended ? 0 : run->root, run->kill_round++);
    run->kill_at = instant_add(run->now, run->kill_gap_ns);
    run->kill_gap_ns =
        run->kill_gap_ns * 2 < KILL_CALM_NS ? run->kill_gap_ns * 2 : KILL_CALM_NS;
}

static void act_on_life(struct run *run, const struct shim_plan *plan)
{
    const struct fence_status *status = &run->memory.status;
    bool left_behind = is_alive(run) && run->end.root_ended;
    bool begins = run->kill_round == 0;

    if (plan->forward_term)
        forward(run, run->term_signal);
    if (!plan->kill && !left_behind)
        return;
    if (begins) {
        run->kill_gap_ns = KILL_FIRST_NS;
        run->kill_at = run->now;
    }
    sweep(run);
    // After the deed: a line can wait, a kill cannot.
    if (begins && plan->kill)
        fence_log(FENCE_LOG_WARN, "killing meta",
                  "incarnation=%llu reason=%s deadline_boot_ns=%lld",
                  (unsigned long long)status->incarnation, fence_reason_name(plan->reason),
                  (long long)run->memory.kill_deadline_ns);
    else if (begins)
        fence_log(FENCE_LOG_WARN, "meta ended and left processes behind: killing them",
                  "incarnation=%llu", (unsigned long long)status->incarnation);
}

// Returns 0, or -1 after a logged error.
static int start_meta(struct run *run)
{
    // Before the fork: a lease that it wins while we wait for CPU is not older than this.
    struct instant begun = clock_now();
    struct spawned spawned = {0};
    struct err err = {0};
    char quoted[QUOTE_SIZE];

    if (spawn_start(&run->spawn, &spawned, &err) < 0) {
        fence_log(FENCE_LOG_ERROR, "meta cannot be started", "err=%s",
                  fence_log_quote(err.msg, quoted, sizeof(quoted)));
        run->failed_start = err.code == ENOENT ? 127 : 126;
        return -1;
    }
    shim_started(&run->memory, begun, spawned.pid, spawned.start_ticks, spawned.tag);
    run->root = spawned.pid;
    run->end = (struct tree_end){0};
    run->kill_round = 0;
    run->facts.ports = 0;
    run->sample_at = run->now;
    return 0;
}

// One turn. Returns true when metafence-run has to end, with *ret_status.
static bool turn(struct run *run, int *ret_status)
{
    struct shim_plan plan = {0};

    run->now = clock_now();
    observe_children(run);
    observe_ports(run);
    run->facts.now = run->now = clock_now();
    run->facts.agent_connected = sock_has_agent(&run->sock);
    shim_decide(&run->options->shim, &run->facts, &run->memory, &plan);
    act_on_life(run, &plan);
    run->wake_at = plan.wake_at;
    if (plan.start) {
        if (start_meta(run) < 0) {
            *ret_status = run->failed_start;
            return true;
        }
        run->wake_at = run->now; // decide about the newborn at once
    }
    publish(run);
    *ret_status = plan.exit_status;
    return plan.exit;
}

// ---- waiting

static void set_timer(struct run *run)
{
    struct instant at = instant_min(run->wake_at, run->rewrite_at);
    struct itimerspec spec = {0};

    if (is_alive(run))
        at = instant_min(at, run->sample_at);
    if (is_alive(run) && run->kill_round > 0)
        at = instant_min(at, run->kill_at);
    if (at.ns < 1)
        at.ns = 1; // zero would disarm it
    spec.it_value.tv_sec = at.ns / NS_PER_SEC;
    spec.it_value.tv_nsec = at.ns % NS_PER_SEC;
    // Absolute BOOTTIME: after a suspend it fires at once.
    (void)timerfd_settime(run->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void wait_and_observe(struct run *run)
{
    struct pollfd fds[2 + SOCK_POLLS_MAX] = {{.fd = run->signal_fd, .events = POLLIN},
                                             {.fd = run->timer_fd, .events = POLLIN}};
    size_t count = 2 + sock_polls(&run->sock, fds + 2);
    uint64_t fired = 0;

    set_timer(run);
    if (ppoll(fds, count, NULL, NULL) < 0)
        return; // EINTR: look again
    run->now = clock_now();
    if (fds[1].revents)
        (void)!read(run->timer_fd, &fired, sizeof(fired));
    if (fds[0].revents)
        observe_signals(run);
    for (size_t i = 3; i < count; i++)
        if (fds[i].revents)
            observe_peer(run, fds[i].fd);
    if (fds[2].revents)
        observe_connections(run);
}

int run(const struct options *options)
{
    static struct run state; // large, and zero
    struct err err = {0};
    char quoted[QUOTE_SIZE];
    int status = 1;

    fence_log_init();
    state.options = options;
    if (prepare(&state, &err) < 0) {
        fence_log(FENCE_LOG_ERROR, "metafence-run cannot start", "err=%s",
                  fence_log_quote(err.msg, quoted, sizeof(quoted)));
        return 1;
    }
    while (!turn(&state, &status))
        wait_and_observe(&state);
    fence_log(FENCE_LOG_INFO, "metafence-run ends", "exit_status=%d", status);
    sock_close(&state.sock);
    return status;
}
