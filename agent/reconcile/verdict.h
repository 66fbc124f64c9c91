// SPDX-License-Identifier: Apache-2.0
#pragma once
// verdict: which worker rows are true, which are proven dead, and what may be done about those.
// Pure: no clock, no I/O, no allocation; everything is observed by the shell beside the
// verified leader and handed in. The same code judges for the agent, for a dry run and in the
// simulation.
//
// The one proof of death: the row's pod, known by its UID because this agent itself has seen it
// alive at the row's address, has ended by its own kubelet's word (phase Failed or Succeeded,
// and no container said to be running), and nothing of today contradicts. All else is UNKNOWN:
// a pod that was never seen, one that went while its containers ran (deleted by force, or by
// the garbage collector of nodes), one whose node is unreachable, one whose end was missed.
// That costs little: a worker that sends no heartbeats is expired by its leader after a minute,
// on evidence that we don't have.
//
// Invariants: only GONE acts; whatever is incomplete makes all rows UNKNOWN and every
// confirmation begins anew; readiness is never used; memory only lets a row be judged, it never
// makes a live one dead.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

// --- what is observed ---

enum worker_type {
    WORKER_COMPUTE = 0,
    WORKER_FRONTEND,
    WORKER_COMPACTOR,
    WORKER_RISECTL,
    WORKER_OTHER, // a type that this version does not know
    WORKER_TYPES,
};
// "COMPUTE_NODE", "FRONTEND", "COMPACTOR", "RISE_CTL"; NULL and all else: WORKER_OTHER.
enum worker_type worker_type_of(const char *text);
const char *worker_type_name(enum worker_type type);

enum worker_status { WORKER_STARTING = 0, WORKER_RUNNING, WORKER_STATUS_OTHER };
enum worker_status worker_status_of(const char *text);

// A row of worker. Strings are borrowed for the call.
struct worker_row {
    int32_t id;
    enum worker_type type;
    enum worker_status status;
    int32_t port;
    const char *host;        // as it stands there; NULL: NULL
    const char *row_version; // of metafence.workers(); a change of it is a sign of life
    // Its leader's memory surely holds this id: it was inserted before the leader loaded its
    // snapshot, or by the leader's own tag. Unsure is false.
    bool leader_knows;
};

// What controls a pod.
enum pod_owner {
    POD_OWNER_NONE = 0,       // bare; a copy made for debugging
    POD_OWNER_OTHER,          // a Job, a DaemonSet, …: no worker
    POD_OWNER_REPLICASET,     // of a Deployment
    POD_OWNER_STATEFULSET,    // apps/v1
    POD_OWNER_CLONESET,       // apps.kruise.io
    POD_OWNER_KRUISE_STATEFUL // StatefulSet of apps.kruise.io
};
// By the owner reference's kind and apiVersion ("apps/v1"); NULL: POD_OWNER_NONE.
enum pod_owner pod_owner_of(const char *kind, const char *api_version);

#define WORKER_POD_IPS   4
#define WORKER_POD_PORTS 8
#define WORKER_UID_SIZE  40 // an RFC 4122 text is 36; what is longer is cut where it is shown

// A pod, as of a list or of an event of a watch. Strings are borrowed for the call.
struct worker_pod {
    const char *uid;
    const char *name;
    const char *name_space; // NULL: not said
    const char *hostname;   // spec.hostname; NULL: its name
    const char *subdomain;  // NULL: none
    enum pod_owner owner;
    const char *ips[WORKER_POD_IPS]; // status.podIPs
    unsigned ip_count;
    // Declared by containers; count 0: none is declared, or more than fit.
    uint16_t ports[WORKER_POD_PORTS];
    unsigned port_count;
    // 1 << enum worker_type for each that its component label allows ("standalone": three); 0:
    // not known.
    uint8_t types;
    bool is_foreign; // its labels say another release than ours
    bool host_network;
    bool is_terminal; // phase Failed or Succeeded
    bool is_deleting; // has a deletionTimestamp
    bool has_started; // some container runs or has run
    // Some container's or init container's status says running. Terminal and running is what
    // the garbage collector of nodes leaves behind: no proof.
    bool is_running;
    // Ready is Unknown, or False while all containers are said to be ready; reason NodeLost; or
    // evicted because its node is unreachable.
    bool is_unreachable;
};

