// SPDX-License-Identifier: Apache-2.0
// Nothing speaks against our incarnation: what is it, and what may it do until when.
#include "agent/core/core.h"

// Our row, seen to be renewed by our incarnation, and the proof still runs.
static bool is_proven(const struct turn *turn)
{
    return turn->alive && turn->by_us && turn->memory->heartbeat_advanced &&
           turn->memory->deadline.ns != 0 &&
           instant_before(turn->facts->now, turn->memory->deadline);
}

bool rule_promoting_holds(const struct turn *turn)
{
    return is_proven(turn) && fact_promoting(turn);
}

void rule_promoting_fill(struct turn *turn)
{
    plan_permit(turn, LABEL_UNKNOWN);
}

bool rule_leader_holds(const struct turn *turn)
{
    return is_proven(turn);
}

void rule_leader_fill(struct turn *turn)
{
    plan_permit(turn, LABEL_LEADER);
}

// The label speaks of a live process: what is down is no follower.
bool rule_follower_holds(const struct turn *turn)
{
    return turn->good && turn->row == ROW_OTHER && turn->alive && !turn->memory->engaged;
}

void rule_follower_fill(struct turn *turn)
{
    plan_permit(turn, LABEL_FOLLOWER);
}

bool rule_row_broken_holds(const struct turn *turn)
{
    return turn->usable && turn->row == ROW_BROKEN;
}

void rule_row_broken_fill(struct turn *turn)
{
    plan_permit(turn, LABEL_UNKNOWN);
}

bool rule_unknown_holds(const struct turn *turn)
{
    (void)turn;
    return true;
}

void rule_unknown_fill(struct turn *turn)
{
    plan_permit(turn, LABEL_UNKNOWN);
}
