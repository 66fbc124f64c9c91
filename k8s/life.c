// SPDX-License-Identifier: Apache-2.0
// Whether a pod's processes may live, as its status says.
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"
#include "k8s/pod.h"

static bool is_text(const char *text, const char *wanted)
{
    return text && strcmp(text, wanted) == 0;
}

// --- who, and where ---

static int take_controller(const cJSON *object, struct k8s_pod_life *life, struct err *err)
{
    const cJSON *owner = NULL;

    if (k8s_pod_controller(object, &owner, err) < 0)
        return -1;
    if (owner && (json_need_text(owner, "kind", &life->owner_kind, err) < 0 ||
                  json_need_text(owner, "apiVersion", &life->owner_api, err) < 0 ||
                  json_need_text(owner, "name", &life->owner_name, err) < 0))
        return err_wrap(err, "metadata.ownerReferences");
    return 0;
}

static int take_ips(const cJSON *object, struct k8s_pod_life *life, struct err *err)
{
    const cJSON *ips = NULL;
    const cJSON *item = NULL;
    const char *ip = NULL;

    if (json_array(object, "status.podIPs", &ips, err) < 0 ||
        json_text(object, "status.podIP", &ip, err) < 0)
        return -1;
    cJSON_ArrayForEach(item, ips)
    {
        if (life->ip_count == K8S_POD_IPS)
            return err_set(err, ERR_INVALID, 0, "status.podIPs: more than %d", K8S_POD_IPS);
        if (json_need_text(item, "ip", &life->ips[life->ip_count], err) < 0)
            return err_wrap(err, "status.podIPs");
        life->ip_count++;
    }
    if (life->ip_count == 0 && ip && ip[0] != '\0')
        life->ips[life->ip_count++] = ip;
    return 0;
}

static int add_port(const cJSON *port, struct k8s_pod_life *life, unsigned *count,
                    struct err *err)
{
    int64_t number = 0;

    if (json_int(port, "containerPort", &number, err) < 0)
        return -1;
    if (number < 1 || number > UINT16_MAX)
        return err_set(err, ERR_INVALID, 0, "containerPort: %lld", (long long)number);
    if (*count < K8S_POD_PORTS)
        life->ports[*count] = (uint16_t)number;
    ++*count;
    return 0;
}

static int add_ports(const cJSON *object, const char *path, struct k8s_pod_life *life,
                     unsigned *count, struct err *err)
{
    const cJSON *containers = NULL;
    const cJSON *container = NULL;

    if (json_array(object, path, &containers, err) < 0)
        return -1;
    cJSON_ArrayForEach(container, containers)
    {
        const cJSON *ports = NULL;
        const cJSON *port = NULL;

        if (json_array(container, "ports", &ports, err) < 0)
            return err_wrap(err, "%s", path);
        cJSON_ArrayForEach(port, ports)
        {
            if (add_port(port, life, count, err) < 0)
                return err_wrap(err, "%s: ports", path);
        }
    }
    return 0;
}

static int take_ports(const cJSON *object, struct k8s_pod_life *life, struct err *err)
{
    unsigned count = 0;

    if (add_ports(object, "spec.containers", life, &count, err) < 0 ||
        add_ports(object, "spec.initContainers", life, &count, err) < 0)
        return -1;
    life->port_count = count <= K8S_POD_PORTS ? count : 0;
    return 0;
}

// --- what its containers do ---

// A container that ran and now waits is one that the kubelet means to start again.
static int add_status(const cJSON *status, struct k8s_pod_life *life, struct err *err)
{
    const cJSON *running = NULL;
    const cJSON *ended = NULL;
    const cJSON *before = NULL;
    int64_t restarts = 0;
    bool has_run = false;

    if (json_object(status, "state.running", &running, err) < 0 ||
        json_object(status, "state.terminated", &ended, err) < 0 ||
        json_object(status, "lastState.terminated", &before, err) < 0 ||
        json_int(status, "restartCount", &restarts, err) < 0)
        return -1;
    has_run = running || ended || before || restarts > 0;
    life->has_started = life->has_started || has_run;
    life->is_running = life->is_running || running || (has_run && !ended);
    return 0;
}

