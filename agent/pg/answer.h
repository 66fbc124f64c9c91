// SPDX-License-Identifier: Apache-2.0
#pragma once
// answer: the rows of a reply as plain strings, for those who know nothing of libpq. Everything
// is borrowed and lives as long as the callback that got the reply.

#include <stddef.h>

#include "agent/pg/pg.h"

size_t pg_answer_rows(const struct pg_reply *reply);
// Takes the rows out of a reply without a fault, for longer than the callback: *ret is to be
// given to pg_answer_drop(), which accepts a zeroed one, and zeroes it.
void pg_answer_keep(const struct pg_reply *reply, struct pg_reply *ret);
void pg_answer_drop(struct pg_reply *kept);
// The fields of one row; NULL is SQL NULL. Errors: INVALID when the answer has not exactly
// `count` columns.
must_check int pg_answer_row(const struct pg_reply *reply, size_t row, const char **ret_fields,
                             size_t count, struct err *err);
