// SPDX-License-Identifier: Apache-2.0
#include "fence/prepare.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "fence/log.h"
#include "fence/remains.h"
#include "fence/state.h"

#define STACK_NEEDED 131072

// Signals that are not passed on: those that a fault of our own raises, those that the terminal
// sends to stop us, PIPE (our own writes raise it) and what cannot be caught.
static void choose_signals(sigset_t *set)
{
    static const int own[] = {SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGTRAP,
                              SIGSYS,  SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE};

    (void)sigfillset(set);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        (void)sigdelset(set, own[i]);
}

static int prepare_signals(struct run *run, struct err *err)
{
    sigset_t set;

    choose_signals(&set);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGTTOU, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, &run->spawn.child_mask) < 0)
        return err_set(err, ERR_TRANSIENT, errno, "sigprocmask: %s", strerrorname_np(errno));
    run->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (run->signal_fd < 0)
        return err_set(err, ERR_TRANSIENT, errno, "signalfd: %s", strerrorname_np(errno));
    run->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (run->timer_fd < 0)
        return err_set(err, ERR_TRANSIENT, errno, "timerfd: %s", strerrorname_np(errno));
    return 0;
}

// Locked is better than not, but no reason to refuse: a small RLIMIT_MEMLOCK is common. Not
// MCL_FUTURE: with a limit it would turn a growing stack into a crash; instead the stack is
// touched before.
static bool lock_memory(void)
{
    volatile char stack[STACK_NEEDED];

    for (size_t i = 0; i < sizeof(stack); i += 1024)
        stack[i] = 0;
    return mlockall(MCL_CURRENT) == 0;
}

// The environment holds meta's secrets: no core of ours, and no reader.
static void hide_secrets(struct run *run)
{
    struct rlimit none = {0};

    (void)getrlimit(RLIMIT_CORE, &run->spawn.child_core);
    none.rlim_max = run->spawn.child_core.rlim_max;
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

static int prepare_state(struct run *run, struct err *err)
{
    struct fence_status left = {0};
    struct fence_status *status = &run->memory.status;
    bool has_left = false;
    bool same_boot = false;

    state_boot_id(status->boot_id, sizeof(status->boot_id));
    if (state_open(run->options->state_path, &run->state_fd, &left, &has_left, err) < 0)
        return -1;
    if (!has_left)
        return 0;
    same_boot = strncmp(left.boot_id, status->boot_id, sizeof(left.boot_id)) == 0;
    // As PID 1 of a new container the kernel has ended the old one's processes before we began.
    if ((left.flags & SHIM_ALIVE) && same_boot && getpid() != 1 && remains_kill(&left, err) < 0)
        return -1;
    shim_restore(&run->memory, &left, true, clock_now());
    fence_log(FENCE_LOG_INFO, "took over from an earlier metafence-run",
              "incarnation=%llu was_alive=%d same_boot=%d last_reason=%s manual=%d",
              (unsigned long long)left.incarnation, !!(left.flags & SHIM_ALIVE), same_boot,
              fence_reason_name((enum fence_reason)status->last_death.reason),
              !!(left.flags & SHIM_MANUAL));
    return 0;
}

int prepare(struct run *run, struct err *err)
{
    const struct options *options = run->options;
    bool locked = false;

    run->state_fd = run->signal_fd = run->timer_fd = -1;
    if (tree_adopt() < 0)
        return err_set(err, ERR_DENIED, errno, "PR_SET_CHILD_SUBREAPER: %s",
                       strerrorname_np(errno));
    if (spawn_init(&run->spawn, options->argv, options->pod_uid, err) < 0 ||
        prepare_state(run, err) < 0 ||
        sock_listen(&run->sock, options->socket_path, options->peer_uid, err) < 0 ||
        prepare_signals(run, err) < 0)
        return -1;
    ports_open(&run->ports, &options->ports);
    hide_secrets(run);
    locked = lock_memory();
    if (locked)
        run->memory.status.flags |= SHIM_MEMORY_LOCKED;
    run->published = run->memory.status;
    fence_log(FENCE_LOG_INFO, "metafence-run started",
              "version=%s pid=%d memory_locked=%d ttl_ms=%lld host_id=%s", METAFENCE_VERSION,
              getpid(), locked, (long long)(options->shim.ttl_ns / NS_PER_MS),
              options->host_id ? options->host_id : "-");
    return 0;
}
