// SPDX-License-Identifier: Apache-2.0
// The session with Postgres under faults: refused, silent, reset, slow, wrong password, TLS,
// notifications.
#include "tests/unit/pg/asked.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_answers(void **state)
{
    struct pgt *pgt = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct seen seen = {0};
    struct pg *pg = start(pgt, &params, &seen);
    struct answer read = {0}, write = {0}, wrong = {0};
    const char *text[] = {"it's", NULL};
    struct pg_request request = {
        .sql = "SELECT $1::text || coalesce($2::text, '!')", .param_count = 2, .params = text};
    struct err err;

    // Before it is connected: requests wait.
    struct instant before = clock_now();
    assert_int_equal(pg_send(pg, &request, on_answer, &read, &err), 0);
    ask(pg, "SELECT count(*) FROM pg_class WHERE false", false, &write);
    ask(pg, "SELECT nonsense", false, &wrong);
    assert_false(read.is_done);
    pgt_wait(pgt, &wrong.is_done, 2000);
    assert_string_equal(read.value, "it's!");
    assert_string_equal(write.value, "0");
    assert_int_equal(read.reply.fault.kind, PG_OK);
    assert_true(read.reply.sent_at.ns > before.ns);
    assert_true(read.reply.received_at.ns > read.reply.sent_at.ns);
    assert_true(write.reply.sent_at.ns >= read.reply.received_at.ns); // one after the other
    assert_int_equal(wrong.reply.fault.kind, PG_MISSING);
    assert_string_equal(wrong.reply.fault.sqlstate, "42703");
    assert_int_equal(seen.ups, 1);
    assert_true(pg_is_up(pg) && pg_is_listening(pg) && !pg_is_tls(pg));
    pg_free(pg);
}

static void test_refused(void **state)
{
    struct pgt *pgt = *state;
    struct pg_params params = pgt_params(1); // nobody listens there
    struct seen seen = {0};
    struct pg *pg = start(pgt, &params, &seen);
    struct answer read = {0};
    struct instant begin = clock_now();

    ask(pg, "SELECT 1", true, &read);
    pgt_wait(pgt, &read.is_done, 1000);
    assert_true(ms_since(begin) < 4000); // no waiting for the time-out of 5 s
    assert_int_equal(read.reply.fault.kind, PG_SILENT);
    assert_int_equal(read.reply.sent_at.ns, 0);
    assert_int_equal(seen.down_fault.kind, PG_SILENT);
    // Back-off: 50, 100, 200, 400, 500, 500, … ms.
    pgt_idle(pgt, 1600);
    assert_in_range(seen.downs, 2, 7);
    pg_free(pg);
}

static void test_refusals(void **state)
{
    struct pgt *pgt = *state;
    PGconn *admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    static const struct {
        const char *user, *password, *database, *sqlstate;
    } cases[] = {
        {"meta", "wrong-secret", PGT_DATABASE, "28P01"},
        {"meta", "secret-meta", "nowhere", "3D000"},
        {"rejected", "secret-meta", PGT_DATABASE, "28000"},
        {"limited", "secret-meta", PGT_DATABASE, "53300"},
    };

    pgt_run(admin,
            "DROP ROLE IF EXISTS rejected; CREATE ROLE rejected LOGIN PASSWORD 'secret-meta';"
            "DROP ROLE IF EXISTS limited;"
            "CREATE ROLE limited LOGIN CONNECTION LIMIT 0 PASSWORD 'secret-meta'");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pg_params params = pgt_params(pgt_port());
        struct seen seen = {0};
        params.user = cases[i].user;
        params.password = cases[i].password;
        params.database = cases[i].database;
        struct pg *pg = start(pgt, &params, &seen);
        pgt_wait(pgt, &seen.is_down, 2000);
        assert_string_equal(seen.down_fault.sqlstate, cases[i].sqlstate);
        assert_int_equal(seen.down_fault.kind, PG_REFUSAL);
        assert_int_equal(seen.down_fault.err.kind, ERR_DENIED);
        assert_null(strstr(seen.down_fault.err.msg, params.password));
        pg_free(pg);
    }
    PQfinish(admin);
}

