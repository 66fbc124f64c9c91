// SPDX-License-Identifier: Apache-2.0
// Installing, completing and removing the guard beside metas that write: every version's
// tables, modes, migrations, roles, and what is left behind.
#include "tests/unit/pg/installing.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sql/sql.h"
#include "tests/unit/pg/tables.h"

#define TAG_B1 "metafence:bbbbbbbb:0000000000000001"

static struct sql_status status_of(const struct sql_options *options)
{
    struct sql_status status;
    struct err err;

    if (sql_status(options, &status, &err) < 0)
        fail_msg("%s", err.msg);
    return status;
}

static void run_text(PGconn *pq, const char *sql)
{
    PGresult *result = PQexec(pq, sql);

    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    PQclear(result);
}

// RisingWave's own changes from version to version run on a guarded database, and what they add
// is guarded when the agent comes by.
static void test_versions(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    static const struct {
        const char *sql;
        int tables;
    } steps[] = {{TABLES_V2, 16}, {UP_TO_V3, 17}, {UP_TO_HEAD, 17}, {BEYOND_HEAD, 17}};

    install_now(&options); // before any of it
    struct sql_status status = status_of(&options);
    assert_true(!status.has_tables && status.guarded == 0 && status.unguarded == 0);
    PGconn *a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    PGconn *b1 = pgt_connect("meta", PGT_DATABASE, TAG_B1);
    (void)pgt_campaign(b1, "meta-b");
    pgt_run(pq, "UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
    (void)pgt_campaign(a1, "meta-a");
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        run_text(a1, steps[i].sql); // the leader itself migrates
        int calls = 0;
        while (strcmp(pgt_get(pq, "SELECT metafence.complete()"), "0") != 0)
            assert_true(++calls < 40);
        status = status_of(&options);
        assert_int_equal(status.guarded, steps[i].tables);
        assert_int_equal(status.unguarded, 0);
        pgt_run(a1,
                "INSERT INTO worker (worker_type, host, port, status) VALUES ('C', 'h%zu',"
                " 1, 'S'); UPDATE catalog_version SET version = 1; DELETE FROM"
                " hummock_pinned_version",
                i);
        assert_string_equal(pgt_try(b1, "UPDATE worker SET status = 'Z'"), "MF001");
        install_now(&options); // and the installation finds nothing to do
        assert_null(strstr(install_said, "is guarded"));
    }
    PQfinish(a1);
    PQfinish(b1);
}

static void test_only_what_is_meant(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);

    // Another application's table of that name, elsewhere; no table; a stranger's shape.
    pgt_run(pq, PGT_TABLES "; CREATE SCHEMA app; CREATE TABLE app.worker (i int);"
                           "CREATE VIEW hummock_view AS SELECT 1;"
                           "CREATE TEMP TABLE hummock_temp (i int);"
                           "CREATE TABLE humbug (i int); CREATE TABLE workers (i int);"
                           "CREATE TABLE worker (name text)");
    install_now(&options);
    assert_string_equal(
        pgt_get(pq,
                "SELECT string_agg(DISTINCT tgrelid::regclass::text, ' ') FROM pg_trigger"
                " WHERE tgname LIKE 'metafence%%' AND tgrelid NOT IN (SELECT oid FROM pg_class"
                " WHERE relnamespace = 'metafence'::regnamespace)"),
        "election_leader worker");
    PGconn *a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    (void)pgt_campaign(a1, "meta-a");
    pgt_run(a1, "INSERT INTO worker VALUES ('x'); UPDATE worker SET name = 'y';"
                "DELETE FROM worker; TRUNCATE worker");
    PQfinish(a1);
}

static void test_mode_is_kept(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    struct err err;

    run_text(pq, PGT_TABLES ";" TABLES_V2);
    options.guard = "observe";
    install_now(&options);
    assert_string_equal(status_of(&options).guard, "observe");
    options.guard = NULL;
    install_now(&options);
    assert_string_equal(status_of(&options).guard, "observe");
    pgt_run(pq, "UPDATE metafence.setting SET value = 'off' WHERE name = 'guard'");
    install_now(&options);
    assert_non_null(strstr(install_said, "guard: off"));
    options.guard = "enforce";
    install_now(&options);
    assert_string_equal(status_of(&options).guard, "enforce");
    options.guard = "on";
    assert_int_equal(sql_install(&options, &err), -1);
    assert_int_equal(err.kind, ERR_INVALID);
    assert_non_null(strstr(err.msg, "off, observe or enforce"));
}

