// SPDX-License-Identifier: Apache-2.0
#include "agent/pg/admin.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql/sql.h"

#define LOCK_TIMEOUT   "SET LOCAL lock_timeout = '200ms';"
#define BACKOFF_MIN_NS (100 * NS_PER_MS)
#define BACKOFF_MAX_NS (2 * NS_PER_SEC)

void admin_say(const struct admin *admin, const char *fmt, ...)
{
    char line[256];
    va_list args;

    if (!admin->options->say)
        return;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    admin->options->say(line, admin->options->arg);
}

static void discard_notice(void *arg, const PGresult *result)
{
    (void)arg;
    (void)result;
}

void admin_done(struct admin *admin)
{
    PQfinish(admin->pq);
}

// Turns libpq's connecting until it is done; false on failure or when the time is up (then
// without a message of libpq).
static bool connect_within(PGconn *pq, int64_t timeout_ns)
{
    struct instant end = instant_add(clock_now(), timeout_ns);
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;

    if (PQstatus(pq) == CONNECTION_BAD)
        return false;
    while (status == PGRES_POLLING_READING || status == PGRES_POLLING_WRITING) {
        struct pollfd fd = {.fd = PQsocket(pq),
                            .events = status == PGRES_POLLING_READING ? POLLIN : POLLOUT};
        int64_t left_ns = instant_since(end, clock_now());

        if (left_ns <= 0)
            return false;
        if (poll(&fd, 1, (int)(left_ns / NS_PER_MS) + 1) > 0)
            status = PQconnectPoll(pq);
    }
    return status == PGRES_POLLING_OK;
}

static int admin_connect(struct admin *admin, struct err *err)
{
    const struct pg_params *params = admin->options->params;
    char port[8], password[1024];
    const char *const keywords[] = {"host",     "port",    "dbname",      "user",
                                    "password", "sslmode", "sslrootcert", "application_name",
                                    NULL};
    const char *values[] = {params->host,
                            port,
                            params->database,
                            params->user,
                            password,
                            params->sslmode,
                            params->sslrootcert,
                            "metafence-install",
                            NULL};
    struct pg_fault fault;

    if (pg_password(params, password, sizeof password, err) < 0)
        return -1;
    (void)snprintf(port, sizeof port, "%u", (unsigned)params->port);
    admin->pq = PQconnectStartParams(keywords, values, 0);
    explicit_bzero(password, sizeof password);
    if (!admin->pq)
        abort();
    (void)PQsetErrorVerbosity(admin->pq, PQERRORS_VERBOSE); // for the SQLSTATE of a refusal
    if (!connect_within(admin->pq, params->connect_timeout_ns)) {
        pg_fault_from_connect(&fault, PQerrorMessage(admin->pq), params->password);
        if (PQstatus(admin->pq) != CONNECTION_BAD)
            pg_fault_silent(&fault, ERR_TRANSIENT, "no answer from %s port %s", params->host,
                            port);
        *err = fault.err;
        return err_wrap(err, "connect to Postgres");
    }
    (void)PQsetNoticeReceiver(admin->pq, discard_notice, NULL);
    (void)PQsetnonblocking(admin->pq, 1);
    return 0;
}

// Sends what is left to be sent and waits for bytes; false when the time is up.
static bool wait_within(PGconn *pq, struct instant end)
{
    int unsent = PQflush(pq);
    struct pollfd fd = {.fd = PQsocket(pq),
                        .events = (short)(unsent > 0 ? POLLIN | POLLOUT : POLLIN)};
    int64_t left_ns = instant_since(end, clock_now());

    if (left_ns <= 0)
        return false;
    if (poll(&fd, 1, (int)(left_ns / NS_PER_MS) + 1) > 0 && (fd.revents & ~POLLOUT))
        (void)PQconsumeInput(pq); // PQgetResult tells of an error
    return true;
}

// The next result of what was sent, NULL after the last. A connection without an answer is of
// no use any more: admin->pq is NULL then.
static PGresult *next_result(struct admin *admin, struct instant end)
{
    while (PQstatus(admin->pq) == CONNECTION_OK && PQisBusy(admin->pq)) {
        if (wait_within(admin->pq, end))
            continue;
        PQfinish(admin->pq);
        admin->pq = NULL;
        return NULL;
    }
    return PQgetResult(admin->pq);
}

// As PQexec, within a time: the server's own limit on waits for locks, and as much again for
// the rest.
static PGresult *execute(struct admin *admin, const char *sql)
{
    struct instant end = instant_add(clock_now(), 2 * admin->options->timeout_ns);
    PGresult *last = NULL;
    PGresult *next = NULL;

    if (PQsendQuery(admin->pq, sql) != 1)
        return NULL;
    while ((next = next_result(admin, end)) != NULL) {
        PQclear(last);
        last = next;
    }
    if (admin->pq)
        return last;
    PQclear(last);
    return NULL;
}

