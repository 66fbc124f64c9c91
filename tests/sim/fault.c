// SPDX-License-Identifier: Apache-2.0
// What goes wrong in a schedule: drawn from the seed before anything runs, so that a schedule
// can be run again with one fault less.
#include "tests/sim/cluster.h"

#include <stdio.h>
#include <string.h>

#define CALM_FAULTS 12

// How often each is drawn, and how long it lasts in hundredths of ttl. 0 to 0: an instant.
static const struct {
    const char *name;
    int weight;
    int low;
    int high;
    bool everybody; // it concerns all pods
} kinds[FAULT_COUNT] = {
    [FAULT_STALL] = {"stall", 12, 5, 300, false},
    [FAULT_RESET] = {"reset", 8, 5, 250, false},
    [FAULT_OLD_DEAD] = {"old-dead", 8, 20, 400, false},
    [FAULT_DROP] = {"drop", 8, 5, 300, false},
    [FAULT_LATENCY] = {"latency", 8, 50, 400, false},
    [FAULT_DATABASE_DOWN] = {"database-down", 10, 5, 250, true},
    [FAULT_FAILOVER] = {"failover", 3, 10, 60, true},
    [FAULT_META_FREEZE] = {"meta-freeze", 8, 5, 250, false},
    [FAULT_META_CRASH] = {"meta-crash", 8, 0, 0, false},
    [FAULT_META_ERR] = {"meta-error", 6, 0, 0, false},
    [FAULT_POOL_FULL] = {"pool-full", 6, 50, 900, false},
    [FAULT_AGENT_KILL] = {"agent-kill", 8, 2, 300, false},
    [FAULT_AGENT_FREEZE] = {"agent-freeze", 6, 5, 250, false},
    [FAULT_IPC_DELAY] = {"ipc-delay", 5, 50, 400, false},
    [FAULT_SHIM_RESTART] = {"container-restart", 5, 0, 0, false},
    [FAULT_MANUAL] = {"manual-fence", 5, 10, 300, false},
    [FAULT_PAUSE] = {"pause", 5, 50, 400, false},
    [FAULT_CLOCK_STEP] = {"clock-step", 6, 0, 0, true},
    [FAULT_SLOW_INIT] = {"slow-init", 5, 100, 800, false},
    [FAULT_STUCK_INIT] = {"stuck-init", 2, 100, 600, false},
    [FAULT_PHANTOM] = {"phantom", 4, 100, 800, false},
    [FAULT_HEARTBEAT_NULL] = {"heartbeat-null", 3, 5, 100, true},
    [FAULT_REFUSED] = {"login-refused", 5, 10, 250, false},
    [FAULT_ROW_DELETED] = {"row-deleted", 4, 0, 0, true},
    [FAULT_ROW_MOVED] = {"row-moved", 4, 0, 0, true},
    [FAULT_TWIN] = {"twin", 4, 300, 900, false},
    // Drawn apart, by host.c.
    [FAULT_CLOCK_RATE] = {"clock-rate", 0, 0, 0, false},
    [FAULT_CLOCK_LEAP] = {"clock-leap", 0, 0, 0, false},
    [FAULT_SUSPEND] = {"suspend", 0, 0, 0, false},
    [FAULT_GUEST_PAUSE] = {"guest-pause", 0, 0, 0, false},
    [FAULT_FAILOVER_LOSS] = {"failover-loss", 0, 0, 0, true},
};

const char *fault_name(enum fault_kind kind)
{
    return kinds[kind].name;
}

void fault_describe(const struct fault *fault, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%-18s pod %d  at %8.3f s  for %8.3f s  amount %lld us",
                   kinds[fault->kind].name, fault->pod, (double)fault->at / 1e9,
                   (double)fault->span_ns / 1e9, (long long)(fault->amount_ns / 1000));
}

// Half of the schedules know only some kinds: these meet more often then.
static enum fault_kind draw_kind(struct world *world, uint32_t among)
{
    int total = 0;
    int64_t pick = 0;

    for (int i = 0; i < FAULT_HOST_FIRST; i++)
        if (among & (1U << i))
            total += kinds[i].weight;
    pick = sim_between(world, 0, total);
    for (int i = 0; i < FAULT_HOST_FIRST; i++) {
        if (!(among & (1U << i)))
            continue;
        pick -= kinds[i].weight;
        if (pick < 0)
            return (enum fault_kind)i;
    }
    return FAULT_STALL;
}

