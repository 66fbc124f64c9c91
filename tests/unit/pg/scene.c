// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/pg/scene.h"

#include <stdio.h>
#include <string.h>

#include "sql/sql.h"

static void execute(PGconn *pq, const char *sql)
{
    PGresult *result = PQexec(pq, sql);

    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    PQclear(result);
}

// The file's text for table election_leader.
static void execute_file(PGconn *pq, const char *sql)
{
    char text[8192] = "";

    for (const char *hit = strstr(sql, SQL_LEADER_TABLE); hit;
         hit = strstr(sql, SQL_LEADER_TABLE)) {
        size_t len = strlen(text);
        assert_true((size_t)snprintf(text + len, sizeof text - len, "%.*selection_leader",
                                     (int)(hit - sql), sql) < sizeof text - len);
        sql = hit + strlen(SQL_LEADER_TABLE);
    }
    size_t len = strlen(text);
    assert_true((size_t)snprintf(text + len, sizeof text - len, "%s", sql) < sizeof text - len);
    execute(pq, text);
}

void guard_tables(PGconn *admin)
{
    pgt_run(admin, "SELECT metafence.cover(name::text) FROM metafence.guarded_tables()");
}

int scene_setup(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);

    pgt_fresh_database();
    scene->admin = pgt_connect("postgres", PGT_DATABASE, "scene");
    scene->a1 = pgt_connect("meta", PGT_DATABASE, TAG_A1);
    scene->a2 = pgt_connect("meta", PGT_DATABASE, TAG_A2);
    scene->a3 = pgt_connect("meta", PGT_DATABASE, TAG_A3);
    scene->b1 = pgt_connect("meta", PGT_DATABASE, TAG_B1);
    scene->psql = pgt_connect("meta", PGT_DATABASE, "psql");
    pgt_run(scene->psql, PGT_TABLES);
    execute(scene->psql, TABLES_V2 UP_TO_V3 UP_TO_HEAD);
    // By an owner that is not the meta: its sessions must need no right in the schema.
    execute(scene->admin, sql_schema);
    execute_file(scene->admin, sql_owner);
    guard_tables(scene->admin);
    execute_file(scene->admin, sql_trigger);
    *state = scene;
    return 0;
}

int scene_teardown(void **state)
{
    struct scene *scene = *state;

    PQfinish(scene->a1);
    PQfinish(scene->a2);
    PQfinish(scene->a3);
    PQfinish(scene->b1);
    PQfinish(scene->psql);
    PQfinish(scene->admin);
    free(scene);
    return 0;
}

void assert_term(struct scene *scene, const char *expected)
{
    assert_string_equal(pgt_get(scene->admin, "SELECT concat_ws(' ', term, coalesce(owner_tag, "
                                              "'-'), owner_id) FROM metafence.term"),
                        expected);
}

const char *tag_row(struct scene *scene, const char *tag)
{
    return pgt_get(scene->admin,
                   "SELECT concat_ws(' ', coalesce(owned_term::text, '-'), superseded) FROM"
                   " metafence.tag WHERE tag = '%s'",
                   tag);
}

void expire(struct scene *scene)
{
    pgt_run(scene->psql, "UPDATE election_leader SET last_heartbeat = now() - interval '6s'");
}

void set_guard(struct scene *scene, const char *mode)
{
    pgt_run(scene->admin, "UPDATE metafence.setting SET value = '%s' WHERE name = 'guard'",
            mode);
}

int64_t counter(struct scene *scene, const char *name)
{
    int64_t value = -1;
    const char *text =
        pgt_get(scene->admin, "SELECT value FROM metafence.counters() WHERE name = '%s'", name);

    if (!election_parse_count(text, &value))
        fail_msg("counter %s: %s", name, text);
    return value;
}

void take_over(struct scene *scene, PGconn *session, const char *id)
{
    expire(scene);
    assert_string_equal(pgt_campaign(session, id), id);
}

void await_lock_wait(struct scene *scene, PGconn *pq)
{
    while (strcmp(pgt_get(scene->admin,
                          "SELECT count(*) FROM pg_stat_activity WHERE pid = %d AND"
                          " wait_event_type = 'Lock'",
                          PQbackendPID(pq)),
                  "1") != 0)
        ;
}