// What version 1 left is completed, its terms and its mode stay.
static void test_upgrade(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);

    run_text(pq, PGT_TABLES ";" TABLES_V2);
    install_now(&options);
    PGconn *a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    (void)pgt_campaign(a1, "meta-a");
    run_text(pq, "DROP TRIGGER metafence_hold ON election_leader;"
                 "DROP FUNCTION metafence.guard, metafence.on_write, metafence.refuse, "
                 "metafence.log_worker,"
                 " metafence.keep_intended, metafence.on_hold, metafence.complete,"
                 " metafence.counters CASCADE;"
                 "DROP TABLE metafence.mutation, metafence.observed, metafence.tombstone;"
                 "ALTER TABLE metafence.tag DROP COLUMN backend;"
                 "ALTER TABLE metafence.setting DROP CONSTRAINT setting_guard_mode;"
                 "UPDATE metafence.setting SET value = 'off' WHERE name = 'guard';"
                 "UPDATE metafence.setting SET value = '1' WHERE name = 'schema_version';"
                 "CREATE FUNCTION metafence.move_term(text, text, text) RETURNS void LANGUAGE"
                 " sql AS ''");
    struct sql_status status = status_of(&options);
    assert_true(status.version == 1 && status.is_trigger_on && status.can_read);
    install_now(&options);
    status = status_of(&options);
    assert_int_equal(status.version, SQL_VERSION);
    assert_string_equal(status.guard, "off");
    assert_true(status.is_trigger_on && status.guarded == 16 && status.unguarded == 0);
    assert_int_equal(status.term, 1);
    (void)pgt_campaign(a1, "meta-a");
    assert_string_equal(pgt_get(pq, "SELECT owner_tag FROM metafence.term"), TAG_A1);
    PQfinish(a1);
}

// The triggers that installations had before these.
#define OLD_TRIGGERS                                                                           \
    "DO $$ DECLARE v regclass; BEGIN FOR v IN SELECT relation FROM metafence.guarded_tables()" \
    " WHERE name <> 'worker' LOOP"                                                             \
    " EXECUTE format($f$DROP TRIGGER metafence_insert ON %1$s; DROP TRIGGER metafence_update"  \
    " ON %1$s; DROP TRIGGER metafence_delete ON %1$s; DROP TRIGGER metafence_truncate ON"      \
    " %1$s; CREATE TRIGGER metafence_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON"   \
    " %1$s FOR EACH STATEMENT WHEN (nullif(pg_catalog.current_setting('metafence.pass', true)" \
    ", '') IS DISTINCT FROM pg_catalog.current_setting('application_name'))"                   \
    " EXECUTE FUNCTION metafence.guard();"                                                     \
    " CREATE TRIGGER metafence_key AFTER INSERT OR UPDATE OR DELETE ON %1$s FOR EACH ROW WHEN" \
    " (pg_catalog.current_setting('metafence.gate', true) <> '')"                              \
    " EXECUTE FUNCTION metafence.refuse()$f$, v); END LOOP; END $$"

static const char *trigger_count(PGconn *pq, const char *name)
{
    return pgt_get(pq, "SELECT count(*) FROM pg_trigger WHERE tgname = '%s'", name);
}

// They guard until the new ones are there, each transaction of the installation by itself.
static void test_upgrade_of_triggers(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);

    run_text(pq, PGT_TABLES ";" TABLES_V2 "INSERT INTO hummock_sequence VALUES ('x', 1)");
    install_now(&options);
    run_text(pq, OLD_TRIGGERS);
    PGconn *a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    PGconn *b1 = pgt_connect("meta", PGT_DATABASE, TAG_B1);
    (void)pgt_campaign(a1, "meta-a");
    pgt_run(pq, "UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
    (void)pgt_campaign(b1, "meta-b");
    for (int is_new = 0; is_new < 2; is_new++) {
        assert_string_equal(trigger_count(pq, "metafence_key"), is_new ? "1" : "16");
        assert_string_equal(trigger_count(pq, "metafence_update"), is_new ? "15" : "0");
        assert_int_equal(status_of(&options).unguarded, is_new ? 0 : 15);
        assert_string_equal(pgt_try(a1, "UPDATE hummock_sequence SET seq = 9"), "MF001");
        assert_non_null(strstr(pgt_message(a1), "key name=x, session " TAG_A1));
        assert_string_equal(pgt_try(a1, "TRUNCATE hummock_sequence"), "MF001");
        pgt_run(b1,
                "BEGIN; UPDATE hummock_sequence SET seq = 2; UPDATE worker SET status = 'R';"
                "UPDATE hummock_sequence SET seq = 3; COMMIT");
        install_now(&options);
    }
    PQfinish(a1);
    PQfinish(b1);
}

