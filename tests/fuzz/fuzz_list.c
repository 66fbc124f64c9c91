// SPDX-License-Identifier: Apache-2.0
// A page of a list, and the same bytes as a line of a watch.
#include <cjson/cJSON.h>

#include "k8s/change.h"
#include "k8s/json.h"
#include "k8s/list.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {0};
    struct k8s_list_page page = {0};
    struct k8s_change change = {0};
    cJSON *object = json_parse((const char *)data, size, &err);

    if (!object)
        return 0;
    if (k8s_list_page_parse(object, "PodList", &page, &err) < 0) {
        fuzz_check_refusal(&err);
        assert(!page.version);
    } else {
        assert(page.version[0] != '\0' && (!page.next || page.next[0] != '\0'));
        assert(!page.items || cJSON_IsArray(page.items));
    }
    if (k8s_change_parse(object, &change, &err) < 0)
        fuzz_check_refusal(&err);
    else
        assert(cJSON_IsObject(change.object));
    cJSON_Delete(object);
    return 0;
}
