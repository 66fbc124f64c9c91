// SPDX-License-Identifier: Apache-2.0
// The API server: the pods of one StatefulSet, server-side apply with field managers, merge
// patches, deletes and a history for watches. What it is asked and what it answers is the text
// that goes over the wire.
#include "tests/sim/cluster.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "agent/kube/label.h"
#include "agent/kube/order.h"
#include "base/hash.h"

#define PODS_PATH "/api/v1/namespaces/ns/pods"
#define ROLE_KEY  "risingwave/meta-role"
#define BODY_SIZE 4096

// --- objects ---

static int put_map(char *to, size_t size, const char *name, const char *const pairs[4])
{
    int used = snprintf(to, size, ",\"%s\":{", name);
    const char *comma = "";

    for (int i = 0; i < 4; i += 2) {
        if (!pairs[i + 1])
            continue;
        used += snprintf(to + used, size - (size_t)used, "%s\"%s\":\"%s\"", comma, pairs[i],
                         pairs[i + 1]);
        comma = ",";
    }
    return used + snprintf(to + used, size - (size_t)used, "}");
}

// Orders hold no quotes here.
static int put_pod(char *to, size_t size, int name, const struct api_pod *pod)
{
    const char *const labels[] = {KUBE_OWN_KEY, pod->own[0] ? pod->own : NULL, ROLE_KEY,
                                  pod->role[0] ? pod->role : NULL};
    const char *const annotations[] = {KUBE_FENCE_KEY, pod->has_fence ? pod->fence : NULL,
                                       KUBE_PAUSE_KEY, pod->has_pause ? pod->pause : NULL};
    int used = snprintf(to, size,
                        "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"meta-%d\",\"namespace\":"
                        "\"ns\",\"uid\":\"%s\",\"resourceVersion\":\"%" PRIu64
                        "\",\"ownerReferences\":[{\"controller\":true,\"uid\":\"set\"}]%s",
                        name, pod->uid, pod->version,
                        pod->deleting ? ",\"deletionTimestamp\":\"2030-01-01T00:00:00Z\"" : "");

    used += put_map(to + used, size - (size_t)used, "labels", labels);
    used += put_map(to + used, size - (size_t)used, "annotations", annotations);
    return used + snprintf(to + used, size - (size_t)used,
                           "},\"spec\":{\"nodeName\":\"node-%d\"}}", pod->pod);
}

static char *copy_text(const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        abort();
    return copy;
}

char *api_event_line(const struct api_change *change)
{
    char text[BODY_SIZE];
    int used = snprintf(text, sizeof(text), "{\"type\":\"%s\",\"object\":", change->type);

    used += put_pod(text + used, sizeof(text) - (size_t)used, change->name, &change->pod);
    (void)snprintf(text + used, sizeof(text) - (size_t)used, "}");
    return copy_text(text);
}

static void changed(struct world *world, int name, const char *type)
{
    struct api_server *api = &world->cluster->api;
    struct api_pod *pod = &api->pods[name];

    pod->version = ++api->version;
    sim_trace(world, pod->pod, "api: meta-%d %s version %" PRIu64 " role \"%s\", second \"%s\"",
              name, type, pod->version, pod->own, pod->role);
    api->changes[api->change_count++ % CHANGES_MAX] =
        (struct api_change){pod->version, world->now, type, name, *pod};
    if (api->change_count > CHANGES_MAX)
        api->compacted = api->changes[api->change_count % CHANGES_MAX].version;
    wire_changed(world, name);
}

bool api_is_known(const struct world *world, uint64_t version)
{
    return version >= world->cluster->api.compacted;
}

struct api_pod *api_of(struct world *world, int pod)
{
    struct api_pod *object = &world->cluster->api.pods[world->pods[pod].id];

    // Asked after each step, so without a call: 8 characters and their end.
    _Static_assert(sizeof(world->pods[pod].uid) == 9, "the uid that is compared");
    return object->exists && memcmp(object->uid, world->pods[pod].uid, 9) == 0 ? object : NULL;
}

