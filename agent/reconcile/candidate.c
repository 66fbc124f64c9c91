// SPDX-License-Identifier: Apache-2.0
// What the pod of a row has come to, and what contradicts its death.
#include <string.h>

#include "agent/reconcile/internal.h"

// Of two rows for one port of one pod at most so many are compared with each other.
#define DUPLICATES_MAX 64

// --- the pod whose row it was ---

static enum worker_reason unproven(const struct pass *pass, const struct pod_memory *pod,
                                   const struct holder *holder)
{
    bool is_listed = pod->pass == pass->memory->pass;

    if (is_listed && holder->other >= 0)
        return holder->other_reason;
    if (pod->flags & POD_UNREACHABLE)
        return REASON_NODE_UNREACHABLE;
    if (pod->flags & POD_TERMINAL)
        return REASON_ENDED_RUNNING;
    if (is_listed)
        return REASON_ADDRESS_MOVED;
    return pod->flags & POD_WENT ? REASON_FORCE_DELETED : REASON_END_UNSEEN;
}

// --- replicas ---

static bool set_fills(const struct worker_set *set, int32_t ordinal)
{
    int64_t end = (int64_t)set->start + set->replicas + set->reserved;

    return ordinal >= set->start && ordinal < end;
}

static bool is_expected(const struct pass *pass, const struct address *address, size_t set_len,
                        int32_t ordinal)
{
    uint64_t key = key_end(key_text(key_begin(KEY_SET), address->name, set_len));
    struct cursor cursor = index_seek(&pass->space.endpoints, key);
    int32_t index = -1;

    while ((index = index_next(&pass->space.endpoints, &cursor)) >= 0) {
        const struct worker_set *set = &pass->snapshot->sets[index];

        if (strlen(set->name) == set_len && memcmp(set->name, address->name, set_len) == 0 &&
            set_fills(set, ordinal))
            return true;
    }
    return false;
}

// A name that its StatefulSet fills again belongs to the pod that is to come.
static enum worker_reason check_replicas(const struct pass *pass, const struct pod_memory *pod,
                                         const struct address *address,
                                         enum worker_reason proof)
{
    bool is_set = pod->flags & (POD_OF_SET | POD_OF_KRUISE);
    bool is_known = pod->flags & POD_OF_KRUISE ? pass->snapshot->kruise_sets_complete
                                               : pass->snapshot->sets_complete;
    size_t set_len = 0;
    int32_t ordinal = 0;

    if (address->kind != ADDRESS_NAME)
        return proof;
    if (is_set && !is_known)
        return REASON_REPLICAS_UNKNOWN;
    if (!address_ordinal(address, &set_len, &ordinal))
        return is_set ? REASON_REPLICAS_UNKNOWN : proof;
    return is_expected(pass, address, set_len, ordinal) ? REASON_REPLICA_EXPECTED : proof;
}

// --- slices ---

// An endpoint speaks for somebody who is not in the list of pods. Pods that are there were
// judged as such, and those that ended are dead whatever a slice says.
static bool speaks_for_unlisted(const struct pass *pass, const struct worker_endpoint *endpoint)
{
    int32_t slot = -1;

    if (!endpoint->target_uid)
        return true;
    slot = memory_find_pod(pass->memory, endpoint->target_uid);
    if (slot < 0)
        return true;
    return !(pass->memory->pods[slot].flags & POD_ENDED) &&
           pass->memory->pods[slot].pass != pass->memory->pass;
}

static bool key_disagrees(const struct pass *pass, uint64_t key)
{
    struct cursor cursor = index_seek(&pass->space.endpoints, key);
    int32_t index = -1;

    while ((index = index_next(&pass->space.endpoints, &cursor)) >= 0) {
        if (speaks_for_unlisted(pass, &pass->snapshot->endpoints[index]))
            return true;
    }
    return false;
}

static bool slices_disagree(const struct pass *pass, const struct address *address)
{
    uint64_t sum = key_begin(KEY_ENDPOINT_NAME);
    size_t from = 0;

    if (address->kind == ADDRESS_IP)
        return key_disagrees(pass, key_ip(address->ip, 0));
    while (from < address->name_len) {
        size_t len = strcspn(address->name + from, ".");

        sum = key_text(sum, address->name + from - (from > 0), len + (from > 0));
        if (key_disagrees(pass, key_end(sum)))
            return true;
        from += len + 1;
    }
    return false;
}

