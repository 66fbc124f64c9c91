// SPDX-License-Identifier: Apache-2.0
// What happens to whole machines and their clocks, and a database that lost its last seconds.
// Drawn from a stream of chance of their own: a seed's other faults stay what they were.
//   clock-rate   BOOTTIME runs up to 400 ppm faster or slower
//   clock-leap   … leaps ahead, as after a move to another host
//   suspend      nothing of the node runs, its BOOTTIME goes on
//   guest-pause  nothing of the node runs and its BOOTTIME stands: it can't know before it runs
//   failover-loss  the new primary lacks the last seconds, with them maybe a term
#include "tests/sim/cluster.h"

#define MOST_HOST_FAULTS 3

static struct fault draw(struct world *world)
{
    static const enum fault_kind kinds[] = {FAULT_CLOCK_RATE,    FAULT_CLOCK_LEAP,
                                            FAULT_SUSPEND,       FAULT_GUEST_PAUSE,
                                            FAULT_FAILOVER_LOSS, FAULT_FAILOVER_LOSS};
    int64_t window_ns = (world->ttl_ns > 10 * S ? 7 : 17) * world->ttl_ns;
    struct fault fault = {.kind = kinds[sim_between(world, 0, 6)],
                          .pod = (int)sim_between(world, 0, world->pod_count),
                          .on_leader = sim_chance(world, 60),
                          .at = sim_between(world, 0, window_ns)};

    // Near another one: that is where proofs are thin.
    if (world->fault_count > 0 && sim_chance(world, 60))
        fault.at = world->faults[sim_between(world, 0, world->fault_count)].at +
                   sim_between(world, 0, world->ttl_ns);
    switch ((int)fault.kind) {
    case FAULT_CLOCK_RATE: fault.amount_ns = sim_between(world, -400, 401); break;
    case FAULT_CLOCK_LEAP: fault.amount_ns = sim_between(world, 10 * MS, world->ttl_ns); break;
    case FAULT_FAILOVER_LOSS:
        fault.span_ns = sim_between(world, world->ttl_ns / 10, world->ttl_ns * 3 / 5);
        fault.amount_ns = sim_between(world, 500 * MS, 10 * S);
        break;
    default: fault.span_ns = sim_between(world, 50 * MS, world->ttl_ns * 5 / 2); break;
    }
    return fault;
}

void host_plan(struct world *world)
{
    uint64_t rng = world->rng;
    int wanted = 0;

    if (world->calm || (world->cluster && world->cluster->is_api_only))
        return;
    world->rng = (world->seed * 31 + (uint64_t)world->round) * UINT64_C(0xd1342543de82ef95) + 5;
    wanted = (int)sim_between(world, 1, MOST_HOST_FAULTS + 1);
    for (; wanted > 0 && world->fault_count < FAULTS_MAX; wanted--)
        world->faults[world->fault_count++] = draw(world);
    world->rng = rng;
}

bool host_stands_still(const struct world *world, int pod)
{
    return world->now < world->pods[pod].standstill_until;
}

static bool is_of_pod(const struct event *event)
{
    switch (event->kind) {
    case EV_NONE:
    case EV_DB_EXEC:
    case EV_FAULT_BEGIN:
    case EV_FAULT_END:
    case EV_CHECK: return false;
    case EV_CLUSTER: return event->pod >= 0 && cluster_is_of_node(event);
    case EV_DB_ANSWER:
    case EV_DB_FAIL:
    case EV_READ_HEDGE:
    case EV_READ_GIVEUP:
    case EV_META_TICK:
    case EV_META_ACQUIRE:
    case EV_META_ACQUIRE_OVER:
    case EV_META_PHASE:
    case EV_META_DEATH:
    case EV_SHIM_START:
    case EV_SHIM_WAKE:
    case EV_AGENT_POLL:
    case EV_AGENT_WAKE:
    case EV_ORDER:
    case EV_RPC: break;
    }
    return true;
}

// In no order: all of a node's processes wake at once.
bool host_puts_off(struct world *world, const struct event *event)
{
    if (!is_of_pod(event) || !host_stands_still(world, event->pod))
        return false;
    sim_post(world, world->pods[event->pod].standstill_until + sim_between(world, 0, 12 * MS),
             *event);
    return true;
}

// Timers of BOOTTIME that are set are due by the clock as it is now.
static void clock_changed(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];

    p->agent.wake_at = world->now;
    p->shim.wake_at = 0;
    sim_post(world, world->now,
             (struct event){.kind = EV_AGENT_WAKE,
                            .pod = pod,
                            .gen = p->agent.gen,
                            .arg = (int)++p->agent.wake_gen});
    sim_post(world, world->now,
             (struct event){.kind = EV_SHIM_WAKE, .pod = pod, .gen = p->shim.gen, .arg = 1});
    if (world->cluster)
        cluster_clock_changed(world, pod);
}

// From here on at another rate, from the same reading.
static void set_rate(struct world *world, int pod, int64_t ppm)
{
    struct pod *p = &world->pods[pod];

    p->clock_zero += world->now / 1000000 * (p->clock_ppm - ppm);
    p->clock_ppm = ppm;
    clock_changed(world, pod);
}

static void leap(struct world *world, int pod, int64_t amount_ns)
{
    struct pod *p = &world->pods[pod];

    p->clock_zero += amount_ns;
    p->clock_moved_ns += amount_ns;
    p->leapt_at = world->now;
    p->proof_until -= amount_ns;
    p->shim.looks_first = true;
    clock_changed(world, pod);
}

// What stands still already is not stopped once more.
static void stand_still(struct world *world, struct fault *fault)
{
    struct pod *p = &world->pods[fault->pod];

    fault->amount_ns = 0;
    if (host_stands_still(world, fault->pod))
        return;
    fault->amount_ns = fault->span_ns;
    p->standstill_until = world->now + fault->span_ns;
}

// Suspended, CLOCK_MONOTONIC would have stood still, and with it the deadline: a planted fault.
static void go_on(struct world *world, const struct fault *fault)
{
    struct pod *p = &world->pods[fault->pod];
    bool lags = fault->kind == FAULT_GUEST_PAUSE;

    if (lags || world->plant == PLANT_TIMER_SLEEPS)
        p->clock_zero -= fault->amount_ns;
    p->shim.looks_first = !lags;
    if (lags && fault->amount_ns > 0) {
        p->clock_moved_ns += fault->amount_ns;
        p->lag_until = world->now + world->ttl_ns;
    }
    clock_changed(world, fault->pod);
}

bool host_begin(struct world *world, struct fault *fault)
{
    switch ((int)fault->kind) {
    case FAULT_CLOCK_RATE: set_rate(world, fault->pod, fault->amount_ns); break;
    case FAULT_CLOCK_LEAP: leap(world, fault->pod, fault->amount_ns); break;
    case FAULT_SUSPEND:
    case FAULT_GUEST_PAUSE: stand_still(world, fault); break;
    case FAULT_FAILOVER_LOSS: db_stop(world); break;
    default: return false;
    }
    return true;
}

bool host_end(struct world *world, const struct fault *fault)
{
    switch ((int)fault->kind) {
    case FAULT_CLOCK_RATE:
    case FAULT_CLOCK_LEAP: break;
    case FAULT_SUSPEND:
    case FAULT_GUEST_PAUSE: go_on(world, fault); break;
    case FAULT_FAILOVER_LOSS:
        db_stop(world); // another failover may have ended meanwhile
        world->db.timeline++;
        db_lose_since(world, world->now - fault->span_ns - fault->amount_ns);
        db_start(world);
        break;
    default: return false;
    }
    return true;
}
