// SPDX-License-Identifier: Apache-2.0
// Installing, upgrading, printing and removing what ordered recovery needs.
#include "tests/unit/pg/catalog.h"
#include "tests/unit/pg/installing.h"
#include "tests/unit/pg/tables.h"

#include <stdio.h>
#include <string.h>

#include "sql/sql.h"

#define CATALOG CATALOG_V2_6 CATALOG_TO_V2_8 CATALOG_TO_V3 CATALOG_TO_HEAD

static void run_text(PGconn *pq, const char *sql)
{
    PGresult *result = PQexec(pq, sql);

    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    PQclear(result);
}

static struct sql_status status_of(const struct sql_options *options)
{
    struct sql_status status;
    struct err err;

    if (sql_status(options, &status, &err) < 0)
        fail_msg("%s", err.msg);
    return status;
}

static void test_modes(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    struct err err;

    run_text(pq, PGT_TABLES ";" TABLES_V2 CATALOG);
    install_now(&options);
    assert_non_null(strstr(install_said, "recovery: observe"));
    assert_non_null(strstr(install_said, "table fragment is watched for recoveries"));
    struct sql_status status = status_of(&options);
    assert_string_equal(status.recovery, "observe");
    assert_true(status.is_verified && !status.unwatched_names[0]);
    assert_string_equal(status.catalog_version, "m20260804_000000_worker");
    options = install_options(&params);
    options.recovery = "enforce";
    install_now(&options);
    assert_null(strstr(install_said, "is watched")); // nothing left to do
    options.recovery = NULL;
    install_now(&options);
    assert_string_equal(status_of(&options).recovery, "enforce");
    options.recovery = "on";
    assert_int_equal(sql_install(&options, &err), -1);
    assert_int_equal(err.kind, ERR_INVALID);
    assert_non_null(strstr(err.msg, "recovery \"on\": expected off, observe or enforce"));
    run_text(pq, LEDGER("m20991231_000000_new"));
    run_text(pq, "DROP TRIGGER metafence_recovery ON object;"
                 "ALTER TABLE fragment DISABLE TRIGGER metafence_recovery");
    status = status_of(&options);
    assert_false(status.is_verified);
    assert_string_equal(status.unwatched_names, "fragment, object");
    assert_int_equal(status.unguarded, 0);
    options = install_options(&params);
    install_now(&options);
    assert_string_equal(status_of(&options).unwatched_names, "");
}

// An installation from before ordered recovery is completed, and keeps what it has.
static void test_upgrade(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);

    run_text(pq, PGT_TABLES ";" TABLES_V2 CATALOG);
    install_now(&options);
    PGconn *a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    (void)pgt_campaign(a1, "meta-a");
    run_text(pq, "DROP TRIGGER metafence_recovery ON object;"
                 "DROP TRIGGER metafence_recovery ON fragment;"
                 "DROP TRIGGER metafence_recovery ON hummock_version_delta;"
                 "DROP TRIGGER metafence_recovery_mode ON metafence.setting;"
                 "DROP TABLE metafence.recovery, metafence.dropped, metafence.gate,"
                 " metafence.acknowledgement, metafence.purge, metafence.verified;"
                 "DROP FUNCTION metafence.recovery_tables, metafence.catalog_version,"
                 " metafence.recovery_state, metafence.on_delta, metafence.note_recovery;"
                 "ALTER TABLE metafence.setting DROP CONSTRAINT setting_recovery_mode;"
                 "DELETE FROM metafence.setting WHERE name = 'recovery'");
    struct sql_status status = status_of(&options);
    assert_true(status.can_read && status.guarded == 16);
    assert_string_equal(status.recovery, "");
    install_now(&options);
    status = status_of(&options);
    assert_string_equal(status.recovery, "observe");
    assert_true(status.term == 1 && status.guarded == 16 && !status.unwatched_names[0]);
    assert_int_equal(status.counters.recovery_failed, 0);
    PQfinish(a1);
}

// What is printed is what an installation does.
static void test_print(void **state)
{
    PGconn *pq = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);
    struct buf text = {0};
    struct err err;
    char installed[64];

    run_text(pq, PGT_TABLES ";" TABLES_V2 CATALOG);
    options.recovery = "enforce";
    install_now(&options);
    (void)snprintf(installed, sizeof installed, "%s", pgt_get(pq, "%s", install_fingerprint));
    if (sql_uninstall(&options, &err) < 0 || sql_print(&options, &text, &err) < 0)
        fail_msg("%s", err.msg);
    run_text(pq, buf_str(&text));
    assert_string_equal(pgt_get(pq, "%s", install_fingerprint), installed);
    assert_string_equal(status_of(&options).recovery, "enforce");
    assert_string_equal(status_of(&options).unwatched_names, "");
    buf_done(&text);
}

