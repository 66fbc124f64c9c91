// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/pg/pgtest.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/resolve.h"

static uint16_t env_port(const char *name)
{
    const char *text = getenv(name);
    int64_t port = 0;

    if (!text || !election_parse_count(text, &port))
        fail_msg("%s is not set: run this by tests/unit/pg/with-postgres", name);
    return (uint16_t)port;
}

uint16_t pgt_port(void)
{
    return env_port("METAFENCE_PG_PORT");
}

uint16_t pgt_standby_port(void)
{
    return env_port("METAFENCE_PG_STANDBY_PORT");
}

const char *pgt_socket_dir(void)
{
    return getenv("METAFENCE_PG_SOCKET");
}

const char *pgt_root_cert(void)
{
    return getenv("METAFENCE_PG_ROOT_CERT");
}

PGconn *pgt_connect(const char *user, const char *database, const char *application_name)
{
    char port[8];
    const char *keywords[] = {"host", "port", "user", "dbname", "application_name", NULL};
    const char *values[] = {pgt_socket_dir(), port, user, database, application_name, NULL};

    (void)snprintf(port, sizeof port, "%u", (unsigned)pgt_port());
    PGconn *pq = PQconnectdbParams(keywords, values, 0);
    if (PQstatus(pq) != CONNECTION_OK)
        fail_msg("connect as %s: %s", user, PQerrorMessage(pq));
    pgt_run(pq, "SET client_min_messages = error");
    return pq;
}

static PGresult *execute(PGconn *pq, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));
static PGresult *execute(PGconn *pq, const char *fmt, va_list args)
{
    char sql[4096];

    assert_true(vsnprintf(sql, sizeof sql, fmt, args) < (int)sizeof sql);
    return PQexec(pq, sql);
}

void pgt_run(PGconn *pq, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    PGresult *result = execute(pq, fmt, args);
    va_end(args);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", fmt, PQresultErrorMessage(result));
    PQclear(result);
}

const char *pgt_get(PGconn *pq, const char *fmt, ...)
{
    static char values[4][512];
    static unsigned next;
    char *value = values[next++ % 4];
    va_list args;

    va_start(args, fmt);
    PGresult *result = execute(pq, fmt, args);
    va_end(args);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", fmt, PQresultErrorMessage(result));
    bool is_null = PQntuples(result) == 0 || PQgetisnull(result, 0, 0);
    (void)snprintf(value, sizeof values[0], "%s", is_null ? "NULL" : PQgetvalue(result, 0, 0));
    PQclear(result);
    return value;
}

const char *pgt_try(PGconn *pq, const char *fmt, ...)
{
    static char sqlstate[6];
    va_list args;

    va_start(args, fmt);
    PGresult *result = execute(pq, fmt, args);
    va_end(args);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    (void)snprintf(sqlstate, sizeof sqlstate, "%s", state ? state : "");
    PQclear(result);
    return sqlstate;
}

const char *pgt_message(PGconn *pq)
{
    return PQerrorMessage(pq);
}

void pgt_fresh_database(void)
{
    PGconn *pq = pgt_connect("postgres", "postgres", "scene");

    pgt_run(pq, "DROP DATABASE IF EXISTS " PGT_DATABASE " WITH (FORCE)");
    if (strcmp(pgt_get(pq, "SELECT count(*) FROM pg_roles WHERE rolname = 'meta'"), "0") == 0)
        pgt_run(pq, "CREATE ROLE meta LOGIN PASSWORD 'secret-meta'");
    pgt_run(pq, "CREATE DATABASE " PGT_DATABASE " OWNER meta");
    PQfinish(pq);
    pq = pgt_connect("postgres", PGT_DATABASE, "scene");
    pgt_run(pq, "ALTER SCHEMA public OWNER TO meta");
    PQfinish(pq);
}

const char *pgt_campaign(PGconn *pq, const char *id)
{
    return pgt_get(pq,
                   "INSERT INTO election_leader AS e (service, id, last_heartbeat) VALUES "
                   "('svc', '%s', NOW())"
                   " ON CONFLICT (service) DO UPDATE SET"
                   " id = CASE WHEN e.last_heartbeat < NOW() - interval '5s' THEN excluded.id "
                   "ELSE e.id END,"
                   " last_heartbeat = CASE WHEN e.last_heartbeat < NOW() - interval '5s' OR"
                   " e.id = excluded.id THEN excluded.last_heartbeat ELSE e.last_heartbeat END"
                   " RETURNING id",
                   id);
}

