// SPDX-License-Identifier: Apache-2.0
// memory: takes what is new in the facts into memory, in this order: the incarnation, the state
// of the read, engagement, the read itself, what follows from it, timers, releases. Same facts
// again: no change.
#include "agent/core/core.h"

#include <string.h>
#include <strings.h>

#define TAG_PREFIX "metafence:"

bool fact_is_our_tag(const struct turn *turn, const char *tag)
{
    return turn->status && tag[0] && strcmp(tag, turn->status->tag) == 0;
}

bool fact_is_foreign_tag(const struct turn *turn, const char *tag)
{
    return turn->status && turn->status->tag[0] && !fact_is_our_tag(turn, tag) &&
           strncmp(tag, TAG_PREFIX, strlen(TAG_PREFIX)) == 0;
}

bool fact_tag_answers(const struct turn *turn)
{
    return turn->usable && turn->facts->election.term_known &&
           fact_is_our_tag(turn, turn->facts->election.asked_tag);
}

bool fact_id_is_ours(const struct core_config *config, const char *id)
{
    return id[0] && strcasecmp(id, config->id) == 0;
}

const struct fence_death *fact_last_death(const struct turn *turn)
{
    const struct fence_death *proven = &turn->facts->proven;

    // metafence-run's own word has the way it ended, once it can speak again.
    if (proven->incarnation != 0 &&
        proven->incarnation == turn->facts->fence.status.incarnation &&
        turn->facts->fence.status.last_death.incarnation != proven->incarnation)
        return proven;
    return turn->status ? &turn->status->last_death : NULL;
}

bool fact_death_known(const struct turn *turn)
{
    const struct fence_death *death = fact_last_death(turn);

    return death && !turn->alive && death->incarnation != 0 &&
           death->incarnation == turn->memory->incarnation;
}

// What metafence-run has latched for its incarnation outlives the agent; it is only ever added.
static void take_latches(struct core_memory *memory, const struct fence_status *status)
{
    if (status->flags & SHIM_ARMED)
        memory->armed = true;
    if (status->flags & SHIM_SUPERSEDED)
        memory->superseded = true;
}

static void forget_incarnation(struct core_memory *memory)
{
    memory->deadline = (struct instant){0};
    memory->superseded = false;
    memory->engaged = false;
    memory->engaged_at = (struct instant){0};
    memory->not_leading_at = (struct instant){0};
    memory->heartbeat_advanced = false;
    memory->foreign_advanced = false;
    memory->ours_unimplemented_since = (struct instant){0};
    memory->unimplemented_seen = (struct instant){0};
    memory->promoting_since = (struct instant){0};
}

// A metafence-run that has lost its state file counts from 1 again: the tag tells.
static bool is_other_incarnation(const struct core_memory *memory,
                                 const struct fence_status *status)
{
    return memory->incarnation != status->incarnation ||
           (memory->tag[0] && status->tag[0] && strcmp(memory->tag, status->tag) != 0);
}

static void take_incarnation(struct turn *turn)
{
    struct core_memory *memory = turn->memory;
    const struct fence_status *status = turn->status;
    bool watched =
        memory->incarnation != 0 ||
        (memory->good_read_sent.ns != 0 && memory->good_read_sent.ns <= status->started_ns);

    if (is_other_incarnation(memory, status)) {
        forget_incarnation(memory);
        memory->incarnation = status->incarnation;
        memory->system_id = status->system_id;
        memory->timeline = status->timeline;
        memory->term = status->term;
        // A pause in it would be taken for a proof.
        if (status->permit == FENCE_ROLE_LEADER && status->deadline_ns > status->pause_end_ns)
            memory->deadline.ns = status->deadline_ns;
        // We watched before it was started: whatever it holds, it has won since.
        if (watched)
            memory->not_leading_at.ns = status->started_ns;
        // Without metafence-run nothing holds a start: what appears under a hold is killed at
        // once, and the hold goes on.
        if (status->state != SHIM_KILLING) {
            memory->twin_held = !turn->alive && status->hold == SHIM_HOLD_TWIN;
            memory->phantom_held = !turn->alive && status->hold == SHIM_HOLD_PHANTOM;
        }
    }
    memcpy(memory->tag, status->tag, sizeof(memory->tag));
    take_latches(memory, status);
}

// A row and an owner that contradict each other are no verdict; a spelling of our id is ours.
static enum row_state row_of(const struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;
    bool named = election->owner_id[0] != '\0';
    bool ours = fact_id_is_ours(turn->config, election->owner_id);

    switch (election->row) {
    case ROW_OURS:
        if (named && !ours)
            return ROW_BROKEN;
        break;
    case ROW_OTHER:
        if (ours)
            break;
        return ROW_OTHER;
    case ROW_ABSENT: return ROW_ABSENT;
    case ROW_BROKEN: return ROW_BROKEN;
    }
    if (election->age_ns < -turn->config->max_clock_jump_ns)
        return ROW_BROKEN;
    return ROW_OURS;
}

