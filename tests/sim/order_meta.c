// SPDX-License-Identifier: Apache-2.0
// Metas: an election, and recoveries in the order that makes trouble: marker, purge, and only
// then new control streams.
#include <string.h>

#include "tests/sim/order.h"

bool ow_is_engaged(const struct ow_meta *meta)
{
    return meta->is_alive && meta->phase != OW_FOLLOWER;
}

bool ow_is_before_reset(const struct ow_meta *meta)
{
    return meta->phase == OW_PAUSE || meta->phase == OW_LOADING || meta->phase == OW_REMOVING;
}

void ow_meta_die(struct ow_world *world, int meta)
{
    struct ow_meta *m = &world->metas[meta];
    struct ow_agent *agent = &world->agents[meta];

    if (!m->is_alive)
        return;
    driver_say(world->run, "meta %d dies", meta);
    if (ow_is_engaged(m)) {
        agent->died = m->incarnation;
        agent->died_term = m->owned;
        agent->died_at = world->run->now + driver_between(world->run, OW_MS, 300 * OW_MS);
    }
    *m = (struct ow_meta){.incarnation = m->incarnation,
                          .wants_start_at = world->run->now +
                                            driver_between(world->run, 400 * OW_MS, 2 * OW_S)};
}

static bool reaches_database(const struct ow_world *world, int meta)
{
    return !(world->cut_meta == meta &&
             (ow_is_on(world, OW_DB_CUT) || ow_is_on(world, OW_PAUSED)));
}

// ---- recoveries

void ow_recover(struct ow_world *world, int meta)
{
    struct ow_meta *m = &world->metas[meta];

    if (!m->is_alive || m->phase < OW_RESETTING)
        return; // none runs without a control stream: it has the next attempt
    m->phase = OW_PAUSE;
    m->attempts = 0;
    m->next_at = world->run->now;
    world->stats->recoveries++;
}

static void fail_attempt(struct ow_world *world, struct ow_meta *m)
{
    int64_t pause = 20 * OW_MS << (m->attempts < 8 ? m->attempts : 8);

    m->attempts++;
    m->phase = OW_PAUSE;
    m->next_at = world->run->now +
                 driver_between(world->run, pause / 2, pause < 5 * OW_S ? pause : 5 * OW_S);
}

static void drop_job(struct ow_world *world, struct ow_job *job)
{
    job->was_creating = job->is_creating;
    job->is_creating = false;
    job->is_dropped = true;
    world->db.revision++;
}

// The streams are dropped, which aborts nothing; what is being created in the foreground is
// dropped with its jobs.
static void begin_attempt(struct ow_world *world, int meta)
{
    struct ow_meta *m = &world->metas[meta];

    for (int n = 0; n < OW_NODES; n++) {
        if (world->nodes[n].owner == meta)
            world->nodes[n].owner = OW_NOBODY;
        m->asked[n] = 0;
        m->answered[n] = false;
    }
    memset(m->dropping_at, 0, sizeof(m->dropping_at));
    if (!reaches_database(world, meta) || world->db.owner != m->incarnation) {
        fail_attempt(world, m);
        return;
    }
    ow_open_marker(world, meta);
    world->db.attempts++;
    for (int j = 0; j < OW_JOBS; j++) {
        struct ow_job *job = &world->jobs[j];
        if (!job->exists || !job->is_creating)
            continue;
        drop_job(world, job);
    }
    m->phase = OW_LOADING;
    m->next_at = world->run->now + driver_between(world->run, 5 * OW_MS, 300 * OW_MS);
}

static bool has_removal(const struct ow_world *world)
{
    for (int j = 0; j < OW_JOBS; j++)
        if (world->jobs[j].exists && world->jobs[j].is_dropped)
            return true;
    return false;
}

static void try_removal(struct ow_world *world, int meta)
{
    struct ow_meta *m = &world->metas[meta];

    if (m->phase == OW_LOADING) {
        m->phase = OW_REMOVING;
        m->refused_since = world->run->now;
    }
    if (has_removal(world)) {
        if (!reaches_database(world, meta) || !ow_may_pass(world, meta)) {
            if (world->run->now - m->refused_since < OW_S && reaches_database(world, meta))
                return; // it waits
            world->db.is_waiting = false;
            world->stats->refused++;
            fail_attempt(world, m);
            return;
        }
        ow_passed(world, meta, true);
    }
    m->phase = OW_RESETTING;
}

