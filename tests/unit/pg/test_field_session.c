// SPDX-License-Identifier: Apache-2.0
// A session with Postgres over months: other time zones, waits for locks, lost answers, rotated
// passwords, thousands of failed log-ins, a switchover behind one name.
#include "tests/unit/pg/asked.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "agent/pg/install.h"

#define TAG "metafence:aaaaaaaa:0000000000000001"

struct story {
    struct pgt *pgt;
    PGconn *admin, *meta;
    struct pg_params params;
    struct election_config config;
    struct pg *pg;
    struct election *election;
    bool is_done, has_fault;
    struct election_read read;
    int64_t count;
    struct pg_fault fault;
};

static const struct pg_ops no_ops = {0};

static void open_session(struct story *s)
{
    const struct pg_net net = {s->pgt->loop, s->pgt->resolver, &s->params};
    struct err err;

    if (pg_new(&net, &no_ops, s, &s->pg, &err) < 0 ||
        election_new(s->pg, &s->config, &s->election, &err) < 0)
        fail_msg("%s", err.msg);
}

static void close_session(struct story *s)
{
    pg_free(s->pg);
    election_free(s->election);
    s->pg = NULL;
    s->election = NULL;
}

static int setup(void **state)
{
    struct story *s = calloc(1, sizeof *s);

    (void)pgt_setup((void **)&s->pgt);
    s->admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    s->meta = pgt_connect("meta", PGT_DATABASE, TAG);
    pgt_run(s->meta, PGT_TABLES);
    s->params = pgt_params(pgt_port());
    s->config = (struct election_config){"svc", "election_leader", "election_member", "meta-a"};
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct story *s = *state;

    close_session(s);
    PQfinish(s->meta);
    PQfinish(s->admin);
    (void)pgt_teardown((void **)&s->pgt);
    free(s);
    return 0;
}

static void install(struct story *s)
{
    const struct sql_options options = {
        .params = &s->params, .leader_table = "election_leader", .timeout_ns = 5 * NS_PER_SEC};
    struct err err;

    if (sql_install(&options, &err) < 0)
        fail_msg("%s", err.msg);
}

static void on_read(const struct election_read *read, void *arg)
{
    struct story *s = arg;

    s->is_done = true;
    s->read = *read;
}

static enum election_status look(struct story *s)
{
    s->is_done = false;
    assert_true(election_read(s->election, TAG, on_read, s));
    pgt_wait(s->pgt, &s->is_done, 4000);
    return s->read.status;
}

static void on_count(int64_t count, const struct pg_fault *fault, void *arg)
{
    struct story *s = arg;

    s->is_done = true;
    s->count = count;
    s->has_fault = fault != NULL;
    if (fault)
        s->fault = *fault;
}

static void begin_drop(struct story *s, int64_t heartbeat_us)
{
    struct err err;

    s->is_done = false;
    assert_int_equal(election_drop_phantom(s->election, heartbeat_us, on_count, s, &err), 0);
}

static void begin_record(struct story *s)
{
    const struct election_death death = {TAG, "meta-a", "permit", "Superseded"};
    struct err err;

    s->is_done = false;
    assert_int_equal(election_record_death(s->election, &death, on_count, s, &err), 0);
}

static bool is_waiting(void *arg)
{
    struct story *s = arg;

    return strcmp(pgt_get(s->admin,
                          "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type"
                          " = 'Lock' AND application_name = 'metafence'"),
                  "0") != 0;
}

// --- how the server would like to show times ---

static void test_locale(void **state)
{
    struct story *s = *state;
    static const char *const settings[] = {
        "timezone = 'Pacific/Kiritimati'",
        "timezone = 'America/New_York'", // with a change of summer time
        "timezone = 'Asia/Kathmandu'",        "datestyle = 'German, DMY'",
        "intervalstyle = 'iso_8601'",         "client_encoding = 'LATIN1'",
        "extra_float_digits = -15",           "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on", "bytea_output = 'escape'",
        "quote_all_identifiers = on",
    };

    pgt_run(s->meta, "INSERT INTO election_leader VALUES ('svc', 'meta-a', '2026-11-01 "
                     "05:59:59.123456+00')");
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        pgt_run(s->admin, "ALTER ROLE meta SET %s", settings[i]);
        open_session(s);
        if (look(s) != ELECTION_OK)
            fail_msg("%s: %s", settings[i], s->read.fault.err.msg);
        if (s->read.heartbeat_us != 1793512799123456)
            fail_msg("%s: heartbeat %lld", settings[i], (long long)s->read.heartbeat_us);
        int64_t age_us = s->read.db_now_us - s->read.heartbeat_us;
        assert_true(s->read.age_ns == age_us * 1000);
        close_session(s);
        pgt_run(s->admin, "ALTER ROLE meta RESET ALL");
    }
}

