// SPDX-License-Identifier: Apache-2.0
// The takeover of sql/takeover.sql: it waits for writers, ends whom it must, and moves the
// term.
#include "tests/sim/worker.h"

static bool is_old(const struct wk_world *world, const struct wk_tx *tx)
{
    return tx->tag == world->db.owner_tag || wk_is_superseded(world, tx->tag);
}

static bool has_lock(const struct wk_tx *tx)
{
    return tx->state == WK_TX_LET_IN || tx->state == WK_TX_WRITTEN;
}

static void end_session(struct wk_world *world, struct wk_tx *tx)
{
    if (!is_old(world, tx) || !world->db.is_enforcing)
        driver_fail(world->run, "takeover: it ended a session of tag %d, which may write",
                    tx->tag);
    if (tx->is_guarded) {
        world->stats->kept++;
        return;
    }
    wk_failed(world, tx);
    *tx = (struct wk_tx){0};
    world->stats->ended++;
}

// Of the old owner all, of other superseded tags those that hold the lock.
static void end_writers(struct wk_world *world)
{
    for (int i = 0; i < WK_TXS; i++) {
        struct wk_tx *tx = &world->db.txs[i];
        if (tx->state != WK_TX_FREE && (tx->tag == world->db.owner_tag ||
                                        (has_lock(tx) && wk_is_superseded(world, tx->tag))))
            end_session(world, tx);
    }
}

// Who is at its end waits for the takeover, if that has the lock, and will be refused.
static bool is_in_the_way(const struct wk_world *world, const struct wk_tx *tx, bool is_locked)
{
    bool is_any = world->run->plant == WK_PLANT_END_ANY_LOCKER;

    return tx->state != WK_TX_FREE && !(tx->is_at_end && is_locked) &&
           (is_any || is_old(world, tx));
}

static bool is_locked(const struct wk_world *world)
{
    for (int i = 0; i < WK_TXS; i++)
        if (has_lock(&world->db.txs[i]))
            return true;
    return false;
}

// The lock is had, or was not to be had.
static bool has_lockers(const struct wk_world *world)
{
    for (int i = 0; i < WK_TXS && world->db.is_enforcing; i++)
        if (is_in_the_way(world, &world->db.txs[i], !is_locked(world)))
            return true;
    return false;
}

static void end_lockers(struct wk_world *world)
{
    bool is_had = !is_locked(world);

    for (int i = 0; i < WK_TXS && world->run->plant != WK_PLANT_NO_END_LOCKERS; i++) {
        struct wk_tx *tx = &world->db.txs[i];
        if (is_in_the_way(world, tx, is_had)) {
            world->stats->lockers += tx->state == WK_TX_UNJUDGED;
            end_session(world, tx);
        }
    }
}

// The term moves. The new leader finds no row locked that could be free, nor has it waited
// long.
static void check_takeover(struct wk_world *world)
{
    const int64_t step = 400 * WK_MS;
    struct wk_database *db = &world->db;
    int64_t took = world->run->now - db->taker_since;
    bool is_had = !is_locked(world);

    if (took > 450 * WK_MS + step)
        driver_fail(world->run, "takeover: it took %ld ms", (long)(took / WK_MS));
    db->unlocked += !is_had;
    world->stats->unlocked += !is_had;
    for (int i = 0; i < WK_TXS; i++) {
        struct wk_tx *tx = &db->txs[i];
        tx->is_escaped |= has_lock(tx);
        if (db->is_enforcing && is_in_the_way(world, tx, is_had) && is_old(world, tx) &&
            !tx->is_guarded)
            driver_fail(world->run, "takeover: tag %d keeps row %d from the new leader",
                        tx->tag, tx->id);
    }
}

