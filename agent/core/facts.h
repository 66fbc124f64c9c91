// SPDX-License-Identifier: Apache-2.0
#pragma once
// facts: everything that a decision may look at, and `now`. Each fact says whether it is known
// and when it was observed. The shell fills them, the core only reads them; strings are copied
// in, so facts own themselves and a turn can be recorded and replayed.

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "fence/proto.h"

#define FACT_ID_SIZE 256

// What the last answered read found in the election row.
enum row_state {
    ROW_ABSENT = 0,
    ROW_OURS,
    ROW_OTHER,
    ROW_BROKEN,
};

// Why a row is ROW_BROKEN.
enum row_defect {
    ROW_DEFECT_NONE = 0,
    ROW_DEFECT_HEARTBEAT_NULL,
    ROW_DEFECT_HEARTBEAT_FUTURE, // beyond max_clock_jump ahead of the database's own clock
    ROW_DEFECT_RELATION_MISSING,
    ROW_DEFECT_UNREADABLE, // wrong type, NULL id, …
};

// The last answered read of the election, from a primary. Answers are applied in send order. A
// standby's answer is no read.
struct election_fact {
    bool known;
    struct instant sent_at; // before the query was sent: all arithmetic starts here
    struct instant received_at;
    enum row_state row;
    enum row_defect defect;
    char owner_id[FACT_ID_SIZE];
    int64_t heartbeat_us; // last_heartbeat, µs since 1970 by the database's clock
    int64_t db_now_us;    // the database's clock when it read the row
    int64_t age_ns;       // db_now - last_heartbeat; negative: in the future
    bool members_known;
    uint32_t other_members; // rows in election_member with another id, fresh or not
    bool term_known;        // the term trigger is installed and its row was read
    uint64_t term;
    char term_owner_id[FACT_ID_SIZE];
    char owner_tag[FENCE_TAG_SIZE];     // of the term's owner; empty: untagged
    char heartbeat_tag[FENCE_TAG_SIZE]; // who wrote this heartbeat; empty: not known
    // The tag that the read asked about; the next two are its, and count only while it is the
    // tag of the incarnation that runs now: a read sent just before a restart speaks of the
    // dead one.
    char asked_tag[FENCE_TAG_SIZE];
    bool tag_owned_term; // asked_tag owned some term
    bool tag_superseded; // … and is marked superseded
    bool guard_enforcing;
    uint64_t system_id; // 0: not known
    uint32_t timeline;  // 0: not known
};

enum database_state {
    DATABASE_UNKNOWN = 0, // nothing answered or failed yet
    DATABASE_ANSWERS,
    DATABASE_SILENT, // time-outs, refused connections, resets, 57P0x: errors that only count to
                     // the deadline
    DATABASE_REFUSES, // it answered, with a refusal: class 28, 42501, 3D000, 53300
    DATABASE_STANDBY,
};

struct database_fact {
    enum database_state state;
    struct instant since;
};

enum rpc_answer {
    RPC_UNKNOWN = 0, // not asked, no answer, garbage
    RPC_LEADING,     // GetClusterRecoveryStatus answered OK
    RPC_FOLLOWING,   // UNIMPLEMENTED
    RPC_REFUSED,     // nobody listens
};

struct rpc_fact {
    enum rpc_answer answer;
    uint64_t incarnation; // that it was asked of
    struct instant sent_at;
    struct instant observed_at;
};

// What metafence-run last said. known=false: not connected, or nothing received since the
// connect.
struct fence_fact {
    bool known;
    struct instant received_at;
    struct fence_status status;
};

// What the Kubernetes API says about our pod. known=false without a cluster.
struct api_fact {
    bool known;
    struct instant observed_at;
    bool lists_our_uid;   // our name with our uid, without deletion time
    bool lists_other_uid; // our name with another uid
};

// What an operator asked for. A new agent process starts with what metafence-run has latched
// (SHIM_MANUAL, status.pause_end_ns): the shell copies both in here before the first decision,
// and from then on only the operator changes them. The core cannot do it: it could not tell a
// latch that outlived the agent from one that the operator has just taken back.
struct order_fact {
    bool manual_fence;
    struct instant pause_end; // ns 0: not paused
    uint64_t handover;        // incarnation that is to die so that another one leads; 0: none
};

// What has been done after a death, as confirmed by Postgres. 0: nothing yet.
struct cleanup_fact {
    uint64_t sessions_gone;  // incarnation whose sessions were seen to be gone
    uint64_t death_recorded; // incarnation whose death Postgres has written down
};

// What can end meta besides the order that is sent, as of this turn. The shell finds it out.
struct method_fact {
    bool by_pidfd;   // there is no metafence-run: our own watch on /proc takes the orders, and
                     // kills
    bool unusable;   // … but it may not kill meta, or can't tell which process that is
    bool pidfd;      // beside metafence-run: meta's process is seen in /proc and may be killed
    bool kubelet;    // a kubelet probes meta's container
    bool delete_pod; // the API is ready to delete our pod
};

// What the comparison of the worker rows with the leader's memory has found.
struct workers_fact {
    uint64_t diverged_incarnation; // whose memory only a restart can mend; 0: nobody's
    bool untagged_writers;         // sessions without a tag write metadata
};

// What the order of a recovery wants of our meta.
struct recovery_fact {
    bool holds_start; // the dead leader's compute nodes are being reset
};

struct facts {
    struct instant now;
    int64_t suspended_ns; // growth of BOOTTIME against MONOTONIC since the previous turn
    struct election_fact election;
    struct database_fact database;
    struct rpc_fact rpc;
    struct fence_fact fence;
    // A death that the shell itself has proven while metafence-run could not tell: all pidfds
    // of that incarnation are readable. Its wait_status is not known. incarnation 0: none.
    struct fence_death proven;
    struct method_fact methods;
    struct api_fact api;
    struct order_fact orders;
    struct cleanup_fact cleanup;
    struct workers_fact workers;
    struct recovery_fact recovery;
};
