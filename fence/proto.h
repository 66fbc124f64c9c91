// SPDX-License-Identifier: Apache-2.0
#pragma once
// proto: what the agent and metafence-run tell each other over one SOCK_SEQPACKET unix socket,
// and what metafence-run keeps in its state file. Fixed-size messages, one per packet, native
// byte order (same node, same build family). Both directions are level-triggered: the newest
// message replaces all older ones, so a lost or repeated message is harmless. Invariant: an
// order speaks of one incarnation; taken for another one it permits nothing and kills nobody.

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

#define FENCE_PROTO_VERSION 1
#define FENCE_ORDER_MAGIC   UINT32_C(0x4d464f31) // "MFO1"
#define FENCE_STATUS_MAGIC  UINT32_C(0x4d465331) // "MFS1"
#define FENCE_TAG_SIZE      64                   // Postgres cuts application_name at 63 bytes

// What the agent wants of the incarnation it names.
enum fence_role {
    FENCE_ROLE_KEEP = 0, // no opinion: what was permitted stays permitted until its own end
    FENCE_ROLE_FOLLOWER, // a good read showed another id or no row (order.read_ns says when)
    FENCE_ROLE_LEADER,   // may lead until order.deadline_ns
    FENCE_ROLE_KILL,     // must die now
};

// Why a process was killed. Names are what logs, metrics and events show.
enum fence_reason {
    FENCE_REASON_NONE = 0,
    FENCE_REASON_MANUAL,
    FENCE_REASON_LEASE_EXPIRED,
    FENCE_REASON_AGENT_LOST,
    FENCE_REASON_SUPERSEDED,
    FENCE_REASON_TWIN_IDENTITY,
    FENCE_REASON_DATABASE_REPLACED,
    FENCE_REASON_PHANTOM_LEADER,
    FENCE_REASON_DIVERGED_LEADER,
    FENCE_REASON_HANDOVER, // ordered: another one is to lead
    FENCE_REASON_LAST = FENCE_REASON_HANDOVER,
};

// The election row in the agent's last good read.
enum fence_row {
    FENCE_ROW_UNKNOWN = 0, // never read, or broken
    FENCE_ROW_ABSENT,
    FENCE_ROW_OTHER,
    FENCE_ROW_OURS,
};

enum fence_database {
    FENCE_DATABASE_UNKNOWN = 0, // the agent has no verdict yet
    FENCE_DATABASE_UP,
    FENCE_DATABASE_DOWN, // known unreachable or refusing
};

enum fence_order_flag {
    FENCE_ORDER_ARMED = 1U << 0,   // this pod's agent has completed a good read: silence counts
    FENCE_ORDER_ENGAGED = 1U << 1, // the agent saw signs of leading that ports do not show
    FENCE_ORDER_SUPERSEDED =
        1U << 2, // this incarnation lost leadership once: latched for its life
    FENCE_ORDER_MANUAL_HOLD = 1U << 3,  // keep down until unfenced
    FENCE_ORDER_TWIN_HOLD = 1U << 4,    // keep down while a twin renews our id
    FENCE_ORDER_PHANTOM_HOLD = 1U << 5, // keep down until another id is seen or ttl has passed
    FENCE_ORDER_RESET_HOLD = 1U << 6,   // keep down until the compute nodes have reset
};

// agent -> metafence-run
struct fence_order {
    uint32_t magic;
    uint16_t version;
    uint16_t size;
    uint64_t seq; // strictly increasing within one connection
    uint64_t
        incarnation; // the incarnation that role, reason and the per-incarnation flags speak of
    uint32_t role;   // enum fence_role
    uint32_t reason; // enum fence_reason, for FENCE_ROLE_KILL
    uint32_t flags;  // enum fence_order_flag
    uint32_t row;    // enum fence_row, of the last good read
    uint32_t database;    // enum fence_database
    uint32_t timeline;    // identity of the database that the permit is built on; 0 unknown
    uint64_t system_id;   // same; 0 unknown
    uint64_t term;        // 0 unknown
    int64_t deadline_ns;  // BOOTTIME, end of a leader permit
    int64_t pause_end_ns; // BOOTTIME, 0: not paused. Travels along so that a pause ends without
                          // an agent
    int64_t read_ns;      // BOOTTIME, t_send of the last good read; 0: none
    int64_t heartbeat_age_ns; // of the row at read_ns, by the database's clock; may be negative
    int64_t heartbeat_still_ns; // for how long the agent's reads saw this very heartbeat not
                                // advance
    char heartbeat_tag[FENCE_TAG_SIZE]; // session tag that wrote it; empty: not known
    uint32_t checksum;
    uint32_t reserved; // zero
};

enum shim_state {
    SHIM_HOLDING = 0, // meta is down and waits at the start gate (hold_reason says for what)
    SHIM_RUNNING,
    SHIM_KILLING,     // SIGKILL sent, death not confirmed yet
    SHIM_TERMINATING, // TERM came: nothing is started any more
    SHIM_ENDED,       // metafence-run exits
};