// A zone-less column is another table: said by name, never compared.
static void test_zoneless_column(void **state)
{
    struct story *s = *state;

    pgt_run(s->meta, "ALTER TABLE election_leader ALTER last_heartbeat TYPE timestamp");
    open_session(s);
    assert_int_equal(look(s), ELECTION_UNREADABLE);
    assert_non_null(strstr(s->read.fault.err.msg, "timestamptz"));
}

// --- waits ---

// While the delete waits for the row its owner renews: what was judged is no longer there.
static void check_wait(struct story *s)
{
    pgt_run(s->meta, "DELETE FROM election_leader");
    pgt_run(s->meta, "INSERT INTO election_leader VALUES ('svc', 'meta-a', now() - interval "
                     "'1 minute')");
    assert_int_equal(look(s), ELECTION_OK);
    pgt_run(s->meta, "BEGIN");
    pgt_run(s->meta, "UPDATE election_leader SET last_heartbeat = clock_timestamp()");
    begin_drop(s, s->read.heartbeat_us);
    pgt_wait_for(s->pgt, is_waiting, s, 2000);
    pgt_run(s->meta, "COMMIT");
    pgt_wait(s->pgt, &s->is_done, 3000);
    assert_false(s->has_fault);
    assert_int_equal(s->count, 0);
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM election_leader"), "1");
    // A read that waited gives the age at its end.
    pgt_run(s->meta, "BEGIN; LOCK TABLE election_leader IN ACCESS EXCLUSIVE MODE");
    s->is_done = false;
    assert_true(election_read(s->election, TAG, on_read, s));
    pgt_wait_for(s->pgt, is_waiting, s, 2000);
    pgt_idle(s->pgt, 500);
    pgt_run(s->meta, "COMMIT");
    pgt_wait(s->pgt, &s->is_done, 3000);
    assert_int_equal(s->read.status, ELECTION_OK);
    assert_true(s->read.age_ns > 400 * NS_PER_MS);
}

static void test_wait_for_a_lock(void **state)
{
    struct story *s = *state;

    s->params.query_timeout_ns = 5 * NS_PER_SEC;
    open_session(s);
    check_wait(s);
    close_session(s);
    install(s); // by its function, from now on
    open_session(s);
    check_wait(s);
}

// --- lost answers ---

// The statement waits in the server; its link dies; then it commits, and nobody hears of it.
static void lose_answer(struct story *s, struct relay *relay)
{
    pgt_wait_for(s->pgt, is_waiting, s, 2000);
    relay_set(relay, RELAY_STALL);
    pgt_run(s->admin, "COMMIT");
    pgt_wait(s->pgt, &s->is_done, 5000);
    assert_true(s->has_fault);
    assert_int_equal(s->fault.err.kind, ERR_UNKNOWN_OUTCOME);
    relay_set(relay, RELAY_RESET);
    relay_set(relay, RELAY_PASS);
}

static void test_lost_answer(void **state)
{
    struct story *s = *state;
    struct relay *relay = NULL;

    install(s);
    relay = relay_new(s->pgt, pgt_port());
    s->params = pgt_params(relay_port(relay));
    s->params.query_timeout_ns = 1 * NS_PER_SEC;
    pgt_run(s->meta, "INSERT INTO election_leader VALUES ('svc', 'meta-a', now() - interval "
                     "'1 minute')");
    open_session(s);
    assert_int_equal(look(s), ELECTION_OK);
    int64_t judged_us = s->read.heartbeat_us;

    pgt_run(s->admin, "BEGIN; LOCK TABLE metafence.death IN EXCLUSIVE MODE");
    begin_record(s);
    lose_answer(s, relay);
    while (look(s) != ELECTION_OK)
        continue;
    begin_record(s);
    pgt_wait(s->pgt, &s->is_done, 3000);
    assert_false(s->has_fault);
    assert_int_equal(s->count, 0); // known already
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.death"), "1");

    pgt_run(s->admin, "BEGIN");
    pgt_run(s->admin, "SELECT FROM election_leader FOR UPDATE");
    begin_drop(s, judged_us);
    lose_answer(s, relay);
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM election_leader"), "0");
    // It comes back under the same id, and the repeated delete doesn't mean it.
    pgt_run(s->meta, "INSERT INTO election_leader VALUES ('svc', 'meta-a', now())");
    while (look(s) != ELECTION_OK)
        continue;
    begin_drop(s, judged_us);
    pgt_wait(s->pgt, &s->is_done, 3000);
    assert_int_equal(s->count, 0);
    assert_string_equal(pgt_get(s->admin, "SELECT id FROM election_leader"), "meta-a");
    close_session(s);
    relay_free(relay);
}

