// SPDX-License-Identifier: Apache-2.0
// One schedule from its seed to its end.
#include "tests/sim/cluster.h"

#include <stdio.h>
#include <string.h>

#define BIT(kind) (1U << (kind))

// The name, and how the failure that it must cause begins.
static const struct {
    const char *name;
    const char *breaks;
    uint32_t theme; // kinds of faults that lead there; 0: all
    bool needs_cluster;
    bool needs_hosts;
    uint32_t troubles; // as theme
} plants[PLANT_COUNT] = {
    [PLANT_NONE] = {.name = "none", .breaks = ""},
    [PLANT_MARGIN_SIGN] = {.name = "margin-sign", .breaks = "P1"},
    [PLANT_RECEIVED_FOR_SENT] = {.name = "received-for-sent",
                                 .breaks = "P1",
                                 .theme = BIT(FAULT_LATENCY) | BIT(FAULT_CLOCK_STEP) |
                                          BIT(FAULT_DROP) | BIT(FAULT_STALL) |
                                          BIT(FAULT_RESET)},
    [PLANT_AGE_IGNORED] = {.name = "age-ignored", .breaks = "P1"},
    [PLANT_NO_LEASE_HOLD] = {.name = "no-lease-hold", .breaks = "gate"},
    [PLANT_START_BESIDE] = {.name = "start-beside", .breaks = "gate"},
    [PLANT_LATCH_LOST] = {.name = "latch-lost",
                          .breaks = "latch",
                          .theme = BIT(FAULT_PAUSE) | BIT(FAULT_STALL) | BIT(FAULT_MANUAL) |
                                   BIT(FAULT_ROW_DELETED)},
    [PLANT_LATE_PERMIT] = {.name = "late-permit",
                           .breaks = "P1",
                           .theme = BIT(FAULT_AGENT_KILL) | BIT(FAULT_AGENT_FREEZE) |
                                    BIT(FAULT_STALL)},
    [PLANT_ERROR_IS_VERDICT] = {.name = "error-is-verdict", .breaks = "P2"},
    [PLANT_NO_TIMER] = {.name = "no-timer", .breaks = "P1"},
    [PLANT_PORTS_BLIND] = {.name = "ports-blind",
                           .breaks = "P1",
                           .theme =
                               BIT(FAULT_AGENT_KILL) | BIT(FAULT_STALL) | BIT(FAULT_MANUAL)},
    [PLANT_ANY_INCARNATION] = {.name = "any-incarnation", .breaks = "P2"},
    [PLANT_NEVER_START] = {.name = "never-start", .breaks = "P3"},
    [PLANT_LABEL_AFTER_KILL] = {.name = "label-after-kill",
                                .breaks = "P4: a kill is ordered before",
                                .needs_cluster = true},
    [PLANT_LABEL_AWAITED] = {.name = "label-awaited",
                             .breaks = "P4: a kill waits",
                             .needs_cluster = true},
    [PLANT_NO_SIBLINGS] = {.name = "no-siblings",
                           .breaks = "P4: a pod that can't speak",
                           .needs_cluster = true,
                           .troubles = BIT(TROUBLE_NODE_LOST) | BIT(TROUBLE_CUT_NODE)},
    [PLANT_OLD_VALUE] = {.name = "old-value-wins",
                         .breaks = "P4",
                         .needs_cluster = true,
                         .troubles = BIT(TROUBLE_API_LOST) | BIT(TROUBLE_API_NO_ANSWER) |
                                     BIT(TROUBLE_API_LATE) | BIT(TROUBLE_CUT_API)},
    [PLANT_NO_RECHECK] = {.name = "no-recheck",
                          .breaks = "P4: the label says",
                          .needs_cluster = true,
                          .troubles = BIT(TROUBLE_API_LATE) | BIT(TROUBLE_FOREIGN)},
    [PLANT_API_VERDICT] = {.name = "api-is-verdict",
                           .breaks = "P8: killed",
                           .needs_cluster = true,
                           .troubles = BIT(TROUBLE_API_DOWN) | BIT(TROUBLE_CUT_API)},
    [PLANT_NO_BACKOFF] = {.name = "no-back-off",
                          .breaks = "P8",
                          .needs_cluster = true,
                          .troubles = BIT(TROUBLE_API_DOWN) | BIT(TROUBLE_API_ERRORS)},
    [PLANT_TIMER_SLEEPS] = {.name = "timer-sleeps",
                            .breaks = "P1: acts",
                            .theme = BIT(FAULT_STALL) | BIT(FAULT_DROP),
                            .needs_hosts = true},
    [PLANT_TIMELINE_IGNORED] = {.name = "timeline-ignored",
                                .breaks = "P1: leads on",
                                .theme = BIT(FAULT_RESET),
                                .needs_hosts = true},
};

const char *plant_name(enum plant plant)
{
    return plants[plant].name;
}

uint32_t plant_theme(enum plant plant)
{
    return plants[plant].theme;
}

