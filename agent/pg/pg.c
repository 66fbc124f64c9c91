// SPDX-License-Identifier: Apache-2.0
#include "agent/pg/pg.h"

#include <assert.h>
#include <stdlib.h>

#include "agent/pg/queue.h"

#define BACKOFF_MIN_NS (50 * NS_PER_MS)
#define BACKOFF_MAX_NS (500 * NS_PER_MS) // a lease is short: what healed must be seen soon

// A connection and the request that it carries.
struct slot {
    struct pg *pg;
    struct pg_conn *conn;
    struct request *flight;
    struct instant sent_at;
    bool is_up;     // it has logged in
    bool is_former; // replaced by its successor, kept only for what it still owes
};

struct pg {
    struct pg_net net;
    const struct pg_ops *ops;
    void *arg;
    struct slot slots[2];
    size_t active; // the slot that takes new requests; the other is the successor or empty
    struct queue queue;
    struct loop_timer *timer; // the next thing that is due by itself
    int64_t backoff_ns;
    struct instant connect_after;
    unsigned attempts; // of connecting, picks among addresses
    bool wants_renewal;
    struct pg_fault last_fault; // why there is no session; PG_OK: there is, or none was tried
    struct pg_stats stats;
};

static struct slot *active_of(struct pg *pg)
{
    return &pg->slots[pg->active];
}

static struct slot *other_of(struct pg *pg)
{
    return &pg->slots[1 - pg->active];
}

// Work is done in the next turn of the loop, so that no caller is called back from inside its
// call.
static void pg_wake(struct pg *pg)
{
    loop_timer_arm(pg->timer, 0);
}

static void request_done(struct request *request, const struct pg_reply *reply)
{
    assert(!request->is_done);
    request->is_done = true;
    request->fn(reply, request->arg);
}

static void slot_drop_flight(struct slot *slot)
{
    struct request *request = slot->flight;

    slot->flight = NULL;
    if (request && --request->attempts == 0 && request->is_done)
        request_free(request);
}

static void slot_close(struct slot *slot)
{
    pg_conn_free(slot->conn);
    slot->conn = NULL;
    slot->is_up = slot->is_former = false;
    slot_drop_flight(slot);
}

static void request_end_fault(struct request *request, const struct pg_fault *fault,
                              struct instant sent_at)
{
    struct pg_reply reply = {.fault = *fault, .sent_at = sent_at, .received_at = clock_now()};

    request_done(request, &reply);
}

static void slot_send(struct slot *slot, struct request *request)
{
    struct pg *pg = slot->pg;
    struct pg_fault fault;
    const char *params[PG_PARAMS_MAX];

    for (size_t i = 0; i < request->param_count; i++)
        params[i] = request->params[i];
    slot->flight = request;
    request->attempts++;
    slot->sent_at = clock_now();
    // What could not be sent is handled by slot_on_closed, which follows from the loop.
    if (pg_conn_send(slot->conn, request->sql, request->param_count, params, &fault) < 0)
        pg->last_fault = fault;
}

// --- callbacks of the connections ---

static void slot_on_ready(void *arg)
{
    struct slot *slot = arg;
    struct pg *pg = slot->pg;

    slot->is_up = true;
    pg->stats.connects++;
    pg->last_fault = (struct pg_fault){0};
    pg_wake(pg);
    if (pg->ops->up)
        pg->ops->up(pg->arg);
}

// Nobody waits for the next attempt with an answer that is known now. What a callback asks anew
// waits.
static void fail_queued(struct pg *pg, const struct pg_fault *fault)
{
    for (size_t left = pg->queue.count; left > 0; left--) {
        struct request *request = queue_pop(&pg->queue);

        request_end_fault(request, fault, (struct instant){0});
        request_free(request);
    }
}

