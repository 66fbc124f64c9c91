// SPDX-License-Identifier: Apache-2.0
#include "agent/pg/conn.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sql/sql.h"

#define PASSWORD_SIZE 1024

enum conn_state {
    CONN_RESOLVING,
    CONN_CONNECTING,
    CONN_SETTING,   // session settings sent
    CONN_LISTENING, // LISTEN sent
    CONN_IDLE,
    CONN_BUSY,
    CONN_DEAD, // `closed` is due or done
};

struct pg_conn {
    const struct pg_params *params;
    unsigned attempt;
    const struct pg_conn_ops *ops;
    void *arg;
    enum conn_state state;
    PGconn *pq;
    PGresult *result; // of the statement under way
    bool listens, is_pooled;
    struct resolve_query *query;
    struct loop_io *io;
    struct loop_timer *timer; // connect time-out; then the delivery of `fault`
    struct pg_fault fault;
    struct pg_fault farewell; // what the server said before it closed, if it did
    char password[PASSWORD_SIZE];
};

// Stops everything at once; `closed` comes from the loop, so that no caller is called back from
// inside its own call.
static void conn_fail(struct pg_conn *conn, const struct pg_fault *fault)
{
    if (conn->state == CONN_DEAD)
        return;
    conn->state = CONN_DEAD;
    conn->fault = *fault;
    loop_io_stop(conn->io);
    loop_timer_arm(conn->timer, 0);
}

static void conn_fail_lost(struct pg_conn *conn)
{
    struct pg_fault fault;

    pg_fault_from_connect(&fault, PQerrorMessage(conn->pq), conn->password);
    if (!fault.sqlstate[0] && conn->farewell.kind != PG_OK)
        fault = conn->farewell;
    conn_fail(conn, &fault);
}

static void conn_on_timer(void *arg)
{
    struct pg_conn *conn = arg;
    struct pg_fault fault;
    char text[32];

    if (conn->state != CONN_DEAD) {
        pg_fault_silent(&fault, ERR_TRANSIENT,
                        "no session with Postgres at %s port %u within %s", conn->params->host,
                        (unsigned)conn->params->port,
                        duration_format(conn->params->connect_timeout_ns, text, sizeof text));
        conn_fail(conn, &fault);
        loop_timer_stop(conn->timer);
    }
    conn->ops->closed(&conn->fault, conn->arg);
}

static void conn_watch(struct pg_conn *conn, unsigned events)
{
    struct err err;
    struct pg_fault fault;

    if (loop_io_set(conn->io, PQsocket(conn->pq), events, &err) == 0)
        return;
    pg_fault_silent(&fault, ERR_TRANSIENT, "connection to Postgres: %s", err.msg);
    conn_fail(conn, &fault);
}

// Pushes out what libpq has buffered and watches for what it needs next.
static void conn_flush(struct pg_conn *conn)
{
    int left = PQflush(conn->pq);

    if (left < 0)
        conn_fail_lost(conn);
    else
        conn_watch(conn, left > 0 ? LOOP_READ | LOOP_WRITE : LOOP_READ);
}

// Of a backend of our own: the statements' isolation, and a time-out that ends on the server
// what nobody waits for any more. Behind a pooler the backend is shared: whatever we set there
// would fall on the next client, so nothing is. It gives itself away by a backend that has
// another number than the one that we were told at log-in.
static void conn_set_session(struct pg_conn *conn)
{
    char sql[320];

    (void)snprintf(sql, sizeof sql,
                   "SELECT pg_catalog.set_config('default_transaction_isolation', 'read "
                   "committed', false),"
                   " pg_catalog.set_config('statement_timeout', '%lld', false)"
                   " WHERE pg_catalog.pg_backend_pid() = %d",
                   (long long)(2 * conn->params->query_timeout_ns / NS_PER_MS) + 1,
                   PQbackendPID(conn->pq));
    conn->state = CONN_SETTING;
    if (PQsendQuery(conn->pq, sql) != 1)
        conn_fail_lost(conn);
    else
        conn_flush(conn);
}