void api_create(struct world *world, int pod, int name)
{
    struct api_pod *object = &world->cluster->api.pods[name];

    if (object->exists)
        api_remove(world, name);
    *object = (struct api_pod){
        .exists = true, .pod = pod, .own_is = -1, .role_is = -1, .labelled_at = world->now};
    (void)snprintf(object->uid, sizeof(object->uid), "%s", world->pods[pod].uid);
    changed(world, name, "ADDED");
}

void api_remove(struct world *world, int name)
{
    struct api_pod *object = &world->cluster->api.pods[name];

    if (!object->exists)
        return;
    changed(world, name, "DELETED");
    object->exists = false;
}

void api_begin_delete(struct world *world, int name, int64_t grace_ns)
{
    struct api_pod *object = &world->cluster->api.pods[name];
    int64_t at = world->now + grace_ns;

    if (!object->exists || (object->deleting && object->delete_at <= at))
        return;
    object->deleting = true;
    object->delete_at = at;
    changed(world, name, "MODIFIED");
    kubelet_begin_end(world, object->pod, grace_ns);
}

void api_touch(struct world *world, int name)
{
    if (world->cluster->api.pods[name].exists)
        changed(world, name, "MODIFIED");
}

static bool set_label(char *label, int *is, const char *value)
{
    if (strcmp(label, value) == 0)
        return false;
    (void)snprintf(label, VALUE_SIZE, "%s", value);
    *is = -1;
    for (int role = LABEL_UNKNOWN; role <= LABEL_FOLLOWER; role++)
        if (strcmp(value, kube_role_text((enum role_label)role)) == 0)
            *is = role;
    return true;
}

void api_write_label(struct world *world, int name, const char *own, const char *role)
{
    struct api_pod *object = &world->cluster->api.pods[name];
    bool is_new = false;

    if (!object->exists)
        return;
    if (own && set_label(object->own, &object->own_is, own)) {
        object->own_manager = OPERATOR;
        object->labelled_at = world->now;
        is_new = true;
    }
    if (role && set_label(object->role, &object->role_is, role)) {
        object->role_manager = OPERATOR;
        is_new = true;
    }
    if (is_new)
        changed(world, name, "MODIFIED");
}

// --- answers ---

static void answer_text(struct api_call *call, int status, const char *text)
{
    call->status = status;
    free(call->answer);
    call->answer = copy_text(text);
}

static void answer_pod(struct api_call *call, int name, const struct api_pod *pod)
{
    char text[BODY_SIZE];

    (void)put_pod(text, sizeof(text), name, pod);
    answer_text(call, 200, text);
}

static void answer_list(const struct world *world, struct api_call *call, int only,
                        const char *own)
{
    const struct api_server *api = &world->cluster->api;
    char text[BODY_SIZE * PODS_MAX];
    const char *comma = "";
    int used = snprintf(text, sizeof(text),
                        "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"%" PRIu64
                        "\"},\"items\":[",
                        api->version);

    for (int name = 0; name < PODS_MAX; name++) {
        const struct api_pod *pod = &api->pods[name];
        if (!pod->exists || (only >= 0 && name != only) || (own && strcmp(pod->own, own) != 0))
            continue;
        used += snprintf(text + used, sizeof(text) - (size_t)used, "%s", comma);
        used += put_pod(text + used, sizeof(text) - (size_t)used, name, pod);
        comma = ",";
    }
    (void)snprintf(text + used, sizeof(text) - (size_t)used, "]}");
    answer_text(call, 200, text);
}

static void answer_other_uid(struct world *world, struct api_call *call)
{
    cluster_count(world, HAPPENED_OTHER_UID);
    // By the way of writing it is the one or the other.
    answer_text(call, cluster_chance(world, 50) ? 409 : 422,
                "{\"kind\":\"Status\",\"message\":\"the UID in the precondition is another\"}");
}

