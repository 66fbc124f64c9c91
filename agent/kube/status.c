// SPDX-License-Identifier: Apache-2.0
// The Kubernetes part in the status and for metrics.
#include <inttypes.h>

#include "agent/agent.h"
#include "agent/kube/parts.h"
#include "base/buf.h"

static const char *bool_text(bool value)
{
    return value ? "true" : "false";
}

static void put_label(const struct kube *kube, struct buf *out)
{
    const struct kube_label *label = &kube->label;

    buf_printf(out, ",\"label\":{\"wished\":");
    if (label->has_wish)
        buf_put_json(out, kube_role_text(label->wish));
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"confirmed\":");
    if (label->is_confirmed)
        buf_put_json(out, kube_role_text(label->confirmed));
    else
        buf_puts(out, "null");
    buf_printf(out, ",\"role_label\":\"%s\",\"role_label_differs\":%s,\"denied\":%s}",
               kube_role_key_name(label->role_key), bool_text(kube_label_role_differs(label)),
               bool_text(label->is_denied));
}

static void put_order(const struct kube *kube, struct buf *out)
{
    const char *state = "written";

    if (kube->fence.is_pending || kube->pause.is_pending)
        state = kube->fence.is_denied || kube->pause.is_denied ? "denied" : "pending";
    buf_printf(out, ",\"orders\":\"%s\",\"refused_order\":", state);
    buf_put_json(out, kube->refused_order);
}

static uint64_t writes_of(const struct kube *kube)
{
    uint64_t writes = 0;

    for (int i = 0; i <= K8S_GARBAGE; i++)
        writes += kube->label_patches[i];
    return writes;
}

void kube_status_json(const struct kube *kube, struct buf *out)
{
    const struct api_fact *fact = NULL;
    struct k8s_stats stats = {0};

    if (!kube) {
        buf_puts(out, ",\"kubernetes\":{\"enabled\":false}");
        return;
    }
    fact = &kube->agent->facts.api;
    k8s_get_stats(kube->k8s, &stats);
    buf_printf(out, ",\"kubernetes\":{\"enabled\":true,\"up\":%s,\"since_ms\":%" PRId64,
               bool_text(kube->is_up), instant_since(clock_now(), kube->up_since) / NS_PER_MS);
    buf_printf(out, ",\"pod\":{\"known\":%s,\"ours\":%s,\"other\":%s}", bool_text(fact->known),
               bool_text(fact->lists_our_uid), bool_text(fact->lists_other_uid));
    put_label(kube, out);
    put_order(kube, out);
    buf_printf(out,
               ",\"writes\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"siblings_cleared\":%" PRIu64
               ",\"watch_restarts\":%" PRIu64,
               writes_of(kube), stats.requests, kube->siblings.cleared,
               k8s_watch_restarts(kube->watch));
    buf_printf(out,
               ",\"events\":{\"sent\":%" PRIu64 ",\"repeated\":%" PRIu64 ",\"dropped\":%" PRIu64
               "},\"error\":",
               kube->queue.sent, kube->queue.repeated, kube->queue.dropped);
    buf_put_json(out, kube->error);
    buf_putc(out, '}');
}

bool kube_get_stats(const struct kube *kube, struct kube_stats *ret)
{
    if (!kube)
        return false;
    *ret = (struct kube_stats){.watch_restarts = k8s_watch_restarts(kube->watch),
                               .events_sent = kube->queue.sent,
                               .events_repeated = kube->queue.repeated,
                               .events_dropped = kube->queue.dropped,
                               .token_age_ns = -1,
                               .is_up = kube->is_up};
    k8s_get_stats(kube->k8s, &ret->requests);
    for (int i = 0; i <= K8S_GARBAGE; i++)
        ret->label_patches[i] = kube->label_patches[i];
    if (ret->requests.token_read_at.ns != 0)
        ret->token_age_ns = instant_since(clock_now(), ret->requests.token_read_at);
    return true;
}
