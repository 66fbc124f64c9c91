// SPDX-License-Identifier: Apache-2.0
// The Kubernetes side of a schedule: its life, and the agent's hooks.
#include "tests/sim/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WALL_NS INT64_C(1700000000000000000)

static const char *const happenings[HAPPENING_COUNT] = {
    [HAPPENED_REFUSED] = "connection-refused",
    [HAPPENED_TIMED_OUT] = "timed-out",
    [HAPPENED_LOST] = "request-lost",
    [HAPPENED_UNANSWERED] = "applied-unanswered",
    [HAPPENED_LATE] = "applied-late",
    [HAPPENED_LATE_LEADER] = "late-leader-label",
    [HAPPENED_BUSY] = "busy",
    [HAPPENED_BUSY_DONE] = "busy-but-done",
    [HAPPENED_DENIED] = "denied",
    [HAPPENED_CONFLICT] = "conflict",
    [HAPPENED_OWNED] = "owned-by-another",
    [HAPPENED_OTHER_UID] = "other-uid",
    [HAPPENED_GONE_STATUS] = "gone-status",
    [HAPPENED_GONE_EVENT] = "gone-event",
    [HAPPENED_STALE] = "stale-event",
    [HAPPENED_TOO_NEW] = "version-too-new",
    [HAPPENED_DEAF] = "deaf-watch",
    [HAPPENED_CHURN] = "version-churn",
    [HAPPENED_FOREIGN] = "foreign-write",
    [HAPPENED_GIVEN_UP] = "older-value-given-up",
    [HAPPENED_CLEARED] = "sibling-cleared",
    [HAPPENED_ORDER_WRITTEN] = "order-written",
    [HAPPENED_CUT_API] = "held-before-api",
    [HAPPENED_CUT_POSTGRES] = "node-cut-from-postgres",
    [HAPPENED_ONE_WAY_API] = "one-way-to-api",
    [HAPPENED_ONE_WAY_POSTGRES] = "one-way-to-postgres",
    [HAPPENED_PROBE_KILL] = "killed-by-kubelet",
    [HAPPENED_BACK_OFF] = "restart-backed-off",
    [HAPPENED_SIDECAR] = "sidecar-restarted",
    [HAPPENED_POD_REPLACED] = "pod-replaced",
    [HAPPENED_FORCED] = "replaced-while-alive",
    [HAPPENED_OWN_DELETE] = "deleted-by-agent",
    [HAPPENED_TWO_LABELS] = "two-labels",
    [HAPPENED_KILL_UNSENT] = "kill-while-unlabelled",
};

const char *happening_name(enum happening what)
{
    return happenings[what];
}

void cluster_count(struct world *world, enum happening what)
{
    world->stats->happenings[what]++;
}

// Drawn from the cluster's own stream.
int64_t cluster_between(struct world *world, int64_t low, int64_t high)
{
    uint64_t other = world->rng;
    int64_t picked = 0;

    world->rng = world->cluster->rng;
    picked = sim_between(world, low, high);
    world->cluster->rng = world->rng;
    world->rng = other;
    return picked;
}

bool cluster_chance(struct world *world, int percent)
{
    return cluster_between(world, 0, 100) < percent;
}

void cluster_post(struct world *world, int64_t after_ns, enum cluster_event_kind kind, int pod,
                  uint32_t number)
{
    sim_post(world, world->now + after_ns,
             (struct event){.kind = EV_CLUSTER, .pod = pod, .gen = number, .arg = (int)kind});
}

void cluster_take_turn(struct world *world, int pod)
{
    struct kube_node *node = &world->cluster->nodes[pod];

    if (node->seam && seam_wants_turn(node->seam))
        agent_turn(world, pod);
}

// --- what the seam asks for ---

struct instant seam_host_now(void *arg, int pod)
{
    struct world *world = arg;

    return sim_local(world, &world->pods[pod]);
}

int64_t seam_host_wall_ns(void *arg)
{
    return WALL_NS + ((struct world *)arg)->now;
}

