// SPDX-License-Identifier: Apache-2.0
#pragma once
// execute: carries a plan out. The only place that acts on meta and on Postgres. Plans are
// levels, so each turn repeats its wishes: what is already so, or under way, or was tried a
// moment ago, is not done again. What was sent and not answered stays unknown and is tried
// again.

#include <stdbool.h>
#include <stdint.h>

#include "agent/core/decide.h"

struct agent;
struct grpc_result;

// One kind of request to Postgres that repeats until it has succeeded.
struct execute_job {
    bool is_busy;
    uint64_t incarnation;      // that it is for
    uint32_t tries;            // for it, so far
    struct instant not_before; // of the next try; ns 0: at once
};

struct executor {
    struct fence_order sent; // the last order, unsealed
    struct instant sent_at;  // ns 0: none on this connection
    struct execute_job sessions;
    struct execute_job death;
    struct execute_job phantom;
    struct execute_job guard;
    int64_t unguarded;        // tables that were still without the guard; -1: not known
    uint64_t rpc_incarnation; // that the status call under way is about
    bool is_reading;
    bool has_read_wished; // the present ACTION_READ was answered by a read of its own
    bool read_again;      // something happened that the read under way may not show
    char read_tag[FENCE_TAG_SIZE];
};

// Executes agent->plan. Returns when it should be called again at the latest for a try that is
// due later; INSTANT_NEVER: nothing waits.
struct instant execute_plan(struct agent *agent);

// The connection to metafence-run is new: the next plan's order is sent whatever was sent
// before.
void execute_forget_order(struct executor *executor);

// metafence-run counts its incarnations anew: what is known by their numbers is forgotten, that
// of requests under way too.
void execute_forget_count(struct agent *agent);

// The answer to a status call has come.
void execute_rpc_done(struct agent *agent, const struct grpc_result *result);
