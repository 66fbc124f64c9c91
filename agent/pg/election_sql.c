// SPDX-License-Identifier: Apache-2.0
// The text of the statements. Their columns are in the order of election_parse.c.
#include "agent/pg/election.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "sql/sql.h"

// Microseconds since 1970, exact: numeric does not overflow at the ends of timestamptz, and
// whole seconds are exact also where extract gives a double (before Postgres 14).
#define MICROS(ts)                                                                             \
    "trunc(extract(epoch FROM date_trunc('second', " ts "))::numeric) * 1000000"               \
    " + extract(microseconds FROM " ts ")::bigint % 1000000"

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_';
}

// Splits at the only dot; `ret_schema` is "" when there is none.
static int table_split(const char *table, char ret_schema[ELECTION_TABLE_SIZE],
                       char ret_name[ELECTION_TABLE_SIZE], struct err *err)
{
    const char *dot = strchr(table, '.');
    const char *name = dot ? dot + 1 : table;
    size_t schema_len = dot ? (size_t)(dot - table) : 0;
    bool is_good = name[0] && strlen(name) < ELECTION_TABLE_SIZE &&
                   schema_len < ELECTION_TABLE_SIZE && (!dot || schema_len > 0);

    for (const char *at = table; *at; at++)
        is_good = is_good && (is_name_char(*at) || at == dot);
    if (!is_good) {
        (void)err_set(err, ERR_INVALID, 0,
                      "table name \"%s\": expected [schema.]name of letters, digits and _",
                      table);
        return -1;
    }
    (void)snprintf(ret_schema, ELECTION_TABLE_SIZE, "%.*s", (int)schema_len, table);
    (void)snprintf(ret_name, ELECTION_TABLE_SIZE, "%s", name);
    return 0;
}

int election_table_quote(const char *table, char *buf, size_t size, struct err *err)
{
    char schema[ELECTION_TABLE_SIZE], name[ELECTION_TABLE_SIZE];
    int len = 0;

    if (table_split(table, schema, name, err) < 0)
        return -1;
    len = schema[0] ? snprintf(buf, size, "\"%s\".\"%s\"", schema, name)
                    : snprintf(buf, size, "\"%s\"", name);
    if (len < 0 || (size_t)len >= size)
        return err_set(err, ERR_INVALID, 0, "table name \"%s\" is too long", table);
    return 0;
}

// A relation by name as the search_path or its schema finds it, without to_regclass: that one
// raises where USAGE on the schema is missing.
static int put_relation(struct buf *sql, const char *alias, const char *table, struct err *err)
{
    char schema[ELECTION_TABLE_SIZE], name[ELECTION_TABLE_SIZE];

    if (table_split(table, schema, name, err) < 0)
        return -1;
    buf_printf(sql,
               "%s AS (SELECT c.oid FROM pg_catalog.pg_class c"
               " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
               " WHERE c.relname = '%s' AND c.relkind IN ('r','p','v')",
               alias, name);
    if (schema[0])
        buf_printf(sql, " AND n.nspname = '%s')", schema);
    else
        buf_puts(sql, " AND pg_catalog.pg_table_is_visible(c.oid))");
    return 0;
}

