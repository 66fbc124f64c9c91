// SPDX-License-Identifier: Apache-2.0
#pragma once
// observe: from events to facts, and nothing else: no I/O, no log, no judgement. Each function
// takes one event and returns whether the facts changed so that a new decision is due.

#include "agent/core/facts.h"
#include "agent/grpc/client.h"
#include "agent/pg/election.h"

// What a read says about the election and the state of the database. `tag` is what it asked
// about. Answers that were sent before the one already known are dropped. Always returns true.
bool observe_read(struct facts *facts, const struct election_read *read, const char *tag,
                  int64_t max_clock_jump_ns, struct instant now);

// The last session is gone or can't be had.
bool observe_database_down(struct facts *facts, const struct pg_fault *fault,
                           struct instant now);

// Returns false for a status that only confirms what is known, as each answer to an order does.
bool observe_fence_status(struct facts *facts, const struct fence_status *status,
                          struct instant now);
bool observe_fence_down(struct facts *facts);

// Does `status` come of a metafence-run that counts incarnations from 1 again, because what it
// had written is lost? Then what is kept by their numbers is of other processes.
bool observe_is_new_count(const struct facts *facts, const struct fence_status *status);

bool observe_rpc(struct facts *facts, const struct grpc_result *result, uint64_t incarnation,
                 struct instant now);

// The two clocks at the previous turn.
struct observe_clock {
    bool is_known;
    struct instant boottime;
    struct instant monotonic;
};

// Writes facts.now and suspended_ns.
void observe_time(struct facts *facts, struct observe_clock *clock, struct instant boottime,
                  struct instant monotonic);
