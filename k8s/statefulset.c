// SPDX-License-Identifier: Apache-2.0
#include "k8s/statefulset.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"

static const struct {
    const char *group;
    const char *resource;
    const char *kind;
} kinds[] = {
    [K8S_SET_STATEFULSET] = {"apps/v1", "statefulsets", "StatefulSet"},
    [K8S_SET_KRUISE_STATEFULSET] = {"apps.kruise.io/v1beta1", "statefulsets", "StatefulSet"},
    [K8S_SET_CLONESET] = {"apps.kruise.io/v1alpha1", "clonesets", "CloneSet"},
};

static int take_number(const cJSON *object, const char *path, int32_t *ret, struct err *err)
{
    int64_t value = 0;

    if (json_int(object, path, &value, err) < 0)
        return -1;
    if (value < 0 || value > INT32_MAX)
        return err_set(err, ERR_INVALID, 0, "%s: %lld, want 0 to %d", path, (long long)value,
                       INT32_MAX);
    *ret = (int32_t)value;
    return 0;
}

static int take_replicas(const cJSON *object, int32_t *ret, struct err *err)
{
    const cJSON *spec = NULL;
    const cJSON *item = NULL;

    if (json_object(object, "spec", &spec, err) < 0)
        return -1;
    item = spec ? cJSON_GetObjectItemCaseSensitive(spec, "replicas") : NULL;
    *ret = 1; // the API's default
    if (!item || cJSON_IsNull(item))
        return 0;
    return take_number(object, "spec.replicas", ret, err);
}

// Up to 9 digits. Returns what follows them; NULL: there are none.
static const char *take_digits(const char *text, int64_t *ret)
{
    size_t len = strspn(text, "0123456789");

    if (len == 0 || len > 9)
        return NULL;
    *ret = 0;
    for (size_t i = 0; i < len; i++)
        *ret = *ret * 10 + (text[i] - '0');
    return text + len;
}

// "7-9" is three numbers, 5 and "5" are one.
static int count_reserved(const cJSON *item, int64_t *ret, struct err *err)
{
    const char *rest = NULL;
    int64_t from = 0;
    int64_t to = 0;

    *ret = 1;
    if (cJSON_IsNumber(item))
        return 0;
    if (!cJSON_IsString(item) || strlen(item->valuestring) > 20)
        return err_set(err, ERR_INVALID, 0, "spec.reserveOrdinals: neither number nor range");
    rest = take_digits(item->valuestring, &from);
    if (rest && *rest == '\0')
        return 0;
    rest = rest && *rest == '-' ? take_digits(rest + 1, &to) : NULL;
    if (!rest || *rest != '\0' || to < from)
        return err_set(err, ERR_INVALID, 0,
                       "spec.reserveOrdinals: \"%s\", want a range \"7-9\"", item->valuestring);
    *ret = to - from + 1;
    return 0;
}

static int take_reserved(const cJSON *object, int32_t *ret, struct err *err)
{
    const cJSON *numbers = NULL;
    const cJSON *item = NULL;
    int64_t sum = 0;

    if (json_array(object, "spec.reserveOrdinals", &numbers, err) < 0)
        return -1;
    cJSON_ArrayForEach(item, numbers)
    {
        int64_t count = 0;

        if (count_reserved(item, &count, err) < 0)
            return -1;
        sum += count;
    }
    *ret = sum > INT32_MAX ? INT32_MAX : (int32_t)sum;
    return 0;
}

int k8s_set_parse(const struct cJSON *object, enum k8s_set_kind kind, struct k8s_set *ret,
                  struct err *err)
{
    struct k8s_set set = {0};
    const char *is_kind = NULL;

    if (json_text(object, "kind", &is_kind, err) < 0)
        return err_wrap(err, "%s", kinds[kind].kind);
    if (is_kind && strcmp(is_kind, kinds[kind].kind) != 0)
        return err_set(err, ERR_INVALID, 0, "kind: \"%.40s\", want %s", is_kind,
                       kinds[kind].kind);
    if (json_need_text(object, "metadata.name", &set.name, err) < 0 ||
        json_need_text(object, "metadata.uid", &set.uid, err) < 0 ||
        take_replicas(object, &set.replicas, err) < 0 ||
        take_number(object, "spec.ordinals.start", &set.start, err) < 0 ||
        take_reserved(object, &set.reserved, err) < 0)
        return err_wrap(err, "%s", kinds[kind].kind);
    *ret = set;
    return 0;
}

const char *k8s_set_group(enum k8s_set_kind kind)
{
    return kinds[kind].group;
}

const char *k8s_set_resource(enum k8s_set_kind kind)
{
    return kinds[kind].resource;
}
