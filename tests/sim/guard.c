// SPDX-License-Identifier: Apache-2.0
// What sql/ does, a statement at a time: the deny-list, tombstones, intents, the mutation log.
// Terms and the writers' lock: takeover.c. What each mechanism is for shows when its plant
// takes it away.
#include <string.h>

#include "tests/sim/worker.h"

bool wk_is_superseded(const struct wk_world *world, int tag)
{
    return tag >= 0 && world->db.superseded[tag];
}

bool wk_is_rightful(const struct wk_world *world, int meta)
{
    const struct wk_meta *m = &world->metas[meta];

    return m->state != WK_DOWN && world->db.holder == meta && !wk_is_superseded(world, m->tag);
}

static void log_row(struct wk_world *world, bool is_delete, int place, int id, int tag)
{
    struct wk_database *db = &world->db;

    db->seq++;
    if (db->log_count == WK_LOG) {
        driver_fail(world->run, "the simulation's own log is full");
        return;
    }
    db->log[db->log_count++] = (struct wk_log){
        .seq = db->seq, .is_delete = is_delete, .id = id, .place = place, .tag = tag};
}

// P6: what we remove is a row that was judged, and nobody lives by it.
static void check_removal(struct wk_world *world, int place, int id, const char *how)
{
    if (!world->proven[id])
        driver_fail(world->run, "P6: %s removed row %d, which nobody had judged", how, id);
    else if (wk_lives(world, place, id))
        driver_fail(world->run, "P6: %s removed row %d of a live endpoint", how, id);
}

// ---- tombstones

static void remove_row(struct wk_world *world, const struct wk_tomb *tomb)
{
    const struct wk_database *db = &world->db;

    if (db->holder != WK_NONE && world->metas[db->holder].state == WK_LEADER)
        driver_fail(world->run, "P6: row %d removed by SQL under a live leader", tomb->id);
    check_removal(world, tomb->place, tomb->id, "a tombstone");
    world->db.rows[tomb->place] = (struct wk_row){0};
    world->stats->removed++;
    log_row(world, true, tomb->place, tomb->id, WK_NONE);
    driver_say(world->run, "tombstone of %d applied", tomb->id);
}

// By who has written it, or is about to: a statement that is judged at its end.
static bool is_row_locked(const struct wk_world *world, int place)
{
    for (int i = 0; i < WK_TXS; i++)
        if ((world->db.txs[i].state == WK_TX_WRITTEN ||
             world->db.txs[i].state == WK_TX_UNJUDGED) &&
            world->db.txs[i].place == place)
            return true;
    return false;
}

static bool was_logged(const struct wk_database *db, const struct wk_tomb *tomb)
{
    for (int i = db->log_count - 1; i >= 0 && db->log[i].seq > tomb->seq; i--)
        if (db->log[i].id == tomb->id)
            return true;
    return false;
}

void wk_apply_tombstones(struct wk_world *world, bool is_first)
{
    struct wk_database *db = &world->db;
    bool any_term = world->run->plant == WK_PLANT_TOMBSTONE_ANY_TERM;
    bool any_row = world->run->plant == WK_PLANT_NO_ROW_VERSION;

    for (int i = 0; i < WK_TOMBS; i++) {
        struct wk_tomb *tomb = &db->tombs[i];
        const struct wk_row *row = &db->rows[tomb->place];
        bool is_due = any_term || (is_first && tomb->term == db->term - 1);
        if (!tomb->is_set)
            continue;
        is_due = is_due && tomb->expires_at > world->run->now && row->id == tomb->id &&
                 !is_row_locked(world, tomb->place);
        if (!any_row)
            is_due = is_due && row->version == tomb->version && !was_logged(db, tomb);
        if (is_due)
            remove_row(world, tomb);
        else
            world->stats->void_tombs++;
        tomb->is_set = false;
    }
}

bool wk_bury(struct wk_world *world, const struct wk_order *order)
{
    struct wk_database *db = &world->db;
    struct wk_tomb *tomb = NULL;

    if (order->term != db->term && world->run->plant != WK_PLANT_TOMBSTONE_ANY_TERM)
        return false;
    for (int i = 0; i < WK_TOMBS; i++) {
        struct wk_tomb *at = &db->tombs[i];
        if (at->is_set && at->id == order->action.worker_id && at->term == order->term)
            tomb = at;
        else if (!at->is_set && !tomb)
            tomb = at;
    }
    if (!tomb)
        return false;
    *tomb = (struct wk_tomb){.is_set = true,
                             .term = order->term,
                             .id = order->action.worker_id,
                             .place = order->place,
                             .version = order->version,
                             .seq = db->seq,
                             .expires_at = world->run->now + 2 * WK_TTL_NS};
    world->stats->buried++;
    return true;
}

