// SPDX-License-Identifier: Apache-2.0
// metafence sql install, uninstall, print, status.
#include "tests/unit/pg/installing.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/pg/admin.h"
#include "sql/sql.h"

// Everything in the database that carries our mark.
static const char *remains(PGconn *pq)
{
    return pgt_get(
        pq, "SELECT (SELECT count(*) FROM pg_namespace WHERE nspname ~ 'metafence') +"
            " (SELECT count(*) FROM pg_trigger WHERE tgname ~ 'metafence') +"
            " (SELECT count(*) FROM pg_proc WHERE proname = 'on_campaign') +"
            " (SELECT count(*) FROM pg_class WHERE relname IN ('term', 'renewal', 'death'))");
}

static void test_whole_life(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    struct sql_status status;
    struct err err;

    pgt_run(pq, PGT_TABLES);
    assert_int_equal(sql_status(&options, &status, &err), 0);
    assert_true(!status.has_schema && status.has_table && !status.has_trigger);
    install_now(&options);
    assert_non_null(strstr(install_said, "triggers on \"election_leader\" created"));
    PGconn *a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    (void)pgt_campaign(a1, "meta-a");
    assert_int_equal(sql_status(&options, &status, &err), 0);
    assert_true(status.has_schema && status.can_read && status.is_trigger_on);
    assert_int_equal(status.version, SQL_VERSION);
    assert_int_equal(status.term, 1);
    assert_int_equal(status.tags, 1);
    assert_string_equal(status.owner, "meta");
    assert_string_equal(status.guard, "enforce");

    // Again: nothing changes, nothing is lost, and the table is not locked for it.
    const char *oid =
        pgt_get(pq, "SELECT oid FROM pg_trigger WHERE tgname = '" SQL_TRIGGER_NAME "'");
    pgt_run(pq, "BEGIN; LOCK TABLE election_leader IN ROW EXCLUSIVE MODE");
    options = install_options(&params);
    install_now(&options);
    assert_non_null(strstr(install_said, "are installed"));
    pgt_run(pq, "COMMIT");
    assert_string_equal(
        pgt_get(pq, "SELECT oid FROM pg_trigger WHERE tgname = '" SQL_TRIGGER_NAME "'"), oid);
    assert_string_equal(pgt_get(pq, "SELECT term FROM metafence.term"), "1");

    assert_int_equal(sql_uninstall(&options, &err), 0);
    assert_string_equal(remains(pq), "0");
    assert_string_equal(pgt_campaign(a1, "meta-a"), "meta-a");
    assert_int_equal(sql_uninstall(&options, &err), 0); // and again
    assert_int_equal(sql_status(&options, &status, &err), 0);
    assert_false(status.has_schema);
    install_now(&options); // back
    (void)pgt_campaign(a1, "meta-a");
    assert_string_equal(pgt_get(pq, "SELECT term FROM metafence.term"), "1");
    PQfinish(a1);
}

static void test_repairs_trigger(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    struct sql_status status;
    struct err err;

    pgt_run(pq, PGT_TABLES);
    install_now(&options);
    pgt_run(pq, "ALTER TABLE election_leader DISABLE TRIGGER " SQL_TRIGGER_NAME);
    assert_int_equal(sql_status(&options, &status, &err), 0);
    assert_true(status.has_trigger && !status.is_trigger_on);
    install_now(&options);
    assert_int_equal(sql_status(&options, &status, &err), 0);
    assert_true(status.is_trigger_on);
}

static void test_creates_the_table(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    struct err err;

    install_now(&options);
    assert_non_null(strstr(install_said, "created, as a meta would"));
    pgt_run(pq, "CREATE TABLE IF NOT EXISTS election_leader (service VARCHAR, id VARCHAR, "
                "last_heartbeat"
                " TIMESTAMPTZ, PRIMARY KEY (service))"); // a meta's own start
    PGconn *a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    assert_string_equal(pgt_campaign(a1, "meta-a"), "meta-a");
    assert_string_equal(pgt_get(pq, "SELECT owner_tag FROM metafence.term"), TAG_A1);
    PQfinish(a1);

    // A superuser's table would lock the metas out: refused, or given to them.
    pgt_fresh_database();
    params.user = "postgres";
    params.password = NULL;
    assert_int_equal(sql_install(&options, &err), -1);
    assert_int_equal(err.kind, ERR_DENIED);
    assert_non_null(strstr(err.msg, "metas' role"));
    options.meta_role = "meta";
    install_now(&options);
    PGconn *meta = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    assert_string_equal(pgt_campaign(meta, "meta-a"), "meta-a");
    // The table's owner, whom the agent usually logs in as, can read the schema of another
    // installer.
    assert_string_equal(pgt_get(meta, "SELECT owner_tag FROM metafence.term"), TAG_A1);
    PQfinish(meta);
    *state = pgt_connect("meta", PGT_DATABASE, "scene");
    PQfinish(pq);
}

