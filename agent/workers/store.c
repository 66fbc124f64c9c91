// SPDX-License-Identifier: Apache-2.0
#include "agent/workers/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "sql/sql.h"

const char store_sql_state[] =
    "SELECT pg_catalog.pg_is_in_recovery(), s.term, s.owner_tag, s.mode, s.is_known,"
    " s.tombstones, s.intents, s.unknown_rows, s.lost_rows, s.reborn_rows, s.ghosts, s.newest,"
    " s.untagged_rows, s.untagged_writers"
    " FROM " SQL_SCHEMA ".reconcile_state($1, $2::bigint[], $3::boolean) AS s";
const char store_sql_rows[] =
    "SELECT w.worker_id, w.worker_type, w.host, w.port, w.status, w.row_version"
    " FROM " SQL_SCHEMA ".workers() AS w ORDER BY w.worker_id";
const char store_sql_log[] = "SELECT l.worker_id, l.is_own, l.operation = 'INSERT',"
                             " l.operation = 'DELETE', l.host, l.port"
                             " FROM " SQL_SCHEMA ".reconcile_log($1) AS l"
                             " WHERE l.worker_id IS NOT NULL";
const char store_sql_bury[] =
    "SELECT " SQL_SCHEMA ".bury($1, $2::bigint, $3::integer, $4, $5::integer, $6, $7,"
    " $8::double precision * interval '1 second')";
const char store_sql_unbury[] =
    "SELECT " SQL_SCHEMA ".unbury($1, $2::bigint, $3::integer) IS NOT NULL";
const char store_sql_intend[] =
    "SELECT " SQL_SCHEMA ".intend($1, $2::bigint, $3::integer, $4, $5::integer, $6)";
const char store_sql_withdraw[] =
    "SELECT " SQL_SCHEMA ".withdraw($1, $2::bigint, $3::integer) IS NOT NULL";
const char store_sql_note[] =
    "SELECT " SQL_SCHEMA ".note_reconcile($1, $2::bigint, $3, $4::bigint, $5, $6, $7, $8)";

struct limits {
    int64_t min, max;
};

static const struct limits any_int32 = {INT32_MIN, INT32_MAX};
static const struct limits any_int64 = {INT64_MIN, INT64_MAX};

// A whole number within the limits. Errors: INVALID, naming the column.
static int take_number(const char *column, const char *text, struct limits limits, int64_t *ret,
                       struct err *err)
{
    bool is_negative = text && text[0] == '-';
    const char *at = is_negative ? text + 1 : text;
    bool is_good = at && *at != '\0';
    int64_t value = 0;

    if (!text)
        return err_set(err, ERR_INVALID, 0, "column %s is NULL", column);
    for (; is_good && *at; at++)
        is_good = *at >= '0' && *at <= '9' && !__builtin_mul_overflow(value, 10, &value) &&
                  !__builtin_sub_overflow(value, *at - '0', &value); // holds INT64_MIN too
    if (is_good && !is_negative)
        is_good = !__builtin_sub_overflow(INT64_C(0), value, &value);
    if (!is_good || value < limits.min || value > limits.max)
        return err_set(err, ERR_INVALID, 0,
                       "column %s is \"%.40s\": expected a whole number from %" PRId64
                       " to %" PRId64,
                       column, text, limits.min, limits.max);
    *ret = value;
    return 0;
}

static int take_count(const char *column, const char *text, uint32_t *ret, struct err *err)
{
    int64_t value = 0;

    if (take_number(column, text, (struct limits){0, UINT32_MAX}, &value, err) < 0)
        return -1;
    *ret = (uint32_t)value;
    return 0;
}

static int take_bool(const char *column, const char *text, bool *ret, struct err *err)
{
    if (!text || (strcmp(text, "t") != 0 && strcmp(text, "f") != 0))
        return err_set(err, ERR_INVALID, 0, "column %s is \"%.40s\": expected t or f", column,
                       text ? text : "NULL");
    *ret = text[0] == 't';
    return 0;
}

bool store_is_true(const char *field)
{
    return field && strcmp(field, "t") == 0;
}

// A mode that is not there, or that we don't know, is no guard.
static enum reconcile_guard guard_of(const char *text)
{
    if (text && strcmp(text, "enforce") == 0)
        return RECONCILE_GUARD_ENFORCE;
    if (text && strcmp(text, "observe") == 0)
        return RECONCILE_GUARD_OBSERVE;
    return RECONCILE_GUARD_OFF;
}

