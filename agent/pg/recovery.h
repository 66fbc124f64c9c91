// SPDX-License-Identifier: Apache-2.0
#pragma once
// recovery: what the agent beside the leader asks the metafence schema about recoveries, and
// what it tells the gate before the purge (sql/gate.sql, sql/recovery_state.sql). Parsing is
// pure and works on the fields of one row; NULL is SQL NULL. Every error names the column, what
// is there and what to do.

#include "agent/pg/election.h"

#define RECOVERY_VERSION_SIZE  128
#define RECOVERY_SNAPSHOT_SIZE 4096

enum recovery_mode { RECOVERY_OFF, RECOVERY_OBSERVE, RECOVERY_ENFORCE };
enum recovery_policy { RECOVERY_OPEN, RECOVERY_HOLD };

// What is known of the deaths of all who owned a term before, by the weakest.
enum recovery_deaths {
    RECOVERY_DEATHS_UNKNOWN,
    RECOVERY_DEATHS_IMPLIED,
    RECOVERY_DEATHS_CONFIRMED
};

// metafence.recovery_state().
struct recovery_state {
    bool is_standby;
    uint64_t term;
    char owner_tag[ELECTION_TAG_SIZE];   // "": untagged
    enum recovery_mode mode;             // one that is not known is off
    char version[RECOVERY_VERSION_SIZE]; // newest migration of RisingWave; "": not known
    bool is_verified;                    // else enforce does as observe
    // Goes with the acknowledgements of what is asked from now on. "": too long to be kept.
    char snapshot[RECOVERY_SNAPSHOT_SIZE];

    int64_t id;         // of the open global recovery; 0: none, and the next five don't matter
    uint32_t attempts;  // 0: opened by the takeover, no attempt seen yet
    int64_t attempt;    // number of the newest, the same in no two recoveries; 0: none
    uint32_t refused;   // attempts that the gate has ended
    int64_t age_ms;     // since it was opened
    bool is_hold_known; // the gate of the leader's agent was refreshed at least once
    int64_t hold_left_ms; // until maxHold opens the gate; 0: it has

    enum recovery_policy policy; // of the leader's agent; RECOVERY_OPEN: none
    bool is_gate_fresh;          // else nothing is held
    bool is_waiting;             // a removal is in the gate now
    bool is_refused;             // the newest attempt ended there
    int64_t refused_ago_ms;      // since the last refusal in this recovery; -1: none

    uint32_t dropped;       // fragments whose state tables are still to be removed
    int64_t dropped_age_ms; // of the oldest; 0: none
    bool is_catalog_known;  // RisingWave's tables could be read: the next three are set
    uint32_t creating;      // jobs that are being made
    uint32_t live;          // compute nodes that run
    uint32_t missing;       // ... without an acknowledgement that counts
    bool has_database_recovery;
    bool is_pooled; // a pooler hands the metas' sessions around: nothing is held
    uint32_t round; // how often what was acknowledged in this recovery has been used up
    bool may_build; // actors may be under construction that no statistics show
    enum recovery_deaths predecessor;
};

enum recovery_kind { RECOVERY_WORKER, RECOVERY_DROPPED, RECOVERY_CREATING };

// One row of metafence.recovery_rows(). Strings are borrowed; what a kind has not is NULL or 0.
struct recovery_row {
    enum recovery_kind kind;
    int64_t id;                         // of the worker, the fragment or the job
    int64_t job_id;                     // dropped, creating
    const char *name;                   // of the job; NULL: not known
    const char *host;                   // worker
    int32_t port;                       // worker
    bool is_running;                    // worker: else it is starting
    bool has_reset, has_none, has_gone; // worker: acknowledgements that count
    const char *tables;                 // dropped: "1001 1002", the first 100
    int64_t age_ms;                     // dropped, creating
};

enum {
    RECOVERY_STATE_FIELDS = 28,
    RECOVERY_ROW_FIELDS = 10,
};

extern const char recovery_sql_state[]; // $1 service
extern const char recovery_sql_rows[];  // $1 service; ask after the state
// Attempts and removals that passed are notified on this channel from then on, beside the
// terms: payloads "recovery <id> <term> <scope> <attempt>" and "passed <id> <term> <why>".
extern const char recovery_sql_listen[];

must_check int recovery_parse_state(const char *const *fields, struct recovery_state *ret,
                                    struct err *err);
must_check int recovery_parse_row(const char *const *fields, struct recovery_row *ret,
                                  struct err *err);

// The state of a reply to recovery_sql_state. Errors: as the reply's fault, with what to do
// about a missing schema or right (DENIED); INVALID.
must_check int recovery_take_state(const struct pg_reply *reply, struct recovery_state *ret,
                                   struct err *err);

// The requests below fail at once with TRANSIENT, and `fn` is not called, when too many wait
// already. Everything is copied.

struct recovery_gate {
    const char *service;
    const char *tag; // of the incarnation that this agent stands beside
    enum recovery_policy policy;
    int64_t max_hold_ms;
    int64_t lifetime_ms; // without a refresh it opens then; 60 s at most
    int64_t
        dead_after_ms; // so long after its last renewal it is dead, whatever happens; -1: no
};
// count 1: refreshed; 0: the incarnation has lost its term.
must_check int recovery_refresh(struct election *election, const struct recovery_gate *gate,
                                election_done_fn *fn, void *arg, struct err *err);

// ASKED is no evidence: the node is being killed, and is waited for from then on also when its
// row goes.
enum recovery_how { RECOVERY_RESET, RECOVERY_NONE, RECOVERY_GONE, RECOVERY_ASKED };

struct recovery_ack {
    int64_t recovery; // state.id
    int32_t worker_id;
    const char *host;
    int32_t port;
    enum recovery_how how;
    const char *evidence; // JSON; NULL: none
    const char *snapshot; // state.snapshot, read before the node was asked; NULL or "": unknown
};
// count 1: noted; 0: that recovery is not open any more. After a fault it may be sent again.
must_check int recovery_acknowledge(struct election *election, const struct recovery_ack *ack,
                                    election_done_fn *fn, void *arg, struct err *err);

// The leader said that it runs, and was asked after `state` was read. count 1: closed; 0: it
// was, or another attempt has begun.
must_check int recovery_end(struct election *election, const struct recovery_state *state,
                            election_done_fn *fn, void *arg, struct err *err);
