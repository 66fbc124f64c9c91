// SPDX-License-Identifier: Apache-2.0
#pragma once
// worker: a second world beside sim.h's, of the rows of worker: metas with memory, checker and
// transactions, compute nodes that register and beat, the guard's SQL at statement level, pods
// and what a list shows of them, and the real reconcile_decide() and converge_decide(). Nothing
// of the fence is in here: leaders freeze, go on as zombies and die, and the database alone has
// to hold. Time is virtual; a step takes 20 to 400 ms and does what is due in a random order.

#include "agent/reconcile/converge.h"
#include "agent/reconcile/verdict.h"
#include "tests/sim/driver.h"

#define WK_MS NS_PER_MS
#define WK_S  NS_PER_SEC

#define WK_METAS    3
#define WK_TAGS     96
#define WK_IDS      400
#define WK_COMPUTES 10 // places with a name, of a StatefulSet
#define WK_PLACES   22 // the others are IP addresses
#define WK_PODS     200
#define WK_NODES    4
#define WK_TXS      8
#define WK_CALLS    4
#define WK_LOG      1200
#define WK_TOMBS    200
#define WK_INTENTS  128
#define WK_QUEUE    64
#define WK_TTL_NS   (10 * WK_S)
#define WK_NONE     (-1)

enum wk_fault {
    WK_FREEZE = 0,  // the leader stops, and wakes when another leads
    WK_ZOMBIE,      // its election fails, its writes don't
    WK_CRASH,       // of the leader
    WK_HUNG,        // a transaction of the leader stays open
    WK_BOOKKEEPING, // of the next takeover fails
    WK_CLOCK_JUMP,  // the leader's checker expires everybody
    WK_API_DOWN,    // lists fail
    WK_TRUNCATED,   // lists end half-way
    WK_STALE,       // lists are of a cache that stands still
    WK_CUT_NODE,   // the node is unreachable, its pods are deleted by force, its processes live
    WK_MASS_GONE,  // 60 % of the pods end at once
    WK_GIVEN_AWAY, // an ended pod's IP address goes to another pod at once
    WK_SCALE,      // the set shrinks, and grows again
    WK_LATE_CALL,  // DeleteWorkerNode waits in meta
    WK_UNKNOWN_CALL, // and its answer is lost
    WK_AGENT_STOP,   // the agent stands still between judging and acting
    WK_FAULTS,
};

enum wk_plant {
    WK_PLANT_NONE = 0,
    WK_PLANT_NO_BRAKE,
    WK_PLANT_TOMBSTONE_ANY_TERM,
    WK_PLANT_NO_INTENT,
    WK_PLANT_INTENT_BY_ID,
    WK_PLANT_WITHDRAW_UNKNOWN,
    WK_PLANT_NO_ROW_VERSION,
    WK_PLANT_ALLOW_LIST,
    WK_PLANT_NO_DENY_LIST,
    WK_PLANT_NO_LOCK,
    WK_PLANT_UNJUDGED,
    WK_PLANT_NO_END_LOCKERS,
    WK_PLANT_END_ANY_LOCKER,
    WK_PLANT_WAIT_FOR_LOCKERS,
    WK_PLANT_FORCED_IS_GONE,
    WK_PLANT_INCOMPLETE_IS_COMPLETE,
    WK_PLANT_NO_CURE,
    WK_PLANTS,
};

struct wk_pod {
    bool exists;
    bool is_listed; // by the API server
    bool is_alive;  // its process
    bool is_stranger;
    bool is_terminal; // phase, by its kubelet
    bool is_running;  // container status, by its kubelet
    bool is_deleting;
    int place;
    int node;
    int64_t next_at;    // of its process: to register, to activate
    int64_t removed_at; // its object goes; 0: not yet
    int id;             // registered as; 0: not
    int meta;           // where
    bool is_active;
    bool is_asking; // a registration is under way
    uint32_t serial;
    char uid[16];
    char name[32];
    char ip[32];
};

struct wk_row {
    int id; // 0: none
    uint32_t version;
    bool is_active;
    int tag; // who inserted it
    uint32_t seq;
};

// Unjudged: a statement under way, of those that are judged at their end. It has its row
// locked.
enum wk_tx_state { WK_TX_FREE = 0, WK_TX_UNJUDGED, WK_TX_LET_IN, WK_TX_WRITTEN };
enum wk_tx_kind { WK_ADD = 0, WK_REUSE, WK_ACTIVATE, WK_DELETE };

struct wk_tx {
    enum wk_tx_state state;
    enum wk_tx_kind kind;
    int tag;
    int meta;
    int place;
    int id;
    int pod;         // who registers
    uint32_t serial; // of that pod: a slot is used again
    int call;        // the id that a DeleteWorkerNode of ours meant; 0: not ours
    int64_t hung_until;
    bool is_at_end;  // unjudged, and waits for a takeover
    bool is_guarded; // the functions' owner must not end its session
    bool is_escaped; // had the lock when a takeover that had waited for it went on without
};

struct wk_log {
    uint32_t seq;
    bool is_delete;
    int id;
    int place;
    int tag; // WK_NONE: the takeover itself
};

struct wk_tomb {
    bool is_set;
    uint64_t term;
    int id;
    int place;
    uint32_t version;
    uint32_t seq; // of the log when it was written
    int64_t expires_at;
};

struct wk_intent {
    int id; // 0: free
    int place;
    uint32_t version;
    uint64_t term;
    bool is_unknown; // a call under it got no answer
};

