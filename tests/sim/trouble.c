// SPDX-License-Identifier: Apache-2.0
// What goes wrong between the pods and Kubernetes: drawn before anything runs, as the other
// faults are, from the cluster's own stream of chance.
#include "tests/sim/cluster.h"

#include <stdio.h>
#include <string.h>

// How often each is drawn, how long it lasts in hundredths of ttl, and whether it spares what
// an election needs: then it is no reason to kill anybody.
static const struct {
    const char *name;
    int weight;
    int low;
    int high;
    bool is_harmless;
} kinds[TROUBLE_COUNT] = {
    [TROUBLE_API_DOWN] = {"api-down", 10, 20, 600, true},
    [TROUBLE_API_SLOW] = {"api-slow", 6, 50, 500, true},
    [TROUBLE_API_ERRORS] = {"api-errors", 8, 50, 500, true},
    [TROUBLE_API_DENIED] = {"api-denied", 5, 50, 500, true},
    [TROUBLE_API_CONFLICT] = {"api-conflict", 5, 50, 500, true},
    [TROUBLE_API_LOST] = {"api-lost", 8, 50, 500, true},
    [TROUBLE_API_NO_ANSWER] = {"api-no-answer", 8, 50, 500, true},
    [TROUBLE_API_LATE] = {"api-late", 12, 50, 500, true},
    [TROUBLE_API_EXPIRED] = {"api-expired", 5, 50, 300, true},
    [TROUBLE_API_STALE] = {"api-stale", 6, 50, 500, true},
    [TROUBLE_API_DEAF] = {"api-deaf", 5, 50, 500, true},
    [TROUBLE_CHURN] = {"churn", 5, 50, 400, true},
    [TROUBLE_FOREIGN] = {"foreign-label", 5, 50, 400, true},
    [TROUBLE_CUT_API] = {"cut-api", 8, 20, 600, true},
    [TROUBLE_CUT_POSTGRES] = {"cut-postgres", 6, 20, 400, false},
    [TROUBLE_CUT_NODE] = {"cut-node", 8, 20, 600, false},
    [TROUBLE_API_MUTE] = {"api-mute", 6, 50, 500, true},
    [TROUBLE_API_DUMB] = {"api-dumb", 6, 50, 500, true},
    [TROUBLE_POSTGRES_DUMB] = {"postgres-dumb", 6, 20, 300, false},
    [TROUBLE_SIDECAR] = {"sidecar", 6, 0, 0, false},
    [TROUBLE_CONTAINER] = {"container", 5, 0, 0, false},
    [TROUBLE_RUN_STOPPED] = {"run-stopped", 5, 50, 700, false},
    [TROUBLE_POD_DELETED] = {"pod-deleted", 6, 0, 0, false},
    [TROUBLE_NODE_LOST] = {"node-lost", 8, 100, 600, false},
    [TROUBLE_DIVERGED] = {"diverged", 0, 0, 0, false}, // drawn apart
    [TROUBLE_HANDOVER] = {"handover", 0, 0, 0, false},
};

const char *trouble_name(enum trouble_kind kind)
{
    return kinds[kind].name;
}

// --- the plan ---

static bool is_among(const struct world *world, uint32_t among, int kind)
{
    return (among & (1U << kind)) && (!world->cluster->is_api_only || kinds[kind].is_harmless);
}

static enum trouble_kind draw_kind(struct world *world, uint32_t among)
{
    int total = 0;
    int64_t pick = 0;

    for (int i = 0; i < TROUBLE_COUNT; i++)
        total += is_among(world, among, i) ? kinds[i].weight : 0;
    pick = cluster_between(world, 0, total);
    for (int i = 0; i < TROUBLE_COUNT; i++) {
        if (!is_among(world, among, i))
            continue;
        pick -= kinds[i].weight;
        if (pick < 0)
            return (enum trouble_kind)i;
    }
    return TROUBLE_API_DOWN;
}

// Half of the schedules know only some kinds: these meet more often then.
static uint32_t draw_among(struct world *world)
{
    uint32_t among = 0;

    if (world->trouble_among)
        return world->trouble_among;
    if (cluster_chance(world, 50))
        return UINT32_MAX;
    for (int i = (int)cluster_between(world, 2, 5); i > 0; i--)
        among |= 1U << cluster_between(world, 0, TROUBLE_COUNT);
    return among;
}

