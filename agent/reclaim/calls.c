// SPDX-License-Identifier: Apache-2.0
// Compute nodes, and the calls to them: look-up of the name, the call, what became of it.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/reclaim/parts.h"

#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME  UINT64_C(0x100000001b3)

// --- the list ---

static uint64_t endpoint_of(const char *host, int32_t port)
{
    char text[300];
    uint64_t hash = FNV_OFFSET;

    (void)snprintf(text, sizeof(text), "%s %" PRId32, host, port);
    for (const char *at = text; *at; at++)
        hash = (hash ^ (uint8_t)*at) * FNV_PRIME;
    return hash ? hash : 1;
}

static void make_room(struct reclaim *reclaim)
{
    if (reclaim->node_count < reclaim->node_room)
        return;
    reclaim->node_room = reclaim->node_room ? 2 * reclaim->node_room : 16;
    reclaim->nodes = reallocarray(reclaim->nodes, reclaim->node_room, sizeof(void *));
    reclaim->node_facts =
        reallocarray(reclaim->node_facts, reclaim->node_room, sizeof(*reclaim->node_facts));
    if (!reclaim->nodes || !reclaim->node_facts)
        abort();
}

struct reclaim_node *calls_node(struct reclaim *reclaim, const struct recovery_row *row)
{
    uint64_t endpoint = endpoint_of(row->host, row->port);
    struct reclaim_node *node = NULL;
    size_t at = 0;

    while (at < reclaim->node_count && reclaim->node_facts[at].endpoint != endpoint)
        at++;
    if (at == reclaim->node_count) {
        make_room(reclaim);
        node = calloc(1, sizeof(*node));
        if (!node)
            abort();
        (void)snprintf(node->host, sizeof(node->host), "%s", row->host);
        node->port = row->port;
        node->address = address_parse(node->host);
        node->init =
            (struct reclaim_call){.reclaim = reclaim, .node = node, .kind = COMPUTE_INIT};
        node->stats =
            (struct reclaim_call){.reclaim = reclaim, .node = node, .kind = COMPUTE_STATS};
        reclaim->nodes[at] = node;
        reclaim->node_facts[at] = (struct order_node){.endpoint = endpoint};
        reclaim->node_count++;
    }
    node = reclaim->nodes[at];
    node->worker_id = (int32_t)row->id;
    node->is_listed = true;
    return node;
}

static struct order_node *facts_of(struct reclaim *reclaim, const struct reclaim_node *node)
{
    size_t at = 0;

    while (reclaim->nodes[at] != node)
        at++;
    return &reclaim->node_facts[at];
}

// --- calls ---

static void stop(struct reclaim_call *call)
{
    resolve_cancel(call->query);
    call->query = NULL;
    if (call->call)
        grpc_compute_cancel(call->call);
    call->call = NULL;
    free(call->snapshot);
    call->snapshot = NULL;
}

static bool is_open(const struct reclaim_call *call)
{
    return call->query || call->call;
}

static struct order_call *outcome_of(struct reclaim_call *call)
{
    struct order_node *facts = facts_of(call->reclaim, call->node);

    return call->kind == COMPUTE_INIT ? &facts->init : &facts->stats;
}

// What it has proven counts from what was known before it was asked.
static void keep_snapshot(struct reclaim_call *call, enum order_evidence how)
{
    struct reclaim_node *node = call->node;

    if (how < node->snapshot_how)
        return;
    free(node->snapshot);
    node->snapshot = call->snapshot;
    node->snapshot_how = how;
    call->snapshot = NULL;
}

static void finish(struct reclaim_call *call, enum order_outcome outcome)
{
    *outcome_of(call) = (struct order_call){call->serial, outcome, .is_sent = call->is_sent};
    stop(call);
    agent_feed(call->reclaim->agent);
}

static enum order_outcome outcome_from(enum grpc_outcome outcome)
{
    switch (outcome) {
    case GRPC_CALL_OK: return ORDER_CALL_DONE;
    case GRPC_CALL_NOT_SENT: return ORDER_CALL_FAILED;
    case GRPC_CALL_UNKNOWN:
    case GRPC_CALL_ERROR: break; // answered, but who knows what it has begun
    }
    return ORDER_CALL_UNKNOWN;
}

static void count_init(struct reclaim *reclaim, enum order_outcome outcome)
{
    reclaim->counts[outcome == ORDER_CALL_DONE     ? RECLAIM_INIT_ANSWERED
                    : outcome == ORDER_CALL_FAILED ? RECLAIM_INIT_FAILED
                                                   : RECLAIM_INIT_UNKNOWN]++;
}

static void take_stats(struct reclaim_call *call, const struct grpc_compute_result *result)
{
    struct reclaim *reclaim = call->reclaim;
    struct order_node *facts = facts_of(reclaim, call->node);
    const struct grpc_fragments fragments = {reclaim->drops.fragments,
                                             reclaim->drops.fragment_count};
    enum order_outcome outcome = outcome_from(result->outcome);
    uint32_t running = 0;
    struct err err = {0};

    // What they were compared with has to be what was dropped when they were asked for.
    if (outcome == ORDER_CALL_DONE &&
        (call->revision != reclaim->drops.revision ||
         grpc_count_running(result->message, result->len, &fragments, &running, &err) < 0))
        outcome = ORDER_CALL_UNKNOWN;
    facts->running = running;
    facts->revision = call->revision;
    if (outcome == ORDER_CALL_DONE && running == 0)
        keep_snapshot(call, ORDER_NONE);
    finish(call, outcome);
}

