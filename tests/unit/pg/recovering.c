// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/pg/recovering.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// --- protobuf ---

void delta_put(struct delta *delta, const void *bytes, size_t len)
{
    if (len == 0)
        return;
    if (delta->len + len > delta->room) {
        delta->room = 2 * (delta->len + len);
        delta->bytes = realloc(delta->bytes, delta->room);
        assert_non_null(delta->bytes);
    }
    memcpy(delta->bytes + delta->len, bytes, len);
    delta->len += len;
}

void delta_put_varint(struct delta *delta, uint64_t value)
{
    uint8_t byte = 0;

    for (; value >= 128; value >>= 7) {
        byte = (uint8_t)(value | 128);
        delta_put(delta, &byte, 1);
    }
    byte = (uint8_t)value;
    delta_put(delta, &byte, 1);
}

void delta_put_number(struct delta *delta, unsigned field, uint64_t value)
{
    delta_put_varint(delta, field << 3);
    delta_put_varint(delta, value);
}

void delta_put_bytes(struct delta *delta, unsigned field, const void *bytes, size_t len)
{
    delta_put_varint(delta, field << 3 | 2);
    delta_put_varint(delta, len);
    delta_put(delta, bytes, len);
}

void delta_put_removed(struct delta *delta, const uint32_t *ids, size_t count)
{
    struct delta packed = {0};

    for (size_t i = 0; i < count; i++)
        delta_put_varint(&packed, ids[i]);
    if (count > 0)
        delta_put_bytes(delta, 9, packed.bytes, packed.len);
    delta_free(&packed);
}

void delta_free(struct delta *delta)
{
    free(delta->bytes);
    *delta = (struct delta){0};
}

struct delta delta_of(enum delta_kind kind, uint64_t id, const uint32_t *ids, size_t count)
{
    // Field 9 with two ids, and field 11, as they look: inside of other messages.
    static const uint8_t alike[] = {0x4a, 0x04, 0xe9, 0x07, 0xea, 0x07, 0x5a, 0x02, 0x08, 0x01};
    struct delta delta = {0}, entry = {0};

    delta_put_number(&delta, 1, id);
    delta_put_number(&delta, 2, id - 1);
    for (unsigned group = 2; group < 5; group++) {
        entry.len = 0;
        delta_put_number(&entry, 1, group);
        delta_put_bytes(&entry, 2, alike, sizeof alike);
        delta_put_bytes(&delta, 3, entry.bytes, entry.len);
    }
    delta_put_number(&delta, 6, 1);
    delta_put_bytes(&delta, 8, alike, sizeof alike);
    if (kind == DELTA_REMOVAL)
        delta_put_removed(&delta, ids, count);
    if (kind == DELTA_COMMIT) {
        delta_put_bytes(&delta, 10, alike, sizeof alike);
        delta_put_bytes(&delta, 11, alike, sizeof alike);
    }
    delta_free(&entry);
    return delta;
}

// --- the leader's statements ---

const char *insert_bytes(PGconn *pq, uint64_t id, const struct delta *delta)
{
    static char sqlstate[6];
    char text[24];
    const char *values[] = {text, delta->bytes ? (const char *)delta->bytes : ""};
    const int lengths[] = {0, (int)delta->len};
    const int formats[] = {0, 1};

    (void)snprintf(text, sizeof text, "%" PRIu64, id);
    PGresult *result = PQexecParams(
        pq,
        "INSERT INTO \"hummock_version_delta\" (\"id\", \"prev_id\", \"max_committed_epoch\","
        " \"safe_epoch\", \"trivial_move\", \"full_version_delta\") VALUES ($1::bigint,"
        " $1::bigint - 1, 0, 0, false, $2::bytea) ON CONFLICT (\"id\") DO UPDATE SET"
        " \"full_version_delta\" = \"excluded\".\"full_version_delta\" RETURNING \"id\"",
        2, NULL, values, lengths, formats, 0);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    (void)snprintf(sqlstate, sizeof sqlstate, "%s", state ? state : "");
    PQclear(result);
    return sqlstate;
}

const char *insert_delta(PGconn *pq, enum delta_kind kind, const uint32_t *ids, size_t count)
{
    static uint64_t id = 1000;
    struct delta delta = delta_of(kind, ++id, ids, count);
    const char *sqlstate = insert_bytes(pq, id, &delta);

    delta_free(&delta);
    return sqlstate;
}

const char *remove_table(PGconn *pq, uint32_t id)
{
    return insert_delta(pq, DELTA_REMOVAL, &id, 1);
}

static void execute(PGconn *pq, const char *sql, int count, const char *const *values)
{
    PGresult *result = PQexecParams(pq, sql, count, NULL, values, NULL, NULL, 0);

    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        fail_msg("%s: %s", sql, PQresultErrorMessage(result));
    PQclear(result);
}