int pgt_setup(void **state)
{
    struct pgt *pgt = calloc(1, sizeof *pgt);
    const struct resolve_config config = {.query_timeout_ns = 200 * NS_PER_MS};
    struct err err;

    pgt_fresh_database();
    assert_int_equal(loop_new(&pgt->loop, &err), 0);
    assert_int_equal(resolver_new(pgt->loop, &config, &pgt->resolver, &err), 0);
    *state = pgt;
    return 0;
}

int pgt_teardown(void **state)
{
    struct pgt *pgt = *state;

    resolver_free(pgt->resolver);
    loop_free(pgt->loop);
    free(pgt);
    return 0;
}

static void on_late(void *arg)
{
    ((struct pgt *)arg)->is_late = true;
}

void pgt_wait_for(struct pgt *pgt, bool (*is_done)(void *arg), void *arg, int timeout_ms)
{
    struct loop_timer *timer = loop_timer_new(pgt->loop, on_late, pgt);

    pgt->is_late = false;
    // The limit only ends a test that fails: generous, for a busy machine.
    loop_timer_arm(timer, 5 * timeout_ms * NS_PER_MS);
    while (!is_done(arg) && !pgt->is_late)
        (void)loop_turn(pgt->loop);
    loop_timer_free(timer);
    if (!is_done(arg))
        fail_msg("it did not happen within %d ms", timeout_ms);
}

static bool is_set(void *arg)
{
    return **(const bool **)arg;
}

void pgt_wait(struct pgt *pgt, const bool *flag, int timeout_ms)
{
    pgt_wait_for(pgt, is_set, &flag, timeout_ms);
}

void pgt_idle(struct pgt *pgt, int ms)
{
    struct loop_timer *timer = loop_timer_new(pgt->loop, on_late, pgt);

    pgt->is_late = false;
    loop_timer_arm(timer, ms * NS_PER_MS);
    while (!pgt->is_late)
        (void)loop_turn(pgt->loop);
    loop_timer_free(timer);
}

struct pg_params pgt_params(uint16_t port)
{
    return (struct pg_params){
        .host = "127.0.0.1",
        .port = port,
        .database = PGT_DATABASE,
        .user = "meta",
        .password = "secret-meta",
        .sslmode = "disable",
        .application_name = "metafence",
        .connect_timeout_ns = 5 * NS_PER_SEC,
        .query_timeout_ns = 2 * NS_PER_SEC,
        .listen = true,
    };
}

struct pgt_lateness pgt_lateness_begin(void)
{
    struct pgt_lateness late = {.worst_ms = mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE,
                                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0)};

    assert_true(late.worst_ms != MAP_FAILED);
    late.pid = fork();
    assert_true(late.pid >= 0);
    while (late.pid == 0) {
        struct instant begin = clock_now();
        if (poll(NULL, 0, 10) != 0 || getppid() == 1)
            _exit(1);
        int64_t ms = instant_since(clock_now(), begin) / NS_PER_MS - 10;
        if (ms > *late.worst_ms)
            *late.worst_ms = ms;
    }
    return late;
}

int64_t pgt_lateness_end(struct pgt_lateness *late)
{
    int64_t worst_ms = 0;

    assert_int_equal(kill(late->pid, SIGKILL), 0);
    assert_int_equal(waitpid(late->pid, NULL, 0), late->pid);
    worst_ms = *late->worst_ms;
    (void)munmap(late->worst_ms, sizeof(int64_t));
    return worst_ms;
}

// The second number of /proc/PID/schedstat.
static int64_t starved_ns(int pid)
{
    char path[64], line[128] = "";
    int64_t ns = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/schedstat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fgets(line, sizeof line, file)) {
        char *number = line + strcspn(line, " ");
        number += *number == ' ';
        number[strcspn(number, " ")] = '\0';
        if (!election_parse_count(number, &ns))
            ns = 0;
    }
    (void)fclose(file);
    return ns;
}

int64_t pgt_starved_ns(PGconn *pq)
{
    return starved_ns((int)getpid()) + starved_ns(PQbackendPID(pq));
}