// Why meta is not started. Every hold but Manual is bounded.
enum shim_hold {
    SHIM_HOLD_NONE = 0,
    SHIM_HOLD_MANUAL,
    SHIM_HOLD_AGENT_REQUIRED, // --require-agent and none has armed yet
    SHIM_HOLD_TWIN,
    SHIM_HOLD_PHANTOM,
    SHIM_HOLD_IDENTITY, // the row carries our id and nothing proves that nobody renews it
    SHIM_HOLD_LEASE,    // we lost the lease by silence: healthy peers go first
    SHIM_HOLD_DATABASE, // known unreachable: meta would only abort
    SHIM_HOLD_STORM,
    SHIM_HOLD_BACKOFF,  // it ended by itself too quickly
    SHIM_HOLD_RESET,    // the compute nodes of the leader that it was are being reset
    SHIM_HOLD_HANDOVER, // ordered: another one is to lead first
    SHIM_HOLD_LAST = SHIM_HOLD_HANDOVER,
};

enum shim_flag {
    SHIM_ENGAGED = 1U << 0,
    SHIM_SUPERSEDED = 1U << 1,
    SHIM_ARMED = 1U << 2,
    SHIM_MANUAL = 1U << 3,
    SHIM_AGENT_PRESENT = 1U << 4,
    SHIM_TERM_RECEIVED = 1U << 5,
    SHIM_MEMORY_LOCKED = 1U << 6,
    SHIM_ALIVE = 1U << 7, // a process of the current incarnation may still run
    // The deadline has passed, the agent is lost and --when-agent-lost=hold: it lives on, not
    // covered.
    SHIM_SILENCE_HELD = 1U << 8,
};

enum shim_port {
    SHIM_PORTS_KNOWN = 1U << 0,
    SHIM_PORT_SERVICE = 1U << 1,
    SHIM_PORT_METRICS = 1U << 2,
    SHIM_PORT_DASHBOARD = 1U << 3,
};

// The last incarnation that ended, with proof: waitpid said so (dead_ns), no guess.
struct fence_death {
    uint64_t incarnation; // 0: none yet
    char tag[FENCE_TAG_SIZE];
    uint32_t reason;     // enum fence_reason; NONE: it ended by itself
    int32_t wait_status; // as from waitpid
    int64_t decided_ns;  // when the kill was decided; 0 without a kill
    int64_t dead_ns;     // when the whole tree was reaped
    int64_t deadline_ns; // leader deadline that applied to it; 0: none
    uint32_t engaged;    // 0 or 1
    uint32_t reserved;
};

// metafence-run -> agent on connect, after each order and on each change; also the state file's
// content.
struct fence_status {
    uint32_t magic;
    uint16_t version;
    uint16_t size;
    uint64_t order_seq; // last order taken from this connection
    int64_t written_ns; // BOOTTIME
    char boot_id[40]; // of the kernel: a file of an earlier boot proves all its processes dead
    uint64_t incarnation;
    int32_t pid;          // of meta, 0: none
    uint32_t state;       // enum shim_state
    uint64_t start_ticks; // field 22 of /proc/PID/stat: with pid it names a process
    int64_t started_ns;
    char tag[FENCE_TAG_SIZE];
    uint32_t flags;     // enum shim_flag
    uint32_t ports;     // enum shim_port
    int64_t engaged_ns; // when engagement was seen; 0: not engaged
    uint32_t permit;    // enum fence_role: FOLLOWER, LEADER or KEEP (never permitted)
    uint32_t hold;      // enum shim_hold
    // When metafence-run kills by itself (a pause included); once killing: when the process has
    // to be dead; 0: no deadline.
    int64_t deadline_ns;
    int64_t hold_until_ns; // latest end of the hold without further news; INT64_MAX: no bound
                           // (Manual)
    int64_t pause_end_ns;
    uint64_t
        system_id; // database identity that the incarnation's first leader permit was built on
    uint32_t timeline;
    uint32_t restarts; // starts after the first
    uint64_t term;
    uint32_t kills;  // that count for the storm limit, ever
    uint32_t fences; // kills for any reason, ever
    struct fence_death last_death;
    uint32_t checksum;
    uint32_t reserved;
};

_Static_assert(sizeof(struct fence_order) == 176, "fence_order has no padding");
_Static_assert(sizeof(struct fence_status) == 360, "fence_status has no padding");

// Fill magic, version, size and checksum (CRC-32 as in zlib, over the whole struct with
// checksum = 0). The other fields are the caller's.
void fence_order_seal(struct fence_order *order);
void fence_status_seal(struct fence_status *status);

// Copy a received packet or file into *ret if it is whole, of our version, intact, and each
// field is in its range (enums, NUL-terminated strings, no negative instants, a leader permit
// has a deadline, a kill a reason, both name an incarnation). Errors: INVALID with field and
// value.
must_check int fence_order_parse(const void *bytes, size_t size, struct fence_order *ret,
                                 struct err *err);
must_check int fence_status_parse(const void *bytes, size_t size, struct fence_status *ret,
                                  struct err *err);

const char *fence_reason_name(enum fence_reason reason); // "Superseded"; "None"
const char *shim_hold_name(enum shim_hold hold);         // "Identity"; "None"
const char *shim_state_name(enum shim_state state);
const char *fence_role_name(enum fence_role role);
