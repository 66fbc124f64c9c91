// SPDX-License-Identifier: Apache-2.0
#pragma once
// parts: what the files of this folder share; nobody else includes it. Answers change what is
// known and feed the agent; its turn fills the facts, asks the order, and does what it plans.

#include <stdbool.h>
#include <stdint.h>

#include "agent/grpc/client.h"
#include "agent/grpc/compute.h"
#include "agent/pg/answer.h"
#include "agent/pg/recovery.h"
#include "agent/reclaim/drops.h"
#include "agent/reclaim/gone.h"
#include "agent/reclaim/known.h"
#include "agent/reclaim/reclaim.h"
#include "agent/recovery/order.h"
#include "base/loop.h"
#include "base/resolve.h"
#include "k8s/pod.h"

#define RECLAIM_MARGIN_NS                                                                      \
    NS_PER_SEC // between the last moment of an Init and the gate's opening
#define RECLAIM_GATE_NS (10 * NS_PER_SEC) // how long our row at the gate counts

struct k8s_follow;
struct k8s_list;
struct k8s_request;
struct reclaim_node;

// A call under way: its name is looked up, then it is sent.
struct reclaim_call {
    struct reclaim *reclaim;
    struct reclaim_node *node;
    enum grpc_compute_kind kind;
    uint32_t serial;
    struct instant deadline;
    bool is_sent; // its bytes have left
    struct resolve_query *query;
    struct grpc_compute_call *call;
    // Of what was known before the node was asked: goes with its acknowledgement.
    char *snapshot;
    uint64_t revision; // of the drops that statistics are compared with
};

// The fence of a node: its pod is looked at once more, then deleted. Of this hold.
struct reclaim_kill {
    bool is_wanted;              // and not given up since
    bool is_noted;               // in Postgres: the gate waits for it also without its row
    struct k8s_request *request; // either
    uint64_t process;            // whose end is wanted
    struct instant looked_at;    // before the API was asked for it
    struct instant agreed_at;    // the API has begun to delete it; ns 0: not yet
    bool was_denied;             // and said so
    char uid[64];                // of the pod
};

struct reclaim_node {
    char host[256];
    int32_t port;
    int32_t worker_id;
    struct address address; // of host
    bool is_listed;         // in the last rows
    struct reclaim_call init, stats;
    char *snapshot;                   // owned; of what has proven its present evidence
    enum order_evidence snapshot_how; // … which is this
    uint64_t none_revision;           // of the NONE that we have written; 0: none
    bool is_writing;                  // an acknowledgement, as follows
    enum order_evidence writing_how;
    uint64_t writing_revision;
    uint64_t base_pod;  // of the first look in this hold; 0: none yet
    bool is_looked_for; // by the list under way
    struct gone_look look;
    char pod_name[254]; // of what the last look has told
    bool was_ended;     // that process, in this hold, whatever is listed since
    struct reclaim_kill kill;
    bool is_noting;       // that it is being killed
    uint64_t noting_hold; // … in this hold
    uint32_t noting_round;
    enum order_evidence said;
    char detail[160]; // why the last Init brought nothing; "": it did
};

enum reclaim_count { // for metrics
    RECLAIM_INIT_SENT = 0,
    RECLAIM_INIT_ANSWERED,
    RECLAIM_INIT_FAILED, // surely not done
    RECLAIM_INIT_UNKNOWN,
    RECLAIM_INIT_CANCELLED,
    RECLAIM_WRITTEN, // acknowledgements
    RECLAIM_WRITE_FAILED,
    RECLAIM_STARTS_HELD,
    RECLAIM_KILL_SENT, // deletes of compute nodes' pods
    RECLAIM_KILL_AGREED,
    RECLAIM_KILL_CHANGED, // not any more what was decided about, by our look or the API's word
    RECLAIM_KILL_DENIED,
    RECLAIM_KILL_FAILED,
    RECLAIM_KILL_CONFIRMED, // that process has ended
    RECLAIM_BOUNDS,         // maxHold, or resetBeforeStart, before all had acknowledged
    RECLAIM_COUNTS,
};

struct reclaim {
    struct agent *agent;
    struct order_config config;
    struct order_facts facts;
    struct order_memory *memory;
    struct order_plan *plan;

