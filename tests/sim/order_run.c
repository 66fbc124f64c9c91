// SPDX-License-Identifier: Apache-2.0
// simulate-order: schedules of recoveries. `--seed N --verbose` shows one.
#include "tests/sim/order.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAULTS_END (90 * OW_S)
#define END_AT     (FAULTS_END + 60 * OW_S)

static const char *const fault_names[OW_FAULTS] = {
    "crash", "paused", "db-cut",  "node-cut",   "node-crash", "stuck",    "reregister",
    "lost",  "late",   "slow",    "agent-down", "api-stale",  "status",   "blind",
    "drop",  "create", "recover", "request",    "attempt",    "exception"};

static const struct driver_plant plants[OW_PLANTS] = {
    [OW_PLANT_NONE] = {"none", ""},
    [OW_PLANT_NO_PRECONDITION] = {"no-precondition", "Init: "},
    [OW_PLANT_OBSERVE] = {"observe", "Init: in observe"},
    [OW_PLANT_ZOMBIE] = {"zombie", "Init: "},
    [OW_PLANT_LEASE] = {"lease", "Init: "},
    [OW_PLANT_NO_STOP] = {"no-stop", "Init: "},
    [OW_PLANT_ONE_READ] = {"one-read", "P7"},
    [OW_PLANT_WORKER_ID] = {"gone-by-worker-id", "P7"},
    [OW_PLANT_OLD_LOOK] = {"gone-by-old-look", "P7"},
    [OW_PLANT_REVISION] = {"none-of-old-drops", "P7"},
    [OW_PLANT_BUILDING] = {"none-while-building", "P7"},
    [OW_PLANT_ROUND] = {"used-up-evidence", "P7"},
    [OW_PLANT_ANY_ANSWER] = {"any-answer", "P7"},
    [OW_PLANT_NO_BOUND] = {"no-bound", "end: "},
    [OW_PLANT_START] = {"start-without-bound", "end: the start"},
    [OW_PLANT_FENCE_LATE] = {"fence-not-asked-again", "fence: "},
    [OW_PLANT_FENCE_NEWER] = {"fence-of-any-process", "fence: "},
    [OW_PLANT_FENCE_UNASKED] = {"fence-of-who-is-not-reached", "fence: "},
    [OW_PLANT_FENCE_IS_END] = {"fence-is-no-end", "P7"},
};

bool ow_is_on(const struct ow_world *world, enum ow_fault fault)
{
    return world->until[fault] > world->run->now;
}

// ---- faults

static void order_something(struct ow_world *world)
{
    int leader = world->db.holder;
    struct ow_agent *a = leader == OW_NOBODY ? NULL : &world->agents[leader];
    const struct order_config *config = &world->config;

    if (!a || a->facts.request.kind != ORDER_REQUEST_NONE || a->down_until > world->run->now)
        return;
    a->facts.request = (struct order_request){
        .kind = driver_chance(world->run, 50) ? ORDER_REQUEST_RECOVER : ORDER_REQUEST_HANDOVER,
        .id = ++world->next_request,
        .at = {world->run->now},
        .wait_ns = OW_WAIT_NS};
    a->request_bound = world->run->now + OW_WAIT_NS + config->max_hold_ns +
                       config->handover_ns + 2 * OW_TTL_NS + 20 * OW_S;
    driver_say(world->run, "agent %d is ordered to %s", leader,
               a->facts.request.kind == ORDER_REQUEST_RECOVER ? "recover" : "hand over");
}

static void stick(struct ow_world *world, int64_t until)
{
    struct ow_node *n = &world->nodes[driver_between(world->run, 0, OW_NODES)];
    int first = (int)driver_between(world->run, 0, OW_JOBS);

    for (int i = 0; i < OW_JOBS; i++) {
        int j = (first + i) % OW_JOBS;
        if (!n->runs[j] || n->stuck_until > world->run->now)
            continue;
        n->stuck_job = j;
        n->stuck_until = until;
        return;
    }
}

