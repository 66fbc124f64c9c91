// SPDX-License-Identifier: Apache-2.0
// The agent's reads and calls against a real Postgres, complete, bare, denied, broken, on a
// standby.
#include "tests/unit/pg/pgtest.h"

#include <stdio.h>
#include <string.h>

#include "agent/pg/install.h"
#include "tests/unit/pg/tables.h"

#define TAG_A1 "metafence:aaaaaaaa:0000000000000001"
#define TAG_A2 "metafence:aaaaaaaa:0000000000000002"

struct scene {
    struct pgt *pgt;
    PGconn *meta, *admin;
    struct pg_params params;
    struct election_config config;
    struct pg *pg;
    struct election *election;
    // The last answer.
    bool is_done;
    struct election_read read;
    int64_t count;
    struct pg_fault fault;
};

static const struct pg_ops no_ops = {0};

static void scene_open(struct scene *scene)
{
    struct err err;

    const struct pg_net net = {scene->pgt->loop, scene->pgt->resolver, &scene->params};
    if (pg_new(&net, &no_ops, scene, &scene->pg, &err) < 0 ||
        election_new(scene->pg, &scene->config, &scene->election, &err) < 0)
        fail_msg("%s", err.msg);
}

static void scene_close(struct scene *scene)
{
    pg_free(scene->pg);
    election_free(scene->election);
    scene->pg = NULL;
    scene->election = NULL;
}

static int setup(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);

    (void)pgt_setup((void **)&scene->pgt);
    scene->meta = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    scene->admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    scene->params = pgt_params(pgt_port());
    scene->config =
        (struct election_config){"svc", "election_leader", "election_member", "meta-a"};
    scene_open(scene);
    *state = scene;
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;

    scene_close(scene);
    PQfinish(scene->meta);
    PQfinish(scene->admin);
    (void)pgt_teardown((void **)&scene->pgt);
    free(scene);
    return 0;
}

static void on_read(const struct election_read *read, void *arg)
{
    struct scene *scene = arg;

    scene->is_done = true;
    scene->read = *read;
}

static enum election_status look(struct scene *scene, const char *tag)
{
    scene->is_done = false;
    assert_true(election_read(scene->election, tag, on_read, scene));
    assert_false(election_read(scene->election, tag, on_read, scene)); // one at a time
    pgt_wait(scene->pgt, &scene->is_done, 3000);
    return scene->read.status;
}

static void install(struct scene *scene)
{
    const struct sql_options options = {.params = &scene->params,
                                        .leader_table = "election_leader",
                                        .timeout_ns = 5 * NS_PER_SEC};
    struct err err;

    if (sql_install(&options, &err) < 0)
        fail_msg("%s", err.msg);
}

static void test_complete(void **state)
{
    struct scene *s = *state;

    pgt_run(s->meta, PGT_TABLES);
    install(s);
    assert_int_equal(look(s, ""), ELECTION_OK); // an empty table
    assert_false(s->read.row_present || s->read.term_known);
    assert_true(s->read.members_known && s->read.other_members == 0);
    (void)pgt_campaign(s->meta, "meta-a");
    pgt_run(
        s->meta,
        "INSERT INTO election_member VALUES ('svc', 'META-A', now()), ('svc', 'meta-b', NULL),"
        " ('svc', 'meta-c', now() - interval '1 day'), ('other', 'x', now())");
    struct instant before = clock_now();
    assert_int_equal(look(s, TAG_A1), ELECTION_OK);
    assert_true(s->read.sent_at.ns >= before.ns &&
                s->read.received_at.ns >= s->read.sent_at.ns);
    assert_true(s->read.row_present && !s->read.heartbeat_is_null);
    assert_string_equal(s->read.id, "meta-a");
    assert_in_range(s->read.age_ns, 0, NS_PER_SEC);
    assert_int_equal(s->read.other_members, 2);
    assert_true(s->read.term_known && s->read.term == 1);
    assert_string_equal(s->read.owner_tag, TAG_A1);
    assert_string_equal(s->read.heartbeat_tag, TAG_A1);
    assert_string_equal(s->read.term_owner_id, "meta-a");
    assert_true(s->read.tag_owned_term && !s->read.tag_superseded && s->read.guard_enforcing);
    assert_true(s->read.system_id != 0 && s->read.system_id == s->read.term_system_id);
    assert_int_equal(s->read.timeline, 1);
    assert_int_equal(s->read.term_timeline, 1);
    // Exactly what the database shows.
    char us[32];
    (void)snprintf(us, sizeof us, "%lld", (long long)s->read.heartbeat_us);
    assert_string_equal(pgt_get(s->meta, "SELECT (extract(epoch FROM last_heartbeat) * "
                                         "1000000)::bigint FROM election_leader"),
                        us);

    PGconn *a2 = pgt_connect("meta", PGT_DATABASE, TAG_A2);
    (void)pgt_campaign(a2, "meta-a");
    assert_int_equal(look(s, TAG_A1), ELECTION_OK);
    assert_true(s->read.tag_superseded && s->read.term == 2);
    pgt_run(s->admin, "UPDATE election_leader SET last_heartbeat = now()"); // by nobody we know
    assert_int_equal(look(s, TAG_A2), ELECTION_OK);
    assert_string_equal(s->read.heartbeat_tag, "");
    assert_true(s->read.tag_owned_term && !s->read.tag_superseded);
    pgt_run(s->meta, "UPDATE metafence.setting SET value = 'observe' WHERE name = 'guard'");
    assert_int_equal(look(s, TAG_A2), ELECTION_OK);
    assert_false(s->read.guard_enforcing);
    PQfinish(a2);
}