    // --- look.c ---
    struct pg_params params;
    struct pg *pg;
    struct election *election; // on pg
    struct loop_timer *poll;
    bool is_looking;          // a state, or its rows, are under way
    bool looks_again;         // something was notified meanwhile
    struct known_state asked; // the state whose rows are asked for
    struct known_state known;
    struct known_refusal refusal;
    bool rows_known; // of the same look as `known`
    struct drops drops;
    char error[256]; // of the last look or refresh; "": fine
    struct loop_timer *gate_timer;
    bool is_refreshing;
    char refreshing_tag[ELECTION_TAG_SIZE];
    char gate_tag[ELECTION_TAG_SIZE]; // of the row that was written last
    struct instant refresh_sent_at;
    struct instant refreshed_at; // before that row was written; ns 0: none of this incarnation
    struct grpc_client *asker;
    struct instant asked_status_at;
    int64_t running_attempt; // since `running_since` the leader says that it runs, in this one
    int64_t running_recovery;
    struct instant running_since;
    bool is_ending;

    // --- calls.c ---
    struct grpc_computes *computes;
    struct reclaim_node **nodes;
    struct order_node *node_facts; // same order
    size_t node_count, node_room;

    // --- pods.c ---
    struct k8s_list *pods; // under way
    struct instant pods_next_at;
    char pods_snapshot[RECOVERY_SNAPSHOT_SIZE]; // from before the list

    // --- ends.c ---
    struct k8s_follow *ends; // NULL: none is waited for

    // --- deeds.c ---
    enum order_cause cause; // of the last turn's hold, and which it was
    uint64_t hold;
    uint32_t round;
    uint64_t released; // dead incarnation whose successor may start
    uint64_t counts[RECLAIM_COUNTS];

    // --- tell.c: what was said last ---
    int64_t said_recovery;
    bool said_held;  // that a removal of it is refused
    bool said_bound; // of this hold
    enum order_step said_step;
    enum order_wait said_wait;
    enum order_block said_block;
    uint64_t said_start; // dead incarnation whose successor's start was said to be held
};

// --- reclaim.c ---

// The facts of this very moment.
void reclaim_fill(struct reclaim *reclaim);

// --- look.c ---

void look_begin(struct reclaim *reclaim);
void look_end(struct reclaim *reclaim);
// After each decision: asks for what it needs now.
void look_turn(struct reclaim *reclaim);

// --- calls.c ---

// The node of that row, added if it is new.
struct reclaim_node *calls_node(struct reclaim *reclaim, const struct recovery_row *row);
// Outside of a hold the list is what the rows are; within one it only grows.
void calls_begin_rows(struct reclaim *reclaim);
void calls_end_rows(struct reclaim *reclaim, bool may_forget);
void calls_init(struct reclaim *reclaim, size_t node, const struct order_node_plan *plan);
void calls_stats(struct reclaim *reclaim, size_t node, const struct order_node_plan *plan);
void calls_cancel_init(struct reclaim *reclaim, size_t node);
void calls_free(struct reclaim *reclaim);

// --- pods.c ---

void pods_turn(struct reclaim *reclaim); // after each decision
void pods_stop(struct reclaim *reclaim);
// Borrows from the pod. Errors: INVALID.
must_check int pods_parse(const struct k8s_pod *pod, uint16_t port, struct gone_pod *ret,
                          struct err *err);

// --- kills.c ---

// Unless it is under way, or the API has agreed and the end is to come.
void kills_begin(struct reclaim *reclaim, size_t node);
void kills_cancel(struct reclaim_node *node);
void kills_forget(struct reclaim_node *node); // of a hold that is over

// --- ends.c ---

// From that version on the workers' pods are followed for the kubelet's word on who was killed.
void ends_follow(struct reclaim *reclaim, const char *version);
// After a list. Where changes may have been missed it goes on from there.
void ends_go_on(struct reclaim *reclaim, const char *version);
void ends_stop(struct reclaim *reclaim);

// --- deeds.c ---

void deeds_run(struct reclaim *reclaim);

// --- tell.c ---

// What the turn has changed.
void tell_turn(struct reclaim *reclaim);
void tell_kill(struct reclaim *reclaim, const struct reclaim_node *node);
// `why` is what the API said.
void tell_kill_denied(struct reclaim *reclaim, const struct reclaim_node *node,
                      const char *why);
void tell_metrics(struct reclaim *reclaim);
