// SPDX-License-Identifier: Apache-2.0
#pragma once
// drops: what is dropped and not reclaimed, and what is being created, as
// metafence.recovery_rows() lists it. Pure but for its own memory. Owns copies of all that it
// shows.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/pg/recovery.h"
#include "agent/recovery/order.h"

#define DROPS_SHOWN_MAX 50 // of each kind, for people
#define DROPS_COMPLETE                                                                         \
    10000 // what metafence.dropped keeps: from there on it may have lost some

struct drops_shown {
    int64_t id; // fragment, or job
    int64_t job_id;
    int64_t age_ms;
    char name[64];
    char tables[96]; // "1001 1002"; cut
};

// Zeroed is empty.
struct drops {
    uint32_t *fragments; // ascending once it is closed, each once
    size_t fragment_count, room;
    uint32_t creating;
    uint64_t revision; // another one for another set of dropped tables
    struct drops_shown dropped_shown[DROPS_SHOWN_MAX];
    struct drops_shown creating_shown[DROPS_SHOWN_MAX];
    size_t dropped_shown_count, creating_shown_count;
};

void drops_clear(struct drops *drops);                               // accepts an empty one
void drops_add(struct drops *drops, const struct recovery_row *row); // workers are left out
void drops_close(struct drops *drops);

// `drops` NULL: the rows could not be read.
struct order_drops drops_facts(const struct drops *drops, const struct recovery_state *state);