enum worker_reason candidate_reason(const struct pass *pass, const struct row_memory *row,
                                    const struct address *address, const struct holder *holder)
{
    const struct pod_memory *pod = NULL;
    enum worker_reason proof = REASON_POD_GONE;

    if (row->pod < 0)
        return holder->other >= 0 ? holder->other_reason : REASON_NEVER_SEEN;
    pod = &pass->memory->pods[row->pod];
    if (!(pod->flags & POD_ENDED))
        return unproven(pass, pod, holder);
    if (row->flags & ROW_HAUNTED)
        return REASON_END_UNSEEN;
    if (holder->other >= 0)
        return holder->other_reason;
    if (pod->pass == pass->memory->pass)
        proof = REASON_POD_ENDED;
    proof = check_replicas(pass, pod, address, proof);
    if (is_proof(proof) && slices_disagree(pass, address))
        return REASON_SLICE_DISAGREES;
    return proof;
}

// --- duplicates ---

struct chain {
    int32_t rows[DUPLICATES_MAX];
    unsigned count;
    struct instant pod_seen; // when the pod was first seen
};

static const struct row_memory *memory_of(const struct pass *pass, int32_t row)
{
    return &pass->memory->rows[pass->space.row_memory[row]];
}

static bool is_twin(const struct pass *pass, int32_t a, int32_t b)
{
    const struct worker_row *rows = pass->snapshot->rows;

    return a != b && rows[a].type == rows[b].type && rows[a].port == rows[b].port;
}

// It was registered under our eyes while this very pod lived.
static bool is_new(const struct pass *pass, const struct chain *chain, int32_t row)
{
    return instant_before(chain->pod_seen, memory_of(pass, row)->first_seen) &&
           pass->snapshot->rows[row].status == WORKER_RUNNING;
}

// Nobody has written it since before this pod was there.
static bool is_old(const struct pass *pass, const struct chain *chain, int32_t row)
{
    return instant_before(memory_of(pass, row)->changed_at, chain->pod_seen);
}

// One port is held by one process, and a pod registers under one name all its life: if exactly
// one row of several came during that life and none of the others was written in it, that one
// is the pod's and the others are of its predecessors.
static void judge_twins(const struct pass *pass, const struct chain *chain, int32_t row)
{
    struct worker_judgment *judgment = &pass->plan->judgments[row];
    unsigned twins = 0;
    unsigned news = is_new(pass, chain, row);
    unsigned olds = is_old(pass, chain, row);

    for (unsigned i = 0; i < chain->count; i++) {
        if (!is_twin(pass, row, chain->rows[i]))
            continue;
        twins++;
        news += is_new(pass, chain, chain->rows[i]);
        olds += is_old(pass, chain, chain->rows[i]);
    }
    if (twins == 0)
        return;
    if (news == 1 && olds == twins && is_new(pass, chain, row))
        return;
    if (news == 1 && olds == twins && !(memory_of(pass, row)->flags & ROW_HAUNTED)) {
        judgment->reason = REASON_SUPERSEDED;
        return;
    }
    judgment->verdict = VERDICT_UNKNOWN;
    judgment->reason = REASON_DUPLICATE;
}

void candidate_chain(struct pass *pass, uint32_t pod)
{
    struct chain chain = {0};
    int32_t row = pass->space.pod_rows[pod];

    for (; row >= 0 && chain.count < DUPLICATES_MAX; row = pass->space.next_row[row])
        chain.rows[chain.count++] = row;
    if (chain.count < 2 || pass->space.pod_memory[pod] < 0)
        return;
    // More than one can look through: none of them is judged.
    if (row >= 0) {
        for (row = pass->space.pod_rows[pod]; row >= 0; row = pass->space.next_row[row]) {
            pass->plan->judgments[row].verdict = VERDICT_UNKNOWN;
            pass->plan->judgments[row].reason = REASON_DUPLICATE;
        }
        return;
    }
    chain.pod_seen = pass->memory->pods[pass->space.pod_memory[pod]].first_seen;
    for (unsigned i = 0; i < chain.count; i++)
        judge_twins(pass, &chain, chain.rows[i]);
}