static int64_t draw_amount(struct world *world, enum trouble_kind kind)
{
    if (kind == TROUBLE_API_SLOW)
        return cluster_between(world, 200 * MS, 8 * S);
    if (kind == TROUBLE_API_STALE)
        return cluster_between(world, 500 * MS, 20 * S);
    if (kind == TROUBLE_RUN_STOPPED)
        return cluster_chance(world, 40); // and an operator fences that meta
    return 0;
}

// Near what happens anyway: a label is only written when a role changes.
static int64_t draw_moment(struct world *world, const struct trouble *before)
{
    int64_t window_ns = (world->ttl_ns > 10 * S ? 7 : 17) * world->ttl_ns;

    if (world->fault_count > 0 && cluster_chance(world, 50)) {
        const struct fault *fault =
            &world->faults[cluster_between(world, 0, world->fault_count)];
        int64_t at = fault->at + cluster_between(world, -world->ttl_ns, world->ttl_ns);
        return at > 0 ? at : 0;
    }
    if (before && cluster_chance(world, 50))
        return before->at + cluster_between(world, 0, world->ttl_ns);
    return cluster_chance(world, 10) ? 0 : cluster_between(world, 0, window_ns);
}

void trouble_plan(struct world *world)
{
    struct cluster *cluster = world->cluster;
    int wanted = (int)cluster_between(world, 0, 7);
    uint32_t among = draw_among(world);
    int64_t cent_ns = world->ttl_ns / 100;

    if (world->trouble_among && wanted < 2)
        wanted = 2;
    while (cluster->trouble_count < wanted) {
        int last = cluster->trouble_count - 1;
        struct trouble *trouble = &cluster->troubles[cluster->trouble_count++];
        enum trouble_kind kind = draw_kind(world, among);
        trouble->kind = kind;
        trouble->at = draw_moment(world, last >= 0 ? &cluster->troubles[last] : NULL);
        trouble->pod = (int)cluster_between(world, 0, world->pod_count);
        trouble->on_leader = cluster_chance(world, 60);
        trouble->span_ns =
            cluster_between(world, kinds[kind].low * cent_ns, kinds[kind].high * cent_ns);
        trouble->amount_ns = draw_amount(world, kind);
        // Long enough for the ladder's last rung.
        if (kind == TROUBLE_RUN_STOPPED && trouble->amount_ns != 0)
            trouble->span_ns = cluster_between(world, 31 * S, 45 * S);
    }
    if (!cluster->is_api_only && !world->trouble_among && cluster_chance(world, 20)) {
        int64_t at = cluster_between(world, 2 * S, 7 * world->ttl_ns);
        // No draw of its own: seeds that are kept would mean something else.
        enum trouble_kind kind = at / 1024 % 2 ? TROUBLE_HANDOVER : TROUBLE_DIVERGED;

        cluster->troubles[cluster->trouble_count++] =
            (struct trouble){.kind = kind, .on_leader = true, .at = at};
    }
}

// --- others that write labels ---

static void write_foreign(struct world *world)
{
    static const char *const values[] = {"leader", "follower", "unknown", ""};
    int name = (int)cluster_between(world, 0, PODS_MAX);

    cluster_count(world, HAPPENED_FOREIGN);
    api_write_label(world, name, values[cluster_between(world, 0, 4)], NULL);
}

// The operator's own labeler follows the row.
static void write_roles(struct world *world)
{
    const struct database *db = &world->db;

    for (int name = 0; name < PODS_MAX && world->cluster->api.down == 0; name++)
        api_write_label(world, name, NULL, db->row && db->id == name ? "leader" : "follower");
}

void writer_event(struct world *world, const struct event *event)
{
    struct cluster *cluster = world->cluster;

    switch ((int)event->arg) {
    case CLUSTER_OPERATOR:
        write_roles(world);
        cluster_post(world, 2 * S, CLUSTER_OPERATOR, -1, 0);
        break;
    case CLUSTER_CHURN:
        if (cluster->api.churn == 0)
            break;
        cluster_count(world, HAPPENED_CHURN);
        api_touch(world, (int)cluster_between(world, 0, PODS_MAX));
        cluster_post(world, cluster_between(world, 100 * MS, 600 * MS), CLUSTER_CHURN, -1, 0);
        break;
    case CLUSTER_FOREIGN:
        if (cluster->foreign == 0)
            break;
        write_foreign(world);
        cluster_post(world, cluster_between(world, 300 * MS, 4 * S), CLUSTER_FOREIGN, -1, 0);
        break;
    default: break;
    }
}