static void view_read(struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;

    turn->usable = election->known && instant_reached(turn->facts->now, election->sent_at) &&
                   instant_reached(election->sent_at, turn->memory->last_read_sent);
    turn->fresh =
        turn->usable && instant_before(turn->memory->last_read_sent, election->sent_at);
    turn->row = turn->usable ? row_of(turn) : ROW_BROKEN;
    turn->good = turn->usable && turn->row != ROW_BROKEN;
}

// Each source gives a moment at which it was engaged already: the earliest is the best bound.
static void engage(struct core_memory *memory, struct instant at)
{
    if (!memory->engaged || instant_before(at, memory->engaged_at))
        memory->engaged_at = at;
    memory->engaged = true;
}

static void take_engagement(struct turn *turn)
{
    const struct facts *facts = turn->facts;
    const struct election_fact *election = &facts->election;
    struct core_memory *memory = turn->memory;

    if (!turn->status)
        return;
    if (turn->status->flags & SHIM_ENGAGED)
        engage(memory, turn->status->engaged_ns ? (struct instant){turn->status->engaged_ns}
                                                : facts->fence.received_at);
    if (facts->rpc.answer == RPC_LEADING && facts->rpc.incarnation == memory->incarnation)
        engage(memory, facts->rpc.observed_at);
    if (!turn->usable || !election->term_known)
        return;
    if (fact_is_our_tag(turn, election->owner_tag) ||
        (fact_tag_answers(turn) && election->tag_owned_term))
        engage(memory, election->sent_at);
}

// What the incarnation was first permitted to lead on. An agent that began while metafence-run
// stood still hears of it late: what it has read since is not what that lease was won on.
static void take_latched_identity(struct turn *turn)
{
    const struct fence_status *status = turn->status;
    struct core_memory *memory = turn->memory;

    if (!status || !memory->engaged)
        return;
    if (status->system_id != 0)
        memory->system_id = status->system_id;
    if (status->timeline != 0)
        memory->timeline = status->timeline;
    if (status->term > memory->term)
        memory->term = status->term;
}

// Was the heartbeat written before our incarnation was started? Then a dead one wrote it.
static bool is_inherited(const struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;
    struct instant latest = instant_max(election->sent_at, election->received_at);

    if (!turn->status || turn->evidence || fact_is_our_tag(turn, election->heartbeat_tag))
        return false;
    return instant_add(latest, -election->age_ns).ns < turn->status->started_ns;
}

static void view_evidence(struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;

    turn->timely = turn->usable && turn->memory->engaged &&
                   instant_reached(election->sent_at, turn->memory->engaged_at);
    turn->evidence = turn->timely && turn->good;
    turn->by_us = turn->good && turn->row == ROW_OURS &&
                  !fact_is_foreign_tag(turn, election->heartbeat_tag) && !is_inherited(turn);
}

// The identity is what the lease was seen to be won on; it stands while the incarnation is
// engaged.
static void take_identity(struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;
    struct core_memory *memory = turn->memory;
    bool settled = memory->engaged && turn->by_us;

    if (!memory->engaged) {
        memory->system_id = turn->by_us ? election->system_id : 0;
        memory->timeline = turn->by_us ? election->timeline : 0;
        memory->term = turn->by_us && election->term_known ? election->term : 0;
    }
    if (!settled)
        return;
    if (memory->system_id == 0)
        memory->system_id = election->system_id;
    if (memory->timeline == 0)
        memory->timeline = election->timeline;
    if (election->term_known && election->term > memory->term)
        memory->term = election->term; // moved on under us: only down is a fault
}

static void take_alone(struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;
    struct core_memory *memory = turn->memory;

    if (!election->members_known || election->other_members > 0 || turn->row == ROW_OTHER) {
        memory->alone_since = (struct instant){0};
        memory->alone_until = (struct instant){0};
        return;
    }
    if (memory->alone_since.ns == 0)
        memory->alone_since = election->sent_at;
    memory->alone_until = election->sent_at;
}

static void take_read(struct turn *turn)
{
    struct core_memory *memory = turn->memory;

    memory->last_read_sent = turn->facts->election.sent_at;
    if (!turn->good)
        return;
    memory->good_read_sent = memory->last_read_sent;
    memory->armed = true;
    heartbeat_update(turn);
    take_alone(turn);
    take_identity(turn);
}

// Another id in a row that was read while it was engaged; or Postgres has marked its tag,
// unless the newer owner has our own id: that is a twin.
static void take_superseded(struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;
    bool twin = turn->row == ROW_OURS && fact_id_is_ours(turn->config, election->term_owner_id);

    if (turn->evidence && turn->row == ROW_OTHER)
        turn->memory->superseded = true;
    if (turn->good && fact_tag_answers(turn) && election->tag_superseded && !twin)
        turn->memory->superseded = true;
}

void memory_update(struct turn *turn)
{
    if (turn->status)
        take_incarnation(turn);
    if (turn->facts->suspended_ns > turn->config->max_clock_jump_ns)
        proof_void(turn->memory, turn->facts->now);
    view_read(turn);
    take_engagement(turn);
    take_latched_identity(turn);
    view_evidence(turn);
    if (turn->fresh)
        take_read(turn);
    take_superseded(turn);
    timers_update(turn);
}