static bool has_kind(const struct world *world, enum fault_kind kind)
{
    for (int i = 0; i < world->fault_count; i++)
        if (world->faults[i].kind == kind)
            return true;
    return false;
}

// Half of the time the most: that is where arithmetic breaks.
static int64_t up_to(struct world *world, int64_t low, int64_t high)
{
    return sim_chance(world, 50) ? high : sim_between(world, low, high);
}

static int64_t draw_amount(struct world *world, enum fault_kind kind)
{
    int64_t slow_ns = world->core.query_timeout_ns;

    switch ((int)kind) {
    case FAULT_STALL:
    case FAULT_DROP: return sim_chance(world, 30) ? sim_between(world, 1, 3) : 0;
    case FAULT_LATENCY: return up_to(world, slow_ns / 20, slow_ns);
    case FAULT_IPC_DELAY: return sim_between(world, MS, 60 * MS);
    case FAULT_CLOCK_STEP: {
        int64_t most_ns = world->core.margin_ns * 9 / 10;
        return up_to(world, -most_ns / 2, most_ns);
    }
    case FAULT_SLOW_INIT: return sim_between(world, 100 * MS, world->ttl_ns * 2);
    default: return 0;
    }
}

static uint32_t draw_kinds(struct world *world)
{
    uint32_t among = 0;

    for (int count = (int)sim_between(world, 2, 6); count > 0; count--)
        among |= 1U << sim_between(world, 0, FAULT_HOST_FIRST);
    return among;
}

static void draw_fault(struct world *world, enum fault_kind kind, struct fault *ret)
{
    int64_t window_ns = (world->ttl_ns > 10 * S ? 7 : 17) * world->ttl_ns;
    int64_t ttl_cent = world->ttl_ns / 100;
    const struct fault *last = world->fault_count > 0 ? ret - 1 : NULL;

    *ret = (struct fault){.kind = kind};
    ret->pod = (int)sim_between(world, 0, world->pod_count);
    ret->on_leader = kind != FAULT_TWIN && sim_chance(world, 50);
    ret->at = sim_chance(world, 10) ? 0 : sim_between(world, 0, window_ns);
    // Faults that meet are worth more than faults in a row.
    if (last && sim_chance(world, kind == FAULT_CLOCK_STEP ? 80 : 40)) {
        ret->at = last->at + sim_between(world, 0, world->ttl_ns);
        if (sim_chance(world, 70)) {
            ret->pod = last->pod;
            ret->on_leader = false;
        }
    }
    ret->span_ns = sim_between(world, kinds[kind].low * ttl_cent, kinds[kind].high * ttl_cent);
    ret->amount_ns = draw_amount(world, kind);
}

// Disturbances one after the other, each no longer than what core_config_check promises to
// bear.
static void plan_calm(struct world *world)
{
    static const enum fault_kind harmless[] = {
        FAULT_STALL,         FAULT_RESET,   FAULT_DROP,      FAULT_LATENCY,
        FAULT_DATABASE_DOWN, FAULT_REFUSED, FAULT_AGENT_KILL};
    const struct core_config *core = &world->core;
    int64_t bearable_ns =
        world->ttl_ns - 2 * (core->connect_timeout_ns + core->query_timeout_ns) -
        core->poll_ns - core->renew_gap_ns - core->margin_ns - core->kill_budget_ns;
    int64_t at = world->ttl_ns;

    while (world->fault_count < CALM_FAULTS) {
        struct fault *fault = &world->faults[world->fault_count++];
        *fault = (struct fault){.kind = harmless[sim_between(world, 0, 7)],
                                .pod = (int)sim_between(world, 0, world->pod_count),
                                .on_leader = sim_chance(world, 70),
                                .at = at,
                                .span_ns = sim_between(world, 10 * MS, bearable_ns)};
        if (fault->kind == FAULT_LATENCY)
            fault->amount_ns = sim_between(world, MS, core->query_timeout_ns * 4 / 10);
        at += fault->span_ns + sim_between(world, world->ttl_ns, 3 * world->ttl_ns);
    }
}

