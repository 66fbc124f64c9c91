// SPDX-License-Identifier: Apache-2.0
#include "agent/pg/queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static char *copy_string(const char *text)
{
    char *copy = text ? strdup(text) : NULL;

    if (text && !copy)
        abort();
    return copy;
}

void request_free(struct request *request)
{
    for (size_t i = 0; i < request->param_count; i++)
        free(request->params[i]);
    free(request->sql);
    free(request);
}

struct request *request_new(const struct pg_request *asked, pg_done_fn *fn, void *arg)
{
    struct request *request = calloc(1, sizeof *request);

    assert(asked->param_count <= PG_PARAMS_MAX);
    if (!request)
        abort();
    request->sql = copy_string(asked->sql);
    request->param_count = asked->param_count;
    for (size_t i = 0; i < asked->param_count; i++)
        request->params[i] = copy_string(asked->params[i]);
    request->is_read = asked->is_read;
    request->fn = fn;
    request->arg = arg;
    return request;
}

void queue_init(struct queue *queue)
{
    queue->head = NULL;
    queue->tail = &queue->head;
    queue->count = 0;
}

void queue_push(struct queue *queue, struct request *request)
{
    *queue->tail = request;
    queue->tail = &request->next;
    queue->count++;
}

struct request *queue_pop(struct queue *queue)
{
    struct request *request = queue->head;

    if (!request)
        return NULL;
    queue->head = request->next;
    if (!queue->head)
        queue->tail = &queue->head;
    queue->count--;
    request->next = NULL;
    return request;
}
