// SPDX-License-Identifier: Apache-2.0
// The agent around the real decide(): polls with time-outs and a hedge on a second connection,
// keeps the facts, sends the order, does what the plan says.
#include "tests/sim/cluster.h"

#include <stdio.h>
#include <string.h>

#define TURNS_MAX 6 // of one cause: the same facts give the same plan, so it ends

static void post(struct world *world, int pod, enum event_kind kind, int64_t after_ns, int arg)
{
    sim_post(world, world->now + after_ns,
             (struct event){
                 .kind = kind, .pod = pod, .gen = world->pods[pod].agent.gen, .arg = arg});
}

void agent_start(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct agent *agent = &p->agent;
    uint32_t gen = agent->gen + 1;
    uint32_t wake_gen = agent->wake_gen;

    if (!kubelet_may_run(world, pod))
        return;
    *agent = (struct agent){
        .alive = true, .started_at = world->now, .gen = gen, .wake_gen = wake_gen};
    agent->facts.orders.manual_fence = p->manual;
    if (p->pause_until > world->now)
        agent->facts.orders.pause_end =
            instant_add(sim_local(world, p), p->pause_until - world->now);
    agent->conn = 0;
    sim_trace(world, pod, "agent starts");
    if (world->cluster)
        cluster_agent_started(world, pod);
    if (p->shim.alive) {
        memset(&p->shim.told, 0, sizeof(p->shim.told));
        shim_turn(world, pod);
    }
    post(world, pod, EV_AGENT_POLL, 0, 0);
}

void agent_stop(struct world *world, int pod)
{
    struct agent *agent = &world->pods[pod].agent;

    agent->alive = false;
    world->pods[pod].read_timeline = 0;
    if (world->cluster)
        cluster_agent_ended(world, pod);
    agent->gen++;
    agent->reading = false;
    shim_turn(world, pod);
}

// ---- reads

static void send_attempt(struct world *world, int pod, int which, uint32_t conn)
{
    struct pod *p = &world->pods[pod];
    struct req *req = req_new(world, pod, REQ_READ);
    const char *tag = p->agent.facts.fence.known ? p->agent.facts.fence.status.tag : "";

    req->gen = p->agent.gen;
    req->conn = conn;
    req->read = which;
    req->sent = sim_local(world, p);
    req->tag = -1;
    for (int i = world->db.tag_count - 1; tag[0] && i >= 0 && req->tag < 0; i--)
        if (strcmp(world->db.tags[i].text, tag) == 0)
            req->tag = i;
    p->agent.attempt[which] = req->serial;
    link_send(world, req, EV_DB_EXEC);
}

// A connection is opened by a message there and back; with a sound link that is all it costs.
static bool can_connect(const struct world *world, const struct pod *p)
{
    return world->db.up && (p->link.mode == LINK_OK || p->link.mode == LINK_OLD_DEAD);
}

static void set_database(struct world *world, int pod, enum database_state state)
{
    struct pod *p = &world->pods[pod];

    if (p->agent.facts.database.state == state)
        return;
    p->agent.facts.database.state = state;
    p->agent.facts.database.since = sim_local(world, p);
}

static void read_failed(struct world *world, int pod)
{
    struct agent *agent = &world->pods[pod].agent;

    agent->reading = false;
    agent->attempt[0] = 0;
    agent->attempt[1] = 0;
    agent->conn = 0;
    set_database(world, pod, DATABASE_SILENT);
    agent_turn(world, pod);
}

static void start_read(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct agent *agent = &p->agent;

    if (agent->reading)
        return;
    agent->reading = true;
    agent->reads++;
    agent->attempt[0] = 0;
    agent->attempt[1] = 0;
    if (agent->conn == 0 && p->link.mode != LINK_STALL && p->link.mode != LINK_DROP &&
        p->link.mode != LINK_DUMB && !can_connect(world, p)) {
        read_failed(world, pod); // refused or reset
        return;
    }
    if (agent->conn == 0 && can_connect(world, p))
        agent->conn = link_open(&p->link);
    if (agent->conn != 0)
        send_attempt(world, pod, 0, agent->conn);
    post(world, pod, EV_READ_HEDGE, world->core.query_timeout_ns / 2, (int)agent->reads);
    post(world, pod, EV_READ_GIVEUP,
         world->core.connect_timeout_ns + world->core.query_timeout_ns * 3 / 2,
         (int)agent->reads);
}

