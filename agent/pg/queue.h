// SPDX-License-Identifier: Apache-2.0
#pragma once
// queue: requests that wait for a connection, oldest first. For pg.c only.

#include "agent/pg/pg.h"

struct request {
    struct request *next;
    char *sql;
    size_t param_count;
    char *params[PG_PARAMS_MAX];
    bool is_read;
    pg_done_fn *fn;
    void *arg;
    struct instant give_up_at;
    unsigned attempts; // slots that carry it now
    bool is_done;      // called back; freed when no slot carries it
};

struct queue {
    struct request *head, **tail;
    size_t count;
};

// A copy of what was asked; the caller frees it.
struct request *request_new(const struct pg_request *asked, pg_done_fn *fn, void *arg);
void request_free(struct request *request);

void queue_init(struct queue *queue);
void queue_push(struct queue *queue, struct request *request);
struct request *queue_pop(struct queue *queue); // NULL when empty
