// SPDX-License-Identifier: Apache-2.0
// The fence of a compute node whose actors don't end: its pod is deleted, with pod and
// container as they were decided about for preconditions.
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/reclaim/parts.h"
#include "base/log.h"
#include "k8s/write.h"

#define GRACE_S  1
#define AGAIN_NS (10 * NS_PER_SEC) // after the API has agreed: its kubelet may be away

void kills_cancel(struct reclaim_node *node)
{
    k8s_cancel(node->kill.request);
    node->kill.request = NULL;
    node->kill.is_wanted = false;
}

void kills_forget(struct reclaim_node *node)
{
    kills_cancel(node);
    node->kill = (struct reclaim_kill){0};
}

static size_t index_of(const struct reclaim *reclaim, const struct reclaim_node *node)
{
    size_t at = 0;

    while (reclaim->nodes[at] != node)
        at++;
    return at;
}

static void on_deleted(const struct k8s_result *result, void *arg)
{
    struct reclaim_node *node = arg;
    struct reclaim *reclaim = node->init.reclaim;
    bool is_agreed = result->outcome == K8S_OK;
    bool is_changed = result->outcome == K8S_CONFLICT || result->outcome == K8S_NOT_FOUND;

    node->kill.request = NULL;
    if (is_agreed) {
        reclaim->counts[RECLAIM_KILL_AGREED]++;
        if (node->kill.agreed_at.ns == 0)
            tell_kill(reclaim, node);
        node->kill.agreed_at = clock_now();
    } else if (is_changed) { // the next look says what has become of it
        reclaim->counts[RECLAIM_KILL_CHANGED]++;
    } else if (result->outcome == K8S_DENIED) {
        reclaim->counts[RECLAIM_KILL_DENIED]++;
        if (!node->kill.was_denied)
            tell_kill_denied(reclaim, node, result->err.msg);
        node->kill.was_denied = true;
    } else {
        reclaim->counts[RECLAIM_KILL_FAILED]++;
        log_warn("recovery: a compute node's pod was not deleted",
                 kv_str("pod", node->pod_name), kv_err(&result->err));
    }
    agent_feed(reclaim->agent);
}

// Whether it is still the pod and the process that the order has decided about, and its
// decision still holds: with the facts of this moment.
static bool may_delete(struct reclaim *reclaim, const struct reclaim_node *node,
                       const struct gone_pod *shown)
{
    struct order_node now = reclaim->node_facts[index_of(reclaim, node)];

    now.incarnation = gone_process_of(shown);
    now.can_fence = gone_can_fence(shown) && gone_is_pod_of(&node->address, shown) &&
                    strcmp(shown->uid, reclaim->agent->config.pod_uid) != 0;
    reclaim_fill(reclaim);
    return !shown->has_ended && now.incarnation == node->kill.process &&
           order_may_fence(&reclaim->config, &reclaim->facts, reclaim->memory, &now);
}

static void delete_pod(struct reclaim *reclaim, struct reclaim_node *node,
                       const struct k8s_pod *pod)
{
    struct k8s *k8s = kube_client(reclaim->agent->kube);
    const struct k8s_delete_call call = {.pod = pod->name,
                                         .uid = pod->uid,
                                         .version = pod->resource_version,
                                         .grace_s = GRACE_S};

    log_warn("recovery: deleting a compute node's pod", kv_str("pod", pod->name),
             kv_str("uid", pod->uid), kv_int("worker_id", node->worker_id),
             kv_str("host", node->host));
    (void)snprintf(node->kill.uid, sizeof(node->kill.uid), "%s", pod->uid);
    reclaim->counts[RECLAIM_KILL_SENT]++;
    // From before the delete: whatever its kubelet says of the end comes after that.
    ends_follow(reclaim, pod->resource_version);
    node->kill.request = k8s_delete_pod(k8s, &call, on_deleted, node);
}

static void on_look(const struct k8s_result *result, void *arg)
{
    struct reclaim_node *node = arg;
    struct reclaim *reclaim = node->init.reclaim;
    struct k8s_pod pod = {0};
    struct gone_pod shown = {0};
    struct err err = result->err;

    node->kill.request = NULL;
    node->kill.looked_at = result->sent_at;
    if (result->outcome != K8S_OK || k8s_pod_parse(result->body, &pod, &err) < 0 ||
        pods_parse(&pod, (uint16_t)node->port, &shown, &err) < 0) {
        reclaim->counts[RECLAIM_KILL_FAILED]++;
        log_warn("recovery: a compute node's pod could not be read",
                 kv_str("pod", node->pod_name), kv_err(&err));
    } else if (!k8s_pod_is(&pod, k8s_namespace(kube_client(reclaim->agent->kube)),
                           node->pod_name) ||
               !pod.resource_version || !may_delete(reclaim, node, &shown)) {
        reclaim->counts[RECLAIM_KILL_CHANGED]++;
        log_info(
            "recovery: a compute node's pod is left alone: it, or the recovery, is another",
            kv_str("pod", node->pod_name));
    } else {
        delete_pod(reclaim, node, &pod);
    }
    agent_feed(reclaim->agent);
}

static void look(struct reclaim *reclaim, struct reclaim_node *node)
{
    struct k8s *k8s = kube_client(reclaim->agent->kube);

    if (k8s && node->pod_name[0])
        node->kill.request = k8s_get_pod(k8s, node->pod_name, on_look, node);
}

static void on_noted(int64_t count, const struct pg_fault *fault, void *arg)
{
    struct reclaim_node *node = arg;
    struct reclaim *reclaim = node->init.reclaim;

    node->is_noting = false;
    if (fault)
        log_warn("recovery: that a compute node is to be killed was not recorded",
                 kv_str("host", node->host), kv_err(&fault->err));
    if (fault || count == 0 || !node->kill.is_wanted || node->noting_hold != reclaim->hold ||
        node->noting_round != reclaim->round)
        return;
    node->kill.is_noted = true;
    look(reclaim, node);
}

// At SIGTERM it takes its row away, with its actors still there: from then on only this keeps
// the gate waiting for it.
static void note(struct reclaim *reclaim, struct reclaim_node *node)
{
    const struct recovery_ack ack = {
        .recovery = (int64_t)reclaim->facts.marker.id,
        .worker_id = node->worker_id,
        .host = node->host,
        .port = node->port,
        .how = RECOVERY_ASKED,
        .snapshot = reclaim->known.state.snapshot,
    };
    struct err err = {0};

    if (node->is_noting || !reclaim->election)
        return;
    node->noting_hold = reclaim->hold;
    node->noting_round = reclaim->round;
    node->is_noting = recovery_acknowledge(reclaim->election, &ack, on_noted, node, &err) == 0;
}

void kills_begin(struct reclaim *reclaim, size_t node)
{
    struct reclaim_node *to = reclaim->nodes[node];
    bool is_agreed = to->kill.agreed_at.ns != 0 &&
                     instant_since(reclaim->facts.now, to->kill.agreed_at) < AGAIN_NS;

    if (to->kill.request || is_agreed)
        return;
    to->kill.process = reclaim->node_facts[node].incarnation;
    to->kill.is_wanted = true;
    if (to->kill.is_noted)
        look(reclaim, to);
    else
        note(reclaim, to);
}