static void hedge(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];

    if (p->agent.reading && can_connect(world, p))
        send_attempt(world, pod, 1, link_open(&p->link));
}

// In each turn, so without printf.
static void put_id(char *to, int id)
{
    memcpy(to, "meta-00:5690", sizeof("meta-00:5690"));
    to[5] = (char)('0' + id / 10);
    to[6] = (char)('0' + id % 10);
}

static void fill_election(const struct world *world, struct pod *p, const struct req *req)
{
    struct election_fact *e = &p->agent.facts.election;
    const struct row_view *view = &req->view;
    const struct database *db = &world->db;
    uint32_t others = 0;

    for (int id = 0; id < PODS_MAX; id++)
        others += id != p->id && db->member_since[id] != 0;
    *e = (struct election_fact){.known = true,
                                .sent_at = req->sent,
                                .received_at = sim_local(world, p),
                                .heartbeat_us = view->heartbeat_us,
                                .db_now_us = view->now_us,
                                .age_ns = (view->now_us - view->heartbeat_us) * 1000,
                                .members_known = true,
                                .other_members = others,
                                .term_known = view->term != 0,
                                .term = view->term,
                                .tag_owned_term = view->asked_owned,
                                .tag_superseded = view->asked_superseded,
                                .system_id = 7,
                                .timeline = view->timeline};
    if (view->null) {
        e->row = ROW_BROKEN;
        e->defect = ROW_DEFECT_HEARTBEAT_NULL;
    } else if (!view->exists) {
        e->row = ROW_ABSENT;
    } else {
        e->row = view->id == p->id ? ROW_OURS : ROW_OTHER;
        put_id(e->owner_id, view->id);
        memcpy(e->heartbeat_tag, db->tags[view->tag].text, sizeof(e->heartbeat_tag));
    }
    if (view->owner_tag >= 0 && view->term != 0)
        memcpy(e->owner_tag, db->tags[view->owner_tag].text, sizeof(e->owner_tag));
    put_id(e->term_owner_id, view->owner_id);
    if (req->tag >= 0)
        memcpy(e->asked_tag, db->tags[req->tag].text, sizeof(e->asked_tag));
}

static void plant_in_read(const struct world *world, struct agent *agent)
{
    struct election_fact *e = &agent->facts.election;

    if (world->plant == PLANT_RECEIVED_FOR_SENT)
        e->sent_at = e->received_at;
    if (world->plant == PLANT_AGE_IGNORED)
        e->age_ns = 0;
    if (world->plant == PLANT_LATCH_LOST)
        e->tag_superseded = false;
    if (world->plant == PLANT_TIMELINE_IGNORED)
        e->timeline = 1;
}

void agent_answer(struct world *world, struct req *req)
{
    struct pod *p = &world->pods[req->pod];
    struct agent *agent = &p->agent;

    if (req->gen != agent->gen || !agent->reading || agent->attempt[req->read] != req->serial)
        return;
    agent->reading = false;
    agent->conn = req->conn;
    if (req->refused) {
        set_database(world, req->pod, DATABASE_REFUSES);
        agent_turn(world, req->pod);
        return;
    }
    set_database(world, req->pod, DATABASE_ANSWERS);
    if (instant_before(req->sent, agent->last_sent))
        return;
    agent->last_sent = req->sent;
    fill_election(world, p, req);
    plant_in_read(world, agent);
    agent->view = req->view;
    agent->view_known = true;
    check_read(world, req->pod, &req->view);
    agent_turn(world, req->pod);
}

void agent_fail(struct world *world, struct req *req)
{
    struct agent *agent = &world->pods[req->pod].agent;
    int other = 1 - req->read;

    if (req->gen != agent->gen || !agent->reading || agent->attempt[req->read] != req->serial)
        return;
    agent->attempt[req->read] = 0;
    if (req->read == 0)
        agent->conn = 0;
    if (agent->attempt[other] == 0)
        read_failed(world, req->pod);
}

// ---- a turn

