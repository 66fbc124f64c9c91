// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/k8s/parse.h"

#include <stdio.h>
#include <string.h>

#include "k8s/json.h"
#include "tests/unit/unit.h"

struct cJSON *parse(const char *text)
{
    struct err err = {0};
    struct cJSON *object = json_parse(text, strlen(text), &err);

    if (!object)
        fail_msg("%s: %s", text, err.msg);
    return object;
}

struct cJSON *parse_with(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    char changed[2048];

    assert_non_null(at);
    assert_in_range(snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, to,
                             at + strlen(from)),
                    0, sizeof(changed) - 1);
    return parse(changed);
}
