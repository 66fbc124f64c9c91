// SPDX-License-Identifier: Apache-2.0
// timers: how long something has lasted, as watched by this agent, and what follows: the end of
// the lease, the ends of holds.
#include "agent/core/core.h"

bool fact_still_for(const struct core_memory *memory, int64_t ns)
{
    return memory->heartbeat_seen &&
           instant_since(memory->heartbeat_last_sent, memory->heartbeat_first_sent) >= ns;
}

bool fact_promoting(const struct turn *turn)
{
    const uint32_t open = SHIM_PORT_SERVICE | SHIM_PORT_METRICS | SHIM_PORT_DASHBOARD;

    return turn->status && turn->alive && turn->memory->engaged &&
           (turn->status->ports & SHIM_PORTS_KNOWN) && !(turn->status->ports & open);
}

// The longest silence within which the row and meta's answers still count as watched: what two
// reads and a renewal may take.
static int64_t watch_gap_ns(const struct core_config *config)
{
    return 2 * (config->connect_timeout_ns + config->query_timeout_ns) + config->poll_ns +
           config->renew_gap_ns;
}

static bool is_renewing(const struct turn *turn)
{
    int64_t gap_ns = watch_gap_ns(turn->config);

    return turn->by_us && turn->memory->heartbeat_advanced &&
           instant_since(turn->facts->now, turn->facts->election.sent_at) <= gap_ns &&
           !fact_still_for(turn->memory, gap_ns);
}

static void update_unimplemented(struct turn *turn)
{
    const struct rpc_fact *rpc = &turn->facts->rpc;
    struct core_memory *memory = turn->memory;
    bool asked_it = turn->status && rpc->incarnation == memory->incarnation;

    if (asked_it && rpc->answer == RPC_FOLLOWING &&
        instant_before(memory->unimplemented_seen, rpc->observed_at))
        memory->unimplemented_seen = rpc->observed_at;
    if (!turn->alive || !is_renewing(turn) || (asked_it && rpc->answer == RPC_LEADING) ||
        memory->unimplemented_seen.ns == 0 ||
        instant_since(turn->facts->now, memory->unimplemented_seen) >
            watch_gap_ns(turn->config)) {
        memory->ours_unimplemented_since = (struct instant){0};
        return;
    }
    // A single answer that did not come says nothing: only the gap above ends the series.
    if (memory->ours_unimplemented_since.ns == 0)
        memory->ours_unimplemented_since =
            instant_max(turn->facts->election.sent_at, memory->unimplemented_seen);
}

static void update_promoting(struct turn *turn)
{
    struct core_memory *memory = turn->memory;

    if (!fact_promoting(turn) || turn->row != ROW_OURS || !turn->good)
        memory->promoting_since = (struct instant){0};
    else if (memory->promoting_since.ns == 0)
        memory->promoting_since = turn->facts->now;
}

// While a twin renews our id, ours stays down; somebody else's row, no row, or a heartbeat that
// has stood still for ttl end it. Silence of the database ends nothing here (metafence-run
// bounds every hold).
static bool twin_is_gone(const struct turn *turn)
{
    if (!turn->good || turn->alive)
        return false;
    return turn->row != ROW_OURS || fact_still_for(turn->memory, turn->config->ttl_ns);
}

static bool phantom_is_over(const struct turn *turn)
{
    const struct fence_death *death = NULL;
    struct instant dead_at = {0};

    if (!fact_death_known(turn))
        return false;
    death = fact_last_death(turn);
    dead_at.ns = death->dead_ns;
    if (turn->good && turn->row == ROW_OTHER &&
        instant_reached(turn->facts->election.sent_at, dead_at))
        return true;
    return instant_reached(turn->facts->now, instant_add(dead_at, turn->config->ttl_ns));
}

void timers_update(struct turn *turn)
{
    struct core_memory *memory = turn->memory;

    update_unimplemented(turn);
    update_promoting(turn);
    if (memory->twin_held && twin_is_gone(turn))
        memory->twin_held = false;
    if (memory->phantom_held && phantom_is_over(turn))
        memory->phantom_held = false;
}

struct instant lease_end(const struct turn *turn)
{
    const struct core_memory *memory = turn->memory;

    if (memory->deadline.ns != 0)
        return memory->deadline;
    if (memory->not_leading_at.ns != 0)
        return lease_deadline(turn->config, memory->not_leading_at, 0);
    return INSTANT_NEVER;
}

uint32_t lease_hold(const struct turn *turn)
{
    const struct core_memory *memory = turn->memory;
    const struct facts *facts = turn->facts;
    int64_t alone_ns = instant_since(memory->alone_until, memory->alone_since);

    if (facts->database.state == DATABASE_REFUSES && turn->good &&
        facts->election.guard_enforcing)
        return NOT_COVERED_AGENT_BLIND;
    if (turn->config->on_silence == ON_SILENCE_AUTO && memory->alone_since.ns != 0 &&
        alone_ns >= 2 * turn->config->ttl_ns && facts->api.known && facts->api.lists_our_uid &&
        !facts->api.lists_other_uid)
        return NOT_COVERED_SINGLE_REPLICA;
    return 0;
}

int64_t lease_hold_span(const struct core_config *config)
{
    return config->connect_timeout_ns + config->query_timeout_ns + config->margin_ns;
}
