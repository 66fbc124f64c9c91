// SPDX-License-Identifier: Apache-2.0
#include "agent/pg/recovery.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/pg/answer.h"
#include "sql/sql.h"

const char recovery_sql_state[] =
    "SELECT pg_catalog.pg_is_in_recovery(), s.term, s.owner_tag, s.mode, s.version,"
    " s.is_verified, s.snapshot, s.recovery_id, s.joined, s.attempt, s.refused, s.age_ms,"
    " s.hold_left_ms, s.policy, s.is_gate_fresh, s.is_waiting, s.is_refused, s.refused_ago_ms,"
    " s.dropped, s.dropped_age_ms, s.creating, s.live, s.missing, s.has_database_recovery,"
    " s.is_pooled, s.round, s.may_build, s.predecessor FROM " SQL_SCHEMA
    ".recovery_state($1) AS s";
const char recovery_sql_rows[] =
    "SELECT r.kind, r.id, r.job_id, r.name, r.host, r.port, r.status, r.how, r.tables, r.age_ms"
    " FROM " SQL_SCHEMA ".recovery_rows($1) AS r";
const char recovery_sql_listen[] = "LISTEN " SQL_RECOVERY_CHANNEL;

// --- parsing ---

// The first column that is not what it should be ends the parse: `err` has its name then.
struct reader {
    const char *const *fields;
    const char *const *names;
    struct err *err;
    bool is_bad;
};

static const char *const state_names[RECOVERY_STATE_FIELDS] = {
    "pg_is_in_recovery",
    "term",
    "owner_tag",
    "mode",
    "version",
    "is_verified",
    "snapshot",
    "recovery_id",
    "joined",
    "attempt",
    "refused",
    "age_ms",
    "hold_left_ms",
    "policy",
    "is_gate_fresh",
    "is_waiting",
    "is_refused",
    "refused_ago_ms",
    "dropped",
    "dropped_age_ms",
    "creating",
    "live",
    "missing",
    "has_database_recovery",
    "is_pooled",
    "round",
    "may_build",
    "predecessor",
};
static const char *const row_names[RECOVERY_ROW_FIELDS] = {
    "kind", "id", "job_id", "name", "host", "port", "status", "how", "tables", "age_ms",
};

static void complain(struct reader *reader, int column, const char *expected)
{
    const char *text = reader->fields[column];

    if (!reader->is_bad)
        (void)err_set(reader->err, ERR_INVALID, 0,
                      "column %s is \"%.40s\": expected %s; run metafence sql install",
                      reader->names[column], text ? text : "NULL", expected);
    reader->is_bad = true;
}

// NULL is `fallback`.
static int64_t take_number(struct reader *reader, int column, int64_t fallback, int64_t max)
{
    const char *text = reader->fields[column];
    int64_t value = 0;

    if (!text)
        return fallback;
    if (election_parse_count(text, &value) && value <= max)
        return value;
    complain(reader, column, "a count");
    return fallback;
}

static uint32_t take_count(struct reader *reader, int column)
{
    return (uint32_t)take_number(reader, column, 0, UINT32_MAX);
}

static bool take_bool(struct reader *reader, int column)
{
    const char *text = reader->fields[column];

    if (!text || (strcmp(text, "t") != 0 && strcmp(text, "f") != 0))
        complain(reader, column, "t or f");
    return text && text[0] == 't';
}

// NULL is "".
static void take_text(struct reader *reader, int column, char *ret, size_t size)
{
    const char *text = reader->fields[column] ? reader->fields[column] : "";

    if ((size_t)snprintf(ret, size, "%s", text) >= size)
        complain(reader, column, "a shorter text");
}

static enum recovery_mode mode_of(const char *text)
{
    if (text && strcmp(text, "enforce") == 0)
        return RECOVERY_ENFORCE;
    return text && strcmp(text, "observe") == 0 ? RECOVERY_OBSERVE : RECOVERY_OFF;
}

