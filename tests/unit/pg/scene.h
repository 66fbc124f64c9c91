// SPDX-License-Identifier: Apache-2.0
#pragma once
// scene: a database with the metafence schema, owned by a superuser, and sessions of several
// incarnations.

#include "tests/unit/pg/pgtest.h"

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

#define SCENE_TEST(fn) cmocka_unit_test_setup_teardown(fn, scene_setup, scene_teardown)