// Off, there is nothing that a write could call, but on worker; the leader's agent or the
// installation follows the mode.
static void test_off_has_no_triggers(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);

    run_text(pq, PGT_TABLES ";" TABLES_V2);
    install_now(&options);
    options.guard = "off";
    install_now(&options);
    assert_non_null(strstr(install_said, "table hummock_sequence is not guarded any more"));
    assert_string_equal(trigger_count(pq, "metafence_update"), "0");
    assert_string_equal(trigger_count(pq, "metafence_truncate"), "0");
    assert_string_equal(trigger_count(pq, "metafence_log"), "1");
    assert_int_equal(status_of(&options).unguarded, 0);
    pgt_run(pq, "UPDATE metafence.setting SET value = 'enforce' WHERE name = 'guard'");
    assert_int_equal(status_of(&options).unguarded, 15);
    while (strcmp(pgt_get(pq, "SELECT metafence.complete()"), "0") != 0)
        ;
    assert_string_equal(trigger_count(pq, "metafence_update"), "15");
    pgt_run(pq, "UPDATE metafence.setting SET value = 'off' WHERE name = 'guard'");
    while (strcmp(pgt_get(pq, "SELECT metafence.complete()"), "0") != 0)
        ;
    assert_string_equal(trigger_count(pq, "metafence_update"), "0");
}

// --- beside a writing leader ---

enum { CAMPAIGNS, WRITES, BUSY };

// A meta's sessions in a process of their own: one campaigns all the time and reports its
// slowest, one writes, one has transactions of 4 s and leaves gaps of 2 s. Ends at SIGTERM by
// itself.
static pid_t start_meta(int kind, int report)
{
    pid_t pid = fork();
    char line[32];
    int64_t worst = 0;

    if (pid != 0)
        return pid;
    PGconn *pq = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    for (;;) {
        struct instant begin = clock_now();
        if (kind == CAMPAIGNS && strcmp(pgt_campaign(pq, "meta-a"), "meta-a") != 0)
            _exit(3);
        if (kind == WRITES)
            pgt_run(pq, "UPDATE hummock_sequence SET seq = seq + 1 WHERE name = 'x'");
        if (kind == BUSY)
            pgt_run(pq, "BEGIN; INSERT INTO hummock_gc_history VALUES (1, now()); UPDATE worker"
                        " SET status = 'R'; SELECT pg_sleep(4); ROLLBACK");
        int64_t took = instant_since(clock_now(), begin) / NS_PER_MS;
        worst = took > worst ? took : worst;
        if (report >= 0) {
            int len = snprintf(line, sizeof line, "%19lld\n", (long long)worst);
            if (pwrite(report, line, (size_t)len, 0) != len)
                _exit(4);
        }
        (void)poll(NULL, 0, kind == BUSY ? 2000 : 5);
    }
}

