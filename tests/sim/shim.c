// SPDX-License-Identifier: Apache-2.0
// metafence-run around the real shim_decide(): takes orders, looks at ports, starts, kills,
// reaps, tells the agent. A kill takes a part of the kill budget, now and then nearly all of
// it.
#include "tests/sim/cluster.h"

#include <stdio.h>
#include <string.h>

#define BOOT_ID "11111111-2222-3333-4444-555555555555"

static int64_t kill_latency(struct world *world)
{
    int64_t budget_ns = world->shim.kill_budget_ns;

    if (sim_chance(world, 75))
        return sim_between(world, MS, 15 * MS);
    if (sim_chance(world, 50))
        return budget_ns * 19 / 20;
    return sim_between(world, budget_ns / 2, budget_ns * 19 / 20);
}

// A new metafence-run in the pod: the first one, or after the container was restarted.
void shim_boot(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct shim *shim = &p->shim;
    struct fence_status left = shim->file;
    uint32_t gen = shim->gen + 1;
    int64_t ipc_ns = shim->ipc_ns;

    *shim = (struct shim){.alive = true, .gen = gen, .wake_gen = gen << 16, .ipc_ns = ipc_ns};
    shim->file = left;
    (void)snprintf(shim->memory.status.boot_id, sizeof(left.boot_id), "%s", BOOT_ID);
    if (left.magic != 0)
        shim_restore(&shim->memory, &left, true, sim_local(world, p));
    p->armed = false;
    sim_trace(world, pod, "metafence-run starts");
    shim_turn(world, pod);
}

static bool is_stopped(const struct world *world, int pod)
{
    return world->cluster && world->cluster->nodes[pod].is_stopped;
}

static int64_t restart_ns(struct world *world, int pod)
{
    return world->cluster ? kubelet_restart_ns(world, pod)
                          : sim_between(world, 500 * MS, 3 * S);
}

void shim_kill_container(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];

    if (!p->shim.alive)
        return;
    p->shim.alive = false;
    p->shim.gen++;
    p->shim.dying = false;
    if (p->meta.state != META_DOWN)
        sim_trace(world, pod, "meta is dead (container)");
    meta_gone(world, pod);
    p->agent.facts.fence.known = false;
    sim_post(world, world->now + restart_ns(world, pod),
             (struct event){.kind = EV_SHIM_START, .pod = pod, .gen = p->shim.gen});
}

void shim_reap(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct shim *shim = &p->shim;
    int wait_status = p->meta.wait_status;
    bool by_clock = shim->dying && (shim->memory.kill_reason == FENCE_REASON_LEASE_EXPIRED ||
                                    shim->memory.kill_reason == FENCE_REASON_AGENT_LOST);
    int64_t margin_ns = (p->meta.expiry_us - db_now_us(world)) * 1000;

    if (is_stopped(world, pod)) { // dead, and nobody has seen it yet
        world->cluster->nodes[pod].reaps_later = true;
        meta_gone(world, pod);
        return;
    }
    if (by_clock && p->meta.engaged_at != 0 && p->meta.won_in_time &&
        world->now >= p->uncovered_until && world->now >= p->lag_until &&
        p->standstill_until < p->meta.renewed_at && margin_ns < world->stats->worst_margin_ns)
        world->stats->worst_margin_ns = margin_ns;
    p->died_at = world->now;
    p->died_of = shim->dying ? shim->memory.kill_reason : FENCE_REASON_NONE;
    p->read_since_death = 0;
    p->lost_seen = false;
    p->proof_until = 0;
    if (p->died_of == FENCE_REASON_AGENT_LOST)
        p->armed = false;
    shim->dying = false;
    meta_gone(world, pod);
    shim_reaped(&world->shim, &shim->memory, sim_local(world, p), wait_status);
    shim_turn(world, pod);
}

void shim_look(struct world *world, int pod)
{
    struct shim *shim = &world->pods[pod].shim;

    if (!shim->alive)
        return;
    sim_post(world, world->now + sim_between(world, 0, SAMPLE_NS),
             (struct event){.kind = EV_SHIM_WAKE, .pod = pod, .gen = shim->gen, .arg = 1});
}

static void start_meta(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    int tag = db_new_tag(world, p);

    check_start(world, pod);
    p->lost_seen = false;
    p->owned_timeline = 0;
    p->proof_until = 0;
    p->shim.ports = SHIM_PORTS_KNOWN;
    shim_started(&p->shim.memory, sim_local(world, p), 1000 + tag, (uint64_t)tag,
                 world->db.tags[tag].text);
    meta_start(world, pod, tag);
}

static void kill_meta(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];

    if (p->shim.dying)
        return;
    p->shim.dying = true;
    sim_trace(world, pod, "fence: %s", fence_reason_name(p->shim.plan.reason));
    world->stats->reasons[p->shim.plan.reason]++;
    check_kill(world, pod, p->shim.plan.reason);
    p->meta.wait_status = 9;
    sim_post(world, world->now + kill_latency(world),
             (struct event){.kind = EV_META_DEATH, .pod = pod, .gen = p->meta.gen});
}

static bool wants_start(const struct world *world, const struct pod *p)
{
    const struct shim_plan *plan = &p->shim.plan;

    if (world->plant == PLANT_NEVER_START && p->shim.memory.status.incarnation > 0)
        return false;
    if (world->plant == PLANT_NO_LEASE_HOLD &&
        (plan->hold == SHIM_HOLD_LEASE || plan->hold == SHIM_HOLD_IDENTITY))
        return true;
    if (world->plant == PLANT_START_BESIDE && p->shim.dying)
        return true;
    return plan->start;
}

