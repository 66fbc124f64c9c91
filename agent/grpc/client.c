// SPDX-License-Identifier: Apache-2.0
#include "agent/grpc/client.h"

#include <stdio.h>
#include <stdlib.h>

#include <curl/curl.h>

#include "agent/grpc/unary.h"

struct grpc_client {
    struct grpc_client_config config;
    struct grpc_unary *unary;
};

static void on_end(const struct grpc_unary_end *end, void *arg)
{
    const struct grpc_client *client = arg;
    struct grpc_result result = {.answer = GRPC_UNKNOWN, .sent_at = end->sent_at};

    if (!end->has_reply) {
        if (end->is_refused)
            result.answer = GRPC_REFUSED;
        (void)snprintf(result.detail, sizeof(result.detail), "%s", end->detail);
    } else {
        result.answer = grpc_judge_status(&end->reply, &result.recovery_status);
        if (result.answer == GRPC_UNKNOWN)
            (void)snprintf(result.detail, sizeof(result.detail),
                           "HTTP %ld, grpc-status %d, %zu bytes", end->reply.http_status,
                           end->reply.grpc_status, end->reply.body_len);
    }
    client->config.on_result(&result, client->config.arg);
}

struct grpc_client *grpc_client_new(struct loop *loop, const struct grpc_client_config *config)
{
    struct grpc_client *client = calloc(1, sizeof(*client));

    if (!client)
        abort();
    const struct grpc_unary_config unary = {
        .path = "/meta.ClusterService/GetClusterRecoveryStatus",
        .port = config->port,
        .timeout_ns = config->timeout_ns,
        .body_max = GRPC_BODY_MAX,
        .on_end = on_end,
        .arg = client,
    };
    client->config = *config;
    client->unary = grpc_unary_new(loop, &unary);
    return client;
}

void grpc_client_free(struct grpc_client *client)
{
    if (!client)
        return;
    grpc_unary_free(client->unary);
    free(client);
}

const char *grpc_client_curl_version(void)
{
    return curl_version_info(CURLVERSION_NOW)->version;
}

bool grpc_client_is_busy(const struct grpc_client *client)
{
    return grpc_unary_is_busy(client->unary);
}

int grpc_client_ask(struct grpc_client *client, struct instant now, struct err *err)
{
    return grpc_unary_begin(client->unary, NULL, 0, now, err);
}
