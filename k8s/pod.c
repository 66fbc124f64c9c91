// SPDX-License-Identifier: Apache-2.0
#include "k8s/pod.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"

// Items of a list have no kind of their own; what has one must be a Pod.
static int check_kind(const cJSON *object, struct err *err)
{
    const char *kind = NULL;

    if (json_text(object, "kind", &kind, err) < 0)
        return -1;
    if (kind && strcmp(kind, "Pod") != 0)
        return err_set(err, ERR_INVALID, 0, "kind: \"%.40s\", want Pod", kind);
    return 0;
}

int k8s_pod_controller(const struct cJSON *object, const struct cJSON **ret, struct err *err)
{
    const cJSON *owners = NULL;
    const cJSON *owner = NULL;

    *ret = NULL;
    if (json_array(object, "metadata.ownerReferences", &owners, err) < 0)
        return -1;
    cJSON_ArrayForEach(owner, owners)
    {
        bool is_controller = false;

        if (json_bool(owner, "controller", &is_controller, err) < 0)
            return err_wrap(err, "metadata.ownerReferences");
        if (is_controller) {
            *ret = owner;
            break;
        }
    }
    return 0;
}

static int take_owner(const cJSON *object, struct k8s_pod *pod, struct err *err)
{
    const cJSON *owner = NULL;

    if (k8s_pod_controller(object, &owner, err) < 0)
        return -1;
    if (owner && json_need_text(owner, "uid", &pod->owner_uid, err) < 0)
        return err_wrap(err, "metadata.ownerReferences");
    return 0;
}

static int check_map(const cJSON *object, const char *path, struct err *err)
{
    const cJSON *map = NULL;
    const cJSON *item = NULL;

    if (json_object(object, path, &map, err) < 0)
        return -1;
    cJSON_ArrayForEach(item, map)
    {
        if (!cJSON_IsString(item) && !cJSON_IsNull(item))
            return err_set(err, ERR_INVALID, 0, "%s[\"%.80s\"]: want a string", path,
                           item->string);
    }
    return 0;
}

static int parse(const cJSON *object, struct k8s_pod *pod, struct err *err)
{
    const char *deleted = NULL;

    pod->object = object;
    if (check_kind(object, err) < 0 ||
        json_need_text(object, "metadata.name", &pod->name, err) < 0 ||
        json_text(object, "metadata.namespace", &pod->name_space, err) < 0 ||
        json_need_text(object, "metadata.uid", &pod->uid, err) < 0 ||
        json_need_text(object, "metadata.resourceVersion", &pod->resource_version, err) < 0 ||
        json_text(object, "metadata.deletionTimestamp", &deleted, err) < 0 ||
        json_text(object, "spec.nodeName", &pod->node, err) < 0 ||
        take_owner(object, pod, err) < 0 || check_map(object, "metadata.labels", err) < 0 ||
        check_map(object, "metadata.annotations", err) < 0)
        return -1;
    if (pod->node && pod->node[0] == '\0')
        pod->node = NULL;
    pod->is_deleting = deleted != NULL;
    return 0;
}

int k8s_pod_parse(const struct cJSON *object, struct k8s_pod *ret, struct err *err)
{
    struct k8s_pod pod = {0};

    if (parse(object, &pod, err) < 0)
        return err_wrap(err, "pod");
    *ret = pod;
    return 0;
}

bool k8s_pod_is(const struct k8s_pod *pod, const char *name_space, const char *name)
{
    return strcmp(pod->name, name) == 0 &&
           (!pod->name_space || strcmp(pod->name_space, name_space) == 0);
}

static const char *map_text(const cJSON *object, const char *path, const char *key)
{
    const char *text = NULL;
    struct err err = {0};

    // The maps were checked by k8s_pod_parse.
    if (json_map_text(object, path, key, &text, &err) < 0)
        return NULL;
    return text;
}

const char *k8s_pod_label(const struct k8s_pod *pod, const char *key)
{
    return map_text(pod->object, "metadata.labels", key);
}

const char *k8s_pod_annotation(const struct k8s_pod *pod, const char *key)
{
    return map_text(pod->object, "metadata.annotations", key);
}
