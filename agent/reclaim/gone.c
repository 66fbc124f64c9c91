// SPDX-License-Identifier: Apache-2.0
#include "agent/reclaim/gone.h"

#include <stdio.h>
#include <string.h>

#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME  UINT64_C(0x100000001b3)

static uint64_t mix(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * FNV_PRIME;
    return hash ? hash : 1;
}

bool gone_is_pod_of(const struct address *host, const struct gone_pod *pod)
{
    if (host->kind == ADDRESS_NAME)
        return address_names(host, &pod->name) == ADDRESS_YES;
    for (unsigned i = 0; host->kind == ADDRESS_IP && i < pod->ip_count; i++) {
        struct address ip = address_parse(pod->ips[i]);

        if (ip.kind == ADDRESS_IP && memcmp(ip.ip, host->ip, sizeof(ip.ip)) == 0)
            return true;
    }
    return false;
}

uint64_t gone_uid_of(const char *uid)
{
    return mix(FNV_OFFSET, uid);
}

uint64_t gone_process_of(const struct gone_pod *pod)
{
    return pod->container_id ? mix(gone_uid_of(pod->uid), pod->container_id) : 0;
}

bool gone_can_fence(const struct gone_pod *pod)
{
    return pod->container_id && !pod->host_network;
}

void gone_add(struct gone_look *look, const struct gone_pod *pod, uint64_t base)
{
    uint64_t uid = gone_uid_of(pod->uid);

    if (base != 0 && uid != base)
        return;
    look->pods++;
    look->pod = uid;
    look->process = gone_process_of(pod);
    look->is_ended = pod->has_ended || pod->is_terminal;
    look->can_fence = gone_can_fence(pod);
    (void)snprintf(look->pod_name, sizeof(look->pod_name), "%s", pod->pod ? pod->pod : "");
}

void gone_take(const struct gone_look *look, struct instant seen_at, uint64_t *base,
               struct order_node *node)
{
    bool is_told = look->pods == 1;

    node->seen_at = seen_at;
    node->incarnation = is_told ? look->process : 0;
    node->is_ended = is_told && look->is_ended;
    node->can_fence = is_told && look->can_fence;
    if (is_told && *base == 0)
        *base = look->pod;
}
