// SPDX-License-Identifier: Apache-2.0
#pragma once
// decide: the whole judgement of metafence, pure and level-triggered: no clock, no I/O, no
// allocation, no errno; the same facts and memory give the same plan. The rules are tried in
// the order of enum rule; the first that holds fires, and its name goes to log, metric and
// status. Invariants: a permit never outlives (heartbeat + ttl) - margin - kill_budget by our
// clock; an error is never a verdict; evidence about a row counts against an incarnation only
// if it was read after that incarnation was seen to be engaged; nobody is killed before this
// pod's agent has completed a good read.

#include "agent/core/facts.h"

enum rule {
    RULE_MANUAL_FENCE = 0,
    RULE_PAUSED,
    RULE_DATABASE_REPLACED,
    RULE_SUPERSEDED,
    RULE_TWIN_IDENTITY,
    RULE_LEASE_EXPIRED,
    RULE_PHANTOM_LEADER,
    RULE_PROMOTING,
    RULE_HANDOVER,
    RULE_DIVERGED_LEADER,
    RULE_LEADER,
    RULE_FOLLOWER,
    RULE_ROW_BROKEN,
    RULE_UNKNOWN,
    RULE_COUNT,
};

const char *rule_name(enum rule rule); // "LeaseExpired"

enum on_silence {
    ON_SILENCE_AUTO = 0, // hold a provably single replica, fence everybody else
    ON_SILENCE_FENCE,
};

struct core_config {
    char id[FACT_ID_SIZE]; // meta's advertise address; compared case-insensitively
    int64_t ttl_ns;
    int64_t poll_ns;
    int64_t connect_timeout_ns;
    int64_t query_timeout_ns;
    int64_t renew_gap_ns;
    int64_t margin_ns;
    int64_t kill_budget_ns;
    int64_t max_clock_jump_ns;
    int64_t phantom_after_ns;
    int64_t promote_after_ns;
    int64_t confirm_after_ns;
    enum on_silence on_silence;
};

// Refuses a timing that cannot keep P1: 2*(connect + query) + poll + renew_gap + margin +
// kill_budget must be < ttl. Errors: INVALID; the message has both sides with their numbers and
// what to change.
must_check int core_config_check(const struct core_config *config, struct err *err);

// What a leader is permitted until, from one read: sent_at + (ttl - age) - margin -
// kill_budget. A negative age (a heartbeat slightly ahead of the clock that read it) counts as
// 0. Saturates, never overflows.
struct instant lease_deadline(const struct core_config *config, struct instant sent_at,
                              int64_t age_ns);

// Memory of one agent process between turns. Zero is a valid start; the latches that must
// outlive the agent are read back from metafence-run's status before the first decision.
struct core_memory {
    bool armed;
    // The heartbeat in the row and how it moved, across reads of our own row.
    bool heartbeat_seen;
    int64_t heartbeat_us;
    struct instant heartbeat_first_sent; // sent_at of the first read that showed this heartbeat
    bool heartbeat_advanced; // seen to advance by our incarnation (or one that cannot be told
                             // from it)
    bool foreign_advanced;   // … by a known other session, last
    struct instant heartbeat_last_sent; // … and of the last one
    struct instant last_read_sent;      // newest read taken into account
    struct instant good_read_sent;      // newest of them that was no ROW_BROKEN
    // Permit of the incarnation below.
    uint64_t incarnation;
    char tag[FENCE_TAG_SIZE]; // of the incarnation; "": not known yet
    struct instant deadline;  // ns 0: none yet
    bool superseded;          // latched for the incarnation
    bool engaged;             // latched
    struct instant engaged_at;
    struct instant not_leading_at; // newest proof that it does not hold the lease: a lease of
                                   // its own is not older. ns 0: none
    uint64_t system_id; // identity and term that the first leader permit was built on
    uint32_t timeline;
    uint64_t term;
    // Clock of the database against ours at the last good read: between db_now - received_at
    // and db_now - sent_at, so that a slow answer is not taken for a jump.
    bool offset_known;
    int64_t offset_ns;
    int64_t offset_low_ns;
    bool proof_void;        // after a clock jump: only a fresh, advancing heartbeat gives a new
                            // deadline
    struct instant void_at; // reads sent before do not count as fresh
    // Phantom and promotion timers.
    struct instant ours_unimplemented_since; // ns 0: not so now
    struct instant unimplemented_seen;       // last such answer: a longer gap ends the series
    struct instant promoting_since;
    // Single replica evidence.
    struct instant
        alone_since; // sent_at of the first of an unbroken row of reads without other member
    struct instant alone_until; // sent_at of the last of them
    // Twin.
    bool twin_held; // our own was killed because a twin renews our id
    bool phantom_held;
    struct instant kill_since; // a kill is wanted, of an incarnation that may live. ns 0: none
    uint64_t kill_incarnation;
    int64_t kill_unwatched_ns; // since then, without a decision: no method had that time
    struct instant last_turn;
    enum rule last_rule;
};

