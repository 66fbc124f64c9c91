// SPDX-License-Identifier: Apache-2.0
// The shell around the real order_decide(): reads that are late or lost, calls that outlive
// their caller's interest, an agent that forgets.
#include <string.h>

#include "tests/sim/order.h"

#define POLL_NS    (200 * OW_MS)
#define REFRESH_NS OW_S
#define RECOVER_NS (15 * OW_S)

static struct instant at(int64_t ns)
{
    return (struct instant){ns};
}

static bool reaches_database(const struct ow_world *world, int agent)
{
    return !(world->cut_meta == agent &&
             (ow_is_on(world, OW_DB_CUT) || ow_is_on(world, OW_PAUSED)));
}

static bool reaches_node(const struct ow_world *world, int node)
{
    return world->nodes[node].is_alive &&
           !(world->cut_node == node && ow_is_on(world, OW_NODE_CUT));
}

void ow_agent_forget(struct ow_world *world, int agent)
{
    struct ow_agent *a = &world->agents[agent];
    uint64_t died = a->died;
    uint64_t died_term = a->died_term;
    int64_t died_at = a->died_at;
    int64_t down_until = a->down_until;

    memset(a, 0, sizeof(*a)); // its calls end with its process
    a->died = died;           // metafence-run remembers
    a->died_term = died_term;
    a->died_at = died_at;
    a->down_until = down_until;
}

// ---- reads

// The weakest knowledge of those who led before.
static enum order_death_kind predecessor(const struct ow_world *world)
{
    for (int i = 0; i < OW_METAS; i++)
        if (ow_is_engaged(&world->metas[i]) && world->metas[i].incarnation != world->db.owner)
            return ORDER_DEATH_NONE;
    return ORDER_DEATH_IMPLIED;
}

static void read_database(struct ow_world *world, int agent)
{
    struct ow_agent *a = &world->agents[agent];
    struct ow_snapshot *read = &a->read;

    if (read->is_under_way && world->run->now >= read->arrives_at) {
        read->is_under_way = false;
        if (reaches_database(world, agent))
            a->seen = *read;
    }
    if (read->is_under_way || world->run->now < a->next_read_at)
        return;
    a->next_read_at = world->run->now + POLL_NS;
    if (!reaches_database(world, agent))
        return;
    *read = (struct ow_snapshot){
        .is_under_way = true,
        .sent_at = world->run->now,
        .arrives_at =
            world->run->now +
            driver_between(world->run, OW_MS, driver_chance(world->run, 5) ? OW_S : 60 * OW_MS),
        .db = world->db,
        .drops = ow_drops(world),
        .is_open = ow_is_gate_open(world, &world->db)};
    read->db.predecessor = predecessor(world);
    for (int j = 0; j < OW_JOBS; j++)
        if (world->jobs[j].exists && world->jobs[j].is_dropped)
            read->dropped |= UINT64_C(1) << j;
}

static void read_status(struct ow_world *world, int agent)
{
    struct ow_agent *a = &world->agents[agent];
    const struct ow_meta *m = &world->metas[agent];

    if (world->run->now < a->next_status_at)
        return;
    a->next_status_at = world->run->now + POLL_NS;
    if (ow_is_on(world, OW_STATUS_OUT) || !ow_is_engaged(m))
        return;
    a->facts.status.sent_at = at(world->run->now);
    a->facts.status.value = m->phase >= OW_COMMITTING ? 3 : m->is_bootstrap ? 1 : 2;
}

// Followers, too: a winner's purge comes sooner than its agent knows that it leads.
static void refresh_gate(struct ow_world *world, int agent)
{
    struct ow_agent *a = &world->agents[agent];

    if (world->run->now < a->next_refresh_at || !reaches_database(world, agent))
        return;
    a->next_refresh_at = world->run->now + REFRESH_NS;
    if (driver_chance(world->run, 5))
        return; // not known whether it was written
    world->db.refreshed_at[agent] = world->run->now;
    a->refreshed_at = world->run->now;
}

// ---- facts

