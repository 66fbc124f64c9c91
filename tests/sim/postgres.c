// SPDX-License-Identifier: Apache-2.0
// Postgres as the election sees it: one row, and what the term trigger keeps beside it.
// Statements are atomic; NOW() is when they arrive.
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DB_EPOCH_US INT64_C(1700000000000000)
#define ID_NOBODY   30 // an id that no pod has

int64_t db_now_us(const struct world *world)
{
    return DB_EPOCH_US + (world->now + world->db.step_ns) / 1000;
}

int db_new_tag(struct world *world, const struct pod *pod)
{
    struct database *db = &world->db;
    struct db_tag *tag = NULL;

    if (db->tag_count == TAGS_MAX) {
        sim_fail(world, -1, "more than %d incarnations in one schedule", TAGS_MAX);
        return 0;
    }
    tag = &db->tags[db->tag_count];
    *tag = (struct db_tag){.id = pod->id};
    (void)snprintf(tag->text, sizeof(tag->text), "metafence:%s:%016" PRIx64, pod->uid,
                   sim_random(world));
    return db->tag_count++;
}

static void note_lost(struct world *world, int id)
{
    for (int i = 0; i < world->pod_count; i++) {
        struct meta *meta = &world->pods[i].meta;
        bool has_led = meta->engaged_at != 0 || (meta->phantom && meta->renewed_at != 0);
        if (world->pods[i].exists && world->pods[i].id != id && has_led && meta->lost_at == 0)
            meta->lost_at = world->now;
    }
}

static void move_term(struct world *world, int id, int tag)
{
    struct database *db = &world->db;
    int old = db->owner_tag;

    if (old >= 0 && old != tag) {
        db->tags[old].superseded = true;
        db->tags[old].superseded_at = world->now;
    }
    db->term++;
    db->owner_id = id;
    db->owner_tag = tag;
    if (tag >= 0) {
        db->tags[tag].owned_term = db->term;
        db->tags[tag].owned_at = world->now;
    }
    world->stats->takeovers++;
    sim_trace(world, -1, "term %" PRIu64 " begins: id %d, tag %d", db->term, id, tag);
}

// metafence.on_campaign()
static void trigger(struct world *world, int tag_index)
{
    struct database *db = &world->db;
    struct db_tag *tag = &db->tags[tag_index];
    uint32_t owner_seq = db->owner_tag >= 0 ? db->tags[db->owner_tag].seq : 0;

    if (tag->seq == 0) {
        tag->seq = ++db->next_seq;
        tag->seq_at = world->now;
    }
    db->row_tag = tag_index;
    if (db->term == 0 || db->owner_id != db->id)
        move_term(world, db->id, tag->superseded ? -1 : tag_index);
    else if (tag_index != db->owner_tag && !tag->superseded && tag->owned_term == 0 &&
             tag->seq > owner_seq)
        move_term(world, db->id, tag_index);
}

// ---- what a standby has not got yet

static void remember(struct world *world)
{
    struct database *db = &world->db;
    struct db_past *past = &db->past[db->past_next++ % PAST_MAX];

    *past = (struct db_past){.until = world->now,
                             .row = db->row,
                             .id = db->id,
                             .row_tag = db->row_tag,
                             .owner_id = db->owner_id,
                             .owner_tag = db->owner_tag,
                             .heartbeat_us = db->heartbeat_us,
                             .term = db->term,
                             .next_seq = db->next_seq};
    memcpy(past->member_since, db->member_since, sizeof(past->member_since));
}

static void restore(struct world *world, const struct db_past *past)
{
    struct database *db = &world->db;

    world->stats->lost_terms += db->term != past->term;
    world->stats->lost_renewals += db->heartbeat_us != past->heartbeat_us;
    db->row = past->row;
    db->null = false; // who mends a broken row does it again
    db->id = past->id;
    db->row_tag = past->row_tag;
    db->owner_id = past->owner_id;
    db->owner_tag = past->owner_tag;
    db->heartbeat_us = past->heartbeat_us;
    db->term = past->term;
    db->next_seq = past->next_seq;
    memcpy(db->member_since, past->member_since, sizeof(db->member_since));
}

static void forget_since(struct db_tag *tag, int64_t at)
{
    if (tag->seq_at > at)
        tag->seq = 0;
    if (tag->owned_at > at)
        tag->owned_term = 0;
    if (tag->superseded_at > at)
        tag->superseded = false;
}

