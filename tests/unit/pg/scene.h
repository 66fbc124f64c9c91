// SPDX-License-Identifier: Apache-2.0
#pragma once
// scene: a database with RisingWave's tables and the metafence schema, owned by a superuser,
// the guard in enforce; and sessions of several incarnations.

#include "tests/unit/pg/pgtest.h"
#include "tests/unit/pg/tables.h"

// Tags of different incarnations: letter of the pod, number of the start.
#define TAG_A1 "metafence:aaaaaaaa:0000000000000001"
#define TAG_A2 "metafence:aaaaaaaa:0000000000000002"
#define TAG_A3 "metafence:aaaaaaaa:0000000000000003"
#define TAG_B1 "metafence:bbbbbbbb:0000000000000001"

struct scene {
    PGconn *admin;
    PGconn *a1, *a2, *a3, *b1; // sessions of role meta with these tags
    PGconn *psql;              // an untagged session of role meta
};

int scene_setup(void **state);
int scene_teardown(void **state);

// "<term> <owner tag or -> <owner id>"
void assert_term(struct scene *scene, const char *expected);
// "<owned term or -> <superseded>", "NULL" for an unknown tag
const char *tag_row(struct scene *scene, const char *tag);
// The lease has just run out.
void expire(struct scene *scene);
void set_guard(struct scene *scene, const char *mode);
// One of metafence.counters().
int64_t counter(struct scene *scene, const char *name);
// The lease runs out and `session` wins it for `id`; fails the test if it does not.
void take_over(struct scene *scene, PGconn *session, const char *id);
// Waits until the session of `pq` waits for a lock.
void await_lock_wait(struct scene *scene, PGconn *pq);
// Installs the guard's triggers on tables that were made since.
void guard_tables(PGconn *admin);

#define SCENE_TEST(fn) cmocka_unit_test_setup_teardown(fn, scene_setup, scene_teardown)