static void test_odd_rows(void **state)
{
    struct scene *s = *state;

    pgt_run(s->meta, PGT_TABLES);
    pgt_run(s->meta, "INSERT INTO election_leader VALUES ('svc', 'meta-a', NULL)");
    assert_int_equal(look(s, ""), ELECTION_OK);
    assert_true(s->read.row_present && s->read.heartbeat_is_null);
    pgt_run(s->meta, "UPDATE election_leader SET last_heartbeat = now() + interval '1 hour'");
    assert_int_equal(look(s, ""), ELECTION_OK);
    assert_in_range(-s->read.age_ns, 3599 * NS_PER_SEC, 3600 * NS_PER_SEC);
    static const char *const ends[] = {"infinity", "-infinity", "294276-12-31 23:59:59.999999",
                                       "4713-01-02 BC", "1969-12-31"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        pgt_run(s->meta, "UPDATE election_leader SET last_heartbeat = '%s'", ends[i]);
        assert_int_equal(look(s, ""), ELECTION_OK);
        assert_true((s->read.age_ns < 0) == (i == 0 || i == 2));
    }
    static const char *const exact[] = {"2026-11-29 12:00:00.000001",
                                        "1969-12-31 23:59:59.999999", "2038-01-19 03:14:08.5",
                                        "2000-01-01"};
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        char us[32];
        pgt_run(s->meta, "UPDATE election_leader SET last_heartbeat = '%s UTC'", exact[i]);
        assert_int_equal(look(s, ""), ELECTION_OK);
        (void)snprintf(us, sizeof us, "%lld", (long long)s->read.heartbeat_us);
        assert_string_equal(pgt_get(s->meta, "SELECT trunc(extract(epoch FROM last_heartbeat) *"
                                             " 1000000) FROM election_leader"),
                            us);
    }
    pgt_run(s->meta, "UPDATE election_leader SET id = NULL, last_heartbeat = now()");
    assert_int_equal(look(s, ""), ELECTION_OK);
    assert_true(s->read.id_is_null);
    pgt_run(s->meta, "UPDATE election_leader SET id = repeat('x', 300)");
    assert_int_equal(look(s, ""), ELECTION_UNREADABLE);
    assert_non_null(strstr(s->read.fault.err.msg, "column id"));
    pgt_run(s->meta, "UPDATE election_leader SET id = 'it''s; DROP'");
    assert_int_equal(look(s, ""), ELECTION_OK);
    assert_string_equal(s->read.id, "it's; DROP");
}