// --- begin and end ---

static void set_unsound(struct world *world, const struct trouble *trouble, int change)
{
    struct pod *p = &world->pods[trouble->pod];

    if (kinds[trouble->kind].is_harmless)
        return;
    p->unsound += change;
    p->link.sound_since = world->now;
}

// The counter of the server that a kind moves; NULL: it is no trouble of the server.
static int *server_counter(struct api_server *api, enum trouble_kind kind)
{
    switch ((int)kind) {
    case TROUBLE_API_DOWN: return &api->down;
    case TROUBLE_API_SLOW: return &api->slow;
    case TROUBLE_API_ERRORS: return &api->errors;
    case TROUBLE_API_DENIED: return &api->denied;
    case TROUBLE_API_CONFLICT: return &api->conflict;
    case TROUBLE_API_LOST: return &api->lost;
    case TROUBLE_API_NO_ANSWER: return &api->no_answer;
    case TROUBLE_API_LATE: return &api->late;
    case TROUBLE_API_EXPIRED: return &api->expired;
    case TROUBLE_API_STALE: return &api->stale;
    case TROUBLE_CHURN: return &api->churn;
    default: return NULL;
    }
}

static int *link_counter(struct kube_node *node, enum trouble_kind kind)
{
    switch ((int)kind) {
    case TROUBLE_CUT_API:
    case TROUBLE_CUT_NODE: return &node->cut;
    case TROUBLE_API_MUTE: return &node->mute;
    case TROUBLE_API_DUMB: return &node->dumb;
    default: return NULL;
    }
}

static void each_stream(struct world *world, int pod,
                        void (*fn)(struct world *world, struct api_call *call))
{
    for (int i = 0; i < CALLS_MAX; i++) {
        struct api_call *call = &world->cluster->calls[i];
        if (call->serial != 0 && call->is_open && (pod < 0 || call->pod == pod))
            fn(world, call);
    }
}

static void break_stream(struct world *world, struct api_call *call)
{
    // An ordinary way for a watch to end.
    call->ends_at = 0;
    cluster_post(world, cluster_between(world, MS, 10 * MS), CLUSTER_BEAT, call->pod,
                 call->serial);
}

static void deafen(struct world *world, struct api_call *call)
{
    call->is_deaf = true;
    world->cluster->nodes[call->pod].deaf = call->serial;
    cluster_count(world, HAPPENED_DEAF);
}

static void delay_stream(struct world *world, struct api_call *call)
{
    call->lag_ns = world->cluster->api.lag_ns;
}

static void catch_up(struct world *world, struct api_call *call)
{
    call->lag_ns = 0;
    cluster_post(world, MS, CLUSTER_PUMP, call->pod, call->serial);
}

static void begin_server(struct world *world, const struct trouble *trouble)
{
    struct api_server *api = &world->cluster->api;

    switch ((int)trouble->kind) {
    case TROUBLE_API_DOWN: each_stream(world, -1, break_stream); break;
    case TROUBLE_API_SLOW: api->slow_ns = trouble->amount_ns; break;
    case TROUBLE_API_EXPIRED: each_stream(world, -1, wire_expire); break;
    case TROUBLE_API_STALE:
        api->lag_ns = trouble->amount_ns;
        each_stream(world, -1, delay_stream);
        break;
    case TROUBLE_CHURN: cluster_post(world, MS, CLUSTER_CHURN, -1, 0); break;
    default: break;
    }
}

static void cut_postgres(struct world *world, const struct trouble *trouble)
{
    bool is_dumb = trouble->kind == TROUBLE_POSTGRES_DUMB;

    cluster_count(world, is_dumb ? HAPPENED_ONE_WAY_POSTGRES : HAPPENED_CUT_POSTGRES);
    link_set(world, trouble->pod, is_dumb ? LINK_DUMB : LINK_STALL);
}