void begin_attempt(PGconn *pq, int database)
{
    char text[12];
    const char *values[] = {"SUBSCRIPTION", "1", text};

    (void)snprintf(text, sizeof text, "%d", database);
    if (database == 0)
        execute(pq,
                "DELETE FROM \"object\" WHERE \"object\".\"obj_type\" = $1 AND"
                " \"object\".\"oid\" NOT IN (SELECT \"subscription_id\" FROM \"subscription\""
                " WHERE \"subscription\".\"subscription_state\" = $2::bigint)",
                2, values);
    else
        execute(pq,
                "DELETE FROM \"object\" WHERE \"object\".\"obj_type\" = $1 AND"
                " \"object\".\"oid\" NOT IN (SELECT \"subscription_id\" FROM \"subscription\""
                " WHERE \"subscription\".\"subscription_state\" = $2::bigint) AND"
                " \"object\".\"database_id\" = $3::integer",
                3, values);
}

void create_job(PGconn *pq, int job, const char *name, const char *tables)
{
    pgt_run(pq,
            "INSERT INTO object (oid, obj_type) VALUES (%d, 'TABLE');"
            "INSERT INTO streaming_job VALUES (%d, 'CREATED', 'FOREGROUND');"
            "INSERT INTO \"table\" VALUES (%d, '%s');"
            "INSERT INTO fragment (fragment_id, job_id, state_table_ids) VALUES (%d, %d, '%s')",
            job, job, job, name, job + 100, job, tables);
}

void drop_job(PGconn *pq, int job)
{
    char text[12];
    const char *values[] = {text};

    (void)snprintf(text, sizeof text, "%d", job);
    execute(pq, "DELETE FROM \"object\" WHERE \"object\".\"oid\" IN ($1)", 1, values);
}

// --- the scene ---

int recovering_setup(void **state)
{
    struct scene *s = NULL;

    if (scene_setup(state) != 0)
        return -1;
    s = *state;
    pgt_run(s->psql, CATALOG_V2_6 CATALOG_TO_V2_8 CATALOG_TO_V3 CATALOG_TO_HEAD);
    pgt_run(s->admin, "SELECT metafence.cover_recovery(name::text) FROM"
                      " metafence.recovery_tables()");
    set_recovery(s, "enforce");
    (void)pgt_campaign(s->a1, "meta-a");
    take_over(s, s->b1, "meta-b");
    pgt_run(s->b1, "INSERT INTO worker VALUES"
                   " (1, 'COMPUTE_NODE', 'cn-1', 5688, 'RUNNING'),"
                   " (2, 'COMPUTE_NODE', 'cn-2', 5688, 'RUNNING'),"
                   " (3, 'FRONTEND', 'fe-1', 4567, 'RUNNING'),"
                   " (4, 'COMPACTOR', 'cp-1', 6660, 'RUNNING')");
    create_job(s->b1, 11, "mv_one", "[1001, 1002]");
    create_job(s->b1, 12, "mv_two", "[1003]");
    create_job(s->b1, 13, "mv_three", "[1004, 1005, 1006]");
    assert_string_equal(insert_delta(s->b1, DELTA_COMMIT, NULL, 0), "");
    assert_string_equal(refresh_gate(s, "open", 600000), "t");
    assert_string_equal(state_of_recovery(s, "recovery_id"), "NULL");
    return 0;
}

void set_recovery(struct scene *s, const char *mode)
{
    pgt_run(s->admin, "UPDATE metafence.setting SET value = '%s' WHERE name = 'recovery'",
            mode);
}

const char *refresh_gate(struct scene *s, const char *policy, int64_t max_hold_ms)
{
    const char *is_done =
        pgt_get(s->admin,
                "SELECT metafence.refresh_gate('svc', owner_tag, '%s', %lld, 60000, 30000)"
                " FROM metafence.term",
                policy, (long long)max_hold_ms);

    // A busy machine may take longer than that for a test.
    pgt_run(s->admin, "UPDATE metafence.gate SET expires_at = 'infinity'");
    return is_done;
}

const char *state_of_recovery(struct scene *s, const char *column)
{
    return pgt_get(s->admin, "SELECT (metafence.recovery_state('svc')).%s::text", column);
}

void acknowledge(struct scene *s, int id, const char *how)
{
    assert_string_equal(
        pgt_get(s->admin,
                "SELECT metafence.acknowledge(recovery_id, %d, 'cn-%d', 5688, '%s', '{}',"
                " snapshot::pg_snapshot) FROM metafence.recovery_state('svc')",
                id, id, how),
        "t");
}

const char *newest_purge(struct scene *s)
{
    return pgt_get(s->admin, "SELECT concat_ws(' ', outcome, table_count, coalesce(missing,"
                             " '-')) FROM metafence.purged(1)");
}
