// SPDX-License-Identifier: Apache-2.0
// An answer of the API server: JSON of any shape, then as a pod, then by an HTTP status.
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "k8s/answer.h"
#include "k8s/json.h"
#include "k8s/pod.h"
#include "tests/fuzz/fuzz.h"

static void read_pod(const cJSON *object)
{
    struct k8s_pod pod = {0};
    struct err err = {0};

    if (k8s_pod_parse(object, &pod, &err) < 0) {
        fuzz_check_refusal(&err);
        assert(!pod.object);
        return;
    }
    assert(pod.name[0] && pod.uid[0] && pod.resource_version[0]);
    assert(!pod.node || pod.node[0]);
    (void)k8s_pod_label(&pod, "risingwave/meta-role");
    (void)k8s_pod_annotation(&pod, "metafence.io/fence");
}

static void read_numbers(const cJSON *object)
{
    struct err err = {0};
    int64_t number = 0;

    if (json_int(object, "code", &number, &err) < 0)
        fuzz_check_refusal(&err);
    assert(number > -(INT64_C(1) << 53) && number < (INT64_C(1) << 53));
}

static void judge(int status, const char *bytes, size_t size)
{
    struct k8s_answer answer = {
        .http_status = status, .method = "GET", .path = "/p?q", .body = bytes, .len = size};
    struct err err = {0};
    cJSON *object = NULL;

    if (k8s_answer_judge(&answer, &object, &err) != K8S_OK)
        fuzz_check_refusal(&err);
    else
        assert(cJSON_IsObject(object));
    cJSON_Delete(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    // Of exactly this size: a byte too far is seen.
    char *bytes = malloc(size ? size : 1);
    struct err err = {0};
    cJSON *object = NULL;

    if (!bytes)
        return 0;
    memcpy(bytes, data, size);
    object = json_parse(bytes, size, &err);
    if (object) {
        read_pod(object);
        read_numbers(object);
    } else {
        fuzz_check_refusal(&err);
    }
    cJSON_Delete(object);
    judge(200, bytes, size);
    judge(409, bytes, size);
    free(bytes);
    return 0;
}
