// SPDX-License-Identifier: Apache-2.0
// What the API says about our pod: the fact for decisions, fresh looks, and the last rung of
// the ladder, the delete.
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/kube/parts.h"
#include "base/log.h"

#define FACT_NS        (10 * NS_PER_SEC) // how long an answer is believed
#define LOOK_NS        NS_PER_SEC
#define BUSY_MAX_NS    (5 * NS_PER_SEC)
#define DELETE_NS      (2 * NS_PER_SEC)
#define DENIED_NS      (30 * NS_PER_SEC)
#define DELETE_GRACE_S 1

static void set_fact(struct kube *kube, const struct api_fact *fact)
{
    struct api_fact *to = &kube->agent->facts.api;
    bool is_news = to->known != fact->known || to->lists_our_uid != fact->lists_our_uid ||
                   to->lists_other_uid != fact->lists_other_uid;

    *to = *fact;
    if (is_news)
        agent_feed(kube->agent);
}

static void say_found(struct kube *kube, bool is_ours, const char *uid)
{
    if (kube->is_ours == is_ours)
        return;
    if (is_ours)
        log_info("kubernetes: the API lists our pod again", kv_str("pod", kube->pod));
    else
        log_warn("kubernetes: the API does not list our pod; nothing is written there",
                 kv_str("pod", kube->pod), kv_str("uid", kube->uid), kv_str("listed_uid", uid));
}

struct k8s *kube_client(const struct kube *kube)
{
    return kube ? kube->k8s : NULL;
}

const char *kube_release(const struct kube *kube)
{
    return kube ? kube->release : "";
}

bool kube_knows_us(const struct kube *kube)
{
    return kube && kube->is_known && kube->is_ours;
}

void kube_take_pod(struct kube *kube, const struct k8s_pod *pod)
{
    struct instant now = clock_now();
    bool is_ours = pod && strcmp(pod->uid, kube->uid) == 0;
    const struct api_fact fact = {.known = true,
                                  .observed_at = now,
                                  .lists_our_uid = is_ours && !pod->is_deleting,
                                  .lists_other_uid = pod && !is_ours};

    say_found(kube, is_ours, pod ? pod->uid : "");
    kube->is_known = true;
    kube->is_ours = is_ours;
    kube->wants_look = false;
    if (is_ours) {
        (void)snprintf(kube->owner_uid, sizeof(kube->owner_uid), "%s",
                       pod->owner_uid ? pod->owner_uid : "");
        const char *release = k8s_pod_label(pod, "risingwave/name");

        (void)snprintf(kube->node, sizeof(kube->node), "%s", pod->node ? pod->node : "");
        (void)snprintf(kube->release, sizeof(kube->release), "%s", release ? release : "");
    }
    kube_label_found(&kube->label, is_ours, now);
    set_fact(kube, &fact);
}

static void take_look(struct kube *kube, const struct k8s_result *result)
{
    struct k8s_pod pod = {0};
    struct err err = {0};

    // What the watch has shown since may be newer, and shows nothing twice: an order that was
    // taken back would hold again. Who still needs a look gets another one.
    if (instant_before(result->sent_at, kube->told_at))
        return;
    if (result->outcome == K8S_NOT_FOUND) {
        kube_take_pod(kube, NULL);
    } else if (result->outcome == K8S_OK && k8s_pod_parse(result->body, &pod, &err) == 0 &&
               k8s_pod_is(&pod, k8s_namespace(kube->k8s), kube->pod)) {
        kube_take_pod(kube, &pod);
        if (kube->is_ours)
            kube_orders_read(kube, &pod, result->sent_at);
    }
}

static void on_look(const struct k8s_result *result, void *arg)
{
    struct kube *kube = arg;
    int64_t busy_ns =
        result->retry_after_ns < BUSY_MAX_NS ? result->retry_after_ns : BUSY_MAX_NS;

    kube->look = NULL;
    if (busy_ns > 0)
        kube->look_at = instant_max(kube->look_at, instant_add(clock_now(), busy_ns));
    take_look(kube, result);
    kube_step(kube);
}

// The watch may be silent for minutes although the API answers. An answer is needed where a
// decision looks at it.
static bool needs_look(const struct kube *kube)
{
    const struct agent *agent = kube->agent;
    bool is_silent = agent->facts.database.state != DATABASE_ANSWERS;

    return kube->wants_look || kube->fence.needs_look || kube->pause.needs_look ||
           !kube->is_ours || (is_silent && agent->memory.engaged) ||
           agent->memory.foreign_advanced;
}

struct instant kube_look_step(struct kube *kube, struct instant now)
{
    struct api_fact fact = kube->agent->facts.api;
    struct instant wake = INSTANT_NEVER;

    if (fact.known && instant_reached(now, instant_add(fact.observed_at, FACT_NS))) {
        fact = (struct api_fact){.observed_at = fact.observed_at};
        set_fact(kube, &fact);
    }
    if (fact.known)
        wake = instant_add(fact.observed_at, FACT_NS);
    if (kube->look || !needs_look(kube))
        return wake;
    if (!instant_reached(now, kube->look_at))
        return instant_min(wake, kube->look_at);
    kube->look_at = instant_add(now, LOOK_NS);
    kube->look = k8s_get_pod(kube->k8s, kube->pod, on_look, kube);
    return wake;
}

// --- the last rung ---

bool kube_can_delete_pod(const struct kube *kube)
{
    struct k8s_stats stats = {0};
    struct instant now = {0};

    if (!kube || !kube->is_known || !kube->is_ours)
        return false;
    now = clock_now();
    if (kube->delete_is_denied && !instant_reached(now, kube->delete_at))
        return false;
    k8s_get_stats(kube->k8s, &stats);
    return kube->is_up ||
           (stats.answered_at.ns != 0 && instant_since(now, stats.answered_at) < FACT_NS);
}

static void on_deleted(const struct k8s_result *result, void *arg)
{
    struct kube *kube = arg;
    bool is_denied = result->outcome == K8S_DENIED;

    kube->delete_request = NULL;
    kube->delete_is_denied = is_denied;
    kube->delete_is_agreed = result->outcome == K8S_OK || result->outcome == K8S_NOT_FOUND;
    kube->delete_at = instant_add(clock_now(), is_denied ? DENIED_NS : DELETE_NS);
    kube_log_edge(&kube->delete_edge, "delete our pod", result);
    if (kube->delete_is_agreed)
        log_warn("kubernetes: our pod is being deleted", kv_str("pod", kube->pod),
                 kv_str("uid", kube->uid));
    agent_feed(kube->agent);
}

void kube_delete_pod(struct kube *kube)
{
    struct k8s_delete_call call = {.grace_s = DELETE_GRACE_S};
    struct instant now = {0};

    if (!kube || kube->delete_request || kube->delete_is_agreed)
        return;
    now = clock_now();
    if (!instant_reached(now, kube->delete_at))
        return;
    log_warn("kubernetes: deleting our pod", kv_str("pod", kube->pod),
             kv_str("uid", kube->uid));
    call.pod = kube->pod;
    call.uid = kube->uid;
    kube->delete_request = k8s_delete_pod(kube->k8s, &call, on_deleted, kube);
}