// The database is what it was then.
void db_lose_since(struct world *world, int64_t at)
{
    struct database *db = &world->db;
    uint32_t first = db->past_next > PAST_MAX ? db->past_next - PAST_MAX : 0;

    for (uint32_t i = first; i < db->past_next; i++) {
        if (db->past[i % PAST_MAX].until <= at)
            continue;
        restore(world, &db->past[i % PAST_MAX]);
        break;
    }
    for (int i = 0; i < db->tag_count; i++)
        forget_since(&db->tags[i], at);
    for (int i = 0; i < world->pod_count; i++)
        world->pods[i].proof_until = 0;
    note_lost(world, db->row ? db->id : -1);
    sim_trace(world, -1,
              "the new primary lacks what came after %.3f s: term %" PRIu64 ", id %d",
              (double)at / 1e9, db->term, db->row ? db->id : -1);
}

static void campaign(struct world *world, struct req *req)
{
    struct database *db = &world->db;
    int64_t now_us = db_now_us(world);
    int id = db->tags[req->tag].id;
    struct meta *meta = &world->pods[req->pod].meta;
    bool expired = db->row && !db->null && db->heartbeat_us < now_us - world->ttl_ns / 1000;

    remember(world);
    if (db->member_since[id] == 0)
        db->member_since[id] = world->now;
    if (!db->row || expired || db->id == id) {
        bool moved = !db->row || db->id != id;
        bool changed = moved || db->null || db->heartbeat_us != now_us;
        db->row = true;
        db->null = false;
        db->id = id;
        db->heartbeat_us = now_us;
        if (moved)
            note_lost(world, id);
        if (changed)
            trigger(world, req->tag);
        if (meta->tag == req->tag && meta->state != META_DOWN) {
            meta->renewed_at = world->now;
            meta->expiry_us = now_us + world->ttl_ns / 1000;
        }
    }
    req->view.id = db->id;
    req->view.timeline = db->timeline;
}

static void read_row(struct world *world, struct req *req)
{
    const struct database *db = &world->db;
    const struct db_tag *asked = req->tag >= 0 ? &db->tags[req->tag] : NULL;

    req->view = (struct row_view){.exists = db->row,
                                  .null = db->null,
                                  .id = db->id,
                                  .tag = db->row_tag,
                                  .heartbeat_us = db->heartbeat_us,
                                  .now_us = db_now_us(world),
                                  .term = db->term,
                                  .owner_id = db->owner_id,
                                  .owner_tag = db->owner_tag,
                                  .asked_owned = asked && asked->owned_term != 0,
                                  .asked_superseded = asked && asked->superseded,
                                  .timeline = db->timeline,
                                  .exec_at = world->now};
    req->refused = world->pods[req->pod].refused;
}

void db_exec(struct world *world, struct req *req)
{
    if (!world->db.up) {
        sim_post(world, world->now + MS,
                 (struct event){.kind = EV_DB_FAIL, .pod = req->pod, .gen = req->serial});
        return;
    }
    if (req->kind == REQ_READ)
        read_row(world, req);
    else
        campaign(world, req);
    link_send(world, req, EV_DB_ANSWER);
    if (req->kind == REQ_CAMPAIGN)
        link_trap(world, req->pod, 2);
}

void db_stop(struct world *world)
{
    world->db.up = false;
    for (int i = 0; i < world->pod_count; i++)
        world->pods[i].link.killed = world->pods[i].link.conns;
}

void db_start(struct world *world)
{
    world->db.up = true;
    for (int i = 0; i < world->pod_count; i++)
        if (world->pods[i].exists && world->pods[i].link.mode == LINK_OK)
            meta_link_healed(world, i);
}

// What is on its way to Postgres is not a session yet; what waits there does not wait in this
// model.
void db_end_sessions(struct world *world, const char *tag)
{
    for (int i = 0; i < REQS_MAX; i++) {
        struct req *req = &world->reqs[i];
        if (req->serial != 0 && req->kind == REQ_CAMPAIGN && req->held == EV_NONE &&
            strcmp(world->db.tags[req->tag].text, tag) == 0)
            req->conn = 0; // its connection gets a reset when the message arrives
    }
}

// What somebody does by psql: never a lever, but it happens.
void db_disturb(struct world *world, enum fault_kind kind)
{
    struct database *db = &world->db;

    if (!db->row)
        return;
    remember(world);
    if (kind == FAULT_ROW_DELETED) {
        db->row = false;
        note_lost(world, -1);
        return;
    }
    db->id = ID_NOBODY;
    db->null = false;
    db->heartbeat_us = db_now_us(world);
    note_lost(world, ID_NOBODY);
    move_term(world, ID_NOBODY, -1);
}

bool db_drop_phantom(struct world *world, int id, int64_t heartbeat_us)
{
    struct database *db = &world->db;

    if (!db->row || db->id != id || db->null || db->heartbeat_us != heartbeat_us)
        return false;
    remember(world);
    db->row = false;
    note_lost(world, -1);
    sim_trace(world, -1, "the phantom's row is deleted");
    return true;
}