static enum recovery_deaths deaths_of(const char *text)
{
    if (text && strcmp(text, "confirmed") == 0)
        return RECOVERY_DEATHS_CONFIRMED;
    return text && strcmp(text, "implied") == 0 ? RECOVERY_DEATHS_IMPLIED
                                                : RECOVERY_DEATHS_UNKNOWN;
}

static void take_open(struct reader *reader, struct recovery_state *state)
{
    state->id = take_number(reader, 7, 0, INT64_MAX);
    state->attempts = take_count(reader, 8);
    state->attempt = take_number(reader, 9, 0, INT64_MAX);
    state->refused = take_count(reader, 10);
    state->age_ms = take_number(reader, 11, 0, INT64_MAX);
    state->is_hold_known = reader->fields[12] != NULL;
    state->hold_left_ms = take_number(reader, 12, 0, INT64_MAX);
    if (reader->fields[13] && strcmp(reader->fields[13], "hold") == 0)
        state->policy = RECOVERY_HOLD;
    state->is_gate_fresh = take_bool(reader, 14);
    state->is_waiting = take_bool(reader, 15);
    state->is_refused = take_bool(reader, 16);
    state->refused_ago_ms = take_number(reader, 17, -1, INT64_MAX);
}

int recovery_parse_state(const char *const *fields, struct recovery_state *ret, struct err *err)
{
    struct reader reader = {.fields = fields, .names = state_names, .err = err};
    struct recovery_state state = {.mode = mode_of(fields[3])};

    state.is_standby = take_bool(&reader, 0);
    if (!fields[1])
        return err_set(err, ERR_INVALID, 0,
                       "the service has no term yet: no meta has campaigned since the "
                       "installation");
    state.term = (uint64_t)take_number(&reader, 1, 0, INT64_MAX);
    take_text(&reader, 2, state.owner_tag, sizeof state.owner_tag);
    take_text(&reader, 4, state.version, sizeof state.version);
    state.is_verified = take_bool(&reader, 5);
    if (fields[6] && strlen(fields[6]) < sizeof state.snapshot)
        take_text(&reader, 6, state.snapshot, sizeof state.snapshot);
    take_open(&reader, &state);
    state.dropped = take_count(&reader, 18);
    state.dropped_age_ms = take_number(&reader, 19, 0, INT64_MAX);
    state.is_catalog_known = fields[20] && fields[21] && fields[22];
    state.creating = take_count(&reader, 20);
    state.live = take_count(&reader, 21);
    state.missing = take_count(&reader, 22);
    state.has_database_recovery = take_bool(&reader, 23);
    state.is_pooled = take_bool(&reader, 24);
    state.round = take_count(&reader, 25);
    state.may_build = take_bool(&reader, 26);
    state.predecessor = deaths_of(fields[27]);
    if (reader.is_bad)
        return -1;
    *ret = state;
    return 0;
}

static bool has_word(const char *words, const char *word)
{
    return words && strstr(words, word) != NULL; // none of the three is part of another
}

int recovery_parse_row(const char *const *fields, struct recovery_row *ret, struct err *err)
{
    static const char *const kinds[] = {"worker", "dropped", "creating"};
    struct reader reader = {.fields = fields, .names = row_names, .err = err};
    struct recovery_row row = {.name = fields[3], .host = fields[4], .tables = fields[8]};
    size_t kind = 0;

    while (kind < 3 && (!fields[0] || strcmp(fields[0], kinds[kind]) != 0))
        kind++;
    if (kind == 3) {
        complain(&reader, 0, "worker, dropped or creating");
        return -1;
    }
    row.kind = (enum recovery_kind)kind;
    if (!fields[1])
        complain(&reader, 1, "a count");
    if (row.kind == RECOVERY_WORKER && !row.host)
        complain(&reader, 4, "a host");
    row.id = take_number(&reader, 1, 0, INT64_MAX);
    row.job_id = take_number(&reader, 2, 0, INT64_MAX);
    row.port = (int32_t)take_number(&reader, 5, 0, INT32_MAX);
    row.is_running = fields[6] && strcmp(fields[6], "RUNNING") == 0;
    row.has_reset = has_word(fields[7], "reset");
    row.has_none = has_word(fields[7], "none");
    row.has_gone = has_word(fields[7], "gone");
    row.age_ms = take_number(&reader, 9, 0, INT64_MAX);
    if (reader.is_bad)
        return -1;
    *ret = row;
    return 0;
}