void fault_plan(struct world *world)
{
    int wanted = (int)sim_between(world, 0, 8);
    uint32_t among = sim_chance(world, 50) ? UINT32_MAX : draw_kinds(world);

    if (world->calm) {
        plan_calm(world);
        return;
    }
    if (world->among)
        among = world->among;
    while (world->fault_count < wanted) {
        enum fault_kind kind = draw_kind(world, among);
        bool once = kind == FAULT_CLOCK_STEP || kind == FAULT_TWIN || kind == FAULT_FAILOVER;
        bool had_twin = kind == FAULT_TWIN && world->pods[PODS_MAX - 1].exists;
        if ((once && has_kind(world, kind)) || had_twin) {
            wanted--;
            continue;
        }
        draw_fault(world, kind, &world->faults[world->fault_count]);
        world->fault_count++;
    }
}

// ---- begin and end

void fault_unsound(struct world *world, const struct fault *fault, int change)
{
    for (int i = 0; i < PODS_MAX; i++) {
        struct pod *p = &world->pods[i];
        if (!kinds[fault->kind].everybody && i != fault->pod)
            continue;
        p->unsound += change;
        p->link.sound_since = world->now;
    }
}

static void begin_link(struct world *world, const struct fault *fault)
{
    static const enum link_mode modes[] = {[FAULT_STALL] = LINK_STALL,
                                           [FAULT_RESET] = LINK_RESET,
                                           [FAULT_OLD_DEAD] = LINK_OLD_DEAD,
                                           [FAULT_DROP] = LINK_DROP};
    struct pod *p = &world->pods[fault->pod];

    p->trap = (int)fault->amount_ns;
    p->trap_mode = modes[fault->kind];
    if (p->trap == 0)
        link_set(world, fault->pod, p->trap_mode);
}

static void begin_latency(struct world *world, const struct fault *fault)
{
    struct link *link = &world->pods[fault->pod].link;

    // Slow one way, the other, or both: the answer's way is what a proof must not trust.
    if (sim_chance(world, 60))
        link->back_ns = fault->amount_ns;
    if (sim_chance(world, 40))
        link->there_ns = fault->amount_ns;
}

static void begin_freeze(struct world *world, const struct fault *fault)
{
    struct meta *meta = &world->pods[fault->pod].meta;

    if (meta->state == META_DOWN)
        return;
    meta->frozen_at = world->now;
    meta->frozen_until = world->now + fault->span_ns;
}

static void set_pause(struct world *world, const struct fault *fault)
{
    struct pod *p = &world->pods[fault->pod];

    if (host_stands_still(world, fault->pod))
        return; // nobody takes the order
    p->pause_until = world->now + fault->span_ns;
    p->agent.facts.orders.pause_end = instant_add(sim_local(world, p), fault->span_ns);
    if (world->cluster)
        cluster_pause(world, fault->pod, p->agent.facts.orders.pause_end);
    agent_turn(world, fault->pod);
}

static void set_manual(struct world *world, int pod, bool on)
{
    struct pod *p = &world->pods[pod];

    p->manual = on;
    p->agent.facts.orders.manual_fence = on;
    if (world->now >= p->agent.frozen_until)
        agent_turn(world, pod);
}

static void begin_twin(struct world *world, const struct fault *fault)
{
    int twin = PODS_MAX - 1;

    if (world->pods[twin].exists)
        return;
    if (sim_chance(world, 50)) {
        link_set(world, fault->pod, LINK_STALL);
        if (world->cluster)
            cluster_cut_by_twin(world, fault->pod);
    }
    world->pod_count = PODS_MAX;
    pod_boot(world, twin, world->pods[fault->pod].id);
}

// The force-deleted pod's node comes back and ends what still runs.
static void end_twin(struct world *world, const struct fault *fault)
{
    struct pod *p = &world->pods[fault->pod];

    agent_stop(world, fault->pod);
    shim_kill_container(world, fault->pod);
    p->shim.gen++;
    p->exists = false;
    link_set(world, fault->pod, LINK_OK);
    if (world->cluster)
        cluster_twin_ended(world, fault->pod);
    sim_trace(world, fault->pod, "the old pod is gone for good");
}