struct wk_database {
    bool is_enforcing; // else: observe
    struct wk_row rows[WK_PLACES];
    uint32_t seq;
    uint32_t next_version;
    int next_id;
    int holder; // meta in the row
    int64_t renewed_at;
    uint64_t term;
    int owner;
    int owner_tag;
    uint32_t term_seq; // what a leader of this term surely read
    bool is_memory_known;
    uint32_t unrecorded; // takeovers whose bookkeeping failed
    int tag_count;
    bool superseded[WK_TAGS];
    uint64_t owned_term[WK_TAGS]; // 0: none
    struct wk_tx txs[WK_TXS];
    int taker; // a takeover that waits; WK_NONE: none
    int64_t taker_since;
    int64_t look_until; // then it ends who has rows locked; 0: it still waits for writers
    uint32_t unlocked;  // takeovers without the lock
    int log_count;
    struct wk_log log[WK_LOG];
    struct wk_tomb tombs[WK_TOMBS];
    struct wk_intent intents[WK_INTENTS];
};

enum wk_meta_state { WK_DOWN = 0, WK_FOLLOWER, WK_LOADING, WK_LEADER };

struct wk_call {
    int id; // 0: free
    int place;
    int64_t at; // it is executed
    bool is_answered_late;
};

struct wk_meta {
    enum wk_meta_state state;
    int tag;
    int64_t frozen_until;
    int64_t zombie_until;
    int64_t next_at;
    int64_t checked_at;
    bool memory[WK_IDS];
    bool active[WK_IDS]; // of the barrier worker
    int64_t beat_at[WK_IDS];
    int collected[WK_PLACES]; // ids that its checker is about to delete; 0: none
    struct wk_call calls[WK_CALLS];
    int64_t recover_at; // a Recover under way ends; 0: none
};

struct wk_order {
    struct reconcile_action action;
    int place;
    uint32_t version;
    uint64_t term;
};

struct wk_agent {
    struct reconcile_memory memory;
    void *block;
    struct converge_memory converge;
    enum converge_outcome outcome;
    int64_t outcome_at;
    enum converge_status status;
    int64_t status_since;
    int32_t orphans; // of the last pass; -1: not judged
    int64_t next_at;
    int64_t stopped_until;
    int awaited; // id of the call whose answer it waits for; 0: none
    uint64_t awaited_term;
    int64_t awaited_until;
    int order_count;
    struct wk_order orders[WK_QUEUE];
};

struct wk_stats {
    uint64_t runs;
    uint64_t faults[WK_FAULTS];
    uint64_t takeovers, ended, lockers, kept, unlocked, refused, intended, buried, removed,
        called, deleted, late_calls, unknown_calls, returned, restarts, recovers, zombie_writes,
        void_tombs, orphans, unrecorded, late_of_superseded;
    uint64_t reasons[REASON_COUNT];
    uint64_t cures[CONVERGE_REASONS];
};

struct wk_world {
    struct driver_run *run;
    bool is_calm;             // the faults are over
    int64_t until[WK_FAULTS]; // a fault of that kind is on; 0: not
    int cut_node;
    struct wk_database db;
    struct wk_meta metas[WK_METAS];
    struct wk_agent agents[WK_METAS];
    struct wk_pod pods[WK_PODS];
    struct wk_pod cache[WK_PODS];
    int pod_count;
    uint32_t next_serial;
    int replicas;
    // What the checks remember.
    bool proven[WK_IDS]; // an action of ours named it
    int64_t acted_at[WK_IDS];
    int type_of[WK_IDS];
    int64_t forced_until;
    struct wk_stats *stats;
};

// worker_run.c
bool wk_is_on(const struct wk_world *world, enum wk_fault fault);

// takeover.c
// The election's statement, by a process that may lead: true when the row is its own now.
bool wk_campaign(struct wk_world *world, int meta);
void wk_takeover_step(struct wk_world *world);

// guard.c
bool wk_is_superseded(const struct wk_world *world, int tag);
// In the takeover, of which is_first says that the new leader has read nothing before.
void wk_apply_tombstones(struct wk_world *world, bool is_first);
// Begins a guarded transaction; NULL: refused, or it has to wait.
struct wk_tx *wk_begin(struct wk_world *world, int meta, enum wk_tx_kind kind, int place);
void wk_tx_step(struct wk_world *world, struct wk_tx *tx);
bool wk_bury(struct wk_world *world, const struct wk_order *order);
void wk_unbury(struct wk_world *world, uint64_t term, int id);
bool wk_intend(struct wk_world *world, const struct wk_order *order);
void wk_answered(struct wk_world *world, uint64_t term, int id);
bool wk_is_rightful(const struct wk_world *world, int meta); // in the row, not superseded

// worker.c
void wk_meta_step(struct wk_world *world, int meta);
void wk_node_step(struct wk_world *world, int pod);
void wk_committed(struct wk_world *world, const struct wk_tx *tx); // its process learns it
void wk_failed(struct wk_world *world, const struct wk_tx *tx);
void wk_meta_die(struct wk_world *world, int meta);
bool wk_lives(const struct wk_world *world, int place, int id); // a process beats as that row

// worker_pods.c
void wk_pods_begin(struct wk_world *world);
void wk_pods_step(struct wk_world *world);
void wk_pods_fault(struct wk_world *world, enum wk_fault fault);
const char *wk_host(int place, char buf[64]);

// worker_agent.c
void wk_agent_begin(struct wk_world *world, int meta);
void wk_agent_step(struct wk_world *world, int meta);
void wk_agent_saw(struct wk_world *world, int pod, bool is_deleted);
void wk_agent_answer(struct wk_world *world, int meta, int id);