// One endpoint of a slice. Its conditions are not here: readiness proves nothing.
struct worker_endpoint {
    const char *address;     // one; an endpoint with two is handed in twice
    const char *hostname;    // NULL: none
    const char *target_uid;  // NULL: no pod
    const char *target_name; // NULL: none
};

// A StatefulSet of either kind.
struct worker_set {
    const char *name;
    bool is_kruise;
    int32_t replicas; // spec
    int32_t start;    // spec.ordinals.start
    int32_t reserved; // how many of spec.reserveOrdinals (kruise)
};

// What was read in one round, rows FIRST: a worker's pod is there before its row is. A read
// that failed, was cut off half-way or found what it did not understand is not complete; the
// shell hands such a round in as well, since confirmation begins anew with it.
struct worker_snapshot {
    struct instant taken_at; // before the first read was sent
    const struct worker_row *rows;
    const struct worker_pod *pods; // all of the selector, terminal ones too
    const struct worker_endpoint *endpoints;
    const struct worker_set *sets;
    // Of rows that others than the leader have deleted since it loaded its snapshot, and that
    // are not back: host, port and, if it is known, type (else WORKER_OTHER).
    const struct worker_row *lost;
    uint32_t lost_count;
    uint32_t row_count;
    uint32_t pod_count;
    uint32_t endpoint_count;
    uint32_t set_count;
    bool rows_complete;
    bool pods_complete;
    bool endpoints_complete;
    bool sets_complete;
    bool kruise_sets_complete; // true also where the API has no such kind
};

// --- what comes out ---

enum worker_verdict {
    VERDICT_UNKNOWN = 0,
    VERDICT_LIVE,
    VERDICT_GONE, // proven, and confirmed
};
const char *worker_verdict_name(enum worker_verdict verdict); // "UNKNOWN"

enum worker_reason {
    // LIVE
    REASON_POD_RUNS = 0,
    REASON_POD_PENDING,     // a pod has the address and has not started yet
    REASON_POD_TERMINATING, // deleted, but its object is there and has not ended
    // GONE
    REASON_POD_ENDED,  // listed, ended
    REASON_POD_GONE,   // no longer listed, and had ended before it went
    REASON_SUPERSEDED, // its pod has since registered another row for the same port
    // UNKNOWN: left alone
    REASON_NOT_JUDGED, // not beside a verified leader
    REASON_INCOMPLETE, // of the snapshot
    REASON_NO_PODS,    // complete, and not one pod in it lives
    REASON_RISECTL,
    REASON_UNKNOWN_TYPE,
    REASON_BAD_ADDRESS,
    REASON_YOUNG,    // STARTING, first seen less than starting_grace ago
    REASON_TOO_MANY, // beyond what memory was made for
    // UNKNOWN: no proof
    REASON_NEVER_SEEN,       // no pod of this address was ever seen by this agent
    REASON_NODE_UNREACHABLE, // its process may live behind the partition
    REASON_FORCE_DELETED,    // its object went while containers ran
    REASON_END_UNSEEN,       // its object went, and the last that was seen of it is no end
    REASON_ENDED_RUNNING,    // terminal by somebody else's word: a container still runs
    REASON_ADDRESS_MOVED,    // its pod lives, but not at this address
    // UNKNOWN: contradicted
    REASON_AMBIGUOUS,        // the name fits more than one pod
    REASON_DUPLICATE,        // two rows for one port of one pod, and no telling which is dead
    REASON_STRANGER,         // the address is now of a pod that is no worker by its owner
    REASON_PORT_MISMATCH,    // … of a worker that does not declare the row's port
    REASON_NAME_MISMATCH,    // … of a pod of that name, but another service
    REASON_SLICE_DISAGREES,  // a slice has the address for somebody who is not in the list
    REASON_REPLICA_EXPECTED, // the name is one that its StatefulSet will fill again
    REASON_REPLICAS_UNKNOWN, // whether it will could not be read
    REASON_UNCONFIRMED,      // a proof, seen for less than confirm_after: see `proof`
    REASON_COUNT,
};
const char *worker_reason_name(enum worker_reason reason); // "NodeUnreachable"

