// SPDX-License-Identifier: Apache-2.0
// One link a pod, shared by meta and agent: what happens to a message when the network is not
// well.
//   stall     bytes are held and delivered at the heal; new connections hang
//   drop      the same, and after the heal it takes the next retransmit
//   reset     existing connections are reset, new ones too
//   dumb      one way: what is sent arrives, answers are held
//   old-dead  connections that exist are silent, new ones work; after the heal they are reset
#include "tests/sim/sim.h"

uint32_t link_open(struct link *link)
{
    return ++link->conns;
}

// A request lives in the slot of its serial.
struct req *req_new(struct world *world, int pod, enum req_kind kind)
{
    struct req *req = NULL;

    for (int tries = 0; tries < REQS_MAX; tries++) {
        req = &world->reqs[++world->next_serial % REQS_MAX];
        if (req->serial == 0)
            break;
    }
    if (req->serial != 0)
        sim_fail(world, pod, "the simulation's own table of requests is full");
    *req = (struct req){.serial = world->next_serial, .kind = kind, .pod = pod};
    return req;
}

struct req *req_find(struct world *world, uint32_t serial)
{
    struct req *req = &world->reqs[serial % REQS_MAX];

    return serial != 0 && req->serial == serial ? req : NULL;
}

static void post(struct world *world, const struct req *req, enum event_kind kind,
                 int64_t after_ns)
{
    sim_post(world, world->now + after_ns,
             (struct event){.kind = kind, .pod = req->pod, .gen = req->serial});
}

static int64_t latency(struct world *world, const struct link *link, enum event_kind kind)
{
    int64_t base = kind == EV_DB_EXEC ? link->there_ns : link->back_ns;

    return base / 2 + sim_between(world, 0, base);
}

// True when the message goes on; otherwise its fate is settled here.
static bool passes(struct world *world, struct req *req, enum event_kind kind)
{
    struct link *link = &world->pods[req->pod].link;

    if (link->mode == LINK_STALL || link->mode == LINK_DROP ||
        (link->mode == LINK_DUMB && kind == EV_DB_ANSWER)) {
        req->held = kind;
        return false;
    }
    if (link->mode == LINK_OLD_DEAD && req->conn <= link->muted) {
        req->held = EV_DB_FAIL; // the heal resets it
        return false;
    }
    if (req->conn <= link->killed || link->mode == LINK_RESET) {
        post(world, req, EV_DB_FAIL, 200000);
        return false;
    }
    return true;
}

void link_send(struct world *world, struct req *req, enum event_kind kind)
{
    if (passes(world, req, kind))
        post(world, req, kind, latency(world, &world->pods[req->pod].link, kind));
}

bool link_arrives(struct world *world, struct req *req, enum event_kind kind)
{
    return passes(world, req, kind);
}

static void release_held(struct world *world, int pod, bool retransmit)
{
    for (int i = 0; i < REQS_MAX; i++) {
        struct req *req = &world->reqs[i];
        if (req->serial == 0 || req->pod != pod || req->held == EV_NONE)
            continue;
        post(world, req, req->held, sim_between(world, MS, retransmit ? 2 * S : 20 * MS));
        req->held = EV_NONE;
    }
}

void link_trap(struct world *world, int pod, int stage)
{
    struct pod *p = &world->pods[pod];

    if (p->trap != stage)
        return;
    p->trap = 0;
    sim_trace(world, pod, "cut in the middle of a campaign");
    link_set(world, pod, p->trap_mode);
}

void link_set(struct world *world, int pod, enum link_mode mode)
{
    struct link *link = &world->pods[pod].link;
    enum link_mode old = link->mode;

    link->mode = mode;
    if (old == LINK_OLD_DEAD && mode != LINK_OLD_DEAD && link->muted > link->killed)
        link->killed = link->muted;
    if (mode == LINK_RESET)
        link->killed = link->conns;
    if (mode == LINK_OLD_DEAD)
        link->muted = link->conns;
    if (old != LINK_OK && mode != old)
        release_held(world, pod, old == LINK_DROP);
    if (mode == LINK_OK && old != LINK_OK)
        meta_link_healed(world, pod);
}
