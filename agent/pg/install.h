// SPDX-License-Identifier: Apache-2.0
#pragma once
// install: `metafence sql install|uninstall|print|status`. For the command line only: it
// blocks. What it does to the election's table is one short transaction with a lock_timeout of
// 200 ms, tried again with back-off, because campaigns queue behind a waiting CREATE TRIGGER.

#include "agent/pg/conn.h"
#include "base/buf.h"

struct sql_options {
    const struct pg_params *params; // host names are looked up by libpq here
    const char *leader_table;       // [schema.]name
    const char *meta_role; // owner of a leader table that has to be created; NULL: the caller
    const char *const *roles; // agents' roles that get grant.sql; the table's owner always does
    size_t role_count;
    int64_t timeout_ns; // of the whole work; waiting for locks ends then
    // One line of progress for people, without newline. May be NULL.
    void (*say)(const char *line, void *arg);
    void *arg;
};

// Idempotent; several at once queue behind an advisory lock. Creates the leader table as
// RisingWave does where it is missing, so that metas are covered from their first start.
// Errors: DENIED (rights, a newer schema, a foreign schema of that name), TRANSIENT (no
// connection, a lock that stayed taken).
must_check int sql_install(const struct sql_options *options, struct err *err);

// Idempotent: nothing of an installation is left, the election's tables and rows stay.
must_check int sql_uninstall(const struct sql_options *options, struct err *err);

// Appends exactly the text that an installation runs. Needs no connection: only `leader_table`
// and the roles are read. Errors: INVALID (a name).
must_check int sql_print(const struct sql_options *options, struct buf *ret_text,
                         struct err *err);

struct sql_status {
    bool has_schema;
    bool can_read;      // with the rights of this role
    int version;        // 0: none
    char guard[16];     // "off"
    char owner[64];     // role that owns the schema
    bool has_table;     // the leader table
    bool has_trigger;   // on it, by our name and function
    bool is_trigger_on; // enabled, for each row, after insert or update
    int64_t term;       // highest; 0: none yet
    int64_t tags, deaths;
};

// Errors: as for any read; a missing schema is no error.
must_check int sql_status(const struct sql_options *options, struct sql_status *ret_status,
                          struct err *err);