static void send_order(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct agent *agent = &p->agent;
    struct fence_order order = agent->plan.order;

    if (memcmp(&order, &agent->sent_order, sizeof(order)) == 0 && agent->order_at != 0 &&
        world->now - agent->order_at < world->core.poll_ns)
        return;
    if (world->cluster && order.role == FENCE_ROLE_KILL && !cluster_may_kill(world, pod))
        return;
    check_sent(world, pod, &order);
    agent->sent_order = order;
    agent->order_at = world->now;
    order.magic = FENCE_ORDER_MAGIC;
    order.version = FENCE_PROTO_VERSION;
    order.size = sizeof(order);
    order.seq = ++agent->order_seq;
    if (world->plant == PLANT_LATE_PERMIT && order.role == FENCE_ROLE_LEADER)
        order.deadline_ns += p->shim.ipc_ns + sim_between(world, 0, world->core.poll_ns * 8);
    p->shim.ring[p->shim.ring_next % ORDER_RING] = order;
    p->shim.ring_next++;
    if (p->shim.ipc_ns == 0) {
        p->shim.ring_done = p->shim.ring_next;
        shim_order(world, pod, &order);
        return;
    }
    sim_post(
        world, world->now + p->shim.ipc_ns,
        (struct event){
            .kind = EV_ORDER, .pod = pod, .gen = p->shim.gen, .arg = (int)p->shim.ring_next});
}

static void clean_up(struct world *world, struct pod *p, enum action_kind kind)
{
    struct cleanup_fact *cleanup = &p->agent.facts.cleanup;
    uint64_t dead = p->agent.facts.fence.status.last_death.incarnation;

    if (!can_connect(world, p) || p->refused)
        return;
    if (kind == ACTION_END_SESSIONS) {
        db_end_sessions(world, p->agent.plan.dead_tag);
        cleanup->sessions_gone = dead;
        p->agent.again = true;
    } else if (kind == ACTION_RECORD_DEATH) {
        cleanup->death_recorded = dead;
        p->agent.again = true;
    } else {
        (void)db_drop_phantom(world, p->id, p->agent.plan.phantom_heartbeat_us);
    }
}

static void execute(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];

    for (uint32_t i = 0; i < p->agent.plan.action_count; i++) {
        enum action_kind kind = p->agent.plan.actions[i].kind;
        switch (kind) {
        case ACTION_ORDER: send_order(world, pod); break;
        case ACTION_LABEL: cluster_label(world, pod); break;
        case ACTION_COMPLETE_GUARD: break;
        case ACTION_READ:
            if (!p->agent.reading && p->agent.facts.database.state == DATABASE_ANSWERS)
                post(world, pod, EV_AGENT_POLL, 20 * MS, 1);
            break;
        case ACTION_ASK_STATUS:
            if (!p->agent.rpc_asked)
                post(world, pod, EV_RPC, sim_between(world, MS, 5 * MS),
                     (int)p->agent.memory.incarnation);
            p->agent.rpc_asked = true;
            break;
        case ACTION_END_SESSIONS:
        case ACTION_RECORD_DEATH:
        case ACTION_DROP_PHANTOM: clean_up(world, p, kind); break;
        case ACTION_DELETE_POD: cluster_delete_pod(world, pod); break;
        case ACTION_KILL_PIDFD:
            sim_fail(world, pod, "a method that is not usable is asked for");
            break;
        }
    }
}

static void plant_in_facts(const struct world *world, struct agent *agent)
{
    struct facts *facts = &agent->facts;

    if (world->plant == PLANT_LATCH_LOST)
        agent->memory.superseded = false;
    if (world->plant != PLANT_ERROR_IS_VERDICT || facts->database.state != DATABASE_SILENT)
        return;
    facts->election.row = ROW_OTHER;
    facts->election.sent_at = facts->now;
    (void)snprintf(facts->election.owner_id, sizeof(facts->election.owner_id), "unknown");
}

// Where a twin has taken the name over, the API server lists its uid; a node that is cut off
// cannot ask.
static void fill_api(const struct world *world, int pod, struct api_fact *api)
{
    const struct pod *p = &world->pods[pod];
    const struct pod *twin = &world->pods[PODS_MAX - 1];
    bool replaced = twin->exists && twin != p && twin->id == p->id;

    *api = (struct api_fact){.known =
                                 world->api_known && (!twin->exists || p->link.mode == LINK_OK),
                             .observed_at = p->agent.facts.now,
                             .lists_our_uid = !replaced,
                             .lists_other_uid = replaced};
}

// After every third death of a leader compute nodes are reset for a while.
static bool is_resetting(const struct facts *facts)
{
    const struct fence_death *death = &facts->fence.status.last_death;

    return death->engaged && death->incarnation % 3 == 0 &&
           facts->now.ns - death->dead_ns < 2 * NS_PER_SEC;
}

