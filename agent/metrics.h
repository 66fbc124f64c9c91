// SPDX-License-Identifier: Apache-2.0
#pragma once
// metrics: what the agent counts and measures beside the counters of agent/report.h, and the
// page that shows all of it. Nothing here decides; everything is kept in place, so that a
// scrape allocates its answer and nothing else.

#include <stdbool.h>
#include <stdint.h>

#include "agent/core/decide.h"
#include "base/prom.h"

struct agent;

#define METRICS_METHODS     (FENCE_METHOD_API + 1)
#define METRICS_REASONS     (FENCE_REASON_LAST + 1)
#define METRICS_SOURCES_MAX 5

// What became of one method's attempt to end an incarnation.
enum metrics_result {
    METRICS_CONFIRMED = 0, // its death is proven, and a fence is what it died of
    METRICS_UNCONFIRMED,   // the next method was tried
    METRICS_ENDED,         // it ended by itself before
    METRICS_RESULTS,
};

// What a decision to kill is measured from.
enum metrics_detection {
    METRICS_SUPERSEDED = 0, // the other's heartbeat in the row
    METRICS_LEASE_EXPIRED,  // the deadline
    METRICS_DETECTIONS,
};

// Writes whole families of its own.
typedef void metrics_source_fn(struct prom *prom, void *arg);

struct metrics {
    struct instant started_at;
    int64_t started_wall_ns;                      // since 1970, for people
    struct prom_histogram query;                  // reads of the election that were answered
    struct prom_histogram lag;                    // how late polls ran
    struct prom_histogram fence[METRICS_METHODS]; // decision to confirmed death
    struct prom_histogram detection[METRICS_DETECTIONS];
    uint64_t detected; // incarnation whose kill was measured
    // Fences that were due and held back: how often that began, by bit of plan.not_covered.
    uint64_t skipped_blind, skipped_single;
    uint32_t not_covered;    // at the last turn
    struct instant split_at; // since when `split_ns` has to grow; ns 0: it has not
    int64_t split_ns;        // our meta led by its own view while the row named another
    uint64_t attempts[METRICS_METHODS][METRICS_REASONS][METRICS_RESULTS];
    uint64_t leader_transitions;
    char leader_id[FACT_ID_SIZE]; // that the row named last; "": none yet
    // The attempt under way; incarnation 0: none.
    struct {
        uint64_t incarnation;
        enum fence_method method;
        enum fence_reason reason;
    } attempt;
    uint64_t counted_death; // incarnation whose death was taken into account
    struct {
        uint64_t incarnation; // whose confirmation is waited for; 0: none
        enum fence_method method;
        int64_t decided_ns, dead_ns;
    } unconfirmed;
    struct {
        metrics_source_fn *fn;
        void *arg;
    } sources[METRICS_SOURCES_MAX];
    unsigned source_count;
};

void metrics_init(struct metrics *metrics);

// Families that another part of the agent writes. `arg` is borrowed for as long as the agent
// lives.
void metrics_add_source(struct metrics *metrics, metrics_source_fn *fn, void *arg);

// After each turn: takes the edges into account.
void metrics_turn(struct metrics *metrics, const struct facts *facts, const struct plan *plan);

// The whole page.
void metrics_write(const struct agent *agent, bool is_openmetrics, struct buf *out);

// process_*: about ourselves, from /proc. What can't be read is left out.
void metrics_write_process(struct prom *prom, int64_t started_wall_ns);