// By the metas' role and by a superuser, with rows in all of its tables: nothing stays.
static void test_uninstall(void **state)
{
    PGconn *pq = *state;
    PGconn *admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    struct pg_params params = pgt_params(pgt_port());
    struct err err;
    char before[64];

    run_text(pq, PGT_TABLES ";" TABLES_V2 CATALOG);
    (void)snprintf(before, sizeof before, "%s", pgt_get(admin, "%s", install_fingerprint));
    for (int as_admin = 0; as_admin < 2; as_admin++) {
        struct sql_options options = install_options(&params);
        options.recovery = "enforce";
        if (as_admin) {
            params.user = "postgres";
            params.password = NULL;
        }
        install_now(&options);
        assert_string_not_equal(pgt_get(admin, "%s", install_fingerprint), before);
        PGconn *a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
        (void)pgt_campaign(a1, "meta-a");
        pgt_run(a1, "INSERT INTO object (oid, obj_type) VALUES (1, 'TABLE');"
                    "INSERT INTO \"table\" VALUES (1, 'mv');"
                    "INSERT INTO streaming_job VALUES (1, 'CREATING', 'FOREGROUND');"
                    "INSERT INTO fragment (job_id, state_table_ids) VALUES (1, '[7]');"
                    "DELETE FROM object WHERE oid = 1");
        pgt_run(a1, "DELETE FROM object WHERE obj_type = 'SUBSCRIPTION' AND oid NOT IN (SELECT"
                    " subscription_id FROM subscription)");
        assert_string_equal(pgt_get(admin, "SELECT concat_ws(' ', recovery_id IS NOT NULL,"
                                           " dropped, creating, version) FROM"
                                           " metafence.recovery_state('svc')"),
                            "t 1 0 m20260804_000000_worker");
        assert_string_equal(pgt_get(admin, "SELECT name FROM metafence.dropped"), "mv");
        PQfinish(a1);
        if (sql_uninstall(&options, &err) < 0)
            fail_msg("%s", err.msg);
        assert_string_equal(pgt_get(admin, "%s", install_fingerprint), before);
    }
    PQfinish(admin);
}

// A superuser's functions run nothing of the metas' role with his rights: what that role puts
// in the place of its catalog runs as itself.
static void test_rights_of_a_superuser(void **state)
{
    PGconn *pq = *state;
    PGconn *admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    struct pg_params params = pgt_params(pgt_port());
    struct sql_options options = install_options(&params);

    run_text(pq, PGT_TABLES ";" TABLES_V2 CATALOG);
    params.user = "postgres";
    params.password = NULL;
    install_now(&options);
    run_text(pq, "CREATE TABLE ran_as (who text); GRANT INSERT ON ran_as TO PUBLIC;"
                 "CREATE FUNCTION spy() RETURNS varchar LANGUAGE plpgsql AS $$BEGIN INSERT INTO"
                 " public.ran_as VALUES (current_user); RETURN 'm20260101_x'; END$$;"
                 "ALTER TABLE seaql_migrations RENAME TO seaql;"
                 "CREATE VIEW seaql_migrations AS SELECT spy() AS version;"
                 "DROP TABLE sink; CREATE VIEW sink AS SELECT 1 AS sink_id, spy() AS name;"
                 "INSERT INTO object (oid, obj_type) VALUES (1, 'SINK');"
                 "INSERT INTO streaming_job VALUES (1, 'CREATING', 'FOREGROUND');"
                 "INSERT INTO fragment (job_id, state_table_ids) VALUES (1, '[7]')");
    PGconn *a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    (void)pgt_campaign(a1, "meta-a");
    pgt_run(admin, "SELECT metafence.recovery_state('svc')");
    pgt_run(admin, "SELECT metafence.recovery_rows('svc')");
    pgt_run(a1, "DELETE FROM object WHERE oid = 1");
    assert_string_equal(pgt_get(admin, "SELECT name FROM metafence.dropped"), "m20260101_x");
    assert_string_equal(pgt_get(admin, "SELECT string_agg(DISTINCT who, ' ') FROM ran_as"),
                        "meta");
    // Types of its own are not cast in the triggers.
    run_text(pq, "CREATE TYPE spied AS ENUM ('x');"
                 "CREATE FUNCTION spy(spied) RETURNS bytea LANGUAGE plpgsql AS $$BEGIN INSERT"
                 " INTO public.ran_as VALUES (current_user); RETURN ''; END$$;"
                 "CREATE FUNCTION spy_json(spied) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN"
                 " INSERT INTO public.ran_as VALUES (current_user); RETURN '[7]'; END$$;"
                 "CREATE CAST (spied AS bytea) WITH FUNCTION spy(spied) AS IMPLICIT;"
                 "CREATE CAST (spied AS jsonb) WITH FUNCTION spy_json(spied) AS IMPLICIT;"
                 "ALTER TABLE hummock_version_delta ALTER full_version_delta TYPE spied USING"
                 " NULL;"
                 "ALTER TABLE fragment ALTER state_table_ids TYPE spied USING 'x';"
                 "CREATE FUNCTION spy_text(spied) RETURNS text LANGUAGE plpgsql AS $$BEGIN"
                 " INSERT INTO public.ran_as VALUES (current_user); RETURN ''; END$$;"
                 "CREATE CAST (spied AS text) WITH FUNCTION spy_text(spied) AS IMPLICIT;"
                 "ALTER TABLE streaming_job ALTER job_status TYPE spied USING 'x';"
                 "INSERT INTO object (oid, obj_type) VALUES (2, 'SINK');"
                 "INSERT INTO streaming_job VALUES (2, 'x', 'FOREGROUND');"
                 "INSERT INTO fragment (job_id, state_table_ids) VALUES (2, 'x')");
    pgt_run(a1, "INSERT INTO hummock_version_delta VALUES (1, 0, 0, 0, false, 'x');"
                "DELETE FROM object WHERE oid = 2");
    assert_string_equal(pgt_get(admin, "SELECT string_agg(DISTINCT who, ' ') FROM ran_as"),
                        "meta");
    assert_int_equal(status_of(&options).counters.recovery_failed, 3);
    PQfinish(a1);
    PQfinish(admin);
}

static const struct CMUnitTest tests[] = {
    INSTALL_TEST(test_modes),
    INSTALL_TEST(test_upgrade),
    INSTALL_TEST(test_print),
    INSTALL_TEST(test_uninstall),
    INSTALL_TEST(test_rights_of_a_superuser),
};

UNIT_MAIN(tests)