// --- rotated ---

static void put_file(const char *path, const char *content)
{
    char next[80];

    // Swapped whole, as the kubelet does it.
    (void)snprintf(next, sizeof next, "%s.next", path);
    FILE *file = fopen(next, "w");
    assert_non_null(file);
    assert_true(fputs(content, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(next, path), 0);
}

static void end_ours(struct story *s)
{
    pgt_run(s->admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                      " WHERE application_name = 'metafence'");
}

static void await_ok(struct story *s)
{
    struct instant begin = clock_now();

    while (look(s) != ELECTION_OK)
        assert_true(instant_since(clock_now(), begin) < 5 * NS_PER_SEC);
}

// Attempts in `ms` while nobody lets us in.
static uint64_t attempts_in(struct story *s, int ms)
{
    uint64_t before = pg_stats(s->pg)->connect_failures;
    struct instant begin = clock_now();

    while (instant_since(clock_now(), begin) < ms * NS_PER_MS) {
        assert_int_not_equal(look(s), ELECTION_OK);
        pgt_idle(s->pgt, 50);
    }
    return pg_stats(s->pg)->connect_failures - before;
}

static void test_rotated_password(void **state)
{
    struct story *s = *state;
    char path[] = "/tmp/metafence-rotated-XXXXXX";

    assert_true(mkstemp(path) >= 0);
    put_file(path, "secret-meta\n");
    s->params.password = NULL;
    s->params.password_file = path;
    open_session(s);
    await_ok(s);

    // The role first: the session that stands goes on, one that ends waits for the file.
    pgt_run(s->admin, "ALTER ROLE meta PASSWORD 'second-secret'");
    for (int i = 0; i < 20; i++)
        assert_int_equal(look(s), ELECTION_OK);
    end_ours(s);
    assert_in_range(attempts_in(s, 1500), 1, 8);
    assert_int_equal(s->read.status, ELECTION_REFUSED); // told from silence: its own alarm
    assert_string_equal(s->read.fault.sqlstate, "28P01");
    put_file(path, ""); // in the middle of a swap
    assert_in_range(attempts_in(s, 700), 1, 8);
    put_file(path, "second-secret");
    await_ok(s);

    // The file first.
    put_file(path, "third-secret\n");
    for (int i = 0; i < 20; i++)
        assert_int_equal(look(s), ELECTION_OK);
    end_ours(s);
    assert_in_range(attempts_in(s, 700), 1, 8);
    pgt_run(s->admin, "ALTER ROLE meta PASSWORD 'third-secret'");
    await_ok(s);
    // The same again, whose verifier is another.
    pgt_run(s->admin, "ALTER ROLE meta PASSWORD 'third-secret'");
    end_ours(s);
    await_ok(s);
    pgt_run(s->admin, "ALTER ROLE meta PASSWORD 'secret-meta'");
    assert_int_equal(unlink(path), 0);
}

// --- failures ---

static unsigned open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned count = 0;

    assert_non_null(dir);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

static void on_closed(const struct pg_fault *fault, void *arg)
{
    (void)fault;
    *(bool *)arg = true;
}

static void on_ready(void *arg)
{
    (void)arg;
    fail_msg("it was let in");
}

static const struct pg_conn_ops failing_ops = {.ready = on_ready, .closed = on_closed};

static void fail_once(struct story *s, const struct pg_params *params)
{
    const struct pg_net net = {s->pgt->loop, s->pgt->resolver, params};
    bool is_closed = false;
    struct pg_conn *conn = pg_conn_new(&net, 0, &failing_ops, &is_closed);

    pgt_wait(s->pgt, &is_closed, 3000);
    pg_conn_free(conn);
}

// Refused, reset, no TLS there, a wrong certificate, a wrong password, and a log-in that takes
// longer than we wait: nothing stays behind, neither here nor in the server.
static void test_failures_leave_nothing(void **state)
{
    struct story *s = *state;
    struct relay *stalled = relay_new(s->pgt, pgt_port());
    struct pg_params refused = pgt_params(1), wrong = pgt_params(pgt_port()), slow = wrong,
                     untrusted = wrong, unknown = wrong;
    unsigned fds = 0;

    wrong.password = "wrong";
    unknown.database = "nowhere";
    untrusted.sslmode = "verify-full"; // the certificate is for localhost
    untrusted.sslrootcert = pgt_root_cert();
    slow.port = relay_port(stalled);
    slow.connect_timeout_ns = 5 * NS_PER_MS;
    const struct pg_params *const all[] = {&refused, &wrong, &unknown, &untrusted};
    for (int round = 0; round < 60; round++) {
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            fail_once(s, all[i]);
        if (round == 10)
            fds = open_fds();
    }
    assert_int_equal(open_fds(), fds);
    relay_set(stalled, RELAY_STALL);
    for (int i = 0; i < 40; i++)
        fail_once(s, &slow);
    // The relay holds what it accepted; ours are closed all the same.
    relay_free(stalled);
    assert_int_equal(open_fds(), fds - 1);
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM pg_stat_activity"
                                          " WHERE application_name = 'metafence'"),
                        "0");
}