static void fill_nodes(struct ow_world *world, int agent)
{
    struct ow_agent *a = &world->agents[agent];

    if (!ow_is_on(world, OW_API_STALE) || world->run->plant == OW_PLANT_OLD_LOOK)
        a->api_at = world->run->now;
    for (int n = 0; n < OW_NODES; n++) {
        struct order_node *node = &a->nodes[n];
        const struct ow_ack *ack = &a->seen.db.acks[n];

        node->endpoint = (uint64_t)n + 1;
        node->incarnation = world->run->plant == OW_PLANT_WORKER_ID
                                ? (uint64_t)world->nodes[n].worker_id
                                : world->shown[n];
        node->is_ended = !world->nodes[n].is_alive && !ow_is_on(world, OW_API_STALE);
        if (world->run->plant == OW_PLANT_FENCE_IS_END && world->nodes[n].ends_at != 0)
            node->is_ended = true;
        node->can_fence = true;
        node->seen_at = at(a->api_at);
        node->recorded = ack->how;
        node->recorded_revision = ack->revision;
    }
    a->facts.nodes = a->nodes;
    a->facts.node_count = OW_NODES;
    a->facts.nodes_known = a->seen.sent_at != 0;
}

static void fill_own(struct ow_world *world, int agent)
{
    struct ow_agent *a = &world->agents[agent];
    const struct ow_meta *m = &world->metas[agent];
    const struct ow_database *db = &a->seen.db;
    struct order_facts *facts = &a->facts;
    int64_t lease_end = db->renewed_at + OW_TTL_NS - OW_MARGIN_NS;

    if (world->run->plant == OW_PLANT_LEASE)
        lease_end += 3 * OW_TTL_NS;
    facts->meta_runs = m->is_alive || world->run->now < a->died_at;
    facts->death = (struct order_death){0};
    if (a->died != 0 && world->run->now >= a->died_at)
        facts->death =
            (struct order_death){ORDER_DEATH_CONFIRMED, at(a->died_at), a->died, a->died_term};
    facts->row = (struct order_row){0};
    if (a->seen.sent_at == 0)
        return;
    facts->row.sent_at = at(a->seen.sent_at);
    facts->row.holder = db->holder == agent       ? ORDER_ROW_OURS
                        : db->holder == OW_NOBODY ? ORDER_ROW_ABSENT
                                                  : ORDER_ROW_OTHER;
    facts->row.lease_end = at(lease_end);
    facts->is_leader = ow_is_engaged(m) && db->owner == m->incarnation && db->holder == agent &&
                       world->run->now < lease_end;
    facts->term = db->term;
    facts->predecessor =
        world->run->plant == OW_PLANT_ZOMBIE ? ORDER_DEATH_CONFIRMED : db->predecessor;
}

static void fill_state(struct ow_world *world, int agent)
{
    struct ow_agent *a = &world->agents[agent];
    const struct ow_database *db = &a->seen.db;
    struct order_facts *facts = &a->facts;

    facts->mode = world->run->plant == OW_PLANT_OBSERVE ? ORDER_ENFORCE : db->mode;
    facts->marker = db->marker;
    if (facts->marker.id != 0)
        facts->marker.opened_at.ns -= 20 * OW_MS;
    facts->gate = (struct order_gate){.known = a->seen.sent_at != 0,
                                      .sent_at = at(a->seen.sent_at),
                                      .is_open = a->seen.is_open,
                                      .refreshed_at = at(a->refreshed_at),
                                      .refused_at = at(db->refused_at)};
    facts->drops = a->seen.drops;
    if (world->run->plant == OW_PLANT_REVISION)
        facts->drops.revision = 1;
    if (world->run->plant != OW_PLANT_NO_PRECONDITION)
        return;
    facts->gate.is_open = false;
    facts->gate.refused_at = at(world->run->now);
    facts->gate.refreshed_at = at(world->run->now);
    facts->status = (struct order_status){2, at(world->run->now)};
}

static void fill(struct ow_world *world, int agent)
{
    struct ow_agent *a = &world->agents[agent];

    a->facts.now = at(world->run->now);
    a->facts.is_leader = false;
    fill_own(world, agent);
    fill_state(world, agent);
    fill_nodes(world, agent);
}