static void conn_poll(struct pg_conn *conn)
{
    // libpq may close the socket and open another inside the poll.
    loop_io_stop(conn->io);
    switch (PQconnectPoll(conn->pq)) {
    case PGRES_POLLING_READING: conn_watch(conn, LOOP_READ); return;
    case PGRES_POLLING_WRITING: conn_watch(conn, LOOP_WRITE); return;
    case PGRES_POLLING_OK:
        (void)PQsetErrorVerbosity(conn->pq, PQERRORS_VERBOSE);
        if (PQsetnonblocking(conn->pq, 1) != 0)
            conn_fail_lost(conn);
        else
            conn_set_session(conn);
        return;
    case PGRES_POLLING_FAILED:
    case PGRES_POLLING_ACTIVE: break;
    }
    conn_fail_lost(conn);
}

static void conn_become_ready(struct pg_conn *conn)
{
    loop_timer_stop(conn->timer);
    conn->state = CONN_IDLE;
    conn->ops->ready(conn->arg);
}

static void conn_step_setup(struct pg_conn *conn)
{
    ExecStatusType status = PQresultStatus(conn->result);
    bool is_ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    struct pg_fault fault;

    if (conn->state == CONN_SETTING && !is_ok) {
        pg_fault_set(&fault, PQresultErrorField(conn->result, PG_DIAG_SQLSTATE),
                     PQresultErrorField(conn->result, PG_DIAG_MESSAGE_PRIMARY), conn->password);
        conn_fail(conn, &fault);
        return;
    }
    if (conn->state == CONN_SETTING)
        conn->is_pooled = status == PGRES_TUPLES_OK && PQntuples(conn->result) == 0;
    if (conn->state == CONN_SETTING && conn->params->listen && !conn->is_pooled) {
        conn->state = CONN_LISTENING;
        if (PQsendQuery(conn->pq, "LISTEN " SQL_CHANNEL) != 1)
            conn_fail_lost(conn);
        else
            conn_flush(conn);
        return;
    }
    // A standby may refuse LISTEN: polls do without it.
    conn->listens = conn->state == CONN_LISTENING && is_ok;
    conn_become_ready(conn);
}

static void conn_finish_statement(struct pg_conn *conn)
{
    PGresult *result = conn->result;

    if (conn->state != CONN_BUSY) {
        conn_step_setup(conn);
        conn->result = NULL;
    } else if (!result) {
        conn_fail_lost(conn);
    } else {
        conn->result = NULL;
        conn->state = CONN_IDLE;
        conn->ops->result(&result, conn->arg);
    }
    PQclear(result);
}

static void conn_take_results(struct pg_conn *conn)
{
    while (conn->state != CONN_DEAD && conn->state != CONN_IDLE && !PQisBusy(conn->pq)) {
        PGresult *result = PQgetResult(conn->pq);

        if (!result) {
            conn_finish_statement(conn);
            continue;
        }
        // Of several results (settings) an error counts, else the last.
        if (conn->result && PQresultStatus(conn->result) == PGRES_FATAL_ERROR) {
            PQclear(result);
            continue;
        }
        PQclear(conn->result);
        conn->result = result;
    }
}

static void conn_read(struct pg_conn *conn)
{
    if (PQconsumeInput(conn->pq) != 1) {
        conn_fail_lost(conn);
        return;
    }
    for (PGnotify *note = PQnotifies(conn->pq); note; note = PQnotifies(conn->pq)) {
        // One that comes together with the answer to LISTEN is told by the first read anyway.
        if (pg_conn_is_ready(conn))
            conn->ops->notify(note->extra, conn->arg);
        PQfreemem(note);
    }
    conn_take_results(conn);
    if (conn->state != CONN_DEAD && PQstatus(conn->pq) != CONNECTION_OK)
        conn_fail_lost(conn);
}

