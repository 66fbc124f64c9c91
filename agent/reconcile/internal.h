// SPDX-License-Identifier: Apache-2.0
#pragma once
// internal: what the parts of the verdict share. memory.c remembers, index.c finds by address,
// judge.c says what a row's address is today, candidate.c what the row's own pod has come to,
// plan.c confirms, brakes and plans, decide.c judges one row, run.c is the order of it all.

#include "agent/reconcile/address.h"
#include "agent/reconcile/verdict.h"

// --- memory.c ---

enum {
    ROW_BURIED = 1,   // a tombstone of ours lies there, of this term
    ROW_APPROVED = 2, // the brake let it pass
    ROW_HAUNTED = 4,  // somebody whose end nobody saw has had it: never again proven dead
    ROW_TWICE = 8,    // in this pass
    // Written since it was last held against a whole list of pods: a round without one must
    // not swallow it.
    ROW_CHANGED = 16,
};

struct row_memory {
    uint64_t content;          // hash of all that the row says, and of its version
    uint64_t endpoint;         // … of its host, port and type
    struct instant first_seen; // taken_at of the snapshot
    struct instant changed_at;
    struct instant gone_since; // ns 0: not proven in the snapshot before
    int32_t id;
    int32_t next;
    int32_t pod; // in memory.pods; -1: none was seen alive at its address
    uint32_t pass;
    uint8_t flags;
    uint8_t proof; // enum worker_reason, while gone_since is set
};

enum {
    POD_ENDED = 1,        // by its kubelet's word; final
    POD_TERMINAL = 2,     // by whoever's
    POD_STARTED = 4,      // at some time
    POD_UNREACHABLE = 8,  // when last seen
    POD_WENT = 16,        // a DELETED event was seen
    POD_OF_SET = 32,      // of an apps/v1 StatefulSet
    POD_OF_KRUISE = 64,   // of a kruise StatefulSet
    POD_REFERENCED = 128, // by a row, in this pass
};

struct pod_memory {
    uint64_t key;
    struct instant first_seen;
    int32_t next;
    uint32_t pass; // in which it was listed last; 0 while the entry is free
    int32_t index; // into snapshot.pods, in that pass
    uint16_t flags;
    char uid[WORKER_UID_SIZE];
};

// Never fails for what is there; a new one fails (-1) when memory is full.
int32_t memory_find_row(const struct reconcile_memory *memory, int32_t id);
int32_t memory_add_row(struct reconcile_memory *memory, int32_t id);
int32_t memory_find_pod(const struct reconcile_memory *memory, const char *uid);
int32_t memory_note_pod(struct reconcile_memory *memory, const struct worker_pod *pod,
                        struct instant at);
// `known`: what is remembered of it; NULL: nothing.
bool memory_is_ended(const struct worker_pod *pod, const struct pod_memory *known);
// Forget, of one slot, rows that this pass did not see, and pods that it did not list and no
// row needs. All rows first: they say which pods are still needed.
void memory_sweep_rows(struct reconcile_memory *memory, uint32_t slot);
void memory_sweep_pods(struct reconcile_memory *memory, uint32_t slot);
// No proof of before counts any more.
void memory_restart(struct reconcile_memory *memory);
// Of pieces, whatever their borders.
uint64_t hash_bytes(uint64_t sum, const void *bytes, size_t len);
// Of one piece, a word at a time: several times as fast, and it is most of what a pass does.
uint64_t hash_whole(uint64_t sum, const void *bytes, size_t len);

// --- index.c ---

struct index_slot {
    uint64_t key; // 0: free
    int32_t value;
};

struct index {
    struct index_slot *slots;
    uint32_t count; // of slots, a power of two
    uint32_t used;
    bool is_full; // something was left out
};

struct cursor {
    uint64_t key;
    uint32_t at;
};

