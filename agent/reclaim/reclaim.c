// SPDX-License-Identifier: Apache-2.0
#include "agent/reclaim/reclaim.h"

#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/reclaim/parts.h"

// --- facts ---

static void fill_own(struct reclaim *reclaim)
{
    const struct agent *agent = reclaim->agent;
    const struct known_own own = {&agent->facts, &agent->memory, &agent->plan};
    struct order_facts *facts = &reclaim->facts;
    const struct fence_status *status = &agent->facts.fence.status;

    facts->meta_runs = known_meta_runs(&agent->facts, reclaim->released);
    facts->is_leader = known_is_leader(&own, facts->now);
    facts->term = agent->facts.election.term;
    facts->death = known_death(&agent->facts);
    facts->row = known_row(&agent->config.core, &agent->facts);
    facts->predecessor = known_predecessor(
        &reclaim->known, facts->is_leader ? status->tag : status->last_death.tag);
    if (!facts->is_leader)
        facts->status = (struct order_status){0}; // of a leader that is no more
}

// Outside of a recovery the rows are read only where there are some.
static struct order_drops drops_of(const struct reclaim *reclaim)
{
    const struct recovery_state *state = &reclaim->known.state;
    bool is_nothing = reclaim->known.is_known && state->is_catalog_known && state->id == 0 &&
                      state->dropped == 0 && state->creating == 0;

    if (!reclaim->rows_known && is_nothing)
        return (struct order_drops){.known = true, .is_complete = true};
    return drops_facts(reclaim->rows_known ? &reclaim->drops : NULL, state);
}

void reclaim_fill(struct reclaim *reclaim)
{
    const struct known_state *known = &reclaim->known;
    struct order_facts *facts = &reclaim->facts;

    facts->now = clock_now();
    facts->mode = known_mode(reclaim->agent->config.recovery.mode, known);
    fill_own(reclaim);
    facts->marker = known_marker(known, reclaim->config.max_hold_ns);
    facts->gate = known_gate(known, &reclaim->refusal, reclaim->refreshed_at);
    facts->drops = drops_of(reclaim);
    facts->nodes_known = reclaim->rows_known && known_is_current(known, facts);
    facts->nodes = reclaim->node_facts;
    facts->node_count = (uint32_t)reclaim->node_count;
    planned_facts(&reclaim->agent->planned, facts);
}

bool reclaim_is_leading(const struct reclaim *reclaim)
{
    return reclaim && reclaim->facts.is_leader;
}

// --- turns ---

void reclaim_before_turn(struct reclaim *reclaim)
{
    struct facts *facts = NULL;

    if (!reclaim)
        return;
    facts = &reclaim->agent->facts;
    // From the very first order after the death on: the one with the first read lets it start.
    facts->recovery.holds_start =
        known_mode(reclaim->agent->config.recovery.mode, &reclaim->known) == ORDER_ENFORCE &&
        known_death(facts).kind != ORDER_DEATH_NONE &&
        !known_meta_runs(facts, reclaim->released);
}

struct instant reclaim_turn(struct reclaim *reclaim)
{
    if (!reclaim)
        return INSTANT_NEVER;
    reclaim_fill(reclaim);
    order_decide(&reclaim->config, &reclaim->facts, reclaim->memory, reclaim->plan);
    deeds_run(reclaim);
    planned_turn(reclaim->agent, reclaim->plan, &reclaim->facts.drops);
    tell_turn(reclaim);
    look_turn(reclaim);
    pods_turn(reclaim);
    return reclaim->plan->wake_at;
}

// --- life ---

static struct order_config config_of(const struct config *config)
{
    struct order_config order = ORDER_CONFIG;

    order.holds_on = config->recovery.policy == RECOVERY_POLICY_HOLD;
    order.max_hold_ns = config->recovery.max_hold_ns;
    order.reset_before_start_ns = config->recovery.reset_before_start_ns;
    order.init_timeout_ns = config->recovery.init_timeout_ns;
    order.may_fence_nodes = config->recovery.kill_nodes;
    order.kill_after_ns = config->recovery.kill_after_ns;
    order.margin_ns = RECLAIM_MARGIN_NS;
    order.gate_stale_ns = RECLAIM_GATE_NS;
    return order;
}

struct reclaim *reclaim_new(struct agent *agent)
{
    struct reclaim *reclaim = NULL;

    if (agent->config.recovery.mode == ORDER_OFF || !agent->has_database)
        return NULL;
    reclaim = calloc(1, sizeof(*reclaim));
    if (!reclaim)
        abort();
    reclaim->memory = calloc(1, sizeof(*reclaim->memory));
    reclaim->plan = calloc(1, sizeof(*reclaim->plan));
    if (!reclaim->memory || !reclaim->plan)
        abort();
    reclaim->agent = agent;
    reclaim->config = config_of(&agent->config);
    reclaim->computes = grpc_computes_new(agent->loop);
    look_begin(reclaim);
    tell_metrics(reclaim);
    return reclaim;
}

void reclaim_free(struct reclaim *reclaim)
{
    if (!reclaim)
        return;
    look_end(reclaim);
    pods_stop(reclaim);
    calls_free(reclaim);
    grpc_computes_free(reclaim->computes);
    free(reclaim->memory);
    free(reclaim->plan);
    free(reclaim);
}
