// SPDX-License-Identifier: Apache-2.0
#pragma once
// order: in which order a recovery may go on: FENCE -> RESET -> RECONCILE -> RECLAIM -> ADMIT.
// Nothing resets a compute node but a new control stream's Init, and an Init at the wrong time
// destroys running jobs: so one function, order_may_reset(), says whether one may be sent, and
// everything asks it. The same machine serves the start after a fence (TAKEOVER), a recovery
// beside a live leader (RECOVERY), and the orders `recover` and `handover`. Pure: no clock, no
// I/O, no allocation; level-triggered; state is the caller's.
//
// Invariants: no Init with a live old leader, with a status of RUNNING, after the gate has
// opened, or in observe. A node counts as acknowledged by RESET, NONE or GONE alone. Every wait
// has a bound. Worker ids are carried, never compared: a row is used again by the next process.

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define ORDER_NODES_MAX 256

// --- what is observed ---

enum order_mode { ORDER_OFF = 0, ORDER_OBSERVE, ORDER_ENFORCE };

enum order_death_kind {
    ORDER_DEATH_NONE = 0,  // it lives, or that is not known
    ORDER_DEATH_IMPLIED,   // guarded by metafence-run, and its registered deadline has passed
    ORDER_DEATH_CONFIRMED, // waited for, or a readable pidfd
};

// Of our meta's last engaged incarnation.
struct order_death {
    enum order_death_kind kind;
    struct instant at; // when that was known
    uint64_t incarnation;
    uint64_t term; // the last that it owned
};

enum order_holder { ORDER_ROW_UNKNOWN = 0, ORDER_ROW_ABSENT, ORDER_ROW_OURS, ORDER_ROW_OTHER };

// The last answered read of the election row.
struct order_row {
    enum order_holder holder;
    struct instant sent_at;
    struct instant lease_end; // of OURS: heartbeat + ttl - margin; nobody else wins before it
};

// The last answer to GetClusterRecoveryStatus, by our own meta.
struct order_status {
    int value; // 1 starting, 2 recovering, 3 running; 0: not known
    struct instant sent_at;
};

// The marker of this term that is open; id 0: none.
struct order_marker {
    uint64_t id;
    uint64_t term;
    bool is_global;
    uint32_t round;           // how often a removal has passed under it: each used up what was
                              // acknowledged before
    struct instant opened_at; // the earliest moment that fits to what the database said
};

// What metafence.recovery_state() said.
struct order_gate {
    bool known;
    struct instant sent_at; // of that read
    bool is_open;           // for this marker and round: nothing is refused any more
    struct instant
        refreshed_at; // our row, by which the gate knows that we are here; before it was sent
    struct instant refused_at; // a removal was seen to wait, in this round; ns 0: none
};

// What is dropped, or may be, and not reclaimed.
struct order_drops {
    bool known;
    bool is_complete; // whatever a removal can name is in it
    // Actors may be under construction that no statistics show: jobs that are not CREATED, or
    // were not when they were dropped; a recovery before this one that did not end in a commit.
    bool may_build;
    uint32_t fragments; // of dropped jobs
    uint32_t creating;  // jobs
    uint64_t revision;  // another one when something was dropped since
};

enum order_outcome {
    ORDER_CALL_NONE = 0,
    ORDER_CALL_PENDING,
    ORDER_CALL_DONE,    // Init: InitResponse came. Statistics: a whole answer
    ORDER_CALL_FAILED,  // surely not done
    ORDER_CALL_UNKNOWN, // sent, and not answered: it may happen yet
};

// What became of a call; one of another serial than the last that was planned is ignored.
struct order_call {
    uint32_t serial;
    enum order_outcome outcome;
    bool is_sent; // its bytes have left
};

enum order_evidence {
    ORDER_UNKNOWN = 0,
    ORDER_NONE,  // two reads of its statistics without a fragment of what is dropped
    ORDER_GONE,  // the process that was there when the hold began has ended
    ORDER_RESET, // InitResponse: all actors are aborted and joined
    ORDER_EVIDENCES,
};

// A compute node that may run actors: of a row, or of a pod that has none. Within a hold the
// caller's list only grows.
struct order_node {
    uint64_t endpoint; // stands for host:port, as long as this agent lives; never 0
    // Stands for pod UID and container ID, as the API shows them; 0: not known.
    uint64_t incarnation;
    bool is_ended;          // … and its container, or pod, has ended by its kubelet's word
    bool can_fence;         // … and it is a pod's of its own, which can be deleted by its uid
    struct instant seen_at; // of these two: before they were asked for
    struct order_call init;
    struct order_call stats;
    uint32_t running;             // of a DONE stats: fragments of the dropped that have actors
    uint64_t revision;            // … of these drops
    enum order_evidence recorded; // in the database, for this marker and round
    uint64_t recorded_revision;   // of a NONE
};

