// SPDX-License-Identifier: Apache-2.0
#pragma once
// answer: what an HTTP answer of the API server means. Pure.

#include <stddef.h>

#include "base/err.h"
#include "k8s/client.h"

struct cJSON;

struct k8s_answer {
    int http_status;
    const char *method; // of the request, for the message
    const char *path;   // what is behind '?' is not shown
    const char *body;   // borrowed
    size_t len;
};

// What a status says by itself; K8S_OK for 2xx.
enum k8s_outcome k8s_outcome_of(int http_status);

// Judges a whole answer. *ret_object is set for K8S_OK and K8S_OWNED only: the caller's to free
// with cJSON_Delete. For all but K8S_OK *err says what was asked, what came, and the server's
// own message.
enum k8s_outcome k8s_answer_judge(const struct k8s_answer *answer, struct cJSON **ret_object,
                                  struct err *err);

enum err_kind k8s_outcome_err(enum k8s_outcome outcome);
