// SPDX-License-Identifier: Apache-2.0
#pragma once
// order: a third world, of recoveries: two metas with an election, jobs that are dropped and
// created, recoveries that purge before they reset, the gate's SQL at statement level, compute
// nodes whose actors ignore an abort for a while, and beside each meta the real order_decide().
// Time is virtual; a step takes 10 to 120 ms.

#include "agent/recovery/order.h"
#include "tests/sim/driver.h"

#define OW_MS NS_PER_MS
#define OW_S  NS_PER_SEC

#define OW_METAS     2
#define OW_NODES     3
#define OW_JOBS      48
#define OW_QUEUE     64 // Inits that wait in a node
#define OW_TTL_NS    (10 * OW_S)
#define OW_MARGIN_NS OW_S
#define OW_START_NS  (5 * OW_S) // reset_before_start
#define OW_WAIT_NS   (8 * OW_S) // of an order, for drops
#define OW_NOBODY    (-1)

enum ow_fault {
    OW_CRASH = 0,  // of the leader
    OW_PAUSED,     // the leader is cut off, and nobody fences it: a zombie
    OW_DB_CUT,     // an agent and its meta do not reach the database
    OW_NODE_CUT,   // agents do not reach a node; metas do
    OW_NODE_CRASH, // … and it comes back as another process
    OW_STUCK,      // an actor of a node ignores aborts
    OW_REREGISTER, // a node's row gets another id, its process goes on
    OW_LOST,       // answers of nodes are lost
    OW_LATE,       // … and come after their call was given up
    OW_SLOW,       // connections take seconds
    OW_AGENT_DOWN, // an agent forgets everything, and is away
    OW_API_STALE,  // what the API shows of pods stands still
    OW_STATUS_OUT, // the status RPC is not answered
    OW_BLIND,      // a node's statistics lack what is just being built
    OW_DROP,       // of a job
    OW_CREATE,
    OW_RECOVER,   // by a user's SQL
    OW_REQUEST,   // `metafence recover`, `metafence handover`
    OW_ATTEMPT,   // a recovery fails after its removal has passed
    OW_EXCEPTION, // the gate's own code fails: it lets pass
    OW_FAULTS,
};

enum ow_plant {
    OW_PLANT_NONE = 0,
    OW_PLANT_NO_PRECONDITION,
    OW_PLANT_OBSERVE,
    OW_PLANT_ZOMBIE,
    OW_PLANT_LEASE,
    OW_PLANT_NO_STOP,
    OW_PLANT_ONE_READ,
    OW_PLANT_WORKER_ID,
    OW_PLANT_OLD_LOOK,
    OW_PLANT_REVISION,
    OW_PLANT_BUILDING,
    OW_PLANT_ROUND,
    OW_PLANT_ANY_ANSWER,
    OW_PLANT_NO_BOUND,
    OW_PLANT_START,
    OW_PLANT_FENCE_LATE,
    OW_PLANT_FENCE_NEWER,
    OW_PLANT_FENCE_UNASKED,
    OW_PLANT_FENCE_IS_END,
    OW_PLANTS,
};

struct ow_job {
    bool exists; // in the catalog, or dropped and not reclaimed
    bool is_dropped;
    bool is_creating;
    bool was_creating;  // when it was dropped
    int64_t created_at; // becomes CREATED
    uint32_t nodes;     // that run it, a mask
};

// --- compute nodes ---

struct ow_init {
    int from; // meta; OW_METAS + agent: ours
    uint32_t serial;
    uint64_t incarnation; // of the meta that asks
};

struct ow_node {
    uint64_t incarnation;
    bool is_alive;
    int64_t back_at;
    int worker_id;
    bool runs[OW_JOBS];
    int64_t stuck_until; // of an actor
    int stuck_job;
    int64_t blind_until;
    int owner; // meta with a control stream; OW_NOBODY
    uint64_t owner_incarnation;
    int queued;
    struct ow_init queue[OW_QUEUE];
    int64_t asked_at; // the first Init of an agent came to this process; 0: none
    int64_t ends_at;  // its pod is being deleted
};

// --- the database ---

struct ow_ack {
    enum order_evidence how;
    uint64_t revision;
};

struct ow_database {
    enum order_mode mode;
    bool holds_on; // the gate's policy
    int holder;
    int64_t renewed_at;
    uint64_t term;
    uint64_t owner; // incarnation
    enum order_death_kind predecessor;
    uint64_t old_owner; // of the term before
    int old_meta;
    uint64_t next_marker;
    struct order_marker marker;     // opened_at is exact here
    bool last_ended_well;           // the marker before it, by a commit
    int64_t refreshed_at[OW_METAS]; // by the agent beside each
    int64_t refused_at;
    bool is_waiting;   // a removal, right now
    int attempts;      // under this marker
    bool has_got_past; // one that was not refused, in this round
    uint64_t revision;
    struct ow_ack acks[OW_NODES];
};

// --- metas ---

enum ow_phase {
    OW_FOLLOWER = 0,
    OW_PAUSE, // between two attempts
    OW_LOADING,
    OW_REMOVING, // waits in the gate
    OW_RESETTING,
    OW_BUILDING,
    OW_COMMITTING, // running, and the first commit is not there yet
    OW_RUNNING,
};