int recovery_take_state(const struct pg_reply *reply, struct recovery_state *ret,
                        struct err *err)
{
    const char *fields[RECOVERY_STATE_FIELDS];

    if (reply->fault.kind == PG_MISSING || strcmp(reply->fault.sqlstate, "42501") == 0)
        return err_set(
            err, ERR_DENIED, 0,
            "%.120s: run metafence sql install --agent-role ROLE, as the metas' role",
            reply->fault.err.msg);
    if (reply->fault.kind != PG_OK) {
        *err = reply->fault.err;
        return -1;
    }
    if (pg_answer_rows(reply) != 1)
        return err_set(err, ERR_INVALID, 0, "recovery_state has %zu rows, expected 1",
                       pg_answer_rows(reply));
    if (pg_answer_row(reply, 0, fields, RECOVERY_STATE_FIELDS, err) < 0 ||
        recovery_parse_state(fields, ret, err) < 0)
        return err_wrap(err, "recovery_state");
    return 0;
}

// --- calls ---

int recovery_refresh(struct election *election, const struct recovery_gate *gate,
                     election_done_fn *fn, void *arg, struct err *err)
{
    char hold[24], lifetime[24], dead_after[24];
    const char *params[] = {
        gate->service, gate->tag, gate->policy == RECOVERY_HOLD ? "hold" : "open",
        hold,          lifetime,  gate->dead_after_ms >= 0 ? dead_after : NULL};
    const struct pg_request request = {
        .sql = "SELECT " SQL_SCHEMA
               ".refresh_gate($1, $2, $3, $4::bigint, $5::bigint, $6::bigint)::int",
        .param_count = 6,
        .params = params};

    (void)snprintf(hold, sizeof hold, "%" PRId64, gate->max_hold_ms);
    (void)snprintf(lifetime, sizeof lifetime, "%" PRId64, gate->lifetime_ms);
    (void)snprintf(dead_after, sizeof dead_after, "%" PRId64, gate->dead_after_ms);
    return election_call(election, &request, fn, arg, err);
}

int recovery_acknowledge(struct election *election, const struct recovery_ack *ack,
                         election_done_fn *fn, void *arg, struct err *err)
{
    static const char *const hows[] = {"reset", "none", "gone", "asked"};
    bool has_snapshot = ack->snapshot && ack->snapshot[0];
    char recovery[24], worker[16], port[16];
    const char *params[] = {recovery,
                            worker,
                            ack->host,
                            port,
                            hows[ack->how],
                            ack->evidence,
                            has_snapshot ? ack->snapshot : NULL};
    const struct pg_request request = {
        .sql = "SELECT " SQL_SCHEMA ".acknowledge($1::bigint, $2::integer, $3, $4::integer, $5,"
               " $6::jsonb, $7::pg_snapshot)::int",
        .param_count = 7,
        .params = params};

    (void)snprintf(recovery, sizeof recovery, "%" PRId64, ack->recovery);
    (void)snprintf(worker, sizeof worker, "%" PRId32, ack->worker_id);
    (void)snprintf(port, sizeof port, "%" PRId32, ack->port);
    return election_call(election, &request, fn, arg, err);
}

int recovery_end(struct election *election, const struct recovery_state *state,
                 election_done_fn *fn, void *arg, struct err *err)
{
    char recovery[24], attempt[24];
    const char *params[] = {recovery, state->attempt > 0 ? attempt : NULL};
    const struct pg_request request = {.sql = "SELECT " SQL_SCHEMA
                                              ".end_recovery($1::bigint, $2::bigint)::int",
                                       .param_count = 2,
                                       .params = params};

    (void)snprintf(recovery, sizeof recovery, "%" PRId64, state->id);
    (void)snprintf(attempt, sizeof attempt, "%" PRId64, state->attempt);
    return election_call(election, &request, fn, arg, err);
}