static void test_grants(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    const char *roles[] = {"watch-er"};
    PGconn *admin = pgt_connect("postgres", PGT_DATABASE, "scene");

    pgt_run(pq, PGT_TABLES);
    if (strcmp(pgt_get(admin, "SELECT count(*) FROM pg_roles WHERE rolname = 'watch-er'"),
               "0") == 0)
        pgt_run(admin, "CREATE ROLE \"watch-er\" LOGIN");
    options.roles = roles;
    options.role_count = 1;
    install_now(&options);
    PGconn *watcher = pgt_connect("watch-er", PGT_DATABASE, "scene");
    assert_string_equal(
        pgt_get(watcher, "SELECT count(*) FROM metafence.term, election_leader"), "0");
    assert_string_equal(pgt_get(watcher, "SELECT metafence.end_sessions('" TAG_A1 "')"), "0");
    assert_string_equal(
        pgt_get(watcher, "SELECT metafence.record_death('" TAG_A1 "', 'i', 'm', 'r')"), "t");
    assert_string_equal(pgt_try(watcher, "DELETE FROM metafence.term"), "42501");
    assert_string_equal(
        pgt_try(watcher, "SELECT metafence.move_term('svc', 'x', 'y', now(), true)"), "42501");
    PQfinish(watcher);
    PQfinish(admin);
}

static void test_busy_table(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    struct err err;

    pgt_run(pq, PGT_TABLES);
    pgt_run(pq, "BEGIN; INSERT INTO election_leader VALUES ('svc', 'meta-a', now())");
    options.timeout_ns = 3 * NS_PER_SEC;
    struct instant begin = clock_now();
    assert_int_equal(sql_install(&options, &err), -1);
    assert_true(instant_since(clock_now(), begin) < 15 * NS_PER_SEC);
    assert_int_equal(err.kind, ERR_TRANSIENT);
    assert_non_null(strstr(err.msg, "create the triggers"));
    assert_non_null(strstr(install_said, "busy, trying again"));
    pgt_run(pq, "COMMIT");
    install_now(&options); // what was left half-way is completed
    assert_string_equal(
        pgt_get(pq, "SELECT count(*) FROM pg_trigger WHERE tgname = '" SQL_TRIGGER_NAME "'"),
        "1");
}

static void test_at_the_same_time(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    pid_t pids[4];

    options.timeout_ns = 20 * NS_PER_SEC;
    for (size_t i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct err err;
            _exit(sql_install(&options, &err) == 0 ? 0 : 1);
        }
    }
    for (size_t i = 0; i < 4; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_string_equal(
        pgt_get(pq, "SELECT count(*) FROM pg_trigger WHERE tgname = '" SQL_TRIGGER_NAME "'"),
        "1");
}

static void test_refuses(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    struct err err;

    pgt_run(pq, PGT_TABLES);
    install_now(&options);
    pgt_run(pq, "UPDATE metafence.setting SET value = '99' WHERE name = 'schema_version'");
    assert_int_equal(sql_install(&options, &err), -1);
    assert_non_null(strstr(err.msg, "newer"));
    assert_int_equal(sql_uninstall(&options, &err), -1);
    pgt_run(pq, "DROP SCHEMA metafence CASCADE; CREATE SCHEMA metafence; CREATE TABLE "
                "metafence.theirs (i int)");
    assert_int_equal(sql_install(&options, &err), -1);
    assert_non_null(strstr(err.msg, "not made by metafence"));
    assert_int_equal(sql_uninstall(&options, &err), -1);
    assert_string_equal(pgt_get(pq, "SELECT count(*) FROM metafence.theirs"), "0");
    options.leader_table = "bad name";
    assert_int_equal(sql_install(&options, &err), -1);
    assert_int_equal(err.kind, ERR_INVALID);
    options.leader_table = "election_leader";
    params.password = "not-the-secret";
    assert_int_equal(sql_install(&options, &err), -1);
    assert_int_equal(err.kind, ERR_DENIED);
    assert_null(strstr(err.msg, "not-the-secret"));
    params = pgt_params(pgt_standby_port());
    params.database = "postgres";
    params.user = "postgres";
    assert_int_equal(sql_install(&options, &err), -1);
    assert_non_null(strstr(err.msg, "standby"));
    params = pgt_params(1);
    assert_int_equal(sql_install(&options, &err), -1);
    assert_int_equal(err.kind, ERR_TRANSIENT);
}

