// SPDX-License-Identifier: Apache-2.0
// P4 and P8: what the API server shows against what is so, and what the guard does to the API.
#include "tests/sim/cluster.h"

#include <string.h>

#include "agent/kube/label.h"

// From the end of what disturbs an agent's way to the API to a label that is right: a request
// that gets no answer (5 s), and the longest back-off after it (8 s and a quarter; a server's
// own word is no longer).
#define CONVERGE_NS   (16 * S)
#define CALM_NS       (25 * S) // … and of what it left behind: a late repeat, a look later
#define YOUNG_LIST_NS (5 * S)  // a new leader lists the labels of its siblings so often …
#define YOUNG_NS      (30 * S) // … for so long, then at each resync
#define PROBED_NS     (17 * S) // three probes, 5 s apart, and the grace
#define PROMPT_NS     S        // where nothing was disturbed before
#define SUPERSEDE_NS  (500 * MS)
#define WINDOW_NS     (60 * S)
#define REQUESTS_MAX  180 // of one agent in a window

static bool is_disturbed(const struct world *world, int pod)
{
    const struct cluster *cluster = world->cluster;
    const struct api_server *api = &cluster->api;
    const struct kube_node *node = &cluster->nodes[pod];
    const struct agent *agent = &world->pods[pod].agent;

    if (api->down || api->slow || api->errors || api->denied || api->conflict || api->lost ||
        api->no_answer || api->late || api->expired || api->stale || cluster->foreign)
        return true;
    if (node->cut || node->mute || node->dumb || node->is_down || node->is_ending ||
        host_stands_still(world, pod))
        return true;
    if (node->deaf != 0 && cluster->calls[node->deaf % CALLS_MAX].serial == node->deaf)
        return true;
    return !agent->alive || world->now < agent->frozen_until;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// --- the label is true ---

static void note_wish(struct world *world, int pod)
{
    struct kube_node *node = &world->cluster->nodes[pod];
    const struct agent *agent = &world->pods[pod].agent;

    if (is_disturbed(world, pod))
        node->calm_since = world->now;
    if (node->wish != agent->plan.label) {
        node->wish = agent->plan.label;
        node->wish_since = world->now;
    }
    if (!agent->alive || agent->plan.label != LABEL_LEADER)
        node->leads_since = 0;
    else if (node->leads_since == 0)
        node->leads_since = world->now;
}

static void note_wrong(int64_t *since, bool is_wrong, int64_t now)
{
    if (!is_wrong)
        *since = 0;
    else if (*since == 0)
        *since = now;
}

// It can't know yet that it has lost the row, to a failover that lost its term or to somebody
// who deleted it; and the agent of who leads now clears its label.
static bool is_contested(const struct world *world, int pod)
{
    const struct kube_node *nodes = world->cluster->nodes;
    const struct database *db = &world->db;
    const struct pod *p = &world->pods[pod];

    if (nodes[pod].wish != LABEL_LEADER ||
        (db->row && db->id == p->id && db->row_tag == p->meta.tag))
        return false;
    for (int i = 0; i < world->pod_count; i++)
        if (i != pod && world->pods[i].exists && nodes[i].leads_since != 0)
            return true;
    return false;
}

static void check_own_label(struct world *world, int pod)
{
    const struct cluster *cluster = world->cluster;
    struct kube_node *node = &world->cluster->nodes[pod];
    const struct api_pod *object = api_of(world, pod);
    bool is_judged = object && !object->deleting && world->pods[pod].agent.alive &&
                     !is_contested(world, pod);
    bool has_second = !cluster->has_operator && !cluster->observes;
    int64_t from = later(node->calm_since, node->wish_since);

    note_wrong(&node->wrong_since, is_judged && object->own_is != (int)node->wish, world->now);
    note_wrong(&node->role_wrong_since,
               is_judged && has_second && object->role_is != (int)node->wish, world->now);
    if (node->wrong_since != 0 && world->now - later(from, node->wrong_since) > CONVERGE_NS)
        sim_fail(world, pod, "P4: the label says \"%s\", it should be \"%s\"", object->own,
                 kube_role_text(node->wish));
    if (node->wrong_since != 0 && node->calm_since + CALM_NS < node->wish_since &&
        world->now - later(node->wish_since, node->wrong_since) > PROMPT_NS)
        sim_fail(world, pod,
                 "P4: the label still says \"%s\", not \"%s\", though the API is well",
                 object->own, kube_role_text(node->wish));
    if (node->role_wrong_since != 0 &&
        world->now - later(from, node->role_wrong_since) > cluster->resync_ns + CONVERGE_NS)
        sim_fail(world, pod, "P4: the second label says \"%s\", it should be \"%s\"",
                 object->role, kube_role_text(node->wish));
}

// Somebody has said that this state is not covered, or it is for the kubelet to end.
static bool is_uncovered(const struct world *world, int pod)
{
    const struct pod *p = &world->pods[pod];

    return p->pause_until > world->now || !p->armed || world->cluster->nodes[pod].is_stopped ||
           p->shim.memory.status.pause_end_ns > sim_local(world, p).ns;
}

static void check_one_leader(struct world *world)
{
    struct cluster *cluster = world->cluster;
    int64_t from = 0;
    int leaders = 0;

    for (int i = 0; i < world->pod_count; i++) {
        const struct pod *p = &world->pods[i];
        const struct api_pod *object = p->exists ? api_of(world, i) : NULL;
        if (!object || p->meta.state == META_DOWN || object->own_is != LABEL_LEADER)
            continue;
        leaders++;
        from = later(from, cluster->nodes[i].calm_since);
        if (is_uncovered(world, i))
            from = world->now;
    }
    if (leaders < 2) {
        cluster->two_since = 0;
        return;
    }
    if (cluster->two_since == 0) {
        cluster->two_since = world->now;
        cluster_count(world, HAPPENED_TWO_LABELS);
    }
    if (world->now - later(from, cluster->two_since) > CONVERGE_NS)
        sim_fail(world, -1, "P4: two living pods are labelled leader");
}

// Who can't take its label off: the leader's agent does.
static bool is_speechless(const struct world *world, int pod)
{
    const struct kube_node *node = &world->cluster->nodes[pod];

    return !world->pods[pod].exists || !world->pods[pod].agent.alive || node->is_down ||
           node->cut > 0;
}

static void check_siblings(struct world *world, int leader)
{
    const struct cluster *cluster = world->cluster;
    const struct kube_node *node = &cluster->nodes[leader];

    if (node->leads_since == 0 || !api_of(world, leader))
        return;
    for (int name = 0; name < PODS_MAX; name++) {
        const struct api_pod *object = &cluster->api.pods[name];
        int64_t from = later(later(node->calm_since, node->leads_since), object->labelled_at);
        bool is_young = from + YOUNG_LIST_NS < node->leads_since + YOUNG_NS;
        int64_t bound_ns = CONVERGE_NS + (is_young ? YOUNG_LIST_NS : cluster->resync_ns);
        if (!object->exists || name == world->pods[leader].id ||
            object->own_is != LABEL_LEADER || !is_speechless(world, object->pod))
            continue;
        if (world->now - from > bound_ns)
            sim_fail(world, object->pod,
                     "P4: a pod that can't speak is still labelled leader, though pod%d leads",
                     leader);
    }
}

static void count_cleared(struct world *world, int pod)
{
    struct kube_node *node = &world->cluster->nodes[pod];
    uint64_t cleared = seam_look(node->seam).cleared;

    if (cleared > node->cleared)
        cluster_count(world, HAPPENED_CLEARED);
    node->cleared = cleared;
}

// --- the kubelet's part of P1 ---

static void check_stopped(struct world *world, int pod)
{
    const struct pod *p = &world->pods[pod];
    struct kube_node *node = &world->cluster->nodes[pod];
    int64_t deadline_ns = p->shim.memory.status.deadline_ns;
    bool is_past = node->is_stopped && p->meta.engaged_at != 0 && deadline_ns != 0 &&
                   sim_local(world, p).ns > deadline_ns && !host_stands_still(world, pod);

    if (!is_past)
        node->expired_at = 0;
    else if (node->expired_at == 0)
        node->expired_at = world->now;
    else if (world->now - node->expired_at > PROBED_NS)
        sim_fail(world, pod, "P1: the kubelet did not end what a stopped metafence-run left");
}

void promise_step(struct world *world)
{
    for (int i = 0; i < world->pod_count; i++) {
        note_wish(world, i);
        if (!world->pods[i].exists)
            continue;
        check_own_label(world, i);
        check_stopped(world, i);
    }
    check_one_leader(world);
    for (int i = 0; i < world->pod_count; i++)
        if (world->pods[i].exists)
            check_siblings(world, i);
}

// --- before a kill ---

// The label leaves before the order; where it can't, the reason is the API's.
void promise_kill_order(struct world *world, int pod)
{
    struct kube_node *node = &world->cluster->nodes[pod];
    uint64_t incarnation = world->pods[pod].agent.plan.order.incarnation;
    struct seam_view view = {0};

    if (node->killed == incarnation)
        return;
    node->killed = incarnation;
    view = seam_look(node->seam);
    if (view.is_halted || (node->wire_known && node->wire != LABEL_LEADER))
        return;
    if (view.has_wish && view.wish != LABEL_LEADER &&
        ((view.is_sending &&
          instant_since(sim_local(world, &world->pods[pod]), view.sent_at) <= SUPERSEDE_NS) ||
         view.is_waiting)) {
        cluster_count(world, HAPPENED_KILL_UNSENT);
        return;
    }
    sim_fail(world, pod, "P4: a kill is ordered before \"unknown\" was sent");
}

void promise_turn(struct world *world, int pod)
{
    const struct pod *p = &world->pods[pod];
    const struct agent *agent = &p->agent;
    struct seam_view view = seam_look(world->cluster->nodes[pod].seam);

    if (agent->plan.order.role == FENCE_ROLE_KILL && agent->facts.fence.known &&
        (agent->sent_order.role != FENCE_ROLE_KILL ||
         agent->sent_order.incarnation != agent->plan.order.incarnation))
        sim_fail(world, pod, "P4: a kill waits for its label");
    if (view.in_flight > 9 || view.timers > 2 || view.events_waiting > 16)
        sim_fail(world, pod, "P8: %u requests under way, %u timers, %u events", view.in_flight,
                 view.timers, view.events_waiting);
    count_cleared(world, pod);
}

// --- requests ---

void promise_sent(struct world *world, int pod, const struct seam_call *call)
{
    struct kube_node *node = &world->cluster->nodes[pod];

    if (call->is_own_label) {
        node->wire_known = true;
        node->wire = LABEL_UNKNOWN;
        if (strstr(call->body, "\":\"leader\""))
            node->wire = LABEL_LEADER;
        else if (strstr(call->body, "\":\"follower\""))
            node->wire = LABEL_FOLLOWER;
    }
    if (world->now - node->window_at >= WINDOW_NS) {
        node->window_at = world->now;
        node->requests = 0;
    }
    world->stats->requests++;
    if (++node->requests > world->stats->most_requests)
        world->stats->most_requests = node->requests;
    if (node->requests > REQUESTS_MAX)
        sim_fail(world, pod, "P8: more than %d requests to the API in a minute", REQUESTS_MAX);
}

// --- the end ---

const char *promise_unsettled(struct world *world, int *ret_pod)
{
    if (world->now < world->settled_by + CONVERGE_NS)
        return NULL;
    for (int i = 0; i < world->pod_count; i++) {
        const struct pod *p = &world->pods[i];
        const struct api_pod *object = p->exists ? api_of(world, i) : NULL;
        const char *role = p->meta.state == META_LEADER ? "leader" : "follower";
        *ret_pod = i;
        if (!p->exists || world->now - world->cluster->nodes[i].calm_since < CONVERGE_NS)
            continue;
        if (!object)
            return "is not listed";
        if (strcmp(object->own, role) != 0)
            return "is not labelled as what it is";
    }
    return NULL;
}
