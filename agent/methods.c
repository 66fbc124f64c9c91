// SPDX-License-Identifier: Apache-2.0
#include "agent/methods.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/pidfence.h"
#include "base/log.h"

#define SWEEP_NS      NS_PER_MS
#define SWEEP_CALM_NS (100 * NS_PER_MS)
#define YOUNG_NS      (2 * NS_PER_SEC) // what is being executed does not show all of itself yet

static bool send_to_shim(struct methods *methods, const struct fence_order *order)
{
    return fencelink_send(methods->link, order);
}

static bool send_to_pidfence(struct methods *methods, const struct fence_order *order)
{
    return pidfence_send(methods->pidfence, order);
}

const char *methods_unusable(const struct methods *methods)
{
    return methods->pidfence ? pidfence_unusable(methods->pidfence) : "";
}

// --- the second method ---

// The number may mean another process in our PID namespace than in metafence-run's: what bears
// its time of birth and the tag of this very incarnation is meta.
static int open_group(struct methods *methods, const struct fence_status *status,
                      struct err *err)
{
    struct pidfd_process process = {0};
    char tag[FENCE_TAG_SIZE];

    if (!pidfd_read_process(&methods->view, status->pid, &process) ||
        process.start_ticks != status->start_ticks)
        return err_set(err, ERR_DENIED, ESRCH,
                       "meta is not seen in /proc: no shareProcessNamespace");
    pidfd_read_tag(&methods->view, process.pid, tag);
    if (!tag[0] || strcmp(tag, status->tag) != 0)
        return err_set(err, ERR_DENIED, EPERM,
                       "process %d (uid %u) does not show meta's session tag to us (uid %u): "
                       "give both containers the same runAsUser",
                       process.pid, process.uid, methods->view.uid);
    if (pidfd_group_open(&methods->group, &methods->view, &process, err) < 0)
        return -1;
    memcpy(methods->group.tag, tag, sizeof(tag));
    methods->group.spared = process.parent; // metafence-run is the kubelet's
    return pidfd_group_may_kill(&methods->group, err);
}

// Once for each incarnation, and in each turn of its first moments until it is found: later
// neither its user nor the PID namespace changes.
static void look_at_incarnation(struct methods *methods, const struct fence_status *status,
                                struct instant now)
{
    bool is_young = instant_since(now, (struct instant){status->started_ns}) < YOUNG_NS;
    struct err err = {0};

    if (status->incarnation == methods->incarnation || !(status->flags & SHIM_ALIVE) ||
        status->pid <= 0)
        return;
    loop_timer_stop(methods->sweep);
    pidfd_group_close(&methods->group);
    methods->incarnation = status->incarnation;
    methods->is_killing = false;
    if (open_group(methods, status, &err) == 0) {
        methods->why[0] = '\0';
        log_debug("pidfd is usable beside metafence-run", kv_int("pid", status->pid));
        return;
    }
    pidfd_group_close(&methods->group);
    if (is_young) {
        methods->incarnation = 0;
        return;
    }
    if (strcmp(methods->why, err.msg) != 0)
        log_info("no pidfd beside metafence-run", kv_err(&err));
    (void)snprintf(methods->why, sizeof(methods->why), "%.220s", err.msg);
}

void methods_look(struct methods *methods, struct facts *facts)
{
    struct method_fact *usable = &facts->methods;

    usable->by_pidfd = methods->pidfence != NULL;
    usable->unusable = methods_unusable(methods)[0] != '\0';
    if (usable->by_pidfd) {
        facts->fence.known = facts->fence.known && !pidfence_is_blind(methods->pidfence);
        return;
    }
    look_at_incarnation(methods, &facts->fence.status, facts->now);
    usable->pidfd =
        methods->group.count > 0 && methods->incarnation == facts->fence.status.incarnation;
    facts->proven = methods->proven;
}

void methods_forget(struct methods *methods)
{
    loop_timer_stop(methods->sweep);
    pidfd_group_close(&methods->group);
    methods->incarnation = 0;
    methods->is_killing = false;
    methods->proven = (struct fence_death){0};
}

static void prove(struct methods *methods)
{
    methods->is_killing = false;
    methods->proven.incarnation = methods->incarnation;
    methods->proven.dead_ns = clock_now().ns;
    pidfd_group_close(&methods->group);
    log_warn("dead by pidfd: metafence-run has not confirmed",
             kv_int("incarnation", (int64_t)methods->incarnation),
             kv_str("tag", methods->proven.tag));
    methods->config.on_change(methods->config.arg);
}

static void on_sweep(void *arg)
{
    struct methods *methods = arg;
    struct err err = {0};

    if (pidfd_group_kill(&methods->group, &err) < 0 && methods->sweep_ns == SWEEP_NS)
        log_error("kill by pidfd", kv_err(&err));
    if (pidfd_group_look(&methods->group)) {
        prove(methods);
        return;
    }
    loop_timer_arm(methods->sweep, methods->sweep_ns);
    if (methods->sweep_ns < SWEEP_CALM_NS)
        methods->sweep_ns *= 2;
}

void methods_kill(struct methods *methods, const struct facts *facts, const struct plan *plan)
{
    const struct fence_status *status = &facts->fence.status;
    enum fence_reason reason = (enum fence_reason)plan->order.reason;

    if (methods->is_killing || methods->group.count == 0 ||
        methods->incarnation != status->incarnation)
        return;
    methods->is_killing = true;
    methods->sweep_ns = SWEEP_NS;
    methods->proven = (struct fence_death){
        .decided_ns = plan->not_fenced_since.ns,
        .reason = reason == FENCE_REASON_NONE ? FENCE_REASON_LEASE_EXPIRED : reason,
        .wait_status = PIDFENCE_WAIT_UNKNOWN,
        .engaged = (status->flags & SHIM_ENGAGED) || (plan->order.flags & FENCE_ORDER_ENGAGED),
    };
    memcpy(methods->proven.tag, status->tag, sizeof(methods->proven.tag));
    log_warn("killing meta by pidfd: metafence-run does not confirm",
             kv_int("incarnation", (int64_t)status->incarnation), kv_int("pid", status->pid));
    loop_timer_arm(methods->sweep, 0);
}

// --- life ---

void methods_open(struct methods *methods, struct loop *loop,
                  const struct methods_config *config)
{
    const struct pidfence_config pidfence = {.config = config->config,
                                             .proc = "/proc",
                                             .ops = config->ops,
                                             .on_change = config->on_change,
                                             .arg = config->arg};

    methods->config = *config;
    methods->sweep = loop_timer_new(loop, on_sweep, methods);
    pidfd_view_init(&methods->view, "/proc");
    if (config->config->fence_method == FENCE_BY_PIDFD) {
        methods->pidfence = pidfence_new(loop, &pidfence);
        methods->send = send_to_pidfence;
    } else {
        methods->link =
            fencelink_new(loop, config->config->fence_socket, config->ops, config->arg);
        methods->send = send_to_shim;
    }
}

void methods_close(struct methods *methods)
{
    fencelink_free(methods->link);
    pidfence_free(methods->pidfence);
    loop_timer_free(methods->sweep);
    pidfd_group_close(&methods->group);
}
