// SPDX-License-Identifier: Apache-2.0
// The Kubernetes part's metrics.
#include "agent/agent.h"
#include "agent/kube/parts.h"

static void write_outcomes(struct prom *prom, const uint64_t *counts)
{
    for (int i = 0; i <= K8S_GARBAGE; i++)
        prom_count(prom, PROM_LABELS({"outcome", k8s_outcome_name((enum k8s_outcome)i)}),
                   counts[i]);
}

static void write_label(const struct kube *kube, struct prom *prom)
{
    const struct kube_label *label = &kube->label;
    static const enum kube_role_key states[] = {KUBE_ROLE_KEY_OURS, KUBE_ROLE_KEY_YIELDED,
                                                KUBE_ROLE_KEY_OBSERVED, KUBE_ROLE_KEY_DENIED};

    prom_family(prom, PROM_COUNTER, "metafence_label_patches",
                "Patches of the own pod's role label.");
    write_outcomes(prom, kube->label_patches);
    prom_one_int(prom, "metafence_label_confirmed",
                 "Whether the API has agreed to the role label that is wished now.",
                 label->is_confirmed && label->confirmed == label->wish);
    prom_family(prom, PROM_GAUGE, "metafence_role_label",
                "1 for what has become of kubernetes.roleLabel.");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        prom_int(prom, PROM_LABELS({"state", kube_role_key_name(states[i])}),
                 label->role_key == states[i]);
    prom_one_int(prom, "metafence_role_label_differs",
                 "Whether kubernetes.roleLabel shows another role than the confirmed one.",
                 kube_label_role_differs(label));
    prom_one_count(prom, "metafence_sibling_labels_cleared",
                   "Stale leader labels taken off other pods.", kube->siblings.cleared);
}

static void write_events(const struct kube_stats *stats, struct prom *prom)
{
    prom_family(prom, PROM_COUNTER, "metafence_events", "Events about the own pod.");
    prom_count(prom, PROM_LABELS({"result", "sent"}), stats->events_sent);
    prom_count(prom, PROM_LABELS({"result", "repeated"}), stats->events_repeated);
    prom_count(prom, PROM_LABELS({"result", "dropped"}), stats->events_dropped);
}

static void write_metrics(struct prom *prom, void *arg)
{
    const struct kube *kube = arg;
    struct kube_stats stats = {0};

    if (!kube_get_stats(kube, &stats))
        return;
    prom_one_int(prom, "metafence_kube_up", "Whether the own pod is watched.", stats.is_up);
    prom_family(prom, PROM_COUNTER, "metafence_kube_requests",
                "Requests to the Kubernetes API that have ended.");
    write_outcomes(prom, stats.requests.answers);
    prom_one_count(prom, "metafence_kube_connects", "New connections to the Kubernetes API.",
                   stats.requests.connects);
    prom_one_count(prom, "metafence_watch_restarts", "Watches that did not end in good order.",
                   stats.watch_restarts);
    if (stats.token_age_ns >= 0)
        prom_one_seconds(prom, "metafence_token_age_seconds",
                         "Since the token in use was read.", stats.token_age_ns);
    write_label(kube, prom);
    write_events(&stats, prom);
}

void kube_metrics_begin(struct kube *kube)
{
    metrics_add_source(&kube->agent->metrics, write_metrics, kube);
}