static void conn_on_io(int fd, unsigned events, void *arg)
{
    struct pg_conn *conn = arg;

    (void)fd;
    if (conn->state == CONN_CONNECTING) {
        conn_poll(conn);
        return;
    }
    if (events & LOOP_READ)
        conn_read(conn);
    if ((events & LOOP_WRITE) && conn->state != CONN_DEAD)
        conn_flush(conn);
}

// A server that ends an idle session says why in a message that libpq takes for a notice.
static void conn_on_notice(void *arg, const PGresult *result)
{
    struct pg_conn *conn = arg;
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);

    if (sqlstate && strncmp(sqlstate, "57P", 3) == 0)
        pg_fault_set(&conn->farewell, sqlstate,
                     PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY), conn->password);
}

// `addr` is numeric; NULL for a unix socket.
static void conn_connect(struct pg_conn *conn, const char *addr)
{
    const struct pg_params *params = conn->params;
    char port[8], tcp_timeout[24];
    const char *keywords[16], *values[16];
    size_t count = 0;
    const struct {
        const char *keyword;
        const char *value;
    } all[] = {
        {"host", params->host},
        {"hostaddr", addr},
        {"port", port},
        {"dbname", params->database},
        {"user", params->user},
        {"password", conn->password[0] ? conn->password : NULL},
        {"sslmode", params->sslmode},
        {"sslrootcert", params->sslrootcert},
        {"application_name", params->application_name},
        {"gssencmode", "disable"}, // its start may block
        {"tcp_user_timeout", tcp_timeout},
    };

    (void)snprintf(port, sizeof port, "%u", (unsigned)params->port);
    // What is sent and never acknowledged ends the connection in the kernel too, long after we
    // gave up.
    (void)snprintf(tcp_timeout, sizeof tcp_timeout, "%lld",
                   (long long)(4 * params->query_timeout_ns / NS_PER_MS) + 1000);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!all[i].value)
            continue;
        keywords[count] = all[i].keyword;
        values[count++] = all[i].value;
    }
    keywords[count] = values[count] = NULL;

    conn->state = CONN_CONNECTING;
    conn->pq = PQconnectStartParams(keywords, values, 0);
    if (!conn->pq)
        abort();
    (void)PQsetNoticeReceiver(conn->pq, conn_on_notice, conn);
    (void)PQsetErrorVerbosity(conn->pq, PQERRORS_VERBOSE);
    if (PQstatus(conn->pq) == CONNECTION_BAD)
        conn_fail_lost(conn);
    else
        conn_watch(conn, LOOP_WRITE);
}

static void conn_on_resolved(const struct resolve_answer *answer, const struct err *err,
                             void *arg)
{
    struct pg_conn *conn = arg;
    struct pg_fault fault;

    conn->query = NULL;
    if (answer) {
        conn_connect(conn, answer->addrs[conn->attempt % answer->count]);
        return;
    }
    pg_fault_silent(&fault, ERR_TRANSIENT, "host %s of Postgres: %s", conn->params->host,
                    err->msg);
    conn_fail(conn, &fault);
}

// A regular file, also behind links as Secrets are mounted. Not blocking: the loop that would
// wait for the writer of a FIFO is the one that permits a leader to live.
static int open_regular(const char *path, int *ret_fd, struct err *err)
{
    struct stat st = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return err_set(err, ERR_DENIED, errno, "password file %s: %m", path);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *ret_fd = fd;
        return 0;
    }
    (void)close(fd);
    return err_set(err, ERR_INVALID, 0, "password file %s: not a regular file", path);
}