static void one_turn(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct agent *agent = &p->agent;
    enum rule before = agent->plan.rule;

    agent->facts.now = sim_local(world, p);
    if (world->cluster)
        cluster_before_turn(world, pod);
    else
        fill_api(world, pod, &agent->facts.api);
    plant_in_facts(world, agent);
    agent->facts.recovery.holds_start = is_resetting(&agent->facts);
    decide(&world->core, &agent->facts, &agent->memory, &agent->plan);
    world->stats->rules[agent->plan.rule]++;
    if (agent->plan.rule != before)
        sim_trace(world, pod, "rule %s", rule_name(agent->plan.rule));
    execute(world, pod);
    if (world->cluster)
        cluster_after_turn(world, pod);
}

static void set_wake(struct world *world, int pod)
{
    struct agent *agent = &world->pods[pod].agent;
    int64_t at = sim_world_time(&world->pods[pod], agent->plan.wake_at);

    if (at == INT64_MAX || (agent->wake_at > world->now && agent->wake_at <= at))
        return;
    agent->wake_at = at;
    agent->wake_gen++;
    post(world, pod, EV_AGENT_WAKE, at - world->now, (int)agent->wake_gen);
}

void agent_turn(struct world *world, int pod)
{
    struct agent *agent = &world->pods[pod].agent;
    uint32_t gen = agent->gen;
    int turns = 0;

    if (!agent->alive || host_stands_still(world, pod))
        return;
    if (agent->in_turn) {
        agent->again = true;
        return;
    }
    agent->in_turn = true;
    do {
        agent->again = false;
        put_id(world->core.id, world->pods[pod].id);
        one_turn(world, pod);
    } while (agent->again && ++turns < TURNS_MAX && agent->gen == gen);
    agent->in_turn = false;
    set_wake(world, pod);
}

void agent_status(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct agent *agent = &p->agent;

    if (!agent->alive || world->now < agent->frozen_until || host_stands_still(world, pod))
        return;
    agent->facts.fence.known = true;
    agent->facts.fence.received_at = sim_local(world, p);
    agent->facts.fence.status = p->shim.memory.status;
    agent_turn(world, pod);
}

static void on_rpc(struct world *world, int pod, int incarnation)
{
    struct pod *p = &world->pods[pod];
    struct rpc_fact *rpc = &p->agent.facts.rpc;

    p->agent.rpc_asked = false;
    rpc->incarnation = (uint64_t)incarnation;
    rpc->sent_at = sim_local(world, p);
    rpc->observed_at = rpc->sent_at;
    rpc->answer = RPC_REFUSED;
    if (p->meta.state == META_LEADER)
        rpc->answer = RPC_LEADING;
    else if (p->meta.state == META_FOLLOWER)
        rpc->answer = RPC_FOLLOWING;
    if (p->meta.frozen_until > world->now || !p->shim.alive ||
        p->shim.memory.status.incarnation != (uint64_t)incarnation)
        rpc->answer = RPC_UNKNOWN;
    agent_turn(world, pod);
}

static void on_poll(struct world *world, const struct event *event)
{
    struct pod *p = &world->pods[event->pod];

    if (event->arg == 0)
        post(world, event->pod, EV_AGENT_POLL, world->core.poll_ns, 0);
    if (p->shim.alive && !p->agent.facts.fence.known)
        agent_status(world, event->pod);
    if (p->agent.reading)
        agent_turn(world, event->pod);
    start_read(world, event->pod);
}

void agent_event(struct world *world, const struct event *event)
{
    struct agent *agent = &world->pods[event->pod].agent;

    if (event->gen != agent->gen || !agent->alive)
        return;
    if (world->now < agent->frozen_until) {
        sim_post(world, agent->frozen_until + sim_between(world, 0, MS), *event);
        return;
    }
    switch ((int)event->kind) {
    case EV_AGENT_POLL: on_poll(world, event); break;
    case EV_AGENT_WAKE:
        if ((uint32_t)event->arg != agent->wake_gen)
            break;
        agent->wake_at = 0;
        agent_turn(world, event->pod);
        break;
    case EV_READ_HEDGE:
        if ((uint32_t)event->arg == agent->reads)
            hedge(world, event->pod);
        break;
    case EV_READ_GIVEUP:
        if ((uint32_t)event->arg == agent->reads && agent->reading)
            read_failed(world, event->pod);
        break;
    case EV_RPC: on_rpc(world, event->pod, event->arg); break;
    default: break;
    }
}
