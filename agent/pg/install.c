// SPDX-License-Identifier: Apache-2.0
#include "agent/pg/install.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pg/election.h"
#include "sql/sql.h"

#define ADVISORY_LOCK  "7741035926118263" // any number, the same in all versions
#define LOCK_TIMEOUT   "SET LOCAL lock_timeout = '200ms';"
#define BACKOFF_MIN_NS (100 * NS_PER_MS)
#define BACKOFF_MAX_NS (2 * NS_PER_SEC)

struct work {
    const struct sql_options *options;
    PGconn *pq;
    struct instant give_up_at;
    char table[2 * ELECTION_TABLE_SIZE + 8]; // quoted
    char sqlstate[6];                        // of the last failed statement
};

static void say(const struct work *work, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void say(const struct work *work, const char *fmt, ...)
{
    char line[256];
    va_list args;

    if (!work->options->say)
        return;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    work->options->say(line, work->options->arg);
}

static void discard_notice(void *arg, const PGresult *result)
{
    (void)arg;
    (void)result;
}

static void work_done(struct work *work)
{
    PQfinish(work->pq);
}

static int work_connect(struct work *work, struct err *err)
{
    const struct pg_params *params = work->options->params;
    char port[8], timeout[24], password[1024];
    const char *const keywords[] = {"host",
                                    "port",
                                    "dbname",
                                    "user",
                                    "password",
                                    "sslmode",
                                    "sslrootcert",
                                    "connect_timeout",
                                    "application_name",
                                    NULL};
    const char *values[] = {params->host,
                            port,
                            params->database,
                            params->user,
                            password,
                            params->sslmode,
                            params->sslrootcert,
                            timeout,
                            "metafence-install",
                            NULL};
    struct pg_fault fault;

    if (pg_password(params, password, sizeof password, err) < 0)
        return -1;
    (void)snprintf(port, sizeof port, "%u", (unsigned)params->port);
    // libpq counts in seconds and takes 1 for 2.
    (void)snprintf(timeout, sizeof timeout, "%lld",
                   (long long)(params->connect_timeout_ns / NS_PER_SEC + 1));
    work->pq = PQconnectdbParams(keywords, values, 0);
    if (PQstatus(work->pq) != CONNECTION_OK) {
        pg_fault_from_connect(&fault, PQerrorMessage(work->pq), password);
        *err = fault.err;
        explicit_bzero(password, sizeof password);
        return err_wrap(err, "connect to Postgres");
    }
    explicit_bzero(password, sizeof password);
    (void)PQsetNoticeReceiver(work->pq, discard_notice, NULL);
    return 0;
}

// Runs `sql` (several statements without parameters) and returns its last result, or NULL with
// *err.
static PGresult *run(struct work *work, const char *sql, struct err *err)
{
    PGresult *result = PQexec(work->pq, sql);
    ExecStatusType status = PQresultStatus(result);
    struct pg_fault fault;
    const char *message = NULL;

    work->sqlstate[0] = '\0';
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
        return result;
    message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    pg_fault_set(&fault, PQresultErrorField(result, PG_DIAG_SQLSTATE),
                 message ? message : "the connection was lost", NULL);
    (void)snprintf(work->sqlstate, sizeof work->sqlstate, "%s", fault.sqlstate);
    *err = fault.err;
    PQclear(result);
    return NULL;
}

static int run_all(struct work *work, const char *sql, struct err *err)
{
    PGresult *result = run(work, sql, err);

    PQclear(result);
    return result ? 0 : -1;
}

// First column of the first row as text; "" for NULL or no row.
static int run_value(struct work *work, const char *sql, char *buf, size_t size,
                     struct err *err)
{
    PGresult *result = run(work, sql, err);

    if (!result)
        return -1;
    (void)snprintf(buf, size, "%s", PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    return 0;
}

// One transaction with a short lock_timeout, again and again until the time is up: whoever
// waits longer holds up everybody behind it in the lock queue.
static int run_locked(struct work *work, const char *what, const char *sql, struct err *err)
{
    int64_t backoff_ns = BACKOFF_MIN_NS;
    struct buf text = {0};
    int rc = 0;

    buf_printf(&text, "BEGIN;" LOCK_TIMEOUT "%s;COMMIT", sql);
    for (;;) {
        struct err ignored;
        rc = run_all(work, buf_str(&text), err);
        if (rc == 0)
            break;
        bool is_busy =
            strcmp(work->sqlstate, "55P03") == 0 || strcmp(work->sqlstate, "40P01") == 0;
        (void)run_all(work, "ROLLBACK",
                      &ignored); // its own failure shows in the next statement
        if (!is_busy)
            break;
        if (instant_reached(clock_now(), work->give_up_at)) {
            (void)err_set(err, ERR_TRANSIENT, 0,
                          "a lock stayed taken: look for a long transaction in pg_locks, then "
                          "run this again");
            break;
        }
        say(work, "%s: busy, trying again in %lldms", what,
            (long long)(backoff_ns / NS_PER_MS));
        (void)poll(NULL, 0, (int)(backoff_ns / NS_PER_MS));
        backoff_ns = backoff_ns * 2 < BACKOFF_MAX_NS ? backoff_ns * 2 : BACKOFF_MAX_NS;
    }
    buf_done(&text);
    return rc == 0 ? 0 : err_wrap(err, "%s", what);
}

static int work_begin(struct work *work, struct err *err)
{
    char value[8], sql[128];

    work->give_up_at = instant_add(clock_now(), work->options->timeout_ns);
    if (election_table_quote(work->options->leader_table, work->table, sizeof work->table,
                             err) < 0)
        return err_wrap(err, "election.leaderTable");
    if (work_connect(work, err) < 0)
        return -1;
    if (run_value(work, "SELECT pg_is_in_recovery()", value, sizeof value, err) < 0)
        return -1;
    if (value[0] == 't')
        return err_set(err, ERR_DENIED, 0, "this Postgres is a standby: name the primary");
    (void)snprintf(sql, sizeof sql, "SET lock_timeout = %lld",
                   (long long)(work->options->timeout_ns / NS_PER_MS) + 1);
    return run_all(work, sql, err);
}

static int work_lock(struct work *work, struct err *err)
{
    if (run_all(work, "SELECT pg_advisory_lock(" ADVISORY_LOCK ")", err) == 0)
        return 0;
    return err_wrap(err, "wait for another installation to end");
}

// Refuses to touch what is newer than this binary or was not made by us.
static int check_existing(struct work *work, struct err *err)
{
    char count[24], version[24];
    int64_t found = 0;

    if (run_value(
            work,
            "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = '" SQL_SCHEMA "'",
            count, sizeof count, err) < 0)
        return -1;
    if (strcmp(count, "0") == 0)
        return 0;
    if (run_value(work,
                  "SELECT value FROM " SQL_SCHEMA ".setting WHERE name = 'schema_version'",
                  version, sizeof version, err) < 0) {
        if (strcmp(work->sqlstate, "42P01") != 0)
            return err_wrap(err, "read the installed version");
        return err_set(err, ERR_DENIED, 0,
                       "schema " SQL_SCHEMA " exists and was not made by metafence: rename it");
    }
    if (!election_parse_count(version, &found))
        return err_set(err, ERR_DENIED, 0, "installed schema_version \"%s\" is not a number",
                       version);
    if (found > SQL_VERSION)
        return err_set(
            err, ERR_DENIED, 0,
            "schema version %lld is newer than this binary's %d: use the newer metafence",
            (long long)found, SQL_VERSION);
    say(work, "schema version %lld is installed", (long long)found);
    return 0;
}

static int leader_exists(struct work *work, bool *ret_exists, struct err *err)
{
    char sql[256], value[8];

    (void)snprintf(sql, sizeof sql, "SELECT to_regclass('%s') IS NOT NULL", work->table);
    if (run_value(work, sql, value, sizeof value, err) < 0)
        return err_wrap(err, "look for table %s", work->table);
    *ret_exists = value[0] == 't';
    return 0;
}

static int check_creator(struct work *work, struct err *err)
{
    char value[8];

    if (work->options->meta_role)
        return 0;
    if (run_value(work, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user", value,
                  sizeof value, err) < 0)
        return -1;
    if (value[0] != 't')
        return 0;
    return err_set(
        err, ERR_DENIED, 0,
        "table %s does not exist, and as a superuser's table the metas could not use it: "
        "install as the metas' role, or start a meta once before",
        work->table);
}

// As RisingWave creates it. Metas that start for the first time at this very moment may collide
// with it as they do with each other (they abort and are restarted): so it is one statement,
// and only when it is missing.
static int ensure_leader(struct work *work, struct err *err)
{
    bool exists = false;
    struct buf sql = {0};
    char *role = NULL;
    int rc = 0;

    if (leader_exists(work, &exists, err) < 0 || exists)
        return exists ? 0 : -1;
    if (check_creator(work, err) < 0)
        return -1;
    buf_printf(&sql,
               "CREATE TABLE IF NOT EXISTS %s (service VARCHAR, id VARCHAR, last_heartbeat "
               "TIMESTAMPTZ,"
               " PRIMARY KEY (service))",
               work->table);
    if (work->options->meta_role) {
        role = PQescapeIdentifier(work->pq, work->options->meta_role,
                                  strlen(work->options->meta_role));
        buf_printf(&sql, ";ALTER TABLE %s OWNER TO %s", work->table, role ? role : "\"\"");
        PQfreemem(role);
    }
    rc = run_locked(work, "create the leader table", buf_str(&sql), err);
    buf_done(&sql);
    if (rc < 0 &&
        (strcmp(work->sqlstate, "23505") == 0 || strcmp(work->sqlstate, "42P07") == 0)) {
        // A meta was faster.
        if (leader_exists(work, &exists, err) < 0)
            return -1;
        rc = exists ? 0 : rc;
    }
    if (rc == 0)
        say(work, "table %s created, as a meta would at its first start", work->table);
    return rc;
}

static void put_replaced(struct buf *text, const char *template, const char *mark,
                         const char *value)
{
    const char *at = template;

    for (const char *hit = strstr(at, mark); hit; hit = strstr(at, mark)) {
        buf_append(text, at, (size_t)(hit - at));
        buf_puts(text, value);
        at = hit + strlen(mark);
    }
    buf_puts(text, at);
}

static void put_grant(struct buf *text, const char *table, const char *quoted_role)
{
    struct buf half = {0};

    put_replaced(&half, sql_grant, SQL_LEADER_TABLE, table);
    put_replaced(text, buf_str(&half), SQL_ROLE, quoted_role);
    buf_done(&half);
}

static int grant_to(struct work *work, const char *role, struct err *err)
{
    struct buf sql = {0};
    char *quoted = PQescapeIdentifier(work->pq, role, strlen(role));
    int rc = 0;

    if (!quoted)
        return err_set(err, ERR_INVALID, 0, "role name is not valid text");
    put_grant(&sql, work->table, quoted);
    rc = run_locked(work, "grant", buf_str(&sql), err);
    if (rc == 0)
        say(work, "rights granted to %s", quoted);
    PQfreemem(quoted);
    buf_done(&sql);
    return rc;
}

static int grant_all(struct work *work, struct err *err)
{
    char sql[384], owner[ELECTION_TABLE_SIZE];

    (void)snprintf(
        sql, sizeof sql,
        "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = '%s'::regclass AND"
        " pg_get_userbyid(relowner) <> current_user",
        work->table);
    if (run_value(work, sql, owner, sizeof owner, err) < 0)
        return -1;
    if (owner[0] && grant_to(work, owner, err) < 0)
        return -1;
    for (size_t i = 0; i < work->options->role_count; i++) {
        if (grant_to(work, work->options->roles[i], err) < 0)
            return -1;
    }
    return 0;
}

// "", "on", or "off" (present, but not as we want it).
static int trigger_state(struct work *work, char *buf, size_t size, struct err *err)
{
    char sql[512];

    // tgtype 21: row, insert, update, after. tgenabled O or A: fires for ordinary sessions.
    (void)snprintf(
        sql, sizeof sql,
        "SELECT CASE WHEN t.tgtype = 21 AND t.tgenabled IN ('O','A') AND n.nspname = "
        "'" SQL_SCHEMA
        "' THEN 'on' ELSE 'off' END FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid"
        " JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE t.tgrelid = to_regclass('%s') AND t.tgname = '" SQL_TRIGGER_NAME "'",
        work->table);
    return run_value(work, sql, buf, size, err);
}

static int install_trigger(struct work *work, struct err *err)
{
    struct buf sql = {0};
    char state[8];
    int rc = trigger_state(work, state, sizeof state, err);

    if (rc < 0)
        return -1;
    if (strcmp(state, "on") == 0) {
        say(work, "trigger on %s is installed", work->table);
        return 0;
    }
    if (state[0])
        buf_printf(&sql, "DROP TRIGGER " SQL_TRIGGER_NAME " ON %s;", work->table);
    put_replaced(&sql, sql_trigger, SQL_LEADER_TABLE, work->table);
    rc = run_locked(work, "create the trigger", buf_str(&sql), err);
    buf_done(&sql);
    if (rc == 0)
        say(work, "trigger on %s created", work->table);
    return rc;
}

int sql_install(const struct sql_options *options, struct err *err)
{
    __attribute__((cleanup(work_done))) struct work work = {.options = options};

    if (work_begin(&work, err) < 0 || work_lock(&work, err) < 0 ||
        check_existing(&work, err) < 0 ||
        run_locked(&work, "create the schema", sql_schema, err) < 0)
        return -1;
    say(&work, "schema version %d is in place", SQL_VERSION);
    if (ensure_leader(&work, err) < 0 || grant_all(&work, err) < 0)
        return -1;
    return install_trigger(&work, err);
}

int sql_uninstall(const struct sql_options *options, struct err *err)
{
    __attribute__((cleanup(work_done))) struct work work = {.options = options};

    if (work_begin(&work, err) < 0 || work_lock(&work, err) < 0 ||
        check_existing(&work, err) < 0 || run_locked(&work, "uninstall", sql_remove, err) < 0)
        return -1;
    say(&work, "nothing of metafence is left in this database");
    return 0;
}

int sql_print(const struct sql_options *options, struct buf *ret_text, struct err *err)
{
    char table[2 * ELECTION_TABLE_SIZE + 8];

    if (election_table_quote(options->leader_table, table, sizeof table, err) < 0)
        return err_wrap(err, "election.leaderTable");
    buf_printf(ret_text, "BEGIN;\n" LOCK_TIMEOUT "\n%sCOMMIT;\n\n", sql_schema);
    for (size_t i = 0; i < options->role_count; i++) {
        char role[2 * ELECTION_TABLE_SIZE];
        if (election_table_quote(options->roles[i], role, sizeof role, err) < 0)
            return err_wrap(err, "role");
        buf_puts(ret_text, "BEGIN;\n" LOCK_TIMEOUT "\n");
        put_grant(ret_text, table, role);
        buf_puts(ret_text, "COMMIT;\n\n");
    }
    buf_puts(ret_text, "BEGIN;\n" LOCK_TIMEOUT "\n");
    put_replaced(ret_text, sql_trigger, SQL_LEADER_TABLE, table);
    buf_puts(ret_text, "COMMIT;\n");
    return 0;
}

static int read_counts(struct work *work, struct sql_status *status, struct err *err)
{
    char text[64];
    const struct {
        const char *sql;
        int64_t *ret;
    } counts[] = {
        {"SELECT coalesce(max(term), 0) FROM " SQL_SCHEMA ".term", &status->term},
        {"SELECT count(*) FROM " SQL_SCHEMA ".tag", &status->tags},
        {"SELECT count(*) FROM " SQL_SCHEMA ".death", &status->deaths},
    };
    int64_t version = 0;

    if (run_value(work, "SELECT value FROM " SQL_SCHEMA ".setting WHERE name = 'guard'",
                  status->guard, sizeof status->guard, err) < 0 ||
        run_value(work,
                  "SELECT value FROM " SQL_SCHEMA ".setting WHERE name = 'schema_version'",
                  text, sizeof text, err) < 0)
        return -1;
    status->version =
        election_parse_count(text, &version) && version < 1000000 ? (int)version : 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (run_value(work, counts[i].sql, text, sizeof text, err) < 0)
            return -1;
        if (!election_parse_count(text, counts[i].ret))
            return err_set(err, ERR_INVALID, 0, "not a count: \"%s\"", text);
    }
    status->can_read = true;
    return 0;
}

int sql_status(const struct sql_options *options, struct sql_status *ret_status,
               struct err *err)
{
    __attribute__((cleanup(work_done))) struct work work = {.options = options};
    struct sql_status status = {0};
    char state[8];

    if (work_begin(&work, err) < 0 || leader_exists(&work, &status.has_table, err) < 0 ||
        trigger_state(&work, state, sizeof state, err) < 0 ||
        run_value(
            &work,
            "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = '" SQL_SCHEMA
            "'",
            status.owner, sizeof status.owner, err) < 0)
        return -1;
    status.has_schema = status.owner[0] != '\0';
    status.has_trigger = state[0] != '\0';
    status.is_trigger_on = strcmp(state, "on") == 0;
    // Without rights the rest stays empty, which can_read says.
    if (status.has_schema && read_counts(&work, &status, err) < 0 &&
        strcmp(work.sqlstate, "42501") != 0 && strcmp(work.sqlstate, "42P01") != 0)
        return -1;
    *ret_status = status;
    return 0;
}
