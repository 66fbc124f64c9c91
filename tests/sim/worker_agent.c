// SPDX-License-Identifier: Apache-2.0
// The reconciler's shell around the real verdicts: a round of reads, which faults spoil, then
// orders, which are executed one by one, later, while the world goes on.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/worker.h"

#define ROWS       WK_PLACES
#define PASS_NS    (5 * WK_S)
#define CONFIRM_NS (30 * WK_S)

struct round {
    struct worker_row rows[ROWS];
    int places[ROWS];
    char hosts[ROWS][64];
    char versions[ROWS][16];
    struct worker_row lost[ROWS];
    char lost_hosts[ROWS][64];
    struct worker_pod pods[WK_PODS];
    struct worker_set set;
    struct worker_judgment judgments[ROWS];
    struct reconcile_facts facts;
    bool is_spoiled;
};

void wk_agent_begin(struct wk_world *world, int meta)
{
    struct wk_agent *agent = &world->agents[meta];

    agent->block = malloc(reconcile_memory_bytes(4 * ROWS, 4 * WK_PODS));
    if (!agent->block)
        abort();
    reconcile_memory_init(&agent->memory, agent->block, 4 * ROWS, 4 * WK_PODS);
}

static void fill_pod(const struct wk_world *world, const struct wk_pod *from,
                     struct worker_pod *to)
{
    bool is_compute = from->place < WK_COMPUTES;
    enum pod_owner owner = is_compute ? POD_OWNER_STATEFULSET : POD_OWNER_REPLICASET;

    *to = (struct worker_pod){
        .uid = from->uid,
        .name = from->name,
        .name_space = "ns",
        .subdomain = is_compute ? "compute-headless" : NULL,
        .owner = from->is_stranger ? POD_OWNER_OTHER : owner,
        .ips = {from->ip},
        .ip_count = 1,
        .ports = {is_compute ? 5688 : 6660},
        .port_count = from->is_stranger ? 0 : 1,
        .types = (uint8_t)(1U << (is_compute ? WORKER_COMPUTE : WORKER_COMPACTOR)),
        .is_terminal = from->is_terminal,
        .is_deleting = from->is_deleting,
        .has_started = true,
        .is_running = from->is_running};
    to->is_unreachable = from->node == world->cut_node && wk_is_on(world, WK_CUT_NODE);
}

// An event of the watch, for who has one; now and then it is missed.
void wk_agent_saw(struct wk_world *world, int index, bool is_deleted)
{
    struct worker_pod pod;

    fill_pod(world, &world->pods[index], &pod);
    for (int i = 0; i < WK_METAS; i++)
        if (!wk_is_on(world, WK_API_DOWN) && !wk_is_on(world, WK_STALE) &&
            driver_chance(world->run, 85))
            reconcile_saw_pod(&world->agents[i].memory, &pod, is_deleted);
}

// ---- a round

static void read_rows(const struct wk_world *world, int meta, struct round *round)
{
    const struct wk_database *db = &world->db;

    for (int place = 0; place < WK_PLACES; place++) {
        const struct wk_row *row = &db->rows[place];
        uint32_t i = round->facts.snapshot.row_count;
        if (row->id == 0)
            continue;
        (void)snprintf(round->versions[i], sizeof(round->versions[i]), "%u", row->version);
        round->places[i] = place;
        round->rows[i] = (struct worker_row){
            .id = row->id,
            .type = place < WK_COMPUTES ? WORKER_COMPUTE : WORKER_COMPACTOR,
            .status = row->is_active ? WORKER_RUNNING : WORKER_STARTING,
            .port = place < WK_COMPUTES ? 5688 : 6660,
            .host = wk_host(place, round->hosts[i]),
            .row_version = round->versions[i],
            .leader_knows = (db->is_memory_known && row->seq <= db->term_seq) ||
                            row->tag == world->metas[meta].tag};
        round->facts.snapshot.row_count++;
    }
    round->facts.snapshot.rows = round->rows;
    round->facts.snapshot.rows_complete = true;
}