int election_sql_probe(struct buf *sql, const struct election_config *config, struct err *err)
{
    buf_puts(sql, "WITH ");
    if (put_relation(sql, "leader", config->leader_table, err) < 0)
        return -1;
    buf_puts(sql, ", ");
    if (put_relation(sql, "member", config->member_table, err) < 0)
        return -1;
    buf_puts(
        sql,
        ", guard AS (SELECT n.oid AS schema_oid, c.oid, c.relname FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = "
        "'" SQL_SCHEMA
        "' AND c.relname IN ('term','tag','renewal','setting') AND c.relkind = 'r')"
        ", fn AS (SELECT p.proname FROM pg_catalog.pg_proc p"
        " JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = "
        "'" SQL_SCHEMA "' AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')"
        " AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))"
        " SELECT EXISTS (SELECT FROM leader),"
        " (SELECT count(*) = 2 FROM pg_catalog.pg_attribute a, leader"
        " WHERE a.attrelid = leader.oid AND NOT a.attisdropped AND"
        " (a.attname = 'id' AND a.atttypid IN ('varchar'::regtype, 'text'::regtype) OR"
        " a.attname = 'last_heartbeat' AND a.atttypid = 'timestamptz'::regtype)),"
        " EXISTS (SELECT FROM member),"
        " coalesce((SELECT pg_catalog.has_table_privilege(oid, 'SELECT') FROM member), false),"
        " (SELECT count(*) FROM guard),"
        " (SELECT count(*) FROM guard WHERE pg_catalog.has_schema_privilege(schema_oid, "
        "'USAGE')"
        " AND pg_catalog.has_table_privilege(oid, 'SELECT')),"
        " EXISTS (SELECT FROM fn WHERE proname = 'end_sessions'),"
        " EXISTS (SELECT FROM fn WHERE proname = 'record_death'),"
        " EXISTS (SELECT FROM fn WHERE proname = 'drop_phantom'),"
        " pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE') AND"
        " pg_catalog.has_function_privilege('pg_catalog.pg_current_wal_lsn()', 'EXECUTE'),"
        " EXISTS (SELECT FROM fn WHERE proname = 'complete')");
    return 0;
}

static void put_term(struct buf *sql, bool readable)
{
    buf_puts(sql, readable ? ", t.term, t.owner_id, t.owner_tag, t.system_id, t.timeline,"
                             " CASE WHEN r.heartbeat = l.last_heartbeat THEN r.tag END,"
                             " g.owned_term IS NOT NULL, g.superseded, s.value"
                           : ", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL");
}

int election_sql_read(struct buf *sql, const struct election_config *config,
                      const struct election_caps *caps, struct err *err)
{
    char leader[2 * ELECTION_TABLE_SIZE + 8], member[2 * ELECTION_TABLE_SIZE + 8];

    if (election_table_quote(config->leader_table, leader, sizeof leader, err) < 0 ||
        election_table_quote(config->member_table, member, sizeof member, err) < 0)
        return -1;
    buf_puts(sql, "SELECT pg_is_in_recovery(), ");
    buf_puts(sql, caps->can_identify
                      ? "(SELECT system_identifier FROM pg_control_system()), CASE WHEN NOT"
                        " pg_is_in_recovery() THEN"
                        " left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
                      : "NULL, NULL");
    // The clock is read after the snapshot: an age that is too old only makes the deadline
    // earlier.
    buf_puts(
        sql,
        ", " MICROS(
            "clock_timestamp()") ", l.service IS NOT NULL, l.id,"
                                 " CASE WHEN isfinite(l.last_heartbeat) THEN (" MICROS(
                                     "l.last_heartbeat") ")::text"
                                                         " ELSE l.last_heartbeat::text END");
    if (caps->member_readable)
        buf_printf(sql,
                   ", (SELECT count(*) FROM %s m WHERE m.service = $1::text"
                   " AND lower(m.id) IS DISTINCT FROM lower($2::text))",
                   member);
    else
        buf_puts(sql, ", NULL");
    put_term(sql, caps->schema_readable);
    buf_printf(sql,
               " FROM (SELECT $1::text AS service, $2::text AS id, $3::text AS tag) me"
               " LEFT JOIN %s l ON l.service = me.service",
               leader);
    if (caps->schema_readable)
        buf_puts(sql, " LEFT JOIN " SQL_SCHEMA ".term t ON t.service = me.service"
                      " LEFT JOIN " SQL_SCHEMA ".renewal r ON r.service = me.service"
                      " LEFT JOIN " SQL_SCHEMA ".tag g ON g.tag = me.tag"
                      " LEFT JOIN " SQL_SCHEMA ".setting s ON s.name = 'guard'");
    return 0;
}