bool plant_needs_cluster(enum plant plant)
{
    return plants[plant].needs_cluster;
}

bool plant_needs_hosts(enum plant plant)
{
    return plants[plant].needs_hosts;
}

uint32_t plant_troubles(enum plant plant)
{
    return plants[plant].troubles;
}

bool plant_breaks(enum plant plant, const char *failure)
{
    return strncmp(failure, plants[plant].breaks, strlen(plants[plant].breaks)) == 0;
}

static void set_timing(struct world *world)
{
    bool quick = world->ttl_ns <= 5 * S;
    int64_t time_out_ns = quick ? 200 * MS : 2 * S;

    world->core = (struct core_config){.ttl_ns = world->ttl_ns,
                                       .poll_ns = quick ? 100 * MS : 250 * MS,
                                       .connect_timeout_ns = time_out_ns,
                                       .query_timeout_ns = time_out_ns,
                                       .renew_gap_ns = quick ? 1500 * MS : 3 * S,
                                       .margin_ns = quick ? 300 * MS : 2 * S,
                                       .kill_budget_ns = quick ? 300 * MS : 500 * MS,
                                       .max_clock_jump_ns = S,
                                       .phantom_after_ns = quick ? 12 * S : 60 * S,
                                       .promote_after_ns = quick ? 25 * S : 100 * S,
                                       .confirm_after_ns = 30 * S};
    world->shim = (struct shim_config){.ttl_ns = world->ttl_ns,
                                       .margin_ns = world->core.margin_ns,
                                       .kill_budget_ns = world->core.kill_budget_ns,
                                       .database_hold_ns = 60 * S,
                                       .kill_window_ns = 600 * S,
                                       .agent_silence_ns = world->ttl_ns / 3,
                                       .max_kills = 3};
    world->acquire_ns = sim_chance(world, 30) ? world->ttl_ns : 30 * S;
}

void pod_boot(struct world *world, int pod, int id)
{
    struct pod *p = &world->pods[pod];

    p->exists = true;
    p->id = id;
    (void)snprintf(p->uid, sizeof(p->uid), "%08x", (unsigned)sim_random(world));
    p->clock_zero = sim_between(world, S, 100000 * S);
    p->clock_ppm = sim_between(world, -100, 100);
    // Some pods are far away: reads take most of their time-out.
    p->usual_ns = MS / 2;
    if (sim_chance(world, 12))
        p->usual_ns = sim_between(world, MS, world->core.query_timeout_ns * 4 / 10);
    p->link.there_ns = p->link.back_ns = p->usual_ns;
    if (world->cluster)
        kubelet_booted(world, pod);
    agent_start(world, pod);
    shim_boot(world, pod);
}

static int draw_pods(struct world *world)
{
    int64_t pick = sim_between(world, 0, 100);

    if (pick < 5)
        return 1;
    return pick < 20 ? 2 : 3;
}

void world_init(struct world *world, uint64_t seed, int64_t ttl_ns, bool has_cluster)
{
    world->seed = seed;
    world->rng = seed * UINT64_C(0x2545f4914f6cdd1d) + (uint64_t)ttl_ns;
    world->ttl_ns = ttl_ns;
    world->db.owner_tag = -1;
    world->db.timeline = 1;
    world->db.up = true;
    set_timing(world);
    world->pod_count = draw_pods(world);
    world->api_known = sim_chance(world, 30);
    fault_plan(world);
    if (has_cluster)
        cluster_init(world);
    if (world->has_hosts)
        host_plan(world);
}

int world_faults(const struct world *world)
{
    return (world->round + 1) * ROUND_BITS;
}

// The faults of a round begin now; *until is when all has to be well again.
static void plan_end(struct world *world)
{
    int64_t extra_ns = 8 * S;

    world->faults_end = world->now;
    for (int i = 0; i < world->fault_count; i++) {
        const struct fault *fault = &world->faults[i];
        int64_t at = world->now + fault->at;
        if (muted_has(&world->muted, world->round * ROUND_BITS + i))
            continue;
        sim_post(world, at, (struct event){.kind = EV_FAULT_BEGIN, .arg = i});
        sim_post(world, at + fault->span_ns, (struct event){.kind = EV_FAULT_END, .arg = i});
        if (at + fault->span_ns > world->faults_end)
            world->faults_end = at + fault->span_ns;
        if (fault->kind == FAULT_PHANTOM)
            extra_ns += world->core.phantom_after_ns + world->ttl_ns;
        if (fault->kind == FAULT_STUCK_INIT)
            extra_ns += world->core.promote_after_ns + world->ttl_ns;
        if (fault->kind == FAULT_SLOW_INIT)
            extra_ns += fault->amount_ns;
    }
    // Of an earlier round: it may win at any time.
    for (int i = 0; i < world->pod_count; i++)
        if (world->pods[i].exists && world->pods[i].meta.phantom)
            extra_ns += world->core.phantom_after_ns + world->ttl_ns;
    if (world->cluster) {
        (world->round == 0 ? cluster_run : cluster_round)(world);
        extra_ns += 12 * S; // a pod that is replaced, or begins without anything
    }
    world->settled_by = world->faults_end + 2 * world->ttl_ns + extra_ns;
    world->end_at = world->settled_by + world->ttl_ns + (world->cluster ? 15 * S : 0);
    if (world->end_at < 120 * S)
        world->end_at = 120 * S;
}