static void begin_fault(struct ow_world *world)
{
    enum ow_fault fault = (enum ow_fault)driver_between(world->run, 0, OW_FAULTS);
    int leader = world->db.holder;
    int node = (int)driver_between(world->run, 0, OW_NODES);
    int64_t until = world->run->now + driver_between(world->run, 2 * OW_S, 30 * OW_S);

    if (driver_chance(world->run, 30)) // what all of this is about
        fault = driver_chance(world->run, 50) ? OW_DROP : OW_CREATE;
    if (driver_mutes_next(world->run))
        return;
    if (fault == OW_ATTEMPT) { // counted when it comes
        if (leader != OW_NOBODY)
            world->metas[leader].fails_next = true;
        return;
    }
    world->stats->faults[fault]++;
    world->until[fault] = until;
    driver_say(world->run, "FAULT %s until %.1f s", fault_names[fault], (double)until / 1e9);
    switch ((int)fault) {
    case OW_DROP: ow_drop(world); break;
    case OW_CREATE: ow_create(world); break;
    case OW_REQUEST: order_something(world); break;
    case OW_STUCK: stick(world, until); break;
    case OW_NODE_CUT: world->cut_node = node; break;
    case OW_NODE_CRASH: ow_node_die(world, node); break;
    case OW_REREGISTER: world->nodes[node].worker_id += OW_NODES; break;
    case OW_BLIND:
        if (world->run->now > world->nodes[node].blind_until + 2 * OW_S)
            world->nodes[node].blind_until =
                world->run->now + driver_between(world->run, 50 * OW_MS, 400 * OW_MS);
        break;
    case OW_AGENT_DOWN:
        node = (int)driver_between(world->run, 0, OW_METAS);
        world->agents[node].down_until =
            world->run->now + driver_between(world->run, OW_S / 2, 15 * OW_S);
        ow_agent_forget(world, node);
        break;
    default: break;
    }
    if (leader == OW_NOBODY)
        return;
    if (fault == OW_CRASH)
        ow_meta_die(world, leader);
    if (fault == OW_RECOVER)
        ow_recover(world, leader);
    if (fault == OW_DB_CUT || fault == OW_PAUSED) {
        world->until[OW_DB_CUT] = world->until[OW_PAUSED] = 0; // one at a time
        world->until[fault] = until;
        world->cut_meta = leader;
    }
    if (fault == OW_PAUSED)
        world->metas[leader].paused_until = until + OW_S;
}

static void calm_down(struct ow_world *world)
{
    world->is_calm = true;
    memset(world->until, 0, sizeof(world->until));
    for (int i = 0; i < OW_METAS; i++)
        world->metas[i].paused_until = world->agents[i].down_until = 0;
    for (int n = 0; n < OW_NODES; n++)
        world->nodes[n].stuck_until = 0;
    driver_say(world->run, "the faults are over");
}

// ---- checks

// A recovery waits for no longer than the gate's bound.
static void check_bound(struct ow_world *world)
{
    const struct ow_database *db = &world->db;
    int64_t bound = db->marker.opened_at.ns + world->config.max_hold_ns;

    if (db->marker.id != 0 && !db->holds_on && db->refused_at > bound + OW_S)
        driver_fail(world->run, "end: a removal is refused after max_hold");
}

static void check_end(struct ow_world *world)
{
    const struct ow_database *db = &world->db;
    const struct ow_meta *m = db->holder == OW_NOBODY ? NULL : &world->metas[db->holder];

    if (!m || !m->is_alive || m->phase != OW_RUNNING || db->owner != m->incarnation)
        driver_fail(world->run, "end: there is no running leader (phase %d)",
                    m ? (int)m->phase : -1);
    if (db->marker.id != 0)
        driver_fail(world->run, "end: a marker is open");
    for (int j = 0; j < OW_JOBS; j++)
        if (world->jobs[j].exists && world->jobs[j].is_dropped)
            driver_fail(world->run, "end: job %d is not reclaimed", j);
    for (int i = 0; i < OW_METAS; i++)
        if (world->agents[i].facts.request.kind != ORDER_REQUEST_NONE)
            driver_fail(world->run, "end: an order of agent %d is open", i);
}

// ---- a schedule

static void set_up(struct ow_world *world)
{
    world->config = (struct order_config)ORDER_CONFIG;
    world->config.max_hold_ns = 20 * OW_S;
    world->config.kill_after_ns = 6 * OW_S;
    world->config.reset_before_start_ns =
        world->run->plant == OW_PLANT_START ? 3600 * OW_S : OW_START_NS;
    world->config.handover_ns = OW_TTL_NS;
    world->config.gate_stale_ns = 4 * OW_S;
    world->config.init_timeout_ns = 8 * OW_S;
    world->config.may_fence_nodes = driver_chance(world->run, 40);
    world->config.holds_on =
        world->run->plant != OW_PLANT_NO_BOUND && driver_chance(world->run, 15);
    world->db = (struct ow_database){.holder = OW_NOBODY,
                                     .old_meta = OW_NOBODY,
                                     .mode = driver_chance(world->run, 85) ? ORDER_ENFORCE
                                                                           : ORDER_OBSERVE,
                                     .last_ended_well = true,
                                     .holds_on = world->config.holds_on};
    world->cut_node = world->cut_meta = OW_NOBODY;
    world->next_incarnation = 100;
    for (int n = 0; n < OW_NODES; n++)
        world->nodes[n] = (struct ow_node){.worker_id = n + 1, .owner = OW_NOBODY};
    for (int i = 0; i < 6; i++)
        world->jobs[i] = (struct ow_job){
            .exists = true, .nodes = (uint32_t)driver_between(world->run, 1, 1 << OW_NODES)};
}

