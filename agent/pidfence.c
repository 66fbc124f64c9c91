// SPDX-License-Identifier: Apache-2.0
#include "agent/pidfence.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/pidfd.h"
#include "agent/pidstate.h"
#include "base/log.h"
#include "base/loop.h"
#include "fence/ports.h"
#include "fence/shim.h"
#include "fence/state.h"

#define LOOK_NS       (100 * NS_PER_MS) // at the ports, or for meta
#define SWEEP_NS      NS_PER_MS         // between two rounds of a kill, then doubling
#define SWEEP_CALM_NS (100 * NS_PER_MS)
#define WHY_SIZE      224

struct pidfence {
    struct pidfence_config config;
    struct shim_config shim;
    struct shim_memory memory;
    struct shim_plan plan;
    struct instant now;

    struct pidfd_view view;
    struct pidfd_group group; // of the living incarnation
    struct ports_reader ports;
    uint32_t seen_ports;
    char unusable[WHY_SIZE]; // as last told

    struct loop_io *death;      // of one living member
    struct loop_timer *look;    // at the ports, for meta, for the rest of a kill
    struct loop_timer *publish; // of a status, from the loop
    struct loop_deadline *wake; // the next decision
    int64_t sweep_ns;           // to the next round of a kill; 0: not killing
    struct instant ports_due;

    struct pidstate state;
    bool is_begun; // the first look was taken, and what an earlier agent left
    bool is_mount_told;
    bool is_served_unseen; // last time somebody served meta's port, and no process was found
};

static bool is_alive(const struct pidfence *fence)
{
    return fence->memory.status.flags & SHIM_ALIVE;
}

// --- what is said ---

static void set_unusable(struct pidfence *fence, const char *why)
{
    if (strcmp(fence->unusable, why) == 0)
        return;
    (void)snprintf(fence->unusable, sizeof(fence->unusable), "%s", why);
    if (*why)
        log_error("the fence is not usable", kv_str("why", why));
    else
        log_info("the fence is usable");
    if (fence->config.on_change)
        fence->config.on_change(fence->config.arg);
}

static void say_refused(struct pidfence *fence, const struct err *err)
{
    const struct pidfd_process *leader = &fence->group.leader;
    char why[WHY_SIZE];

    if (err->code != EPERM)
        (void)snprintf(why, sizeof(why), "not usable: %.180s", err->msg);
    else
        (void)snprintf(why, sizeof(why),
                       "not usable: process %d runs as uid %u and we as uid %u, so that we may "
                       "not kill it: give both containers the same runAsUser",
                       leader->pid, leader->uid, fence->view.uid);
    set_unusable(fence, why);
}

// On disk first: a kill of ours in the next moment must not undo what the agent knows.
static void seal(struct pidfence *fence)
{
    fence->memory.status.written_ns = fence->now.ns;
    fence_status_seal(&fence->memory.status);
    pidstate_write(&fence->state, &fence->memory.status, fence->now);
    loop_timer_arm(fence->publish, 0);
}

static void on_publish(void *arg)
{
    struct pidfence *fence = arg;

    if (!pidfence_is_blind(fence))
        fence->config.ops->on_status(&fence->memory.status, fence->config.arg);
}

// --- deaths ---

// A pidfd of the group that is still open to wait for; the kernel tells of all in the end.
static void watch_group(struct pidfence *fence)
{
    struct err err = {0};
    int fd = is_alive(fence) ? pidfd_group_watch_fd(&fence->group) : -1;

    if (loop_io_set(fence->death, fd, fd < 0 ? 0U : LOOP_READ, &err) < 0)
        log_error("meta's death is seen by looking only", kv_err(&err));
}

static void bury(struct pidfence *fence)
{
    bool by_us = fence->memory.kill_sent;

    loop_io_stop(fence->death);
    pidfd_group_close(&fence->group);
    shim_reaped(&fence->shim, &fence->memory, fence->now, by_us ? SIGKILL : 0);
    if (!by_us)
        fence->memory.status.last_death.wait_status = PIDFENCE_WAIT_UNKNOWN;
    fence->sweep_ns = 0;
    fence->seen_ports = 0;
    log_info("meta's container is empty",
             kv_int("incarnation", (int64_t)fence->memory.status.incarnation),
             kv_bool("killed", by_us));
}