// The scratch of a pass, carved out of the caller's block.
struct space {
    struct index pods;
    struct index endpoints; // and sets
    int32_t *row_memory;    // of each row; -1: none
    int32_t *pod_memory;    // of each listed pod; -1: none
    int32_t *pod_rows;      // head of the rows that a pod has; -1: none
    int32_t *next_row;
};

size_t space_bytes(uint32_t rows, uint32_t pods, uint32_t endpoints);
// False: the block is too small for the snapshot.
bool space_init(struct space *space, const struct worker_snapshot *snapshot, void *block,
                size_t bytes);
void index_pod(struct index *index, const struct worker_snapshot *snapshot, uint32_t at);
// Endpoints, then sets.
void index_rest(struct index *index, const struct worker_snapshot *snapshot, uint32_t at);
struct cursor index_seek(const struct index *index, uint64_t key);
int32_t index_next(const struct index *index, struct cursor *cursor); // -1: no more

enum key_kind {
    KEY_POD_NAME = 1,
    KEY_IP,
    KEY_ENDPOINT_NAME,
    KEY_SET,
};
uint64_t key_begin(enum key_kind kind);
uint64_t key_text(uint64_t sum, const char *text, size_t len);
uint64_t key_ip(const uint8_t *ip, int32_t port); // port 0: of any
uint64_t key_end(uint64_t sum);                   // never 0

// --- one pass ---

enum pass_phase {
    PHASE_NOTE_ROWS = 0,
    PHASE_NOTE_PODS,
    PHASE_INDEX_PODS,
    PHASE_FIND_ENDED,
    PHASE_INDEX_REST,
    PHASE_JUDGE,
    PHASE_DUPLICATES,
    PHASE_PLAN,
    PHASE_VANISHED,
    PHASE_SWEEP_ROWS,
    PHASE_SWEEP_PODS,
    PHASE_DONE,
};

struct pass {
    struct reconcile_config config;
    struct reconcile_facts facts;
    const struct worker_snapshot *snapshot; // of facts
    struct reconcile_memory *memory;
    struct reconcile_plan *plan; // in which it lives
    struct space space;
    enum pass_phase phase;
    uint32_t at;      // in the phase
    bool is_no_list;  // of pods
    bool has_ended;   // some row's pod has
    bool is_given_up; // nobody is judged
};

// --- decide.c ---

void decide_note_row(struct pass *pass, uint32_t index);
void decide_note_pod(struct pass *pass, uint32_t index);
void decide_row(struct pass *pass, uint32_t index);
void decide_orphans(struct pass *pass); // after all rows

// --- judge.c ---

// Who has a row's address today.
struct holder {
    int32_t pod; // the worker that fits in everything; -1: none
    unsigned count;
    int32_t other; // one that keeps the row from being dead, without being its worker; -1
    enum worker_reason other_reason;
};
struct holder judge_holder(const struct pass *pass, const struct worker_row *row,
                           const struct address *address);
// The verdict if there is a holder.
enum worker_verdict judge_held(const struct worker_pod *pod, enum worker_reason *ret_reason);

// --- candidate.c ---

// What the row's own pod has come to. A reason of GONE: proven, not confirmed.
enum worker_reason candidate_reason(const struct pass *pass, const struct row_memory *row,
                                    const struct address *address, const struct holder *holder);
// Rows of which the pod has several: the newest is true, if it can be told.
void candidate_chain(struct pass *pass, uint32_t pod);

// --- plan.c ---

static inline bool is_proof(enum worker_reason reason)
{
    return reason == REASON_POD_ENDED || reason == REASON_POD_GONE ||
           reason == REASON_SUPERSEDED;
}
// Confirmation and counts, after every row has its reason; then, for all, brake and actions.
void plan_row(struct pass *pass, uint32_t index);
void plan_actions(const struct pass *pass);
// Tombstones of rows that are there no more, of one slot, before they are forgotten.
void plan_vanished(struct pass *pass, uint32_t slot);
