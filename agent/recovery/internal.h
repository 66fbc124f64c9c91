// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to agent/recovery.

#include "agent/recovery/order.h"

// What a turn works with.
struct order_turn {
    const struct order_config *config;
    const struct order_facts *facts;
    struct order_memory *memory;
    struct order_plan *plan;
};

static inline void order_wake(const struct order_turn *turn, struct instant t)
{
    if (instant_before(turn->facts->now, t))
        turn->plan->wake_at = instant_min(turn->plan->wake_at, t);
}

// --- may.c ---

enum order_cause order_cause_of(const struct order_facts *facts);
// Of the facts' cause.
uint64_t order_hold_of(const struct order_facts *facts, enum order_cause cause);
// What order_may_reset() says of all nodes.
enum order_block order_hold_block(const struct order_config *config,
                                  const struct order_facts *facts,
                                  const struct order_memory *memory);
// When the last Init has to be over.
struct instant order_hold_end(const struct order_config *config,
                              const struct order_facts *facts,
                              const struct order_memory *memory);
// Since when our row at the gate has no gap.
struct instant order_covered_at(const struct order_config *config,
                                const struct order_facts *facts,
                                const struct order_memory *memory);
// When the gate opens by itself; NEVER: it does not.
struct instant order_bound(const struct order_config *config, const struct order_facts *facts);

// --- node.c ---

struct order_node_memory *order_find_node(struct order_memory *memory, uint64_t endpoint);
// Evidence and acts of all nodes, and the counts. Returns how many have evidence that is not
// recorded.
uint32_t order_plan_nodes(const struct order_turn *turn);

// --- request.c ---

// `recover` and `handover`, on top of what is planned for the hold.
void order_plan_request(const struct order_turn *turn);