static int read_file(const char *path, char *buf, size_t size, size_t *ret_len, struct err *err)
{
    size_t len = 0;
    ssize_t n = 0;
    int code = 0;
    int fd = -1;

    if (open_regular(path, &fd, err) < 0)
        return -1;
    do {
        n = read(fd, buf + len, size - len);
        len += n > 0 ? (size_t)n : 0;
    } while (len < size && (n > 0 || (n < 0 && errno == EINTR)));
    code = errno;
    (void)close(fd);
    if (n < 0)
        return err_set(err, ERR_INVALID, code, "password file %s cannot be read: %s", path,
                       strerrorname_np(code));
    *ret_len = len;
    return 0;
}

int pg_password(const struct pg_params *params, char *buf, size_t size, struct err *err)
{
    const char *path = params->password_file;
    size_t len = 0;

    if (params->password || !path) {
        const char *password = params->password ? params->password : "";
        if ((size_t)snprintf(buf, size, "%s", password) < size)
            return 0;
        return err_set(err, ERR_INVALID, 0, "the Postgres password is longer than %zu bytes",
                       size - 1);
    }
    if (read_file(path, buf, size, &len, err) < 0)
        return -1;
    if (len == size)
        return err_set(err, ERR_INVALID, 0, "password file %s: too long", path);
    buf[len] = '\0';
    buf[strcspn(buf, "\r\n")] = '\0';
    return 0;
}

struct pg_conn *pg_conn_new(const struct pg_net *net, unsigned attempt,
                            const struct pg_conn_ops *ops, void *arg)
{
    const struct pg_params *params = net->params;
    struct pg_conn *conn = calloc(1, sizeof *conn);
    struct pg_fault fault = {.kind = PG_SILENT}; // our own file: no answer of Postgres

    if (!conn)
        abort();
    conn->params = params;
    conn->attempt = attempt;
    conn->ops = ops;
    conn->arg = arg;
    conn->state = CONN_RESOLVING;
    conn->io = loop_io_new(net->loop, conn_on_io, conn);
    conn->timer = loop_timer_new(net->loop, conn_on_timer, conn);
    loop_timer_arm(conn->timer, params->connect_timeout_ns);
    if (pg_password(params, conn->password, sizeof conn->password, &fault.err) < 0)
        conn_fail(conn, &fault);
    else if (params->host[0] == '/')
        conn_connect(conn, NULL);
    else
        // Half the time, so that the last good answer can still be tried when no server
        // replies.
        conn->query = resolve_start(net->resolver, params->host, params->connect_timeout_ns / 2,
                                    conn_on_resolved, conn);
    return conn;
}

void pg_conn_free(struct pg_conn *conn)
{
    if (!conn)
        return;
    resolve_cancel(conn->query);
    loop_io_free(conn->io);
    loop_timer_free(conn->timer);
    PQclear(conn->result);
    PQfinish(conn->pq);
    explicit_bzero(conn->password, sizeof conn->password);
    free(conn);
}

bool pg_conn_is_idle(const struct pg_conn *conn)
{
    return conn->state == CONN_IDLE;
}

bool pg_conn_is_ready(const struct pg_conn *conn)
{
    return conn->state == CONN_IDLE || conn->state == CONN_BUSY;
}

bool pg_conn_is_tls(const struct pg_conn *conn)
{
    return pg_conn_is_ready(conn) && PQsslInUse(conn->pq);
}

bool pg_conn_is_pooled(const struct pg_conn *conn)
{
    return pg_conn_is_ready(conn) && conn->is_pooled;
}

bool pg_conn_listens(const struct pg_conn *conn)
{
    return pg_conn_is_ready(conn) && conn->listens;
}

int pg_conn_send(struct pg_conn *conn, const char *sql, size_t param_count,
                 const char *const *params, struct pg_fault *ret_fault)
{
    assert(conn->state == CONN_IDLE);
    conn->state = CONN_BUSY;
    if (PQsendQueryParams(conn->pq, sql, (int)param_count, NULL, params, NULL, NULL, 0) != 1)
        conn_fail_lost(conn);
    else
        conn_flush(conn);
    if (conn->state != CONN_DEAD)
        return 0;
    *ret_fault = conn->fault;
    return -1;
}
