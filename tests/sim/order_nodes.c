// SPDX-License-Identifier: Apache-2.0
// Compute nodes: a new control stream aborts and joins all actors, the end of one aborts none;
// Inits wait in line, also those whose caller has gone.
#include <string.h>

#include "tests/sim/order.h"

void ow_node_enqueue(struct ow_world *world, int node, struct ow_init init)
{
    struct ow_node *n = &world->nodes[node];

    if (!n->is_alive)
        return;
    if (n->queued == OW_QUEUE) {
        driver_fail(world->run, "P8: %d Inits wait in node %d", n->queued, node);
        return;
    }
    n->queue[n->queued++] = init;
    if (init.from >= OW_METAS && n->asked_at == 0)
        n->asked_at = world->run->now;
}

void ow_node_die(struct ow_world *world, int node)
{
    struct ow_node *n = &world->nodes[node];
    uint64_t incarnation = n->incarnation;
    int worker_id = n->worker_id;

    if (!n->is_alive)
        return;
    driver_say(world->run, "node %d dies", node);
    *n = (struct ow_node){.incarnation = incarnation,
                          .worker_id = worker_id, // its row is used again
                          .owner = OW_NOBODY,
                          .back_at =
                              world->run->now + driver_between(world->run, OW_S, 6 * OW_S)};
}

static void reset(struct ow_world *world, int node, const struct ow_init *init)
{
    struct ow_node *n = &world->nodes[node];

    memset(n->runs, 0, sizeof(n->runs));
    world->stats->stolen += init->from >= OW_METAS && n->owner != OW_NOBODY &&
                            world->metas[n->owner].is_alive &&
                            world->metas[n->owner].incarnation == n->owner_incarnation;
    if (init->from >= OW_METAS) {
        n->owner = OW_NOBODY;
        ow_agent_answer(world, init->from - OW_METAS, node, init->serial);
        return;
    }
    n->owner = init->from;
    n->owner_incarnation = init->incarnation;
    if (world->metas[init->from].incarnation == init->incarnation)
        world->metas[init->from].answered[node] = true;
}

void ow_node_step(struct ow_world *world, int node)
{
    struct ow_node *n = &world->nodes[node];

    if (n->is_alive && n->ends_at != 0 && world->run->now >= n->ends_at)
        ow_node_die(world, node);
    if (!n->is_alive) {
        if (world->run->now < n->back_at)
            return;
        n->is_alive = true;
        n->incarnation = ++world->next_incarnation;
        driver_say(world->run, "node %d is back", node);
    }
    if (!ow_is_on(world, OW_API_STALE))
        world->shown[node] = n->incarnation;
    // The queue's head waits for who ignores the abort.
    while (n->queued > 0 && (world->run->now >= n->stuck_until || !n->runs[n->stuck_job])) {
        struct ow_init init = n->queue[0];
        n->queued--;
        memmove(n->queue, n->queue + 1, (size_t)n->queued * sizeof(n->queue[0]));
        driver_say(world->run, "node %d is reset by %s %d", node,
                   init.from < OW_METAS ? "meta" : "agent", init.from % OW_METAS);
        reset(world, node, &init);
    }
}
