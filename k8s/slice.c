// SPDX-License-Identifier: Apache-2.0
#include "k8s/slice.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"

int k8s_slice_parse(const struct cJSON *object, struct k8s_slice *ret, struct err *err)
{
    struct k8s_slice slice = {0};
    const char *kind = NULL;
    const cJSON *endpoints = NULL;

    if (json_text(object, "kind", &kind, err) < 0)
        return err_wrap(err, "endpointslice");
    if (kind && strcmp(kind, "EndpointSlice") != 0)
        return err_set(err, ERR_INVALID, 0,
                       "endpointslice: kind: \"%.40s\", want EndpointSlice", kind);
    if (json_need_text(object, "metadata.name", &slice.name, err) < 0 ||
        json_need_text(object, "metadata.uid", &slice.uid, err) < 0 ||
        json_need_text(object, "addressType", &slice.address_type, err) < 0 ||
        json_map_text(object, "metadata.labels", "kubernetes.io/service-name", &slice.service,
                      err) < 0 ||
        json_array(object, "endpoints", &endpoints, err) < 0)
        return err_wrap(err, "endpointslice");
    slice.next = endpoints ? endpoints->child : NULL;
    *ret = slice;
    return 0;
}

static int take_condition(const cJSON *endpoint, const char *path, enum k8s_tri *ret,
                          struct err *err)
{
    const char *key = strchr(path, '.') + 1;
    const cJSON *conditions = NULL;
    const cJSON *item = NULL;
    bool is_true = false;

    *ret = K8S_TRI_ABSENT;
    if (json_object(endpoint, "conditions", &conditions, err) < 0 ||
        json_bool(endpoint, path, &is_true, err) < 0)
        return -1;
    item = conditions ? cJSON_GetObjectItemCaseSensitive(conditions, key) : NULL;
    if (item && !cJSON_IsNull(item))
        *ret = is_true ? K8S_TRI_TRUE : K8S_TRI_FALSE;
    return 0;
}

static int take_addresses(const cJSON *endpoint, struct k8s_endpoint *ret, struct err *err)
{
    const cJSON *addresses = NULL;
    const cJSON *item = NULL;

    if (json_array(endpoint, "addresses", &addresses, err) < 0)
        return -1;
    cJSON_ArrayForEach(item, addresses)
    {
        if (!cJSON_IsString(item))
            return err_set(err, ERR_INVALID, 0, "addresses: one is no string");
        if (ret->address_count == K8S_ENDPOINT_ADDRESSES)
            return err_set(err, ERR_INVALID, 0, "addresses: more than %d",
                           K8S_ENDPOINT_ADDRESSES);
        ret->addresses[ret->address_count++] = item->valuestring;
    }
    // An endpoint that is nowhere is nobody's proof, and no valid slice has one.
    if (ret->address_count == 0)
        return err_set(err, ERR_INVALID, 0, "addresses: none");
    return 0;
}

static int take_target(const cJSON *endpoint, struct k8s_endpoint *ret, struct err *err)
{
    const char *kind = NULL;

    if (json_text(endpoint, "targetRef.kind", &kind, err) < 0)
        return -1;
    if (!kind || strcmp(kind, "Pod") != 0)
        return 0;
    if (json_text(endpoint, "targetRef.uid", &ret->target_uid, err) < 0 ||
        json_text(endpoint, "targetRef.name", &ret->target_name, err) < 0)
        return -1;
    return 0;
}

int k8s_slice_next(struct k8s_slice *slice, struct k8s_endpoint *ret, struct err *err)
{
    const cJSON *item = slice->next;

    if (!item)
        return 0;
    *ret = (struct k8s_endpoint){0};
    if (json_text(item, "hostname", &ret->hostname, err) < 0 ||
        take_addresses(item, ret, err) < 0 || take_target(item, ret, err) < 0 ||
        take_condition(item, "conditions.ready", &ret->ready, err) < 0 ||
        take_condition(item, "conditions.serving", &ret->serving, err) < 0 ||
        take_condition(item, "conditions.terminating", &ret->terminating, err) < 0)
        return err_wrap(err, "endpointslice %.80s: endpoints", slice->name);
    slice->next = item->next;
    return 1;
}