static void read_pods(struct wk_world *world, struct round *round)
{
    struct worker_snapshot *snapshot = &round->facts.snapshot;
    const struct wk_pod *pods = wk_is_on(world, WK_STALE) ? world->cache : world->pods;
    bool is_down = wk_is_on(world, WK_API_DOWN);
    bool is_cut_off = wk_is_on(world, WK_TRUNCATED);

    for (int i = 0; i < WK_PODS && !is_down; i++) {
        if (!pods[i].exists || !pods[i].is_listed ||
            (is_cut_off && driver_chance(world->run, 50)))
            continue;
        fill_pod(world, &pods[i], &round->pods[snapshot->pod_count++]);
    }
    round->is_spoiled = is_down || is_cut_off;
    snapshot->pods = round->pods;
    snapshot->pods_complete =
        !round->is_spoiled || world->run->plant == WK_PLANT_INCOMPLETE_IS_COMPLETE;
    snapshot->endpoints_complete = true;
    round->set = (struct worker_set){.name = "compute", .replicas = world->replicas};
    snapshot->sets = &round->set;
    snapshot->set_count = 1;
    snapshot->sets_complete = !is_down || world->run->plant == WK_PLANT_INCOMPLETE_IS_COMPLETE;
    snapshot->kruise_sets_complete = true;
}

static bool is_foreign(const struct wk_database *db, const struct wk_log *entry, int tag)
{
    return entry->seq > db->term_seq && entry->tag != tag && entry->tag != WK_NONE;
}

static bool is_there(const struct wk_database *db, int id)
{
    for (int place = 0; place < WK_PLACES; place++)
        if (db->rows[place].id == id)
            return true;
    return false;
}

static void read_lost(const struct wk_world *world, int meta, struct round *round)
{
    const struct wk_database *db = &world->db;
    struct worker_snapshot *snapshot = &round->facts.snapshot;

    snapshot->lost = round->lost;
    for (int i = 0; i < db->log_count && snapshot->lost_count < ROWS; i++) {
        const struct wk_log *entry = &db->log[i];
        uint32_t at = snapshot->lost_count;
        if (!entry->is_delete || !is_foreign(db, entry, world->metas[meta].tag) ||
            is_there(db, entry->id))
            continue;
        round->lost[at] =
            (struct worker_row){.id = entry->id,
                                .type = WORKER_OTHER, // the log does not say
                                .port = entry->place < WK_COMPUTES ? 5688 : 6660,
                                .host = wk_host(entry->place, round->lost_hosts[at])};
        snapshot->lost_count++;
    }
}

static bool has_open_intent(const struct wk_agent *agent)
{
    return agent->awaited != 0;
}

// What is asked for begins at most max(1, 10 %) of a type's rows in confirm_after.
static void check_brake(struct wk_world *world, const struct round *round,
                        const struct reconcile_plan *plan)
{
    int rows[2] = {0};
    int begun[2] = {0};

    for (uint32_t i = 0; i < round->facts.snapshot.row_count; i++)
        rows[round->rows[i].type == WORKER_COMPUTE]++;
    for (unsigned i = 0; i < plan->action_count; i++) {
        const struct reconcile_action *action = &plan->actions[i];
        if (action->kind == RECONCILE_BURY && world->acted_at[action->worker_id] == 0)
            world->acted_at[action->worker_id] = world->run->now;
        if (action->kind != RECONCILE_UNBURY && round->is_spoiled)
            driver_fail(world->run, "P6: row %d is to be removed by an incomplete list",
                        action->worker_id);
    }
    for (int id = 1; id <= world->db.next_id; id++)
        if (world->acted_at[id] != 0 && world->run->now - world->acted_at[id] < PASS_NS)
            begun[world->type_of[id]]++;
    for (int type = 0; type < 2; type++)
        if (begun[type] > (rows[type] + begun[type] < 20 ? 1 : 2))
            driver_fail(world->run, "P6: the brake lets %d of %d rows go in one pass",
                        begun[type], rows[type]);
}

static void take_orders(struct wk_world *world, int meta, const struct round *round,
                        const struct reconcile_plan *plan)
{
    struct wk_agent *agent = &world->agents[meta];

    agent->order_count = 0;
    for (unsigned i = 0; i < plan->action_count && agent->order_count < WK_QUEUE; i++) {
        const struct reconcile_action *action = &plan->actions[i];
        struct wk_order *order = &agent->orders[agent->order_count++];
        *order = (struct wk_order){.action = *action, .term = round->facts.term};
        if (action->row < 0)
            continue;
        order->place = round->places[action->row];
        order->version = world->db.rows[order->place].version;
        if (action->kind != RECONCILE_UNBURY)
            world->proven[action->worker_id] = true;
    }
}