static void test_password_file(void **state)
{
    struct pgt *pgt = *state;
    struct pg_params params = pgt_params(pgt_port());
    char path[] = "/tmp/metafence-password-XXXXXX";
    struct seen seen = {0};
    int fd = mkstemp(path);

    params.password = NULL;
    params.password_file = path;
    assert_int_equal(write(fd, "wrong\n", 6), 6);
    struct pg *pg = start(pgt, &params, &seen);
    pgt_wait(pgt, &seen.is_down, 2000);
    assert_string_equal(seen.down_fault.sqlstate, "28P01");
    // A rotated secret is taken at the next attempt, without a restart.
    assert_int_equal(pwrite(fd, "secret-meta\n", 12, 0), 12);
    pgt_wait(pgt, &seen.is_up, 2000);
    pg_free(pg);

    assert_int_equal(unlink(path), 0);
    seen = (struct seen){0};
    pg = start(pgt, &params, &seen);
    pgt_wait(pgt, &seen.is_down, 1000);
    assert_int_equal(seen.down_fault.kind, PG_SILENT); // Postgres has refused nothing
    assert_int_equal(seen.down_fault.err.kind, ERR_DENIED);
    assert_non_null(strstr(seen.down_fault.err.msg, path));
    pg_free(pg);
    (void)close(fd);

    // Nobody ever writes into it: the loop must not wait for that.
    assert_int_equal(mkfifo(path, 0600), 0);
    seen = (struct seen){0};
    pg = start(pgt, &params, &seen);
    pgt_wait(pgt, &seen.is_down, 1000);
    assert_non_null(strstr(seen.down_fault.err.msg, "not a regular file"));
    pg_free(pg);
    assert_int_equal(unlink(path), 0);
}

static void test_notify(void **state)
{
    struct pgt *pgt = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct seen seen = {0};
    struct pg *pg = start(pgt, &params, &seen);
    PGconn *admin = pgt_connect("postgres", PGT_DATABASE, "scene");

    pgt_wait(pgt, &seen.is_up, 2000);
    pgt_run(admin, "SELECT pg_notify('metafence', '3 tag id')");
    pgt_wait(pgt, &seen.has_note, 1000);
    assert_string_equal(seen.note, "3 tag id");
    pg_free(pg);
    params.listen = false;
    seen = (struct seen){0};
    pg = start(pgt, &params, &seen);
    pgt_wait(pgt, &seen.is_up, 2000);
    pgt_run(admin, "SELECT pg_notify('metafence', '4')");
    pgt_idle(pgt, 100);
    assert_int_equal(seen.notes, 0);
    PQfinish(admin);
    pg_free(pg);
}

static void test_tls(void **state)
{
    struct pgt *pgt = *state;
    PGconn *admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    struct pg_params params = pgt_params(pgt_port());
    struct seen seen = {0};

    pgt_run(admin,
            "DROP ROLE IF EXISTS tls_only; CREATE ROLE tls_only LOGIN PASSWORD 'secret-meta'");
    PQfinish(admin);
    params.host = "localhost"; // looked up, and checked against the certificate
    params.user = "tls_only";
    params.sslmode = "verify-full";
    params.sslrootcert = pgt_root_cert();
    struct pg *pg = start(pgt, &params, &seen);
    pgt_wait(pgt, &seen.is_up, 2000);
    assert_true(pg_is_tls(pg));
    pg_free(pg);

    // Same server under a name that the certificate does not have.
    params.host = "127.0.0.1";
    seen = (struct seen){0};
    pg = start(pgt, &params, &seen);
    pgt_wait(pgt, &seen.is_down, 2000);
    assert_non_null(strstr(seen.down_fault.err.msg, "certificate"));
    pg_free(pg);

    // Refused without TLS: libpq closes its socket and tries again inside the poll.
    params.host = "localhost";
    params.sslmode = "allow";
    params.sslrootcert = NULL;
    seen = (struct seen){0};
    pg = start(pgt, &params, &seen);
    pgt_wait(pgt, &seen.is_up, 2000);
    assert_true(pg_is_tls(pg));
    pg_free(pg);
}

// What `from` has, put to `path` in one move, as a mounted Secret is swapped. NULL: nothing.
static void put_certificate(const char *path, const char *from)
{
    char bytes[4096];
    char next[64];
    size_t len = 0;
    FILE *file = from ? fopen(from, "r") : NULL;

    if (file) {
        len = fread(bytes, 1, sizeof(bytes), file);
        assert_int_equal(fclose(file), 0);
        assert_true(len > 0 && len < sizeof(bytes));
    }
    (void)snprintf(next, sizeof(next), "%s.next", path);
    file = fopen(next, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(next, path), 0);
}

static bool is_up_again(void *arg)
{
    return pg_is_up(arg);
}

// Until a log-in has failed: the server may take a moment to show its new certificate.
static void end_until_refused(struct pgt *pgt, struct pg *pg, PGconn *admin)
{
    uint64_t failures = pg_stats(pg)->connect_failures;
    struct instant begin = clock_now();

    while (pg_stats(pg)->connect_failures == failures) {
        assert_true(ms_since(begin) < 10000);
        pgt_run(admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                       " WHERE application_name = 'metafence'");
        pgt_idle(pgt, 50);
    }
}