uint32_t seam_host_random(void *arg)
{
    return (uint32_t)cluster_between(arg, 0, INT64_C(1) << 32);
}

void seam_host_log(void *arg, int pod, const char *text)
{
    sim_trace(arg, pod, "%s", text);
}

const char *seam_host_load(void *arg, int pod)
{
    const struct kube_node *node = &((struct world *)arg)->cluster->nodes[pod];

    return node->orders[0] ? node->orders : NULL;
}

void seam_host_save(void *arg, int pod, const char *bytes)
{
    struct kube_node *node = &((struct world *)arg)->cluster->nodes[pod];

    (void)snprintf(node->orders, sizeof(node->orders), "%s", bytes ? bytes : "");
}

void seam_host_arm(void *arg, int pod, struct instant local)
{
    struct world *world = arg;
    struct kube_node *node = &world->cluster->nodes[pod];
    int64_t at = sim_world_time(&world->pods[pod], local);

    // One that is past has been put off: the process is stopped.
    if (at == INT64_MAX || (node->tick_at != 0 && node->tick_at <= at))
        return;
    node->tick_at = at > world->now ? at : world->now + 1;
    cluster_post(world, node->tick_at - world->now, CLUSTER_TICK, pod, ++node->tick_gen);
}

// --- the agent ---

static enum seam_plant plant_of(enum plant plant)
{
    switch ((int)plant) {
    case PLANT_NO_SIBLINGS: return SEAM_PLANT_NO_SIBLINGS;
    case PLANT_OLD_VALUE: return SEAM_PLANT_OLD_VALUE;
    case PLANT_NO_RECHECK: return SEAM_PLANT_NO_RECHECK;
    case PLANT_NO_BACKOFF: return SEAM_PLANT_NO_BACKOFF;
    case PLANT_API_VERDICT: return SEAM_PLANT_API_VERDICT;
    default: return SEAM_PLANT_NONE;
    }
}

void cluster_agent_started(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct kube_node *node = &world->cluster->nodes[pod];
    char name[16];
    const struct seam_start start = {.world = world,
                                     .pod = pod,
                                     .name = name,
                                     .uid = p->uid,
                                     .socket = node->socket,
                                     .orders = &p->agent.facts.orders,
                                     .observe = world->cluster->observes,
                                     .resync_ns = world->cluster->resync_ns,
                                     .timeout_ns = CLUSTER_TIMEOUT_NS};

    (void)snprintf(name, sizeof(name), "meta-%d", p->id);
    (void)snprintf(node->socket, sizeof(node->socket), "/run/%d", pod);
    seam_free(node->seam);
    node->tick_at = 0;
    node->tick_gen++;
    node->is_connected = false;
    node->wire_known = false;
    node->leads_since = 0;
    node->cleared = 0;
    p->link.sound_since = world->now;
    node->seam = seam_new(&start);
    seam_plant(node->seam, plant_of(world->plant));
}

void cluster_agent_ended(struct world *world, int pod)
{
    struct kube_node *node = &world->cluster->nodes[pod];

    seam_free(node->seam);
    node->seam = NULL;
}

void cluster_before_turn(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct seam *seam = world->cluster->nodes[pod].seam;
    struct order_fact orders = seam_orders(seam);

    // The operator's wish, as long as the agent has not heard of it: the command is repeated.
    if (orders.manual_fence != p->manual) {
        orders.manual_fence = p->manual;
        seam_order(seam, &orders);
    }
    p->agent.facts.orders = seam_orders(seam);
    p->agent.facts.orders.handover = world->cluster->nodes[pod].handover;
    p->agent.facts.api = seam_api(seam);
    p->agent.facts.workers.diverged_incarnation = world->cluster->nodes[pod].diverged;
    p->agent.facts.methods.kubelet = true;
    p->agent.facts.methods.delete_pod = seam_can_delete_pod(seam);
}