// ---- calls

// What must be true of each Init that leaves, by what only the simulation knows.
static void check_init(struct ow_world *world, int agent, int node)
{
    const struct ow_meta *own = &world->metas[agent];

    if (world->db.mode != ORDER_ENFORCE)
        driver_fail(world->run, "Init: in observe, to node %d", node);
    for (int i = 0; i < OW_METAS; i++)
        if (i != agent && ow_is_engaged(&world->metas[i]))
            driver_fail(world->run, "Init: to node %d, meta %d acts as leader", node, i);
    if (!own->is_alive || world->run->now <= world->exception_at + 2 * OW_S)
        return;
    if (own->phase >= OW_COMMITTING)
        driver_fail(world->run, "Init: to node %d, status RUNNING", node);
    else if (!ow_is_before_reset(own))
        driver_fail(world->run, "Init: to node %d, the gate has opened (phase %d)", node,
                    own->phase);
}

static void send_init(struct ow_world *world, int agent, int node)
{
    struct ow_agent *a = &world->agents[agent];
    struct ow_call *call = &a->inits[node];

    a->facts.now = at(world->run->now);
    if (world->run->plant != OW_PLANT_NO_STOP &&
        order_may_reset(&world->config, &a->facts, &a->memory, (uint64_t)node + 1) !=
            ORDER_MAY) {
        call->state = OW_CALL_FREE;
        a->nodes[node].init.outcome = ORDER_CALL_FAILED;
        world->stats->forbidden_late++;
        return;
    }
    driver_say(world->run, "agent %d sends Init to node %d", agent, node);
    check_init(world, agent, node);
    world->stats->inits++;
    call->state = OW_SENT;
    call->process = world->nodes[node].incarnation;
    a->nodes[node].init.is_sent = true;
    ow_node_enqueue(world, node, (struct ow_init){OW_METAS + agent, call->serial, 0});
}

// InitResponse leaves the node.
void ow_agent_answer(struct ow_world *world, int agent, int node, uint32_t serial)
{
    struct ow_agent *a = &world->agents[agent];
    struct ow_call *call = &a->inits[node];

    if (ow_is_on(world, OW_LATE) && driver_chance(world->run, 50)) {
        a->late[node] = (struct order_call){.serial = serial, .outcome = ORDER_CALL_DONE};
        a->late_at[node] = world->run->now + driver_between(world->run, OW_S, 30 * OW_S);
        return;
    }
    if (call->state != OW_SENT || call->serial != serial || !reaches_node(world, node) ||
        (ow_is_on(world, OW_LOST) && driver_chance(world->run, 60)))
        return;
    call->state = OW_ANSWERED;
    call->at = world->run->now + driver_between(world->run, OW_MS, 100 * OW_MS);
}

// Whose caller has long given up: nothing that counts, whatever is asked now.
static void deliver_late(struct ow_world *world, struct ow_agent *a, int node)
{
    struct order_call late = a->late[node];

    if (a->late_at[node] == 0 || world->run->now < a->late_at[node])
        return;
    a->late_at[node] = 0;
    world->stats->late_answers++;
    if (world->run->plant == OW_PLANT_ANY_ANSWER)
        late.serial = a->memory.nodes[node].init_serial;
    a->nodes[node].init = late;
}

// Whether its bytes have left stays known.
static void end_init(struct ow_agent *a, int node, enum order_outcome outcome)
{
    struct ow_call *call = &a->inits[node];

    a->nodes[node].init =
        (struct order_call){.serial = call->serial,
                            .outcome = outcome,
                            .is_sent = call->state == OW_SENT || call->state == OW_ANSWERED};
    call->state = OW_CALL_FREE;
}

