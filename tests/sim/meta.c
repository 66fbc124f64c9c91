// SPDX-License-Identifier: Apache-2.0
// A meta node: its election loop over a pool of connections, and what it does with the outcome.
// An error resets what the loop believes and nothing else (a zombie); "another leads" is exit
// 0; an acquire that hangs ends after acquire_ns with an error, a statement that hangs ends
// with its connection.
#include "tests/sim/sim.h"

#define RUN_PERIOD_NS S // of campaigns
#define START_NS      (100 * MS)

static void post(struct world *world, int pod, enum event_kind kind, int64_t after_ns)
{
    sim_post(world, world->now + after_ns,
             (struct event){.kind = kind, .pod = pod, .gen = world->pods[pod].meta.gen});
}

uint32_t meta_ports(const struct meta *meta)
{
    switch (meta->state) {
    case META_DOWN:
    case META_STARTING:
    case META_PROMOTING: return SHIM_PORTS_KNOWN;
    case META_FOLLOWER: return SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE;
    case META_LEADER: break;
    }
    return SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE | SHIM_PORT_METRICS | SHIM_PORT_DASHBOARD;
}

static void set_state(struct world *world, int pod, enum meta_state state)
{
    world->pods[pod].meta.state = state;
    shim_look(world, pod);
}

void meta_start(struct world *world, int pod, int tag)
{
    struct meta *meta = &world->pods[pod].meta;
    struct link *link = &world->pods[pod].link;
    uint32_t gen = meta->gen + 1;

    *meta = (struct meta){.gen = gen, .tag = tag, .state = META_STARTING};
    meta->phantom = world->pods[pod].next_phantom;
    meta->conn = link_open(link);
    meta->spare_conn = link_open(link);
    sim_trace(world, pod, "meta starts, tag %d", tag);
    post(world, pod, EV_META_PHASE, sim_between(world, START_NS / 2, 3 * START_NS));
}

void meta_exit(struct world *world, int pod, int wait_status, int64_t after_ns)
{
    struct meta *meta = &world->pods[pod].meta;

    if (meta->state == META_DOWN)
        return;
    meta->wait_status = wait_status;
    post(world, pod, EV_META_DEATH, after_ns);
}

void meta_gone(struct world *world, int pod)
{
    struct meta *meta = &world->pods[pod].meta;

    meta->state = META_DOWN;
    meta->engaged_at = 0;
    meta->is_leader = false;
    meta->gen++;
}

// ---- the election loop

static void next_round(struct world *world, int pod, int64_t after_ns)
{
    world->pods[pod].meta.acquiring = 0;
    world->pods[pod].meta.hung = false;
    post(world, pod, EV_META_TICK, after_ns);
}

static void on_error(struct world *world, int pod, const char *why)
{
    struct meta *meta = &world->pods[pod].meta;

    if (meta->is_leader)
        sim_trace(world, pod, "election error (%s): the loop forgets that it leads", why);
    meta->is_leader = false;
    next_round(world, pod, sim_between(world, 20 * MS, 120 * MS));
}

static void replace_conn(struct world *world, int pod)
{
    struct meta *meta = &world->pods[pod].meta;

    meta->conn = meta->spare_conn;
    meta->spare_conn = link_open(&world->pods[pod].link);
}

static void send_campaign(struct world *world, int pod)
{
    struct meta *meta = &world->pods[pod].meta;
    struct req *req = req_new(world, pod, REQ_CAMPAIGN);

    req->gen = meta->gen;
    req->tag = meta->tag;
    req->conn = meta->conn;
    meta->acquiring = 0;
    meta->hung = true;
    link_send(world, req, EV_DB_EXEC);
    link_trap(world, pod, 1);
}

// Once more as long as the acquire lasts. Where the ping hangs, only the heal or the end wakes
// it.
static void try_acquire(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct meta *meta = &p->meta;
    enum link_mode mode = p->link.mode;

    if (p->pool_full) {
        post(world, pod, EV_META_ACQUIRE, 100 * MS);
        return;
    }
    if (mode == LINK_STALL || mode == LINK_DROP || mode == LINK_DUMB)
        return;
    if (mode == LINK_OLD_DEAD && meta->conn <= p->link.muted)
        return;
    if (mode == LINK_RESET) {
        replace_conn(world, pod);
        on_error(world, pod, "reset");
        return;
    }
    if (!world->db.up) {
        post(world, pod, EV_META_ACQUIRE, sim_between(world, 10 * MS, world->acquire_ns / 20));
        return;
    }
    while (meta->conn <= p->link.killed)
        replace_conn(world, pod); // the ping notices
    send_campaign(world, pod);
}

static void tick(struct world *world, int pod)
{
    struct meta *meta = &world->pods[pod].meta;

    if (meta->acquiring || meta->hung)
        return;
    meta->acquiring = ++meta->acquires;
    sim_post(world, world->now + world->acquire_ns,
             (struct event){.kind = EV_META_ACQUIRE_OVER,
                            .pod = pod,
                            .gen = meta->gen,
                            .arg = (int)meta->acquiring});
    try_acquire(world, pod);
}

void meta_link_healed(struct world *world, int pod)
{
    struct meta *meta = &world->pods[pod].meta;

    if (meta->state > META_STARTING && meta->acquiring)
        post(world, pod, EV_META_ACQUIRE, sim_between(world, MS, 60 * MS));
}

