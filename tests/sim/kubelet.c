// SPDX-License-Identifier: Apache-2.0
// A node's kubelet and the StatefulSet's controller: the liveness probe of meta's container
// (the real judgement over the state file), restarts with back-off, pods that end in good order
// and come again.
#include "tests/sim/cluster.h"

#include <string.h>

#include "fence/probe.h"

#define PROBE_NS    (5 * S) // as in the chart: 3 failures in a row, grace 1 s
#define PROBE_FAILS 3
#define PROBE_GRACE S
#define LOOK_NS     (250 * MS)

// As measured on a real one.
static const int64_t back_offs[] = {800 * MS, 14 * S, 24 * S, 47 * S, 88 * S};

static int64_t back_off(struct world *world, unsigned *restarts)
{
    unsigned last = sizeof(back_offs) / sizeof(back_offs[0]) - 1;
    int64_t wait_ns = back_offs[*restarts < last ? *restarts : last];

    if (*restarts > 0)
        cluster_count(world, HAPPENED_BACK_OFF);
    (*restarts)++;
    return wait_ns + cluster_between(world, 0, S);
}

int64_t kubelet_restart_ns(struct world *world, int pod)
{
    struct kube_node *node = &world->cluster->nodes[pod];
    int64_t wait_ns = back_off(world, &node->restarts);

    node->is_stopped = node->reaps_later = node->wants_order = node->wants_permit = false;
    node->failures = 0;
    node->start_at = world->now + wait_ns;
    return wait_ns;
}

int64_t kubelet_start_at(const struct world *world, int pod)
{
    return world->cluster->nodes[pod].start_at;
}

bool kubelet_may_run(const struct world *world, int pod)
{
    const struct kube_node *node = NULL;

    if (!world->cluster)
        return true;
    node = &world->cluster->nodes[pod];
    return !node->is_down && !node->is_ending;
}

void kubelet_booted(struct world *world, int pod)
{
    struct cluster *cluster = world->cluster;
    struct kube_node *node = &cluster->nodes[pod];
    const struct api_pod *before = &cluster->api.pods[world->pods[pod].id];

    if (before->exists && before->pod != pod &&
        world->pods[before->pod].meta.state != META_DOWN)
        cluster_count(world, HAPPENED_FORCED);
    node->is_down = node->is_ending = node->is_stopped = node->reaps_later = false;
    node->wants_order = node->wants_permit = false;
    node->failures = node->restarts = node->sidecar_restarts = 0;
    node->expired_at = 0;
    node->start_at = world->now;
    node->orders[0] = '\0';
    api_create(world, pod, world->pods[pod].id);
    cluster_post(world, PROBE_NS, CLUSTER_PROBE, pod, 0);
}

// --- the probe ---

// The state file is what metafence-run wrote last, also when it is stopped.
static void probe(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    struct kube_node *node = &world->cluster->nodes[pod];
    const struct fence_status *file = &p->shim.memory.status;
    const char *why = "";

    cluster_post(world, PROBE_NS, CLUSTER_PROBE, pod, 0);
    if (!p->exists || !p->shim.alive || node->is_down) {
        node->failures = 0;
        return;
    }
    if (probe_judge(PROBE_LIVENESS, file, file->boot_id, sim_local(world, p), &why)) {
        node->failures = 0;
        return;
    }
    if (++node->failures != PROBE_FAILS)
        return;
    sim_trace(world, pod, "kubelet: liveness probe fails: %s", why);
    cluster_post(world, PROBE_GRACE, CLUSTER_LIVENESS_KILL, pod, p->shim.gen);
}

static void liveness_kill(struct world *world, int pod, uint32_t gen)
{
    if (!world->pods[pod].shim.alive || world->pods[pod].shim.gen != gen)
        return;
    cluster_count(world, HAPPENED_PROBE_KILL);
    sim_trace(world, pod, "kubelet: kills meta's container");
    shim_kill_container(world, pod);
}

void kubelet_stop_run(struct world *world, int pod, bool stop)
{
    struct kube_node *node = &world->cluster->nodes[pod];
    bool was_stopped = node->is_stopped;
    bool reaps = node->reaps_later;
    bool has_order = node->wants_order;
    bool has_permit = node->wants_permit;

    node->is_stopped = stop && world->pods[pod].shim.alive;
    if (node->is_stopped && !was_stopped)
        node->stopped_at = world->now;
    if (stop || !was_stopped)
        return;
    node->resumed_at = world->now;
    node->reaps_later = node->wants_order = node->wants_permit = false;
    // Its first turn looks at the ports: what changed meanwhile was not seen.
    if (world->pods[pod].meta.state != META_DOWN)
        world->pods[pod].shim.ports = meta_ports(&world->pods[pod].meta);
    if (reaps)
        shim_reap(world, pod);
    if (has_permit)
        shim_take_order(&world->shim, &world->pods[pod].shim.memory, &node->permit,
                        sim_local(world, &world->pods[pod]));
    if (has_order)
        shim_order(world, pod, &node->order);
    shim_turn(world, pod);
}