static void step_init(struct ow_world *world, int agent, int node)
{
    struct ow_agent *a = &world->agents[agent];
    struct ow_call *call = &a->inits[node];
    bool is_sent = call->state == OW_SENT || call->state == OW_ANSWERED;

    deliver_late(world, a, node);
    if (call->state == OW_CALL_FREE)
        return;
    if (call->state == OW_ANSWERED && world->run->now >= call->at) {
        end_init(a, node, ORDER_CALL_DONE);
        world->stats->resets++;
    } else if (world->run->now >= call->deadline) {
        end_init(a, node, is_sent ? ORDER_CALL_UNKNOWN : ORDER_CALL_FAILED);
    } else if (is_sent && world->nodes[node].incarnation != call->process) {
        end_init(a, node, ORDER_CALL_UNKNOWN); // its connection breaks with the process
    } else if (call->state == OW_CONNECTING && world->run->now >= call->at) {
        if (reaches_node(world, node))
            send_init(world, agent, node);
        else if (!world->nodes[node].is_alive)
            end_init(a, node, ORDER_CALL_FAILED); // refused
    }
}

static void step_stats(struct ow_world *world, int agent, int node)
{
    struct ow_agent *a = &world->agents[agent];
    struct ow_call *call = &a->stats[node];
    struct order_node *to = &a->nodes[node];
    const struct ow_node *n = &world->nodes[node];

    if (call->state == OW_CALL_FREE || world->run->now < call->at)
        return;
    call->state = OW_CALL_FREE;
    to->stats.serial = call->serial;
    to->stats.outcome = ORDER_CALL_DONE;
    if (!reaches_node(world, node) ||
        (ow_is_on(world, OW_LOST) && driver_chance(world->run, 50))) {
        to->stats.outcome = ORDER_CALL_UNKNOWN;
        return;
    }
    to->running = 0;
    to->revision = a->facts.drops.revision;
    for (int j = 0; j < OW_JOBS && world->run->now >= n->blind_until; j++)
        to->running += n->runs[j] && (a->seen.dropped >> j & 1);
}

static void step_write(struct ow_world *world, int agent, int node)
{
    struct ow_agent *a = &world->agents[agent];
    struct ow_database *db = &world->db;

    if (a->write_at[node] == 0 || world->run->now < a->write_at[node])
        return;
    a->write_at[node] = 0;
    if (!reaches_database(world, agent) ||
        (ow_is_on(world, OW_LOST) && driver_chance(world->run, 50)) ||
        db->marker.id != a->write_marker[node] || db->marker.round != a->write_round[node])
        return;
    db->acks[node] = a->writes[node];
    world->stats->evidence[db->acks[node].how]++;
    driver_say(world->run, "agent %d records %s of node %d", agent,
               order_evidence_name(db->acks[node].how), node);
}

static void step_calls(struct ow_world *world, int agent)
{
    for (int n = 0; n < OW_NODES; n++) {
        step_init(world, agent, n);
        step_stats(world, agent, n);
        step_write(world, agent, n);
        ow_fence_step(world, agent, n);
    }
}

// ---- execution

static void cancel(struct ow_agent *a, int node)
{
    enum ow_call_state state = a->inits[node].state;

    if (state != OW_CALL_FREE)
        end_init(a, node, state == OW_CONNECTING ? ORDER_CALL_FAILED : ORDER_CALL_UNKNOWN);
}

static void write_evidence(struct ow_world *world, struct ow_agent *a, int node)
{
    const struct order_node_plan *plan = &a->plan.nodes[node];

    a->write_at[node] = world->run->now + driver_between(world->run, OW_MS, 50 * OW_MS);
    a->writes[node] = (struct ow_ack){plan->evidence, plan->revision};
    a->write_marker[node] = a->facts.marker.id;
    a->write_round[node] = a->facts.marker.round;
}