static void test_comes_and_goes(void **state)
{
    struct scene *s = *state;

    // The same session sees tables and schema appear and vanish under it.
    assert_int_equal(look(s, ""), ELECTION_MISSING);
    assert_string_equal(s->read.fault.sqlstate, "42P01");
    assert_non_null(strstr(s->read.fault.err.msg, "election_leader"));
    pgt_run(s->meta, PGT_TABLES);
    assert_int_equal(look(s, ""), ELECTION_OK);
    assert_false(s->read.term_known);
    pgt_run(s->meta, "DROP TABLE election_member");
    assert_int_equal(look(s, ""), ELECTION_OK);
    assert_false(s->read.members_known || s->read.members_denied);
    scene_close(s); // it looks for a schema only now and then
    scene_open(s);
    install(s);
    (void)pgt_campaign(s->meta, "meta-a");
    assert_int_equal(look(s, ""), ELECTION_OK);
    assert_true(s->read.term_known);
    pgt_run(s->meta, "DROP SCHEMA metafence CASCADE");
    assert_int_equal(look(s, ""), ELECTION_OK);
    assert_false(s->read.term_known);
    assert_true(s->read.row_present);
    pgt_run(s->meta, "DROP TABLE election_leader");
    assert_int_equal(look(s, ""), ELECTION_MISSING);
    pgt_run(s->meta, "CREATE TABLE election_leader (service int, id int, last_heartbeat text)");
    assert_int_equal(look(s, ""), ELECTION_UNREADABLE);
    assert_non_null(strstr(s->read.fault.err.msg, "last_heartbeat"));
    pgt_run(
        s->meta,
        "DROP TABLE election_leader; CREATE TABLE election_leader (service varchar, id varchar,"
        " last_heartbeat timestamptz)");
    assert_int_equal(look(s, ""), ELECTION_OK);
    pgt_run(s->meta, "ALTER TABLE election_leader ALTER last_heartbeat TYPE text");
    assert_int_equal(look(s, ""), ELECTION_UNREADABLE);
    // No primary key is there to promise one row.
    pgt_run(s->meta,
            "ALTER TABLE election_leader ALTER last_heartbeat TYPE timestamptz USING NULL;"
            " INSERT INTO election_leader VALUES ('svc', 'a', NULL), ('svc', 'b', NULL)");
    assert_int_equal(look(s, ""), ELECTION_UNREADABLE);
}

static void test_least_privileges(void **state)
{
    struct scene *s = *state;

    pgt_run(s->meta, PGT_TABLES);
    install(s);
    (void)pgt_campaign(s->meta, "meta-a");
    pgt_run(s->admin,
            "DROP ROLE IF EXISTS watcher; CREATE ROLE watcher LOGIN PASSWORD 'secret-watcher'");
    scene_close(s);
    s->params.user = "watcher";
    s->params.password = "secret-watcher";
    scene_open(s);
    assert_int_equal(look(s, TAG_A1), ELECTION_REFUSED);
    assert_string_equal(s->read.fault.sqlstate, "42501");
    assert_int_equal(s->read.fault.err.kind, ERR_DENIED);
    assert_non_null(strstr(s->read.fault.err.msg, "election_leader"));
    pgt_run(s->meta, "GRANT SELECT ON election_leader TO watcher");
    assert_int_equal(look(s, TAG_A1), ELECTION_OK);
    assert_true(s->read.row_present && s->read.schema_denied && s->read.members_denied);
    assert_false(s->read.term_known || s->read.members_known);
    pgt_run(s->meta, "GRANT USAGE ON SCHEMA metafence TO watcher; GRANT SELECT ON "
                     "metafence.term TO watcher");
    scene_close(s);
    scene_open(s);
    assert_int_equal(look(s, TAG_A1), ELECTION_OK);
    assert_true(s->read.schema_denied && !s->read.term_known); // half of it is not enough
    pgt_run(s->meta, "GRANT SELECT ON ALL TABLES IN SCHEMA metafence, public TO watcher");
    scene_close(s);
    scene_open(s);
    assert_int_equal(look(s, TAG_A1), ELECTION_OK);
    assert_true(s->read.term_known && s->read.members_known && !s->read.schema_denied);
    pgt_run(s->meta, "REVOKE SELECT ON metafence.tag FROM watcher");
    assert_int_equal(look(s, TAG_A1), ELECTION_OK);
    assert_true(s->read.schema_denied && !s->read.term_known);
    scene_close(s);
    pgt_run(s->admin, "DROP OWNED BY watcher; DROP ROLE watcher");
    s->params = pgt_params(pgt_port());
    scene_open(s);
}

static void test_standby(void **state)
{
    struct scene *s = *state;

    scene_close(s);
    s->params = pgt_params(pgt_standby_port());
    s->params.database = "postgres"; // the copy was made before the scene
    s->params.user = "postgres";
    scene_open(s);
    // It has the row, but what it says must not count; it asks for another connection, not too
    // often.
    struct instant begin = clock_now();
    unsigned reads = 0;
    while (instant_since(clock_now(), begin) < 1200 * NS_PER_MS) {
        assert_int_equal(look(s, ""), ELECTION_STANDBY);
        assert_false(s->read.row_present || s->read.term_known);
        assert_non_null(strstr(s->read.fault.err.msg, "standby"));
        reads++;
    }
    assert_true(reads > 5);
    assert_in_range(pg_stats(s->pg)->connects, 2, 5);
    assert_int_equal(pg_stats(s->pg)->connect_failures, 0);
    assert_false(pg_is_listening(s->pg));
}