// A wake that comes too early is harmless: the turn asks for the next one.
static void set_wake(struct world *world, struct pod *p, int pod)
{
    struct shim *shim = &p->shim;
    int64_t at = sim_world_time(p, shim->plan.wake_at);

    if (world->plant == PLANT_NO_TIMER || at == INT64_MAX ||
        (shim->wake_at > world->now && shim->wake_at <= at))
        return;
    shim->wake_at = at;
    shim->wake_gen++;
    sim_post(world, at,
             (struct event){.kind = EV_SHIM_WAKE,
                            .pod = pod,
                            .gen = shim->gen,
                            .arg = (int)(shim->wake_gen << 1)});
}

static void note_hold(struct world *world, struct pod *p)
{
    const struct shim_plan *plan = &p->shim.plan;
    bool is_held = p->meta.state == META_DOWN &&
                   (plan->hold == SHIM_HOLD_STORM || plan->hold == SHIM_HOLD_BACKOFF ||
                    plan->hold == SHIM_HOLD_HANDOVER);

    if (is_held)
        p->held_until = sim_world_time(p, plan->hold_until);
    else if (p->held_until > world->now)
        p->held_until = world->now;
}

static void tell_agent(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct fence_status now = p->shim.memory.status;

    now.order_seq = 0;
    now.written_ns = 0;
    if (memcmp(&now, &p->shim.told, sizeof(now)) == 0)
        return;
    p->shim.told = now;
    p->shim.file = p->shim.memory.status;
    p->shim.file.magic = FENCE_STATUS_MAGIC;
    agent_status(world, pod);
}

void shim_turn(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct shim *shim = &p->shim;
    struct shim_facts facts = {.now = sim_local(world, p),
                               .agent_connected = p->agent.alive,
                               .term_requested = shim->term,
                               .ports = shim->ports};

    if (!shim->alive || world->failed || is_stopped(world, pod) ||
        host_stands_still(world, pod))
        return;
    if (shim->looks_first)
        facts.ports = shim->ports = meta_ports(&p->meta);
    shim->looks_first = false;
    if (world->plant == PLANT_PORTS_BLIND)
        facts.ports = 0;
    shim_decide(&world->shim, &facts, &shim->memory, &shim->plan);
    if (p->meta.state == META_DOWN)
        world->stats->holds[shim->plan.hold]++;
    note_hold(world, p);
    if (shim->plan.kill && p->meta.state != META_DOWN)
        kill_meta(world, pod);
    if (shim->plan.forward_term)
        meta_exit(world, pod, 0, sim_between(world, 50 * MS, 3 * S));
    if (shim->plan.exit) {
        sim_trace(world, pod, "metafence-run ends with %d", shim->plan.exit_status);
        p->shim.file = shim->memory.status;
        p->shim.file.magic = FENCE_STATUS_MAGIC;
        shim_kill_container(world, pod);
        return;
    }
    if (wants_start(world, p)) {
        start_meta(world, pod);
        shim_turn(world, pod);
        return;
    }
    set_wake(world, p, pod);
    tell_agent(world, pod);
}

// All of them wait, and are taken before anything is decided: the newest one counts, and of the
// older ones what the process was first permitted on.
static void wait_in_socket(struct kube_node *node, const struct fence_order *order)
{
    node->wants_order = true;
    node->order = *order;
    if (order->role != FENCE_ROLE_LEADER || node->wants_permit)
        return;
    node->wants_permit = true;
    node->permit = *order;
}

void shim_order(struct world *world, int pod, const struct fence_order *order)
{
    struct pod *p = &world->pods[pod];
    struct fence_order taken = *order;

    if (!p->shim.alive)
        return;
    if (is_stopped(world, pod)) {
        wait_in_socket(&world->cluster->nodes[pod], order);
        return;
    }
    if (world->plant == PLANT_ANY_INCARNATION)
        taken.incarnation = p->shim.memory.status.incarnation;
    if (world->plant == PLANT_LATCH_LOST)
        taken.flags &= ~(uint32_t)FENCE_ORDER_SUPERSEDED;
    if (taken.flags & FENCE_ORDER_ARMED)
        p->armed = true;
    check_permit(world, pod, &taken);
    shim_take_order(&world->shim, &p->shim.memory, &taken, sim_local(world, p));
    if (world->plant == PLANT_LATCH_LOST)
        p->shim.memory.status.flags &= ~(uint32_t)SHIM_SUPERSEDED;
    shim_turn(world, pod);
}

void shim_event(struct world *world, const struct event *event)
{
    struct pod *p = &world->pods[event->pod];
    struct shim *shim = &p->shim;

    if (event->gen != shim->gen)
        return;
    if (event->kind == EV_SHIM_START) {
        if (kubelet_may_run(world, event->pod))
            shim_boot(world, event->pod);
        return;
    }
    if (!shim->alive)
        return;
    if (event->kind == EV_ORDER) { // to a stopped one, too: it waits in the socket
        if ((uint32_t)event->arg <= shim->ring_done)
            return;
        shim->ring_done = (uint32_t)event->arg;
        shim_order(world, event->pod, &shim->ring[(shim->ring_done - 1) % ORDER_RING]);
        return;
    }
    if (is_stopped(world, event->pod))
        return;
    if (event->arg & 1)
        shim->ports = meta_ports(&p->meta);
    else if ((uint32_t)event->arg >> 1 != (shim->wake_gen & 0x7fffffffU))
        return;
    else
        shim->wake_at = 0;
    shim_turn(world, event->pod);
}