static void slot_on_closed(const struct pg_fault *why, void *arg)
{
    struct slot *slot = arg;
    struct pg *pg = slot->pg;
    struct request *request = slot->flight;
    struct pg_fault fault = *why; // *why goes with the connection

    pg->last_fault = fault;
    pg->attempts++;
    if (!slot->is_up)
        pg->stats.connect_failures++;
    pg->connect_after = instant_add(clock_now(), pg->backoff_ns);
    pg->backoff_ns = pg->backoff_ns * 2 < BACKOFF_MAX_NS ? pg->backoff_ns * 2 : BACKOFF_MAX_NS;
    pg_wake(pg);

    // The other slot may still carry the same read: then that one answers for both.
    if (request && !request->is_done && request->attempts == 1) {
        struct pg_fault end = fault;
        if (!request->is_read)
            end.err.kind = ERR_UNKNOWN_OUTCOME;
        request_end_fault(request, &end, slot->sent_at);
    }
    slot_close(slot);
    if (slot == active_of(pg) && other_of(pg)->conn) {
        pg->active = 1 - pg->active;
        active_of(pg)->is_former = false;
    }
    if (pg->slots[0].conn || pg->slots[1].conn)
        return;
    fail_queued(pg, &fault);
    if (pg->ops->down)
        pg->ops->down(&fault, pg->arg);
}

// Answers to reads come in send order: a read is sent only when no other one is under way, and
// of the two copies of a hedged one the later answer is dropped.
static void slot_on_result(PGresult **owner, void *arg)
{
    struct slot *slot = arg;
    struct pg *pg = slot->pg;
    struct request *request = slot->flight;
    const PGresult *result = *owner;
    ExecStatusType status = PQresultStatus(result);
    struct pg_reply reply = {
        .result = result,
        .owner = owner,
        .sent_at = slot->sent_at,
        .received_at = clock_now(),
        .was_hedged = slot != active_of(pg) && !slot->is_former,
    };

    pg_wake(pg);
    if (request->is_done) {
        slot_drop_flight(slot);
        return;
    }
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        pg_fault_set(&reply.fault, PQresultErrorField(result, PG_DIAG_SQLSTATE),
                     PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY),
                     pg->net.params->password);
        reply.result = NULL;
    } else {
        // Not at log-in, not for an error: a server or pooler may throw out each session at
        // once.
        pg->backoff_ns = BACKOFF_MIN_NS;
    }
    if (reply.was_hedged) {
        pg->stats.hedge_wins++;
        active_of(pg)->is_former = true;
        pg->active = 1 - pg->active;
    }
    request_done(request, &reply);
    slot_drop_flight(slot);
}

static void slot_on_notify(const char *payload, void *arg)
{
    struct pg *pg = ((struct slot *)arg)->pg;

    if (pg->ops->notify)
        pg->ops->notify(payload, pg->arg);
}

static const struct pg_conn_ops slot_ops = {
    .ready = slot_on_ready,
    .closed = slot_on_closed,
    .result = slot_on_result,
    .notify = slot_on_notify,
};

// --- what is due ---

static void slot_connect(struct slot *slot)
{
    struct pg *pg = slot->pg;

    slot->sent_at = (struct instant){0};
    pg->wants_renewal = false;
    slot->conn = pg_conn_new(&pg->net, pg->attempts, &slot_ops, slot);
}

// A connection whose statement was not answered in half its time: it may be dead without
// knowing.
static bool slot_is_stuck(const struct slot *slot, struct instant now)
{
    int64_t half_ns = slot->pg->net.params->query_timeout_ns / 2;

    return slot->flight &&
           (slot->flight->is_done || instant_reached(now, instant_add(slot->sent_at, half_ns)));
}

static void end_overdue(struct pg *pg, struct request *request, struct instant sent_at)
{
    struct pg_fault fault;
    char text[32];

    if (sent_at.ns) {
        pg_fault_silent(
            &fault, request->is_read ? ERR_TRANSIENT : ERR_UNKNOWN_OUTCOME,
            "Postgres did not answer within %s",
            duration_format(instant_since(clock_now(), sent_at) / NS_PER_MS * NS_PER_MS, text,
                            sizeof text));
    } else if (pg->last_fault.kind != PG_OK) {
        fault = pg->last_fault;
    } else {
        pg_fault_silent(&fault, ERR_TRANSIENT, "no session with Postgres in time");
    }
    request_end_fault(request, &fault, sent_at);
}

