// SPDX-License-Identifier: Apache-2.0
// The gate's SQL: markers, acknowledgements, and the question that a removal is asked.
#include <string.h>

#include "tests/sim/order.h"

struct order_drops ow_drops(const struct ow_world *world)
{
    struct order_drops drops = {
        .known = true, .is_complete = true, .revision = world->db.revision};

    for (int i = 0; i < OW_JOBS; i++) {
        const struct ow_job *job = &world->jobs[i];
        drops.fragments += job->exists && job->is_dropped;
        drops.creating += job->exists && job->is_creating;
        drops.may_build |= job->exists && job->is_dropped && job->was_creating;
    }
    drops.may_build |=
        drops.creating > 0 || world->db.has_got_past || !world->db.last_ended_well;
    if (world->run->plant == OW_PLANT_BUILDING)
        drops.may_build = false;
    return drops;
}

// Each attempt writes one; one of this term that is open is joined.
void ow_open_marker(struct ow_world *world, int meta)
{
    struct ow_database *db = &world->db;

    if (world->metas[meta].incarnation != db->owner)
        return;
    if (db->marker.id != 0) {
        db->has_got_past |= db->refused_at == 0 && db->attempts > 0;
        return;
    }
    db->attempts = 0;
    db->has_got_past = false;
    db->marker = (struct order_marker){.id = ++db->next_marker,
                                       .term = db->term,
                                       .is_global = true,
                                       .opened_at = {world->run->now}};
    db->refused_at = 0;
    memset(db->acks, 0, sizeof(db->acks));
}

static bool is_acknowledged(const struct ow_world *world, const struct ow_database *db,
                            int node)
{
    const struct ow_ack *ack = &db->acks[node];

    return ack->how > ORDER_NONE ||
           (ack->how == ORDER_NONE &&
            (ack->revision == db->revision || world->run->plant == OW_PLANT_REVISION));
}

static bool are_all_acknowledged(const struct ow_world *world, const struct ow_database *db)
{
    for (int i = 0; i < OW_NODES; i++)
        if (!is_acknowledged(world, db, i))
            return false;
    return true;
}

static bool has_bound_come(const struct ow_world *world, const struct ow_database *db)
{
    return !db->holds_on && world->run->plant != OW_PLANT_NO_BOUND &&
           world->run->now >= db->marker.opened_at.ns + world->config.max_hold_ns;
}

static bool is_agent_absent(const struct ow_world *world, const struct ow_database *db)
{
    return world->run->now - db->refreshed_at[db->holder] > world->config.gate_stale_ns;
}

// As the agent reads it; that it is absent it need not be told.
bool ow_is_gate_open(const struct ow_world *world, const struct ow_database *db)
{
    return db->marker.id != 0 && (has_bound_come(world, db) || are_all_acknowledged(world, db));
}

// P7, by what only the simulation knows.
static void check_reclaim(struct ow_world *world, const char *why)
{
    for (int n = 0; n < OW_NODES && !why; n++)
        for (int j = 0; j < OW_JOBS; j++)
            if (world->jobs[j].exists && world->jobs[j].is_dropped &&
                world->nodes[n].is_alive && world->nodes[n].runs[j])
                driver_fail(world->run,
                            "P7: job %d is reclaimed, node %d runs it, acknowledged by %s", j,
                            n, order_evidence_name(world->db.acks[n].how));
}

// Whether a removal in a recovery may commit now. What lets it pass without acknowledgements is
// recorded.
bool ow_may_pass(struct ow_world *world, int meta)
{
    struct ow_database *db = &world->db;
    const char *why = NULL;

    if (world->metas[meta].incarnation != db->owner)
        return false; // the guard's business
    if (db->mode != ORDER_ENFORCE)
        why = "observe";
    else if (ow_is_on(world, OW_EXCEPTION) && driver_chance(world->run, 2))
        why = "exception";
    else if (are_all_acknowledged(world, db))
        why = NULL;
    else if (is_agent_absent(world, db))
        why = "no agent";
    else if (has_bound_come(world, db))
        why = "bound";
    else {
        db->refused_at = world->run->now;
        db->is_waiting = true;
        return false;
    }
    world->stats->bounds += why && strcmp(why, "bound") == 0;
    world->stats->blind_gates += why && strcmp(why, "bound") != 0;
    if (why && strcmp(why, "exception") == 0)
        world->exception_at = world->run->now;
    driver_say(world->run, "removal passes (%s)", why ? why : "all acknowledged");
    check_reclaim(world, why);
    return true;
}

// The removal is committed: what was acknowledged is used up.
void ow_passed(struct ow_world *world, int meta, bool is_gated)
{
    struct ow_database *db = &world->db;

    (void)meta;
    world->stats->removals++;
    for (int i = 0; i < OW_JOBS; i++)
        if (world->jobs[i].is_dropped)
            world->jobs[i] = (struct ow_job){0};
    if (!is_gated)
        return;
    db->is_waiting = false;
    db->refused_at = 0;
    if (world->run->plant == OW_PLANT_ROUND)
        return;
    db->marker.round++;
    memset(db->acks, 0, sizeof(db->acks));
}
