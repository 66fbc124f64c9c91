// SPDX-License-Identifier: Apache-2.0
// While a hold lasts: lists of the workers' pods, for compute nodes whose process has ended.
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/reclaim/parts.h"
#include "base/buf.h"
#include "base/log.h"
#include "k8s/list.h"
#include "k8s/path.h"
#include "k8s/pod.h"

#define AGAIN_NS  (2 * NS_PER_SEC)
#define FAILED_NS (5 * NS_PER_SEC)

int pods_parse(const struct k8s_pod *pod, uint16_t port, struct gone_pod *ret, struct err *err)
{
    struct k8s_pod_life life;
    struct k8s_pod_process process;

    if (k8s_pod_life_parse(pod, &life, err) < 0 ||
        k8s_pod_process_parse(pod, port, &process, err) < 0)
        return -1;
    *ret = (struct gone_pod){
        .pod = pod->name,
        .uid = pod->uid,
        .container_id = process.container_id,
        .has_ended = process.has_ended,
        .is_terminal = life.is_terminal && !life.is_running,
        .host_network = life.host_network,
        .ip_count = life.ip_count < GONE_IPS ? life.ip_count : GONE_IPS,
        .name = {life.hostname ? life.hostname : pod->name, life.subdomain, pod->name_space},
    };
    for (unsigned i = 0; i < ret->ip_count; i++)
        ret->ips[i] = life.ips[i];
    return 0;
}

static int on_item(const struct cJSON *object, void *arg, struct err *err)
{
    struct reclaim *reclaim = arg;
    struct k8s_pod pod;

    if (k8s_pod_parse(object, &pod, err) < 0)
        return -1;
    for (size_t i = 0; i < reclaim->node_count; i++) {
        struct reclaim_node *node = reclaim->nodes[i];
        struct gone_pod shown;

        if (pods_parse(&pod, (uint16_t)node->port, &shown, err) < 0)
            return -1;
        if (gone_is_pod_of(&node->address, &shown))
            gone_add(&node->look, &shown, node->base_pod);
    }
    return 0;
}

static void on_end(const struct k8s_list_result *result, void *arg)
{
    struct reclaim *reclaim = arg;

    reclaim->pods = NULL;
    reclaim->pods_next_at = instant_add(clock_now(), AGAIN_NS);
    if (result->outcome != K8S_OK) {
        reclaim->pods_next_at = instant_add(clock_now(), FAILED_NS);
        log_info("recovery: pods could not be listed", kv_err(&result->err));
        return;
    }
    for (size_t i = 0; i < reclaim->node_count; i++) {
        struct reclaim_node *node = reclaim->nodes[i];

        // One that has joined since was not looked for.
        if (!node->is_looked_for)
            continue;
        node->is_looked_for = false;
        gone_take(&node->look, result->sent_at, &node->base_pod, &reclaim->node_facts[i]);
        reclaim->node_facts[i].is_ended |= node->was_ended;
        memcpy(node->pod_name, node->look.pod_name, sizeof(node->pod_name));
    }
    ends_go_on(reclaim, result->version);
    agent_feed(reclaim->agent);
}

static const struct k8s_list_ops list_ops = {on_item, on_end};

static void begin(struct reclaim *reclaim)
{
    struct kube *kube = reclaim->agent->kube;
    struct buf path = {0};

    for (size_t i = 0; i < reclaim->node_count; i++) {
        reclaim->nodes[i]->look = (struct gone_look){0};
        reclaim->nodes[i]->is_looked_for = true;
    }
    k8s_put_pods_path(&path, k8s_namespace(kube_client(kube)), NULL);
    const struct k8s_list_call call = {
        .path = buf_str(&path),
        .kind = "PodList",
        .selector = reclaim->agent->config.reconcile.worker_selector,
    };
    // What it shows is later than what the schema has said by now.
    (void)snprintf(reclaim->pods_snapshot, sizeof(reclaim->pods_snapshot), "%s",
                   reclaim->known.state.snapshot);
    reclaim->pods = k8s_list_begin(kube_client(kube), &call, &list_ops, reclaim);
    buf_done(&path);
}

void pods_turn(struct reclaim *reclaim)
{
    bool is_wanted = reclaim->facts.mode == ORDER_ENFORCE && reclaim->node_count > 0 &&
                     (reclaim->plan->step == ORDER_RESET_NODES || reclaim->plan->hold_start);

    if (!is_wanted)
        pods_stop(reclaim);
    else if (!reclaim->pods && kube_knows_us(reclaim->agent->kube) &&
             instant_reached(reclaim->facts.now, reclaim->pods_next_at))
        begin(reclaim);
}

void pods_stop(struct reclaim *reclaim)
{
    k8s_list_cancel(reclaim->pods);
    reclaim->pods = NULL;
    ends_stop(reclaim);
}