struct ow_meta {
    bool is_alive;
    uint64_t incarnation;
    enum ow_phase phase;
    bool is_bootstrap;
    int64_t next_at;
    int64_t refused_since; // of the present try
    int attempts;
    int64_t wants_start_at;
    int64_t hold_until; // as its metafence-run was told
    uint64_t owned;     // the last term
    int64_t paused_until;
    bool answered[OW_NODES];
    uint64_t asked[OW_NODES];     // processes
    int64_t dropping_at[OW_JOBS]; // the barrier of a drop; 0: none
    bool fails_next;
    bool recover_asked; // by the RPC
};

// --- agents ---

enum ow_call_state { OW_CALL_FREE = 0, OW_CONNECTING, OW_SENT, OW_ANSWERED };

struct ow_call {
    enum ow_call_state state;
    uint32_t serial;
    int64_t at; // of the next state
    int64_t deadline;
    uint64_t process; // that got it
};

struct ow_snapshot {
    bool is_under_way;
    int64_t sent_at;
    int64_t arrives_at;
    struct ow_database db;
    struct order_drops drops;
    uint64_t dropped; // jobs, a mask
    bool is_open;
};

struct ow_agent {
    int64_t down_until;
    struct order_memory memory;
    struct order_plan plan;
    struct order_facts facts;
    struct order_node nodes[OW_NODES];
    struct ow_snapshot read;
    struct ow_snapshot seen; // the last that arrived
    int64_t next_read_at;
    int64_t next_status_at;
    int64_t api_at; // of the newest look at pods
    int64_t refreshed_at;
    int64_t next_refresh_at;
    struct ow_call inits[OW_NODES];
    struct ow_call stats[OW_NODES];
    struct order_call late[OW_NODES]; // an answer that comes when nobody waits for it
    int64_t late_at[OW_NODES];
    int64_t write_at[OW_NODES];
    struct ow_ack writes[OW_NODES];
    uint64_t write_marker[OW_NODES];
    uint32_t write_round[OW_NODES];
    int64_t fence_at[OW_NODES];
    uint64_t fence_incarnation[OW_NODES];
    int64_t died_at; // when it was known
    uint64_t died;
    uint64_t died_term;
    int64_t request_bound;
    int64_t recover_until; // of the call under way
};

struct ow_stats {
    uint64_t runs;
    uint64_t faults[OW_FAULTS];
    uint64_t evidence[ORDER_EVIDENCES];
    uint64_t blocks[ORDER_BLOCKS];
    uint64_t steps[ORDER_STEPS];
    uint64_t takeovers, recoveries, removals, refused, bounds, blind_gates, inits, resets,
        held_starts, fenced, fences_held_back, orders_done, orders_failed, forbidden_late,
        drops_done, late_answers, stolen;
};

struct ow_world {
    struct driver_run *run;
    bool is_calm;
    struct order_config config;
    int64_t until[OW_FAULTS]; // a fault of that kind is on
    int cut_node;
    int cut_meta; // from the database
    uint64_t next_incarnation;
    uint64_t next_request;
    int64_t exception_at; // a removal passed by one
    struct ow_database db;
    struct ow_meta metas[OW_METAS];
    struct ow_node nodes[OW_NODES];
    uint64_t shown[OW_NODES]; // incarnations, as the API shows them
    struct ow_job jobs[OW_JOBS];
    struct ow_agent agents[OW_METAS];
    struct ow_stats *stats;
};

// order_run.c
bool ow_is_on(const struct ow_world *world, enum ow_fault fault);

// order_meta.c
void ow_meta_step(struct ow_world *world, int meta);
void ow_meta_die(struct ow_world *world, int meta);
void ow_recover(struct ow_world *world, int meta);
void ow_drop(struct ow_world *world);
void ow_create(struct ow_world *world);
bool ow_is_engaged(const struct ow_meta *meta); // has led in this incarnation
// No meta's removal was let pass in this attempt, and no control stream is asked for.
bool ow_is_before_reset(const struct ow_meta *meta);

// order_gate.c: SQL
bool ow_may_pass(struct ow_world *world, int meta);
void ow_open_marker(struct ow_world *world, int meta);
void ow_passed(struct ow_world *world, int meta, bool is_gated);
bool ow_is_gate_open(const struct ow_world *world, const struct ow_database *db);
struct order_drops ow_drops(const struct ow_world *world);

// order_nodes.c
void ow_node_step(struct ow_world *world, int node);
void ow_node_die(struct ow_world *world, int node);
void ow_node_enqueue(struct ow_world *world, int node, struct ow_init init);

// order_fence.c: a node whose actors don't end
void ow_fence_begin(struct ow_world *world, int agent, int node);
void ow_fence_step(struct ow_world *world, int agent, int node);

// order_agent.c
void ow_agent_step(struct ow_world *world, int agent);
void ow_agent_forget(struct ow_world *world, int agent);
void ow_agent_answer(struct ow_world *world, int agent, int node, uint32_t serial);
