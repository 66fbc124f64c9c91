// SPDX-License-Identifier: Apache-2.0
// The term trigger on a real Postgres: who owns the term after handovers, restarts and twins,
// and that the election's statement never notices it.
#include "tests/unit/pg/scene.h"

#include <stdio.h>
#include <string.h>

#include "sql/sql.h"

static void test_first_and_renewals(void **state)
{
    struct scene *s = *state;

    assert_string_equal(pgt_campaign(s->a1, "meta-a"), "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    assert_string_equal(tag_row(s, TAG_A1), "1 f");
    for (int i = 0; i < 5; i++)
        assert_string_equal(pgt_campaign(s->a1, "meta-a"), "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    assert_string_equal(pgt_get(s->admin,
                                "SELECT r.tag FROM metafence.renewal r JOIN election_leader l"
                                " ON l.last_heartbeat = r.heartbeat"),
                        TAG_A1);
    // A follower rewrites the row unchanged: it leaves no trace.
    assert_string_equal(pgt_campaign(s->b1, "meta-b"), "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    assert_string_equal(tag_row(s, TAG_B1), "NULL");
    // The database that granted it.
    assert_string_equal(
        pgt_get(s->admin, "SELECT t.system_id = c.system_identifier::text AND t.timeline ="
                          " '00000001' FROM metafence.term t, pg_control_system() c"),
        "t");
}

static void test_handovers(void **state)
{
    struct scene *s = *state;
    char expected[128];

    // k1: fifty forced handovers, the right owner each time, every incarnation with its own
    // tag.
    for (int i = 1; i <= 50; i++) {
        char tag[64], id[8];
        (void)snprintf(tag, sizeof tag, "metafence:cccccccc:%016x", (unsigned)i);
        (void)snprintf(id, sizeof id, "meta-%d", i % 3);
        if (i % 2)
            pgt_run(s->psql, "DELETE FROM election_leader"); // as a resign does it
        else
            expire(s);
        pgt_run(s->b1, "SET application_name = '%s'", tag);
        assert_string_equal(pgt_campaign(s->b1, id), id);
        (void)snprintf(expected, sizeof expected, "%d %s %s", i, tag, id);
        assert_term(s, expected);
    }
    assert_string_equal(
        pgt_get(s->admin, "SELECT count(*) FROM metafence.tag WHERE superseded"), "49");
}

static void test_restart_inside_lease(void **state)
{
    struct scene *s = *state;

    // k2: same id, new incarnation: the term moves although the id does not.
    (void)pgt_campaign(s->a1, "meta-a");
    (void)pgt_campaign(s->a2, "meta-a");
    assert_term(s, "2 " TAG_A2 " meta-a");
    assert_string_equal(tag_row(s, TAG_A1), "1 t");
    assert_string_equal(tag_row(s, TAG_A2), "2 f");
}

static void test_psql_renewals(void **state)
{
    struct scene *s = *state;

    // k3: an untagged session is no incarnation.
    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->psql, "UPDATE election_leader SET last_heartbeat = now()");
    assert_term(s, "1 " TAG_A1 " meta-a");
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.tag"), "1");
    // … and who reads sees that this heartbeat is not the owner's.
    assert_string_equal(
        pgt_get(s->admin, "SELECT count(*) FROM metafence.renewal r JOIN election_leader l"
                          " ON l.last_heartbeat = r.heartbeat"),
        "0");
    // Names that only look like a tag.
    static const char *const names[] = {"metafence", "metafence:", "metafence:aaaaaaaa:xyz",
                                        "metafence:aaaaaaaa:00000000000000011",
                                        "metafence:pod-1:0000000000000001"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        pgt_run(s->psql,
                "SET application_name = '%s'; UPDATE election_leader SET last_heartbeat = "
                "clock_timestamp()",
                names[i]);
        assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.tag"), "1");
    }
}

static void test_untagged_change_of_id(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->psql, "UPDATE election_leader SET id = 'other', last_heartbeat = now()");
    assert_term(s, "2 - other");
    assert_string_equal(tag_row(s, TAG_A1), "1 t");
    // Back again by psql: no tag yet. The superseded one renews and does not get it, a new one
    // does.
    pgt_run(s->psql, "UPDATE election_leader SET id = 'meta-a', last_heartbeat = now()");
    assert_term(s, "3 - meta-a");
    (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "3 - meta-a");
    (void)pgt_campaign(s->a2, "meta-a");
    assert_term(s, "4 " TAG_A2 " meta-a");
}