static void engage(struct world *world, int pod, uint32_t timeline)
{
    struct pod *p = &world->pods[pod];
    int64_t init_ns = p->next_init_ns ? p->next_init_ns : sim_between(world, 5 * MS, 80 * MS);

    if (p->meta.phantom) {
        if (!p->meta.is_leader)
            sim_trace(world, pod, "wins, but misses the edge: a phantom leader");
        return;
    }
    p->meta.engaged_at = world->now;
    p->meta.promoting_at = world->now;
    p->meta.lost_at = 0;
    p->meta.timeline = timeline;
    p->meta.won_in_time = db_now_us(world) <= p->meta.expiry_us;
    if (!p->meta.won_in_time)
        world->stats->late_wins++;
    sim_trace(world, pod, "elected, init takes %lld ms", (long long)(init_ns / MS));
    set_state(world, pod, META_PROMOTING);
    p->next_init_ns = 0;
    if (!p->stuck_init)
        post(world, pod, EV_META_PHASE, init_ns);
}

static void lose(struct world *world, int pod)
{
    struct meta *meta = &world->pods[pod].meta;

    sim_trace(world, pod, "the row names another: leader has been changed");
    if (meta->state == META_PROMOTING) {
        meta->exit_after_init = true; // init does not look
        next_round(world, pod, RUN_PERIOD_NS);
        return;
    }
    meta_exit(world, pod, 0, sim_between(world, MS, 40 * MS));
}

void meta_answer(struct world *world, struct req *req)
{
    int pod = req->pod;
    struct meta *meta = &world->pods[pod].meta;

    if (req->gen != meta->gen || meta->state <= META_STARTING)
        return;
    if (req->view.id != world->pods[pod].id) {
        if (meta->is_leader) {
            lose(world, pod);
            return;
        }
        next_round(world, pod, RUN_PERIOD_NS);
        return;
    }
    if (!meta->is_leader && meta->engaged_at != 0)
        world->stats->zombies++; // it leads again without having been told
    // It won on that timeline, whatever came since.
    if (meta->state == META_FOLLOWER && meta->engaged_at == 0)
        engage(world, pod, req->view.timeline);
    meta->is_leader = true;
    next_round(world, pod, RUN_PERIOD_NS);
}

void meta_fail(struct world *world, struct req *req)
{
    struct meta *meta = &world->pods[req->pod].meta;

    if (req->gen != meta->gen || meta->state <= META_STARTING)
        return;
    replace_conn(world, req->pod);
    on_error(world, req->pod, "connection lost");
}

// ---- phases

static void on_phase(struct world *world, int pod)
{
    struct meta *meta = &world->pods[pod].meta;

    if (meta->state == META_STARTING) {
        if (!world->db.up) {
            sim_trace(world, pod, "no database at the start: abort");
            meta_exit(world, pod, 6, MS);
            return;
        }
        set_state(world, pod, META_FOLLOWER);
        meta->served_at = world->now;
        post(world, pod, EV_META_TICK, sim_between(world, 0, 200 * MS));
        return;
    }
    if (meta->state != META_PROMOTING)
        return;
    if (meta->exit_after_init) {
        meta_exit(world, pod, 0, MS);
        return;
    }
    set_state(world, pod, META_LEADER);
}

// A stopped process does nothing until it runs again; one that was stopped for more than ttl/2
// finds both of its tickers due and leaves in two of three cases.
static bool is_frozen(struct world *world, const struct event *event)
{
    struct meta *meta = &world->pods[event->pod].meta;
    int64_t frozen_ns = meta->frozen_until - meta->frozen_at;

    if (event->kind == EV_META_DEATH)
        return false;
    if (world->now < meta->frozen_until) {
        sim_post(world, meta->frozen_until + sim_between(world, 0, 12 * MS), *event);
        return true;
    }
    if (meta->frozen_until == 0)
        return false;
    meta->frozen_until = 0;
    if (frozen_ns <= world->ttl_ns / 2 || !sim_chance(world, 66))
        return false;
    sim_trace(world, event->pod, "election timeout after a stop");
    meta_exit(world, event->pod, 0, MS);
    return true;
}

static void on_death(struct world *world, int pod)
{
    sim_trace(world, pod, "meta is dead (wait status %d)", world->pods[pod].meta.wait_status);
    shim_reap(world, pod);
}

void meta_event(struct world *world, const struct event *event)
{
    struct meta *meta = &world->pods[event->pod].meta;

    if (event->gen != meta->gen || meta->state == META_DOWN || is_frozen(world, event))
        return;
    switch ((int)event->kind) {
    case EV_META_TICK: tick(world, event->pod); break;
    case EV_META_ACQUIRE:
        if (meta->acquiring)
            try_acquire(world, event->pod);
        break;
    case EV_META_ACQUIRE_OVER:
        if (meta->acquiring != (uint32_t)event->arg)
            break;
        replace_conn(world, event->pod);
        on_error(world, event->pod, "pool timed out");
        break;
    case EV_META_PHASE: on_phase(world, event->pod); break;
    case EV_META_DEATH: on_death(world, event->pod); break;
    default: break;
    }
}

int meta_leading(const struct world *world, int otherwise)
{
    for (int i = 0; i < world->pod_count; i++)
        if (world->pods[i].exists && world->pods[i].meta.engaged_at != 0)
            return i;
    return otherwise;
}
