// SPDX-License-Identifier: Apache-2.0
#pragma once
// history: what this agent did and why, the last HISTORY_SIZE edges, each with the facts that
// it was based on. A ring of plain values: no allocation after the start.

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "agent/core/decide.h"

struct buf;

#define HISTORY_SIZE        64
#define HISTORY_ID_SIZE     96 // longer ids are cut
#define HISTORY_DETAIL_SIZE 128

struct history_entry {
    struct instant at;
    struct timespec wall; // for people, never compared
    const char *event;    // literal: "rule", "fence", …
    enum rule rule;
    uint64_t incarnation;
    bool row_known;
    char row_id[HISTORY_ID_SIZE];
    int64_t row_age_ns; // now - heartbeat, by the database's clock and ours since the read
    bool has_deadline;
    int64_t deadline_left_ns;
    bool term_known;
    uint64_t term;
    enum database_state database;
    char detail[HISTORY_DETAIL_SIZE];
};

struct history {
    uint64_t count; // ever
    struct history_entry ring[HISTORY_SIZE];
};

// Begins the next entry, taking the facts from what was decided on. `event` is a literal;
// `detail` is copied and may be "".
void history_add(struct history *history, const struct facts *facts,
                 const struct core_memory *memory, const char *event, const char *detail);

// The kept entries, oldest first, as a JSON array.
void history_json(const struct history *history, struct buf *out);

const char *database_state_name(enum database_state state); // "answers"
// RFC 3339 with milliseconds, UTC. Returns buf.
const char *history_wall(struct timespec wall, char *buf, size_t size);