static void test_twins(void **state)
{
    struct scene *s = *state;

    // i1: two processes with one id, both renew once a second: the term moves once, to the
    // younger.
    set_guard(s, "observe");
    (void)pgt_campaign(s->a1, "meta-a");
    for (int i = 0; i < 10; i++) {
        (void)pgt_campaign(s->a2, "meta-a");
        (void)pgt_campaign(s->a1, "meta-a");
    }
    assert_term(s, "2 " TAG_A2 " meta-a");
    // The elder's heartbeats are still told apart.
    assert_string_equal(pgt_get(s->admin, "SELECT tag FROM metafence.renewal"), TAG_A1);
    assert_string_equal(
        pgt_get(s->admin,
                "SELECT g.last_seen_heartbeat = l.last_heartbeat FROM metafence.tag g,"
                " election_leader l WHERE g.tag = '" TAG_A1 "'"),
        "t");
    (void)pgt_campaign(s->a3, "meta-a");
    (void)pgt_campaign(s->a2, "meta-a");
    assert_term(s, "3 " TAG_A3 " meta-a");
}

static void test_superseded_never_owns_again(void **state)
{
    struct scene *s = *state;

    set_guard(s, "observe");
    (void)pgt_campaign(s->a1, "meta-a");
    expire(s);
    (void)pgt_campaign(s->b1, "meta-b");
    assert_term(s, "2 " TAG_B1 " meta-b");
    // b14: the zombie wins the row again.
    expire(s);
    assert_string_equal(pgt_campaign(s->a1, "meta-a"), "meta-a");
    assert_term(s, "3 - meta-a");
    assert_string_equal(tag_row(s, TAG_A1), "1 t");
    assert_string_equal(tag_row(s, TAG_B1), "2 t");
    for (int i = 0; i < 3; i++)
        (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "3 - meta-a");
    // Its successor in the same pod is a clean owner.
    (void)pgt_campaign(s->a2, "meta-a");
    assert_term(s, "4 " TAG_A2 " meta-a");
}

static void test_delete_and_same_owner(void **state)
{
    struct scene *s = *state;

    // d: the row is deleted under a live leader, which inserts itself again: still its term.
    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->psql, "DELETE FROM election_leader");
    (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    pgt_run(s->psql, "TRUNCATE election_leader");
    (void)pgt_campaign(s->b1, "meta-b");
    assert_term(s, "2 " TAG_B1 " meta-b");
}

static void test_odd_rows(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->psql, "UPDATE election_leader SET last_heartbeat = NULL");
    assert_term(s, "1 " TAG_A1 " meta-a");
    (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    pgt_run(s->psql, "UPDATE election_leader SET last_heartbeat = 'infinity'");
    pgt_run(s->psql, "UPDATE election_leader SET id = NULL");
    assert_term(s, "2 -");
    pgt_run(s->psql, "UPDATE election_leader SET id = 'META-A', last_heartbeat = now()");
    assert_term(s, "3 - META-A");
    // Another spelling of the same id is no other owner (p).
    pgt_run(s->psql,
            "UPDATE election_leader SET id = 'meta-a', last_heartbeat = clock_timestamp()");
    assert_term(s, "3 - META-A");
    pgt_run(s->psql, "UPDATE election_leader SET id = repeat('x', 20000)");
    assert_string_equal(pgt_get(s->admin, "SELECT term FROM metafence.term"), "4");
    // A second election in the same table keeps its own term.
    pgt_run(s->a2, "INSERT INTO election_leader VALUES ('another', 'meta-z', now())");
    assert_string_equal(
        pgt_get(s->admin, "SELECT term FROM metafence.term WHERE service = 'another'"), "1");
}

static void test_migrations_stay_possible(void **state)
{
    struct scene *s = *state;

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->psql,
            "ALTER TABLE election_leader ALTER COLUMN id TYPE text, ADD COLUMN extra int");
    (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    pgt_run(s->psql, "ALTER TABLE election_leader RENAME COLUMN id TO identity");
    pgt_run(s->psql,
            "UPDATE election_leader SET last_heartbeat = now()"); // weak, but no error
    pgt_run(s->psql, "ALTER TABLE election_leader DROP COLUMN last_heartbeat");
    pgt_run(s->psql, "UPDATE election_leader SET identity = 'q'");
}

