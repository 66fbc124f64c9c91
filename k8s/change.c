// SPDX-License-Identifier: Apache-2.0
#include "k8s/change.h"

#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"
#include "k8s/path.h"

#define LIFETIME_MIN_S    270U
#define LIFETIME_SPREAD_S 60U

static const struct {
    const char *type;
    enum k8s_change_kind kind;
} kinds[] = {
    {"ADDED", K8S_CHANGE_ADDED},
    {"MODIFIED", K8S_CHANGE_MODIFIED},
    {"DELETED", K8S_CHANGE_DELETED},
    {"BOOKMARK", K8S_CHANGE_BOOKMARK},
};

static int take_error(const cJSON *status, struct err *err)
{
    const char *message = NULL;
    int64_t code = 0;

    if (json_text(status, "message", &message, err) < 0 ||
        json_int(status, "code", &code, err) < 0)
        return -1;
    return err_set(err, ERR_CONFLICT, (int)(code & 0xffff), "%lld: %.160s", (long long)code,
                   message ? message : "no message");
}

int k8s_change_parse(const struct cJSON *line, struct k8s_change *ret, struct err *err)
{
    const char *type = NULL;
    const cJSON *object = NULL;

    if (json_need_text(line, "type", &type, err) < 0 ||
        json_object(line, "object", &object, err) < 0)
        return -1;
    if (!object)
        return err_set(err, ERR_INVALID, 0, "%.20s without an object", type);
    if (strcmp(type, "ERROR") == 0)
        return take_error(object, err);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(type, kinds[i].type) != 0)
            continue;
        *ret = (struct k8s_change){.kind = kinds[i].kind, .object = object};
        return 0;
    }
    return err_set(err, ERR_INVALID, 0, "unknown type \"%.20s\"", type);
}

static uint32_t random_below(uint32_t limit)
{
    uint32_t number = 0;

    // Without entropy all end together, and no worse.
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number))
        return 0;
    return number % limit;
}

void k8s_put_watch_query(struct buf *path, const char *version)
{
    buf_puts(path, "watch=true&allowWatchBookmarks=true&resourceVersion=");
    k8s_put_escaped(path, version);
    buf_printf(path, "&timeoutSeconds=%u", LIFETIME_MIN_S + random_below(LIFETIME_SPREAD_S));
}
