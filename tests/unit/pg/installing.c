// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/pg/installing.h"

#include <stdio.h>
#include <string.h>

char install_said[8192];

const char install_fingerprint[] =
    "SELECT md5(string_agg(line, E'\\n' ORDER BY line)) FROM ("
    " SELECT concat_ws(' ', 'rel', c.oid::regclass, c.relkind, c.relowner, coalesce(c.relacl,"
    "  acldefault('r', c.relowner)), c.reloptions, c.relrowsecurity) AS line FROM pg_class c"
    "  JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname !~ '^pg_(toast|temp)' AND"
    "  n.nspname NOT IN ('pg_catalog', 'information_schema') UNION ALL"
    " SELECT concat_ws(' ', 'att', attrelid::regclass, attname, atttypid, attnotnull, attacl)"
    "  FROM pg_attribute WHERE attrelid >= 16384 AND NOT attisdropped AND attrelid IN (SELECT"
    "  oid FROM pg_class WHERE relkind IN ('r', 'v')) UNION ALL"
    " SELECT concat_ws(' ', 'trg', pg_get_triggerdef(oid)) FROM pg_trigger UNION ALL"
    " SELECT concat_ws(' ', 'con', conrelid::regclass, pg_get_constraintdef(oid)) FROM"
    "  pg_constraint WHERE conrelid <> 0 UNION ALL"
    " SELECT concat_ws(' ', 'fn', oid::regprocedure) FROM pg_proc WHERE oid >= 16384 UNION ALL"
    " SELECT concat_ws(' ', 'nsp', nspname, nspowner, nspacl) FROM pg_namespace WHERE nspname"
    "  !~ '^pg_') AS dump";

static void on_say(const char *line, void *arg)
{
    size_t len = strlen(install_said);

    (void)arg;
    (void)snprintf(install_said + len, sizeof install_said - len, "%s\n", line);
}

struct sql_options install_options(const struct pg_params *params)
{
    install_said[0] = '\0';
    return (struct sql_options){.params = params,
                                .leader_table = "election_leader",
                                .timeout_ns = 30 * NS_PER_SEC,
                                .say = on_say};
}

void install_now(const struct sql_options *options)
{
    struct err err;

    if (sql_install(options, &err) < 0)
        fail_msg("%s", err.msg);
}

int install_setup(void **state)
{
    pgt_fresh_database();
    *state = pgt_connect("meta", PGT_DATABASE, "scene");
    return 0;
}

int install_teardown(void **state)
{
    PQfinish(*state);
    return 0;
}