void wk_unbury(struct wk_world *world, uint64_t term, int id)
{
    for (int i = 0; i < WK_TOMBS; i++)
        if (world->db.tombs[i].id == id && world->db.tombs[i].term == term)
            world->db.tombs[i].is_set = false;
}

// ---- intents

bool wk_intend(struct wk_world *world, const struct wk_order *order)
{
    struct wk_intent *free_slot = NULL;
    struct wk_database *db = &world->db;

    if (order->term != db->term)
        return false;
    for (int i = 0; i < WK_INTENTS; i++) {
        struct wk_intent *intent = &db->intents[i];
        if (intent->id == order->action.worker_id && intent->term == order->term) {
            intent->version = order->version;
            return true;
        }
        if (intent->id == 0)
            free_slot = intent;
    }
    if (!free_slot)
        return false;
    *free_slot = (struct wk_intent){.id = order->action.worker_id,
                                    .place = order->place,
                                    .version = order->version,
                                    .term = order->term};
    return true;
}

// Its answer came; where another call under it got none, that one may still be under way.
void wk_answered(struct wk_world *world, uint64_t term, int id)
{
    for (int i = 0; i < WK_INTENTS; i++) {
        struct wk_intent *intent = &world->db.intents[i];
        if (intent->id == id && intent->term == term &&
            (!intent->is_unknown || world->run->plant == WK_PLANT_WITHDRAW_UNKNOWN))
            intent->id = 0;
    }
}

// In observe a superseded leader's late call is bound to the term that it led.
static bool does_bind(const struct wk_database *db, const struct wk_intent *intent,
                      const struct wk_tx *tx)
{
    return intent->id != 0 && intent->place == tx->place &&
           (intent->term == db->term ||
            (!db->is_enforcing && intent->term == db->owned_term[tx->tag]));
}

// metafence.keep_intended()
static bool is_intended(const struct wk_world *world, const struct wk_tx *tx)
{
    const struct wk_row *row = &world->db.rows[tx->place];
    bool is_other = false;

    for (int i = 0; i < WK_INTENTS; i++) {
        const struct wk_intent *intent = &world->db.intents[i];
        if (!does_bind(&world->db, intent, tx))
            continue;
        if (intent->id == row->id &&
            (intent->version == row->version || world->run->plant == WK_PLANT_INTENT_BY_ID))
            return true;
        is_other = true;
    }
    return !is_other || world->run->plant == WK_PLANT_NO_INTENT;
}

// ---- transactions

static bool may_write(struct wk_world *world, int tag, int meta)
{
    bool is_refused =
        wk_is_superseded(world, tag) && world->run->plant != WK_PLANT_NO_DENY_LIST;

    if (world->run->plant == WK_PLANT_ALLOW_LIST)
        is_refused = tag != world->db.owner_tag;
    if (!is_refused || !world->db.is_enforcing)
        return true;
    world->stats->refused++;
    if (wk_is_rightful(world, meta) && tag == world->metas[meta].tag)
        driver_fail(world->run, "P2: a write of the rightful leader %d is refused", meta);
    return false;
}

// worker_property alone is written: judged at its end, with the row locked. It may last.
static struct wk_tx *begin_reuse(struct wk_world *world, int meta, int place, struct wk_tx *tx)
{
    int64_t lasts = driver_chance(world->run, 15) ? driver_between(world->run, 0, 5 * WK_S) : 0;

    if (is_row_locked(world, place))
        return NULL;
    *tx = (struct wk_tx){.state = WK_TX_UNJUDGED,
                         .kind = WK_REUSE,
                         .tag = world->metas[meta].tag,
                         .meta = meta,
                         .place = place,
                         .pod = WK_NONE,
                         .hung_until = world->is_calm ? 0 : world->run->now + lasts,
                         .is_guarded = driver_chance(world->run, 4)};
    return tx;
}

