// SPDX-License-Identifier: Apache-2.0
#include "k8s/write.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/hash.h"
#include "k8s/json.h"
#include "k8s/path.h"

// The API's limits.
#define EVENT_WORD_MAX 128
#define EVENT_NOTE_MAX 1024
// Of an event's name (253), what is left for the pod's.
#define EVENT_POD_MAX 200

#define APPLY_PATCH "application/apply-patch+yaml" // JSON is YAML
#define MERGE_PATCH "application/merge-patch+json"
#define JSON        "application/json"

static void put_field(struct buf *body, const char *name, const char *value)
{
    buf_put_json(body, name);
    buf_putc(body, ':');
    buf_put_json(body, value);
}

// A call and the text that it borrows.
struct draft {
    struct k8s_call call;
    struct buf path;
    struct buf body;
};

// Frees what is in the draft.
static struct k8s_request *send_draft(struct k8s *k8s, struct draft *draft, k8s_result_fn *fn,
                                      void *arg)
{
    struct k8s_request *request = NULL;

    draft->call.path = buf_str(&draft->path);
    if (draft->call.content_type)
        draft->call.body = buf_str(&draft->body);
    request = k8s_send(k8s, &draft->call, fn, arg);
    buf_done(&draft->path);
    buf_done(&draft->body);
    return request;
}

struct k8s_request *k8s_apply_labels(struct k8s *k8s, const struct k8s_labels_call *call,
                                     k8s_result_fn *fn, void *arg)
{
    struct draft draft = {.call = {.method = "PATCH", .content_type = APPLY_PATCH}};

    k8s_put_pods_path(&draft.path, k8s_namespace(k8s), call->pod);
    buf_puts(&draft.path, "?fieldManager=" K8S_FIELD_MANAGER);
    buf_puts(&draft.path, call->force ? "&force=true" : "&force=false");
    buf_puts(&draft.body, "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{");
    put_field(&draft.body, "name", call->pod);
    buf_putc(&draft.body, ',');
    put_field(&draft.body, "uid", call->uid);
    buf_puts(&draft.body, ",\"labels\":{");
    for (unsigned i = 0; i < call->count; i++) {
        if (i > 0)
            buf_putc(&draft.body, ',');
        put_field(&draft.body, call->labels[i].key, call->labels[i].value);
    }
    buf_puts(&draft.body, "}}}");
    return send_draft(k8s, &draft, fn, arg);
}

bool k8s_is_owned(const struct k8s_result *result, const char *label)
{
    static const char prefix[] = ".metadata.labels.";
    const cJSON *causes = NULL;
    const cJSON *cause = NULL;
    const char *field = NULL;
    struct err ignored = {0};

    if (result->outcome != K8S_OWNED ||
        json_array(result->body, "details.causes", &causes, &ignored) < 0)
        return false;
    cJSON_ArrayForEach(cause, causes)
    {
        if (json_text(cause, "field", &field, &ignored) == 0 && field &&
            strncmp(field, prefix, sizeof(prefix) - 1) == 0 &&
            strcmp(field + sizeof(prefix) - 1, label) == 0)
            return true;
    }
    return false;
}

struct k8s_request *k8s_patch_annotation(struct k8s *k8s,
                                         const struct k8s_annotation_call *call,
                                         k8s_result_fn *fn, void *arg)
{
    struct draft draft = {.call = {.method = "PATCH", .content_type = MERGE_PATCH}};

    k8s_put_pods_path(&draft.path, k8s_namespace(k8s), call->pod);
    buf_puts(&draft.path, "?fieldManager=" K8S_FIELD_MANAGER);
    buf_puts(&draft.body, "{\"metadata\":{");
    put_field(&draft.body, "uid", call->uid);
    buf_puts(&draft.body, ",\"annotations\":{");
    if (call->value) {
        put_field(&draft.body, call->key, call->value);
    } else {
        buf_put_json(&draft.body, call->key);
        buf_puts(&draft.body, ":null");
    }
    buf_puts(&draft.body, "}}}");
    return send_draft(k8s, &draft, fn, arg);
}

struct k8s_request *k8s_delete_pod(struct k8s *k8s, const struct k8s_delete_call *call,
                                   k8s_result_fn *fn, void *arg)
{
    struct draft draft = {.call = {.method = "DELETE", .content_type = JSON}};

    k8s_put_pods_path(&draft.path, k8s_namespace(k8s), call->pod);
    buf_printf(&draft.body,
               "{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\","
               "\"gracePeriodSeconds\":%u,\"preconditions\":{",
               call->grace_s > 0 ? call->grace_s : 1);
    put_field(&draft.body, "uid", call->uid);
    if (call->version) {
        buf_putc(&draft.body, ',');
        put_field(&draft.body, "resourceVersion", call->version);
    }
    buf_puts(&draft.body, "}}");
    return send_draft(k8s, &draft, fn, arg);
}