// --- the end of a pod, and its successor ---

void kubelet_begin_end(struct world *world, int pod, int64_t grace_ns)
{
    (void)grace_ns; // is with the object
    cluster_post(world, cluster_between(world, 5 * MS, 50 * MS), CLUSTER_TERM, pod, 0);
}

static void on_term(struct world *world, int pod)
{
    struct kube_node *node = &world->cluster->nodes[pod];
    struct pod *p = &world->pods[pod];

    if (!p->exists || node->is_down || node->is_ending)
        return;
    if (node->cut > 0 || node->dumb > 0) { // it does not hear of it
        cluster_post(world, LOOK_NS, CLUSTER_TERM, pod, 0);
        return;
    }
    sim_trace(world, pod, "kubelet: TERM to meta's container");
    node->is_ending = true;
    p->shim.term = true;
    shim_turn(world, pod);
    cluster_post(world, LOOK_NS, CLUSTER_GRACE_OVER, pod, 0);
}

// The sidecar ends after meta's container.
static void on_grace(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    const struct api_pod *object = api_of(world, pod);

    if (p->shim.alive && object && world->now < object->delete_at) {
        cluster_post(world, LOOK_NS, CLUSTER_GRACE_OVER, pod, 0);
        return;
    }
    shim_kill_container(world, pod);
    agent_stop(world, pod);
    cluster_post(world, cluster_between(world, 50 * MS, 300 * MS), CLUSTER_REMOVE, pod, 0);
}

static void on_remove(struct world *world, int pod)
{
    const struct kube_node *node = &world->cluster->nodes[pod];

    if (node->cut > 0 || node->mute > 0 || world->cluster->api.down > 0) {
        cluster_post(world, LOOK_NS, CLUSTER_REMOVE, pod, 0);
        return;
    }
    if (api_of(world, pod))
        api_remove(world, world->pods[pod].id);
    cluster_post(world, cluster_between(world, 100 * MS, S), CLUSTER_CREATE, pod, 0);
}

static void on_create(struct world *world, int pod)
{
    const struct api_pod *object = &world->cluster->api.pods[world->pods[pod].id];

    if (world->cluster->api.down > 0) {
        cluster_post(world, S, CLUSTER_CREATE, pod, 0);
        return;
    }
    if (object->exists) // a twin has the name
        return;
    cluster_post(world, cluster_between(world, 300 * MS, 2 * S), CLUSTER_BOOT, pod, 0);
}

// Another pod of the same name: nothing of the old one is left, its orders neither.
static void on_boot(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    const struct api_pod *object = &world->cluster->api.pods[p->id];

    if (object->exists || !p->exists)
        return;
    cluster_count(world, HAPPENED_POD_REPLACED);
    memset(&p->shim.file, 0, sizeof(p->shim.file));
    p->manual = false;
    p->pause_until = 0;
    p->died_of = FENCE_REASON_NONE;
    sim_trace(world, pod, "a new pod of the same name");
    pod_boot(world, pod, p->id);
}

// --- events ---

static void on_sidecar(struct world *world, int pod)
{
    if (!world->pods[pod].exists || world->pods[pod].agent.alive)
        return;
    cluster_count(world, HAPPENED_SIDECAR);
    agent_start(world, pod);
}

void kubelet_restart_sidecar(struct world *world, int pod)
{
    struct kube_node *node = &world->cluster->nodes[pod];
    int64_t wait_ns = 0;

    if (!world->pods[pod].exists || !world->pods[pod].agent.alive)
        return;
    agent_stop(world, pod);
    wait_ns = back_off(world, &node->sidecar_restarts);
    if (node->start_at < world->now + wait_ns)
        node->start_at = world->now + wait_ns;
    cluster_post(world, wait_ns, CLUSTER_SIDECAR, pod, 0);
}

void kubelet_event(struct world *world, const struct event *event)
{
    int pod = event->pod;

    switch ((int)event->arg) {
    case CLUSTER_PROBE: probe(world, pod); break;
    case CLUSTER_LIVENESS_KILL: liveness_kill(world, pod, event->gen); break;
    case CLUSTER_TERM: on_term(world, pod); break;
    case CLUSTER_GRACE_OVER: on_grace(world, pod); break;
    case CLUSTER_REMOVE: on_remove(world, pod); break;
    case CLUSTER_CREATE: on_create(world, pod); break;
    case CLUSTER_BOOT: on_boot(world, pod); break;
    case CLUSTER_SIDECAR: on_sidecar(world, pod); break;
    default: break;
    }
}
