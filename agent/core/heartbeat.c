// SPDX-License-Identifier: Apache-2.0
// heartbeat: how the heartbeat in our row moves, and the deadline that follows. Every good read
// of our row is a bound of its own: nobody else can win before its deadline. So
// - a heartbeat seen to advance replaces the deadline, also by an earlier one;
// - one that did not advance never extends it (a database clock that went back would fake
//   that), but an earlier bound counts (one that went forward lets others win earlier). A slow
//   answer costs its own latency the same way, for which core_config_check leaves room; one
//   that was held up for longer, with its process or its node, shortens nothing;
// - the first look has nothing to compare with and is believed, unless the proof is void: an
//   agent that was restarted just before the old deadline must not kill the leader that it
//   finds healthy.
#include "agent/core/core.h"

void proof_void(struct core_memory *memory, struct instant at)
{
    memory->proof_void = true;
    memory->void_at = at;
    memory->heartbeat_seen = false; // the next fresh read is the new base
}

// Our clock and the database's, as far as one read tells: an interval as wide as the answer was
// slow. Two of them that do not even meet within max_clock_jump show that one of the clocks
// jumped.
static bool take_offset(struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;
    struct core_memory *memory = turn->memory;
    struct instant latest = instant_max(election->sent_at, election->received_at);
    struct instant db_now = {0};
    int64_t gap_ns = 0;
    bool known = memory->offset_known;
    int64_t high_ns = memory->offset_ns;
    int64_t low_ns = memory->offset_low_ns;

    if (election->db_now_us <= 0 ||
        __builtin_mul_overflow(election->db_now_us, INT64_C(1000), &db_now.ns))
        return false;
    memory->offset_known = true;
    memory->offset_ns = instant_since(db_now, election->sent_at);
    memory->offset_low_ns = instant_since(db_now, latest);
    if (!known)
        return false;
    if (memory->offset_low_ns > high_ns)
        gap_ns = memory->offset_low_ns - high_ns;
    else if (low_ns > memory->offset_ns)
        gap_ns = low_ns - memory->offset_ns;
    return gap_ns > turn->config->max_clock_jump_ns;
}

// Returns whether the deadline that follows may be later than the last one.
static bool take_heartbeat(struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;
    struct core_memory *memory = turn->memory;
    bool first = !memory->heartbeat_seen;
    bool advanced = false;

    if (memory->heartbeat_seen && election->heartbeat_us < memory->heartbeat_us)
        proof_void(memory, election->sent_at);
    advanced = memory->heartbeat_seen && election->heartbeat_us > memory->heartbeat_us;
    if (!memory->heartbeat_seen || advanced)
        memory->heartbeat_first_sent = election->sent_at;
    memory->heartbeat_seen = true;
    memory->heartbeat_us = election->heartbeat_us;
    memory->heartbeat_last_sent = election->sent_at;
    if (advanced) {
        memory->foreign_advanced = !turn->by_us;
        memory->heartbeat_advanced |= turn->by_us;
    }
    return advanced || (first && !memory->proof_void);
}

// No read is waited for so long. Its row may be of any moment since it was sent: counted from
// there, as it must be, it would cost a lease that is proven as much as its node was suspended.
static bool was_held_up(const struct turn *turn)
{
    const struct election_fact *election = &turn->facts->election;

    return instant_since(election->received_at, election->sent_at) >
           turn->config->connect_timeout_ns + 2 * turn->config->query_timeout_ns;
}

static void take_deadline(struct turn *turn, bool proves)
{
    const struct election_fact *election = &turn->facts->election;
    struct core_memory *memory = turn->memory;
    struct instant bound = lease_deadline(turn->config, election->sent_at, election->age_ns);

    if (memory->deadline.ns != 0 && was_held_up(turn))
        bound = instant_max(bound, memory->deadline);
    if (turn->by_us && proves) {
        memory->deadline = bound;
        memory->proof_void = false;
    } else if (turn->by_us && memory->deadline.ns == 0 && !memory->proof_void) {
        memory->deadline = bound;
    } else if (memory->deadline.ns != 0) {
        memory->deadline = instant_min(memory->deadline, bound);
    }
}

// The read showed that our incarnation does not hold the row. For one that is engaged this is
// the rules' business; for another it is the start of whatever lease it may win later.
static void take_not_leading(struct turn *turn)
{
    struct core_memory *memory = turn->memory;

    if (turn->evidence)
        return;
    // A read that was under way when it was started is no later than the start.
    memory->not_leading_at = instant_max(memory->not_leading_at, turn->facts->election.sent_at);
    memory->deadline = (struct instant){0};
    memory->heartbeat_advanced = false;
}

void heartbeat_update(struct turn *turn)
{
    struct core_memory *memory = turn->memory;
    struct instant sent_at = turn->facts->election.sent_at;
    bool proves = false;

    if (take_offset(turn))
        proof_void(memory, sent_at);
    if (!turn->by_us)
        take_not_leading(turn);
    if (turn->row != ROW_OURS) {
        // A row that is gone for a moment can come back by our own hand: newer than what we saw
        // of it, that is an advance.
        if (turn->row == ROW_OTHER)
            memory->heartbeat_seen = false;
        memory->foreign_advanced = false;
        if (instant_reached(sent_at, memory->void_at))
            memory->proof_void = false; // nothing left that an old reading could prove
        return;
    }
    // Sent before the jump: good for a bound, not as the base of anything.
    if (!memory->proof_void || instant_reached(sent_at, memory->void_at))
        proves = take_heartbeat(turn);
    take_deadline(turn, proves);
}