struct worker_judgment {
    uint8_t verdict;       // enum worker_verdict
    uint8_t reason;        // enum worker_reason
    uint8_t proof;         // enum worker_reason of GONE: what is being confirmed, or was
    bool is_held;          // GONE, but the brake holds it
    int32_t pod;           // index into snapshot.pods of the pod that has the address; -1: none
    int32_t known_pod;     // for reconcile_pod_uid(): whose row it was; -1: not known
    int64_t confirm_in_ns; // REASON_UNCONFIRMED: what is missing
};

enum reconcile_action_kind {
    // metafence.bury(): once, and again in each pass as long as it is GONE (it expires).
    RECONCILE_BURY,
    RECONCILE_UNBURY, // it is GONE no longer: metafence.unbury() by id
    // Under an intent: DeleteWorkerNode on our own meta. At most one in a pass, none while a
    // call of ours is announced or under way. Always beside a BURY of the same row.
    RECONCILE_DELETE_RPC,
};

struct reconcile_action {
    enum reconcile_action_kind kind;
    int32_t worker_id;
    int32_t row; // index into snapshot.rows; -1: UNBURY of a row that is not there any more
};

// As many tombstones as a takeover applies.
#define RECONCILE_BURY_MAX    100
#define RECONCILE_LOST_MAX    1000 // of snapshot.lost are looked at
#define RECONCILE_ACTIONS_MAX (2 * RECONCILE_BURY_MAX + 1)

struct reconcile_plan {
    // The caller's: one for each row; scratch of reconcile_scratch_bytes().
    struct worker_judgment *judgments;
    void *scratch;
    size_t scratch_bytes;
    // Out.
    bool is_dry; // mode is not enforce, or there is no guard: actions are what would be done
    unsigned action_count;
    struct reconcile_action actions[RECONCILE_ACTIONS_MAX];
    uint32_t verdicts[WORKER_TYPES][VERDICT_GONE + 1];
    uint32_t reasons[REASON_COUNT];
    uint32_t held[WORKER_TYPES]; // GONE rows that the brake holds: an alarm
    // Of snapshot.lost: a worker's pod runs there, and no row is its. -1: not judged.
    int32_t orphans;
    struct instant orphans_at; // taken_at of what they were judged by
    uint64_t run[64];          // of a pass under way; not to be looked into
};

// --- how ---

enum reconcile_mode { RECONCILE_OFF = 0, RECONCILE_OBSERVE, RECONCILE_ENFORCE };
enum reconcile_guard {
    RECONCILE_GUARD_OFF = 0,
    RECONCILE_GUARD_OBSERVE,
    RECONCILE_GUARD_ENFORCE
};

struct reconcile_config {
    enum reconcile_mode mode;
    int64_t confirm_after_ns;  // between two complete snapshots that agree
    int64_t starting_grace_ns; // a STARTING row is left alone for so long after we first saw it
    // Brake: of a type's rows at most max(1, so many thousandths) begin to be removed within
    // confirm_after.
    uint32_t max_permille;
};

struct reconcile_facts {
    struct instant now; // a snapshot that is older than confirm_after is not complete
    bool is_leader;     // our meta is the verified leader, now and since the snapshot was taken
    uint64_t term;
    enum reconcile_guard guard;
    bool intent_open; // a call of ours is announced or under way
    struct worker_snapshot snapshot;
};

