// SPDX-License-Identifier: Apache-2.0
// What is proven of each compute node, and what is asked of it next.
#include <string.h>

#include "agent/recovery/internal.h"

struct order_node_memory *order_find_node(struct order_memory *memory, uint64_t endpoint)
{
    for (uint32_t i = 0; i < memory->node_count; i++)
        if (memory->nodes[i].endpoint == endpoint)
            return &memory->nodes[i];
    return NULL;
}

static struct order_node_memory *remember(struct order_memory *memory, uint64_t endpoint)
{
    struct order_node_memory *known = order_find_node(memory, endpoint);

    if (known || memory->node_count == ORDER_NODES_MAX)
        return known;
    known = &memory->nodes[memory->node_count++];
    *known = (struct order_node_memory){.endpoint = endpoint};
    return known;
}

// --- evidence ---

static void prove(struct order_node_memory *known, enum order_evidence evidence)
{
    if (evidence > known->evidence)
        known->evidence = evidence;
}

// A call that nobody reports the end of is over some time after its deadline.
static bool has_ended(const struct order_turn *turn, const struct order_call *call,
                      uint32_t serial, struct instant deadline)
{
    if (call->serial == serial && call->outcome >= ORDER_CALL_DONE)
        return true;
    return instant_reached(turn->facts->now, instant_add(deadline, turn->config->retry_ns));
}

// Since when the process that is there has an Init. One whose connection broke may have been
// another's.
static void note_asked(const struct order_turn *turn, const struct order_node *node,
                       struct order_node_memory *known)
{
    const struct order_call *init = &node->init;
    struct instant now = turn->facts->now;

    if (!known->init_open || init->serial != known->init_serial)
        return;
    if (init->outcome > ORDER_CALL_DONE && instant_before(now, known->init_deadline))
        known->asked_at.ns = 0;
    else if (init->is_sent && known->asked_at.ns == 0)
        known->asked_at = now;
}

static void take_init(const struct order_turn *turn, const struct order_node *node,
                      struct order_node_memory *known)
{
    note_asked(turn, node, known);
    if (!known->init_open ||
        !has_ended(turn, &node->init, known->init_serial, known->init_deadline))
        return;
    known->init_open = false;
    known->init_at = turn->facts->now;
    if (node->init.serial == known->init_serial && node->init.outcome == ORDER_CALL_DONE)
        prove(known, ORDER_RESET);
}

// Statistics count what runs, not what is being built; and after a removal has passed meta may
// have built.
static bool may_be_none(const struct order_turn *turn)
{
    const struct order_drops *drops = &turn->facts->drops;

    return turn->memory->armed_at.ns != 0 && drops->known && drops->is_complete &&
           !drops->may_build && drops->fragments > 0 && turn->memory->round == 0;
}

static void take_stats(const struct order_turn *turn, const struct order_node *node,
                       struct order_node_memory *known)
{
    uint64_t revision = turn->facts->drops.revision;
    bool is_empty = false;

    if (!known->stats_open ||
        !has_ended(turn, &node->stats, known->stats_serial, known->stats_deadline))
        return;
    known->stats_open = false;
    known->stats_at = turn->facts->now;
    is_empty = node->stats.serial == known->stats_serial &&
               node->stats.outcome == ORDER_CALL_DONE && node->running == 0 &&
               node->revision == revision && may_be_none(turn);
    if (is_empty && known->had_empty_read && known->none_revision == revision)
        prove(known, ORDER_NONE);
    known->had_empty_read = is_empty;
    if (is_empty)
        known->none_revision = revision;
}

// What was dropped since is not in it.
static void void_none(const struct order_turn *turn, struct order_node_memory *known)
{
    const struct order_drops *drops = &turn->facts->drops;

    if (known->evidence != ORDER_NONE || !drops->known ||
        (drops->revision == known->none_revision && !drops->may_build))
        return;
    known->evidence = ORDER_UNKNOWN;
    known->had_empty_read = false;
}

// By order, not by time: who replaces the process of a look within the hold was started after
// that look. A process that is seen for the first time may be as old as the drop.
static void look_at_process(const struct order_turn *turn, const struct order_node *node,
                            struct order_node_memory *known)
{
    if (turn->memory->armed_at.ns == 0 || instant_before(node->seen_at, turn->memory->armed_at))
        return;
    if (node->is_ended)
        prove(known, ORDER_GONE);
    if (node->incarnation == 0)
        return;
    if (known->base == 0)
        known->base = node->incarnation;
    if (known->base != node->incarnation)
        prove(known, ORDER_GONE);
}

static bool is_valid(const struct order_turn *turn, const struct order_node *node)
{
    return node->recorded > ORDER_NONE ||
           (node->recorded == ORDER_NONE &&
            node->recorded_revision == turn->facts->drops.revision);
}

// An agent that has restarted finds what it had proven.
static void take_recorded(const struct order_turn *turn, const struct order_node *node,
                          struct order_node_memory *known)
{
    if (turn->memory->cause != ORDER_RECOVERY || !is_valid(turn, node))
        return;
    if (node->recorded == ORDER_NONE)
        known->none_revision = node->recorded_revision;
    prove(known, node->recorded);
}

static bool is_recorded(const struct order_turn *turn, const struct order_node *node,
                        const struct order_node_memory *known)
{
    return node->recorded >= known->evidence && is_valid(turn, node);
}

// --- acts ---

