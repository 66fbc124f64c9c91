// SPDX-License-Identifier: Apache-2.0
#pragma once
// store: what the reconciler asks of Postgres: the statements, and their answers as plain
// values. Parsing is pure and works on the fields of one row; NULL is SQL NULL. Every error
// names the column, what is there and what to do.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/pg/fault.h"
#include "agent/reconcile/verdict.h"
#include "base/err.h"

struct buf;

#define STORE_TAG_SIZE 64

// Where we are; metafence.reconcile_state().
struct store_state {
    bool is_standby;
    uint64_t term;
    char owner_tag[STORE_TAG_SIZE]; // "": untagged
    enum reconcile_guard guard;
    bool is_known; // all changes since the leader has loaded the rows are in the log
    uint32_t tombstones;
    uint32_t intents;
    uint32_t unknown_rows, lost_rows, reborn_rows; // as struct converge_facts
    uint32_t untagged_rows; // of the unknown: written by sessions without a tag
    bool untagged_writers;  // … which may be the leader's own: none of that is counted
    bool ghosts_known;
    uint32_t ghosts;
    uint64_t newest; // of what others did since, its entry in the log; 0: nothing
};

// A change of a worker row that the leader's memory depends on.
struct store_entry {
    int64_t worker_id;
    bool is_own;    // by the leader itself
    bool is_insert; // else by others, whatever it was
    bool is_delete;
    int32_t port;     // 0: none
    const char *host; // borrowed; NULL: none
};

enum {
    STORE_STATE_FIELDS = 14,
    STORE_ROW_FIELDS = 6,
    STORE_ENTRY_FIELDS = 6,
};

// $1 service, $2 ids of actors' workers, "{1,2}" or NULL, $3 whether tags may get lost
extern const char store_sql_state[];
extern const char store_sql_rows[];   // ascending by id
extern const char store_sql_log[];    // $1 service; ask after the rows
extern const char store_sql_bury[];   // $1 service, term, id, host, port, version, uid, seconds
extern const char store_sql_unbury[]; // $1 service, term, id
extern const char store_sql_intend[]; // $1 service, term, id, host, port, version
extern const char store_sql_withdraw[]; // $1 service, term, id
extern const char
    store_sql_note[]; // $1 service, term, action, id, endpoint, reason, evidence, outcome

must_check int store_parse_state(const char *const *fields, struct store_state *ret,
                                 struct err *err);
// Strings are borrowed. leader_knows is left false. A type or status that is not known is no
// error, nor is a host that can't be parsed or is NULL: such rows are left alone.
must_check int store_parse_row(const char *const *fields, struct worker_row *ret,
                               struct err *err);
must_check int store_parse_entry(const char *const *fields, struct store_entry *ret,
                                 struct err *err);
// "t" or "f". False also for NULL.
bool store_is_true(const char *field);

// "{1,2,3}"
void store_put_ids(struct buf *out, const uint32_t *ids, size_t count);

// What to do about a statement that Postgres refused, or NULL.
const char *store_fix(const struct pg_fault *fault);
