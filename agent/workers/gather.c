// SPDX-License-Identifier: Apache-2.0
#include "agent/workers/gather.h"

#include <stdlib.h>
#include <string.h>

#include "k8s/pod.h"
#include "k8s/slice.h"
#include "k8s/statefulset.h"

#define CHUNK_SIZE      ((size_t)64 << 10)
#define LABEL_RELEASE   "risingwave/name"
#define LABEL_COMPONENT "risingwave/component"

struct gather_chunk {
    struct gather_chunk *next;
    size_t used, size;
    char bytes[];
};

static const char *keep(struct gather *gather, const char *text)
{
    size_t len = text ? strlen(text) + 1 : 0;
    struct gather_chunk *chunk = gather->chunks;

    if (!text)
        return NULL;
    if (!chunk || chunk->size - chunk->used < len) {
        size_t size = len > CHUNK_SIZE ? len : CHUNK_SIZE;

        chunk = malloc(sizeof(*chunk) + size);
        if (!chunk)
            abort();
        *chunk = (struct gather_chunk){.next = gather->chunks, .size = size};
        gather->chunks = chunk;
    }
    memcpy(chunk->bytes + chunk->used, text, len);
    chunk->used += len;
    return chunk->bytes + chunk->used - len;
}

// Room for one more element of `size` bytes. Returns the array, moved if need be.
static void *grown(void *array, size_t count, size_t *room, size_t size)
{
    void *bigger = NULL;

    if (count < *room)
        return array;
    *room = *room ? 2 * *room : 64;
    bigger = reallocarray(array, *room, size);
    if (!bigger)
        abort();
    return bigger;
}

void gather_clear(struct gather *gather)
{
    while (gather->chunks) {
        struct gather_chunk *chunk = gather->chunks;

        gather->chunks = chunk->next;
        free(chunk);
    }
    free(gather->rows);
    free(gather->lost);
    free(gather->pods);
    free(gather->endpoints);
    free(gather->sets);
    *gather = (struct gather){0};
}

void gather_close(struct gather *gather)
{
    struct worker_snapshot *snapshot = &gather->snapshot;

    snapshot->rows = gather->rows;
    snapshot->lost = gather->lost;
    snapshot->pods = gather->pods;
    snapshot->endpoints = gather->endpoints;
    snapshot->sets = gather->sets;
}

// --- rows ---

int gather_row(struct gather *gather, const char *const *fields, struct err *err)
{
    struct worker_row row;
    uint32_t count = gather->snapshot.row_count;

    if (count >= GATHER_ROWS_MAX)
        return err_set(err, ERR_INVALID, 0, "worker has more than %u rows", GATHER_ROWS_MAX);
    if (store_parse_row(fields, &row, err) < 0)
        return -1;
    row.host = keep(gather, row.host);
    row.row_version = keep(gather, row.row_version);
    gather->rows = grown(gather->rows, count, &gather->row_room, sizeof(row));
    gather->rows[count] = row;
    gather->snapshot.row_count++;
    return 0;
}

static struct worker_row *find(const struct gather *gather, int64_t worker_id)
{
    size_t low = 0;
    size_t high = gather->snapshot.row_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (gather->rows[middle].id < worker_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < gather->snapshot.row_count && gather->rows[low].id == worker_id
               ? &gather->rows[low]
               : NULL;
}

const struct worker_row *gather_find(const struct gather *gather, int64_t worker_id)
{
    return find(gather, worker_id);
}

void gather_known(struct gather *gather, bool is_known)
{
    for (uint32_t i = 0; i < gather->snapshot.row_count; i++)
        gather->rows[i].leader_knows = is_known;
}

static void add_lost(struct gather *gather, const struct store_entry *entry)
{
    uint32_t count = gather->snapshot.lost_count;

    if (count >= RECONCILE_LOST_MAX)
        return;
    gather->lost = grown(gather->lost, count, &gather->lost_room, sizeof(*gather->lost));
    gather->lost[count] = (struct worker_row){
        .type = WORKER_OTHER, .host = keep(gather, entry->host), .port = entry->port};
    gather->snapshot.lost_count++;
}

// What the leader has inserted itself it knows; what others have touched since it may not.
void gather_entry(struct gather *gather, const struct store_entry *entry)
{
    struct worker_row *row = find(gather, entry->worker_id);

    if (row)
        row->leader_knows = entry->is_own;
    else if (entry->is_delete && !entry->is_own)
        add_lost(gather, entry);
}

// --- pods ---

// What a pod may register, by its label of the operator and of the chart.
static uint8_t types_of(const char *component)
{
    static const struct {
        const char *name;
        uint8_t types;
    } components[] = {
        {"compute", 1U << WORKER_COMPUTE},
        {"frontend", 1U << WORKER_FRONTEND},
        {"compactor", 1U << WORKER_COMPACTOR},
        {"standalone", 1U << WORKER_COMPUTE | 1U << WORKER_FRONTEND | 1U << WORKER_COMPACTOR},
    };

    for (size_t i = 0; component && i < sizeof(components) / sizeof(components[0]); i++)
        if (strcmp(components[i].name, component) == 0)
            return components[i].types;
    return 0;
}

int gather_pod_of(const struct cJSON *object, const char *release, struct worker_pod *ret,
                  struct err *err)
{
    struct k8s_pod pod;
    struct k8s_pod_life life;
    const char *name = NULL;

