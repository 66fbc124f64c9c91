// SPDX-License-Identifier: Apache-2.0
#pragma once
// election: what the agent asks Postgres about the election, and the few things that it changes
// there. It finds out by itself what exists (the metafence schema, election_member, rights) and
// asks for no more; in the steady state a read is one round trip. The parser is pure and takes
// plain strings.

#include "agent/pg/pg.h"

#define ELECTION_ID_SIZE    256
#define ELECTION_TAG_SIZE   64
#define ELECTION_TABLE_SIZE 64 // NAMEDATALEN of Postgres

enum election_status {
    ELECTION_OK = 0,
    ELECTION_STANDBY,    // answered, but by a standby: no read
    ELECTION_MISSING,    // the leader table does not exist
    ELECTION_UNREADABLE, // it exists, but not as the election's table: wrong types, missing
                         // columns
    ELECTION_REFUSED,    // Postgres refuses us: class 28, 42501, 3D000, 53300
    ELECTION_SILENT,     // anything that only counts toward the deadline
};

// One answered or failed read. Below `status` only what its line says is set when it is not
// ELECTION_OK.
struct election_read {
    enum election_status status;
    struct pg_fault fault;  // why, unless ELECTION_OK
    struct instant sent_at; // before the answered statement was sent; ns 0: never sent
    struct instant received_at;
    bool was_hedged;

    uint64_t system_id; // of this database; 0: hidden from us
    uint32_t timeline;  // 0: hidden from us, or a standby
    int64_t db_now_us;  // the database's clock at the read, µs since 1970

    bool row_present;
    bool id_is_null;
    char id[ELECTION_ID_SIZE];
    bool heartbeat_is_null;
    int64_t heartbeat_us; // saturates for ±infinity
    int64_t age_ns;       // db_now - heartbeat, saturating; negative: in the future

    bool members_known;     // election_member exists and we may read it
    uint32_t other_members; // its rows with another id, fresh or not

    bool term_known; // the schema is there and has a term for the service
    uint64_t term;
    char term_owner_id[ELECTION_ID_SIZE];
    char owner_tag[ELECTION_TAG_SIZE]; // empty: none
    uint64_t term_system_id;           // of the database that granted it; 0: not recorded
    uint32_t term_timeline;
    char heartbeat_tag[ELECTION_TAG_SIZE]; // who wrote this very heartbeat; empty: not known
    bool tag_owned_term;                   // the tag that was asked about
    bool tag_superseded;
    bool guard_enforcing;

    bool
        schema_denied; // the metafence schema is there, but a GRANT of sql/grant.sql is missing
    bool members_denied; // same for SELECT on the member table
};

struct election_config {
    const char *service;
    const char *leader_table; // [schema.]name, letters, digits, underscore
    const char *member_table;
    const char *id; // meta's advertise address
};

// What a connection may see. Pure data; filled from the answer to election_sql_probe.
struct election_caps {
    bool known;
    bool leader_exists, leader_typed; // typed: id is text-like, last_heartbeat is timestamptz
    bool member_readable, member_denied;
    bool schema_readable, schema_denied;
    bool can_end, can_record, can_drop; // EXECUTE on the functions
    bool can_identify;                  // pg_control_system, pg_current_wal_lsn
    bool can_complete;                  // the schema's version has the guard
};

// --- pure parts ---

enum {
    ELECTION_FIELDS = 17, // columns of the read
    ELECTION_PROBE_FIELDS = 11,
};

// Checks "[schema.]name" and writes it quoted ("\"s\".\"n\"") into `buf`. Errors: INVALID.
must_check int election_table_quote(const char *table, char *buf, size_t size, struct err *err);

struct buf;
// Appends the statement for `caps`. Its parameters: $1 service, $2 own id, $3 own tag.
must_check int election_sql_read(struct buf *sql, const struct election_config *config,
                                 const struct election_caps *caps, struct err *err);
// Appends the statement that finds out what there is. No parameters.
must_check int election_sql_probe(struct buf *sql, const struct election_config *config,
                                  struct err *err);

// Parses the single row of an answer; fields are NULL for SQL NULL. Writes everything from
// system_id down and `status` (ELECTION_OK or ELECTION_STANDBY). Errors: INVALID, names the
// column; *ret_read is then zeroed from system_id down. A broken column of metafence's own
// tables is no error: term_known is false then, as without them.
must_check int election_parse(const char *const *fields, size_t count,
                              struct election_read *ret_read, struct err *err);
must_check int election_parse_probe(const char *const *fields, size_t count,
                                    struct election_caps *ret_caps, struct err *err);

// A whole number >= 0 and nothing else; NULL is none.
must_check bool election_parse_count(const char *text, int64_t *ret_count);

// --- on the loop ---

struct election;

typedef void election_read_fn(const struct election_read *read, void *arg);
// `count`: how many there still were (sessions) or were changed (rows). `fault` NULL when it
// was answered.
typedef void election_done_fn(int64_t count, const struct pg_fault *fault, void *arg);

// `config` and its strings are borrowed. Errors: INVALID (a table name).
must_check int election_new(struct pg *pg, const struct election_config *config,
                            struct election **ret_election, struct err *err);
// Free the pg first: requests under way point here.
void election_free(struct election *election);

// Starts a read; `fn` is called once, from the loop. `tag` is our incarnation's, "" for none.
// Returns false, and never calls `fn`, while a read is under way (its answer comes) or when too
// many requests wait: ask again at the next poll.
bool election_read(struct election *election, const char *tag, election_read_fn *fn, void *arg);

// The requests below fail at once with TRANSIENT, and `fn` is not called, when too many wait
// already.

// Ends the sessions of `tag` in this database: count 0 means that none is left and nothing of
// it can commit any more; call again until then. PG_REFUSAL when we may not end them.
must_check int election_end_sessions(struct election *election, const char *tag,
                                     election_done_fn *fn, void *arg, struct err *err);

struct election_death {
    const char *tag;
    const char *id;
    const char *method; // "permit"
    const char *reason; // name of the rule
};
// Writes a confirmed death down; count 1: new, 0: known already. PG_MISSING without the schema.
must_check int election_record_death(struct election *election,
                                     const struct election_death *death, election_done_fn *fn,
                                     void *arg, struct err *err);

// Deletes our own row if it is still exactly that one; count 0 or 1. Only after the proof of
// death.
must_check int election_drop_phantom(struct election *election, int64_t heartbeat_us,
                                     election_done_fn *fn, void *arg, struct err *err);

// Guards one more of RisingWave's tables, if any is still without: a fresh cluster makes them
// after the installation, and later versions bring new ones. For the verified leader's agent,
// every few seconds. `count`: how many are still without; 0: all are guarded, or there are
// none. A table that is busy is left for the next call. PG_REFUSAL: the schema's owner may not
// put triggers on it. The request itself fails with DENIED where the schema has no guard (none,
// or of version 1) or we lack the right: install again.
must_check int election_complete(struct election *election, election_done_fn *fn, void *arg,
                                 struct err *err);

// Runs a statement of ours that answers with one count; parameters as for pg_send.
must_check int election_call(struct election *election, const struct pg_request *request,
                             election_done_fn *fn, void *arg, struct err *err);