// One round of a kill, and again soon until nobody is left.
static void sweep(struct pidfence *fence)
{
    struct err err = {0};

    if (pidfd_group_kill(&fence->group, &err) < 0)
        say_refused(fence, &err);
    if (fence->sweep_ns == 0)
        fence->sweep_ns = SWEEP_NS;
    else if (fence->sweep_ns < SWEEP_CALM_NS)
        fence->sweep_ns *= 2;
    fence->now = clock_now();
}

static void observe_death(struct pidfence *fence)
{
    if (!is_alive(fence) || fence->group.count == 0)
        return;
    // As long as the one that we watch lives there is no reason to look at all of /proc.
    if (fence->sweep_ns == 0 && pidfd_group_leader_lives(&fence->group))
        return;
    if (pidfd_group_look(&fence->group)) {
        fence->now = clock_now();
        bury(fence);
    }
}

// --- births ---

// Whether we may kill it is found out at once, not when it has to die; and again and again, for
// a process may change its user, as an entrypoint does that drops root.
static void look_at_rights(struct pidfence *fence)
{
    struct pidfd_process leader;
    struct err err = {0};

    if (pidfd_group_may_kill(&fence->group, &err) == 0) {
        set_unusable(fence, "");
        return;
    }
    if (pidfd_read_process(&fence->view, fence->group.leader.pid, &leader))
        fence->group.leader.uid = leader.uid;
    say_refused(fence, &err);
}

static int take_process(struct pidfence *fence, const struct pidfd_process *process)
{
    struct err err = {0};

    if (pidfd_group_open(&fence->group, &fence->view, process, &err) < 0) {
        if (err.code != ESRCH)
            say_refused(fence, &err);
        return -1;
    }
    look_at_rights(fence);
    fence->ports_due = fence->now;
    if (process->mount_ns == 0 && !fence->is_mount_told)
        log_warn("meta's mount namespace may not be read: its descendants are taken for its "
                 "container",
                 kv_int("pid", process->pid));
    fence->is_mount_told = process->mount_ns == 0;
    return 0;
}

static enum fence_reason reason_of_hold(uint32_t hold)
{
    switch (hold) {
    case SHIM_HOLD_MANUAL: return FENCE_REASON_MANUAL;
    case SHIM_HOLD_TWIN: return FENCE_REASON_TWIN_IDENTITY;
    case SHIM_HOLD_PHANTOM: return FENCE_REASON_PHANTOM_LEADER;
    default: return FENCE_REASON_NONE;
    }
}

// The last order again, as if it had been written for the newborn.
static void kill_newborn(struct pidfence *fence, enum fence_reason reason)
{
    struct fence_order order = fence->memory.order;

    order.incarnation = fence->memory.status.incarnation;
    order.role = FENCE_ROLE_KILL;
    order.reason = (uint32_t)reason;
    order.pause_end_ns = fence->memory.status.pause_end_ns;
    if (fence->memory.status.flags & SHIM_MANUAL)
        order.flags |= FENCE_ORDER_MANUAL_HOLD;
    shim_take_order(&fence->shim, &fence->memory, &order, fence->now);
}

static void begin_life(struct pidfence *fence, const struct pidfd_process *process)
{
    enum fence_reason reason = reason_of_hold(fence->memory.status.hold);
    char tag[FENCE_TAG_SIZE];

    if (take_process(fence, process) < 0)
        return;
    pidfd_read_tag(&fence->view, process->pid, tag);
    memset(fence->memory.status.tag, 0, sizeof(fence->memory.status.tag));
    shim_started(&fence->memory, pidfd_started_at(process), process->pid, process->start_ticks,
                 tag);
    log_info("meta is found", kv_int("pid", process->pid), kv_int("uid", process->uid),
             kv_str("tag", tag),
             kv_int("incarnation", (int64_t)fence->memory.status.incarnation));
    if (reason != FENCE_REASON_NONE)
        kill_newborn(fence, reason);
}

