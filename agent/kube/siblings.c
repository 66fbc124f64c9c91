// SPDX-License-Identifier: Apache-2.0
// A dead pod can't take its own label off. The leader's agent lists the pods of its StatefulSet
// that are labelled leader and sets theirs to unknown, with their UID: at once, every few
// seconds while a takeover is young, then at each resync. A living pod that is wronged by a
// race puts its own label right at once.
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/kube/parts.h"
#include "base/log.h"
#include "k8s/json.h"

#include <cjson/cJSON.h>

#define YOUNG_NS       (30 * NS_PER_SEC)
#define YOUNG_LIST_NS  (5 * NS_PER_SEC)
#define BACKOFF_MIN_NS NS_PER_SEC
#define BUSY_MAX_NS    YOUNG_LIST_NS

void kube_siblings_lead(struct kube *kube, bool is_leading, struct instant now)
{
    struct kube_siblings *siblings = &kube->siblings;

    if (siblings->is_leading == is_leading)
        return;
    siblings->is_leading = is_leading;
    siblings->count = 0;
    siblings->failures = 0;
    if (is_leading)
        siblings->leading_since = siblings->list_at = now;
}

// --- patches ---

static void on_cleared(const struct k8s_result *result, void *arg)
{
    struct kube *kube = arg;
    struct kube_siblings *siblings = &kube->siblings;
    struct kube_sibling *sibling = &siblings->stale[0];
    char note[KUBE_NOTE_SIZE];

    siblings->request = NULL;
    if (siblings->count == 0) { // we do not lead any more
        kube_step(kube);
        return;
    }
    // As with our own label: the second key may be another's, or not be allowed.
    if ((result->outcome == K8S_OWNED || result->outcome == K8S_DENIED) &&
        !sibling->own_key_alone && !sibling->insists) {
        sibling->insists =
            result->outcome == K8S_OWNED && !k8s_is_owned(result, kube->role_key);
        sibling->own_key_alone = !sibling->insists;
        kube_step(kube);
        return;
    }
    // Another pod of that name, or none: what was stale is gone.
    if (result->outcome != K8S_CONFLICT && result->outcome != K8S_NOT_FOUND &&
        result->outcome != K8S_REFUSED)
        kube_log_edge(&kube->siblings_edge, "clear the leader label of a sibling", result);
    if (result->outcome == K8S_OK) {
        siblings->cleared++;
        log_warn("kubernetes: cleared the leader label of a sibling",
                 kv_str("pod", sibling->name), kv_str("uid", sibling->uid));
        (void)snprintf(note, sizeof(note), "cleared the stale leader label of pod %s",
                       sibling->name);
        kube_say(kube, &(struct kube_event){
                           .action = "PatchedLabel", .reason = "RoleChanged", .note = note});
    } else {
        siblings->has_failed = true;
    }
    siblings->count--;
    memmove(&siblings->stale[0], &siblings->stale[1],
            siblings->count * sizeof(siblings->stale[0]));
    kube_step(kube);
}

static void clear_next(struct kube *kube)
{
    struct kube_siblings *siblings = &kube->siblings;
    const struct kube_sibling *sibling = &siblings->stale[0];
    const char *text = kube_role_text(LABEL_UNKNOWN);
    const struct k8s_label labels[] = {{KUBE_OWN_KEY, text}, {kube->role_key, text}};
    // Where we only observe the second key, a `leader` in it may be what an agent that did not
    // has left there: our key alone would take it off, which the policy denies.
    bool with_role_key =
        kube->role_key[0] && !sibling->own_key_alone &&
        (kube->label.role_key != KUBE_ROLE_KEY_OBSERVED || sibling->shows_leader);
    const struct k8s_labels_call call = {.pod = sibling->name,
                                         .uid = sibling->uid,
                                         .labels = labels,
                                         .count = with_role_key ? 2 : 1,
                                         .force = !with_role_key || sibling->insists};

    siblings->request = k8s_apply_labels(kube->k8s, &call, on_cleared, kube);
}