static void decide_rows(struct wk_world *world, int meta)
{
    static struct round round;        // large; one thread
    static uint64_t scratch[1 << 16]; // aligned
    struct reconcile_config config = {.mode = RECONCILE_ENFORCE,
                                      .confirm_after_ns = CONFIRM_NS,
                                      .starting_grace_ns = 120 * WK_S,
                                      .max_permille = 100};
    struct reconcile_plan plan = {.judgments = round.judgments, .scratch = scratch};

    memset(&round, 0, sizeof(round));
    plan.scratch_bytes = reconcile_scratch_bytes(ROWS, WK_PODS, 0);
    if (plan.scratch_bytes > sizeof(scratch))
        abort();
    if (world->run->plant == WK_PLANT_NO_BRAKE)
        config.max_permille = 1000;
    round.facts.now = round.facts.snapshot.taken_at = (struct instant){world->run->now};
    round.facts.is_leader = true;
    round.facts.term = world->db.term;
    round.facts.guard =
        world->db.is_enforcing ? RECONCILE_GUARD_ENFORCE : RECONCILE_GUARD_OBSERVE;
    round.facts.intent_open = has_open_intent(&world->agents[meta]);
    read_rows(world, meta, &round);
    read_lost(world, meta, &round);
    read_pods(world, &round);
    reconcile_decide(&config, &round.facts, &world->agents[meta].memory, &plan);
    for (int i = 0; i < REASON_COUNT; i++)
        world->stats->reasons[i] += plan.reasons[i];
    world->agents[meta].orphans = plan.orphans;
    check_brake(world, &round, &plan);
    take_orders(world, meta, &round, &plan);
}

// ---- convergence

static void read_log(const struct wk_world *world, int meta, struct converge_facts *facts)
{
    const struct wk_database *db = &world->db;
    const struct wk_meta *m = &world->metas[meta];

    facts->log_known = db->is_memory_known;
    for (int i = 0; i < db->log_count; i++) {
        const struct wk_log *entry = &db->log[i];
        if (!is_foreign(db, entry, m->tag))
            continue;
        facts->foreign_log_id = entry->seq;
        if (!entry->is_delete) {
            const struct wk_row *row = &db->rows[entry->place];
            facts->unknown_rows += row->id == entry->id && row->seq == entry->seq;
        } else if (!is_there(db, entry->id)) {
            facts->lost_rows++;
            facts->reborn_rows += db->rows[entry->place].id != 0;
        }
    }
    for (int id = 1; id <= db->next_id; id++)
        facts->actor_ghosts += m->active[id] && !is_there(db, id);
}

static void begin_cure(struct wk_world *world, int meta, const struct converge_plan *plan)
{
    struct wk_agent *agent = &world->agents[meta];

    if (plan->cure == CURE_NONE)
        return;
    driver_say(world->run, "cure %s for %s", converge_cure_name(plan->cure),
               converge_reason_name(plan->reason));
    agent->outcome = CONVERGE_PENDING;
    agent->outcome_at = world->run->now;
    if (plan->cure == CURE_RECOVER) {
        world->stats->recovers++;
        // Some wait for workers, beyond the agent's patience.
        world->metas[meta].recover_at =
            world->run->now + (!world->is_calm && driver_chance(world->run, 20)
                                   ? driver_between(world->run, 50 * WK_S, 100 * WK_S)
                                   : driver_between(world->run, WK_S, 8 * WK_S));
        return;
    }
    world->stats->restarts++;
    agent->outcome = CONVERGE_DONE;
    wk_meta_die(world, meta);
}