static bool is_due(const struct order_turn *turn, struct instant last, int64_t after_ns)
{
    struct instant due = instant_add(last, after_ns);

    if (last.ns == 0 || instant_reached(turn->facts->now, due))
        return true;
    order_wake(turn, due);
    return false;
}

static void plan_init(const struct order_turn *turn, struct order_node_memory *known,
                      struct order_node_plan *plan)
{
    const struct order_config *config = turn->config;
    // Not the age of our own row: that is renewed meanwhile, or the Init stopped.
    struct instant end =
        turn->memory->cause == ORDER_TAKEOVER
            ? order_hold_end(config, turn->facts, turn->memory)
            : instant_add(order_bound(config, turn->facts), -config->margin_ns);

    if (!is_due(turn, known->init_at, config->retry_ns))
        return;
    plan->init_deadline =
        instant_min(end, instant_add(turn->facts->now, config->init_timeout_ns));
    plan->init_serial = known->init_serial = ++turn->memory->serial;
    plan->acts |= ORDER_SEND_INIT;
    known->init_open = true;
    known->init_at = turn->facts->now;
    known->init_deadline = plan->init_deadline;
}

static void plan_stats(const struct order_turn *turn, struct order_node_memory *known,
                       struct order_node_plan *plan)
{
    if (known->stats_open || !may_be_none(turn) ||
        !is_due(turn, known->stats_at, turn->config->recheck_ns))
        return;
    plan->stats_deadline = instant_add(turn->facts->now, turn->config->stats_timeout_ns);
    plan->stats_serial = known->stats_serial = ++turn->memory->serial;
    plan->acts |= ORDER_ASK_STATS;
    known->stats_open = true;
    known->stats_at = turn->facts->now;
    known->stats_deadline = plan->stats_deadline;
}

static void plan_fence(const struct order_turn *turn, const struct order_node *node,
                       struct order_node_memory *known, struct order_node_plan *plan)
{
    if (turn->config->may_fence_nodes && known->asked_at.ns != 0)
        (void)is_due(turn, known->asked_at, turn->config->kill_after_ns); // wakes us then
    if (!order_may_fence(turn->config, turn->facts, turn->memory, node) ||
        !is_due(turn, known->fenced_at, turn->config->retry_ns))
        return;
    plan->acts |= ORDER_FENCE_NODE;
    known->fenced_at = turn->facts->now;
}

// Before it is written, an Init that is under way has to be over: with the last acknowledgement
// the gate opens.
static void plan_write(const struct order_turn *turn, const struct order_node *node,
                       struct order_node_memory *known, struct order_node_plan *plan)
{
    enum order_block block = turn->plan->block;

    if (known->init_open) {
        plan->acts |= ORDER_CANCEL_INIT;
        return;
    }
    if (turn->memory->cause != ORDER_RECOVERY || is_recorded(turn, node, known))
        return;
    if (order_must_stop(block) && block != ORDER_RUNNING && block != ORDER_HOLD_OVER)
        return;
    if (!is_due(turn, known->written_at, turn->config->retry_ns))
        return;
    plan->acts |= ORDER_WRITE;
    known->written_at = turn->facts->now;
}

static void plan_acts(const struct order_turn *turn, const struct order_node *node,
                      struct order_node_memory *known, struct order_node_plan *plan)
{
    enum order_block block = turn->plan->block;

    plan->evidence = known->evidence;
    plan->revision = known->none_revision;
    if (known->evidence != ORDER_UNKNOWN) {
        plan_write(turn, node, known, plan);
        return;
    }
    if (known->init_open)
        order_wake(turn, instant_add(known->init_deadline, turn->config->retry_ns));
    if (known->stats_open)
        order_wake(turn, instant_add(known->stats_deadline, turn->config->retry_ns));
    if (order_must_stop(block))
        return;
    plan_stats(turn, known, plan);
    if (block != ORDER_MAY)
        return;
    if (!known->init_open)
        plan_init(turn, known, plan);
    plan_fence(turn, node, known, plan);
}

static bool is_listed(const struct order_facts *facts, uint64_t endpoint)
{
    for (uint32_t i = 0; i < facts->node_count; i++)
        if (facts->nodes[i].endpoint == endpoint)
            return true;
    return false;
}

uint32_t order_plan_nodes(const struct order_turn *turn)
{
    const struct order_facts *facts = turn->facts;
    struct order_plan *plan = turn->plan;
    uint32_t unrecorded = 0;

    for (uint32_t i = 0; i < facts->node_count && i < ORDER_NODES_MAX; i++) {
        const struct order_node *node = &facts->nodes[i];
        struct order_node_memory *known = remember(turn->memory, node->endpoint);

        if (!known) {
            plan->evidence[ORDER_UNKNOWN]++;
            continue;
        }
        take_init(turn, node, known);
        take_stats(turn, node, known);
        look_at_process(turn, node, known);
        take_recorded(turn, node, known);
        void_none(turn, known);
        plan_acts(turn, node, known, &plan->nodes[i]);
        plan->evidence[known->evidence]++;
        unrecorded += known->evidence != ORDER_UNKNOWN && !is_recorded(turn, node, known);
    }
    for (uint32_t i = 0; i < turn->memory->node_count; i++)
        plan->unlisted += turn->memory->nodes[i].evidence == ORDER_UNKNOWN &&
                          !is_listed(facts, turn->memory->nodes[i].endpoint);
    return unrecorded;
}
