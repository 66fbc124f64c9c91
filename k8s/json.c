// SPDX-License-Identifier: Apache-2.0
#include "k8s/json.h"

#include <string.h>

#include <cjson/cJSON.h>

// A value costs cJSON 64 bytes and more, however short it is on the wire.
#define JSON_VALUES_MAX 200000
#define INT_LIMIT       9007199254740992.0 // 2^53: from here on a double rounds

struct scan {
    const char *bytes;
    size_t len;
    size_t at;
};

// Behind the string that begins at scan->at. cJSON would cut a text at an escaped NUL byte, and
// two texts that differ would be the same.
static int skip_string(struct scan *scan, struct err *err)
{
    for (scan->at++; scan->at < scan->len; scan->at++) {
        const char *c = scan->bytes + scan->at;

        if (*c == '"')
            return 0;
        if ((unsigned char)*c < ' ')
            return err_set(err, ERR_INVALID, 0, "byte %zu: a control byte inside a string",
                           scan->at);
        if (*c != '\\')
            continue;
        if (scan->len - scan->at > 5 && memcmp(c, "\\u0000", 6) == 0)
            return err_set(err, ERR_INVALID, 0, "byte %zu: a NUL byte inside a string",
                           scan->at);
        scan->at++;
    }
    return err_set(err, ERR_INVALID, 0, "byte %zu: the end inside a string", scan->len);
}

// Bounds what the parser will cost, before it costs anything.
static int check_shape(const char *bytes, size_t len, struct err *err)
{
    struct scan scan = {.bytes = bytes, .len = len};
    unsigned depth = 0;
    unsigned values = 1;

    for (; scan.at < len; scan.at++) {
        switch (bytes[scan.at]) {
        case '"':
            if (skip_string(&scan, err) < 0)
                return -1;
            break;
        case '{':
        case '[':
            depth++;
            values++;
            break;
        case '}':
        case ']': depth -= depth > 0; break;
        case ',': values++; break;
        case '\0': return err_set(err, ERR_INVALID, 0, "byte %zu: a NUL byte", scan.at);
        }
        if (depth > JSON_DEPTH_MAX)
            return err_set(err, ERR_INVALID, 0, "byte %zu: nested deeper than %d", scan.at,
                           JSON_DEPTH_MAX);
        if (values > JSON_VALUES_MAX)
            return err_set(err, ERR_INVALID, 0, "more than %d values", JSON_VALUES_MAX);
    }
    return 0;
}

static bool is_blank(const char *from, const char *end)
{
    while (from < end && strchr(" \t\r\n", *from))
        from++;
    return from == end;
}

struct cJSON *json_parse(const char *bytes, size_t len, struct err *err)
{
    const char *end = NULL;
    cJSON *object = NULL;

    if (check_shape(bytes, len, err) < 0) {
        (void)err_wrap(err, "no JSON");
        return NULL;
    }
    object = cJSON_ParseWithLengthOpts(bytes, len, &end, false);
    if (!object) {
        (void)err_set(err, ERR_INVALID, 0, "no JSON: error at byte %zu of %zu",
                      end ? (size_t)(end - bytes) : 0, len);
        return NULL;
    }
    if (!is_blank(end, bytes + len)) {
        cJSON_Delete(object);
        (void)err_set(err, ERR_INVALID, 0, "no JSON: more bytes behind the value, at byte %zu",
                      (size_t)(end - bytes));
        return NULL;
    }
    return object;
}

static const char *type_name(const cJSON *item)
{
    switch (item->type & 0xff) {
    case cJSON_False:
    case cJSON_True: return "a boolean";
    case cJSON_NULL: return "null";
    case cJSON_Number: return "a number";
    case cJSON_String: return "a string";
    case cJSON_Array: return "an array";
    case cJSON_Object: return "an object";
    default: return "nothing";
    }
}

static int refuse(const cJSON *item, const char *path, int path_len, const char *wanted,
                  struct err *err)
{
    if (path_len == 0)
        return err_set(err, ERR_INVALID, 0, "%s, want %s", type_name(item), wanted);
    return err_set(err, ERR_INVALID, 0, "%.*s: %s, want %s", path_len, path, type_name(item),
                   wanted);
}