enum role_label { LABEL_UNKNOWN = 0, LABEL_LEADER, LABEL_FOLLOWER };

enum not_covered {
    NOT_COVERED_PAUSED = 1U << 0,
    NOT_COVERED_UNARMED = 1U << 1,          // no good read yet
    NOT_COVERED_AGENT_BLIND = 1U << 2,      // Postgres refuses us, the guard enforces
    NOT_COVERED_SINGLE_REPLICA = 1U << 3,   // LeaseExpired held
    NOT_COVERED_NO_FENCE = 1U << 4,         // metafence-run is not connected
    NOT_COVERED_UNTAGGED = 1U << 5,         // no term trigger: twins cannot be told apart
    NOT_COVERED_UNUSABLE = 1U << 6,         // meta can't be killed, or can't be told apart
    NOT_COVERED_UNTAGGED_WRITERS = 1U << 7, // the guard lets whoever has no tag pass
};

// How meta is ended, best first. The next one is tried when death is not confirmed in time.
enum fence_method {
    FENCE_METHOD_NONE = 0,
    FENCE_METHOD_PERMIT,  // by metafence-run
    FENCE_METHOD_PIDFD,   // by ourselves
    FENCE_METHOD_KUBELET, // meta's liveness probe fails
    FENCE_METHOD_API,     // our pod is deleted
};

const char *fence_method_name(enum fence_method method); // "Pidfd"
// "pidfd", as metrics and Postgres say it; NONE, for a process that ended by itself: "exit".
const char *fence_method_word(enum fence_method method);

// A kill was wanted and is not confirmed within kill_budget: of the decision; for sessions also
// of the moment from which Postgres answers.
enum not_fenced {
    NOT_FENCED_NO = 0,
    NOT_FENCED_ALIVE,    // it may still run
    NOT_FENCED_SESSIONS, // it is dead, but its sessions are not seen to be gone
};

enum action_kind {
    ACTION_ORDER,          // send plan.order to metafence-run
    ACTION_LABEL,          // own role label := plan.label
    ACTION_READ,           // ask for a fresh read now
    ACTION_ASK_STATUS,     // ask meta's GetClusterRecoveryStatus
    ACTION_END_SESSIONS,   // of tag, in Postgres, until none is left
    ACTION_RECORD_DEATH,   // of plan.death, in Postgres
    ACTION_DROP_PHANTOM,   // DELETE … WHERE id = ours AND last_heartbeat = heartbeat_us
    ACTION_KILL_PIDFD,     // kill the incarnation of plan.order, beside metafence-run
    ACTION_DELETE_POD,     // our own; again each confirm_after
    ACTION_COMPLETE_GUARD, // put the guard on tables that have appeared since the installation
};

struct action {
    enum action_kind kind;
};

#define PLAN_ACTIONS_MAX 8

struct plan {
    enum rule rule;
    enum role_label label;
    struct fence_order order; // unsealed: seq, magic, checksum are the shell's
    uint32_t action_count;
    struct action actions[PLAN_ACTIONS_MAX];
    // For END_SESSIONS, RECORD_DEATH and DROP_PHANTOM: whom they are about. NONE and reason
    // NONE: it ended by itself.
    uint64_t dead_incarnation;
    char dead_tag[FENCE_TAG_SIZE];
    enum fence_reason dead_reason;
    enum fence_method dead_method;
    int64_t phantom_heartbeat_us; // for DROP_PHANTOM
    enum fence_method method;     // in use; NONE: nobody has to die
    enum not_fenced not_fenced;
    struct instant not_fenced_since; // when the kill was decided
    uint32_t not_covered;            // enum not_covered
    struct instant wake_at;          // decide again at the latest then
};

// One turn. Order of work: take new reads into memory (offset, heartbeat, arming, engagement),
// then the first rule that holds fills the plan. `ret_plan` is wholly overwritten.
void decide(const struct core_config *config, const struct facts *facts,
            struct core_memory *memory, struct plan *ret_plan);
