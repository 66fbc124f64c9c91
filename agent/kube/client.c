// SPDX-License-Identifier: Apache-2.0
#include "agent/kube/client.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/kube/server.h"
#include "k8s/client.h"

// The service account's own namespace, beside its token.
static void read_namespace(const char *token_file, char *to, size_t size)
{
    char path[CONFIG_PATH_SIZE + 16];
    const char *slash = strrchr(token_file, '/');
    ssize_t got = 0;
    int fd = -1;

    if (!slash)
        return;
    (void)snprintf(path, sizeof(path), "%.*s/namespace", (int)(slash - token_file), token_file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    got = read(fd, to, size - 1);
    close(fd);
    to[got > 0 ? got : 0] = '\0';
    to[strcspn(to, " \r\n")] = '\0';
}

static void find_namespace(const struct config_kubernetes *config, char *to, size_t size)
{
    const char *env = getenv("POD_NAMESPACE");

    (void)snprintf(to, size, "%s", config->name_space[0] ? config->name_space : env ? env : "");
    if (!to[0])
        read_namespace(config->token_file, to, size);
}

bool kube_client_is_wanted(const struct config_kubernetes *config)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");

    switch (config->enabled) {
    case KUBERNETES_ON: return true;
    case KUBERNETES_OFF: return false;
    case KUBERNETES_AUTO: break;
    }
    return config->server[0] || (host && *host);
}

int kube_client_new(struct loop *loop, const struct config_kubernetes *config,
                    struct kube_client_place *ret_place, struct k8s **ret_k8s, struct err *err)
{
    struct kube_client_place place = {0};
    bool is_plain = false;

    find_namespace(config, place.name_space, sizeof(place.name_space));
    if (!place.name_space[0])
        return err_set(err, ERR_INVALID, 0,
                       "kubernetes.namespace is not known: set it or POD_NAMESPACE");
    if (config->server[0])
        (void)snprintf(place.server, sizeof(place.server), "%s", config->server);
    else if (kube_server_url(getenv("KUBERNETES_SERVICE_HOST"),
                             getenv("KUBERNETES_SERVICE_PORT"), place.server, err) < 0)
        return -1;
    is_plain = strncmp(place.server, "http://", 7) == 0;
    const struct k8s_config client = {
        .server = place.server,
        .token_file = config->token_file[0] ? config->token_file : NULL,
        .ca_file = config->ca_file[0] && !is_plain ? config->ca_file : NULL,
        .name_space = place.name_space,
        .timeout_ns = config->timeout_ns,
    };
    if (k8s_new(loop, &client, ret_k8s, err) < 0)
        return -1;
    *ret_place = place;
    return 0;
}
