// SPDX-License-Identifier: Apache-2.0
// Which container of a pod serves a port, and what its kubelet says of it.
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"
#include "k8s/pod.h"

static int declares(const cJSON *container, uint16_t wanted, bool *ret, struct err *err)
{
    const cJSON *ports = NULL;
    const cJSON *port = NULL;

    if (json_array(container, "ports", &ports, err) < 0)
        return -1;
    cJSON_ArrayForEach(port, ports)
    {
        int64_t number = 0;

        if (json_int(port, "containerPort", &number, err) < 0)
            return -1;
        *ret = *ret || number == wanted;
    }
    return 0;
}

// The name of the only container, or of the only one that declares the port; NULL: not told.
static int find_container(const cJSON *object, uint16_t port, const char **ret, struct err *err)
{
    const cJSON *containers = NULL;
    const cJSON *container = NULL;
    const char *name = NULL;
    int declaring = 0;

    if (json_array(object, "spec.containers", &containers, err) < 0)
        return -1;
    cJSON_ArrayForEach(container, containers)
    {
        bool is_it = cJSON_GetArraySize(containers) == 1;

        if (declares(container, port, &is_it, err) < 0)
            return err_wrap(err, "spec.containers");
        if (is_it && json_need_text(container, "name", &name, err) < 0)
            return err_wrap(err, "spec.containers");
        declaring += is_it;
    }
    *ret = declaring == 1 ? name : NULL;
    return 0;
}

static int take_status(const cJSON *status, struct k8s_pod_process *ret, struct err *err)
{
    const cJSON *running = NULL;
    const cJSON *ended = NULL;
    const cJSON *before = NULL;
    const char *last_id = NULL;

    if (json_text(status, "containerID", &ret->container_id, err) < 0 ||
        json_object(status, "state.running", &running, err) < 0 ||
        json_object(status, "state.terminated", &ended, err) < 0 ||
        json_object(status, "lastState.terminated", &before, err) < 0 ||
        json_text(status, "lastState.terminated.containerID", &last_id, err) < 0)
        return -1;
    if (ret->container_id && ret->container_id[0] == '\0')
        ret->container_id = NULL;
    // One that waits to be started again shows the id of the one that has ended.
    ret->has_ended = ret->container_id && !running &&
                     (ended || (before && last_id && strcmp(last_id, ret->container_id) == 0));
    return 0;
}

int k8s_pod_process_parse(const struct k8s_pod *pod, uint16_t port, struct k8s_pod_process *ret,
                          struct err *err)
{
    struct k8s_pod_process process = {0};
    const cJSON *statuses = NULL;
    const cJSON *status = NULL;
    const char *wanted = NULL;

    if (find_container(pod->object, port, &wanted, err) < 0 ||
        json_array(pod->object, "status.containerStatuses", &statuses, err) < 0)
        return err_wrap(err, "pod %.80s", pod->name);
    cJSON_ArrayForEach(status, statuses)
    {
        const char *name = NULL;

        if (json_text(status, "name", &name, err) < 0 ||
            (wanted && name && strcmp(name, wanted) == 0 &&
             take_status(status, &process, err) < 0))
            return err_wrap(err, "pod %.80s: status.containerStatuses", pod->name);
    }
    *ret = process;
    return 0;
}