int store_parse_state(const char *const *fields, struct store_state *ret, struct err *err)
{
    struct store_state state = {.guard = guard_of(fields[3])};
    int64_t number = 0;

    if (take_bool("pg_is_in_recovery", fields[0], &state.is_standby, err) < 0)
        return -1;
    if (!fields[1])
        return err_set(err, ERR_INVALID, 0,
                       "the service has no term yet: no meta has campaigned since the "
                       "installation");
    if (take_number("term", fields[1], (struct limits){1, INT64_MAX}, &number, err) < 0)
        return -1;
    state.term = (uint64_t)number;
    if (fields[2] && strlen(fields[2]) >= sizeof(state.owner_tag))
        return err_set(err, ERR_INVALID, 0, "column owner_tag has %zu bytes: at most %zu",
                       strlen(fields[2]), sizeof(state.owner_tag) - 1);
    (void)snprintf(state.owner_tag, sizeof(state.owner_tag), "%s", fields[2] ? fields[2] : "");
    if (take_bool("is_known", fields[4], &state.is_known, err) < 0 ||
        take_count("tombstones", fields[5], &state.tombstones, err) < 0 ||
        take_count("intents", fields[6], &state.intents, err) < 0 ||
        take_count("unknown_rows", fields[7], &state.unknown_rows, err) < 0 ||
        take_count("lost_rows", fields[8], &state.lost_rows, err) < 0 ||
        take_count("reborn_rows", fields[9], &state.reborn_rows, err) < 0 ||
        take_count("untagged_rows", fields[12], &state.untagged_rows, err) < 0 ||
        take_bool("untagged_writers", fields[13], &state.untagged_writers, err) < 0)
        return -1;
    state.ghosts_known = fields[10] != NULL;
    if (fields[10] && take_count("ghosts", fields[10], &state.ghosts, err) < 0)
        return -1;
    if (take_number("newest", fields[11], (struct limits){0, INT64_MAX}, &number, err) < 0)
        return -1;
    state.newest = (uint64_t)number;
    *ret = state;
    return 0;
}

int store_parse_row(const char *const *fields, struct worker_row *ret, struct err *err)
{
    struct worker_row row = {
        .type = worker_type_of(fields[1]),
        .status = worker_status_of(fields[4]),
        .host = fields[2],
        .row_version = fields[5],
    };
    int64_t id = 0;
    int64_t port = 0;

    if (take_number("worker_id", fields[0], any_int32, &id, err) < 0)
        return -1;
    // A port that is none belongs to nobody.
    if (fields[3] && take_number("port", fields[3], any_int32, &port, err) < 0)
        return err_wrap(err, "worker_id %" PRId64, id);
    if (!fields[5])
        return err_set(err, ERR_INVALID, 0, "worker_id %" PRId64 ": column row_version is NULL",
                       id);
    row.id = (int32_t)id;
    row.port = (int32_t)port;
    *ret = row;
    return 0;
}

int store_parse_entry(const char *const *fields, struct store_entry *ret, struct err *err)
{
    struct store_entry entry = {.host = fields[4]};
    int64_t port = 0;

    if (take_number("worker_id", fields[0], any_int64, &entry.worker_id, err) < 0 ||
        take_bool("is_own", fields[1], &entry.is_own, err) < 0 ||
        take_bool("is_insert", fields[2], &entry.is_insert, err) < 0 ||
        take_bool("is_delete", fields[3], &entry.is_delete, err) < 0)
        return -1;
    if (fields[5] && take_number("port", fields[5], any_int32, &port, err) < 0)
        return err_wrap(err, "worker_id %" PRId64, entry.worker_id);
    entry.port = (int32_t)port;
    *ret = entry;
    return 0;
}

void store_put_ids(struct buf *out, const uint32_t *ids, size_t count)
{
    buf_putc(out, '{');
    for (size_t i = 0; i < count; i++)
        buf_printf(out, "%s%" PRIu32, i ? "," : "", ids[i]);
    buf_putc(out, '}');
}

const char *store_fix(const struct pg_fault *fault)
{
    if (strcmp(fault->sqlstate, "42501") == 0)
        return "metafence sql install --agent-role ROLE, as the metas' role: it grants EXECUTE "
               "on the functions of schema " SQL_SCHEMA;
    if (strcmp(fault->sqlstate, "42P09") == 0)
        return "metafence sql uninstall, then install with election.leaderTable set to the "
               "table of this cluster, with its schema";
    if (fault->kind == PG_MISSING)
        return "metafence sql install, as the metas' role: the schema has no reconciler, or "
               "the worker table no guard";
    return NULL;
}
