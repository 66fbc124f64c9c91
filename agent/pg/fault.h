// SPDX-License-Identifier: Apache-2.0
#pragma once
// fault: why Postgres did not do what was asked, sorted by what it proves. Silence and ordinary
// errors only count toward the deadline; a refusal is an answer. Messages hold the server's
// primary message, never its detail, the statement, a conninfo or a password.

#include <stddef.h>

#include "base/err.h"

enum pg_fault_kind {
    PG_OK = 0,
    PG_SILENT,  // time-out, refused or reset connection, server starting or stopping (57P0x)
    PG_REFUSAL, // class 28, 42501, 3D000, 53300
    PG_MISSING, // a relation, column, function or schema is not there, or has another type
    PG_FAILED,  // any other error of the statement
};

struct pg_fault {
    enum pg_fault_kind kind;
    char sqlstate[6]; // "" when no server said one
    struct err err;
};

// Kind by SQLSTATE; NULL or "" is PG_SILENT.
enum pg_fault_kind pg_fault_kind_of(const char *sqlstate);

// Fills *fault from what the server said: `sqlstate` may be NULL. Control characters become
// blanks. `secret` (NULL ok) is blotted out should the text ever repeat it.
void pg_fault_set(struct pg_fault *fault, const char *sqlstate, const char *text,
                  const char *secret);

// A fault that no server said. `kind` is TRANSIENT (never sent) or UNKNOWN_OUTCOME (sent,
// unanswered).
void pg_fault_silent(struct pg_fault *fault, enum err_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// The error message of a connection attempt under PQERRORS_VERBOSE, e.g.
//   connection to server at "127.0.0.1", port 1 failed: FATAL:  28P01: password authentication
//   failed…
// libpq 15 offers its SQLSTATE nowhere else. Pure.
void pg_fault_from_connect(struct pg_fault *fault, const char *message, const char *secret);
