// SPDX-License-Identifier: Apache-2.0
// The fence of a node whose actors don't end: a look at its pod, then a delete of that very
// process, which ends some time after it was agreed to.
#include "tests/sim/order.h"

// What must be true of each delete that is sent, by what only the simulation knows.
static void check(struct ow_world *world, int agent, int node)
{
    const struct ow_meta *own = &world->metas[agent];
    const struct ow_node *n = &world->nodes[node];

    if (!world->config.may_fence_nodes || world->db.mode != ORDER_ENFORCE)
        driver_fail(world->run, "fence: of node %d, which nobody has allowed", node);
    if (n->asked_at == 0 || world->run->now - n->asked_at < world->config.kill_after_ns)
        driver_fail(world->run,
                    "fence: of node %d, whose process has had no Init for kill_after", node);
    for (int i = 0; i < OW_METAS; i++)
        if (i != agent && ow_is_engaged(&world->metas[i]))
            driver_fail(world->run, "fence: of node %d, meta %d acts as leader", node, i);
    if (own->is_alive && world->run->now > world->exception_at + 2 * OW_S &&
        !ow_is_before_reset(own))
        driver_fail(world->run, "fence: of node %d, the gate has opened", node);
}

void ow_fence_begin(struct ow_world *world, int agent, int node)
{
    struct ow_agent *a = &world->agents[agent];

    if (a->fence_at[node] != 0 || world->nodes[node].ends_at != 0)
        return;
    a->fence_at[node] =
        world->run->now +
        driver_between(world->run, OW_MS, ow_is_on(world, OW_SLOW) ? 8 * OW_S : OW_S);
    a->fence_incarnation[node] = a->nodes[node].incarnation;
}

void ow_fence_step(struct ow_world *world, int agent, int node)
{
    struct ow_agent *a = &world->agents[agent];
    struct ow_node *n = &world->nodes[node];
    struct order_node decided = a->nodes[node];
    bool is_it = n->is_alive && (n->incarnation == a->fence_incarnation[node] ||
                                 world->run->plant == OW_PLANT_FENCE_NEWER);

    if (a->fence_at[node] == 0 || world->run->now < a->fence_at[node])
        return;
    a->fence_at[node] = 0;
    if (world->run->plant == OW_PLANT_FENCE_NEWER)
        decided.incarnation = a->fence_incarnation[node];
    if (world->run->plant != OW_PLANT_FENCE_LATE &&
        !order_may_fence(&world->config, &a->facts, &a->memory, &decided)) {
        world->stats->fences_held_back++;
        return;
    }
    if (!is_it || n->ends_at != 0)
        return; // the API says that it has changed
    driver_say(world->run, "agent %d fences node %d", agent, node);
    check(world, agent, node);
    n->ends_at = world->run->now + driver_between(world->run, OW_S, 3 * OW_S);
    world->stats->fenced++;
}