static void test_any_search_path(void **state)
{
    struct scene *s = *state;

    pgt_run(s->admin, "CREATE SCHEMA evil AUTHORIZATION meta");
    pgt_run(s->psql,
            "CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE sql AS 'SELECT $$evil$$';"
            "CREATE TABLE evil.term (service text, term bigint)");
    pgt_run(s->a1, "SET search_path = evil, public, pg_catalog");
    pgt_run(s->a2, "SET search_path = ''");
    (void)pgt_campaign(s->a1, "meta-a");
    assert_term(s, "1 " TAG_A1 " meta-a");
    pgt_run(s->a2, "UPDATE public.election_leader SET last_heartbeat = now()");
    assert_term(s, "2 " TAG_A2 " meta-a");
}

static void test_notify(void **state)
{
    struct scene *s = *state;

    pgt_run(s->psql, "LISTEN " SQL_CHANNEL);
    (void)pgt_campaign(s->a1, "meta-a");
    (void)pgt_campaign(s->a1, "meta-a"); // a renewal says nothing
    pgt_run(s->psql, "UPDATE election_leader SET id = 'other'");
    const char *const expected[] = {"1 " TAG_A1 " meta-a", "2 - other"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(PQconsumeInput(s->psql), 1);
        PGnotify *note = PQnotifies(s->psql);
        assert_non_null(note);
        assert_string_equal(note->extra, expected[i]);
        PQfreemem(note);
    }
    assert_null(PQnotifies(s->psql));
}

// Sends one statement on each session before any answer is read, and wants all of them to
// succeed.
static void at_once(PGconn *const *sessions, const char *const *statements, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_int_equal(PQsendQuery(sessions[i], statements[i]), 1);
    for (size_t i = 0; i < count; i++) {
        PGresult *result = PQgetResult(sessions[i]);
        if (PQresultStatus(result) != PGRES_TUPLES_OK &&
            PQresultStatus(result) != PGRES_COMMAND_OK)
            fail_msg("session %zu: %s", i, PQresultErrorMessage(result));
        PQclear(result);
        assert_null(PQgetResult(sessions[i]));
    }
}

static void test_concurrent_campaigns(void **state)
{
    struct scene *s = *state;
    PGconn *const sessions[] = {s->a1, s->b1, s->a3, s->psql};
    const char *const deletes = "DELETE FROM election_leader";
    const char *const expires =
        "UPDATE election_leader SET last_heartbeat = now() - interval '6s'";
    static char campaigns[3][1024];
    static const char *const ids[] = {"meta-a", "meta-b", "meta-c"};
    long long term = 0;

    pgt_run(s->admin, "LISTEN " SQL_CHANNEL);
    for (size_t i = 0; i < 3; i++)
        (void)snprintf(
            campaigns[i], sizeof campaigns[i],
            "INSERT INTO election_leader AS e VALUES ('svc', '%s', NOW()) ON CONFLICT"
            " (service) DO UPDATE SET id = CASE WHEN e.last_heartbeat < NOW() - interval"
            " '5s' THEN excluded.id ELSE e.id END, last_heartbeat = CASE WHEN"
            " e.last_heartbeat < NOW() - interval '5s' OR e.id = excluded.id THEN"
            " excluded.last_heartbeat ELSE e.last_heartbeat END RETURNING id",
            ids[i]);
    int rounds = getenv("METAFENCE_LONG") ? 1000 : 40;
    for (int round = 1; round <= rounds; round++) {
        const char *const statements[] = {campaigns[0], campaigns[1], campaigns[2],
                                          round % 3 ? expires : deletes};
        for (size_t i = 0; i < 3; i++) // every process is a new incarnation each time
            pgt_run(sessions[i], "SET application_name = 'metafence:pod-000%zu:%016x'", i,
                    (unsigned)round);
        at_once(sessions, statements, 4);
        at_once(sessions, statements, 3);
        // The term is the row's, and its owner is the incarnation that wrote the row.
        assert_string_equal(pgt_get(s->admin,
                                    "SELECT t.owner_id = l.id AND t.owner_tag = r.tag AND"
                                    " r.heartbeat = l.last_heartbeat FROM election_leader"
                                    " l, metafence.term t, metafence.renewal r"),
                            "t");
    }
    // Each move was told once, in order, without a gap.
    assert_int_equal(PQconsumeInput(s->admin), 1);
    for (PGnotify *note = PQnotifies(s->admin); note; note = PQnotifies(s->admin)) {
        int64_t told = 0;
        note->extra[strcspn(note->extra, " ")] = '\0';
        assert_true(election_parse_count(note->extra, &told));
        assert_int_equal(told, ++term);
        PQfreemem(note);
    }
    char expected[24];
    (void)snprintf(expected, sizeof expected, "%lld", term);
    assert_string_equal(pgt_get(s->admin, "SELECT term FROM metafence.term"), expected);
    assert_true(term >= rounds);
}

