// SPDX-License-Identifier: Apache-2.0
#include "agent/reclaim/known.h"

#include <string.h>
#include <strings.h>

void known_refusal_update(struct known_refusal *refusal, const struct known_state *known)
{
    const struct recovery_state *state = &known->state;

    if (refusal->recovery != state->id || refusal->round != state->round)
        *refusal = (struct known_refusal){.recovery = state->id, .round = state->round};
    if (state->id == 0)
        return;
    if (state->is_waiting)
        refusal->at = known->sent_at;
    else if (state->is_refused && state->refused_ago_ms >= 0)
        refusal->at = instant_add(known->sent_at, -state->refused_ago_ms * NS_PER_MS);
}

enum order_mode known_mode(enum order_mode configured, const struct known_state *known)
{
    enum order_mode mode = ORDER_OFF;

    if (!known->is_known)
        return ORDER_OFF;
    switch (known->state.mode) {
    case RECOVERY_OFF: return ORDER_OFF;
    case RECOVERY_OBSERVE: mode = ORDER_OBSERVE; break;
    case RECOVERY_ENFORCE:
        mode =
            known->state.is_verified && !known->state.is_pooled ? ORDER_ENFORCE : ORDER_OBSERVE;
        break;
    }
    return mode < configured ? mode : configured;
}

bool known_is_weakened(enum order_mode configured, const struct known_state *known)
{
    return configured == ORDER_ENFORCE && known->is_known &&
           known_mode(configured, known) != ORDER_ENFORCE;
}

struct order_marker known_marker(const struct known_state *known, int64_t max_hold_ns)
{
    const struct recovery_state *state = &known->state;

    if (!known->is_known || state->id == 0)
        return (struct order_marker){0};
    // maxHold counts from the first attempt, and what is left of it says when that was.
    return (struct order_marker){
        .id = (uint64_t)state->id,
        .term = state->term,
        .is_global = true,
        .round = state->round,
        .opened_at =
            state->is_hold_known
                ? instant_add(known->sent_at, state->hold_left_ms * NS_PER_MS - max_hold_ns)
                : instant_add(known->sent_at, -state->age_ms * NS_PER_MS),
    };
}

// That the gate does not know of us we know better ourselves: by when our row was written.
static bool is_open(const struct recovery_state *state)
{
    if (state->id == 0)
        return false;
    return state->missing == 0 ||
           (state->policy == RECOVERY_OPEN && state->is_hold_known && state->hold_left_ms == 0);
}

struct order_gate known_gate(const struct known_state *known,
                             const struct known_refusal *refusal, struct instant refreshed_at)
{
    return (struct order_gate){
        .known = known->is_known && known->state.is_catalog_known,
        .sent_at = known->sent_at,
        .is_open = known->is_known && is_open(&known->state),
        .refreshed_at = refreshed_at,
        .refused_at = refusal->at,
    };
}

enum order_death_kind known_predecessor(const struct known_state *known, const char *tag)
{
    if (!known->is_known || !tag[0] || strcmp(known->state.owner_tag, tag) != 0)
        return ORDER_DEATH_NONE;
    switch (known->state.predecessor) {
    case RECOVERY_DEATHS_UNKNOWN: break;
    case RECOVERY_DEATHS_IMPLIED: return ORDER_DEATH_IMPLIED;
    case RECOVERY_DEATHS_CONFIRMED: return ORDER_DEATH_CONFIRMED;
    }
    return ORDER_DEATH_NONE;
}

struct order_death known_death(const struct facts *facts)
{
    const struct fence_death *death = &facts->fence.status.last_death;

    if (!facts->fence.known || facts->methods.by_pidfd || death->incarnation == 0 ||
        !death->engaged || death->incarnation != facts->fence.status.incarnation)
        return (struct order_death){0};
    return (struct order_death){.kind = ORDER_DEATH_CONFIRMED,
                                .at = {death->dead_ns},
                                .incarnation = death->incarnation};
}

static bool is_by_another(const struct facts *facts)
{
    const char *writer = facts->election.heartbeat_tag;
    const struct fence_status *status = &facts->fence.status;

    return writer[0] && strcmp(writer, status->last_death.tag) != 0 &&
           strcmp(writer, status->tag) != 0;
}

struct order_row known_row(const struct core_config *config, const struct facts *facts)
{
    const struct election_fact *election = &facts->election;
    int64_t age_ns = election->age_ns > 0 ? election->age_ns : 0;
    struct order_row row = {.sent_at = election->sent_at};

    if (!election->known || election->row == ROW_BROKEN)
        return row;
    if (election->row == ROW_ABSENT) {
        row.holder = ORDER_ROW_ABSENT;
        return row;
    }
    if (strcasecmp(election->owner_id, config->id) != 0 || is_by_another(facts)) {
        row.holder = ORDER_ROW_OTHER;
        return row;
    }
    row.holder = ORDER_ROW_OURS;
    row.lease_end = instant_add(election->sent_at, config->ttl_ns - age_ns - config->margin_ns);
    return row;
}

bool known_is_current(const struct known_state *known, const struct order_facts *facts)
{
    return facts->meta_runs || facts->death.kind == ORDER_DEATH_NONE ||
           instant_before(facts->death.at, known->sent_at);
}

bool known_meta_runs(const struct facts *facts, uint64_t released)
{
    const struct fence_status *status = &facts->fence.status;

    return !facts->fence.known || (status->flags & SHIM_ALIVE) ||
           status->state != SHIM_HOLDING || status->last_death.incarnation == released;
}

bool known_is_leader(const struct known_own *own, struct instant now)
{
    const struct election_fact *election = &own->facts->election;
    const struct fence_fact *fence = &own->facts->fence;

    return own->plan->rule == RULE_LEADER && fence->known && fence->status.tag[0] &&
           (fence->status.flags & SHIM_ALIVE) && election->term_known &&
           strcmp(election->owner_tag, fence->status.tag) == 0 &&
           fence->status.incarnation == own->memory->incarnation &&
           instant_before(now, own->memory->deadline);
}
