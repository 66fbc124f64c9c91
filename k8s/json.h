// SPDX-License-Identifier: Apache-2.0
#pragma once
// json: typed getters over cJSON for answers that may hold anything. Each error names the path
// and what is there instead: "metadata.labels.x: number, want a string". Borrowed strings live
// as long as the object.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct cJSON;

// A parser for outside bytes: refuses what is nested deeper than JSON_DEPTH_MAX, more values
// than a hundred thousand or two, NUL bytes in strings, trailing bytes. Returns NULL with
// INVALID. Freed by cJSON_Delete.
#define JSON_DEPTH_MAX 64
struct cJSON *json_parse(const char *bytes, size_t len, struct err *err);

// `path` is dotted ("metadata.uid"); a key that itself holds dots is reached through
// json_map_text. Absent or null: *ret is NULL / 0 / false and 0 is returned, except for
// json_need_text. A wrong type is INVALID.
must_check int json_text(const struct cJSON *object, const char *path, const char **ret,
                         struct err *err);
must_check int json_need_text(const struct cJSON *object, const char *path, const char **ret,
                              struct err *err);
must_check int json_bool(const struct cJSON *object, const char *path, bool *ret,
                         struct err *err);
// Whole numbers below 2^53 (a double holds no more); larger ones are refused, not rounded.
must_check int json_int(const struct cJSON *object, const char *path, int64_t *ret,
                        struct err *err);
must_check int json_object(const struct cJSON *object, const char *path,
                           const struct cJSON **ret, struct err *err);
must_check int json_array(const struct cJSON *object, const char *path,
                          const struct cJSON **ret, struct err *err);
// The text at exactly `key` of the string map at `path` ("metadata.labels",
// "risingwave/meta-role").
must_check int json_map_text(const struct cJSON *object, const char *path, const char *key,
                             const char **ret, struct err *err);