enum order_request_kind {
    ORDER_REQUEST_NONE = 0,
    ORDER_REQUEST_RECOVER,
    ORDER_REQUEST_HANDOVER
};

struct order_request {
    enum order_request_kind kind;
    uint64_t id; // another one for each order; never 0
    struct instant at;
    int64_t wait_ns;            // from then on, for what is dropped and being created
    enum order_outcome recover; // of the call that was planned for it
    struct instant recover_ended_at;
};

struct order_facts {
    struct instant now;
    enum order_mode mode; // of a version that is not verified: OBSERVE at most
    bool meta_runs;       // our own, or it was allowed to start
    bool is_leader;       // it leads, verified
    uint64_t term;        // its own, while it leads
    // Of all who owned a term before: the weakest that is known; CONFIRMED where nobody did.
    enum order_death_kind predecessor;
    struct order_death death;
    struct order_row row;
    struct order_status status;
    struct order_marker marker;
    struct order_gate gate;
    struct order_drops drops;
    struct order_request request;
    bool nodes_known;               // the list is whole
    const struct order_node *nodes; // borrowed for the call
    uint32_t node_count;            // more than ORDER_NODES_MAX are never all acknowledged
};

struct order_config {
    bool holds_on;        // policy: at max_hold the gate stays closed, and an operator decides
    bool may_fence_nodes; // opt-in: one whose actors do not end
    int64_t max_hold_ns;
    int64_t kill_after_ns; // after a node got an Init that it has not answered
    int64_t reset_before_start_ns;
    int64_t handover_ns;   // after the end of our lease, for another to win
    int64_t margin_ns;     // between the last moment of an Init and the gate's opening
    int64_t gate_stale_ns; // a row of ours that is older means no agent to the gate
    int64_t fresh_ns;      // a status, and a state of the database, count for so long
    int64_t refusal_ns;    // so does a refusal: meta's longest pause, and the wait
    int64_t init_timeout_ns;
    int64_t stats_timeout_ns;
    int64_t retry_ns;   // after a call that brought nothing; of writing, and of fencing a node
    int64_t recheck_ns; // between the two reads of NONE
};
#define ORDER_CONFIG                                                                           \
    {                                                                                          \
        .max_hold_ns = 60 * NS_PER_SEC, .kill_after_ns = 30 * NS_PER_SEC,                      \
        .reset_before_start_ns = 15 * NS_PER_SEC, .handover_ns = 30 * NS_PER_SEC,              \
        .margin_ns = NS_PER_SEC, .gate_stale_ns = 10 * NS_PER_SEC, .fresh_ns = NS_PER_SEC,     \
        .refusal_ns = 7 * NS_PER_SEC, .init_timeout_ns = 20 * NS_PER_SEC,                      \
        .stats_timeout_ns = 2 * NS_PER_SEC, .retry_ns = NS_PER_SEC,                            \
        .recheck_ns = NS_PER_SEC / 2,                                                          \
    }

// --- what is remembered: zeroed at the agent's start ---

enum order_cause { ORDER_CAUSE_NONE = 0, ORDER_TAKEOVER, ORDER_RECOVERY };

struct order_node_memory {
    uint64_t endpoint;
    uint64_t base; // incarnation of the first look within the hold; 0: none yet
    enum order_evidence evidence;
    uint64_t none_revision; // of NONE, and of the read before it
    bool had_empty_read;
    bool init_open;
    bool stats_open;
    uint32_t init_serial;
    uint32_t stats_serial;
    // It got an Init, and those that it has not answered ended at their deadline, not with
    // their connection: so it is still the process that got it. ns 0: not so.
    struct instant asked_at;
    // Sent, or seen to have ended; the deadline of the one that is under way.
    struct instant init_at;
    struct instant init_deadline;
    struct instant stats_at;
    struct instant stats_deadline;
    struct instant written_at;
    struct instant fenced_at;
};

struct order_memory {
    enum order_cause cause;
    uint64_t hold; // marker, or dead incarnation
    uint32_t round;
    struct instant began; // when this agent saw it
    // Evidence counts from here on: nobody leads, or a removal was refused, so that meta can't
    // have got to building since. ns 0: not yet.
    struct instant armed_at;
    bool was_open;               // the gate, in this round
    struct instant refreshed_at; // our row at the gate
    struct instant covered_at;   // … without a gap since; in one the gate was open
    uint32_t serial;
    uint32_t node_count;
    struct order_node_memory nodes[ORDER_NODES_MAX];
    uint64_t request; // the last whose first part is over: drained
    uint64_t acted;   // request whose call, or fence, was planned
    struct instant acted_at;
    uint64_t finished; // request
};

// --- what comes out ---