static int add_statuses(const cJSON *object, const char *path, struct k8s_pod_life *life,
                        struct err *err)
{
    const cJSON *statuses = NULL;
    const cJSON *status = NULL;

    if (json_array(object, path, &statuses, err) < 0)
        return -1;
    cJSON_ArrayForEach(status, statuses)
    {
        if (add_status(status, life, err) < 0)
            return err_wrap(err, "%s", path);
    }
    return 0;
}

// --- what is said of its node ---

struct conditions {
    const char *ready;
    const char *containers_ready;
    const char *disruption; // its reason, if it holds
};

static int take_condition(const cJSON *condition, struct conditions *conditions,
                          struct err *err)
{
    const char *type = NULL;
    const char *status = NULL;
    const char *reason = NULL;

    if (json_text(condition, "type", &type, err) < 0 ||
        json_text(condition, "status", &status, err) < 0 ||
        json_text(condition, "reason", &reason, err) < 0)
        return err_wrap(err, "status.conditions");
    if (is_text(type, "Ready"))
        conditions->ready = status;
    if (is_text(type, "ContainersReady"))
        conditions->containers_ready = status;
    if (is_text(type, "DisruptionTarget") && is_text(status, "True"))
        conditions->disruption = reason;
    return 0;
}

static int take_conditions(const cJSON *object, struct conditions *conditions, struct err *err)
{
    const cJSON *items = NULL;
    const cJSON *item = NULL;

    if (json_array(object, "status.conditions", &items, err) < 0)
        return -1;
    cJSON_ArrayForEach(item, items)
    {
        if (take_condition(item, conditions, err) < 0)
            return -1;
    }
    return 0;
}

static int take_phase(const cJSON *object, struct k8s_pod_life *life, struct err *err)
{
    struct conditions conditions = {0};
    const char *phase = NULL;
    const char *reason = NULL;
    const cJSON *gates = NULL;

    if (json_text(object, "status.phase", &phase, err) < 0 ||
        json_text(object, "status.reason", &reason, err) < 0 ||
        json_array(object, "spec.readinessGates", &gates, err) < 0 ||
        take_conditions(object, &conditions, err) < 0)
        return -1;
    life->is_terminal = is_text(phase, "Failed") || is_text(phase, "Succeeded");
    // The node's controller takes Ready away and leaves the rest as the kubelet wrote it.
    life->is_unreachable = is_text(phase, "Unknown") || is_text(conditions.ready, "Unknown") ||
                           is_text(reason, "NodeLost") ||
                           is_text(conditions.disruption, "DeletionByTaintManager") ||
                           (!gates && is_text(conditions.ready, "False") &&
                            is_text(conditions.containers_ready, "True"));
    if (is_text(conditions.disruption, "DeletionByPodGC") || is_text(reason, "NodeLost"))
        life->is_running = true;
    return 0;
}

static int parse(const cJSON *object, struct k8s_pod_life *life, struct err *err)
{
    if (take_controller(object, life, err) < 0 ||
        json_text(object, "spec.hostname", &life->hostname, err) < 0 ||
        json_text(object, "spec.subdomain", &life->subdomain, err) < 0 ||
        json_bool(object, "spec.hostNetwork", &life->host_network, err) < 0 ||
        take_ips(object, life, err) < 0 || take_ports(object, life, err) < 0 ||
        add_statuses(object, "status.containerStatuses", life, err) < 0 ||
        add_statuses(object, "status.initContainerStatuses", life, err) < 0 ||
        add_statuses(object, "status.ephemeralContainerStatuses", life, err) < 0 ||
        take_phase(object, life, err) < 0)
        return -1;
    if (life->hostname && life->hostname[0] == '\0')
        life->hostname = NULL;
    if (life->subdomain && life->subdomain[0] == '\0')
        life->subdomain = NULL;
    return 0;
}

int k8s_pod_life_parse(const struct k8s_pod *pod, struct k8s_pod_life *ret, struct err *err)
{
    struct k8s_pod_life life = {0};

    if (parse(pod->object, &life, err) < 0)
        return err_wrap(err, "pod %.80s", pod->name);
    *ret = life;
    return 0;
}
