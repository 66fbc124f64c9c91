// SPDX-License-Identifier: Apache-2.0
#pragma once
// conn: one connection to Postgres on the loop: look-up, connect, TLS, log-in, session
// settings, one statement at a time, notifications. Nothing in it blocks. It owns its PGconn
// and its watchers. Invariant: callbacks come only from the loop, and nothing is touched after
// `closed`, in which the owner may free it; in the others it may not.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "agent/pg/fault.h"
#include "base/loop.h"
#include "base/resolve.h"

// Where and as whom. All strings are borrowed and outlive the connections; NULL where allowed.
struct pg_params {
    const char *host; // name, address, or directory of a unix socket when it starts with '/'
    uint16_t port;
    const char *database;
    const char *user;
    const char *password;      // NULL: none, or password_file
    const char *password_file; // read again for every connection; one trailing newline is cut
    const char *sslmode;       // NULL: libpq's default
    const char *sslrootcert;   // NULL: libpq's default
    const char *application_name;
    int64_t connect_timeout_ns; // look-up, connect, TLS, log-in and session settings together
    int64_t query_timeout_ns;
    bool listen; // LISTEN to SQL_CHANNEL where the server lets us
};

// What a connection runs on; all borrowed, and outlives it.
struct pg_net {
    struct loop *loop;
    struct resolver *resolver;
    const struct pg_params *params;
};

struct pg_conn;

struct pg_conn_ops {
    void (*ready)(void *arg); // logged in; once
    // It failed or was lost. The last call; free it here or later.
    void (*closed)(const struct pg_fault *fault, void *arg);
    // The answer to pg_conn_send, borrowed for the call unless it is taken: set to NULL. May
    // hold an error of the statement.
    void (*result)(PGresult **result, void *arg);
    void (*notify)(const char *payload, void *arg); // may come at any time after ready
};

// Starts connecting. `attempt` counts the attempts so far and picks among several addresses of
// a name. Never fails: errors come by `closed`. `net` is copied, `ops` and `arg` are borrowed.
struct pg_conn *pg_conn_new(const struct pg_net *net, unsigned attempt,
                            const struct pg_conn_ops *ops, void *arg);
// Closes without calling back. Accepts NULL.
void pg_conn_free(struct pg_conn *conn);

// Logged in and no statement under way.
bool pg_conn_is_idle(const struct pg_conn *conn);
bool pg_conn_is_ready(const struct pg_conn *conn); // logged in
bool pg_conn_is_tls(const struct pg_conn *conn);
bool pg_conn_listens(const struct pg_conn *conn);
// A pooler stands between: the backend is not ours alone, nothing is set on it and it can't
// notify us.
bool pg_conn_is_pooled(const struct pg_conn *conn);

// Sends one statement with text parameters (at most 16, NULL elements are SQL NULL) on an idle
// connection. Returns 0, or -1 with the fault when it was not sent; then `closed` follows by
// itself.
must_check int pg_conn_send(struct pg_conn *conn, const char *sql, size_t param_count,
                            const char *const *params, struct pg_fault *ret_fault);

// Reads the password of `params` into `buf`, "" when there is none. Errors: DENIED, INVALID.
must_check int pg_password(const struct pg_params *params, char *buf, size_t size,
                           struct err *err);