// Somebody serves meta's port. In one look it may have been born behind our eye, in two it is
// meta, where we can't see it.
static void look_at_nobody(struct pidfence *fence)
{
    const struct config *config = fence->config.config;
    bool was_served = fence->is_served_unseen;
    char why[WHY_SIZE] = "";

    fence->is_served_unseen = ports_read(&fence->ports) & SHIM_PORT_SERVICE;
    if (fence->is_served_unseen && was_served)
        (void)snprintf(
            why, sizeof(why),
            "not usable: port %d is served, but no process with the argument %.64s is "
            "seen: set shareProcessNamespace in the pod, or fence.command",
            (int)config->meta_service_port, config->fence_command);
    if (!fence->is_served_unseen || was_served)
        set_unusable(fence, why);
}

static void look_for_meta(struct pidfence *fence)
{
    struct pidfd_search found;
    struct err err = {0};
    char why[WHY_SIZE];

    if (pidfd_find(&fence->view, fence->config.config->fence_command, &found, &err) < 0) {
        (void)snprintf(why, sizeof(why), "not usable: %.180s", err.msg);
        set_unusable(fence, why);
        return;
    }
    if (found.ambiguous.pid != 0) {
        (void)snprintf(why, sizeof(why),
                       "not usable: processes %d and %d of two containers have the argument "
                       "%.64s: only one of them can be meta; end the other one",
                       found.process.pid, found.ambiguous.pid,
                       fence->config.config->fence_command);
        set_unusable(fence, why);
        return;
    }
    if (found.process.pid == 0) {
        look_at_nobody(fence);
        return;
    }
    fence->is_served_unseen = false;
    begin_life(fence, &found.process);
}

// --- what an earlier agent left ---

// Its very process; or one that was there when it wrote last: a child of that which outlived
// it.
static bool is_of(const struct fence_status *left, const struct pidfd_process *process)
{
    if (process->pid == left->pid)
        return process->start_ticks == left->start_ticks;
    return process->pid != 0 && pidfd_started_at(process).ns < left->written_ns;
}

static bool find_left(struct pidfence *fence, const struct fence_status *left,
                      struct pidfd_process *ret)
{
    struct pidfd_search found;
    struct err err = {0};

    if (pidfd_read_process(&fence->view, left->pid, ret) && ret->state != 'Z' &&
        is_of(left, ret))
        return true;
    if (pidfd_find(&fence->view, fence->config.config->fence_command, &found, &err) < 0 ||
        !is_of(left, &found.process))
        return false;
    *ret = found.process;
    return true;
}

static void restore(struct pidfence *fence)
{
    struct fence_status *status = &fence->memory.status;
    struct pidfd_process process = {0};
    struct fence_status left;
    bool is_same_boot = false;

    state_boot_id(status->boot_id, sizeof(status->boot_id));
    if (!pidstate_open(&fence->state, &left, fence->now))
        return;
    is_same_boot = strncmp(left.boot_id, status->boot_id, sizeof(left.boot_id)) == 0;
    if ((left.flags & SHIM_ALIVE) && is_same_boot && find_left(fence, &left, &process) &&
        take_process(fence, &process) == 0)
        pidstate_resume(&left, &fence->memory);
    else
        shim_restore(&fence->memory, &left, true, fence->now);
    log_info(
        "took over from an earlier agent", kv_int("incarnation", (int64_t)left.incarnation),
        kv_bool("lives", is_alive(fence)), kv_bool("engaged", status->flags & SHIM_ENGAGED),
        kv_bool("superseded", status->flags & SHIM_SUPERSEDED),
        kv_bool("manual", status->flags & SHIM_MANUAL));
}

// --- the turn ---

static void observe(struct pidfence *fence)
{
    observe_death(fence);
    if (!is_alive(fence)) {
        look_for_meta(fence);
    } else if (instant_reached(fence->now, fence->ports_due)) {
        fence->seen_ports = ports_read_stable(&fence->ports, fence->seen_ports);
        fence->ports_due = instant_add(fence->now, LOOK_NS);
        if (fence->sweep_ns == 0)
            look_at_rights(fence);
    }
}

static void judge(struct pidfence *fence)
{
    struct fence_status *status = &fence->memory.status;
    const struct shim_facts facts = {
        .now = fence->now, .agent_connected = true, .ports = fence->seen_ports};

    shim_decide(&fence->shim, &facts, &fence->memory, &fence->plan);
    if (reason_of_hold(status->hold) != FENCE_REASON_NONE)
        return;
    status->hold = SHIM_HOLD_NONE; // one that nothing enforces is none
    status->hold_until_ns = 0;
}