    if (k8s_pod_parse(object, &pod, err) < 0)
        return -1;
    if (k8s_pod_life_parse(&pod, &life, err) < 0)
        return err_wrap(err, "pod %s", pod.name);
    name = k8s_pod_label(&pod, LABEL_RELEASE);
    *ret = (struct worker_pod){
        .uid = pod.uid,
        .name = pod.name,
        .name_space = pod.name_space,
        .hostname = life.hostname,
        .subdomain = life.subdomain,
        .owner = pod_owner_of(life.owner_kind, life.owner_api),
        .ip_count = life.ip_count,
        .port_count = life.port_count,
        .types = types_of(k8s_pod_label(&pod, LABEL_COMPONENT)),
        .is_foreign = release[0] && name && strcmp(release, name) != 0,
        .host_network = life.host_network,
        .is_terminal = life.is_terminal,
        .is_deleting = pod.is_deleting,
        .has_started = life.has_started,
        .is_running = life.is_running,
        .is_unreachable = life.is_unreachable,
    };
    for (unsigned i = 0; i < life.ip_count && i < WORKER_POD_IPS; i++)
        ret->ips[i] = life.ips[i];
    for (unsigned i = 0; i < life.port_count && i < WORKER_POD_PORTS; i++)
        ret->ports[i] = life.ports[i];
    return 0;
}

int gather_pod(struct gather *gather, const struct cJSON *object, const char *release,
               struct err *err)
{
    struct worker_pod pod = {0};
    uint32_t count = gather->snapshot.pod_count;

    if (count >= GATHER_PODS_MAX)
        return err_set(err, ERR_INVALID, 0, "more than %u pods", GATHER_PODS_MAX);
    if (gather_pod_of(object, release, &pod, err) < 0)
        return -1;
    pod.uid = keep(gather, pod.uid);
    pod.name = keep(gather, pod.name);
    pod.name_space = keep(gather, pod.name_space);
    pod.hostname = keep(gather, pod.hostname);
    pod.subdomain = keep(gather, pod.subdomain);
    for (unsigned i = 0; i < pod.ip_count; i++)
        pod.ips[i] = keep(gather, pod.ips[i]);
    gather->pods = grown(gather->pods, count, &gather->pod_room, sizeof(pod));
    gather->pods[count] = pod;
    gather->snapshot.pod_count++;
    return 0;
}

// --- slices and sets ---

static void add_endpoint(struct gather *gather, const struct k8s_endpoint *endpoint,
                         unsigned address)
{
    uint32_t count = gather->snapshot.endpoint_count;

    gather->endpoints =
        grown(gather->endpoints, count, &gather->endpoint_room, sizeof(struct worker_endpoint));
    gather->endpoints[count] = (struct worker_endpoint){
        .address = keep(gather, endpoint->addresses[address]),
        .hostname = keep(gather, endpoint->hostname),
        .target_uid = keep(gather, endpoint->target_uid),
        .target_name = keep(gather, endpoint->target_name),
    };
    gather->snapshot.endpoint_count++;
}

int gather_slice(struct gather *gather, const struct cJSON *object, struct err *err)
{
    struct k8s_slice slice;
    struct k8s_endpoint endpoint;
    int more = 0;

    if (k8s_slice_parse(object, &slice, err) < 0)
        return -1;
    while ((more = k8s_slice_next(&slice, &endpoint, err)) > 0)
        for (unsigned i = 0; i < endpoint.address_count; i++)
            add_endpoint(gather, &endpoint, i);
    return more < 0 ? err_wrap(err, "endpointslice %s", slice.name) : 0;
}

int gather_set(struct gather *gather, const struct cJSON *object, bool is_kruise,
               struct err *err)
{
    uint32_t count = gather->snapshot.set_count;
    struct k8s_set set;

    if (k8s_set_parse(object, is_kruise ? K8S_SET_KRUISE_STATEFULSET : K8S_SET_STATEFULSET,
                      &set, err) < 0)
        return -1;
    gather->sets = grown(gather->sets, count, &gather->set_room, sizeof(struct worker_set));
    gather->sets[count] = (struct worker_set){.name = keep(gather, set.name),
                                              .is_kruise = is_kruise,
                                              .replicas = set.replicas,
                                              .start = set.start,
                                              .reserved = set.reserved};
    gather->snapshot.set_count++;
    return 0;
}
