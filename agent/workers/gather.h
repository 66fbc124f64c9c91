// SPDX-License-Identifier: Apache-2.0
#pragma once
// gather: what one pass has read, as the arrays of a struct worker_snapshot, which own their
// strings. Whatever can't be understood makes its part incomplete; nothing is guessed.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/reconcile/verdict.h"
#include "agent/workers/store.h"
#include "base/err.h"

struct cJSON;

#define GATHER_ROWS_MAX 1000000U
#define GATHER_PODS_MAX 200000U

struct gather_chunk;

struct gather {
    struct worker_row *rows;
    struct worker_row *lost;
    struct worker_pod *pods;
    struct worker_endpoint *endpoints;
    struct worker_set *sets;
    size_t row_room, lost_room, pod_room, endpoint_room, set_room;
    struct worker_snapshot snapshot; // its arrays are these
    struct gather_chunk *chunks;
};

// Zeroed is empty.
void gather_clear(struct gather *gather);
// Closes the arrays: from here on `snapshot` can be judged.
void gather_close(struct gather *gather);

// Errors: INVALID.
must_check int gather_row(struct gather *gather, const char *const *fields, struct err *err);
// After all rows; `is_known`: the log has everything since the leader loaded them. In any
// order. A row that others have deleted joins the lost ones.
void gather_entry(struct gather *gather, const struct store_entry *entry);
void gather_known(struct gather *gather, bool is_known); // before the entries

// A pod of the API as what is judged; borrows from `object`. `release`: our own pod's
// risingwave/name; "": none. Errors: INVALID.
must_check int gather_pod_of(const struct cJSON *object, const char *release,
                             struct worker_pod *ret, struct err *err);
must_check int gather_pod(struct gather *gather, const struct cJSON *object,
                          const char *release, struct err *err);
must_check int gather_slice(struct gather *gather, const struct cJSON *object, struct err *err);
must_check int gather_set(struct gather *gather, const struct cJSON *object, bool is_kruise,
                          struct err *err);

// The row with this id, or NULL. Rows come ascending by id.
const struct worker_row *gather_find(const struct gather *gather, int64_t worker_id);
