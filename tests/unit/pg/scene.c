// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/pg/scene.h"

#include "sql/sql.h"

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
    // By an owner that is not the meta: its sessions must need no right in the schema.
    PGresult *result = PQexec(scene->admin, sql_schema);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    pgt_run(scene->admin,
            "CREATE TRIGGER " SQL_TRIGGER_NAME " AFTER INSERT OR UPDATE ON election_leader"
            " FOR EACH ROW EXECUTE FUNCTION metafence.on_campaign()");
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