static void open_streams(struct ow_world *world, int meta)
{
    struct ow_meta *m = &world->metas[meta];
    bool are_all_in = true;

    for (int n = 0; n < OW_NODES; n++) {
        if (world->nodes[n].is_alive && m->asked[n] != world->nodes[n].incarnation) {
            m->asked[n] = world->nodes[n].incarnation;
            m->answered[n] = false;
            ow_node_enqueue(world, n, (struct ow_init){meta, 0, m->incarnation});
        }
        are_all_in &= m->answered[n] || !world->nodes[n].is_alive;
    }
    if (!are_all_in)
        return;
    m->phase = OW_BUILDING;
    m->next_at = world->run->now + driver_between(world->run, 50 * OW_MS, OW_S);
}

static void build(struct ow_world *world, int meta)
{
    struct ow_meta *m = &world->metas[meta];

    for (int n = 0; n < OW_NODES; n++) {
        struct ow_node *node = &world->nodes[n];
        for (int j = 0; j < OW_JOBS && node->owner == meta; j++)
            if (world->jobs[j].exists && !world->jobs[j].is_dropped &&
                (world->jobs[j].nodes & (1U << n)))
                node->runs[j] = true;
        node->blind_until = world->run->now + driver_between(world->run, 50 * OW_MS, 3 * OW_S);
    }
    if (m->fails_next) {
        m->fails_next = false;
        world->stats->faults[OW_ATTEMPT]++;
        ow_recover(world, meta); // joins the marker, which is still open
        return;
    }
    m->phase = OW_COMMITTING;
    m->is_bootstrap = false;
    m->next_at = world->run->now + OW_S;
    for (int n = 0; n < OW_NODES; n++) // the first barrier passes what is built
        if (world->nodes[n].blind_until > m->next_at)
            m->next_at = world->nodes[n].blind_until;
}

static bool has_all_streams(const struct ow_world *world, int meta)
{
    for (int n = 0; n < OW_NODES; n++)
        if (world->nodes[n].is_alive &&
            (world->nodes[n].owner != meta ||
             world->nodes[n].owner_incarnation != world->metas[meta].incarnation))
            return false;
    return true;
}

// ---- jobs

void ow_create(struct ow_world *world)
{
    for (int j = 0; j < OW_JOBS; j++) {
        if (world->jobs[j].exists)
            continue;
        world->jobs[j] = (struct ow_job){.exists = true,
                                         .is_creating = driver_chance(world->run, 60),
                                         .nodes = (uint32_t)driver_between(world->run, 1, 8)};
        world->jobs[j].created_at =
            world->run->now + driver_between(world->run, OW_S, 20 * OW_S);
        for (int n = 0; n < OW_NODES; n++) {
            struct ow_node *node = &world->nodes[n];
            node->runs[j] = node->is_alive && node->owner == world->db.holder &&
                            (world->jobs[j].nodes & (1U << n));
            if (node->runs[j] && world->jobs[j].is_creating)
                node->blind_until =
                    world->run->now + driver_between(world->run, 50 * OW_MS, 900 * OW_MS);
        }
        return;
    }
}

// The catalog changes at once; the rest waits for a barrier.
void ow_drop(struct ow_world *world)
{
    int leader = world->db.holder;
    int first = (int)driver_between(world->run, 0, OW_JOBS);

    for (int i = 0; i < OW_JOBS; i++) {
        int j = (first + i) % OW_JOBS;
        struct ow_job *job = &world->jobs[j];
        if (!job->exists || job->is_dropped)
            continue;
        drop_job(world, job);
        if (leader != OW_NOBODY && world->metas[leader].phase == OW_RUNNING)
            world->metas[leader].dropping_at[j] =
                world->run->now + driver_between(world->run, 200 * OW_MS, 6 * OW_S);
        return;
    }
}

// The barrier of a drop is collected when its actors have ended; then the tables go, outside of
// any recovery.
static void collect_drops(struct ow_world *world, struct ow_meta *m)
{
    for (int j = 0; j < OW_JOBS; j++) {
        if (m->dropping_at[j] == 0 || world->run->now < m->dropping_at[j])
            continue;
        for (int n = 0; n < OW_NODES; n++)
            if (world->nodes[n].runs[j] && world->nodes[n].stuck_job == j &&
                world->run->now < world->nodes[n].stuck_until)
                return;
        for (int n = 0; n < OW_NODES; n++)
            world->nodes[n].runs[j] = false;
        world->jobs[j] = (struct ow_job){0};
        m->dropping_at[j] = 0;
        world->stats->drops_done++;
    }
}

