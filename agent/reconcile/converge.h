// SPDX-License-Identifier: Apache-2.0
#pragma once
// converge: whether the leader's memory has parted from the table, and the lightest cure. No
// RPC shows that memory, so the evidence is indirect: what the mutation log says was written by
// others after this leader had loaded its snapshot, and worker ids among its actors that the
// table lacks. A global recovery that is under way reads the table anew in each try: while the
// leader says so, nothing is asked of it, and one that takes long is an alarm and no more: an
// honest, slow recovery looks the same. Pure; state is the caller's.

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

enum converge_cure {
    CURE_NONE = 0,
    CURE_RECOVER,        // Recover: a global recovery reads the table anew
    CURE_RESTART_LEADER, // kill; the same id renews at once and loads a new snapshot
};
const char *converge_cure_name(enum converge_cure cure);

enum converge_reason {
    CONVERGE_FINE = 0,
    CONVERGE_NOT_LEADER,
    CONVERGE_UNREADABLE,  // no evidence could be read: nothing is concluded
    CONVERGE_RUNNING,     // a cure is under way, or was sent and not answered
    CONVERGE_SETTLING,    // a cure was done just now; evidence from before it does not count
    CONVERGE_RECOVERING,  // evidence, and a global recovery that reads the table by itself
    CONVERGE_SLOW,        // a global recovery that takes long: an alarm
    CONVERGE_STUCK,       // … and rows were deleted by others: an alarm
    CONVERGE_UNSURE,      // evidence seen once
    CONVERGE_UNKNOWN_ROW, // a row that the leader's memory lacks -> RESTART_LEADER
    CONVERGE_REBORN, // an endpoint with a new id whose old one was deleted by others -> RECOVER
    CONVERGE_GHOST,  // ids among the actors that the table lacks, twice -> RECOVER
    CONVERGE_ORPHAN, // a worker runs whose row others have deleted -> RESTART_LEADER
    CONVERGE_NO_EFFECT, // Recover was done, twice, and the ghosts stay -> RESTART_LEADER
    CONVERGE_GAVE_UP,   // tries are used up, or got no answer: an alarm
    CONVERGE_REASONS,
};
const char *converge_reason_name(enum converge_reason reason);
// Whether a person has to look.
bool converge_is_alarm(enum converge_reason reason);

// What became of the last cure that this asked for.
enum converge_outcome {
    CONVERGE_IDLE = 0, // none is under way
    CONVERGE_PENDING,  // sent, not answered
    CONVERGE_DONE,
    CONVERGE_FAILED,       // refused, not sent
    CONVERGE_UNKNOWN_SENT, // timed out: it may be running
};

// GetClusterRecoveryStatus.
enum converge_status {
    CONVERGE_STATUS_UNKNOWN = 0,
    CONVERGE_STATUS_RECOVERING, // 1 or 2: a global recovery
    CONVERGE_STATUS_RUNNING,    // 3: also what a stuck recovery of one database says
};

struct converge_facts {
    struct instant now;
    bool is_leader; // verified
    uint64_t term;
    uint64_t incarnation; // of our meta; a new one has a new memory
    // From the mutation log, which must reach back to the moment at which this leader loaded
    // its snapshot. "Others" are tags that are not this leader's and not psql's removal of a
    // tombstone in the takeover itself.
    bool log_known; // it has all; what it shows is evidence also where it has not
    struct instant log_read_at;
    uint32_t unknown_rows;   // rows that are there now and were inserted by others since
    uint32_t untagged_rows;  // … of these: without a tag
    uint32_t lost_rows;      // ids that others have deleted since, and that are not back
    uint32_t reborn_rows;    // of those: whose host:port has another id now
    uint64_t foreign_log_id; // newest entry by others since then; 0: none
    // Of the lost rows: a pod runs there that has no other row, as judged by
    // reconcile_decide().
    bool orphans_known;
    struct instant orphans_read_at;
    uint32_t orphan_rows;
    // ListActorStates, asked before the rows were read.
    bool actors_known;
    struct instant actors_read_at;
    uint32_t actor_ghosts; // worker ids in it that no row has
    // As the leader said, asked after the log was read that the decision before saw.
    enum converge_status status;
    struct instant status_since; // when we first saw this value
    enum converge_outcome outcome;
    struct instant outcome_at;
};

struct converge_config {
    int64_t slow_after_ns;       // a global recovery is an alarm after so long (60 s)
    int64_t unanswered_after_ns; // a call without an answer is over then (30 s)
    // A worker that registers again does so in that time (60 s); an orphan never does.
    int64_t orphan_after_ns;
    // A row without a tag may be the leader's own, by a session that lost it: time in which
    // more such writes show that.
    int64_t untagged_after_ns;
    int64_t settle_ns;     // after a cure (10 s)
    int64_t recheck_ns;    // between two reads of actors that must agree (1 s)
    unsigned max_recovers; // in window_ns, of one incarnation (2)
    unsigned max_restarts; // in window_ns, across terms (2)
    int64_t window_ns;     // (10 min)
};
#define CONVERGE_CONFIG                                                                        \
    {                                                                                          \
        .slow_after_ns = 60 * NS_PER_SEC, .unanswered_after_ns = 30 * NS_PER_SEC,              \
        .settle_ns = 10 * NS_PER_SEC, .recheck_ns = NS_PER_SEC, .max_recovers = 2,             \
        .max_restarts = 2, .window_ns = 600 * NS_PER_SEC, .orphan_after_ns = 60 * NS_PER_SEC,  \
        .untagged_after_ns = 5 * NS_PER_SEC,                                                   \
    }

// Zeroed at the agent's start.
struct converge_memory {
    uint64_t term;
    uint64_t incarnation;
    struct instant ghosts_seen;  // read_at of the first of the reads that agree; ns 0: none
    struct instant unknown_seen; // first of the looks that show rows without a tag; ns 0: none
    struct instant orphans_seen; // read_at of the first of the looks that agree; ns 0: none
    unsigned recovers;           // asked for in this term and incarnation, in the window
    unsigned recovered;          // of these: done, and ghosts were seen ever since
    bool is_counted;             // the last one is in `recovered`
    struct instant asked_at;     // of the last cure; ns 0: none
    uint64_t asked_log_id;       // foreign_log_id at that time
    uint64_t cured_log_id;       // up to here a recovery that is done has read the table anew
    uint64_t last_log_id;        // foreign_log_id of the decision before
    uint64_t running_log_id;     // … that was read while the leader surely ran
    bool was_recovering;
    enum converge_cure asked;
    unsigned restarts;
    struct instant restarts_since; // of the window
};

struct converge_plan {
    enum converge_cure cure; // to be begun now; asked for once, not in each pass
    enum converge_reason reason;
    // As long as a restart is wanted, also after it was asked for: the fact for the core's rule
    // DivergedLeader.
    bool wants_restart;
};

struct converge_plan converge_decide(const struct converge_config *config,
                                     const struct converge_facts *facts,
                                     struct converge_memory *memory);
