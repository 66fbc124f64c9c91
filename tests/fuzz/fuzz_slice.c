// SPDX-License-Identifier: Apache-2.0
// An EndpointSlice, and the same bytes as a StatefulSet.
#include <cjson/cJSON.h>

#include "k8s/json.h"
#include "k8s/slice.h"
#include "k8s/statefulset.h"
#include "tests/fuzz/fuzz.h"

static void take_slice(const cJSON *object)
{
    struct err err = {0};
    struct k8s_slice slice = {0};
    struct k8s_endpoint endpoint = {0};
    int more = 0;

    if (k8s_slice_parse(object, &slice, &err) < 0) {
        fuzz_check_refusal(&err);
        return;
    }
    while ((more = k8s_slice_next(&slice, &endpoint, &err)) > 0)
        assert(endpoint.address_count > 0 && endpoint.addresses[0]);
    if (more < 0)
        fuzz_check_refusal(&err);
}

static void take_set(const cJSON *object, enum k8s_set_kind kind)
{
    struct err err = {0};
    struct k8s_set set = {0};

    if (k8s_set_parse(object, kind, &set, &err) < 0)
        fuzz_check_refusal(&err);
    else
        assert(set.replicas >= 0 && set.start >= 0 && set.reserved >= 0 && set.name[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {0};
    cJSON *object = json_parse((const char *)data, size, &err);

    if (!object)
        return 0;
    take_slice(object);
    take_set(object, K8S_SET_STATEFULSET);
    take_set(object, K8S_SET_CLONESET);
    cJSON_Delete(object);
    return 0;
}