// When a request that was sent must end: a read at its own limit, others once their time-out
// has passed.
static struct instant flight_ends(const struct slot *slot)
{
    const struct request *request = slot->flight;

    if (request->is_read)
        return request->give_up_at;
    return instant_add(slot->sent_at, slot->pg->net.params->query_timeout_ns);
}

static void pg_expire(struct pg *pg, struct instant now)
{
    for (size_t i = 0; i < 2; i++) {
        struct slot *slot = &pg->slots[i];

        if (slot->flight && !slot->flight->is_done && instant_reached(now, flight_ends(slot)))
            end_overdue(pg, slot->flight, slot->sent_at);
    }
    // give_up_at grows along the queue.
    while (pg->queue.head && instant_reached(now, pg->queue.head->give_up_at)) {
        struct request *request = queue_pop(&pg->queue);

        end_overdue(pg, request, (struct instant){0});
        request_free(request);
    }
}

static void pg_connect_due(struct pg *pg, struct instant now)
{
    struct slot *active = active_of(pg);
    struct slot *other = other_of(pg);

    if (!instant_reached(now, pg->connect_after))
        return;
    if (!active->conn) {
        slot_connect(active);
        return;
    }
    if (other->conn || !pg_conn_is_ready(active->conn))
        return;
    if (!slot_is_stuck(active, now) && !pg->wants_renewal)
        return;
    if (pg->wants_renewal)
        pg->connect_after = instant_add(now, BACKOFF_MAX_NS);
    pg->attempts++; // another address of the same name, where there is one
    slot_connect(other);
}

// A successor that has logged in: it repeats the read that the old connection owes, or takes
// over.
static void pg_use_successor(struct pg *pg, struct instant now)
{
    struct slot *active = active_of(pg);
    struct slot *other = other_of(pg);
    struct request *flight = active->flight;

    if (!other->conn || other->is_former || !pg_conn_is_idle(other->conn))
        return;
    if (flight && !flight->is_done && flight->is_read) {
        if (!slot_is_stuck(active, now))
            return;
        pg->stats.hedges++;
        slot_send(other, flight);
        return;
    }
    // A statement that is no read keeps its connection until it is answered or overdue.
    active->is_former = true;
    pg->active = 1 - pg->active;
}

// Closes what is not needed any more: the former connection once it owes nothing, and a
// successor whose read was answered by the old connection after all.
static void pg_close_former(struct pg *pg)
{
    struct slot *other = other_of(pg);
    bool owes = other->flight && !other->flight->is_done;

    if (other->conn && !owes && (other->is_former || other->flight))
        slot_close(other);
}

static int64_t until(struct instant now, struct instant t, int64_t least_ns)
{
    int64_t wait_ns = instant_since(t, now);

    if (wait_ns < 0)
        wait_ns = 0;
    return wait_ns < least_ns ? wait_ns : least_ns;
}

static void pg_arm(struct pg *pg, struct instant now)
{
    int64_t half_ns = pg->net.params->query_timeout_ns / 2;
    int64_t wait_ns = INT64_MAX;

    if (loop_timer_is_armed(pg->timer))
        return; // woken while at work
    for (size_t i = 0; i < 2; i++) {
        const struct slot *slot = &pg->slots[i];

        if (!slot->flight || slot->flight->is_done)
            continue;
        wait_ns = until(now, flight_ends(slot), wait_ns);
        if (!slot_is_stuck(slot, now))
            wait_ns = until(now, instant_add(slot->sent_at, half_ns), wait_ns);
    }
    if (pg->queue.head)
        wait_ns = until(now, pg->queue.head->give_up_at, wait_ns);
    if (!instant_reached(now, pg->connect_after))
        wait_ns = until(now, pg->connect_after, wait_ns);
    if (wait_ns != INT64_MAX)
        loop_timer_arm(pg->timer, wait_ns);
}

