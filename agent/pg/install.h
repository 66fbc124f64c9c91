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
    const char *guard;    // "off", "observe", "enforce"; NULL: as it is, "enforce" when new
    const char *recovery; // the same for ordered recovery, "observe" when new
    int64_t timeout_ns;   // of the whole work; waiting for locks ends then
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

#define SQL_NAMES_SIZE 512

// What the guard counted since it was installed: metafence.counters().
struct sql_counters {
    int64_t refused;               // writes of superseded tags, in enforce
    int64_t observed;              // rows of such writes, in observe
    int64_t held;                  // campaigns of superseded tags that got the old row back
    int64_t untagged;              // statements that passed: no tag, so no protection
    int64_t not_owner;             // ... tag without a term
    int64_t unreadable;            // ... our own tables failed
    int64_t unlocked;              // ... the writers' lock was not to be had
    int64_t unrecorded;            // campaigns whose bookkeeping failed
    int64_t unlogged;              // worker rows that the mutation log missed
    int64_t intended;              // deletes refused for an intent
    int64_t takeover;              // of a tagged owner, under the guard
    int64_t ended;                 // ... that had to end the old owner's sessions
    int64_t takeover_without_lock; // ... and went on with a writer under way
    int64_t recovery_refused;      // removals of state tables that the gate refused
    int64_t recovery_observed;     // ... that enforce would have refused
    int64_t recovery_bound;        // ... that passed unproven, after maxHold
    int64_t recovery_open;         // ... that passed unproven: nobody could answer for them
    int64_t recovery_failed;       // triggers of the recovery that failed
    int64_t recovery_unknown;      // statements and deltas not understood
};

struct sql_status {
    bool has_schema;
    bool can_read;      // with the rights of this role
    int version;        // 0: none
    char guard[16];     // mode
    char recovery[16];  // mode of ordered recovery; "": not installed
    char owner[64];     // role that owns the schema
    bool has_table;     // the leader table
    bool has_trigger;   // the term trigger, by our name and function
    bool is_trigger_on; // it and the hold trigger: enabled, for each row
    bool has_tables;    // RisingWave's worker table is there; before, nothing is to be guarded
    int64_t guarded;    // tables
    int64_t unguarded;
    char unguarded_names[SQL_NAMES_SIZE]; // "worker, worker_property", cut
    bool is_verified;                     // RisingWave's version; else enforce does as observe
    char catalog_version[SQL_NAMES_SIZE]; // its newest migration; "": not there
    char unwatched_names[SQL_NAMES_SIZE]; // tables without the recovery's trigger, cut
    int64_t open_recoveries, dropped, purges; // rows
    struct sql_counters counters;
    int64_t term; // highest; 0: none yet
    int64_t tags, deaths;
    int64_t tombstones, mutations;
    bool is_pooled;      // this very connection goes through a pooler
    int64_t pooled_tags; // tags that came on a session which had brought another before
};

// Errors: as for any read; a missing schema is no error.
must_check int sql_status(const struct sql_options *options, struct sql_status *ret_status,
                          struct err *err);