static void move_term(struct wk_world *world, int meta, bool is_first)
{
    struct wk_database *db = &world->db;
    int tag = world->metas[meta].tag;

    if (db->owner_tag >= 0 && db->owner_tag != tag)
        db->superseded[db->owner_tag] = true;
    db->owner = meta;
    db->owner_tag = db->superseded[tag] ? WK_NONE : tag;
    db->term++;
    db->is_memory_known = is_first;
    if (db->owner_tag != WK_NONE)
        db->owned_term[tag] = db->term;
    for (int i = 0; i < WK_INTENTS; i++)
        if (db->intents[i].term + 10 < db->term)
            db->intents[i] = (struct wk_intent){0};
    wk_apply_tombstones(world, is_first);
    db->term_seq = db->seq;
    db->taker = WK_NONE;
    world->stats->takeovers++;
    driver_say(world->run, "term %lu begins: meta %d, tag %d%s", (unsigned long)db->term, meta,
               tag, is_first ? "" : " (healed)");
}

// Another id, or a younger tag of the same. A superseded one gets no term for renewing.
static bool is_new_term(const struct wk_world *world, int meta)
{
    const struct wk_database *db = &world->db;
    int tag = world->metas[meta].tag;

    return db->owner != meta || (db->owner_tag != tag && !db->superseded[tag]);
}

static void win(struct wk_world *world, int meta)
{
    struct wk_meta *m = &world->metas[meta];
    bool is_first = m->state == WK_FOLLOWER;

    world->db.holder = meta;
    world->db.renewed_at = world->run->now;
    if (is_first)
        m->state = WK_LOADING;
    if (is_new_term(world, meta) && !(is_first && wk_is_on(world, WK_BOOKKEEPING)))
        move_term(world, meta, is_first);
    else if (is_first && is_new_term(world, meta)) {
        world->db.unrecorded++;
        world->stats->unrecorded++;
    }
    world->until[WK_BOOKKEEPING] = is_first ? 0 : world->until[WK_BOOKKEEPING];
}

bool wk_campaign(struct wk_world *world, int meta)
{
    struct wk_database *db = &world->db;
    struct wk_meta *m = &world->metas[meta];

    if (db->taker != WK_NONE || (db->holder != WK_NONE && db->holder != meta &&
                                 world->run->now - db->renewed_at <= WK_TTL_NS))
        return false;
    if (db->is_enforcing && wk_is_superseded(world, m->tag))
        return false; // OLD comes back
    if (!is_new_term(world, meta) || db->owner_tag == WK_NONE ||
        (!is_locked(world) && !has_lockers(world)) || world->run->plant == WK_PLANT_NO_LOCK) {
        win(world, meta);
        return true;
    }
    db->taker = meta;
    db->taker_since = world->run->now;
    return false;
}

// Does the takeover still wait, for writers or for who has rows locked?
static bool is_waiting(struct wk_world *world)
{
    struct wk_database *db = &world->db;
    int64_t now = world->run->now;
    int64_t all_until = db->taker_since + 450 * WK_MS;

    if (db->look_until == 0) {
        if (is_locked(world) && now - db->taker_since < 300 * WK_MS)
            return true;
        if (is_locked(world) && db->is_enforcing)
            end_writers(world);
        db->look_until = now + 250 * WK_MS < all_until ? now + 250 * WK_MS : all_until;
    }
    return has_lockers(world) &&
           (now < db->look_until || world->run->plant == WK_PLANT_WAIT_FOR_LOCKERS);
}

// A takeover that waits for writers. After 300 ms enforce ends who is in the way, and then,
// after 250 ms or 450 in all, who has rows locked.
void wk_takeover_step(struct wk_world *world)
{
    struct wk_database *db = &world->db;
    int meta = db->taker;

    if (meta == WK_NONE || is_waiting(world))
        return;
    if (db->is_enforcing)
        end_lockers(world);
    if (world->metas[meta].state != WK_DOWN) {
        check_takeover(world);
        win(world, meta);
    }
    db->taker = WK_NONE;
    db->look_until = 0;
}
