// SPDX-License-Identifier: Apache-2.0
// Sends the queue's events, one at a time.
#include "agent/agent.h"
#include "agent/kube/parts.h"

void kube_say(struct kube *kube, const struct kube_event *event)
{
    if (!kube || !kube->says_events)
        return;
    // Sent by the next step: this one may be inside of a part's own.
    kube_queue_put(&kube->queue, event, clock_now(), kube_wall_ns() / 1000);
    loop_timer_arm(kube->timer, 0);
}

static void on_event(const struct k8s_result *result, void *arg)
{
    struct kube *kube = arg;

    if (result->outcome != K8S_CONFLICT) // it had arrived
        kube_log_edge(&kube->event_edge, "event", result);
    kube_queue_done(&kube->queue, result->outcome, result->retry_after_ns, clock_now());
    kube_step(kube);
}

struct instant kube_events_step(struct kube *kube, struct instant now)
{
    const struct kube_queued *queued = kube_queue_next(&kube->queue, now);

    if (queued) {
        const struct k8s_event event = {
            .pod = kube->pod,
            .uid = kube->uid,
            .node = kube->node[0] ? kube->node : NULL,
            .type = queued->is_warning ? "Warning" : "Normal",
            .action = queued->action,
            .reason = queued->reason,
            .note = queued->note,
            .wall_us = queued->wall_us,
        };

        (void)k8s_create_event(kube->k8s, &event, on_event, kube);
    }
    return kube_queue_wake(&kube->queue);
}