static void step(struct ow_world *world)
{
    int first = (int)driver_between(world->run, 0, OW_METAS);

    world->run->now += driver_between(world->run, 10 * OW_MS, 120 * OW_MS);
    if (!world->is_calm && world->run->now >= FAULTS_END)
        calm_down(world);
    if (!world->is_calm && world->run->now > 10 * OW_S &&
        driver_between(world->run, 0, 16) == 0)
        begin_fault(world);
    for (int n = 0; n < OW_NODES; n++)
        ow_node_step(world, n);
    for (int i = 0; i < OW_METAS; i++) {
        ow_meta_step(world, (first + i) % OW_METAS);
        ow_agent_step(world, (first + i) % OW_METAS);
    }
    check_bound(world);
}

static void run_one(struct driver_run *run, void *stats)
{
    struct ow_world *world = calloc(1, sizeof(*world));

    if (!world)
        abort();
    world->run = run;
    world->stats = stats;
    run->now = OW_S;
    set_up(world);
    while (!run->failed && run->now < END_AT)
        step(world);
    if (!run->failed)
        check_end(world);
    world->stats->runs++;
    free(world);
}

static int print_counts(const void *stats)
{
    const struct ow_stats *s = stats;
    const struct {
        const char *name;
        uint64_t count;
    } counts[] = {{"takeovers", s->takeovers},
                  {"recoveries", s->recoveries},
                  {"removals refused", s->refused},
                  {"passed", s->removals},
                  {"at the bound", s->bounds},
                  {"where the gate was blind", s->blind_gates},
                  {"Inits", s->inits},
                  {"answered", s->resets},
                  {"answered late", s->late_answers},
                  {"held back at the last moment", s->forbidden_late},
                  {"streams taken", s->stolen},
                  {"RESET", s->evidence[ORDER_RESET]},
                  {"NONE", s->evidence[ORDER_NONE]},
                  {"GONE", s->evidence[ORDER_GONE]},
                  {"starts held", s->held_starts},
                  {"nodes fenced", s->fenced},
                  {"left alone at the last moment", s->fences_held_back},
                  {"normal drops", s->drops_done},
                  {"orders done", s->orders_done},
                  {"orders failed", s->orders_failed}};
    int missing = 0;

    (void)printf("faults:");
    for (int i = 0; i < OW_FAULTS; i++) {
        (void)printf(" %s=%" PRIu64, fault_names[i], s->faults[i]);
        missing += s->faults[i] == 0;
    }
    (void)printf("\nblocks:");
    for (int i = 0; i < ORDER_BLOCKS; i++) {
        (void)printf(" %s=%" PRIu64 ";", order_block_name((enum order_block)i), s->blocks[i]);
        missing += s->blocks[i] == 0 && i != ORDER_ACKNOWLEDGED && i != ORDER_NO_LEASE;
    }
    (void)printf("\nsteps:");
    for (int i = 0; i < ORDER_STEPS; i++) {
        (void)printf(" %s=%" PRIu64, order_step_name((enum order_step)i), s->steps[i]);
        missing += s->steps[i] == 0;
    }
    (void)printf("\n");
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        (void)printf("%s%s %" PRIu64, i ? ", " : "", counts[i].name, counts[i].count);
        missing += counts[i].count == 0;
    }
    (void)printf("\n");
    return missing;
}

int main(int argc, char **argv)
{
    static const struct driver driver = {.name = "simulate-order",
                                         .plants = plants,
                                         .plant_count = OW_PLANTS,
                                         .stats_bytes = sizeof(struct ow_stats),
                                         .count = 1000,
                                         .share = 5,
                                         .needs_seeds = false,
                                         .play = run_one,
                                         .print_counts = print_counts};

    return driver_main(&driver, argc, argv);
}
