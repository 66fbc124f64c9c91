// SPDX-License-Identifier: Apache-2.0
#pragma once
// client: the command line's end of the agent's control socket. Blocking, with a bound.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/err.h"

// Sends one request line and waits for one line of JSON, for at most `timeout_ns` in all. The
// answer is the caller's (cJSON_Delete). Errors: TRANSIENT (no agent there, no answer in time),
// DENIED (not allowed), INVALID (the answer is no JSON object).
must_check int client_ask(const char *socket_path, const char *request, int64_t timeout_ns,
                          cJSON **ret_answer, struct err *err);

// Builds {"cmd":…, "reason":…, "MEMBER":…}, where that is "for" or "wait"; a NULL reason or
// duration is left out.
void client_request(struct buf *out, const char *command, const char *reason,
                    const char *member, const char *duration);

// A member by path "meta.state", or NULL.
const cJSON *client_get(const cJSON *object, const char *path);
// The same as text ("" when missing or not a string), number (`missing` when it is not one),
// and truth.
const char *client_text(const cJSON *object, const char *path);
double client_number(const cJSON *object, const char *path, double missing);
bool client_is_true(const cJSON *object, const char *path);