// --- a switchover ---

// The name leads to what is a standby by now, and sessions there go on for ever: each read says
// so, none of them is proof, and as soon as the name leads to the primary the agent is there.
static void test_switchover(void **state)
{
    struct story *s = *state;
    struct relay *service = relay_new(s->pgt, pgt_standby_port());

    s->params = pgt_params(relay_port(service));
    s->params.database = "postgres"; // both have it: the standby was copied
    s->params.user = "postgres";
    open_session(s);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(look(s), ELECTION_STANDBY);
        assert_false(s->read.row_present);
    }
    relay_retarget(service, pgt_port()); // for new connections
    struct instant begin = clock_now();
    await_ok(s);
    assert_true(s->read.row_present);
    assert_true(ms_since(begin) < 3000);
    // And it stays there, on one connection.
    for (int i = 0; i < 10; i++)
        assert_int_equal(look(s), ELECTION_OK);
    pgt_idle(s->pgt, 200);
    assert_int_equal(relay_open(service), 1);
    close_session(s);
    relay_free(service);
}

// New connections vanish, the one that stands works; then the reverse. No statement is ever
// cancelled, which would take one more connection.
static void test_half_cut(void **state)
{
    struct story *s = *state;
    struct relay *relay = relay_new(s->pgt, pgt_port());

    s->params = pgt_params(relay_port(relay));
    s->params.connect_timeout_ns = 500 * NS_PER_MS;
    s->params.query_timeout_ns = 400 * NS_PER_MS;
    open_session(s);
    await_ok(s);
    // A slow answer starts a successor, which vanishes; the session answers all the same.
    relay_set(relay, RELAY_STALL_NEW);
    pgt_run(s->meta, "BEGIN; LOCK TABLE election_leader IN ACCESS EXCLUSIVE MODE");
    s->is_done = false;
    assert_true(election_read(s->election, TAG, on_read, s));
    pgt_idle(s->pgt, 300);
    assert_int_equal(relay_accepted(relay), 2);
    pgt_run(s->meta, "COMMIT");
    pgt_wait(s->pgt, &s->is_done, 2000);
    assert_int_equal(s->read.status, ELECTION_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(look(s), ELECTION_OK);
    relay_set(relay, RELAY_STALL_OLD);
    await_ok(s);
    assert_true(s->read.was_hedged || pg_stats(s->pg)->connects > 1);
    close_session(s);
    relay_free(relay);
}

#define STORY_TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

static const struct CMUnitTest tests[] = {
    STORY_TEST(test_locale),           STORY_TEST(test_zoneless_column),
    STORY_TEST(test_wait_for_a_lock),  STORY_TEST(test_lost_answer),
    STORY_TEST(test_rotated_password), STORY_TEST(test_failures_leave_nothing),
    STORY_TEST(test_switchover),       STORY_TEST(test_half_cut),
};

UNIT_MAIN(tests)
