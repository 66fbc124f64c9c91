// SPDX-License-Identifier: Apache-2.0
#pragma once
// installing: what the tests of `metafence sql install` share. *state is a session of role
// "meta" in a fresh database.

#include "tests/unit/pg/pgtest.h"

#include "agent/pg/install.h"

#define TAG_A1 "metafence:aaaaaaaa:0000000000000001"

extern char install_said[8192]; // since the last install_options()

// Everything that a dump would show of the tables: columns, indexes, triggers, rights; and who
// owns which schemas and functions. A query for one text.
extern const char install_fingerprint[];

// 30 s at most.
struct sql_options install_options(const struct pg_params *params);
void install_now(const struct sql_options *options);

int install_setup(void **state);
int install_teardown(void **state);
#define INSTALL_TEST(fn) cmocka_unit_test_setup_teardown(fn, install_setup, install_teardown)