static void lose_node(struct world *world, int pod)
{
    struct kube_node *node = &world->cluster->nodes[pod];

    if (!world->pods[pod].exists || node->is_ending)
        return;
    node->is_down = true;
    agent_stop(world, pod);
    shim_kill_container(world, pod);
}

static void begin_in_pod(struct world *world, const struct trouble *trouble)
{
    struct pod *p = &world->pods[trouble->pod];

    switch ((int)trouble->kind) {
    case TROUBLE_API_DEAF: each_stream(world, trouble->pod, deafen); break;
    case TROUBLE_FOREIGN:
        if (world->cluster->foreign++ == 0)
            cluster_post(world, MS, CLUSTER_FOREIGN, -1, 0);
        break;
    case TROUBLE_CUT_POSTGRES:
    case TROUBLE_CUT_NODE:
    case TROUBLE_POSTGRES_DUMB: cut_postgres(world, trouble); break;
    case TROUBLE_SIDECAR: kubelet_restart_sidecar(world, trouble->pod); break;
    case TROUBLE_CONTAINER:
        if (p->exists)
            shim_kill_container(world, trouble->pod);
        break;
    case TROUBLE_RUN_STOPPED:
        kubelet_stop_run(world, trouble->pod, true);
        p->manual |= trouble->amount_ns != 0; // the agent hears of it at its next turn
        break;
    case TROUBLE_POD_DELETED:
        if (p->exists && api_of(world, trouble->pod) && world->cluster->api.down == 0)
            api_begin_delete(world, p->id, cluster_between(world, S, 10 * S));
        break;
    case TROUBLE_NODE_LOST: lose_node(world, trouble->pod); break;
    case TROUBLE_DIVERGED:
        world->cluster->nodes[trouble->pod].diverged = p->agent.memory.incarnation;
        break;
    case TROUBLE_HANDOVER:
        world->cluster->nodes[trouble->pod].handover = p->agent.memory.incarnation;
        break;
    default: break;
    }
}

void trouble_begin(struct world *world, int index)
{
    struct trouble *trouble = &world->cluster->troubles[index];
    int *counter = server_counter(&world->cluster->api, trouble->kind);
    int *link = NULL;

    if (trouble->on_leader)
        trouble->pod = meta_leading(world, trouble->pod);
    sim_trace(world, -1, "TROUBLE %s pod %d for %.3f s", kinds[trouble->kind].name,
              trouble->pod, (double)trouble->span_ns / 1e9);
    world->stats->troubles[trouble->kind]++;
    set_unsound(world, trouble, 1);
    link = link_counter(&world->cluster->nodes[trouble->pod], trouble->kind);
    if (counter)
        (*counter)++;
    if (link)
        (*link)++;
    if (counter)
        begin_server(world, trouble);
    else
        begin_in_pod(world, trouble);
}

static void end_in_pod(struct world *world, const struct trouble *trouble)
{
    struct kube_node *node = &world->cluster->nodes[trouble->pod];

    switch ((int)trouble->kind) {
    case TROUBLE_FOREIGN: world->cluster->foreign--; break;
    case TROUBLE_CUT_POSTGRES:
    case TROUBLE_CUT_NODE:
    case TROUBLE_POSTGRES_DUMB: link_set(world, trouble->pod, LINK_OK); break;
    case TROUBLE_RUN_STOPPED:
        kubelet_stop_run(world, trouble->pod, false);
        if (trouble->amount_ns != 0)
            world->pods[trouble->pod].manual = false;
        break;
    case TROUBLE_NODE_LOST:
        // Somebody force-deletes the pod of the node that does not come back.
        if (node->is_down)
            cluster_post(world, MS, CLUSTER_REMOVE, trouble->pod, 0);
        break;
    default: break;
    }
}

void trouble_end(struct world *world, int index)
{
    const struct trouble *trouble = &world->cluster->troubles[index];
    int *counter = server_counter(&world->cluster->api, trouble->kind);
    int *link = link_counter(&world->cluster->nodes[trouble->pod], trouble->kind);

    sim_trace(world, -1, "end of %s", kinds[trouble->kind].name);
    set_unsound(world, trouble, -1);
    if (counter)
        (*counter)--;
    if (link && --*link == 0)
        wire_healed(world, trouble->pod);
    if (trouble->kind == TROUBLE_API_STALE)
        each_stream(world, -1, catch_up);
    end_in_pod(world, trouble);
}