static void answer_owned(struct world *world, struct api_call *call, bool own, bool role)
{
    char text[512];

    cluster_count(world, HAPPENED_OWNED);
    (void)snprintf(text, sizeof(text),
                   "{\"kind\":\"Status\",\"message\":\"conflict\",\"details\":{\"causes\":[%s%s"
                   "%s]}}",
                   own ? "{\"reason\":\"FieldManagerConflict\",\"field\":"
                         "\".metadata.labels." KUBE_OWN_KEY "\"}"
                       : "",
                   own && role ? "," : "",
                   role ? "{\"reason\":\"FieldManagerConflict\",\"field\":"
                          "\".metadata.labels." ROLE_KEY "\"}"
                        : "");
    answer_text(call, 409, text);
}

// --- writes ---

static const char *text_at(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static bool is_disputed(const char *label, enum manager manager, const char *value)
{
    return value && manager == OPERATOR && label[0] && strcmp(label, value) != 0;
}

static void apply_labels(struct world *world, struct api_call *call, int name,
                         const cJSON *metadata)
{
    struct api_pod *pod = &world->cluster->api.pods[name];
    const cJSON *labels = cJSON_GetObjectItemCaseSensitive(metadata, "labels");
    const char *own = text_at(labels, KUBE_OWN_KEY);
    const char *role = text_at(labels, ROLE_KEY);
    bool is_forced = strstr(call->path, "force=true") != NULL;
    bool own_disputed = is_disputed(pod->own, pod->own_manager, own);
    bool role_disputed = is_disputed(pod->role, pod->role_manager, role);
    bool is_new = false;

    if (!is_forced && (own_disputed || role_disputed)) {
        answer_owned(world, call, own_disputed, role_disputed);
        return;
    }
    if (own) {
        is_new = set_label(pod->own, &pod->own_is, own);
        pod->labelled_at = is_new ? world->now : pod->labelled_at;
        pod->own_manager = US;
    }
    if (role) {
        is_new |= set_label(pod->role, &pod->role_is, role);
        pod->role_manager = US;
    } else if (pod->role_manager == US) {
        // What a manager does not name any more goes away.
        is_new |= set_label(pod->role, &pod->role_is, "");
        pod->role_manager = NOBODY;
    }
    if (is_new)
        changed(world, name, "MODIFIED");
    answer_pod(call, name, pod);
}

static void annotate(char *to, bool *has, const cJSON *item)
{
    if (!item)
        return;
    *has = cJSON_IsString(item);
    (void)snprintf(to, ORDER_SIZE, "%s", *has ? item->valuestring : "");
}

static void merge_annotations(struct world *world, struct api_call *call, int name,
                              const cJSON *metadata)
{
    struct api_pod *pod = &world->cluster->api.pods[name];
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(metadata, "annotations");

    annotate(pod->fence, &pod->has_fence,
             cJSON_GetObjectItemCaseSensitive(map, KUBE_FENCE_KEY));
    annotate(pod->pause, &pod->has_pause,
             cJSON_GetObjectItemCaseSensitive(map, KUBE_PAUSE_KEY));
    cluster_count(world, HAPPENED_ORDER_WRITTEN);
    changed(world, name, "MODIFIED");
    answer_pod(call, name, pod);
}

static void patch(struct world *world, struct api_call *call, int name)
{
    struct api_pod *pod = &world->cluster->api.pods[name];
    cJSON *body = cJSON_Parse(call->body);
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(body, "metadata");
    const char *uid = text_at(metadata, "uid");

    if (!pod->exists)
        answer_text(call, 404, "{\"kind\":\"Status\",\"message\":\"not found\"}");
    else if (!uid || strcmp(uid, pod->uid) != 0)
        answer_other_uid(world, call);
    else if (call->is_label)
        apply_labels(world, call, name, metadata);
    else
        merge_annotations(world, call, name, metadata);
    cJSON_Delete(body);
}

static void delete_pod(struct world *world, struct api_call *call, int name)
{
    struct api_pod *pod = &world->cluster->api.pods[name];

    if (!pod->exists) {
        answer_text(call, 404, "{\"kind\":\"Status\",\"message\":\"not found\"}");
        return;
    }
    if (!strstr(call->body, pod->uid)) {
        answer_other_uid(world, call);
        return;
    }
    cluster_count(world, HAPPENED_OWN_DELETE);
    if (world->cluster->is_api_only)
        sim_fail(world, pod->pod, "P8: its pod is deleted, though only the API is in trouble");
    sim_trace(world, pod->pod, "the agent deletes its pod");
    api_begin_delete(world, name, S);
    answer_pod(call, name, pod);
}

static void post_event(struct world *world, struct api_call *call)
{
    struct api_server *api = &world->cluster->api;
    cJSON *body = cJSON_Parse(call->body);
    const char *name = text_at(cJSON_GetObjectItemCaseSensitive(body, "metadata"), "name");
    uint64_t sum = hash_text(HASH_BEGIN, name ? name : "");
    int status = 201;

    for (unsigned i = 0; i < 32; i++)
        if (api->events[i] == sum)
            status = 409;
    if (status == 201)
        api->events[api->event_count++ % 32] = sum;
    answer_text(call, status, "{\"kind\":\"Event\"}");
    cJSON_Delete(body);
}

// --- watches ---

static uint64_t number_after(const char *path, const char *what)
{
    const char *at = strstr(path, what);
    uint64_t number = 0;

    for (at = at ? at + strlen(what) : ""; *at >= '0' && *at <= '9'; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    return number;
}

static void begin_watch(struct world *world, struct api_call *call, int name)
{
    const struct api_server *api = &world->cluster->api;

    call->name = name;
    call->cursor = number_after(call->path, "resourceVersion=");
    call->ends_at = world->now + (int64_t)number_after(call->path, "timeoutSeconds=") * S;
    if (!api_is_known(world, call->cursor) || (api->expired > 0 && cluster_chance(world, 70))) {
        cluster_count(world, HAPPENED_GONE_STATUS);
        answer_text(call, 410,
                    "{\"kind\":\"Status\",\"code\":410,\"message\":\"too old resource "
                    "version\"}");
        return;
    }
    if (api->stale > 0 && cluster_chance(world, 30)) {
        cluster_count(world, HAPPENED_TOO_NEW);
        answer_text(call, 504,
                    "{\"kind\":\"Status\",\"code\":504,\"message\":\"Too large resource "
                    "version\"}");
        call->retry_after_ns = S;
        return;
    }
    if (api->stale > 0)
        call->lag_ns = api->lag_ns;
    answer_text(call, 200, "{}");
}

void api_execute(struct world *world, struct api_call *call)
{
    const char *rest = call->path + strlen(PODS_PATH);
    const char *only = strstr(call->path, "metadata.name%3Dmeta-");
    const char *own = strstr(call->path, "labelSelector=");
    int name = 0;

    call->retry_after_ns = 0;
    if (strcmp(call->method, "POST") == 0) {
        post_event(world, call);
        return;
    }
    if (only)
        name = only[strlen("metadata.name%3Dmeta-")] - '0';
    else if (*rest == '/')
        name = rest[strlen("/meta-")] - '0';
    if (call->is_stream)
        begin_watch(world, call, name);
    else if (strcmp(call->method, "PATCH") == 0)
        patch(world, call, name);
    else if (strcmp(call->method, "DELETE") == 0)
        delete_pod(world, call, name);
    else if (only)
        answer_list(world, call, name, NULL);
    else if (own)
        answer_list(world, call, -1, "leader");
    else if (world->cluster->api.pods[name].exists)
        answer_pod(call, name, &world->cluster->api.pods[name]);
    else
        answer_text(call, 404, "{\"kind\":\"Status\",\"message\":\"not found\"}");
}

void api_init(struct world *world)
{
    world->cluster->api.version = 1000;
}
