// SPDX-License-Identifier: Apache-2.0
#include "agent/pg/election.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "sql/sql.h"

#define PROBE_AGAIN_NS (5 * NS_PER_SEC) // while something that we would use is missing

// A request that is no read, until it is answered.
struct call {
    struct call *next;
    struct election *election;
    election_done_fn *fn;
    void *arg;
};

struct election {
    struct pg *pg;
    const struct election_config *config;
    struct election_caps caps;
    struct instant probed_at;
    bool is_probe_fresh;  // the catalog was read for this very read
    election_read_fn *fn; // NULL: no read under way
    void *arg;
    char tag[ELECTION_TAG_SIZE];
    struct buf sql;
    struct call *calls;
};

int election_new(struct pg *pg, const struct election_config *config,
                 struct election **ret_election, struct err *err)
{
    char quoted[2 * ELECTION_TABLE_SIZE + 8];
    struct election *election = NULL;

    if (election_table_quote(config->leader_table, quoted, sizeof quoted, err) < 0)
        return err_wrap(err, "election.leaderTable");
    if (election_table_quote(config->member_table, quoted, sizeof quoted, err) < 0)
        return err_wrap(err, "election.memberTable");
    election = calloc(1, sizeof *election);
    if (!election)
        abort();
    election->pg = pg;
    election->config = config;
    *ret_election = election;
    return 0;
}

void election_free(struct election *election)
{
    if (!election)
        return;
    while (election->calls) {
        struct call *call = election->calls;
        election->calls = call->next;
        free(call);
    }
    buf_done(&election->sql);
    free(election);
}

// --- the read ---

static void read_finish(struct election *election, const struct election_read *read)
{
    election_read_fn *fn = election->fn;

    election->fn = NULL;
    if (read->status == ELECTION_STANDBY)
        pg_renew(election->pg); // the name may lead to the primary by now
    fn(read, election->arg);
}

static enum election_status status_of(const struct pg_fault *fault)
{
    switch (fault->kind) {
    case PG_OK: return ELECTION_OK;
    case PG_REFUSAL: return ELECTION_REFUSED;
    case PG_MISSING:
        return strcmp(fault->sqlstate, "42P01") == 0 ? ELECTION_MISSING : ELECTION_UNREADABLE;
    case PG_SILENT:
    case PG_FAILED: break;
    }
    return ELECTION_SILENT;
}

static void read_fail(struct election *election, const struct pg_reply *reply,
                      const struct pg_fault *fault)
{
    struct election_read read = {
        .status = status_of(fault),
        .fault = *fault,
        .sent_at = reply->sent_at,
        .received_at = reply->received_at,
        .was_hedged = reply->was_hedged,
        .schema_denied = election->caps.schema_denied,
        .members_denied = election->caps.member_denied,
    };

    read_finish(election, &read);
}

// The answer's only row as plain strings. Errors: INVALID.
static int row_fields(const PGresult *result, size_t max, const char **fields,
                      size_t *ret_count, struct err *err)
{
    size_t count = (size_t)PQnfields(result);

    if (PQntuples(result) != 1 || count > max)
        return err_set(err, ERR_INVALID, 0,
                       "answer has %d rows of %zu columns, expected 1 of %zu",
                       PQntuples(result), count, max);
    for (size_t i = 0; i < count; i++)
        fields[i] = PQgetisnull(result, 0, (int)i) ? NULL : PQgetvalue(result, 0, (int)i);
    *ret_count = count;
    return 0;
}

static void fault_unreadable(struct pg_fault *fault, const struct err *err)
{
    *fault = (struct pg_fault){.kind = PG_MISSING, .err = *err};
}

static void read_start(struct election *election, struct err *err);

static bool should_probe_again(const struct election *election, const struct pg_fault *fault)
{
    // Something was created, dropped, granted or revoked since we looked.
    return !election->is_probe_fresh &&
           (fault->kind == PG_MISSING || strcmp(fault->sqlstate, "42501") == 0);
}

static void read_restart(struct election *election, const struct pg_reply *reply)
{
    struct pg_fault fault;
    struct err err = {0};

    read_start(election, &err);
    if (err.kind == ERR_NONE)
        return;
    fault = (struct pg_fault){.kind = PG_SILENT, .err = err};
    read_fail(election, reply, &fault);
}

// Our own schema is damaged, or another version's: the row counts without it.
static bool should_leave_schema(const struct election *election, const struct pg_fault *fault)
{
    return election->is_probe_fresh && election->caps.schema_readable &&
           fault->kind == PG_MISSING;
}