static void test_refused_and_silent(void **state)
{
    struct scene *s = *state;

    scene_close(s);
    s->params.password = "not-the-secret";
    scene_open(s);
    assert_int_equal(look(s, ""), ELECTION_REFUSED);
    assert_string_equal(s->read.fault.sqlstate, "28P01");
    assert_null(strstr(s->read.fault.err.msg, "not-the-secret"));
    scene_close(s);
    s->params = pgt_params(1);
    scene_open(s);
    assert_int_equal(look(s, ""), ELECTION_SILENT);
    assert_int_equal(s->read.sent_at.ns, 0);
    scene_close(s);
    // A lock on the table: no answer, no verdict; the read is a hedge later still unanswered.
    s->params = pgt_params(pgt_port());
    s->params.connect_timeout_ns = 1000 * NS_PER_MS;
    s->params.query_timeout_ns = 400 * NS_PER_MS;
    pgt_run(s->meta, PGT_TABLES);
    scene_open(s);
    assert_int_equal(look(s, ""), ELECTION_OK);
    pgt_run(s->meta, "BEGIN; LOCK TABLE election_leader");
    assert_int_equal(look(s, ""), ELECTION_SILENT);
    assert_int_not_equal(s->read.sent_at.ns, 0);
    assert_int_equal(look(s, ""), ELECTION_SILENT);
    // However long it lasts: what nobody waits for any more ends on the server too.
    int64_t sessions = 0;
    assert_true(election_parse_count(
        pgt_get(s->admin,
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'metafence'"),
        &sessions));
    assert_in_range(sessions, 1, 4);
    pgt_run(s->meta, "COMMIT");
    assert_int_equal(look(s, ""), ELECTION_OK);
}

static void on_call(int64_t count, const struct pg_fault *fault, void *arg)
{
    struct scene *scene = arg;

    scene->is_done = true;
    scene->count = count;
    scene->fault = fault ? *fault : (struct pg_fault){0};
}

static int64_t end_sessions(struct scene *s, const char *tag)
{
    struct err err;

    s->is_done = false;
    assert_int_equal(election_end_sessions(s->election, tag, on_call, s, &err), 0);
    pgt_wait(s->pgt, &s->is_done, 2000);
    return s->count;
}

static void check_calls(struct scene *s, bool has_schema)
{
    const struct election_death death = {TAG_A1, "meta-a", "permit", "Superseded"};
    struct err err;
    PGconn *a2 = pgt_connect("meta", PGT_DATABASE, TAG_A2);

    assert_int_equal(look(s, TAG_A1), ELECTION_OK);
    assert_int_equal(end_sessions(s, TAG_A2), 1);
    while (end_sessions(s, TAG_A2) != 0)
        assert_int_equal(s->fault.kind, PG_OK);
    assert_int_equal(s->fault.kind, PG_OK);
    PQfinish(a2);
    for (int64_t expected = 1; expected >= 0; expected--) {
        s->is_done = false;
        assert_int_equal(election_record_death(s->election, &death, on_call, s, &err), 0);
        pgt_wait(s->pgt, &s->is_done, 2000);
        assert_int_equal(s->fault.kind, has_schema ? PG_OK : PG_MISSING);
        assert_int_equal(s->count, has_schema ? expected : 0);
    }
    const int64_t heartbeats[] = {s->read.heartbeat_us + 1, s->read.heartbeat_us};
    for (int64_t i = 0; i < 2; i++) {
        s->is_done = false;
        assert_int_equal(election_drop_phantom(s->election, heartbeats[i], on_call, s, &err),
                         0);
        pgt_wait(s->pgt, &s->is_done, 2000);
        assert_int_equal(s->fault.kind, PG_OK);
        assert_int_equal(s->count, i);
    }
    assert_string_equal(pgt_get(s->meta, "SELECT count(*) FROM election_leader"), "0");
}

static void test_calls(void **state)
{
    struct scene *s = *state;

    pgt_run(s->meta, PGT_TABLES);
    (void)pgt_campaign(s->meta, "meta-a");
    check_calls(s, false);
    install(s);
    scene_close(s);
    scene_open(s);
    (void)pgt_campaign(s->meta, "meta-a");
    check_calls(s, true);
}

static void test_calls_without_rights(void **state)
{
    struct scene *s = *state;

    // Another role's sessions, which we may not end: that is not "none left".
    pgt_run(s->meta, PGT_TABLES);
    pgt_run(s->admin,
            "DROP ROLE IF EXISTS watcher; CREATE ROLE watcher LOGIN PASSWORD 'secret-watcher';"
            "GRANT SELECT ON election_leader TO watcher");
    scene_close(s);
    s->params.user = "watcher";
    s->params.password = "secret-watcher";
    scene_open(s);
    assert_int_equal(look(s, ""), ELECTION_OK);
    (void)end_sessions(s, TAG_A1);
    assert_int_equal(s->fault.kind, PG_REFUSAL);
    assert_string_equal(s->fault.sqlstate, "42501");
    assert_int_equal(end_sessions(s, TAG_A2), 0);
    assert_int_equal(s->fault.kind, PG_OK);
    pgt_run(s->admin, "GRANT pg_signal_backend TO watcher");
    assert_int_equal(end_sessions(s, TAG_A1), 1);
    scene_close(s);
    pgt_run(s->admin, "DROP OWNED BY watcher; DROP ROLE watcher");
    s->params = pgt_params(pgt_port());
    scene_open(s);
}

// Somebody's hand in metafence's tables, or another version of them: the agent is not blind.
static void test_broken_schema(void **state)
{
    static const char *const damages[] = {
        "UPDATE metafence.term SET system_id = 'none of ours'",
        "ALTER TABLE metafence.renewal RENAME COLUMN heartbeat TO beat",
        "ALTER TABLE metafence.tag ALTER COLUMN superseded TYPE text USING 'maybe'",
    };
    struct scene *s = *state;

    pgt_run(s->meta, PGT_TABLES);
    install(s);
    (void)pgt_campaign(s->meta, "meta-a");
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        assert_int_equal(look(s, TAG_A1), ELECTION_OK);
        assert_int_equal(s->read.term_known, i == 0);
        pgt_run(s->meta, "%s", damages[i]);
        for (int n = 0; n < 3; n++) {
            assert_int_equal(look(s, TAG_A1), ELECTION_OK);
            assert_string_equal(s->read.id, "meta-a");
            assert_false(s->read.term_known);
        }
    }
}

