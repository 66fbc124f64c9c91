// SPDX-License-Identifier: Apache-2.0
// Sends what the label's state machine wants, and says what became of it.
#include <string.h>

#include "agent/agent.h"
#include "agent/kube/parts.h"
#include "base/log.h"

static void say_role_key(struct kube *kube, const struct err *err)
{
    enum kube_role_key state = kube->label.role_key;

    if (state == kube->role_key_said)
        return;
    kube->role_key_said = state;
    if (state == KUBE_ROLE_KEY_OURS) {
        log_info("kubernetes: role label is ours again", kv_str("key", kube->role_key));
        return;
    }
    log_warn("kubernetes: role label is left alone until the next resync",
             kv_str("key", kube->role_key), kv_str("why", kube_role_key_name(state)),
             kv_str("err", err ? err->msg : "another writer has changed it"));
    if (state != KUBE_ROLE_KEY_YIELDED)
        return;
    kube_say(kube,
             &(struct kube_event){.action = "PatchedLabel",
                                  .reason = "ForeignManager",
                                  .note = "another writer owns the role label: it is left "
                                          "to it, metafence.io/role stays true"});
}

static void say_differs(struct kube *kube)
{
    bool differs = kube_label_role_differs(&kube->label);

    if (differs == kube->role_differs_said)
        return;
    kube->role_differs_said = differs;
    if (differs)
        log_warn("kubernetes: role label differs from the role", kv_str("key", kube->role_key),
                 kv_str("value", kube->label.seen_role),
                 kv_str("role", kube_role_text(kube->label.confirmed)));
    else
        log_info("kubernetes: role label agrees with the role", kv_str("key", kube->role_key));
}

static void on_patched(const struct k8s_result *result, void *arg)
{
    struct kube *kube = arg;
    struct kube_label *label = &kube->label;
    struct kube_label_answer answer = {.outcome = result->outcome,
                                       .retry_after_ns = result->retry_after_ns,
                                       .role_key_is_owned =
                                           k8s_is_owned(result, kube->role_key)};
    struct k8s_pod pod = {0};
    struct err err = {0};
    // A conflict about the second key is ordinary: its edge is the state of that key.
    bool is_shared = result->outcome == K8S_OWNED && label->sending.with_role_key;

    kube->label_request = NULL;
    kube->label_patches[result->outcome]++;
    if (result->outcome == K8S_OK && k8s_pod_parse(result->body, &pod, &err) == 0)
        answer.version = pod.resource_version;
    if (!is_shared)
        kube_log_edge(&kube->label_edge, "label", result);
    if (kube_label_done(label, &answer, clock_now()))
        kube->wants_look = true;
    say_role_key(kube, result->outcome == K8S_OK ? NULL : &result->err);
    kube_step(kube);
}

static void send_patch(struct kube *kube, const struct kube_label_send *send)
{
    const char *text = kube_role_text(send->role);
    const struct k8s_label labels[] = {{KUBE_OWN_KEY, text}, {kube->role_key, text}};
    const struct k8s_labels_call call = {.pod = kube->pod,
                                         .uid = kube->uid,
                                         .labels = labels,
                                         .count = send->with_role_key ? 2 : 1,
                                         .force = send->force};

    kube->label_request = k8s_apply_labels(kube->k8s, &call, on_patched, kube);
}

struct instant kube_label_step(struct kube *kube, struct instant now)
{
    struct kube_label *label = &kube->label;
    struct kube_label_send send = {0};

    if (kube_label_is_overdue(label, now)) {
        const struct kube_label_answer answer = {.outcome = K8S_UNKNOWN};

        k8s_cancel(kube->label_request);
        kube->label_request = NULL;
        kube->label_patches[K8S_UNKNOWN]++;
        (void)kube_label_done(label, &answer, now); // of no interest: a newer one follows
    }
    if (kube_label_next(label, now, &send))
        send_patch(kube, &send);
    say_role_key(kube, NULL);
    say_differs(kube);
    return kube_label_wake(label);
}
