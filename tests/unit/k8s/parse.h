// SPDX-License-Identifier: Apache-2.0
#pragma once
// parse: JSON of a test's own, which must be good. Freed by cJSON_Delete.

struct cJSON;

struct cJSON *parse(const char *text);
// With the first `from` replaced; there must be one.
struct cJSON *parse_with(const char *text, const char *from, const char *to);