static void decide_and_act(struct pidfence *fence)
{
    // The agent has to read before it may judge: what lives is left to its first order.
    if (is_alive(fence) && !fence->memory.order_seen)
        return;
    judge(fence);
    loop_deadline_set(fence->wake, fence->plan.wake_at);
    if (!fence->plan.kill)
        return;
    sweep(fence);
    observe_death(fence);
    if (!is_alive(fence))
        judge(fence);
}

static void decide_and_wait(struct pidfence *fence)
{
    decide_and_act(fence);
    watch_group(fence);
    loop_timer_arm(fence->look, fence->sweep_ns ? fence->sweep_ns : LOOK_NS);
}

static void turn(struct pidfence *fence)
{
    fence->now = clock_now();
    if (!fence->is_begun) {
        fence->is_begun = true;
        restore(fence);
    }
    observe(fence);
    decide_and_wait(fence);
}

static void on_look(void *arg)
{
    struct pidfence *fence = arg;
    bool was_blind = pidfence_is_blind(fence);
    struct fence_status before;

    memcpy(&before, &fence->memory.status, sizeof(before));
    turn(fence);
    if (pidstate_is_news(&before, &fence->memory.status) || fence->memory.status.magic == 0 ||
        (was_blind && !pidfence_is_blind(fence)))
        seal(fence);
}

static void on_death(int fd, unsigned events, void *arg)
{
    (void)fd;
    (void)events;
    on_look(arg);
}

static void on_wake(struct instant deadline, void *arg)
{
    (void)deadline;
    on_look(arg);
}

bool pidfence_send(struct pidfence *fence, const struct fence_order *order)
{
    struct fence_order taken = *order;

    // The core tells orders that were taken from those that were not by this mark.
    taken.magic = FENCE_ORDER_MAGIC;
    fence->now = clock_now();
    shim_take_order(&fence->shim, &fence->memory, &taken, fence->now);
    decide_and_wait(fence);
    seal(fence);
    return true;
}

const char *pidfence_unusable(const struct pidfence *fence)
{
    return fence->unusable;
}

bool pidfence_is_blind(const struct pidfence *fence)
{
    return fence->unusable[0] && !is_alive(fence);
}

// --- life ---

static struct shim_config shim_config_of(const struct core_config *core)
{
    return (struct shim_config){
        .ttl_ns = core->ttl_ns,
        .margin_ns = core->margin_ns,
        .kill_budget_ns = core->kill_budget_ns,
        .kill_window_ns = 600 * NS_PER_SEC,
        .agent_silence_ns = INT64_MAX, // it is our own process
        .max_kills = 3,
        .restart = SHIM_RESTART_IN_PLACE,
        .when_agent_lost = SHIM_AGENT_LOST_FENCE,
    };
}

struct pidfence *pidfence_new(struct loop *loop, const struct pidfence_config *config)
{
    struct pidfence *fence = calloc(1, sizeof(*fence));
    const struct config *options = config->config;
    const struct ports_wanted ports = {(uint16_t)options->meta_service_port,
                                       (uint16_t)options->meta_metrics_port,
                                       (uint16_t)options->meta_dashboard_port};
    struct err err = {0};

    if (!fence || loop_deadline_new(loop, on_wake, fence, &fence->wake, &err) < 0)
        abort();
    fence->config = *config;
    fence->shim = shim_config_of(&options->core);
    pidstate_init(&fence->state, options->fence_socket);
    pidfd_view_init(&fence->view, config->proc);
    ports_open(&fence->ports, &ports);
    fence->death = loop_io_new(loop, on_death, fence);
    fence->look = loop_timer_new(loop, on_look, fence);
    fence->publish = loop_timer_new(loop, on_publish, fence);
    loop_timer_arm(fence->look, 0);
    return fence;
}

void pidfence_free(struct pidfence *fence)
{
    if (!fence)
        return;
    loop_io_free(fence->death);
    loop_timer_free(fence->look);
    loop_timer_free(fence->publish);
    loop_deadline_free(fence->wake);
    pidfd_group_close(&fence->group);
    ports_close(&fence->ports);
    pidstate_close(&fence->state);
    free(fence);
}
