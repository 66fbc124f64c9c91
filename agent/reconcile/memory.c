// SPDX-License-Identifier: Apache-2.0
// What is remembered: two tables of entries that never move, chained by hash, so that a row may
// point at its pod by number.
#include <string.h>

#include "agent/reconcile/internal.h"

#define FNV_BASIS UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)
// Odd, with as many ones as zeros.
#define HASH_FACTOR UINT64_C(0x9e3779b97f4a7c15)

static uint32_t slots_for(uint32_t count)
{
    uint32_t slots = 16;

    while (slots < count && slots < (UINT32_C(1) << 30))
        slots *= 2;
    return slots;
}

uint64_t hash_bytes(uint64_t sum, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;

    if (sum == 0)
        sum = FNV_BASIS;
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ at[i]) * FNV_PRIME;
    return sum;
}

uint64_t hash_whole(uint64_t sum, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    uint64_t word = len;

    sum = sum ? sum : FNV_BASIS;
    sum = (sum ^ word) * HASH_FACTOR;
    for (; len >= sizeof(word); len -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        sum = (sum ^ word) * HASH_FACTOR;
        sum ^= sum >> 32;
    }
    word = 0;
    memcpy(&word, at, len);
    sum = (sum ^ word) * HASH_FACTOR;
    return sum ^ sum >> 32;
}

// The low bits choose the chain, and FNV's are its worst.
static uint32_t chain_of(uint64_t key, uint32_t slots)
{
    return (uint32_t)((key ^ (key >> 32)) * UINT64_C(0x9e3779b97f4a7c15) >> 34) & (slots - 1);
}

size_t reconcile_memory_bytes(uint32_t rows, uint32_t pods)
{
    return rows * sizeof(struct row_memory) + pods * sizeof(struct pod_memory) +
           ((size_t)slots_for(rows) + slots_for(pods)) * sizeof(int32_t);
}

void reconcile_memory_init(struct reconcile_memory *memory, void *block, uint32_t rows,
                           uint32_t pods)
{
    *memory = (struct reconcile_memory){.rows = block,
                                        .row_capacity = rows,
                                        .pod_capacity = pods,
                                        .row_slots = slots_for(rows),
                                        .pod_slots = slots_for(pods),
                                        .row_free = rows ? 0 : -1,
                                        .pod_free = pods ? 0 : -1};
    memory->pods = (struct pod_memory *)(void *)(memory->rows + rows);
    memory->row_heads = (int32_t *)(void *)(memory->pods + pods);
    memory->pod_heads = memory->row_heads + memory->row_slots;
    memset(memory->row_heads, 0xff, memory->row_slots * sizeof(int32_t));
    memset(memory->pod_heads, 0xff, memory->pod_slots * sizeof(int32_t));
    for (uint32_t i = 0; i < rows; i++)
        memory->rows[i] = (struct row_memory){.next = i + 1 < rows ? (int32_t)i + 1 : -1};
    for (uint32_t i = 0; i < pods; i++)
        memory->pods[i] = (struct pod_memory){.next = i + 1 < pods ? (int32_t)i + 1 : -1};
}

bool reconcile_memory_fits(const struct reconcile_memory *memory, uint32_t rows, uint32_t pods)
{
    // Pods that are gone stay for as long as a row needs them: as many again.
    return memory->row_capacity >= rows && memory->pod_capacity / 2 >= pods;
}

// --- rows ---

int32_t memory_find_row(const struct reconcile_memory *memory, int32_t id)
{
    int32_t at = memory->row_heads[chain_of((uint32_t)id, memory->row_slots)];

    while (at >= 0 && memory->rows[at].id != id)
        at = memory->rows[at].next;
    return at;
}

static void link_row(struct reconcile_memory *memory, int32_t at)
{
    int32_t *head =
        &memory->row_heads[chain_of((uint32_t)memory->rows[at].id, memory->row_slots)];

    memory->rows[at].next = *head;
    *head = at;
}

int32_t memory_add_row(struct reconcile_memory *memory, int32_t id)
{
    int32_t at = memory->row_free;

    if (at < 0)
        return -1;
    memory->row_free = memory->rows[at].next;
    memory->row_count++;
    memory->rows[at] = (struct row_memory){.id = id, .pod = -1};
    link_row(memory, at);
    return at;
}

// --- pods ---

int32_t memory_find_pod(const struct reconcile_memory *memory, const char *uid)
{
    uint64_t key = hash_whole(0, uid, strlen(uid));
    int32_t at = memory->pod_heads[chain_of(key, memory->pod_slots)];

    while (at >= 0 && (memory->pods[at].key != key ||
                       strncmp(memory->pods[at].uid, uid, WORKER_UID_SIZE - 1) != 0))
        at = memory->pods[at].next;
    return at;
}

static void link_pod(struct reconcile_memory *memory, int32_t at)
{
    int32_t *head = &memory->pod_heads[chain_of(memory->pods[at].key, memory->pod_slots)];

    memory->pods[at].next = *head;
    *head = at;
}

static int32_t add_pod(struct reconcile_memory *memory, const char *uid, struct instant at)
{
    size_t len = strnlen(uid, WORKER_UID_SIZE - 1);
    int32_t slot = memory->pod_free;

    if (slot < 0)
        return -1;
    memory->pod_free = memory->pods[slot].next;
    memory->pod_count++;
    memory->pods[slot] = (struct pod_memory){
        .key = hash_whole(0, uid, strlen(uid)), .first_seen = at, .pass = memory->pass};
    memcpy(memory->pods[slot].uid, uid, len);
    link_pod(memory, slot);
    return slot;
}