static void on_row(const struct pg_reply *reply, void *arg)
{
    struct election *election = arg;
    const char *fields[ELECTION_FIELDS];
    size_t count = 0;
    struct election_read read = {
        .sent_at = reply->sent_at,
        .received_at = reply->received_at,
        .was_hedged = reply->was_hedged,
    };
    struct pg_fault fault;
    struct err err;

    if (should_probe_again(election, &reply->fault)) {
        election->caps.known = false;
        read_restart(election, reply);
        return;
    }
    if (should_leave_schema(election, &reply->fault)) {
        election->caps.schema_readable = false; // until it is looked for again
        read_restart(election, reply);
        return;
    }
    if (reply->fault.kind != PG_OK) {
        read_fail(election, reply, &reply->fault);
        return;
    }
    if (row_fields(reply->result, ELECTION_FIELDS, fields, &count, &err) < 0 ||
        election_parse(fields, count, &read, &err) < 0) {
        fault_unreadable(&fault, &err);
        read_fail(election, reply, &fault);
        return;
    }
    read.schema_denied = election->caps.schema_denied;
    read.members_denied = election->caps.member_denied;
    if (read.status == ELECTION_STANDBY) {
        read.fault = (struct pg_fault){.kind = PG_FAILED};
        (void)err_set(&read.fault.err, ERR_TRANSIENT, 0, "this Postgres is a standby");
    }
    read_finish(election, &read);
}

// What the catalog says makes a read pointless: *ret_fault says why.
static bool is_unreadable(const struct election *election, struct pg_fault *ret_fault)
{
    const char *table = election->config->leader_table;

    *ret_fault = (struct pg_fault){.kind = PG_MISSING};
    if (!election->caps.leader_exists) {
        (void)snprintf(ret_fault->sqlstate, sizeof ret_fault->sqlstate, "42P01");
        (void)err_set(&ret_fault->err, ERR_INVALID, 0,
                      "table %s does not exist for this role: check database, search_path and "
                      "election.leaderTable, or start a meta once",
                      table);
        return true;
    }
    if (!election->caps.leader_typed) {
        (void)err_set(&ret_fault->err, ERR_INVALID, 0,
                      "table %s has no columns id (varchar) and last_heartbeat (timestamptz)",
                      table);
        return true;
    }
    return false;
}

static void on_probe(const struct pg_reply *reply, void *arg)
{
    struct election *election = arg;
    const char *fields[ELECTION_PROBE_FIELDS];
    size_t count = 0;
    struct pg_fault fault = reply->fault;
    struct err err;

    if (fault.kind == PG_OK &&
        (row_fields(reply->result, ELECTION_PROBE_FIELDS, fields, &count, &err) < 0 ||
         election_parse_probe(fields, count, &election->caps, &err) < 0))
        fault_unreadable(&fault, &err);
    if (fault.kind != PG_OK) {
        read_fail(election, reply, &fault);
        return;
    }
    election->probed_at = reply->received_at;
    election->is_probe_fresh = true;
    if (is_unreadable(election, &fault)) {
        election->caps.known = false;
        read_fail(election, reply, &fault);
        return;
    }
    read_restart(election, reply);
}

static bool is_probe_due(const struct election *election)
{
    const struct election_caps *caps = &election->caps;
    bool has_all = caps->schema_readable && caps->member_readable && caps->can_end &&
                   caps->can_record && caps->can_drop;

    return !caps->known || (!has_all && !election->is_probe_fresh &&
                            instant_since(clock_now(), election->probed_at) > PROBE_AGAIN_NS);
}

// Sends the next statement of the read under way; err->kind stays ERR_NONE when that worked.
static void read_start(struct election *election, struct err *err)
{
    const struct election_config *config = election->config;
    const char *params[] = {config->service, config->id, election->tag};
    bool is_probe = is_probe_due(election);
    struct pg_request request = {.is_read = true};
    struct err failed;
    int rc = 0;

    buf_clear(&election->sql);
    rc = is_probe ? election_sql_probe(&election->sql, config, &failed)
                  : election_sql_read(&election->sql, config, &election->caps, &failed);
    request.sql = buf_str(&election->sql);
    request.params = is_probe ? NULL : params;
    request.param_count = is_probe ? 0 : 3;
    if (rc == 0)
        rc = pg_send(election->pg, &request, is_probe ? on_probe : on_row, election, &failed);
    if (rc < 0)
        *err = failed;
}