static void on_end(const struct grpc_compute_result *result, void *arg)
{
    struct reclaim_call *call = arg;
    enum order_outcome outcome = outcome_from(result->outcome);

    call->call = NULL;
    if (result->kind == COMPUTE_STATS) {
        take_stats(call, result);
        return;
    }
    count_init(call->reclaim, outcome);
    (void)snprintf(call->node->detail, sizeof(call->node->detail), "%s", result->detail);
    if (outcome == ORDER_CALL_DONE)
        keep_snapshot(call, ORDER_RESET);
    finish(call, outcome);
}

// Facts are filled anew, nothing is decided: not from inside curl.
static bool may_send(void *arg)
{
    struct reclaim_call *call = arg;
    struct reclaim *reclaim = call->reclaim;
    bool may = false;

    reclaim_fill(reclaim);
    may = order_may_reset(&reclaim->config, &reclaim->facts, reclaim->memory,
                          facts_of(reclaim, call->node)->endpoint) == ORDER_MAY;
    reclaim->counts[RECLAIM_INIT_SENT] += may;
    call->is_sent = outcome_of(call)->is_sent = may;
    return may;
}

static void fail(struct reclaim_call *call, const char *why)
{
    if (call->kind == COMPUTE_INIT) {
        (void)snprintf(call->node->detail, sizeof(call->node->detail), "%.150s", why);
        count_init(call->reclaim, ORDER_CALL_FAILED);
    }
    finish(call, ORDER_CALL_FAILED);
}

static void on_address(const struct resolve_answer *answer, const struct err *err, void *arg)
{
    struct reclaim_call *call = arg;
    struct grpc_compute_order order = {
        .kind = call->kind,
        .address = answer ? answer->addrs[0] : NULL,
        .port = (uint16_t)call->node->port,
        .deadline = call->deadline,
        .may_send = may_send,
        .on_end = on_end,
        .arg = call,
    };
    struct err begun = {0};

    call->query = NULL;
    if (!answer)
        fail(call, err->msg);
    else if (grpc_compute_begin(call->reclaim->computes, &order, clock_now(), &call->call,
                                &begun) < 0)
        fail(call, begun.msg);
}

static void begin(struct reclaim_call *call, uint32_t serial, struct instant deadline)
{
    struct reclaim *reclaim = call->reclaim;
    struct instant now = reclaim->facts.now;

    stop(call);
    call->serial = serial;
    call->deadline = deadline;
    call->is_sent = false;
    call->revision = reclaim->drops.revision;
    call->snapshot = strdup(reclaim->known.state.snapshot);
    if (!call->snapshot)
        abort();
    *outcome_of(call) = (struct order_call){.serial = serial, .outcome = ORDER_CALL_PENDING};
    call->query = resolve_start(reclaim->agent->resolver, call->node->host,
                                instant_since(deadline, now), on_address, call);
}

void calls_init(struct reclaim *reclaim, size_t node, const struct order_node_plan *plan)
{
    begin(&reclaim->nodes[node]->init, plan->init_serial, plan->init_deadline);
}

void calls_stats(struct reclaim *reclaim, size_t node, const struct order_node_plan *plan)
{
    begin(&reclaim->nodes[node]->stats, plan->stats_serial, plan->stats_deadline);
}

// Whether its bytes have left is not asked: what was given up may have been done.
void calls_cancel_init(struct reclaim *reclaim, size_t node)
{
    struct reclaim_call *call = &reclaim->nodes[node]->init;

    if (!is_open(call))
        return;
    reclaim->counts[RECLAIM_INIT_CANCELLED]++;
    finish(call, ORDER_CALL_UNKNOWN);
}

// --- the list's life ---

static void free_node(struct reclaim_node *node)
{
    stop(&node->init);
    stop(&node->stats);
    kills_cancel(node);
    free(node->snapshot);
    free(node);
}

void calls_begin_rows(struct reclaim *reclaim)
{
    for (size_t i = 0; i < reclaim->node_count; i++)
        reclaim->nodes[i]->is_listed = false;
}

void calls_end_rows(struct reclaim *reclaim, bool may_forget)
{
    size_t kept = 0;

    for (size_t i = 0; i < reclaim->node_count; i++) {
        if (may_forget && !reclaim->nodes[i]->is_listed && !reclaim->nodes[i]->is_writing &&
            !reclaim->nodes[i]->is_noting) {
            free_node(reclaim->nodes[i]);
            continue;
        }
        reclaim->nodes[kept] = reclaim->nodes[i];
        reclaim->node_facts[kept++] = reclaim->node_facts[i];
    }
    reclaim->node_count = kept;
}

void calls_free(struct reclaim *reclaim)
{
    for (size_t i = 0; i < reclaim->node_count; i++)
        free_node(reclaim->nodes[i]);
    free(reclaim->nodes);
    free(reclaim->node_facts);
}
