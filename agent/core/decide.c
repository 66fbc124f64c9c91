// SPDX-License-Identifier: Apache-2.0
#include "agent/core/core.h"

#include <stddef.h>

static const struct {
    const char *name;
    rule_holds *holds;
    rule_fill *fill; // NULL: the next rule that holds fills the plan
} rules[RULE_COUNT] = {
    [RULE_MANUAL_FENCE] = {"ManualFence", rule_manual_fence_holds, rule_manual_fence_fill},
    [RULE_PAUSED] = {"Paused", rule_paused_holds, NULL},
    [RULE_DATABASE_REPLACED] = {"DatabaseReplaced", rule_database_replaced_holds,
                                rule_database_replaced_fill},
    [RULE_SUPERSEDED] = {"Superseded", rule_superseded_holds, rule_superseded_fill},
    [RULE_TWIN_IDENTITY] = {"TwinIdentity", rule_twin_identity_holds, rule_twin_identity_fill},
    [RULE_LEASE_EXPIRED] = {"LeaseExpired", rule_lease_expired_holds, rule_lease_expired_fill},
    [RULE_PHANTOM_LEADER] = {"PhantomLeader", rule_phantom_leader_holds,
                             rule_phantom_leader_fill},
    [RULE_PROMOTING] = {"Promoting", rule_promoting_holds, rule_promoting_fill},
    [RULE_HANDOVER] = {"Handover", rule_handover_holds, rule_handover_fill},
    [RULE_DIVERGED_LEADER] = {"DivergedLeader", rule_diverged_leader_holds,
                              rule_diverged_leader_fill},
    [RULE_LEADER] = {"Leader", rule_leader_holds, rule_leader_fill},
    [RULE_FOLLOWER] = {"Follower", rule_follower_holds, rule_follower_fill},
    [RULE_ROW_BROKEN] = {"RowBroken", rule_row_broken_holds, rule_row_broken_fill},
    [RULE_UNKNOWN] = {"Unknown", rule_unknown_holds, rule_unknown_fill},
};

const char *rule_name(enum rule rule)
{
    return rule < RULE_COUNT ? rules[rule].name : "None";
}

// The last rule always holds.
static enum rule first_rule(const struct turn *turn, enum rule from)
{
    while (!rules[from].holds(turn))
        from++;
    return from;
}

static void apply_rules(struct turn *turn)
{
    enum rule rule = first_rule(turn, RULE_MANUAL_FENCE);
    enum rule under = rule;

    if (!rules[rule].fill)
        under = first_rule(turn, rule + 1);
    rules[under].fill(turn);
    if (under != rule)
        plan_spare(turn);
    turn->plan->rule = rule;
    turn->memory->last_rule = rule;
    // A hold outlives the evidence that started it; memory_update() knows what ends it.
    if (rule == RULE_TWIN_IDENTITY)
        turn->memory->twin_held = true;
    if (rule == RULE_PHANTOM_LEADER)
        turn->memory->phantom_held = true;
}

// Its last word counts; what we have proven ourselves counts more.
static bool may_be_alive(const struct facts *facts)
{
    const struct fence_status *status = &facts->fence.status;

    if (facts->proven.incarnation != 0 && facts->proven.incarnation == status->incarnation)
        return false;
    return !facts->fence.known || (status->incarnation != 0 && (status->flags & SHIM_ALIVE));
}

void decide(const struct core_config *config, const struct facts *facts,
            struct core_memory *memory, struct plan *ret_plan)
{
    const struct fence_status *status = facts->fence.known ? &facts->fence.status : NULL;
    struct turn turn = {
        .config = config,
        .facts = facts,
        .memory = memory,
        .plan = ret_plan,
        .status = status,
        .alive = may_be_alive(facts),
        .paused = instant_before(facts->now, facts->orders.pause_end),
    };

    *ret_plan = (struct plan){0};
    memory_update(&turn);
    apply_rules(&turn);
    plan_finish(&turn);
}
