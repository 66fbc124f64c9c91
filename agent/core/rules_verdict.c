// SPDX-License-Identifier: Apache-2.0
// Verdicts that an authoritative row, or the API server, speaks about our incarnation. None of
// them can come from an error, and none from a read that is older than the engagement that it
// judges.
#include "agent/core/core.h"

#include <string.h>

// Alive, seen to lead, and this pod's agent has completed a good read.
static bool is_acting(const struct turn *turn)
{
    return turn->alive && turn->memory->engaged && turn->memory->armed;
}

static bool differs(uint64_t ours, uint64_t seen)
{
    return ours != 0 && seen != 0 && ours != seen;
}

// The identity and the term are not the row's: they are as true beside a broken one. After a
// failover that lost seconds nobody would end the lost term's leader before the row is whole.
bool rule_database_replaced_holds(const struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;
    const struct core_memory *memory = turn->memory;

    if (!is_acting(turn) || !turn->timely)
        return false;
    return differs(memory->system_id, election->system_id) ||
           differs(memory->timeline, election->timeline) ||
           (election->term_known && election->term < memory->term);
}

void rule_database_replaced_fill(struct turn *turn)
{
    plan_kill(turn, FENCE_REASON_DATABASE_REPLACED, 0);
}

bool rule_superseded_holds(const struct turn *turn)
{
    return turn->alive && turn->memory->armed && turn->memory->superseded;
}

void rule_superseded_fill(struct turn *turn)
{
    plan_kill(turn, FENCE_REASON_SUPERSEDED, 0);
}

// Another known session owns the term under our id. Not our own predecessor in this pod: right
// after a restart the row is still full of the dead one's tag.
static bool is_owned_by_twin(const struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;

    return election->term_known && fact_is_foreign_tag(turn, election->owner_tag) &&
           strcmp(election->owner_tag, turn->status->last_death.tag) != 0;
}

// Which of two is the newer one is Postgres' word alone: the term's owner is the last tag
// registered.
static bool twin_is_newer(const struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;

    if (!is_owned_by_twin(turn))
        return false;
    if (fact_tag_answers(turn) && election->tag_owned_term)
        return true;
    return turn->evidence && turn->memory->foreign_advanced && !turn->facts->api.known &&
           strcmp(election->owner_tag, election->heartbeat_tag) == 0;
}

bool rule_twin_identity_holds(const struct turn *turn)
{
    if (turn->memory->twin_held)
        return true;
    if (!turn->status || !turn->alive || !turn->memory->armed || !turn->good ||
        turn->row != ROW_OURS)
        return false;
    if (turn->facts->api.known && turn->facts->api.lists_other_uid)
        return true;
    return twin_is_newer(turn);
}

void rule_twin_identity_fill(struct turn *turn)
{
    plan_kill(turn, FENCE_REASON_TWIN_IDENTITY, FENCE_ORDER_TWIN_HOLD);
}
