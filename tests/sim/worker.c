// SPDX-License-Identifier: Apache-2.0
// Metas, as far as they touch rows of worker, and the workers that register at them. A leader
// that lost its lease does not notice: it expires, deletes and takes registrations as before.
#include <string.h>

#include "tests/sim/worker.h"

#define EXPIRY_NS (60 * WK_S)

bool wk_lives(const struct wk_world *world, int place, int id)
{
    for (int i = 0; i < world->pod_count; i++) {
        const struct wk_pod *pod = &world->pods[i];
        if (pod->exists && pod->is_alive && pod->place == place && pod->id == id)
            return true;
    }
    return false;
}

void wk_meta_die(struct wk_world *world, int meta)
{
    struct wk_meta *m = &world->metas[meta];

    if (m->state == WK_DOWN)
        return;
    driver_say(world->run, "meta %d dies", meta);
    memset(m, 0, sizeof(*m));
    m->next_at = world->run->now + driver_between(world->run, 200 * WK_MS, 3 * WK_S);
    for (int i = 0; i < world->pod_count; i++)
        if (world->pods[i].meta == meta)
            world->pods[i].is_asking = false;
}

static void start(struct wk_world *world, int meta)
{
    struct wk_meta *m = &world->metas[meta];

    if (world->db.tag_count == WK_TAGS) {
        driver_fail(world->run, "the simulation's own tags are used up");
        return;
    }
    m->state = WK_FOLLOWER;
    m->tag = world->db.tag_count++;
    m->next_at = world->run->now + driver_between(world->run, 100 * WK_MS, 2 * WK_S);
}

// ClusterController::new: each row has a whole expiry from now.
static void load(struct wk_world *world, int meta)
{
    struct wk_meta *m = &world->metas[meta];

    for (int place = 0; place < WK_PLACES; place++) {
        const struct wk_row *row = &world->db.rows[place];
        if (row->id == 0)
            continue;
        m->memory[row->id] = true;
        m->active[row->id] = row->is_active;
        m->beat_at[row->id] = world->run->now;
    }
    m->state = WK_LEADER;
    m->checked_at = world->run->now;
    driver_say(world->run, "meta %d leads", meta);
}

static void recover(struct wk_world *world, struct wk_meta *m)
{
    memset(m->active, 0, sizeof(m->active));
    for (int place = 0; place < WK_PLACES; place++)
        if (world->db.rows[place].is_active)
            m->active[world->db.rows[place].id] = true;
    m->recover_at = 0;
}

// ---- the checker: it collects ids, drops its lock, and deletes by host and port

static int place_of(const struct wk_world *world, int id)
{
    for (int place = 0; place < WK_PLACES; place++)
        if (world->db.rows[place].id == id)
            return place;
    return WK_NONE;
}

static void collect(struct wk_world *world, struct wk_meta *m)
{
    for (int id = 1; id <= world->db.next_id; id++) {
        int place = m->memory[id] ? place_of(world, id) : WK_NONE;
        if (place != WK_NONE && world->run->now - m->beat_at[id] > EXPIRY_NS)
            m->collected[place] = id;
    }
}

static void check_expired(struct wk_world *world, int meta)
{
    struct wk_meta *m = &world->metas[meta];

    for (int place = 0; place < WK_PLACES; place++) {
        if (m->collected[place] == 0 || driver_chance(world->run, 60))
            continue;
        if (wk_begin(world, meta, WK_DELETE, place) || driver_chance(world->run, 20))
            m->collected[place] = 0;
    }
    if (world->run->now - m->checked_at < WK_S)
        return;
    m->checked_at = world->run->now;
    collect(world, m);
}

static void run_calls(struct wk_world *world, int meta)
{
    struct wk_meta *m = &world->metas[meta];

    for (int i = 0; i < WK_CALLS; i++) {
        struct wk_call *call = &m->calls[i];
        struct wk_tx *tx = NULL;
        if (call->id == 0 || call->at > world->run->now)
            continue;
        tx = wk_begin(world, meta, WK_DELETE, call->place);
        if (!tx)
            continue;
        tx->call = call->id;
        call->id = 0;
    }
}

// ---- transactions that ended

static bool is_same_process(const struct wk_world *world, const struct wk_tx *tx)
{
    const struct wk_meta *m = &world->metas[tx->meta];

    return m->state != WK_DOWN && m->tag == tx->tag;
}

static struct wk_pod *asker(struct wk_world *world, const struct wk_tx *tx)
{
    struct wk_pod *pod = tx->pod >= 0 ? &world->pods[tx->pod] : NULL;

    return pod && pod->exists && pod->serial == tx->serial ? pod : NULL;
}

void wk_failed(struct wk_world *world, const struct wk_tx *tx)
{
    struct wk_pod *pod = asker(world, tx);

    if (pod)
        pod->is_asking = false;
    if (tx->call != 0 && is_same_process(world, tx))
        wk_agent_answer(world, tx->meta, tx->call);
}

static const char *const kinds[] = {"add", "reuse", "activate", "delete"};