static void pg_work(void *arg)
{
    struct pg *pg = arg;
    struct instant now = clock_now();

    pg_expire(pg, now);
    pg_use_successor(pg, now);
    pg_close_former(pg);
    if (pg->queue.head && active_of(pg)->conn && pg_conn_is_idle(active_of(pg)->conn))
        slot_send(active_of(pg), queue_pop(&pg->queue));
    pg_connect_due(pg, now);
    pg_arm(pg, now);
}

// --- for the callers ---

static int params_check(const struct pg_params *params, struct err *err)
{
    if (!params->host || !params->host[0])
        return err_set(err, ERR_INVALID, 0,
                       "postgres.host is empty: name the meta store's host");
    if (params->port == 0)
        return err_set(err, ERR_INVALID, 0, "postgres.port is 0: expected 1 to 65535");
    if (!params->database || !params->database[0] || !params->user || !params->user[0])
        return err_set(err, ERR_INVALID, 0,
                       "postgres.database and postgres.user must not be empty");
    if (params->connect_timeout_ns < NS_PER_MS || params->query_timeout_ns < NS_PER_MS)
        return err_set(err, ERR_INVALID, 0,
                       "postgres.connectTimeout and queryTimeout must be 1ms or more");
    return 0;
}

int pg_new(const struct pg_net *net, const struct pg_ops *ops, void *arg, struct pg **ret_pg,
           struct err *err)
{
    struct pg *pg = NULL;

    if (params_check(net->params, err) < 0)
        return -1;
    pg = calloc(1, sizeof *pg);
    if (!pg)
        abort();
    *pg = (struct pg){.net = *net, .ops = ops, .arg = arg, .backoff_ns = BACKOFF_MIN_NS};
    pg->slots[0].pg = pg->slots[1].pg = pg;
    queue_init(&pg->queue);
    pg->timer = loop_timer_new(net->loop, pg_work, pg);
    pg_wake(pg);
    *ret_pg = pg;
    return 0;
}

void pg_free(struct pg *pg)
{
    if (!pg)
        return;
    for (size_t i = 0; i < 2; i++) {
        if (pg->slots[i].flight)
            pg->slots[i].flight->is_done = true;
        slot_close(&pg->slots[i]);
    }
    for (struct request *r = queue_pop(&pg->queue); r; r = queue_pop(&pg->queue))
        request_free(r);
    loop_timer_free(pg->timer);
    free(pg);
}

int pg_send(struct pg *pg, const struct pg_request *request, pg_done_fn *fn, void *arg,
            struct err *err)
{
    const struct pg_params *params = pg->net.params;
    struct request *copy = NULL;

    assert(request->param_count <= PG_PARAMS_MAX);
    if (pg->queue.count >= PG_QUEUE_MAX)
        return err_set(err, ERR_TRANSIENT, 0, "%d requests to Postgres wait already",
                       PG_QUEUE_MAX);
    copy = request_new(request, fn, arg);
    copy->give_up_at =
        instant_add(clock_now(), params->connect_timeout_ns + params->query_timeout_ns / 2 * 3);
    queue_push(&pg->queue, copy);
    pg_wake(pg);
    return 0;
}

void pg_renew(struct pg *pg)
{
    pg->wants_renewal = true;
    pg_wake(pg);
}

bool pg_is_up(const struct pg *pg)
{
    const struct pg_conn *conn = pg->slots[pg->active].conn;

    return conn && pg_conn_is_ready(conn);
}

bool pg_is_tls(const struct pg *pg)
{
    return pg_is_up(pg) && pg_conn_is_tls(pg->slots[pg->active].conn);
}

bool pg_is_listening(const struct pg *pg)
{
    return pg_is_up(pg) && pg_conn_listens(pg->slots[pg->active].conn);
}

bool pg_is_pooled(const struct pg *pg)
{
    return pg_is_up(pg) && pg_conn_is_pooled(pg->slots[pg->active].conn);
}

const struct pg_stats *pg_stats(const struct pg *pg)
{
    return &pg->stats;
}