// The server's certificate is rotated under an agent that runs for months: the session that
// stands goes on, a new one is refused until the bundle is swapped too, and nobody has to
// restart anything.
static void test_rotated_certificate(void **state)
{
    struct pgt *pgt = *state;
    PGconn *admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    struct pg_params params = pgt_params(pgt_port());
    struct seen seen = {0};
    char path[] = "/tmp/metafence-bundle-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    put_certificate(path, pgt_root_cert());
    params.host = "localhost";
    params.sslmode = "verify-full";
    params.sslrootcert = path;
    struct pg *pg = start(pgt, &params, &seen);
    pgt_wait(pgt, &seen.is_up, 5000);

    pgt_run(admin, "ALTER SYSTEM SET ssl_cert_file = 'next.crt'");
    pgt_run(admin, "ALTER SYSTEM SET ssl_key_file = 'next.key'");
    pgt_run(admin, "SELECT pg_reload_conf()");
    pgt_idle(pgt, 300);
    assert_true(pg_is_up(pg) && !seen.is_down);
    end_until_refused(pgt, pg, admin);
    put_certificate(path, NULL); // in the middle of the swap
    pgt_idle(pgt, 300);
    assert_false(pg_is_up(pg));
    put_certificate(path, getenv("METAFENCE_PG_NEXT_CERT"));
    pgt_wait_for(pgt, is_up_again, pg, 10000);
    assert_true(pg_is_tls(pg));

    pgt_run(admin, "ALTER SYSTEM RESET ssl_cert_file");
    pgt_run(admin, "ALTER SYSTEM RESET ssl_key_file");
    pgt_run(admin, "SELECT pg_reload_conf()");
    end_until_refused(pgt, pg, admin);
    pg_free(pg);
    PQfinish(admin);
    assert_int_equal(unlink(path), 0);
}

static void test_unknown_host(void **state)
{
    struct pgt *pgt = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct seen seen = {0};

    params.host = "no-such-host.invalid";
    params.connect_timeout_ns = 600 * NS_PER_MS;
    struct pg *pg = start(pgt, &params, &seen);
    struct instant begin = clock_now();
    pgt_wait(pgt, &seen.is_down, 2000);
    assert_true(ms_since(begin) < 4000);
    assert_int_equal(seen.down_fault.kind, PG_SILENT);
    assert_non_null(strstr(seen.down_fault.err.msg, "no-such-host.invalid"));
    pg_free(pg);
}

static void test_queue_is_bounded(void **state)
{
    struct pgt *pgt = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct seen seen = {0};
    struct pg *pg = start(pgt, &params, &seen);
    static struct answer answers[PG_QUEUE_MAX];
    const struct pg_request request = {.sql = "SELECT 1", .is_read = true};
    struct err err;

    for (size_t i = 0; i < PG_QUEUE_MAX; i++)
        ask(pg, "SELECT 1", true, &answers[i]);
    assert_int_equal(pg_send(pg, &request, on_answer, NULL, &err), -1);
    assert_int_equal(err.kind, ERR_TRANSIENT);
    pgt_wait(pgt, &answers[PG_QUEUE_MAX - 1].is_done, 2000);
    for (size_t i = 0; i < PG_QUEUE_MAX; i++)
        assert_int_equal(answers[i].count, 1);
    // Freed with requests waiting and under way: nobody is called, nothing leaks.
    ask(pg, "SELECT 1", true, &answers[0]);
    ask(pg, "SELECT 1", true, &answers[1]);
    pg_free(pg);
    assert_int_equal(answers[0].count, 1);
}

static const struct pg_ops no_ops = {0};

static void test_bad_params(void **state)
{
    struct pgt *pgt = *state;
    struct pg *pg = NULL;
    struct err err;
    static const struct {
        const char *host, *database, *names;
        uint16_t port;
    } cases[] = {{"", "d", "postgres.host", 1},
                 {"h", "", "postgres.database", 1},
                 {"h", "d", "postgres.port", 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pg_params params = pgt_params(cases[i].port);
        params.host = cases[i].host;
        params.database = cases[i].database;
        const struct pg_net net = {pgt->loop, pgt->resolver, &params};
        assert_int_equal(pg_new(&net, &no_ops, NULL, &pg, &err), -1);
        assert_int_equal(err.kind, ERR_INVALID);
        assert_non_null(strstr(err.msg, cases[i].names));
    }
}

#define SESSION_TEST(fn) cmocka_unit_test_setup_teardown(fn, pgt_setup, pgt_teardown)

static const struct CMUnitTest tests[] = {
    SESSION_TEST(test_answers),      SESSION_TEST(test_refused),
    SESSION_TEST(test_refusals),     SESSION_TEST(test_password_file),
    SESSION_TEST(test_notify),       SESSION_TEST(test_tls),
    SESSION_TEST(test_unknown_host), SESSION_TEST(test_queue_is_bounded),
    SESSION_TEST(test_bad_params),   SESSION_TEST(test_rotated_certificate),
};

UNIT_MAIN(tests)