static void execute_node(struct ow_world *world, int agent, int node)
{
    struct ow_agent *a = &world->agents[agent];
    const struct order_node_plan *plan = &a->plan.nodes[node];
    int64_t slow = ow_is_on(world, OW_SLOW) ? 8 * OW_S : 100 * OW_MS;

    if (plan->acts & ORDER_CANCEL_INIT && world->run->plant != OW_PLANT_NO_STOP)
        cancel(a, node);
    if (plan->acts & ORDER_SEND_INIT) {
        a->inits[node] =
            (struct ow_call){.state = OW_CONNECTING,
                             .serial = plan->init_serial,
                             .at = world->run->now + driver_between(world->run, OW_MS, slow),
                             .deadline = plan->init_deadline.ns};
        a->nodes[node].init =
            (struct order_call){.serial = plan->init_serial,
                                .outcome = ORDER_CALL_PENDING,
                                .is_sent = world->run->plant == OW_PLANT_FENCE_UNASKED};
    }
    if (plan->acts & ORDER_ASK_STATS) {
        a->stats[node] = (struct ow_call){.state = OW_CONNECTING,
                                          .serial = plan->stats_serial,
                                          .at = world->run->now +
                                                driver_between(world->run, OW_MS, 80 * OW_MS),
                                          .deadline = plan->stats_deadline.ns};
        a->nodes[node].stats =
            (struct order_call){.serial = plan->stats_serial, .outcome = ORDER_CALL_PENDING};
    }
    if (plan->acts & ORDER_WRITE)
        write_evidence(world, a, node);
    if (plan->acts & ORDER_FENCE_NODE)
        ow_fence_begin(world, agent, node);
}

static void execute_request(struct ow_world *world, int agent)
{
    struct ow_agent *a = &world->agents[agent];
    struct order_request *request = &a->facts.request;
    struct ow_meta *m = &world->metas[agent];

    if (a->plan.send_recover) {
        driver_say(world->run, "agent %d: Recover", agent);
        request->recover = ORDER_CALL_PENDING;
        a->recover_until = world->run->now + RECOVER_NS;
        ow_recover(world, agent);
    }
    if (request->recover == ORDER_CALL_PENDING) {
        bool is_over = m->phase >= OW_COMMITTING && m->is_alive;
        if (is_over || !m->is_alive || world->run->now >= a->recover_until) {
            request->recover =
                is_over && !ow_is_on(world, OW_LOST) ? ORDER_CALL_DONE : ORDER_CALL_UNKNOWN;
            request->recover_ended_at = at(world->run->now);
        }
    }
    if (a->plan.fence_meta)
        ow_meta_die(world, agent);
    world->stats->orders_done += a->plan.ended == ORDER_END_DONE;
    world->stats->orders_failed += a->plan.ended == ORDER_END_FAILED;
    if (a->plan.ended != ORDER_END_NONE)
        request->kind = ORDER_REQUEST_NONE;
    if (request->kind != ORDER_REQUEST_NONE && world->run->now > a->request_bound)
        driver_fail(world->run, "end: an order of agent %d waits for %s", agent,
                    order_wait_name(a->plan.wait));
}

static void execute(struct ow_world *world, int agent)
{
    struct ow_agent *a = &world->agents[agent];
    struct ow_meta *m = &world->metas[agent];

    for (int n = 0; n < OW_NODES && a->plan.stop && world->run->plant != OW_PLANT_NO_STOP; n++)
        cancel(a, n);
    for (int n = 0; n < OW_NODES; n++)
        execute_node(world, agent, n);
    // metafence-run ends a hold by itself, with or without us.
    world->stats->held_starts += a->plan.hold_start && m->hold_until == 0;
    m->hold_until = a->plan.hold_start ? a->plan.hold_until.ns : 0;
    if (a->plan.hold_start && !m->is_alive && a->facts.request.kind != ORDER_REQUEST_HANDOVER &&
        world->run->now > a->died_at + OW_START_NS)
        driver_fail(world->run, "end: the start of meta %d is held beyond its bound", agent);
    execute_request(world, agent);
    world->stats->blocks[a->plan.block]++;
    world->stats->steps[a->plan.step]++;
}

void ow_agent_step(struct ow_world *world, int agent)
{
    struct ow_agent *a = &world->agents[agent];

    if (world->run->now < a->down_until)
        return;
    read_database(world, agent);
    read_status(world, agent);
    refresh_gate(world, agent);
    fill(world, agent);
    step_calls(world, agent);
    if (world->run->plant == OW_PLANT_ONE_READ)
        for (uint32_t n = 0; n < a->memory.node_count; n++) {
            a->memory.nodes[n].had_empty_read = true;
            a->memory.nodes[n].none_revision = a->facts.drops.revision;
        }
    order_decide(&world->config, &a->facts, &a->memory, &a->plan);
    execute(world, agent);
}