// A role without the rights: nothing half-done, and the error says what is missing.
static void test_missing_rights(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    PGconn *admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    struct err err;

    pgt_run(pq, PGT_TABLES);
    if (strcmp(pgt_get(admin, "SELECT count(*) FROM pg_roles WHERE rolname = 'novice'"), "0") ==
        0)
        pgt_run(admin, "CREATE ROLE novice LOGIN PASSWORD 'secret-meta'");
    params.user = "novice";
    assert_int_equal(sql_install(&options, &err), -1);
    assert_int_equal(err.kind, ERR_DENIED);
    assert_non_null(strstr(err.msg, "create the schema: permission denied for database"));
    assert_string_equal(remains(pq), "0");
    // With the schema of its own, but not the owner of the tables.
    pgt_run(admin, "GRANT CREATE ON DATABASE " PGT_DATABASE " TO novice");
    assert_int_equal(sql_install(&options, &err), -1);
    assert_int_equal(err.kind, ERR_DENIED);
    assert_non_null(strstr(err.msg, "election_leader"));
    assert_string_equal(
        pgt_get(pq,
                "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'election_leader'::regclass"),
        "0");
    assert_string_equal(pgt_campaign(pq, "meta-a"), "meta-a");
    assert_int_equal(sql_uninstall(&options, &err), 0);
    assert_string_equal(remains(pq), "0");
    pgt_run(admin, "REVOKE CREATE ON DATABASE " PGT_DATABASE " FROM novice");
    PQfinish(admin);
}

static void test_print_is_what_runs(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    struct buf text = {0};
    struct err err;
    const char *roles[] = {"meta"};

    pgt_run(pq, PGT_TABLES);
    options.roles = roles;
    options.role_count = 1;
    options.leader_table = "public.election_leader";
    assert_int_equal(sql_print(&options, &text, &err), 0);
    assert_null(strchr(buf_str(&text), '@'));
    PGresult *result = PQexec(pq, buf_str(&text));
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    struct sql_status status;
    assert_int_equal(sql_status(&options, &status, &err), 0);
    assert_true(status.is_trigger_on);
    buf_done(&text);
}

// Nothing of the command line waits for ever, and a lost connection is told at once.
static void test_silence_has_an_end(void **state)
{
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    struct admin admin = {.options = &options};
    struct err err = {0};

    (void)state;
    assert_int_equal(admin_begin(&admin, &err), 0);
    assert_int_equal(admin_run(&admin, "SELECT pg_terminate_backend(pg_backend_pid())", &err),
                     -1);
    assert_int_equal(admin_run(&admin, "SELECT 1", &err), -1);
    admin_done(&admin);
    options.timeout_ns = 150 * NS_PER_MS;
    assert_int_equal(admin_begin(&admin, &err), 0);
    assert_int_equal(admin_run(&admin, "SELECT pg_sleep(60)", &err), -1);
    assert_int_equal(err.kind, ERR_UNKNOWN_OUTCOME);
    assert_int_equal(admin_run(&admin, "SELECT 1", &err), -1);
    admin_done(&admin);
}

static const struct CMUnitTest tests[] = {
    INSTALL_TEST(test_whole_life),
    INSTALL_TEST(test_repairs_trigger),
    INSTALL_TEST(test_creates_the_table),
    INSTALL_TEST(test_grants),
    INSTALL_TEST(test_busy_table),
    INSTALL_TEST(test_at_the_same_time),
    INSTALL_TEST(test_refuses),
    INSTALL_TEST(test_missing_rights),
    INSTALL_TEST(test_silence_has_an_end),
    INSTALL_TEST(test_print_is_what_runs),
};

UNIT_MAIN(tests)
