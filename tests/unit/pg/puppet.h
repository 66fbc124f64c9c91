// SPDX-License-Identifier: Apache-2.0
#pragma once
// puppet: a server that speaks just enough of Postgres' protocol to log everybody in, and then
// answers each statement with the bytes that the test gives it.

#include "tests/unit/pg/pgtest.h"

struct puppet;

// Bytes of one answer; `len` 0: none.
struct puppet_answer {
    uint8_t bytes[4096];
    size_t len;
    bool is_last; // the connection is closed behind it
};

// Writes the answer to `sql`. The closing ReadyForQuery is the answer's own affair.
typedef void puppet_fn(const char *sql, struct puppet_answer *answer, void *arg);

struct puppet *puppet_new(struct loop *loop, puppet_fn *fn, void *arg);
void puppet_free(struct puppet *puppet);
uint16_t puppet_port(const struct puppet *puppet);
unsigned puppet_accepted(const struct puppet *puppet);
unsigned puppet_open(const struct puppet *puppet);

// Parts of an answer. A NULL field is SQL NULL.
void puppet_columns(struct puppet_answer *answer, size_t count);
void puppet_row(struct puppet_answer *answer, const char *const *fields, size_t count);
void puppet_error(struct puppet_answer *answer, char kind, const char *sqlstate); // 'E' or 'N'
void puppet_end(struct puppet_answer *answer, const char *command); // with ReadyForQuery
void puppet_raw(struct puppet_answer *answer, const void *bytes, size_t len);
