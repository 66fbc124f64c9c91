// SPDX-License-Identifier: Apache-2.0
// What an operator asked for goes before everything that was observed.
#include "agent/core/core.h"

bool rule_manual_fence_holds(const struct turn *turn)
{
    return turn->facts->orders.manual_fence;
}

void rule_manual_fence_fill(struct turn *turn)
{
    plan_kill(turn, FENCE_REASON_MANUAL, FENCE_ORDER_MANUAL_HOLD);
    // Wanted whether or not we have already heard of the death. Before the first start there is
    // no incarnation to kill: the hold alone keeps it down.
    if (turn->memory->incarnation == 0)
        return;
    turn->plan->order.role = FENCE_ROLE_KILL;
    turn->plan->order.reason = FENCE_REASON_MANUAL;
}

bool rule_paused_holds(const struct turn *turn)
{
    return turn->paused;
}