// What concerns the processes of one pod. Returns false for the others.
static bool begin_in_pod(struct world *world, const struct fault *fault)
{
    struct pod *p = &world->pods[fault->pod];

    switch ((int)fault->kind) {
    case FAULT_META_FREEZE: begin_freeze(world, fault); break;
    case FAULT_META_CRASH: meta_exit(world, fault->pod, 6, MS); break;
    case FAULT_META_ERR: p->meta.is_leader = false; break;
    case FAULT_POOL_FULL: p->pool_full = true; break;
    case FAULT_AGENT_KILL:
        if (p->exists)
            agent_stop(world, fault->pod);
        break;
    case FAULT_AGENT_FREEZE: p->agent.frozen_until = world->now + fault->span_ns; break;
    case FAULT_IPC_DELAY: p->shim.ipc_ns = fault->amount_ns; break;
    case FAULT_SHIM_RESTART: shim_kill_container(world, fault->pod); break;
    case FAULT_MANUAL: set_manual(world, fault->pod, true); break;
    case FAULT_PAUSE: set_pause(world, fault); break;
    case FAULT_SLOW_INIT: p->next_init_ns = fault->amount_ns; break;
    case FAULT_STUCK_INIT: p->stuck_init = true; break;
    case FAULT_PHANTOM:
        p->next_phantom = true;
        if (p->meta.state != META_DOWN && p->meta.engaged_at == 0)
            p->meta.phantom = true;
        break;
    case FAULT_REFUSED: p->refused = true; break;
    default: return false;
    }
    return true;
}

static void begin_outside(struct world *world, const struct fault *fault)
{
    struct database *db = &world->db;

    switch ((int)fault->kind) {
    case FAULT_STALL:
    case FAULT_RESET:
    case FAULT_OLD_DEAD:
    case FAULT_DROP: begin_link(world, fault); break;
    case FAULT_LATENCY: begin_latency(world, fault); break;
    case FAULT_DATABASE_DOWN:
    case FAULT_FAILOVER: db_stop(world); break;
    case FAULT_CLOCK_STEP:
        db->step_ns += fault->amount_ns;
        db->steps_ns += fault->amount_ns < 0 ? -fault->amount_ns : fault->amount_ns;
        break;
    case FAULT_HEARTBEAT_NULL: db->null = db->row; break;
    case FAULT_ROW_DELETED:
    case FAULT_ROW_MOVED: db_disturb(world, fault->kind); break;
    case FAULT_TWIN: begin_twin(world, fault); break;
    default: break;
    }
}

void fault_begin(struct world *world, int index)
{
    struct fault *fault = &world->faults[index];
    char text[160];

    if (fault->on_leader)
        fault->pod = meta_leading(world, fault->pod);
    fault_describe(fault, text, sizeof(text));
    sim_trace(world, -1, "FAULT %s", text);
    world->stats->faults[fault->kind]++;
    fault_unsound(world, fault, 1);
    if (!host_begin(world, fault) && !begin_in_pod(world, fault))
        begin_outside(world, fault);
}

void fault_end(struct world *world, int index)
{
    const struct fault *fault = &world->faults[index];
    struct pod *p = &world->pods[fault->pod];

    sim_trace(world, -1, "end of %s", kinds[fault->kind].name);
    fault_unsound(world, fault, -1);
    if (host_end(world, fault))
        return;
    switch ((int)fault->kind) {
    case FAULT_STALL:
    case FAULT_RESET:
    case FAULT_OLD_DEAD:
    case FAULT_DROP:
        p->trap = 0;
        link_set(world, fault->pod, LINK_OK);
        break;
    case FAULT_LATENCY: p->link.there_ns = p->link.back_ns = p->usual_ns; break;
    case FAULT_FAILOVER:
        world->db.timeline++;
        db_start(world);
        break;
    case FAULT_DATABASE_DOWN: db_start(world); break;
    case FAULT_POOL_FULL: p->pool_full = false; break;
    case FAULT_AGENT_KILL:
        if (p->exists && !p->agent.alive)
            agent_start(world, fault->pod);
        break;
    case FAULT_AGENT_FREEZE:
        p->agent.frozen_until = 0;
        if (sim_chance(world, 50))
            agent_turn(world, fault->pod); // it decides on what it knew
        agent_status(world, fault->pod);
        break;
    case FAULT_IPC_DELAY: p->shim.ipc_ns = 0; break;
    case FAULT_MANUAL: set_manual(world, fault->pod, false); break;
    case FAULT_SLOW_INIT: p->next_init_ns = 0; break;
    case FAULT_STUCK_INIT: p->stuck_init = false; break;
    case FAULT_PHANTOM: p->next_phantom = false; break;
    case FAULT_HEARTBEAT_NULL: world->db.null = false; break;
    case FAULT_REFUSED: p->refused = false; break;
    case FAULT_TWIN:
        if (world->pods[PODS_MAX - 1].exists)
            end_twin(world, fault);
        break;
    default: break;
    }
}
