// SPDX-License-Identifier: Apache-2.0
#pragma once
// admin: a blocking session for the command line: connect, run, and run again what met a taken
// lock. Never used on the loop.

#include "agent/pg/election.h"
#include "agent/pg/install.h"

struct admin {
    const struct sql_options *options;
    PGconn *pq;
    struct instant give_up_at;
    char table[2 * ELECTION_TABLE_SIZE + 8]; // the leader table, quoted
    char sqlstate[6];                        // of the last failed statement
};

// Connects to a primary and sets the session up. Errors: INVALID (table name), DENIED,
// TRANSIENT.
must_check int admin_begin(struct admin *admin, struct err *err);
void admin_done(struct admin *admin);

void admin_say(const struct admin *admin, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

// Runs statements without parameters. Errors by pg_fault_set; admin->sqlstate has the code.
must_check int admin_run(struct admin *admin, const char *sql, struct err *err);
// First column of the first row as text; "" for NULL or no row.
must_check int admin_value(struct admin *admin, const char *sql, char *buf, size_t size,
                           struct err *err);
// One transaction with a lock_timeout of 200 ms, again and again until the time is up: whoever
// waits longer holds up everybody behind it in the lock queue. `what` is for people.
must_check int admin_run_locked(struct admin *admin, const char *what, const char *sql,
                                struct err *err);

must_check int admin_leader_exists(struct admin *admin, bool *ret_exists, struct err *err);
// Of a trigger of ours on the leader table: "", "on", or "off" (present, but not as we want
// it).
must_check int admin_trigger_state(struct admin *admin, const char *name, char *buf,
                                   size_t size, struct err *err);
// Whether something between us and Postgres hands out sessions: it shows another process id
// than the server's.
must_check int admin_is_pooled(struct admin *admin, bool *ret_is_pooled, struct err *err);
