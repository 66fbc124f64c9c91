// SPDX-License-Identifier: Apache-2.0
// Finding pods, endpoints and sets by what a row says: hash tables without links, made anew for
// each pass. A key only leads to candidates, which are then compared.
#include <string.h>

#include "agent/reconcile/internal.h"

// Keys of a pod: its name, its hostname, its addresses; with the host's network one for each
// port as well, of which most have few. What does not fit makes the pass incomplete.
#define KEYS_PER_POD      8
#define KEYS_PER_ENDPOINT 3

uint64_t key_begin(enum key_kind kind)
{
    uint8_t byte = (uint8_t)kind;

    return hash_bytes(0, &byte, 1);
}

uint64_t key_text(uint64_t sum, const char *text, size_t len)
{
    return hash_bytes(sum, text, len);
}

uint64_t key_end(uint64_t sum)
{
    sum = (sum ^ (sum >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    sum ^= sum >> 29;
    return sum ? sum : 1;
}

uint64_t key_ip(const uint8_t *ip, int32_t port)
{
    uint64_t sum = hash_whole(key_begin(KEY_IP), ip, 16);

    return key_end(hash_whole(sum, &port, sizeof(port)));
}

static uint64_t key_name(enum key_kind kind, const char *text)
{
    return key_end(key_text(key_begin(kind), text, strlen(text)));
}

static uint32_t slots_for(size_t keys)
{
    uint32_t slots = 64;

    while (slots / 4 * 3 < keys && slots < (UINT32_C(1) << 30))
        slots *= 2;
    return slots;
}

// --- the block ---

static void *carve(char **at, size_t bytes)
{
    void *here = *at;

    *at += (bytes + 7) & ~(size_t)7;
    return here;
}

static size_t lay_out(struct space *space, uint32_t rows, uint32_t pods, uint32_t rest,
                      char *block)
{
    char *at = block;

    space->pods.count = slots_for((size_t)pods * KEYS_PER_POD);
    space->pods.slots = carve(&at, space->pods.count * sizeof(struct index_slot));
    space->endpoints.count = slots_for((size_t)rest * KEYS_PER_ENDPOINT);
    space->endpoints.slots = carve(&at, space->endpoints.count * sizeof(struct index_slot));
    space->row_memory = carve(&at, rows * sizeof(int32_t));
    space->next_row = carve(&at, rows * sizeof(int32_t));
    space->pod_memory = carve(&at, pods * sizeof(int32_t));
    space->pod_rows = carve(&at, pods * sizeof(int32_t));
    return (size_t)(at - block);
}

size_t space_bytes(uint32_t rows, uint32_t pods, uint32_t endpoints)
{
    static char base[8];
    struct space space = {0};

    // Only differences are of interest: nothing is touched.
    return lay_out(&space, rows, pods, endpoints, base);
}

size_t reconcile_scratch_bytes(uint32_t rows, uint32_t pods, uint32_t endpoints)
{
    return space_bytes(rows, pods, endpoints);
}

bool space_init(struct space *space, const struct worker_snapshot *snapshot, void *block,
                size_t bytes)
{
    uint32_t rest = snapshot->endpoint_count + snapshot->set_count;

    if (space_bytes(snapshot->row_count, snapshot->pod_count, rest) > bytes)
        return false;
    *space = (struct space){0};
    (void)lay_out(space, snapshot->row_count, snapshot->pod_count, rest, block);
    memset(space->pods.slots, 0, space->pods.count * sizeof(struct index_slot));
    memset(space->endpoints.slots, 0, space->endpoints.count * sizeof(struct index_slot));
    memset(space->row_memory, 0xff, snapshot->row_count * sizeof(int32_t));
    memset(space->next_row, 0xff, snapshot->row_count * sizeof(int32_t));
    memset(space->pod_memory, 0xff, snapshot->pod_count * sizeof(int32_t));
    memset(space->pod_rows, 0xff, snapshot->pod_count * sizeof(int32_t));
    return true;
}

// --- the tables ---

static void put(struct index *index, uint64_t key, uint32_t value)
{
    uint32_t at = (uint32_t)key & (index->count - 1);

    if (index->used >= index->count / 8 * 7) {
        index->is_full = true;
        return;
    }
    while (index->slots[at].key != 0) {
        if (index->slots[at].key == key && index->slots[at].value == (int32_t)value)
            return; // under its name and its hostname
        at = (at + 1) & (index->count - 1);
    }
    index->slots[at] = (struct index_slot){.key = key, .value = (int32_t)value};
    index->used++;
}

struct cursor index_seek(const struct index *index, uint64_t key)
{
    return (struct cursor){.key = key, .at = (uint32_t)key & (index->count - 1)};
}

int32_t index_next(const struct index *index, struct cursor *cursor)
{
    while (index->slots[cursor->at].key != 0) {
        const struct index_slot *slot = &index->slots[cursor->at];

        cursor->at = (cursor->at + 1) & (index->count - 1);
        if (slot->key == cursor->key)
            return slot->value;
    }
    return -1;
}

// Pods of one host share its address: a port tells them apart, where they say one.
static void put_ip(struct index *index, const struct worker_pod *pod, const char *text,
                   uint32_t value)
{
    struct address address = address_parse(text);

    if (address.kind != ADDRESS_IP)
        return;
    if (!pod->host_network || pod->port_count == 0) {
        put(index, key_ip(address.ip, 0), value);
        return;
    }
    for (unsigned i = 0; i < pod->port_count; i++)
        put(index, key_ip(address.ip, pod->ports[i]), value);
}

void index_pod(struct index *index, const struct worker_snapshot *snapshot, uint32_t at)
{
    const struct worker_pod *pod = &snapshot->pods[at];

    put(index, key_name(KEY_POD_NAME, pod->name), at);
    if (pod->hostname)
        put(index, key_name(KEY_POD_NAME, pod->hostname), at);
    for (unsigned i = 0; i < pod->ip_count; i++)
        put_ip(index, pod, pod->ips[i], at);
}

static void put_endpoint(struct index *index, const struct worker_endpoint *endpoint,
                         uint32_t value)
{
    struct address address = address_parse(endpoint->address);

    if (address.kind == ADDRESS_IP)
        put(index, key_ip(address.ip, 0), value);
    // An endpoint may be a name (addressType FQDN).
    if (address.kind == ADDRESS_NAME)
        put(index, key_name(KEY_ENDPOINT_NAME, address.name), value);
    if (endpoint->hostname)
        put(index, key_name(KEY_ENDPOINT_NAME, endpoint->hostname), value);
    if (endpoint->target_name)
        put(index, key_name(KEY_ENDPOINT_NAME, endpoint->target_name), value);
}

void index_rest(struct index *index, const struct worker_snapshot *snapshot, uint32_t at)
{
    if (at < snapshot->endpoint_count) {
        put_endpoint(index, &snapshot->endpoints[at], at);
        return;
    }
    at -= snapshot->endpoint_count;
    put(index, key_name(KEY_SET, snapshot->sets[at].name), at);
}
