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

// A proven leader of ours, with metafence-run to kill it and to hold its next start.
static bool is_leader_of(const struct turn *turn, uint64_t incarnation)
{
    const struct core_memory *memory = turn->memory;

    return is_proven(turn) && turn->status && memory->armed && memory->engaged &&
           memory->incarnation != 0 && memory->incarnation == incarnation;
}

// An operator's order. Its row stays, so that nobody leads before the lease is over.
bool rule_handover_holds(const struct turn *turn)
{
    return is_leader_of(turn, turn->facts->orders.handover);
}

void rule_handover_fill(struct turn *turn)
{
    plan_kill(turn, FENCE_REASON_HANDOVER, 0);
}

// The one exception to "a healthy leader is never killed" unasked. What its memory holds of the
// workers is not what the table says, no call can mend that, and its next recovery would abort
// it; the same id takes the lease again at once, and loads the table anew.
bool rule_diverged_leader_holds(const struct turn *turn)
{
    return is_leader_of(turn, turn->facts->workers.diverged_incarnation);
}

void rule_diverged_leader_fill(struct turn *turn)
{
    plan_kill(turn, FENCE_REASON_DIVERGED_LEADER, 0);
}

bool rule_leader_holds(const struct turn *turn)
{
    return is_proven(turn);
}

// A row with our id may be a twin's: until metafence-run has named an incarnation there is none
// of ours that could lead, and nobody is shown as the leader for it. Its last word outlives it.
static bool may_be_ours(const struct turn *turn)
{
    return turn->memory->incarnation != 0 || turn->facts->methods.by_pidfd;
}

void rule_leader_fill(struct turn *turn)
{
    plan_permit(turn, may_be_ours(turn) ? LABEL_LEADER : LABEL_UNKNOWN);
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