// --- the list ---

static bool is_leader(const char *role)
{
    return role && strcmp(role, kube_role_text(LABEL_LEADER)) == 0;
}

static void add_stale(struct kube *kube, const struct k8s_pod *pod)
{
    struct kube_siblings *siblings = &kube->siblings;
    struct kube_sibling *sibling = NULL;
    bool is_sibling = pod->owner_uid && strcmp(pod->owner_uid, kube->owner_uid) == 0 &&
                      strcmp(pod->uid, kube->uid) != 0 && strcmp(pod->name, kube->pod) != 0;

    if (!is_sibling || !is_leader(k8s_pod_label(pod, KUBE_OWN_KEY)) ||
        siblings->count == KUBE_SIBLINGS_MAX)
        return;
    sibling = &siblings->stale[siblings->count++];
    sibling->own_key_alone = sibling->insists = false;
    sibling->shows_leader = kube->role_key[0] && is_leader(k8s_pod_label(pod, kube->role_key));
    (void)snprintf(sibling->name, sizeof(sibling->name), "%s", pod->name);
    (void)snprintf(sibling->uid, sizeof(sibling->uid), "%s", pod->uid);
}

// One pod of the list that makes no sense does not hide the others.
static void take_list(struct kube *kube, const struct cJSON *list)
{
    const struct cJSON *items = NULL;
    const struct cJSON *item = NULL;
    struct err err = {0};

    if (json_array(list, "items", &items, &err) < 0) {
        log_warn("kubernetes: list of siblings", kv_err(&err));
        return;
    }
    cJSON_ArrayForEach(item, items)
    {
        struct k8s_pod pod = {0};

        if (k8s_pod_parse(item, &pod, &err) == 0)
            add_stale(kube, &pod);
    }
}

static void on_list(const struct k8s_result *result, void *arg)
{
    struct kube *kube = arg;
    struct kube_siblings *siblings = &kube->siblings;
    struct instant now = clock_now();
    int64_t wait_ns =
        siblings->failures < 2 ? BACKOFF_MIN_NS << siblings->failures : YOUNG_LIST_NS;

    siblings->request = NULL;
    siblings->has_failed = false;
    kube_log_edge(&kube->siblings_edge, "list siblings", result);
    if (result->outcome != K8S_OK) {
        siblings->failures++;
        // A server in trouble may ask for minutes; a stale label can't wait for that.
        if (result->retry_after_ns > wait_ns)
            wait_ns =
                result->retry_after_ns < BUSY_MAX_NS ? result->retry_after_ns : BUSY_MAX_NS;
        siblings->list_at = instant_add(now, wait_ns);
    } else if (instant_before(result->sent_at, siblings->leading_since)) {
        siblings->list_at = now; // asked before we led: it speaks of another world
    } else {
        siblings->failures = 0;
        take_list(kube, result->body);
        siblings->list_at = instant_since(now, siblings->leading_since) < YOUNG_NS
                                ? instant_add(now, YOUNG_LIST_NS)
                                : instant_add(now, kube->agent->config.kubernetes.resync_ns);
    }
    kube_step(kube);
}

struct instant kube_siblings_step(struct kube *kube, struct instant now)
{
    struct kube_siblings *siblings = &kube->siblings;

    if (!siblings->is_leading || siblings->request || !kube->is_ours || !kube->owner_uid[0])
        return INSTANT_NEVER;
    if (siblings->count > 0) {
        clear_next(kube);
        return INSTANT_NEVER;
    }
    if (siblings->has_failed) {
        siblings->has_failed = false;
        siblings->list_at = instant_min(siblings->list_at, instant_add(now, YOUNG_LIST_NS));
    }
    if (!instant_reached(now, siblings->list_at))
        return siblings->list_at;
    siblings->request =
        k8s_list_pods(kube->k8s, KUBE_OWN_KEY, kube_role_text(LABEL_LEADER), on_list, kube);
    return INSTANT_NEVER;
}