static void test_beside_a_writing_leader(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    pid_t pids[3];
    char path[] = "/tmp/metafence-worst-XXXXXX", worst[32] = "";
    int report = mkstemp(path);
    struct err err;
    int64_t ms = 0;

    assert_true(report >= 0);
    run_text(pq, PGT_TABLES ";" TABLES_V2 "INSERT INTO hummock_sequence VALUES ('x', 0);"
                            "INSERT INTO worker VALUES (1, 'C', 'h', 1, 'S');"
                            "INSERT INTO election_leader VALUES ('svc', 'meta-a', now())");
    struct pgt_lateness late = pgt_lateness_begin();
    for (int kind = CAMPAIGNS; kind <= BUSY; kind++)
        pids[kind] = start_meta(kind, kind == CAMPAIGNS ? report : -1);
    options.timeout_ns = 180 * NS_PER_SEC; // a lock is found in a gap, after some tries
    for (int i = 0; i < (getenv("METAFENCE_LONG") ? 10 : 1); i++) {
        install_now(&options);
        struct sql_status status = status_of(&options);
        assert_true(status.is_trigger_on && status.guarded == 16);
        if (sql_uninstall(&options, &err) < 0)
            fail_msg("%s", err.msg);
    }
    for (int kind = CAMPAIGNS; kind <= BUSY; kind++) {
        int status = 0;
        assert_int_equal(kill(pids[kind], SIGTERM), 0);
        assert_int_equal(waitpid(pids[kind], &status, 0), pids[kind]);
        assert_true(WIFSIGNALED(status)); // no error in any of them
    }
    assert_true(pread(report, worst, sizeof worst - 1, 0) > 0);
    const char *digits = worst + strspn(worst, " ");
    worst[strcspn(worst, "\n")] = '\0';
    assert_true(election_parse_count(digits, &ms));
    int64_t late_ms = pgt_lateness_end(&late);
    print_message("slowest campaign: %lld ms, machine late by %lld ms\n", (long long)ms,
                  (long long)late_ms);
    if (late_ms < PGT_LATE_MS)
        assert_in_range(ms, 0, 500); // 200 ms behind a waiting CREATE TRIGGER
    (void)close(report);
    (void)unlink(path);
}

// --- what is left ---

static void test_uninstall_leaves_nothing(void **state)
{
    PGconn *pq = *state;
    PGconn *admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    struct pg_params params = pgt_params(pgt_port());
    const char *roles[] = {"watch'er", "looker"};
    struct err err;

    run_text(pq, PGT_TABLES ";" TABLES_V2);
    for (size_t i = 0; i < 2; i++) {
        if (strcmp(pgt_get(admin, "SELECT count(*) FROM pg_roles WHERE rolname = $$%s$$",
                           roles[i]),
                   "0") == 0)
            pgt_run(admin, "CREATE ROLE \"%s\"", roles[i]);
    }
    pgt_run(pq, "GRANT SELECT ON election_leader TO looker"); // had it before
    for (int as_admin = 0; as_admin < 2; as_admin++) {
        struct sql_options options = install_options(&params);
        char before[64];
        options.roles = roles;
        options.role_count = 2;
        if (as_admin) {
            params.user = "postgres";
            params.password = NULL;
        }
        (void)snprintf(before, sizeof before, "%s", pgt_get(admin, "%s", install_fingerprint));
        install_now(&options);
        assert_string_equal(pgt_get(admin, "SELECT has_table_privilege('watch''er',"
                                           " 'election_leader', 'SELECT')"),
                            "t");
        assert_string_not_equal(pgt_get(admin, "%s", install_fingerprint), before);
        PGconn *a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
        (void)pgt_campaign(a1, "meta-a");
        pgt_run(a1, "INSERT INTO worker VALUES (%d, 'C', 'h%d', 1, 'S')", as_admin, as_admin);
        PQfinish(a1);
        if (sql_uninstall(&options, &err) < 0)
            fail_msg("%s", err.msg);
        assert_string_equal(pgt_get(admin, "%s", install_fingerprint), before);
    }
    PQfinish(admin);
}