struct wk_tx *wk_begin(struct wk_world *world, int meta, enum wk_tx_kind kind, int place)
{
    struct wk_database *db = &world->db;
    struct wk_tx *tx = NULL;

    for (int i = 0; i < WK_TXS; i++) {
        if (db->txs[i].state == WK_TX_FREE)
            tx = &db->txs[i];
        // A process writes under its controller's lock: one at a time.
        else if (db->txs[i].tag == world->metas[meta].tag)
            return NULL;
    }
    if (!tx)
        return NULL;
    if (kind == WK_ADD && db->rows[place].id != 0)
        return begin_reuse(world, meta, place, tx);
    if (db->taker != WK_NONE || !may_write(world, world->metas[meta].tag, meta))
        return NULL;
    *tx = (struct wk_tx){.state = WK_TX_LET_IN,
                         .kind = kind,
                         .tag = world->metas[meta].tag,
                         .meta = meta,
                         .place = place,
                         .pod = WK_NONE};
    return tx;
}

static void give_up(struct wk_world *world, struct wk_tx *tx)
{
    wk_failed(world, tx);
    *tx = (struct wk_tx){0};
}

static void statement(struct wk_world *world, struct wk_tx *tx)
{
    struct wk_database *db = &world->db;
    const struct wk_row *row = &db->rows[tx->place];

    if (is_row_locked(world, tx->place))
        return;
    if (tx->kind == WK_ADD && row->id != 0)
        tx->kind = WK_REUSE;
    if (tx->kind == WK_ADD)
        tx->id = ++db->next_id;
    else if (row->id == 0 || (tx->kind == WK_ACTIVATE && row->id != tx->id)) {
        give_up(world, tx);
        return;
    } else {
        tx->id = row->id;
    }
    if (db->next_id >= WK_IDS - 1)
        driver_fail(world->run, "the simulation's own ids are used up");
    if (tx->kind == WK_DELETE && !is_intended(world, tx)) {
        world->stats->intended++;
        give_up(world, tx);
        return;
    }
    tx->state = WK_TX_WRITTEN;
}

static void judge_at_end(struct wk_world *world, struct wk_tx *tx)
{
    tx->is_at_end = world->db.taker != WK_NONE;
    if (tx->is_at_end)
        return;
    tx->id = world->db.rows[tx->place].id;
    if (may_write(world, tx->tag, tx->meta) || world->run->plant == WK_PLANT_UNJUDGED)
        tx->state = WK_TX_WRITTEN;
    else
        give_up(world, tx);
}

static void commit(struct wk_world *world, struct wk_tx *tx)
{
    struct wk_database *db = &world->db;
    struct wk_row *row = &db->rows[tx->place];
    struct wk_tx done = *tx;

    if (wk_is_superseded(world, tx->tag) && db->is_enforcing && !tx->is_escaped)
        driver_fail(world->run, "P5: tag %d wrote row %d after its term", tx->tag, tx->id);
    world->stats->zombie_writes += wk_is_superseded(world, tx->tag);
    tx->state = WK_TX_FREE;
    if (done.kind == WK_DELETE) {
        if (done.call != 0) {
            check_removal(world, done.place, done.id, "DeleteWorkerNode");
            world->stats->deleted++;
            world->stats->late_of_superseded += wk_is_superseded(world, done.tag);
        }
        *row = (struct wk_row){0};
        log_row(world, true, done.place, done.id, done.tag);
    } else if (done.kind == WK_ADD) {
        *row = (struct wk_row){.id = done.id, .tag = done.tag};
        log_row(world, false, done.place, done.id, done.tag);
        row->seq = db->seq;
    } else if (done.kind == WK_ACTIVATE) {
        row->is_active = true;
        log_row(world, false, done.place, done.id, done.tag);
    }
    // WK_REUSE writes worker_property alone: not in the log, but in the version.
    row->version = row->id ? ++db->next_version : 0;
    wk_committed(world, &done);
}

void wk_tx_step(struct wk_world *world, struct wk_tx *tx)
{
    if (tx->state == WK_TX_FREE || tx->hung_until > world->run->now ||
        driver_chance(world->run, 30))
        return;
    if (tx->state == WK_TX_UNJUDGED)
        judge_at_end(world, tx);
    else if (tx->state == WK_TX_LET_IN)
        statement(world, tx);
    else if (driver_chance(world->run, 3))
        give_up(world, tx);
    else
        commit(world, tx);
}
