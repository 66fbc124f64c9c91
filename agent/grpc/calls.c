// SPDX-License-Identifier: Apache-2.0
#include "agent/grpc/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/grpc/unary.h"
#include "meta.pb-c.h"

#define ACTORS_MAX ((size_t)8 << 20) // bytes: some 500,000 actors
#define HOST_MAX   255

struct slot {
    struct grpc_calls *calls;
    enum grpc_method method;
    struct grpc_unary *unary;
};

struct grpc_calls {
    struct grpc_calls_config config;
    struct slot slots[GRPC_METHODS];
};

static const struct {
    const char *path;
    size_t body_max;
} methods[GRPC_METHODS] = {
    [GRPC_DELETE_WORKER] = {"/meta.ClusterService/DeleteWorkerNode", GRPC_BODY_MAX},
    [GRPC_RECOVER] = {"/meta.StreamManagerService/Recover", GRPC_BODY_MAX},
    [GRPC_LIST_ACTORS] = {"/meta.StreamManagerService/ListActorStates", ACTORS_MAX},
};

const char *grpc_outcome_name(enum grpc_outcome outcome)
{
    switch (outcome) {
    case GRPC_CALL_UNKNOWN: return "unknown";
    case GRPC_CALL_OK: return "ok";
    case GRPC_CALL_ERROR: return "error";
    case GRPC_CALL_NOT_SENT: return "not sent";
    }
    return "unknown";
}

// --- pure ---

// CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE: nobody says that the handler has ended.
static bool is_given_up(int code)
{
    return code == 1 || code == 4 || code == 14;
}

enum grpc_outcome grpc_judge_call(const struct grpc_reply *reply, const uint8_t **ret_message,
                                  size_t *ret_len)
{
    struct err err = {0};

    if (reply->http_status != 200 || !reply->is_grpc || reply->grpc_status < 0 ||
        is_given_up(reply->grpc_status))
        return GRPC_CALL_UNKNOWN;
    if (reply->grpc_status != GRPC_STATUS_OK)
        return GRPC_CALL_ERROR;
    if (grpc_frame_message(reply->body, reply->body_len, ret_message, ret_len, &err) < 0)
        return GRPC_CALL_UNKNOWN;
    return GRPC_CALL_OK;
}

// Puts an id where it belongs in the ascending array. False: there is no room.
static bool put_id(struct grpc_workers *workers, uint32_t id)
{
    uint32_t *ids = workers->ids;
    size_t low = 0;
    size_t high = workers->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < workers->count && ids[low] == id)
        return true;
    if (workers->count >= workers->room)
        return false;
    memmove(ids + low + 1, ids + low, (workers->count - low) * sizeof(*ids));
    ids[low] = id;
    workers->count++;
    return true;
}

int grpc_actor_workers(const uint8_t *message, size_t len, struct grpc_workers *ret,
                       struct err *err)
{
    Meta__ListActorStatesResponse *response =
        meta__list_actor_states_response__unpack(NULL, len, message);
    struct grpc_workers workers = {.ids = ret->ids, .room = ret->room};
    bool has_room = true;

    if (!response)
        return err_set(err, ERR_INVALID, 0, "%zu bytes are no ListActorStatesResponse", len);
    for (size_t i = 0; i < response->n_states && has_room; i++)
        has_room = put_id(&workers, response->states[i]->worker_id);
    meta__list_actor_states_response__free_unpacked(response, NULL);
    if (!has_room)
        return err_set(err, ERR_INVALID, 0, "actors on more than %zu workers", ret->room);
    *ret = workers;
    return 0;
}

// --- on the loop ---

static void on_end(const struct grpc_unary_end *end, void *arg)
{
    const struct slot *slot = arg;
    struct grpc_call_result result = {.method = slot->method, .sent_at = end->sent_at};

    if (!end->has_reply) {
        result.outcome = end->is_refused ? GRPC_CALL_NOT_SENT : GRPC_CALL_UNKNOWN;
        (void)snprintf(result.detail, sizeof(result.detail), "%s", end->detail);
    } else {
        result.outcome = grpc_judge_call(&end->reply, &result.message, &result.len);
        result.code = result.outcome == GRPC_CALL_ERROR ? end->reply.grpc_status : 0;
        if (result.outcome != GRPC_CALL_OK)
            (void)snprintf(result.detail, sizeof(result.detail),
                           "HTTP %ld, grpc-status %d: %.110s", end->reply.http_status,
                           end->reply.grpc_status, end->reply.message);
    }
    slot->calls->config.on_result(&result, slot->calls->config.arg);
}

struct grpc_calls *grpc_calls_new(struct loop *loop, const struct grpc_calls_config *config)
{
    struct grpc_calls *calls = calloc(1, sizeof(*calls));

    if (!calls)
        abort();
    calls->config = *config;
    for (unsigned i = 0; i < GRPC_METHODS; i++) {
        struct slot *slot = &calls->slots[i];
        const struct grpc_unary_config unary = {
            .path = methods[i].path,
            .port = config->port,
            .timeout_ns = config->timeout_ns[i],
            .body_max = methods[i].body_max,
            .on_end = on_end,
            .arg = slot,
        };

        *slot = (struct slot){calls, (enum grpc_method)i, grpc_unary_new(loop, &unary)};
    }
    return calls;
}

void grpc_calls_free(struct grpc_calls *calls)
{
    if (!calls)
        return;
    for (unsigned i = 0; i < GRPC_METHODS; i++)
        grpc_unary_free(calls->slots[i].unary);
    free(calls);
}

bool grpc_calls_is_busy(const struct grpc_calls *calls, enum grpc_method method)
{
    return grpc_unary_is_busy(calls->slots[method].unary);
}

int grpc_delete_worker(struct grpc_calls *calls, const char *host, int32_t port,
                       struct instant now, struct err *err)
{
    char name[HOST_MAX + 1];
    uint8_t packed[HOST_MAX + 32];
    Meta__HostAddress address;
    Meta__DeleteWorkerNodeRequest request;

    if (strlen(host) > HOST_MAX)
        return err_set(err, ERR_INVALID, 0, "host of %zu bytes: at most %d", strlen(host),
                       HOST_MAX);
    (void)snprintf(name, sizeof(name), "%s", host);
    meta__host_address__init(&address);
    meta__delete_worker_node_request__init(&request);
    address.host = name;
    address.port = port;
    request.host = &address;
    return grpc_unary_begin(calls->slots[GRPC_DELETE_WORKER].unary, packed,
                            meta__delete_worker_node_request__pack(&request, packed), now, err);
}

int grpc_recover(struct grpc_calls *calls, struct instant now, struct err *err)
{
    return grpc_unary_begin(calls->slots[GRPC_RECOVER].unary, NULL, 0, now, err);
}

int grpc_list_actors(struct grpc_calls *calls, struct instant now, struct err *err)
{
    return grpc_unary_begin(calls->slots[GRPC_LIST_ACTORS].unary, NULL, 0, now, err);
}
