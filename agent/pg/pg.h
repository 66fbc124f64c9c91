// SPDX-License-Identifier: Apache-2.0
#pragma once
// pg: a session with Postgres that stays up: it reconnects with back-off, queues requests,
// gives each its own deadline, and hedges reads. Two connections at most: one that works and,
// when that one is slow to answer, its successor; the old one is closed only after the
// successor has logged in. Invariants: every request is called back exactly once, from the
// loop, never from inside pg_send; answers come in the order in which the statements were sent;
// at most one statement a connection.

#include "agent/pg/conn.h"

#define PG_PARAMS_MAX 8
#define PG_QUEUE_MAX  32

struct pg;

struct pg_request {
    const char *sql; // copied
    size_t param_count;
    const char *const *params; // copied; NULL elements are SQL NULL
    // A read may be asked twice: unanswered for half the query time-out it is sent again on a
    // new connection, and the first answer counts. Others fail with UNKNOWN_OUTCOME once sent
    // and unanswered.
    bool is_read;
};

struct pg_reply {
    const PGresult *result; // borrowed for the call; NULL when `fault` is set
    PGresult **owner;       // for pg_answer_keep()
    struct pg_fault
        fault; // kind PG_OK, or what went wrong, an SQL error of the statement included
    struct instant sent_at; // before the answered statement was sent; ns 0: never sent
    struct instant received_at;
    bool was_hedged; // the successor's answer came first
};

typedef void pg_done_fn(const struct pg_reply *reply, void *arg);

struct pg_ops {
    // A session is up (again): everything known may be old, read now. May be NULL.
    void (*up)(void *arg);
    // The last session is gone, or an attempt to get one failed. May be NULL.
    void (*down)(const struct pg_fault *fault, void *arg);
    void (*notify)(const char *payload, void *arg); // may be NULL
};

struct pg_stats {
    uint64_t connects; // sessions that came up
    uint64_t connect_failures;
    uint64_t hedges; // reads sent a second time
    uint64_t hedge_wins;
};

// Starts connecting from the loop. `net` is copied, `ops` and `arg` are borrowed and outlive
// it. Errors: INVALID (a missing or impossible parameter; names it).
must_check int pg_new(const struct pg_net *net, const struct pg_ops *ops, void *arg,
                      struct pg **ret_pg, struct err *err);
// Closes everything; requests under way are never called back. Not from inside a callback of
// it.
void pg_free(struct pg *pg);

// Queues a request. It ends at the latest connect time-out + 1.5 x query time-out after this
// call. Errors: TRANSIENT when PG_QUEUE_MAX requests wait already; then `fn` is not called.
must_check int pg_send(struct pg *pg, const struct pg_request *request, pg_done_fn *fn,
                       void *arg, struct err *err);

// Asks for a new connection, e.g. because this one leads to a standby: a successor is started
// and takes over when it has logged in; not more often than the back-off allows.
void pg_renew(struct pg *pg);

bool pg_is_up(const struct pg *pg);
bool pg_is_tls(const struct pg *pg);
bool pg_is_listening(const struct pg *pg);
bool pg_is_pooled(const struct pg *pg); // as pg_conn_is_pooled
const struct pg_stats *pg_stats(const struct pg *pg);
