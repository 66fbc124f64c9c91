// SPDX-License-Identifier: Apache-2.0
#include "k8s/answer.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"

const char *k8s_outcome_name(enum k8s_outcome outcome)
{
    switch (outcome) {
    case K8S_OK: return "ok";
    case K8S_NOT_SENT: return "not-sent";
    case K8S_UNKNOWN: return "unknown";
    case K8S_BUSY: return "busy";
    case K8S_CONFLICT: return "conflict";
    case K8S_OWNED: return "owned";
    case K8S_NOT_FOUND: return "not-found";
    case K8S_GONE: return "gone";
    case K8S_DENIED: return "denied";
    case K8S_REFUSED: return "refused";
    case K8S_GARBAGE: return "garbage";
    }
    return "invalid-outcome"; // a number that came from a cast
}

enum err_kind k8s_outcome_err(enum k8s_outcome outcome)
{
    switch (outcome) {
    case K8S_OK: return ERR_NONE;
    case K8S_NOT_SENT:
    case K8S_BUSY: return ERR_TRANSIENT;
    case K8S_UNKNOWN: return ERR_UNKNOWN_OUTCOME;
    case K8S_CONFLICT:
    case K8S_OWNED:
    case K8S_NOT_FOUND:
    case K8S_GONE: return ERR_CONFLICT;
    case K8S_DENIED: return ERR_DENIED;
    case K8S_REFUSED:
    case K8S_GARBAGE: return ERR_INVALID;
    }
    return ERR_BUG;
}

enum k8s_outcome k8s_outcome_of(int http_status)
{
    if (http_status >= 200 && http_status < 300)
        return K8S_OK;
    switch (http_status) {
    case 401:
    case 403: return K8S_DENIED;
    case 404: return K8S_NOT_FOUND;
    case 409: return K8S_CONFLICT;
    case 410: return K8S_GONE;
    case 408:
    case 429: return K8S_BUSY;
    }
    if (http_status >= 400 && http_status < 500)
        return K8S_REFUSED;
    if (http_status >= 500 && http_status < 600)
        return K8S_BUSY;
    return K8S_GARBAGE; // a redirect is not followed: it is not the API server that speaks
}

// The message of a Status object, if that is what the body is.
static const char *server_message(const cJSON *object)
{
    const char *message = NULL;
    struct err ignored = {0};

    if (!object || json_text(object, "message", &message, &ignored) < 0 || !message)
        return "";
    return message;
}

// Whether a refused apply names another field manager as its cause.
static bool is_owned(const cJSON *object)
{
    const cJSON *causes = NULL;
    const cJSON *cause = NULL;
    const char *reason = NULL;
    struct err ignored = {0};

    if (!cJSON_IsObject(object) || json_array(object, "details.causes", &causes, &ignored) < 0)
        return false;
    cJSON_ArrayForEach(cause, causes)
    {
        if (json_text(cause, "reason", &reason, &ignored) == 0 && reason &&
            strcmp(reason, "FieldManagerConflict") == 0)
            return true;
    }
    return false;
}

static void describe(const struct k8s_answer *answer, enum k8s_outcome outcome,
                     const char *message, struct err *err)
{
    (void)err_set(err, k8s_outcome_err(outcome), answer->http_status,
                  "%s %.*s: HTTP %d%s%.160s", answer->method, (int)strcspn(answer->path, "?"),
                  answer->path, answer->http_status, message[0] ? ": " : "", message);
}

enum k8s_outcome k8s_answer_judge(const struct k8s_answer *answer, struct cJSON **ret_object,
                                  struct err *err)
{
    enum k8s_outcome outcome = k8s_outcome_of(answer->http_status);
    struct err why = {0};
    cJSON *object = json_parse(answer->body, answer->len, &why);

    *ret_object = NULL;
    if (outcome == K8S_OK && cJSON_IsObject(object)) {
        *ret_object = object;
        return K8S_OK;
    }
    if (outcome == K8S_CONFLICT && is_owned(object)) {
        describe(answer, K8S_OWNED, server_message(object), err);
        *ret_object = object;
        return K8S_OWNED;
    }
    if (outcome == K8S_OK) {
        outcome = K8S_GARBAGE;
        describe(answer, outcome, object ? "JSON, but no object" : why.msg, err);
    } else {
        describe(answer, outcome, server_message(object), err);
    }
    cJSON_Delete(object);
    return outcome;
}