void cluster_pause(struct world *world, int pod, struct instant end)
{
    struct seam *seam = world->cluster->nodes[pod].seam;
    struct order_fact orders = {0};

    if (!seam)
        return;
    orders = seam_orders(seam);
    orders.pause_end = end;
    seam_order(seam, &orders);
}

void cluster_label(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct seam *seam = NULL;

    if (!world->cluster ||
        (world->plant == PLANT_LABEL_AFTER_KILL && p->agent.plan.order.role == FENCE_ROLE_KILL))
        return;
    seam = world->cluster->nodes[pod].seam;
    seam_take(seam, &p->agent.facts, &p->agent.memory, &p->agent.plan);
    seam_label(seam, p->agent.plan.label);
}

// With a plant it waits for what must not be waited for.
bool cluster_may_kill(struct world *world, int pod)
{
    struct seam *seam = world->cluster->nodes[pod].seam;

    if (world->plant == PLANT_LABEL_AWAITED && !seam_look(seam).is_confirmed)
        return false;
    promise_kill_order(world, pod);
    return true;
}

void cluster_after_turn(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct seam *seam = world->cluster->nodes[pod].seam;

    if (!seam)
        return;
    if (world->plant == PLANT_LABEL_AFTER_KILL)
        seam_label(seam, p->agent.plan.label);
    seam_say(seam);
    promise_turn(world, pod);
}

void cluster_delete_pod(struct world *world, int pod)
{
    if (world->cluster)
        seam_delete_pod(world->cluster->nodes[pod].seam);
    else
        sim_fail(world, pod, "a method that is not usable is asked for");
}

void cluster_cut_by_twin(struct world *world, int pod)
{
    world->cluster->nodes[pod].is_cut_by_twin = true;
    world->cluster->nodes[pod].cut++;
}

void cluster_twin_ended(struct world *world, int pod)
{
    struct kube_node *node = &world->cluster->nodes[pod];

    node->cut -= node->is_cut_by_twin;
    node->is_cut_by_twin = false;
}

// --- life ---

void cluster_init(struct world *world)
{
    struct cluster *cluster = calloc(1, sizeof(*cluster));

    if (!cluster)
        abort();
    world->cluster = cluster;
    cluster->rng = world->seed * UINT64_C(0x9e3779b97f4a7c15) + 77;
    cluster->has_operator = cluster_chance(world, 30);
    cluster->observes = cluster_chance(world, 20);
    cluster->resync_ns = cluster_chance(world, 50) ? 20 * S : 300 * S;
    cluster->is_api_only = world->plant == PLANT_NONE ? cluster_chance(world, 20)
                                                      : world->plant == PLANT_API_VERDICT;
    if (cluster->is_api_only)
        world->fault_count = 0;
    world->stats->clusters++;
    api_init(world);
    trouble_plan(world);
}

// Those of a later round have a stream of their own, so that muting changes none of them.
static void plan_round(struct world *world)
{
    struct cluster *cluster = world->cluster;
    uint64_t rng = cluster->rng;

    cluster->trouble_count = 0;
    cluster->rng =
        world->seed * UINT64_C(0x9e3779b97f4a7c15) + 77 + (uint64_t)world->round * 1001;
    trouble_plan(world);
    cluster->rng = rng;
}

void cluster_free(struct world *world)
{
    struct cluster *cluster = world->cluster;

    if (!cluster)
        return;
    for (int i = 0; i < PODS_MAX; i++)
        cluster_agent_ended(world, i);
    for (int i = 0; i < CALLS_MAX; i++)
        wire_free(&cluster->calls[i]);
    free(cluster);
    world->cluster = NULL;
}

