// SPDX-License-Identifier: Apache-2.0
#pragma once
// asked: a session under test with what it told, and one request with its answer.

#include "tests/unit/pg/pgtest.h"

struct seen {
    unsigned ups, downs, notes;
    struct pg_fault down_fault;
    char note[256];
    bool is_up, is_down, has_note;
};

struct answer {
    bool is_done;
    unsigned count;
    struct pg_reply reply; // result is gone, `value` holds it
    char value[64];
};

struct pg *start(struct pgt *pgt, const struct pg_params *params, struct seen *seen);
void ask(struct pg *pg, const char *sql, bool is_read, struct answer *answer);
void on_answer(const struct pg_reply *reply, void *arg); // arg: struct answer
int64_t ms_since(struct instant start);
