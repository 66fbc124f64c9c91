// SPDX-License-Identifier: Apache-2.0
#include "agent/pg/survey.h"

#include <stdio.h>
#include <string.h>

#include "agent/pg/admin.h"
#include "sql/sql.h"

#define ANSWER_SIZE 128

// The default of a session of the metas' role in this database: its own setting, the role's,
// the database's, the server's; a bare number is in the setting's own unit. What our own
// session was given to start with stands for the server's.
static const char default_of[] =
    "SELECT coalesce((SELECT CASE WHEN v ~ '^-?[0-9]+$' THEN v::bigint ELSE %s END"
    " FROM (SELECT split_part(c, '=', 2) AS v"
    " FROM pg_db_role_setting s, unnest(s.setconfig) c WHERE c LIKE '%s=%%'"
    " AND s.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = '%s'))"
    " AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname ="
    " current_database())) ORDER BY s.setrole <> 0 DESC, s.setdatabase <> 0 DESC LIMIT 1) x),"
    " (SELECT reset_val::bigint FROM pg_settings WHERE name = '%s'))";

struct setting {
    const char *name;
    const char *with_unit; // makes v, text with a unit, a number
};
static const char in_ms[] = "(extract(epoch FROM v::interval) * 1000)::bigint";
static const struct setting statement_timeout = {"statement_timeout", in_ms};
static const struct setting lock_timeout = {"lock_timeout", in_ms};
static const struct setting temp_file_limit = {"temp_file_limit", "pg_size_bytes(v) / 1024"};

// Role names go into text: those that would need escaping are left out, and nothing is found.
static bool is_plain(const char *name)
{
    return !strpbrk(name, "'\\");
}

static int ask_count(struct admin *admin, const char *sql, int64_t *ret, struct err *err)
{
    char text[ANSWER_SIZE];

    if (admin_value(admin, sql, text, sizeof(text), err) < 0)
        return -1;
    if (!election_parse_count(text, ret))
        *ret = 0;
    return 0;
}

static int ask_bool(struct admin *admin, const char *sql, bool *ret, struct err *err)
{
    char text[ANSWER_SIZE];

    if (admin_value(admin, sql, text, sizeof(text), err) < 0)
        return -1;
    *ret = text[0] == 't';
    return 0;
}

// *ret is left alone where the answer is no count (below 0: none).
static int ask_default(struct admin *admin, const struct pg_survey *survey,
                       const struct setting *setting, int64_t *ret, struct err *err)
{
    const char *role = is_plain(survey->meta_role) ? survey->meta_role : "";
    char sql[1536], text[ANSWER_SIZE];
    int64_t number = 0;

    (void)snprintf(sql, sizeof(sql), default_of, setting->with_unit, setting->name, role,
                   setting->name);
    if (admin_value(admin, sql, text, sizeof(text), err) < 0)
        return -1;
    if (election_parse_count(text, &number))
        *ret = number;
    return 0;
}

static int ask_timeouts(struct admin *admin, struct pg_survey *survey, struct err *err)
{
    if (ask_default(admin, survey, &statement_timeout, &survey->statement_ms, err) < 0)
        return -1;
    return ask_default(admin, survey, &lock_timeout, &survey->lock_ms, err);
}

static int ask_roles(struct admin *admin, struct pg_survey *survey, struct err *err)
{
    char sql[512];

    (void)snprintf(
        sql, sizeof(sql),
        "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass('%s')",
        admin->table);
    if (admin_value(admin, "SELECT current_user", survey->role, sizeof(survey->role), err) <
            0 ||
        admin_value(admin, sql, survey->meta_role, sizeof(survey->meta_role), err) < 0)
        return -1;
    if (!survey->status.has_schema)
        return 0;
    if (ask_bool(admin,
                 "SELECT coalesce(bool_and(has_function_privilege(p.oid, 'EXECUTE')), false)"
                 " FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
                 " WHERE n.nspname = '" SQL_SCHEMA "' AND p.proname IN"
                 " ('end_sessions', 'record_death', 'drop_phantom', 'bury', 'intend')",
                 &survey->may_act, err) < 0)
        return -1;
    if (!is_plain(survey->meta_role))
        return 0;
    (void)snprintf(
        sql, sizeof(sql),
        "SELECT pg_has_role(nspowner, 'pg_signal_backend', 'USAGE') OR"
        " pg_has_role(nspowner, (SELECT oid FROM pg_roles WHERE rolname = '%s'), 'USAGE')"
        " FROM pg_namespace WHERE nspname = '" SQL_SCHEMA "'",
        survey->meta_role);
    return ask_bool(admin, sql, &survey->may_signal, err);
}

// Metas alone have the leader's table's role, but for agents and people.
static int ask_tags(struct admin *admin, struct pg_survey *survey, struct err *err)
{
    char sql[512];

    if (!is_plain(survey->meta_role))
        return 0;
    (void)snprintf(sql, sizeof(sql),
                   "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                   " AND usename = '%s' AND application_name NOT LIKE 'metafence%%'"
                   " AND backend_type = 'client backend'",
                   survey->meta_role);
    if (ask_count(admin, sql, &survey->untagged, err) < 0)
        return -1;
    if (!survey->status.can_read)
        return 0;
    return ask_count(admin,
                     "SELECT count(*) FROM pg_stat_activity a JOIN " SQL_SCHEMA
                     ".tag t ON t.tag = a.application_name WHERE t.superseded"
                     " AND a.datname = current_database()",
                     &survey->superseded_alive, err);
}

// What takes writes past the guard's triggers, or makes them fail.
static int ask_limits(struct admin *admin, struct pg_survey *survey, struct err *err)
{
    survey->temp_limit_kb = -1;
    if (ask_default(admin, survey, &temp_file_limit, &survey->temp_limit_kb, err) < 0)
        return -1;
    if (ask_count(admin,
                  "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()",
                  &survey->prepared, err) < 0)
        return -1;
    return admin_value(
        admin,
        "SELECT left(string_agg(DISTINCT c.relname, ', '), 190) FROM pg_class c JOIN pg_trigger"
        " t ON t.tgrelid = c.oid JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace n ON"
        " n.oid = p.pronamespace JOIN pg_inherits i ON i.inhrelid = c.oid WHERE n.nspname ="
        " '" SQL_SCHEMA "'",
        survey->partitions, sizeof(survey->partitions), err);
}

static int ask_server(struct admin *admin, struct pg_survey *survey, struct err *err)
{
    char setting[ANSWER_SIZE];

    if (ask_count(admin, "SELECT count(*) FROM pg_stat_replication", &survey->standbys, err) <
            0 ||
        admin_value(admin, "SHOW synchronous_standby_names", setting, sizeof(setting), err) < 0)
        return -1;
    survey->is_synchronous = setting[0] != '\0';
    return 0;
}

int pg_survey(const struct sql_options *options, struct pg_survey *ret, struct err *err)
{
    __attribute__((cleanup(admin_done))) struct admin admin = {.options = options};
    struct pg_survey survey = {.version_wanted = SQL_VERSION};

    if (sql_status(options, &survey.status, err) < 0 || admin_begin(&admin, err) < 0 ||
        ask_roles(&admin, &survey, err) < 0 || ask_timeouts(&admin, &survey, err) < 0 ||
        ask_tags(&admin, &survey, err) < 0 || ask_limits(&admin, &survey, err) < 0 ||
        ask_server(&admin, &survey, err) < 0)
        return -1;
    *ret = survey;
    return 0;
}
