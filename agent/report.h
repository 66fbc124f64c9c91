// SPDX-License-Identifier: Apache-2.0
#pragma once
// report: says what changed. After each turn it compares what is with what was said last, and
// writes log lines, history entries and counters for the edges. It decides and does nothing.

#include <stdbool.h>
#include <stdint.h>

#include "agent/core/decide.h"

struct agent;
struct pg_fault;

struct report_counters {
    uint64_t turns;
    uint64_t reads;        // answered by a primary
    uint64_t reads_failed; // of any kind
    uint64_t notifications;
    uint64_t orders;
    uint64_t statuses;
    uint64_t statuses_refused;
    uint64_t status_calls; // GetClusterRecoveryStatus
    uint64_t kills;        // ordered by us
    uint64_t deaths;       // proven, for whatever reason
    uint64_t shim_kills;   // by metafence-run on its own deadline
    uint64_t sessions_ended;
    uint64_t phantoms_dropped;
    uint64_t rules[RULE_COUNT]; // how often each began to fire
};

// The last kill of this pod, ours or metafence-run's.
struct report_fence {
    uint64_t incarnation; // 0: none known
    enum fence_reason reason;
    struct instant decided_at;
    struct instant dead_at;          // ns 0: not dead yet
    struct instant sessions_gone_at; // ns 0: not yet, or not known
    bool by_shim;                    // on its own deadline
    bool is_untagged; // its sessions can't be told from others: death alone counts
};

struct reporter {
    struct report_counters counters;
    struct report_fence fence;
    bool has_begun; // the first turn says everything
    enum rule rule;
    enum role_label label;
    enum database_state database;
    bool is_fence_known;
    bool is_fence_silent;
    bool is_schema_denied;
    bool is_guard_failing;
    bool is_slow;
    int64_t answer_ns; // of Postgres, smoothed over some eight reads
    int64_t unguarded; // tables; said last
    uint32_t not_covered;
    enum not_fenced not_fenced;
    enum fence_method method;
    uint64_t incarnation;
    uint32_t hold;
    uint64_t kill_incarnation; // that we ordered to be killed
    uint64_t death_incarnation;
    uint64_t recorded_incarnation;
};

// After each good read: whether a GRANT on our schema is missing.
void report_schema(struct agent *agent, bool is_denied);
// After each good read: how long it took.
void report_answer(struct agent *agent, int64_t took_ns);
// After each try to complete the guard; `fault` NULL: it was answered.
void report_guard(struct agent *agent, const struct pg_fault *fault);
// After the plan was executed.
void report_turn(struct agent *agent);

// Why plan.not_fenced is not NO: for people.
const char *not_fenced_why(const struct agent *agent);
// The last kill is done as far as it can be seen.
bool report_is_confirmed(const struct report_fence *fence);

// Names of the bits of plan.not_covered, in order; NULL behind the last.
const char *not_covered_name(uint32_t bit);
const char *role_name(const struct agent *agent); // "leader", "held", … as status shows it

// "exit 0", "signal 9". Returns buf.
const char *report_wait_status(int wait_status, char *buf, size_t size);
// metafence-run is connected but has not answered for long.
bool report_is_fence_silent(const struct agent *agent);
