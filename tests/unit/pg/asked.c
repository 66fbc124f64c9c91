// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/pg/asked.h"

#include <stdio.h>

static void on_up(void *arg)
{
    struct seen *seen = arg;

    seen->ups++;
    seen->is_up = true;
}

static void on_down(const struct pg_fault *fault, void *arg)
{
    struct seen *seen = arg;

    seen->downs++;
    seen->is_down = true;
    seen->down_fault = *fault;
}

static void on_notify(const char *payload, void *arg)
{
    struct seen *seen = arg;

    seen->notes++;
    seen->has_note = true;
    (void)snprintf(seen->note, sizeof seen->note, "%s", payload);
}

static const struct pg_ops ops = {.up = on_up, .down = on_down, .notify = on_notify};

void on_answer(const struct pg_reply *reply, void *arg)
{
    struct answer *answer = arg;

    answer->is_done = true;
    answer->count++;
    answer->reply = *reply;
    answer->reply.result = NULL;
    if (reply->result && PQntuples(reply->result) > 0)
        (void)snprintf(answer->value, sizeof answer->value, "%s",
                       PQgetvalue(reply->result, 0, 0));
}

struct pg *start(struct pgt *pgt, const struct pg_params *params, struct seen *seen)
{
    struct pg *pg = NULL;
    struct err err;

    const struct pg_net net = {pgt->loop, pgt->resolver, params};
    if (pg_new(&net, &ops, seen, &pg, &err) < 0)
        fail_msg("%s", err.msg);
    return pg;
}

void ask(struct pg *pg, const char *sql, bool is_read, struct answer *answer)
{
    const struct pg_request request = {.sql = sql, .is_read = is_read};
    struct err err;

    assert_int_equal(pg_send(pg, &request, on_answer, answer, &err), 0);
}

int64_t ms_since(struct instant start)
{
    return instant_since(clock_now(), start) / NS_PER_MS;
}
