// SPDX-License-Identifier: Apache-2.0
// Installed by a superuser, metafence's functions run with his rights on a table that the
// metas' role owns: nothing that this role hangs on its table may run with them.
#include "tests/unit/pg/pgtest.h"

#include "agent/pg/install.h"

#define TAG_A1 "metafence:aaaaaaaa:0000000000000001"
#define TAG_A2 "metafence:aaaaaaaa:0000000000000002"

static int setup(void **state)
{
    struct pg_params params = pgt_params(pgt_port());
    const struct sql_options options = {
        .params = &params, .leader_table = "election_leader", .timeout_ns = 5 * NS_PER_SEC};
    struct err err;

    pgt_fresh_database();
    *state = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    pgt_run(*state, PGT_TABLES "; CREATE TABLE ran_as (who text);"
                               "GRANT INSERT ON ran_as TO PUBLIC");
    params.user = "postgres";
    params.password = NULL;
    if (sql_install(&options, &err) < 0)
        fail_msg("%s", err.msg);
    if (sql_install(&options, &err) < 0) // again
        fail_msg("%s", err.msg);
    return 0;
}

static int teardown(void **state)
{
    PQfinish(*state);
    return 0;
}

static void test_delete_of_a_phantom(void **state)
{
    PGconn *meta = *state;

    (void)pgt_campaign(meta, "meta-a");
    pgt_run(meta, "CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS"
                  " $$BEGIN INSERT INTO public.ran_as VALUES (current_user); RETURN OLD; END$$;"
                  "CREATE TRIGGER spy BEFORE DELETE ON election_leader"
                  " FOR EACH ROW EXECUTE FUNCTION spy()");
    assert_string_equal(pgt_get(meta,
                                "SELECT metafence.drop_phantom(service, id, last_heartbeat)"
                                " FROM election_leader"),
                        "1");
    assert_string_equal(pgt_get(meta, "SELECT string_agg(who, ' ') FROM ran_as"), "meta");
}

// A cast is a function of the type's owner, and plpgsql applies it unasked. What it did
// outlives the error that follows: a sequence is not rolled back, nor is COPY TO PROGRAM.
static void test_cast_of_an_id(void **state)
{
    PGconn *meta = *state;
    PGconn *next = pgt_connect("meta", PGT_DATABASE, TAG_A2);

    (void)pgt_campaign(meta, "meta-a");
    pgt_run(meta, "CREATE SEQUENCE spied_on; GRANT USAGE ON SEQUENCE spied_on TO PUBLIC;"
                  "CREATE TYPE spied AS ENUM ('meta-a', 'meta-b');"
                  "CREATE FUNCTION spy(spied) RETURNS text LANGUAGE plpgsql AS"
                  " $$BEGIN IF current_user <> 'meta' THEN"
                  " PERFORM nextval('public.spied_on'); END IF; RETURN 'x'; END$$;"
                  "CREATE CAST (spied AS text) WITH FUNCTION spy(spied) AS ASSIGNMENT;"
                  "ALTER TABLE election_leader ALTER id TYPE spied USING id::text::spied");
    pgt_run(next, "UPDATE election_leader SET id = 'meta-b', last_heartbeat = now()");
    assert_string_equal(pgt_get(meta, "SELECT is_called FROM spied_on"), "f");
    assert_string_equal(pgt_get(meta, "SELECT count(*) FROM election_leader"
                                      " WHERE id = 'meta-b'::spied"),
                        "1");
    PQfinish(next);
}

// The tables of a fresh cluster come after the installation: whoever makes them hangs on them
// what he likes, and what our functions read is read with his rights from the beginning.
static void test_tables_that_come_later(void **state)
{
    PGconn *meta = *state;

    pgt_run(meta, "CREATE SEQUENCE spied_on; GRANT USAGE ON SEQUENCE spied_on TO PUBLIC;"
                  "CREATE FUNCTION spy(integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
                  " $$BEGIN IF current_user <> 'meta' THEN"
                  " PERFORM nextval('public.spied_on'); END IF; RETURN true; END$$;"
                  "CREATE TABLE seaql_migrations (version text);"
                  "INSERT INTO seaql_migrations VALUES ('m20230908_1');"
                  "CREATE INDEX ON seaql_migrations (version) WHERE spy(1)");
    assert_string_equal(pgt_get(meta, "SELECT version FROM metafence.catalog_version()"),
                        "m20230908_1");
    assert_string_equal(pgt_get(meta, "SELECT is_called FROM spied_on"), "f");
}

#define RIGHTS_TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

static const struct CMUnitTest tests[] = {
    RIGHTS_TEST(test_delete_of_a_phantom),
    RIGHTS_TEST(test_cast_of_an_id),
    RIGHTS_TEST(test_tables_that_come_later),
};

UNIT_MAIN(tests)