// The agent's own role, which owns nothing, completes through a function of the owner.
static void test_completion_by_the_agents_role(void **state)
{
    PGconn *pq = *state;
    PGconn *admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    const char *roles[] = {"lookout"};

    pgt_run(pq, PGT_TABLES);
    if (strcmp(pgt_get(admin, "SELECT count(*) FROM pg_roles WHERE rolname = 'lookout'"),
               "0") == 0)
        pgt_run(admin, "CREATE ROLE lookout LOGIN");
    options.roles = roles;
    options.role_count = 1;
    params.user = "postgres";
    params.password = NULL;
    install_now(&options);
    run_text(pq, TABLES_COMMON);
    PGconn *agent = pgt_connect("lookout", PGT_DATABASE, "scene");
    assert_string_equal(pgt_try(agent, "SELECT metafence.cover('worker')"), "42501");
    assert_string_equal(pgt_try(agent, "DELETE FROM metafence.mutation"), "42501");
    for (int i = 0; i < 20; i++)
        (void)pgt_get(agent, "SELECT metafence.complete()");
    assert_string_equal(pgt_get(agent, "SELECT metafence.complete()"), "0");
    assert_string_equal(pgt_get(agent, "SELECT count(*) FROM metafence.guarded_tables() WHERE"
                                       " is_covered"),
                        "8");
    pgt_run(pq, "INSERT INTO worker VALUES (7, 'COMPUTE_NODE', 'h', 5688, 'RUNNING')");
    assert_string_equal(pgt_get(agent,
                                "SELECT concat_ws(' ', worker_id, worker_type, host, port,"
                                " status) FROM metafence.workers()"),
                        "7 COMPUTE_NODE h 5688 RUNNING");
    assert_string_equal(pgt_get(pq, "SELECT xmin::text || ' ' || ctid::text FROM worker"),
                        pgt_get(agent, "SELECT row_version FROM metafence.workers()"));
    assert_string_equal(pgt_get(agent, "SELECT count(*) FROM metafence.mutation"), "1");
    // While an installation is under way it keeps out of it.
    run_text(pq, TABLES_MORE);
    pgt_run(admin, "SELECT pg_advisory_lock(7741035926118263)");
    assert_string_equal(pgt_get(agent, "SELECT metafence.complete()"), "8");
    assert_string_equal(pgt_get(agent, "SELECT metafence.complete()"), "8");
    pgt_run(admin, "SELECT pg_advisory_unlock(7741035926118263)");
    assert_string_equal(pgt_get(agent, "SELECT metafence.complete()"), "7");
    assert_string_equal(pgt_get(agent, "SELECT count(*) > 10 FROM metafence.counters()"), "t");
    PQfinish(agent);
    PQfinish(admin);
}

static void test_status(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);

    run_text(pq, PGT_TABLES ";" TABLES_V2);
    install_now(&options);
    pgt_run(pq, "ALTER TABLE worker DISABLE TRIGGER metafence_log;"
                "DROP TRIGGER metafence_update ON hummock_sequence");
    PGconn *a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    PGconn *b1 = pgt_connect("meta", PGT_DATABASE, TAG_B1);
    (void)pgt_campaign(a1, "meta-a");
    pgt_run(pq, "UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
    (void)pgt_campaign(b1, "meta-b");
    assert_string_equal(pgt_try(a1, "TRUNCATE compaction_task"), "MF001");
    pgt_run(pq, "UPDATE catalog_version SET version = 1");
    struct sql_status status = status_of(&options);
    assert_true(status.has_tables && status.guarded == 14 && status.unguarded == 2);
    assert_string_equal(status.unguarded_names, "hummock_sequence, worker");
    assert_true(status.counters.refused == 1 && status.counters.untagged == 1 &&
                status.counters.takeover == 1);
    assert_false(status.is_pooled);
    assert_int_equal(status.pooled_tags, 0);
    // A session that another incarnation had before comes from a pooler.
    pgt_run(b1, "SET application_name = 'metafence:bbbbbbbb:0000000000000002'");
    (void)pgt_campaign(b1, "meta-b");
    assert_int_equal(status_of(&options).pooled_tags, 1);
    pgt_run(pq, "ALTER TABLE election_leader DISABLE TRIGGER metafence_hold");
    assert_false(status_of(&options).is_trigger_on);
    install_now(&options);
    status = status_of(&options);
    assert_true(status.is_trigger_on && status.unguarded == 0);
    PQfinish(a1);
    PQfinish(b1);
}

static const struct CMUnitTest tests[] = {
    INSTALL_TEST(test_versions),
    INSTALL_TEST(test_only_what_is_meant),
    INSTALL_TEST(test_mode_is_kept),
    INSTALL_TEST(test_upgrade),
    INSTALL_TEST(test_upgrade_of_triggers),
    INSTALL_TEST(test_off_has_no_triggers),
    INSTALL_TEST(test_beside_a_writing_leader),
    INSTALL_TEST(test_uninstall_leaves_nothing),
    INSTALL_TEST(test_completion_by_the_agents_role),
    INSTALL_TEST(test_status),
};

UNIT_MAIN(tests)