bool memory_is_ended(const struct worker_pod *pod, const struct pod_memory *known)
{
    bool has_started = pod->has_started || (known && (known->flags & POD_STARTED));

    if (known && (known->flags & POD_ENDED))
        return true;
    // Of one that never started nobody can say that its kubelet has seen it end.
    return pod->is_terminal && !pod->is_running && has_started;
}

static uint16_t flags_of(const struct worker_pod *pod)
{
    uint16_t flags = 0;

    flags |= pod->is_terminal ? POD_TERMINAL : 0;
    flags |= pod->has_started ? POD_STARTED : 0;
    flags |= pod->is_unreachable ? POD_UNREACHABLE : 0;
    flags |= pod->owner == POD_OWNER_STATEFULSET ? POD_OF_SET : 0;
    flags |= pod->owner == POD_OWNER_KRUISE_STATEFUL ? POD_OF_KRUISE : 0;
    return flags;
}

// An end is final, whatever comes later and late.
static void update_pod(struct pod_memory *known, const struct worker_pod *pod)
{
    uint16_t keep = known->flags & (POD_ENDED | POD_STARTED | POD_WENT | POD_REFERENCED);

    if (memory_is_ended(pod, known))
        keep |= POD_ENDED;
    known->flags = keep | flags_of(pod);
}

int32_t memory_note_pod(struct reconcile_memory *memory, const struct worker_pod *pod,
                        struct instant at)
{
    int32_t slot = memory_find_pod(memory, pod->uid);

    if (slot < 0)
        slot = add_pod(memory, pod->uid, at);
    if (slot >= 0)
        update_pod(&memory->pods[slot], pod);
    return slot;
}

void reconcile_saw_pod(struct reconcile_memory *memory, const struct worker_pod *pod,
                       bool is_deleted)
{
    int32_t slot = pod->uid ? memory_find_pod(memory, pod->uid) : -1;

    // One that no snapshot had is no row's pod: nothing depends on its end.
    if (slot < 0)
        return;
    update_pod(&memory->pods[slot], pod);
    if (is_deleted)
        memory->pods[slot].flags |= POD_WENT;
}

const char *reconcile_pod_uid(const struct reconcile_memory *memory, int32_t known_pod)
{
    return known_pod < 0 ? "" : memory->pods[known_pod].uid;
}

// --- forgetting ---

void memory_sweep_rows(struct reconcile_memory *memory, uint32_t slot)
{
    int32_t *at = &memory->row_heads[slot];

    while (*at >= 0) {
        struct row_memory *row = &memory->rows[*at];
        int32_t freed = *at;

        if (row->pass == memory->pass) {
            if (row->pod >= 0)
                memory->pods[row->pod].flags |= POD_REFERENCED;
            at = &row->next;
            continue;
        }
        *at = row->next;
        row->next = memory->row_free;
        memory->row_free = freed;
        memory->row_count--;
    }
}

void memory_sweep_pods(struct reconcile_memory *memory, uint32_t slot)
{
    int32_t *at = &memory->pod_heads[slot];

    while (*at >= 0) {
        struct pod_memory *pod = &memory->pods[*at];
        int32_t freed = *at;

        if (pod->pass == memory->pass || (pod->flags & POD_REFERENCED)) {
            pod->flags &= (uint16_t)~POD_REFERENCED;
            at = &pod->next;
            continue;
        }
        *at = pod->next;
        pod->next = memory->pod_free;
        memory->pod_free = freed;
        memory->pod_count--;
    }
}

void memory_restart(struct reconcile_memory *memory)
{
    for (uint32_t slot = 0; slot < memory->row_slots; slot++) {
        for (int32_t at = memory->row_heads[slot]; at >= 0; at = memory->rows[at].next) {
            memory->rows[at].gone_since.ns = 0;
            memory->rows[at].flags &= (uint8_t)~ROW_APPROVED;
        }
    }
    memory->last_taken.ns = 0;
}

void reconcile_memory_move(struct reconcile_memory *to, const struct reconcile_memory *from)
{
    struct reconcile_memory made = *to;

    // Entries keep their numbers; what is new joins the free ones.
    memcpy(to->rows, from->rows, from->row_capacity * sizeof(*to->rows));
    memcpy(to->pods, from->pods, from->pod_capacity * sizeof(*to->pods));
    *to = *from;
    to->rows = made.rows;
    to->pods = made.pods;
    to->row_heads = made.row_heads;
    to->pod_heads = made.pod_heads;
    to->row_capacity = made.row_capacity;
    to->pod_capacity = made.pod_capacity;
    to->row_slots = made.row_slots;
    to->pod_slots = made.pod_slots;
    for (uint32_t slot = 0; slot < from->row_slots; slot++) {
        for (int32_t at = from->row_heads[slot]; at >= 0; at = from->rows[at].next)
            link_row(to, at);
    }
    for (uint32_t slot = 0; slot < from->pod_slots; slot++) {
        for (int32_t at = from->pod_heads[slot]; at >= 0; at = from->pods[at].next)
            link_pod(to, at);
    }
    for (uint32_t i = from->row_capacity; i < to->row_capacity; i++) {
        to->rows[i].next = to->row_free;
        to->row_free = (int32_t)i;
    }
    for (uint32_t i = from->pod_capacity; i < to->pod_capacity; i++) {
        to->pods[i].next = to->pod_free;
        to->pod_free = (int32_t)i;
    }
}