// Runs `sql` (several statements without parameters) and returns its last result, or NULL with
// *err.
static PGresult *run(struct admin *admin, const char *sql, struct err *err)
{
    PGresult *result = execute(admin, sql);
    ExecStatusType status = PQresultStatus(result);
    struct pg_fault fault;
    const char *message = NULL;

    admin->sqlstate[0] = '\0';
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
        return result;
    message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (!admin->pq) {
        pg_fault_silent(&fault, ERR_UNKNOWN_OUTCOME, "Postgres did not answer for %lld s",
                        (long long)(2 * admin->options->timeout_ns / NS_PER_SEC));
        *err = fault.err;
        return NULL;
    }
    pg_fault_set(&fault, PQresultErrorField(result, PG_DIAG_SQLSTATE),
                 message ? message : "the connection was lost", NULL);
    (void)snprintf(admin->sqlstate, sizeof admin->sqlstate, "%s", fault.sqlstate);
    *err = fault.err;
    PQclear(result);
    return NULL;
}

int admin_run(struct admin *admin, const char *sql, struct err *err)
{
    PGresult *result = run(admin, sql, err);

    PQclear(result);
    return result ? 0 : -1;
}

// First column of the first row as text; "" for NULL or no row.
int admin_value(struct admin *admin, const char *sql, char *buf, size_t size, struct err *err)
{
    PGresult *result = run(admin, sql, err);

    if (!result)
        return -1;
    (void)snprintf(buf, size, "%s", PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    return 0;
}

// One transaction with a short lock_timeout, again and again until the time is up: whoever
// waits longer holds up everybody behind it in the lock queue.
int admin_run_locked(struct admin *admin, const char *what, const char *sql, struct err *err)
{
    int64_t backoff_ns = BACKOFF_MIN_NS;
    struct buf text = {0};
    int rc = 0;

    buf_printf(&text, "BEGIN;" LOCK_TIMEOUT "%s;COMMIT", sql);
    for (;;) {
        rc = admin_run(admin, buf_str(&text), err);
        if (rc == 0)
            break;
        bool is_busy =
            strcmp(admin->sqlstate, "55P03") == 0 || strcmp(admin->sqlstate, "40P01") == 0;
        // Should it fail too, so does the next statement.
        PQclear(execute(admin, "ROLLBACK"));
        if (!is_busy)
            break;
        if (instant_reached(clock_now(), admin->give_up_at)) {
            (void)err_set(err, ERR_TRANSIENT, 0,
                          "a lock stayed taken: look for a long transaction in pg_locks, then "
                          "run this again");
            break;
        }
        admin_say(admin, "%s: busy, trying again in %lldms", what,
                  (long long)(backoff_ns / NS_PER_MS));
        (void)poll(NULL, 0, (int)(backoff_ns / NS_PER_MS));
        backoff_ns = backoff_ns * 2 < BACKOFF_MAX_NS ? backoff_ns * 2 : BACKOFF_MAX_NS;
    }
    buf_done(&text);
    return rc == 0 ? 0 : err_wrap(err, "%s", what);
}

int admin_begin(struct admin *admin, struct err *err)
{
    char value[8], sql[128];

    admin->give_up_at = instant_add(clock_now(), admin->options->timeout_ns);
    if (election_table_quote(admin->options->leader_table, admin->table, sizeof admin->table,
                             err) < 0)
        return err_wrap(err, "election.leaderTable");
    if (admin_connect(admin, err) < 0)
        return -1;
    if (admin_value(admin, "SELECT pg_is_in_recovery()", value, sizeof value, err) < 0)
        return -1;
    if (value[0] == 't')
        return err_set(err, ERR_DENIED, 0, "this Postgres is a standby: name the primary");
    (void)snprintf(sql, sizeof sql, "SET lock_timeout = %lld",
                   (long long)(admin->options->timeout_ns / NS_PER_MS) + 1);
    return admin_run(admin, sql, err);
}

int admin_leader_exists(struct admin *admin, bool *ret_exists, struct err *err)
{
    char sql[256], value[8];

    (void)snprintf(sql, sizeof sql, "SELECT to_regclass('%s') IS NOT NULL", admin->table);
    if (admin_value(admin, sql, value, sizeof value, err) < 0)
        return err_wrap(err, "look for table %s", admin->table);
    *ret_exists = value[0] == 't';
    return 0;
}

int admin_trigger_state(struct admin *admin, const char *name, char *buf, size_t size,
                        struct err *err)
{
    char sql[640];

    // tgtype: 1 row, 2 before, 4 insert, 16 update. tgenabled O or A: fires for ordinary
    // sessions.
    (void)snprintf(
        sql, sizeof sql,
        "SELECT CASE WHEN t.tgtype = CASE t.tgname WHEN '" SQL_HOLD_NAME
        "' THEN 23 ELSE 21 END AND t.tgenabled IN ('O','A') AND n.nspname = '" SQL_SCHEMA
        "' THEN 'on' ELSE 'off' END FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid"
        " JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE t.tgrelid = to_regclass('%s') AND t.tgname = '%s'",
        admin->table, name);
    return admin_value(admin, sql, buf, size, err);
}

int admin_is_pooled(struct admin *admin, bool *ret_is_pooled, struct err *err)
{
    char value[24];
    int64_t pid = 0;

    if (admin_value(admin, "SELECT pg_backend_pid()", value, sizeof value, err) < 0)
        return -1;
    *ret_is_pooled = !election_parse_count(value, &pid) || pid != PQbackendPID(admin->pq);
    return 0;
}
