// SPDX-License-Identifier: Apache-2.0
// What the order has planned.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/reclaim/parts.h"
#include "base/buf.h"
#include "base/log.h"

// --- acknowledgements ---

static void on_written(int64_t count, const struct pg_fault *fault, void *arg)
{
    struct reclaim_node *node = arg;
    struct reclaim *reclaim = node->init.reclaim;

    node->is_writing = false;
    reclaim->counts[fault || count == 0 ? RECLAIM_WRITE_FAILED : RECLAIM_WRITTEN]++;
    if (fault)
        log_warn("recovery: an acknowledgement was not recorded", kv_str("host", node->host),
                 kv_int("worker_id", node->worker_id), kv_err(&fault->err));
    else if (count > 0 && node->writing_how == ORDER_NONE)
        node->none_revision = node->writing_revision;
    agent_feed(reclaim->agent);
}

static enum recovery_how how_of(enum order_evidence evidence)
{
    if (evidence == ORDER_RESET)
        return RECOVERY_RESET;
    return evidence == ORDER_GONE ? RECOVERY_GONE : RECOVERY_NONE;
}

static void put_evidence(const struct reclaim *reclaim, const struct reclaim_node *node,
                         enum order_evidence evidence, struct buf *out)
{
    static const char *const by[ORDER_EVIDENCES] = {
        [ORDER_UNKNOWN] = "nothing",
        [ORDER_NONE] = "GetStreamingStats, twice",
        [ORDER_GONE] = "its pod",
        [ORDER_RESET] = "InitResponse",
    };

    buf_puts(out, "{\"by\":");
    buf_put_json(out, by[evidence]);
    buf_puts(out, ",\"agent\":");
    buf_put_json(out, reclaim->agent->config.core.id);
    if (evidence == ORDER_GONE && node->kill.agreed_at.ns != 0) {
        buf_puts(out, ",\"killed\":");
        buf_put_json(out, node->kill.uid);
    }
    buf_printf(out, ",\"fragments\":%zu}", reclaim->drops.fragment_count);
}

static void write_evidence(struct reclaim *reclaim, struct reclaim_node *node,
                           const struct order_node_plan *plan)
{
    struct buf evidence = {0};
    struct err err = {0};
    struct recovery_ack ack = {
        .recovery = (int64_t)reclaim->facts.marker.id,
        .worker_id = node->worker_id,
        .host = node->host,
        .port = node->port,
        .how = how_of(plan->evidence),
        .snapshot = plan->evidence == ORDER_GONE           ? reclaim->pods_snapshot
                    : node->snapshot_how == plan->evidence ? node->snapshot
                                                           : NULL,
    };

    if (node->is_writing || !reclaim->election)
        return;
    put_evidence(reclaim, node, plan->evidence, &evidence);
    ack.evidence = buf_str(&evidence);
    node->writing_how = plan->evidence;
    node->writing_revision = plan->revision;
    node->is_writing =
        recovery_acknowledge(reclaim->election, &ack, on_written, node, &err) == 0;
    buf_done(&evidence);
}

// --- nodes ---

static void run_node(struct reclaim *reclaim, size_t index)
{
    const struct order_node_plan *plan = &reclaim->plan->nodes[index];

    if (plan->acts & ORDER_CANCEL_INIT)
        calls_cancel_init(reclaim, index);
    if (plan->acts & ORDER_SEND_INIT)
        calls_init(reclaim, index, plan);
    if (plan->acts & ORDER_ASK_STATS)
        calls_stats(reclaim, index, plan);
    if (plan->acts & ORDER_FENCE_NODE)
        kills_begin(reclaim, index);
    if (plan->acts & ORDER_WRITE)
        write_evidence(reclaim, reclaim->nodes[index], plan);
}

// What was proven in another hold is of no use in this one.
static void forget_hold(struct reclaim *reclaim)
{
    const struct order_memory *memory = reclaim->memory;

    if (reclaim->cause == memory->cause && reclaim->hold == memory->hold &&
        reclaim->round == memory->round)
        return;
    reclaim->cause = memory->cause;
    reclaim->hold = memory->hold;
    reclaim->round = memory->round;
    reclaim->said_bound = false;
    ends_stop(reclaim);
    for (size_t i = 0; i < reclaim->node_count; i++) {
        struct reclaim_node *node = reclaim->nodes[i];

        free(node->snapshot);
        node->snapshot = NULL;
        node->snapshot_how = ORDER_UNKNOWN;
        node->none_revision = 0;
        node->said = ORDER_UNKNOWN;
        node->base_pod = 0;
        node->was_ended = false;
        kills_forget(node);
        node->detail[0] = '\0';
    }
}

static void stop_calls(struct reclaim *reclaim)
{
    for (size_t i = 0; i < reclaim->node_count; i++) {
        calls_cancel_init(reclaim, i);
        kills_cancel(reclaim->nodes[i]);
    }
}

// --- the start ---

// Once it was allowed it may happen at any moment: no Init of this hold is sent any more.
static void release_start(struct reclaim *reclaim)
{
    const struct order_facts *facts = &reclaim->facts;

    if (facts->death.kind == ORDER_DEATH_NONE || facts->meta_runs || reclaim->plan->hold_start)
        return;
    reclaim->released = facts->death.incarnation;
    agent_feed(reclaim->agent);
}

void deeds_run(struct reclaim *reclaim)
{
    const struct order_plan *plan = reclaim->plan;

    if (plan->stop)
        stop_calls(reclaim);
    forget_hold(reclaim);
    for (size_t i = 0; i < reclaim->node_count && i < ORDER_NODES_MAX; i++)
        run_node(reclaim, i);
    release_start(reclaim);
}
