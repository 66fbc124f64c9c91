// SPDX-License-Identifier: Apache-2.0
// A Pod, and what its status says about its life.
#include <cjson/cJSON.h>

#include "k8s/json.h"
#include "k8s/pod.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {0};
    struct k8s_pod pod = {0};
    struct k8s_pod_life life = {0};
    cJSON *object = json_parse((const char *)data, size, &err);

    if (!object) {
        fuzz_check_refusal(&err);
        return 0;
    }
    if (k8s_pod_parse(object, &pod, &err) < 0) {
        fuzz_check_refusal(&err);
        assert(!pod.object);
        pod.name = "p";
        pod.object = object;
    }
    if (k8s_pod_life_parse(&pod, &life, &err) < 0) {
        fuzz_check_refusal(&err);
    } else {
        assert(life.ip_count <= K8S_POD_IPS && life.port_count <= K8S_POD_PORTS);
        for (unsigned i = 0; i < life.ip_count; i++)
            assert(life.ips[i][0] != '\0');
        for (unsigned i = 0; i < life.port_count; i++)
            assert(life.ports[i] > 0);
    }
    cJSON_Delete(object);
    return 0;
}
