// SPDX-License-Identifier: Apache-2.0
#pragma once
// agent: the one object of the running agent. Callbacks change facts and mark a turn as due; a
// turn reads the clock once, decides, and executes the plan. Owns everything below and frees it
// in reverse order.

#include <stdbool.h>
#include <stdint.h>

#include "agent/config.h"
#include "agent/control.h"
#include "agent/execute.h"
#include "agent/grpc/client.h"
#include "agent/history.h"
#include "agent/http.h"
#include "agent/install.h"
#include "agent/kube/kube.h"
#include "agent/methods.h"
#include "agent/metrics.h"
#include "agent/observe.h"
#include "agent/pg/election.h"
#include "agent/planned.h"
#include "agent/reclaim/reclaim.h"
#include "agent/report.h"
#include "agent/workers/workers.h"
#include "base/loop.h"

struct agent {
    struct config config;
    // Set while the file is not what we run on: the reason, and whether these are at least the
    // last good values (else the built-in ones, without a database).
    char config_error[256];
    bool is_last_good;
    bool has_database; // the configuration names one

    struct loop *loop;
    struct resolver *resolver;
    struct pg_params pg_params;
    char *password; // PGPASSWORD of the start, NULL: none; wiped when freed
    struct pg *pg;
    struct election_config election_config;
    struct election *election;
    struct grpc_client *grpc;
    struct methods methods;
    struct kube *kube;       // NULL: no Kubernetes
    struct workers *workers; // NULL: reconcile.mode is off
    struct reclaim *reclaim; // NULL: recovery.mode is off
    struct control *control;
    struct loop_timer *control_retry; // armed while there is no control socket
    struct http *http;                // NULL: none is wanted
    struct install *install;          // same
    struct loop_timer *poll;
    struct instant poll_due; // when it was to run
    struct loop_timer *calm; // armed since the last thing that happened
    struct loop_deadline *wake;
    struct loop_signal *signals[2];

    struct facts facts;
    struct observe_clock clock;
    struct core_memory memory;
    struct plan plan;
    bool turn_due;
    // A status came since our own start, and what an earlier agent left there was taken over;
    // or an operator has told us first.
    bool has_manual, has_pause;
    struct instant notified_at; // when a notification or a probe last began a read
    bool is_notified;           // others came since: the next poll, brought forward, is theirs
    bool is_stopping;           // TERM came: exit when meta is gone
    bool is_pooled;             // said: Postgres is reached through a pooler

    struct executor executor;
    struct reporter reporter;
    struct planned planned;
    struct history history;
    uint64_t history_seen; // entries of it before the timer `calm` was armed last
    struct metrics metrics;
    char manual_reason[CONTROL_REASON_SIZE];
    char pause_reason[CONTROL_REASON_SIZE];
    char database_error[256]; // of the last failed read or connection, or what a good read
                              // lacked; "": nothing
};

struct agent_start {
    const struct config *config; // copied
    char *password;              // taken over and wiped; NULL: none
    const char *config_error;    // "" for a good file
    bool is_last_good;
};

// Errors: what the control socket and Postgres' parameters can fail with.
must_check int agent_new(const struct agent_start *start, struct agent **ret_agent,
                         struct err *err);
// Accepts NULL.
void agent_free(struct agent *agent);

// Runs until a signal ends it. Blocks. Returns the exit status.
int agent_run(struct agent *agent);

// Something changed: decide at the end of this turn of the loop.
static inline void agent_feed(struct agent *agent)
{
    agent->turn_due = true;
}

// Starts a read now unless one is under way. Called by polls, notifications and the executor.
void agent_read(struct agent *agent);

// A readiness probe came: a fresh read, at once or, when many come, for all of them together.
void agent_probe(struct agent *agent);
