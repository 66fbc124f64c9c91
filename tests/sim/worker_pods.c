// SPDX-License-Identifier: Apache-2.0
// Pods, as they are and as the API server has them: a StatefulSet whose pods come back under
// their names, and a Deployment whose pods get whatever IP address is free.
#include <stdio.h>
#include <string.h>

#include "tests/sim/chance.h"
#include "tests/sim/worker.h"

const char *wk_host(int place, char buf[64])
{
    if (place < WK_COMPUTES)
        (void)snprintf(buf, 64, "compute-%d.compute-headless.ns.svc", place);
    else
        (void)snprintf(buf, 64, "10.0.0.%d", place);
    return buf;
}

static bool is_place_taken(const struct wk_world *world, int place)
{
    for (int i = 0; i < world->pod_count; i++) {
        const struct wk_pod *pod = &world->pods[i];
        // By name: until the object goes. By address: until the process ends.
        if (pod->exists && pod->place == place &&
            (place < WK_COMPUTES ? pod->is_listed : pod->is_alive))
            return true;
    }
    return false;
}

static struct wk_pod *add_pod(struct wk_world *world, int place, bool is_stranger)
{
    struct wk_pod *pod = NULL;
    int index = world->pod_count;

    for (int i = 0; i < world->pod_count; i++)
        if (!world->pods[i].exists)
            index = i;
    if (index == WK_PODS) {
        driver_fail(world->run, "the simulation's own pods are used up");
        return NULL;
    }
    if (index == world->pod_count)
        world->pod_count++;
    pod = &world->pods[index];
    *pod = (struct wk_pod){.exists = true,
                           .serial = ++world->next_serial,
                           .is_listed = true,
                           .is_alive = true,
                           .is_running = true,
                           .is_stranger = is_stranger,
                           .place = place,
                           .node = (int)driver_between(world->run, 0, WK_NODES),
                           .next_at = world->run->now +
                                      driver_between(world->run, 500 * WK_MS, 8 * WK_S)};
    (void)snprintf(pod->uid, sizeof(pod->uid), "u%08x",
                   (unsigned)chance_next(&world->run->rng));
    if (place < WK_COMPUTES)
        (void)snprintf(pod->name, sizeof(pod->name), "compute-%d", place);
    else
        (void)snprintf(pod->name, sizeof(pod->name), "compactor-%u", pod->serial);
    (void)snprintf(pod->ip, sizeof(pod->ip), place < WK_COMPUTES ? "10.1.0.%d" : "10.0.0.%d",
                   place < WK_COMPUTES ? index : place);
    return pod;
}

void wk_pods_begin(struct wk_world *world)
{
    world->cut_node = WK_NONE;
    world->replicas = WK_COMPUTES;
}

static bool is_cut(const struct wk_world *world, const struct wk_pod *pod)
{
    return pod->node == world->cut_node && wk_is_on(world, WK_CUT_NODE);
}

static void end_process(struct wk_pod *pod)
{
    pod->is_alive = false;
    pod->id = 0;
    pod->is_asking = false;
    pod->is_active = false;
}

// Its process has ended; what its kubelet says about that comes later, or never.
static void evict(struct wk_world *world, int index)
{
    struct wk_pod *pod = &world->pods[index];

    end_process(pod);
    if (!pod->is_listed || is_cut(world, pod))
        return;
    pod->is_terminal = true;
    pod->is_running = false;
    pod->removed_at = world->run->now + driver_between(world->run, WK_S, 90 * WK_S);
    wk_agent_saw(world, index, false);
}

static void force_delete(struct wk_world *world, int index)
{
    struct wk_pod *pod = &world->pods[index];

    if (!pod->is_listed)
        return;
    if (world->run->plant == WK_PLANT_FORCED_IS_GONE) {
        pod->is_terminal = true;
        pod->is_running = false;
    }
    pod->is_deleting = true;
    wk_agent_saw(world, index, true);
    pod->is_listed = false;
}

static void on_each(struct wk_world *world, int percent,
                    void (*act)(struct wk_world *world, int pod))
{
    for (int i = 0; i < world->pod_count; i++)
        if (world->pods[i].exists && world->pods[i].is_alive &&
            !is_cut(world, &world->pods[i]) && driver_chance(world->run, percent))
            act(world, i);
}

static void force_node(struct wk_world *world)
{
    for (int i = 0; i < world->pod_count; i++)
        if (world->pods[i].exists && world->pods[i].node == world->cut_node &&
            driver_chance(world->run, 60))
            force_delete(world, i);
}

static void give_away(struct wk_world *world)
{
    int place = (int)driver_between(world->run, WK_COMPUTES, WK_PLACES);

    for (int i = 0; i < world->pod_count; i++)
        if (world->pods[i].exists && world->pods[i].place == place)
            evict(world, i);
    if (!is_place_taken(world, place))
        (void)add_pod(world, place, driver_chance(world->run, 40));
}

void wk_pods_fault(struct wk_world *world, enum wk_fault fault)
{
    switch ((int)fault) {
    case WK_STALE: memcpy(world->cache, world->pods, sizeof(world->cache)); break;
    case WK_CUT_NODE:
        world->cut_node = (int)driver_between(world->run, 0, WK_NODES);
        force_node(world);
        break;
    case WK_MASS_GONE: on_each(world, 60, evict); break;
    case WK_GIVEN_AWAY: give_away(world); break;
    case WK_SCALE:
        world->replicas = (int)driver_between(world->run, WK_COMPUTES / 2, WK_COMPUTES);
        for (int i = 0; i < world->pod_count; i++)
            if (world->pods[i].exists && world->pods[i].place < WK_COMPUTES &&
                world->pods[i].place >= world->replicas)
                evict(world, i);
        break;
    default: break;
    }
}

// The controllers: what is missing comes back.
static void replace(struct wk_world *world)
{
    int wanted = (WK_PLACES - WK_COMPUTES) / 2;
    int place = (int)driver_between(world->run, WK_COMPUTES, WK_PLACES);

    for (int i = 0; i < world->replicas; i++)
        if (!is_place_taken(world, i) && driver_chance(world->run, 20))
            (void)add_pod(world, i, false);
    for (int i = 0; i < world->pod_count; i++)
        wanted -= world->pods[i].exists && world->pods[i].place >= WK_COMPUTES &&
                  world->pods[i].is_listed && !world->pods[i].is_terminal &&
                  !world->pods[i].is_stranger;
    if (wanted > 0 && !is_place_taken(world, place))
        (void)add_pod(world, place, false);
}

void wk_pods_step(struct wk_world *world)
{
    for (int i = 0; i < world->pod_count; i++) {
        struct wk_pod *pod = &world->pods[i];
        if (!pod->exists)
            continue;
        // A node that comes back ends what is not its any more.
        if (pod->is_alive && !pod->is_listed && !is_cut(world, pod))
            end_process(pod);
        if (pod->is_alive && !world->is_calm && driver_between(world->run, 0, 2000) == 0)
            evict(world, i);
        // What ended behind the partition is said when it is over.
        if (!pod->is_alive && pod->is_listed && !pod->is_terminal && !is_cut(world, pod))
            evict(world, i);
        if (pod->removed_at != 0 && pod->removed_at <= world->run->now && pod->is_listed) {
            wk_agent_saw(world, i, true);
            pod->is_listed = false;
        }
        if (!pod->is_alive && !pod->is_listed)
            pod->exists = false;
    }
    replace(world);
}