bool election_read(struct election *election, const char *tag, election_read_fn *fn, void *arg)
{
    struct err err = {0};

    if (election->fn)
        return false;
    (void)snprintf(election->tag, sizeof election->tag, "%s", tag);
    election->is_probe_fresh = false;
    read_start(election, &err);
    if (err.kind != ERR_NONE)
        return false; // the queue is full: its answers are on the way
    election->fn = fn;
    election->arg = arg;
    return true;
}

// --- calls ---

static void call_finish(struct call *call, int64_t count, const struct pg_fault *fault)
{
    struct call **link = &call->election->calls;

    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
    if (fault && fault->kind == PG_MISSING)
        call->election->caps.known = false;
    call->fn(count, fault, call->arg);
    free(call);
}

// Every call answers with one count.
static void on_call(const struct pg_reply *reply, void *arg)
{
    const char *field = NULL;
    size_t columns = 0;
    int64_t count = 0;
    struct pg_fault fault = reply->fault;
    struct err err;

    if (fault.kind == PG_OK && row_fields(reply->result, 1, &field, &columns, &err) < 0)
        fault_unreadable(&fault, &err);
    else if (fault.kind == PG_OK && !election_parse_count(field, &count)) {
        (void)err_set(&err, ERR_INVALID, 0, "answer is not a count: \"%.40s\"",
                      field ? field : "NULL");
        fault_unreadable(&fault, &err);
    }
    call_finish(arg, count, fault.kind == PG_OK ? NULL : &fault);
}

int election_call(struct election *election, const struct pg_request *request,
                  election_done_fn *fn, void *arg, struct err *err)
{
    struct call *call = calloc(1, sizeof *call);

    if (!call)
        abort();
    *call = (struct call){.next = election->calls, .election = election, .fn = fn, .arg = arg};
    if (pg_send(election->pg, request, on_call, call, err) < 0) {
        free(call);
        return -1;
    }
    election->calls = call;
    return 0;
}

int election_end_sessions(struct election *election, const char *tag, election_done_fn *fn,
                          void *arg, struct err *err)
{
    const char *params[] = {tag};
    const struct pg_request request = {
        .sql = election->caps.can_end
                   ? "SELECT " SQL_SCHEMA ".end_sessions($1)"
                   : "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                     " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                     " AND application_name = $1::text",
        .param_count = 1,
        .params = params,
    };

    return election_call(election, &request, fn, arg, err);
}

int election_record_death(struct election *election, const struct election_death *death,
                          election_done_fn *fn, void *arg, struct err *err)
{
    const char *params[] = {death->tag, death->id, death->method, death->reason};
    const struct pg_request request = {.sql = "SELECT " SQL_SCHEMA
                                              ".record_death($1, $2, $3, $4)::int",
                                       .param_count = 4,
                                       .params = params};

    return election_call(election, &request, fn, arg, err);
}

int election_drop_phantom(struct election *election, int64_t heartbeat_us, election_done_fn *fn,
                          void *arg, struct err *err)
{
    // bigint times interval goes through double: exact below 2^53 µs, that is until the year
    // 2255.
    static const char heartbeat[] =
        "timestamptz 'epoch' + $3::bigint * interval '1 microsecond'";
    const struct election_config *config = election->config;
    char leader[2 * ELECTION_TABLE_SIZE + 8];
    char sql[512], micros[24];
    const char *params[] = {config->service, config->id, micros};
    const struct pg_request request = {.sql = sql, .param_count = 3, .params = params};

    if (election_table_quote(config->leader_table, leader, sizeof leader, err) < 0)
        return -1;
    (void)snprintf(micros, sizeof micros, "%lld", (long long)heartbeat_us);
    if (election->caps.can_drop)
        (void)snprintf(sql, sizeof sql, "SELECT " SQL_SCHEMA ".drop_phantom($1, $2, %s)",
                       heartbeat);
    else
        (void)snprintf(sql, sizeof sql,
                       "WITH gone AS (DELETE FROM %s WHERE service = $1::text AND id = $2::text"
                       " AND last_heartbeat = %s RETURNING 1) SELECT count(*) FROM gone",
                       leader, heartbeat);
    return election_call(election, &request, fn, arg, err);
}

int election_complete(struct election *election, election_done_fn *fn, void *arg,
                      struct err *err)
{
    const struct pg_request request = {.sql = "SELECT " SQL_SCHEMA ".complete()"};

    if (!election->caps.can_complete) {
        election->caps.known = false; // it may have come since
        return err_set(err, ERR_DENIED, 0,
                       "schema " SQL_SCHEMA " has no guard for this role: run metafence sql "
                       "install");
    }
    return election_call(election, &request, fn, arg, err);
}
