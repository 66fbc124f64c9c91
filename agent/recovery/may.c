// SPDX-License-Identifier: Apache-2.0
// The one precondition of an Init, and the hold that it belongs to.
#include "agent/recovery/internal.h"

#define STATUS_RUNNING 3

enum order_cause order_cause_of(const struct order_facts *facts)
{
    if (facts->is_leader && facts->marker.id != 0 && facts->marker.is_global)
        return ORDER_RECOVERY;
    if (facts->death.kind != ORDER_DEATH_NONE && !facts->meta_runs)
        return ORDER_TAKEOVER;
    return ORDER_CAUSE_NONE;
}

uint64_t order_hold_of(const struct order_facts *facts, enum order_cause cause)
{
    return cause == ORDER_RECOVERY ? facts->marker.id : facts->death.incarnation;
}

struct instant order_bound(const struct order_config *config, const struct order_facts *facts)
{
    return config->holds_on ? INSTANT_NEVER
                            : instant_add(facts->marker.opened_at, config->max_hold_ns);
}

struct instant order_hold_end(const struct order_config *config,
                              const struct order_facts *facts,
                              const struct order_memory *memory)
{
    struct instant start = instant_add(facts->death.at, config->reset_before_start_ns);
    struct instant stale = instant_add(facts->gate.refreshed_at, config->gate_stale_ns);

    if (memory->cause != ORDER_TAKEOVER)
        return instant_add(instant_min(order_bound(config, facts), stale), -config->margin_ns);
    return facts->row.holder == ORDER_ROW_OURS ? instant_min(start, facts->row.lease_end)
                                               : start;
}

struct instant order_covered_at(const struct order_config *config,
                                const struct order_facts *facts,
                                const struct order_memory *memory)
{
    struct instant last = facts->gate.refreshed_at;
    int64_t gap_ns = instant_since(last, memory->refreshed_at);

    return memory->refreshed_at.ns == 0 || gap_ns >= config->gate_stale_ns - config->margin_ns
               ? last
               : memory->covered_at;
}

static bool is_fresh(const struct order_config *config, const struct order_facts *facts,
                     struct instant sent_at)
{
    return instant_since(facts->now, sent_at) <= config->fresh_ns;
}

// No meta leads: the old leader is dead, and the row read after that names no other id.
static enum order_block takeover_block(const struct order_config *config,
                                       const struct order_facts *facts,
                                       const struct order_memory *memory)
{
    const struct order_row *row = &facts->row;

    if (facts->meta_runs || facts->death.kind == ORDER_DEATH_NONE)
        return ORDER_META_LIVES;
    if (row->holder == ORDER_ROW_OTHER)
        return ORDER_ANOTHER_LEADS;
    if (facts->predecessor == ORDER_DEATH_NONE)
        return ORDER_PREDECESSOR_LIVES;
    if (instant_reached(facts->now, order_hold_end(config, facts, memory)))
        return ORDER_HOLD_OVER;
    if (row->holder == ORDER_ROW_UNKNOWN || !instant_before(facts->death.at, row->sent_at))
        return ORDER_ROW_UNREAD;
    return row->holder == ORDER_ROW_OURS ? ORDER_MAY : ORDER_NO_LEASE;
}

// The leader beside us recovers, and a removal of its is refused at this moment: it holds no
// control stream, and can't get one before the gate opens.
static enum order_block recovery_block(const struct order_config *config,
                                       const struct order_facts *facts,
                                       const struct order_memory *memory)
{
    const struct order_gate *gate = &facts->gate;
    bool is_status_read = facts->status.value != 0 &&
                          !instant_before(facts->status.sent_at, memory->began) &&
                          is_fresh(config, facts, facts->status.sent_at);

    if (!facts->is_leader || facts->marker.term != facts->term)
        return ORDER_NOT_LEADER;
    if (facts->predecessor == ORDER_DEATH_NONE)
        return ORDER_PREDECESSOR_LIVES;
    if (gate->is_open || memory->was_open)
        return ORDER_GATE_OPEN;
    if (is_status_read && facts->status.value >= STATUS_RUNNING)
        return ORDER_RUNNING;
    if (instant_reached(facts->now, order_hold_end(config, facts, memory)))
        return ORDER_HOLD_OVER;
    if (!gate->known || !is_fresh(config, facts, gate->sent_at) ||
        !instant_before(order_covered_at(config, facts, memory), gate->sent_at))
        return ORDER_STATE_UNREAD;
    if (!is_status_read)
        return ORDER_STATUS_UNREAD;
    if (gate->refused_at.ns == 0 ||
        instant_since(facts->now, gate->refused_at) > config->refusal_ns)
        return ORDER_NOT_REFUSED;
    return ORDER_MAY;
}

enum order_block order_hold_block(const struct order_config *config,
                                  const struct order_facts *facts,
                                  const struct order_memory *memory)
{
    enum order_cause cause = order_cause_of(facts);

    if (facts->mode != ORDER_ENFORCE)
        return ORDER_NOT_ENFORCED;
    if (memory->cause == ORDER_RECOVERY && !facts->is_leader)
        return ORDER_NOT_LEADER;
    if (memory->cause == ORDER_TAKEOVER && facts->meta_runs)
        return ORDER_META_LIVES;
    if (cause == ORDER_CAUSE_NONE || cause != memory->cause ||
        order_hold_of(facts, cause) != memory->hold ||
        (cause == ORDER_RECOVERY && facts->marker.round != memory->round))
        return ORDER_NO_HOLD;
    return cause == ORDER_TAKEOVER ? takeover_block(config, facts, memory)
                                   : recovery_block(config, facts, memory);
}

enum order_block order_may_reset(const struct order_config *config,
                                 const struct order_facts *facts,
                                 const struct order_memory *memory, uint64_t endpoint)
{
    enum order_block block = order_hold_block(config, facts, memory);

    for (uint32_t i = 0; i < memory->node_count && block == ORDER_MAY; i++)
        if (memory->nodes[i].endpoint == endpoint && memory->nodes[i].evidence != ORDER_UNKNOWN)
            block = ORDER_ACKNOWLEDGED;
    return block;
}

// Of the process that was asked, and only while it could be asked again: a node's end outside
// of a recovery is the cause of one. The start of our own meta is not worth one either.
bool order_may_fence(const struct order_config *config, const struct order_facts *facts,
                     const struct order_memory *memory, const struct order_node *node)
{
    const struct order_node_memory *known = NULL;

    for (uint32_t i = 0; i < memory->node_count && !known; i++)
        if (memory->nodes[i].endpoint == node->endpoint)
            known = &memory->nodes[i];
    if (!config->may_fence_nodes || memory->cause != ORDER_RECOVERY || !known)
        return false;
    if (!node->can_fence || known->base == 0 || node->incarnation != known->base)
        return false;
    if (known->asked_at.ns == 0 ||
        !instant_reached(facts->now, instant_add(known->asked_at, config->kill_after_ns)))
        return false;
    return order_may_reset(config, facts, memory, node->endpoint) == ORDER_MAY;
}
