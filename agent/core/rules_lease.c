// SPDX-License-Identifier: Apache-2.0
// The lease has run out, or it is held by a process that does nothing with it.
#include "agent/core/core.h"

bool rule_lease_expired_holds(const struct turn *turn)
{
    return turn->alive && turn->memory->engaged && turn->memory->armed &&
           instant_reached(turn->facts->now, lease_end(turn)) && lease_hold(turn) == 0;
}

void rule_lease_expired_fill(struct turn *turn)
{
    plan_kill(turn, FENCE_REASON_LEASE_EXPIRED, 0);
}

static bool has_lasted(const struct turn *turn, struct instant since, int64_t after_ns)
{
    return since.ns != 0 && instant_reached(turn->facts->now, instant_add(since, after_ns));
}

bool rule_phantom_leader_holds(const struct turn *turn)
{
    const struct core_memory *memory = turn->memory;

    if (memory->phantom_held)
        return true;
    if (!turn->status || !turn->alive)
        return false;
    return has_lasted(turn, memory->ours_unimplemented_since, turn->config->phantom_after_ns) ||
           has_lasted(turn, memory->promoting_since, turn->config->promote_after_ns);
}

void rule_phantom_leader_fill(struct turn *turn)
{
    plan_kill(turn, FENCE_REASON_PHANTOM_LEADER, FENCE_ORDER_PHANTOM_HOLD);
}