static void run_jobs(struct ow_world *world, struct ow_meta *m)
{
    collect_drops(world, m);
    for (int j = 0; j < OW_JOBS; j++) {
        struct ow_job *job = &world->jobs[j];
        if (job->exists && job->is_creating && world->run->now >= job->created_at)
            job->is_creating = false;
        if (job->exists && job->is_dropped && m->dropping_at[j] == 0)
            m->dropping_at[j] = world->run->now + OW_S;
    }
}

// ---- the election

static void win(struct ow_world *world, int meta)
{
    struct ow_database *db = &world->db;
    struct ow_meta *m = &world->metas[meta];
    int old = db->holder;
    bool is_zombie = old != OW_NOBODY && old != meta && ow_is_engaged(&world->metas[old]);

    db->old_meta = old;
    db->old_owner = db->owner;
    db->predecessor = is_zombie ? ORDER_DEATH_NONE : ORDER_DEATH_IMPLIED;
    if (old == OW_NOBODY || old == meta)
        db->predecessor = ORDER_DEATH_CONFIRMED;
    db->holder = meta;
    db->renewed_at = world->run->now;
    db->owner = m->incarnation;
    m->owned = ++db->term;
    db->last_ended_well = db->marker.id == 0;
    db->marker.id = 0; // superseded
    ow_open_marker(world, meta);
    world->stats->takeovers++;
    driver_say(world->run, "meta %d leads term %lu%s", meta, (unsigned long)db->term,
               is_zombie ? ", the old one lives" : "");
    m->phase = OW_PAUSE;
    m->is_bootstrap = true;
    m->attempts = 0;
    m->next_at = world->run->now + driver_between(world->run, 50 * OW_MS, OW_S);
}

static void elect(struct ow_world *world, int meta)
{
    struct ow_database *db = &world->db;
    struct ow_meta *m = &world->metas[meta];
    bool is_owner = db->owner == m->incarnation;

    if (!reaches_database(world, meta))
        return;
    if (m->phase == OW_FOLLOWER) {
        if (db->holder == OW_NOBODY || db->holder == meta ||
            world->run->now > db->renewed_at + OW_TTL_NS)
            win(world, meta);
    } else if (is_owner) {
        db->renewed_at = world->run->now;
    } else if (m->paused_until < world->run->now) {
        ow_meta_die(world, meta); // superseded
    }
}

// metafence-run's deadline; a pause takes it away.
static void watch_lease(struct ow_world *world, int meta)
{
    struct ow_meta *m = &world->metas[meta];

    if (ow_is_engaged(m) && m->paused_until < world->run->now &&
        world->run->now >= world->db.renewed_at + OW_TTL_NS - OW_MARGIN_NS &&
        world->db.holder == meta)
        ow_meta_die(world, meta);
}

static void run_phase(struct ow_world *world, int meta)
{
    struct ow_meta *m = &world->metas[meta];

    if (m->phase >= OW_BUILDING && !has_all_streams(world, meta)) {
        ow_recover(world, meta);
        return;
    }
    if (m->phase != OW_RESETTING && m->phase != OW_RUNNING && m->phase != OW_REMOVING &&
        world->run->now < m->next_at)
        return;
    switch (m->phase) {
    case OW_FOLLOWER: break;
    case OW_PAUSE: begin_attempt(world, meta); break;
    case OW_LOADING:
    case OW_REMOVING: try_removal(world, meta); break;
    case OW_RESETTING: open_streams(world, meta); break;
    case OW_BUILDING: build(world, meta); break;
    case OW_COMMITTING: m->phase = OW_RUNNING; break;
    case OW_RUNNING:
        if (!reaches_database(world, meta) || world->db.owner != m->incarnation)
            break;
        if (world->db.marker.id != 0) { // a checkpoint
            world->db.marker.id = 0;
            world->db.last_ended_well = true;
        }
        run_jobs(world, m);
        break;
    }
}

void ow_meta_step(struct ow_world *world, int meta)
{
    struct ow_meta *m = &world->metas[meta];

    if (!m->is_alive) {
        if (world->run->now < m->wants_start_at || world->run->now < m->hold_until)
            return;
        m->is_alive = true;
        m->incarnation = ++world->next_incarnation;
        driver_say(world->run, "meta %d starts", meta);
        return;
    }
    elect(world, meta);
    if (m->is_alive)
        watch_lease(world, meta);
    if (m->is_alive && m->phase != OW_FOLLOWER)
        run_phase(world, meta);
}