// What is remembered from pass to pass: since when rows are known and their death is agreed
// upon, and the last state of each pod that a row may depend on. Lives in one block of the
// caller's; nothing points out of it. Not to be looked into.
struct reconcile_memory {
    struct row_memory *rows;
    struct pod_memory *pods;
    int32_t *row_heads; // of chains by hash
    int32_t *pod_heads;
    uint32_t row_capacity;
    uint32_t pod_capacity;
    uint32_t row_slots; // powers of two
    uint32_t pod_slots;
    uint32_t row_count;
    uint32_t pod_count;
    int32_t row_free; // chains of entries that are free; -1: none
    int32_t pod_free;
    uint64_t term;
    struct instant last_taken; // of the last complete snapshot; ns 0: none
    uint32_t pass;
    bool was_leader;
    struct instant window_began[WORKER_TYPES]; // of the brake; ns 0: not begun
    uint32_t window_used[WORKER_TYPES];
};

// Bytes for so many rows and pods (listed now, or gone and still of importance to a row): about
// 80 a row, 100 a pod. 8-byte aligned, which malloc gives.
size_t reconcile_memory_bytes(uint32_t rows, uint32_t pods);
void reconcile_memory_init(struct reconcile_memory *memory, void *block, uint32_t rows,
                           uint32_t pods);
// Whether a pass over so many works without leaving rows at REASON_TOO_MANY. If not: make a
// larger one, and move.
bool reconcile_memory_fits(const struct reconcile_memory *memory, uint32_t rows, uint32_t pods);
// Copies all that is remembered into one that was just made and is not smaller.
void reconcile_memory_move(struct reconcile_memory *to, const struct reconcile_memory *from);

// Bytes of scratch for one pass.
size_t reconcile_scratch_bytes(uint32_t rows, uint32_t pods, uint32_t endpoints);

// An event of the watch of pods, between two snapshots: the last state of a pod that goes is
// seen nowhere else. For DELETED, `pod` is the object that the event carries. Order and
// repetition don't matter: an end is final.
void reconcile_saw_pod(struct reconcile_memory *memory, const struct worker_pod *pod,
                       bool is_deleted);

// Judges every row of the snapshot and plans what may be done. Bounded by rows + pods +
// endpoints; facts.snapshot's arrays may be in any order; ids must be unique (of two rows with
// one id both are REASON_AMBIGUOUS).
void reconcile_decide(const struct reconcile_config *config,
                      const struct reconcile_facts *facts, struct reconcile_memory *memory,
                      struct reconcile_plan *plan);

// The same in steps of `units` rows, pods or endpoints; true: done. Until then the snapshot's
// arrays, memory and plan stay where they are, and nothing else is called for that memory:
// events of the watch wait. One that is not gone on with ends with reconcile_abort(): no proof
// of before counts any more.
void reconcile_begin(const struct reconcile_config *config, const struct reconcile_facts *facts,
                     struct reconcile_memory *memory, struct reconcile_plan *plan);
bool reconcile_step(struct reconcile_plan *plan, uint32_t units);
void reconcile_abort(struct reconcile_memory *memory);

// Between two passes it could not be looked: whatever was being confirmed is confirmed anew,
// from the next snapshot on. What was buried stays known.
void reconcile_interrupted(struct reconcile_memory *memory);

// The UID of the pod whose row it was, for tombstone, log and history; "" for -1. Valid until
// the memory changes.
const char *reconcile_pod_uid(const struct reconcile_memory *memory, int32_t known_pod);

// A tombstone was refused (another term, too many) and surely not written: it is not taken back
// as if it were there. One that got no answer may be there.
void reconcile_bury_failed(struct reconcile_memory *memory, int32_t worker_id);
// It was not taken back, or may not have been: the next pass asks again, also of a row that is
// not there any more, unless the row is GONE once more.
void reconcile_unbury_failed(struct reconcile_memory *memory, int32_t worker_id);