#define TAG_OLD  "metafence:eeeeeeee:0000000000000001"
#define TAG_GONE "metafence:eeeeeeee:0000000000000002"

static void age(struct scene *s)
{
    pgt_run(s->admin, "UPDATE metafence.tag SET first_seen = now() - interval '91 days',"
                      " last_seen_heartbeat = now() - interval '91 days'");
}

static void test_old_tags_are_trimmed(void **state)
{
    struct scene *s = *state;
    PGconn *old = pgt_connect("meta", PGT_DATABASE, TAG_OLD);
    PGconn *gone = pgt_connect("meta", PGT_DATABASE, TAG_GONE);

    (void)pgt_campaign(gone, "meta-a");
    PQfinish(gone);
    (void)pgt_campaign(old, "meta-a");
    (void)pgt_campaign(s->a2, "meta-a");
    age(s);
    pgt_run(s->admin,
            "INSERT INTO metafence.death VALUES ('x', 'i', 1, 'm', 'r', now() - interval"
            " '91 days'), ('y', 'i', 1, 'm', 'r', now() - interval '89 days')");
    while (strcmp(pgt_get(s->admin, "SELECT count(*) FROM pg_stat_activity WHERE"
                                    " application_name = '" TAG_GONE "'"),
                  "0") != 0)
        ;
    (void)pgt_campaign(s->a3, "meta-a");
    assert_string_equal(tag_row(s, TAG_GONE), "NULL");
    assert_string_equal(tag_row(s, TAG_A2), "3 t"); // led for 91 days, superseded just now
    assert_string_equal(
        pgt_get(s->admin, "SELECT string_agg(incarnation_tag, ' ') FROM metafence.death"), "y");
    // A zombie that is still there stays one, however long it has been.
    assert_string_equal(tag_row(s, TAG_OLD), "2 t");
    assert_string_equal(pgt_try(old, "INSERT INTO catalog_version VALUES ('x', 1)"), "MF001");
    (void)pgt_campaign(old, "meta-a");
    assert_term(s, "4 " TAG_A3 " meta-a");
    PQfinish(old);
    // The owner of the moment stays known, however long it leads.
    age(s);
    pgt_run(s->psql, "UPDATE election_leader SET last_heartbeat = clock_timestamp()");
    assert_string_equal(tag_row(s, TAG_A3), "4 f");
}

static void test_size(void **state)
{
    struct scene *s = *state;
    // A day of renewals, or a short version of it.
    int renewals = getenv("METAFENCE_LONG") ? 86400 : 5000;

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->a1,
            "DO $$ BEGIN FOR i IN 1..%d LOOP UPDATE election_leader SET last_heartbeat = "
            "clock_timestamp();"
            " COMMIT; END LOOP; END $$",
            renewals);
    assert_term(s, "1 " TAG_A1 " meta-a");
    const char *bytes =
        pgt_get(s->admin, "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE"
                          " relnamespace = 'metafence'::regnamespace AND relkind = 'r'");
    int64_t size = 0;
    assert_true(election_parse_count(bytes, &size));
    print_message("%d renewals: %lld bytes\n", renewals, (long long)size);
    assert_true(size <= 1024 * 1024);
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_first_and_renewals),
    SCENE_TEST(test_handovers),
    SCENE_TEST(test_restart_inside_lease),
    SCENE_TEST(test_psql_renewals),
    SCENE_TEST(test_untagged_change_of_id),
    SCENE_TEST(test_twins),
    SCENE_TEST(test_superseded_never_owns_again),
    SCENE_TEST(test_delete_and_same_owner),
    SCENE_TEST(test_odd_rows),
    SCENE_TEST(test_migrations_stay_possible),
    SCENE_TEST(test_any_search_path),
    SCENE_TEST(test_notify),
    SCENE_TEST(test_concurrent_campaigns),
    SCENE_TEST(test_old_tags_are_trimmed),
    SCENE_TEST(test_size),
};

UNIT_MAIN(tests)