static void post_troubles(struct world *world)
{
    struct cluster *cluster = world->cluster;

    for (int i = 0; i < cluster->trouble_count; i++) {
        const struct trouble *trouble = &cluster->troubles[i];
        if (muted_has(&world->muted, world->round * ROUND_BITS + FAULTS_MAX + i))
            continue;
        cluster_post(world, trouble->at, CLUSTER_TROUBLE_BEGIN, -1, (uint32_t)i);
        cluster_post(world, trouble->at + trouble->span_ns, CLUSTER_TROUBLE_END, -1,
                     (uint32_t)i);
        if (world->now + trouble->at + trouble->span_ns > world->faults_end)
            world->faults_end = world->now + trouble->at + trouble->span_ns;
    }
}

void cluster_run(struct world *world)
{
    post_troubles(world);
    if (world->cluster->has_operator)
        cluster_post(world, S, CLUSTER_OPERATOR, -1, 0);
}

void cluster_round(struct world *world)
{
    plan_round(world);
    post_troubles(world);
}

// A timer of BOOTTIME is due by the clock as it is now.
void cluster_clock_changed(struct world *world, int pod)
{
    struct kube_node *node = &world->cluster->nodes[pod];

    if (!node->seam || node->tick_at == 0)
        return;
    node->tick_at = world->now + 1;
    cluster_post(world, 1, CLUSTER_TICK, pod, ++node->tick_gen);
}

bool cluster_is_of_node(const struct event *event)
{
    switch ((enum cluster_event_kind)event->arg) {
    case CLUSTER_TICK:
    case CLUSTER_ANSWER:
    case CLUSTER_GIVE_UP:
    case CLUSTER_PUMP:
    case CLUSTER_BEAT:
    case CLUSTER_PROBE:
    case CLUSTER_GRACE_OVER:
    case CLUSTER_TERM:
    case CLUSTER_BOOT:
    case CLUSTER_SIDECAR:
    case CLUSTER_LIVENESS_KILL: return true;
    case CLUSTER_ARRIVE:
    case CLUSTER_TROUBLE_BEGIN:
    case CLUSTER_TROUBLE_END:
    case CLUSTER_OPERATOR:
    case CLUSTER_CHURN:
    case CLUSTER_FOREIGN:
    case CLUSTER_REMOVE:
    case CLUSTER_CREATE: break;
    }
    return false;
}

static void on_tick(struct world *world, const struct event *event)
{
    struct kube_node *node = &world->cluster->nodes[event->pod];

    if (event->gen != node->tick_gen || !node->seam)
        return;
    node->tick_at = 0;
    seam_tick(node->seam);
    cluster_take_turn(world, event->pod);
}

// What a stopped process would do happens when it runs again.
static bool is_put_off(struct world *world, const struct event *event)
{
    int64_t until = event->pod >= 0 ? world->pods[event->pod].agent.frozen_until : 0;

    if (event->arg == CLUSTER_ARRIVE || event->arg > CLUSTER_BEAT || world->now >= until)
        return false;
    sim_post(world, until + cluster_between(world, 0, MS), *event);
    return true;
}

void cluster_event(struct world *world, const struct event *event)
{
    if (is_put_off(world, event))
        return;
    switch ((enum cluster_event_kind)event->arg) {
    case CLUSTER_TICK: on_tick(world, event); break;
    case CLUSTER_ARRIVE:
    case CLUSTER_ANSWER:
    case CLUSTER_GIVE_UP:
    case CLUSTER_PUMP:
    case CLUSTER_BEAT: wire_event(world, event); break;
    case CLUSTER_TROUBLE_BEGIN: trouble_begin(world, (int)event->gen); break;
    case CLUSTER_TROUBLE_END: trouble_end(world, (int)event->gen); break;
    case CLUSTER_OPERATOR:
    case CLUSTER_CHURN:
    case CLUSTER_FOREIGN: writer_event(world, event); break;
    case CLUSTER_PROBE:
    case CLUSTER_GRACE_OVER:
    case CLUSTER_TERM:
    case CLUSTER_REMOVE:
    case CLUSTER_CREATE:
    case CLUSTER_BOOT:
    case CLUSTER_SIDECAR:
    case CLUSTER_LIVENESS_KILL: kubelet_event(world, event); break;
    }
}