struct k8s_request *k8s_get_pod(struct k8s *k8s, const char *pod, k8s_result_fn *fn, void *arg)
{
    struct draft draft = {.call = {.method = "GET"}};

    k8s_put_pods_path(&draft.path, k8s_namespace(k8s), pod);
    return send_draft(k8s, &draft, fn, arg);
}

struct k8s_request *k8s_list_pods(struct k8s *k8s, const char *key, const char *value,
                                  k8s_result_fn *fn, void *arg)
{
    struct draft draft = {.call = {.method = "GET"}};

    k8s_put_pods_path(&draft.path, k8s_namespace(k8s), NULL);
    buf_puts(&draft.path, "?labelSelector=");
    k8s_put_escaped(&draft.path, key);
    buf_puts(&draft.path, "%3D");
    k8s_put_escaped(&draft.path, value);
    buf_puts(&draft.path, "&limit=500");
    return send_draft(k8s, &draft, fn, arg);
}

// --- events ---

// At most `max` bytes of `text`, without half a character at the end.
static size_t cut_length(const char *text, size_t max)
{
    size_t len = strnlen(text, max + 1);

    if (len <= max)
        return len;
    len = max;
    while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
        len--;
    return len;
}

static void put_cut(struct buf *body, const char *name, const char *value, size_t max)
{
    char text[EVENT_NOTE_MAX + 1];
    size_t len = cut_length(value, max);

    memcpy(text, value, len);
    text[len] = '\0';
    put_field(body, name, text);
    buf_putc(body, ',');
}

// The same event has the same name however often it is sent: a repeat is K8S_CONFLICT and no
// second event. Two that differ have two names, also within a microsecond.
static void put_event_name(struct buf *body, const struct k8s_event *event)
{
    char name[EVENT_POD_MAX + 64];
    uint64_t sum = HASH_BEGIN;

    sum = hash_text(sum, event->uid);
    sum = hash_text(sum, event->action);
    sum = hash_text(sum, event->reason);
    sum = hash_text(sum, event->note);
    (void)snprintf(name, sizeof(name), "%.*s.%llx.%016llx", EVENT_POD_MAX, event->pod,
                   (unsigned long long)event->wall_us, (unsigned long long)sum);
    put_field(body, "name", name);
}

// MicroTime: exactly six digits.
static void put_event_time(struct buf *body, int64_t wall_us)
{
    time_t seconds = (time_t)(wall_us / 1000000);
    struct tm parts = {0};
    char text[64];
    char stamp[32];

    (void)gmtime_r(&seconds, &parts);
    (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &parts);
    (void)snprintf(text, sizeof(text), "%s.%06dZ", stamp, (int)(wall_us % 1000000));
    put_field(body, "eventTime", text);
}

static void put_regarding(struct buf *body, const struct k8s_event *event,
                          const char *name_space)
{
    buf_puts(body, "\"regarding\":{\"apiVersion\":\"v1\",\"kind\":\"Pod\",");
    put_field(body, "namespace", name_space);
    buf_putc(body, ',');
    put_field(body, "name", event->pod);
    buf_putc(body, ',');
    put_field(body, "uid", event->uid);
    buf_puts(body, "},");
    if (!event->node)
        return;
    buf_puts(body, "\"related\":{\"apiVersion\":\"v1\",\"kind\":\"Node\",");
    put_field(body, "name", event->node);
    buf_puts(body, "},");
}

struct k8s_request *k8s_create_event(struct k8s *k8s, const struct k8s_event *event,
                                     k8s_result_fn *fn, void *arg)
{
    struct draft draft = {.call = {.method = "POST", .content_type = JSON}};

    buf_puts(&draft.path, "/apis/events.k8s.io/v1/namespaces/");
    k8s_put_escaped(&draft.path, k8s_namespace(k8s));
    buf_puts(&draft.path, "/events?fieldManager=" K8S_FIELD_MANAGER);
    buf_puts(&draft.body,
             "{\"apiVersion\":\"events.k8s.io/v1\",\"kind\":\"Event\",\"metadata\":{");
    put_event_name(&draft.body, event);
    buf_putc(&draft.body, ',');
    put_field(&draft.body, "namespace", k8s_namespace(k8s));
    buf_puts(&draft.body, "},");
    put_regarding(&draft.body, event, k8s_namespace(k8s));
    put_cut(&draft.body, "type", event->type, EVENT_WORD_MAX);
    put_cut(&draft.body, "action", event->action, EVENT_WORD_MAX);
    put_cut(&draft.body, "reason", event->reason, EVENT_WORD_MAX);
    put_cut(&draft.body, "note", event->note, EVENT_NOTE_MAX);
    put_cut(&draft.body, "reportingController", "metafence.io/agent", EVENT_WORD_MAX);
    put_cut(&draft.body, "reportingInstance", event->pod, EVENT_WORD_MAX);
    put_event_time(&draft.body, event->wall_us);
    buf_putc(&draft.body, '}');
    return send_draft(k8s, &draft, fn, arg);
}