static bool is_muted_round(const struct world *world)
{
    for (int i = 0; i < ROUND_BITS; i++)
        if (!muted_has(&world->muted, world->round * ROUND_BITS + i))
            return false;
    return true;
}

// After a rest the next faults, drawn from a stream of their own, so that muting some changes
// no other; a round of which nothing is left takes no time. False: the schedule is over.
static bool begin_round(struct world *world)
{
    uint64_t rng = world->rng;

    do {
        if (++world->round == ROUNDS_MAX || world->end_at >= world->least_ns)
            return false;
    } while (is_muted_round(world));
    world->now = world->end_at;
    world->db.steps_ns = 0;
    for (int i = 0; i < PODS_MAX; i++)
        world->pods[i].clock_moved_ns = 0;
    world->fault_count = 0;
    world->stats->rounds++;
    world->rng = (world->seed + (uint64_t)world->round * 7919) * UINT64_C(0x2545f4914f6cdd1d) +
                 (uint64_t)world->ttl_ns;
    if (!world->cluster || !world->cluster->is_api_only)
        fault_plan(world);
    if (world->has_hosts)
        host_plan(world);
    world->rng = rng;
    sim_trace(world, -1, "ROUND %d", world->round);
    plan_end(world);
    return true;
}

static void on_request(struct world *world, const struct event *event)
{
    struct req *req = req_find(world, event->gen);
    struct pod *p = NULL;
    int64_t frozen_until = 0;

    if (!req || req->held != EV_NONE)
        return;
    p = &world->pods[req->pod];
    if (event->kind == EV_DB_EXEC) {
        if (link_arrives(world, req, EV_DB_EXEC))
            db_exec(world, req);
        return;
    }
    if (event->kind == EV_DB_ANSWER && !link_arrives(world, req, EV_DB_ANSWER))
        return;
    frozen_until = req->kind == REQ_READ ? p->agent.frozen_until : p->meta.frozen_until;
    if (world->now < frozen_until) {
        sim_post(world, frozen_until + sim_between(world, 0, 12 * MS), *event);
        return;
    }
    if (req->kind == REQ_CAMPAIGN)
        (event->kind == EV_DB_ANSWER ? meta_answer : meta_fail)(world, req);
    else
        (event->kind == EV_DB_ANSWER ? agent_answer : agent_fail)(world, req);
    req->serial = 0;
}

static void dispatch(struct world *world, const struct event *event)
{
    if (host_puts_off(world, event))
        return;
    switch (event->kind) {
    case EV_NONE: break;
    case EV_DB_EXEC:
    case EV_DB_ANSWER:
    case EV_DB_FAIL: on_request(world, event); break;
    case EV_META_TICK:
    case EV_META_ACQUIRE:
    case EV_META_ACQUIRE_OVER:
    case EV_META_PHASE:
    case EV_META_DEATH: meta_event(world, event); break;
    case EV_SHIM_START:
    case EV_SHIM_WAKE:
    case EV_ORDER: shim_event(world, event); break;
    case EV_AGENT_POLL:
    case EV_AGENT_WAKE:
    case EV_READ_HEDGE:
    case EV_READ_GIVEUP:
    case EV_RPC: agent_event(world, event); break;
    case EV_FAULT_BEGIN: fault_begin(world, event->arg); break;
    case EV_FAULT_END: fault_end(world, event->arg); break;
    case EV_CLUSTER: cluster_event(world, event); break;
    case EV_CHECK:
        check_settled(world);
        sim_post(world, world->now + 500 * MS, *event);
        break;
    }
}

void world_run(struct world *world)
{
    struct event event = {0};

    if (world->plant == PLANT_MARGIN_SIGN) {
        world->core.margin_ns = -world->core.margin_ns;
        world->shim.margin_ns = -world->shim.margin_ns;
    }
    plan_end(world);
    for (int i = 0; i < world->pod_count; i++)
        pod_boot(world, i, i);
    sim_post(world, 500 * MS, (struct event){.kind = EV_CHECK, .pod = -1});
    while (!world->failed && sim_next(world, &event)) {
        if (event.at > world->end_at) {
            if (!begin_round(world))
                break;
            sim_post(world, event.at, event);
            continue;
        }
        world->now = event.at;
        dispatch(world, &event);
        world->stats->events++;
        check_step(world);
    }
    world->stats->hosts += world->has_hosts;
    world->stats->virtual_ns += world->now;
    world->stats->runs++;
}