static void converge(struct wk_world *world, int meta)
{
    static const struct converge_config config = CONVERGE_CONFIG;
    struct wk_agent *agent = &world->agents[meta];
    struct wk_meta *m = &world->metas[meta];
    struct instant now = {world->run->now};
    struct converge_facts facts = {.now = now,
                                   .is_leader = true,
                                   .term = world->db.term,
                                   .incarnation = (uint64_t)m->tag + 1,
                                   .log_read_at = now,
                                   .orphans_known = agent->orphans >= 0,
                                   .orphans_read_at = now,
                                   .actors_known = true,
                                   .actors_read_at = now,
                                   .status = m->recover_at ? CONVERGE_STATUS_RECOVERING
                                                           : CONVERGE_STATUS_RUNNING};
    struct converge_plan plan;

    if (agent->outcome == CONVERGE_PENDING &&
        (m->recover_at == 0 || world->run->now - agent->outcome_at >= 60 * WK_S)) {
        agent->outcome = m->recover_at == 0 ? CONVERGE_DONE : CONVERGE_UNKNOWN_SENT;
        agent->outcome_at = world->run->now;
    }
    if (facts.orphans_known)
        facts.orphan_rows = (uint32_t)agent->orphans;
    facts.outcome = agent->outcome;
    facts.outcome_at = (struct instant){agent->outcome_at};
    read_log(world, meta, &facts);
    if (facts.status != agent->status)
        agent->status_since = world->run->now;
    agent->status = facts.status;
    facts.status_since = (struct instant){agent->status_since};
    plan = converge_decide(&config, &facts, &agent->converge);
    world->stats->cures[plan.reason]++;
    if (world->run->plant != WK_PLANT_NO_CURE)
        begin_cure(world, meta, &plan);
}

// ---- orders

// The answer of a call, or what passes for it.
void wk_agent_answer(struct wk_world *world, int meta, int id)
{
    struct wk_agent *agent = &world->agents[meta];

    if (agent->awaited != id)
        return;
    agent->awaited = 0;
    wk_answered(world, agent->awaited_term, id);
}

static void call(struct wk_world *world, int meta, const struct wk_order *order)
{
    struct wk_meta *m = &world->metas[meta];
    struct wk_agent *agent = &world->agents[meta];
    bool is_late = wk_is_on(world, WK_LATE_CALL);

    for (int i = 0; i < WK_CALLS; i++) {
        if (m->calls[i].id != 0)
            continue;
        m->calls[i] = (struct wk_call){
            .id = order->action.worker_id, .place = order->place, .at = world->run->now};
        if (is_late)
            m->calls[i].at += driver_between(world->run, WK_S, 100 * WK_S);
        world->stats->called++;
        world->stats->late_calls += is_late;
        agent->awaited = order->action.worker_id;
        agent->awaited_term = order->term;
        agent->awaited_until = world->run->now + 5 * WK_S;
        return;
    }
}

static void give_up_call(struct wk_world *world, struct wk_agent *agent)
{
    for (int i = 0; i < WK_INTENTS; i++)
        if (world->db.intents[i].id == agent->awaited &&
            world->db.intents[i].term == agent->awaited_term)
            world->db.intents[i].is_unknown = true;
    agent->awaited = 0;
    world->stats->unknown_calls++;
}

static void execute_one(struct wk_world *world, int meta)
{
    struct wk_agent *agent = &world->agents[meta];
    struct wk_order order = agent->orders[0];

    if (agent->order_count == 0)
        return;
    agent->order_count--;
    memmove(agent->orders, agent->orders + 1, sizeof(order) * (size_t)agent->order_count);
    driver_say(world->run, "agent %d: order %d for row %d", meta, (int)order.action.kind,
               order.action.worker_id);
    switch (order.action.kind) {
    case RECONCILE_BURY:
        if (!wk_bury(world, &order))
            reconcile_bury_failed(&agent->memory, order.action.worker_id);
        break;
    case RECONCILE_UNBURY: wk_unbury(world, order.term, order.action.worker_id); break;
    case RECONCILE_DELETE_RPC:
        if (world->metas[meta].state == WK_LEADER && world->db.owner == meta &&
            wk_intend(world, &order))
            call(world, meta, &order);
        break;
    }
}

void wk_agent_step(struct wk_world *world, int meta)
{
    struct wk_agent *agent = &world->agents[meta];
    struct wk_meta *m = &world->metas[meta];
    bool leads = m->state == WK_LEADER && world->db.holder == meta && world->db.owner == meta &&
                 world->db.owner_tag == m->tag;

    if (agent->stopped_until > world->run->now)
        return;
    if (agent->awaited != 0 &&
        (agent->awaited_until <= world->run->now ||
         (wk_is_on(world, WK_UNKNOWN_CALL) && driver_chance(world->run, 50))))
        give_up_call(world, agent);
    if (driver_chance(world->run, 40))
        execute_one(world, meta);
    if (!leads || agent->next_at > world->run->now)
        return;
    agent->next_at = world->run->now + PASS_NS;
    decide_rows(world, meta);
    converge(world, meta);
}