static const cJSON *find_key(const cJSON *object, const char *key, size_t len)
{
    for (const cJSON *item = object->child; item; item = item->next)
        if (item->string && strlen(item->string) == len && memcmp(item->string, key, len) == 0)
            return item;
    return NULL;
}

// NULL in *ret: absent or null, the last part or one on the way.
static int find(const cJSON *object, const char *path, const cJSON **ret, struct err *err)
{
    const cJSON *item = object;
    const char *part = path;

    *ret = NULL;
    while (*part) {
        size_t len = strcspn(part, ".");

        if (!cJSON_IsObject(item))
            return refuse(item, path, part == path ? 0 : (int)(part - path - 1), "an object",
                          err);
        item = find_key(item, part, len);
        if (!item || cJSON_IsNull(item))
            return 0;
        part += len + (part[len] == '.');
    }
    *ret = item;
    return 0;
}

static int refuse_path(const cJSON *item, const char *path, const char *wanted, struct err *err)
{
    return refuse(item, path, (int)strlen(path), wanted, err);
}

int json_text(const struct cJSON *object, const char *path, const char **ret, struct err *err)
{
    const cJSON *item = NULL;

    *ret = NULL;
    if (find(object, path, &item, err) < 0)
        return -1;
    if (item && !cJSON_IsString(item))
        return refuse_path(item, path, "a string", err);
    *ret = item ? item->valuestring : NULL;
    return 0;
}

int json_need_text(const struct cJSON *object, const char *path, const char **ret,
                   struct err *err)
{
    if (json_text(object, path, ret, err) < 0)
        return -1;
    if (!*ret || (*ret)[0] == '\0')
        return err_set(err, ERR_INVALID, 0, "%s: %s, want a string", path,
                       *ret ? "empty" : "nothing");
    return 0;
}

int json_bool(const struct cJSON *object, const char *path, bool *ret, struct err *err)
{
    const cJSON *item = NULL;

    *ret = false;
    if (find(object, path, &item, err) < 0)
        return -1;
    if (item && !cJSON_IsBool(item))
        return refuse_path(item, path, "a boolean", err);
    *ret = item && cJSON_IsTrue(item);
    return 0;
}

int json_int(const struct cJSON *object, const char *path, int64_t *ret, struct err *err)
{
    const cJSON *item = NULL;
    double value = 0;

    *ret = 0;
    if (find(object, path, &item, err) < 0)
        return -1;
    if (!item)
        return 0;
    if (!cJSON_IsNumber(item))
        return refuse_path(item, path, "a whole number", err);
    value = item->valuedouble;
    // Also infinity, which 1e400 becomes.
    if (!(value > -INT_LIMIT && value < INT_LIMIT))
        return err_set(err, ERR_INVALID, 0, "%s: a number beyond 2^53, which is not exact",
                       path);
    if (value != (double)(int64_t)value)
        return err_set(err, ERR_INVALID, 0, "%s: %g, want a whole number", path, value);
    *ret = (int64_t)value;
    return 0;
}

int json_object(const struct cJSON *object, const char *path, const struct cJSON **ret,
                struct err *err)
{
    *ret = NULL;
    if (find(object, path, ret, err) < 0)
        return -1;
    if (*ret && !cJSON_IsObject(*ret)) {
        const cJSON *item = *ret;

        *ret = NULL;
        return refuse_path(item, path, "an object", err);
    }
    return 0;
}

int json_array(const struct cJSON *object, const char *path, const struct cJSON **ret,
               struct err *err)
{
    *ret = NULL;
    if (find(object, path, ret, err) < 0)
        return -1;
    if (*ret && !cJSON_IsArray(*ret)) {
        const cJSON *item = *ret;

        *ret = NULL;
        return refuse_path(item, path, "an array", err);
    }
    return 0;
}

int json_map_text(const struct cJSON *object, const char *path, const char *key,
                  const char **ret, struct err *err)
{
    const cJSON *map = NULL;
    const cJSON *item = NULL;

    *ret = NULL;
    if (json_object(object, path, &map, err) < 0)
        return -1;
    item = map ? find_key(map, key, strlen(key)) : NULL;
    if (!item || cJSON_IsNull(item))
        return 0;
    if (!cJSON_IsString(item))
        return err_set(err, ERR_INVALID, 0, "%s[\"%s\"]: %s, want a string", path, key,
                       type_name(item));
    *ret = item->valuestring;
    return 0;
}