enum order_step {
    ORDER_IDLE = 0,
    ORDER_DRAIN, // before an operator's order
    ORDER_FENCE,
    ORDER_RESET_NODES,
    ORDER_RECONCILE, // what was proven is written down
    ORDER_RECLAIM,
    ORDER_ADMIT,
    ORDER_STEPS,
};
const char *order_step_name(enum order_step step); // "RESET"

enum order_wait {
    ORDER_WAIT_NOTHING = 0,
    ORDER_WAIT_STATE,       // the database has not said
    ORDER_WAIT_DROPS,       // to be reclaimed
    ORDER_WAIT_CREATES,     // jobs to be created
    ORDER_WAIT_DEATH,       // of our meta
    ORDER_WAIT_PREDECESSOR, // its death is not known
    ORDER_WAIT_ROW,         // a read from after the death
    ORDER_WAIT_NODES,       // their list
    ORDER_WAIT_REFUSAL,     // a removal, which has not come
    ORDER_WAIT_STATUS,      // a fresh one that is not RUNNING
    ORDER_WAIT_RESETS,      // answers
    ORDER_WAIT_RECORD,      // what is written to be read again
    ORDER_WAIT_REMOVAL,     // meta's next attempt
    ORDER_WAIT_END,         // of the recovery
    ORDER_WAIT_SUCCESSOR,
    ORDER_WAITS,
};
const char *order_wait_name(enum order_wait wait); // "resets"

// Why no Init may be sent.
enum order_block {
    ORDER_MAY = 0,
    // Not now; what is under way goes on.
    ORDER_ROW_UNREAD,
    ORDER_STATUS_UNREAD,
    ORDER_STATE_UNREAD,
    ORDER_NOT_REFUSED,
    ORDER_ACKNOWLEDGED, // this node
    // Never; what is under way is cancelled at once.
    ORDER_NO_HOLD,
    ORDER_NOT_ENFORCED,
    ORDER_META_LIVES,
    ORDER_NO_LEASE, // somebody may win at any moment
    ORDER_ANOTHER_LEADS,
    ORDER_NOT_LEADER,
    ORDER_PREDECESSOR_LIVES,
    ORDER_GATE_OPEN,
    ORDER_RUNNING,
    ORDER_HOLD_OVER,
    ORDER_BLOCKS,
};
const char *order_block_name(enum order_block block);          // "gate open"
const char *order_evidence_name(enum order_evidence evidence); // "RESET", as in the database
static inline bool order_must_stop(enum order_block block)
{
    return block >= ORDER_NO_HOLD;
}

enum {
    ORDER_SEND_INIT = 1,
    ORDER_CANCEL_INIT = 2, // its answer is not needed, and must be over before it is written
    ORDER_ASK_STATS = 4,
    ORDER_WRITE = 8,       // the acknowledgement
    ORDER_FENCE_NODE = 16, // the pod of this incarnation, unless that is under way
};

// Of the node with the same index in the facts.
struct order_node_plan {
    uint8_t acts;
    enum order_evidence evidence;
    uint64_t revision; // of a NONE: what it was compared with, to be written with it
    uint32_t init_serial;
    uint32_t stats_serial;
    struct instant init_deadline;
    struct instant stats_deadline;
};

enum order_end { ORDER_END_NONE = 0, ORDER_END_DONE, ORDER_END_FAILED };

struct order_plan {
    enum order_step step;
    enum order_wait wait;
    enum order_block block; // of the hold
    bool stop;              // first cancel each Init under way
    bool fence_meta;        // handover: SIGKILL, its lease is kept
    bool send_recover;      // once for each request
    bool hold_start;        // … of our meta, until:
    struct instant hold_until;
    bool read_status;     // a fresh one is wanted
    bool drain_gave_up;   // at its bound
    bool bound_reached;   // max_hold, before all had acknowledged
    enum order_end ended; // of the request, once
    uint32_t evidence[ORDER_EVIDENCES];
    uint32_t unlisted;      // remembered without evidence, and no longer in the facts
    struct instant wake_at; // time alone may change the plan then; NEVER: it can't
    struct order_node_plan nodes[ORDER_NODES_MAX];
};

// Takes in what became of what was planned, and fills *plan. What it plans is to be begun now.
void order_decide(const struct order_config *config, const struct order_facts *facts,
                  struct order_memory *memory, struct order_plan *plan);

// The one precondition. Asked with fresh facts again right before the bytes of an Init leave.
enum order_block order_may_reset(const struct order_config *config,
                                 const struct order_facts *facts,
                                 const struct order_memory *memory, uint64_t endpoint);

// The one precondition of a node's fence: that of an Init to it, and that this very process,
// the one of the first look within the hold, got an Init and has not answered for kill_after.
// Of `node` only endpoint, incarnation and can_fence are looked at. Asked with fresh facts
// again right before the request.
bool order_may_fence(const struct order_config *config, const struct order_facts *facts,
                     const struct order_memory *memory, const struct order_node *node);