#define SCENE_TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

static int64_t complete(struct scene *s)
{
    struct err err;

    s->is_done = false;
    if (election_complete(s->election, on_call, s, &err) < 0) {
        assert_int_equal(err.kind, ERR_DENIED);
        return -1;
    }
    pgt_wait(s->pgt, &s->is_done, 5000);
    assert_int_equal(s->fault.kind, PG_OK);
    return s->count;
}

// A fresh cluster's tables come after the installation: the leader's agent guards them.
static void test_complete_the_guard(void **state)
{
    struct scene *s = *state;
    int64_t left = 0;

    pgt_run(s->meta, PGT_TABLES);
    assert_int_equal(look(s, ""), ELECTION_OK);
    assert_int_equal(complete(s), -1); // no schema
    install(s);
    for (left = -1; left < 0; left = complete(s))
        assert_int_equal(look(s, ""), ELECTION_OK); // finds it
    assert_int_equal(left, 0);                      // nothing to guard yet
    pgt_run(s->meta, "%s", TABLES_COMMON);
    for (int64_t expected = 8; expected >= 0; expected--)
        assert_int_equal(complete(s), expected);
    // One that a migration holds is left for later; the others are not.
    pgt_run(s->meta, "%s", "BEGIN; " TABLES_MORE);
    pgt_run(s->meta, "COMMIT; BEGIN; INSERT INTO compaction_task VALUES (1, '', 1)");
    for (int i = 0; i < 100 && left != 1; i++)
        left = complete(s);
    assert_int_equal(left, 1);
    assert_int_equal(complete(s), 1);
    pgt_run(s->meta, "COMMIT");
    assert_int_equal(complete(s), 0);
    assert_string_equal(pgt_get(s->meta, "SELECT count(*) FROM metafence.guarded_tables()"
                                         " WHERE is_covered"),
                        "16");
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_broken_schema),
    SCENE_TEST(test_complete),
    SCENE_TEST(test_odd_rows),
    SCENE_TEST(test_comes_and_goes),
    SCENE_TEST(test_least_privileges),
    SCENE_TEST(test_standby),
    SCENE_TEST(test_refused_and_silent),
    SCENE_TEST(test_calls),
    SCENE_TEST(test_calls_without_rights),
    SCENE_TEST(test_complete_the_guard),
};

UNIT_MAIN(tests)
