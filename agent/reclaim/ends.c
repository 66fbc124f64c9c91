// SPDX-License-Identifier: Apache-2.0
// The kubelet's word that a killed compute node's container has ended. A pod may be listed no
// more right after that; its last change says whether the kubelet has let go of it, or somebody
// has only made the API forget it.
#include <string.h>

#include "agent/agent.h"
#include "agent/reclaim/parts.h"
#include "base/buf.h"
#include "base/log.h"
#include "k8s/follow.h"
#include "k8s/path.h"

static void take_end(struct reclaim *reclaim, size_t at, const struct k8s_pod *pod,
                     const struct gone_pod *shown)
{
    struct reclaim_node *node = reclaim->nodes[at];
    struct order_node *facts = &reclaim->node_facts[at];

    if (node->kill.uid[0] == '\0' || strcmp(node->kill.uid, pod->uid) != 0 ||
        node->base_pod != gone_uid_of(pod->uid))
        return;
    if (!shown->is_terminal &&
        !(shown->has_ended && gone_process_of(shown) == node->kill.process))
        return;
    node->was_ended = facts->is_ended = true;
    // All changes since then are newer than that look.
    facts->seen_at = instant_max(facts->seen_at, node->kill.looked_at);
    agent_feed(reclaim->agent);
}

static int on_change(const struct k8s_change *change, void *arg, struct err *err)
{
    struct reclaim *reclaim = arg;
    struct k8s_pod pod;

    if (k8s_pod_parse(change->object, &pod, err) < 0)
        return -1;
    for (size_t i = 0; i < reclaim->node_count; i++) {
        struct gone_pod shown;

        if (pods_parse(&pod, (uint16_t)reclaim->nodes[i]->port, &shown, err) < 0)
            return -1;
        take_end(reclaim, i, &pod, &shown);
    }
    return 0;
}

static void on_lost(const struct err *err, void *arg)
{
    (void)arg; // the next list goes on
    log_info("recovery: changes of pods were missed", kv_err(err));
}

static const struct k8s_follow_ops ops = {on_change, on_lost};

void ends_follow(struct reclaim *reclaim, const char *version)
{
    struct k8s *k8s = kube_client(reclaim->agent->kube);
    struct buf path = {0};

    if (!reclaim->ends) {
        k8s_put_pods_path(&path, k8s_namespace(k8s), NULL);
        const struct k8s_follow_call call = {
            .path = buf_str(&path),
            .selector = reclaim->agent->config.reconcile.worker_selector,
        };
        reclaim->ends = k8s_follow_new(k8s, reclaim->agent->loop, &call, &ops, reclaim);
        buf_done(&path);
    }
    k8s_follow_begin(reclaim->ends, version);
}

void ends_go_on(struct reclaim *reclaim, const char *version)
{
    if (reclaim->ends && k8s_follow_is_lost(reclaim->ends))
        k8s_follow_begin(reclaim->ends, version);
}

void ends_stop(struct reclaim *reclaim)
{
    k8s_follow_free(reclaim->ends);
    reclaim->ends = NULL;
}
