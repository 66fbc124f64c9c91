// SPDX-License-Identifier: Apache-2.0
#pragma once
// recovering: the scene of recoveries. RisingWave's catalog, three jobs of incarnation b1,
// which leads term 2; two compute nodes; ordered recovery in enforce with an agent beside the
// leader. The statements are those of the leader, over the extended protocol with parameters.

#include "tests/unit/pg/catalog.h"
#include "tests/unit/pg/scene.h"

int recovering_setup(void **state);
#define RECOVERY_TEST(fn) cmocka_unit_test_setup_teardown(fn, recovering_setup, scene_teardown)

// A version delta in protobuf, put together by hand.
struct delta {
    uint8_t *bytes;
    size_t len, room;
};

void delta_put(struct delta *delta, const void *bytes, size_t len);
void delta_put_varint(struct delta *delta, uint64_t value);
// A field of wire type 0.
void delta_put_number(struct delta *delta, unsigned field, uint64_t value);
// A field of wire type 2.
void delta_put_bytes(struct delta *delta, unsigned field, const void *bytes, size_t len);
// Field 9, packed.
void delta_put_removed(struct delta *delta, const uint32_t *ids, size_t count);
void delta_free(struct delta *delta);

enum delta_kind {
    DELTA_COMPACTION, // neither removes nor commits
    DELTA_COMMIT,     // field 11
    DELTA_REMOVAL,    // field 9
};
// A delta as the leader writes it, with groups, watermarks and look-alikes of field 9 inside.
struct delta delta_of(enum delta_kind kind, uint64_t id, const uint32_t *ids, size_t count);

// Inserts one; the SQLSTATE, "" when it worked. The id is the next one.
const char *insert_delta(PGconn *pq, enum delta_kind kind, const uint32_t *ids, size_t count);
const char *insert_bytes(PGconn *pq, uint64_t id, const struct delta *delta);
// The removal of one table id.
const char *remove_table(PGconn *pq, uint32_t id);

// The first statement of an attempt of all databases (0), or of that one.
void begin_attempt(PGconn *pq, int database);
// A job with a fragment that has these state tables ("[1001, 1002]"), and its name.
void create_job(PGconn *pq, int job, const char *name, const char *tables);
void drop_job(PGconn *pq, int job);

void set_recovery(struct scene *s, const char *mode);
// The agent of the leader refreshes the gate, and goes on doing so. Returns "t" or "f".
const char *refresh_gate(struct scene *s, const char *policy, int64_t max_hold_ms);
// One column of recovery_state() as text, "NULL" for NULL.
const char *state_of_recovery(struct scene *s, const char *column);
// Acknowledges worker `id` in the open recovery, with a snapshot of now.
void acknowledge(struct scene *s, int id, const char *how);
// "<outcome> <table_count> <missing or ->" of the newest removal that met a recovery and
// passed.
const char *newest_purge(struct scene *s);