static void forget(struct wk_world *world, const struct wk_tx *tx)
{
    struct wk_meta *m = &world->metas[tx->meta];

    if (m->memory[tx->id]) {
        m->memory[tx->id] = false;
        m->active[tx->id] = false;
        return;
    }
    // worker_extra_info.remove(id).unwrap()
    if (tx->call != 0 && !world->db.superseded[tx->tag])
        driver_fail(world->run, "our DeleteWorkerNode aborts meta %d: it does not know %d",
                    tx->meta, tx->id);
    wk_meta_die(world, tx->meta);
}

void wk_committed(struct wk_world *world, const struct wk_tx *tx)
{
    struct wk_meta *m = &world->metas[tx->meta];
    struct wk_pod *pod = asker(world, tx);

    if (pod)
        pod->is_asking = false;
    driver_say(world->run, "tag %d, meta %d: %s of row %d at %d", tx->tag, tx->meta,
               kinds[tx->kind], tx->id, tx->place);
    if (!is_same_process(world, tx))
        return;
    if (tx->kind == WK_ADD)
        m->memory[tx->id] = true;
    if (tx->kind == WK_ADD || tx->kind == WK_REUSE)
        m->beat_at[tx->id] = world->run->now;
    if (tx->call != 0)
        wk_agent_answer(world, tx->meta, tx->call);
    if (tx->kind == WK_DELETE)
        forget(world, tx);
    if (!pod || !pod->is_alive)
        return;
    if (tx->kind == WK_ACTIVATE) {
        pod->is_active = true;
        m->active[tx->id] = true;
    } else if (m->memory[tx->id]) {
        world->stats->returned += tx->kind == WK_REUSE;
        pod->id = tx->id;
        pod->is_active = false;
        world->type_of[tx->id] = tx->place < WK_COMPUTES;
    }
}

// ---- workers

static int find_leader(struct wk_world *world)
{
    int holder = world->db.holder;
    int other = (int)driver_between(world->run, 0, WK_METAS);

    // A client finds a zombie as well.
    if (driver_chance(world->run, 15) && world->metas[other].state == WK_LEADER)
        holder = other;
    if (holder == WK_NONE || world->metas[holder].state != WK_LEADER ||
        world->metas[holder].frozen_until > world->run->now)
        return WK_NONE;
    return holder;
}

static void ask(struct wk_world *world, int index, enum wk_tx_kind kind)
{
    struct wk_pod *pod = &world->pods[index];
    struct wk_tx *tx = wk_begin(world, pod->meta, kind, pod->place);

    pod->next_at = world->run->now + driver_between(world->run, 300 * WK_MS, 4 * WK_S);
    if (!tx)
        return;
    tx->pod = index;
    tx->serial = pod->serial;
    tx->id = pod->id;
    pod->is_asking = true;
}

static void beat(struct wk_world *world, struct wk_pod *pod)
{
    struct wk_meta *m = &world->metas[pod->meta];

    if (m->state != WK_LEADER ||
        (world->db.holder != pod->meta && driver_chance(world->run, 10))) {
        pod->meta = find_leader(world);
        if (pod->meta == WK_NONE)
            pod->meta = 0;
        return;
    }
    if (m->frozen_until > world->run->now)
        return;
    if (m->memory[pod->id]) {
        m->beat_at[pod->id] = world->run->now;
        return;
    }
    pod->id = 0; // unknown worker: it exits and comes back
    pod->next_at = world->run->now + driver_between(world->run, WK_S, 5 * WK_S);
}

void wk_node_step(struct wk_world *world, int index)
{
    struct wk_pod *pod = &world->pods[index];

    if (!pod->is_alive || pod->is_stranger || pod->is_asking)
        return;
    if (pod->id != 0)
        beat(world, pod);
    if (pod->next_at > world->run->now)
        return;
    if (pod->id == 0) {
        int leader = find_leader(world);
        if (leader == WK_NONE)
            return;
        pod->meta = leader;
        ask(world, index, WK_ADD);
    } else if (!pod->is_active) {
        ask(world, index, WK_ACTIVATE);
    }
}

void wk_meta_step(struct wk_world *world, int meta)
{
    struct wk_meta *m = &world->metas[meta];

    if (m->frozen_until > world->run->now)
        return;
    if (m->state == WK_DOWN) {
        if (m->next_at <= world->run->now)
            start(world, meta);
        return;
    }
    if (m->next_at <= world->run->now && m->zombie_until <= world->run->now) {
        m->next_at = world->run->now + WK_S;
        // "leader has been changed"; a fence would be faster. Some notice nothing.
        if (!wk_campaign(world, meta) && m->state == WK_LEADER && world->db.holder != meta &&
            world->db.holder != WK_NONE &&
            driver_chance(world->run, world->is_calm ? 100 : 10)) {
            wk_meta_die(world, meta);
            return;
        }
    }
    // In observe it may lead again: its agent fences it for what its tag is.
    if (world->db.superseded[m->tag] && driver_chance(world->run, world->is_calm ? 100 : 2)) {
        wk_meta_die(world, meta);
        return;
    }
    if (m->state == WK_LOADING && driver_chance(world->run, 40))
        load(world, meta);
    if (m->state != WK_LEADER)
        return;
    if (m->recover_at != 0 && m->recover_at <= world->run->now)
        recover(world, m);
    check_expired(world, meta);
    run_calls(world, meta);
}
