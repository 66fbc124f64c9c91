// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <string.h>

#include "tests/unit/recovery/scene.h"

static void make(struct scene *scene)
{
    *scene = (struct scene){.config = ORDER_CONFIG};
    scene->nodes[0] = (struct order_node){NODE_A, .incarnation = 101, .seen_at = {1000 * S},
                                          .can_fence = true};
    scene->nodes[1] = (struct order_node){NODE_B, .incarnation = 201, .seen_at = {1000 * S},
                                          .can_fence = true};
    scene->facts = (struct order_facts){.now = {1000 * S},
                                        .mode = ORDER_ENFORCE,
                                        .nodes_known = true,
                                        .nodes = scene->nodes,
                                        .node_count = 2};
}

void scene_recovery(struct scene *scene)
{
    make(scene);
    scene->facts.meta_runs = true;
    scene->facts.is_leader = true;
    scene->facts.term = 7;
    scene->facts.predecessor = ORDER_DEATH_CONFIRMED;
    scene->facts.row = (struct order_row){ORDER_ROW_OURS, {1000 * S}, {1020 * S}};
    scene->facts.status = (struct order_status){2, {1000 * S}};
    scene->facts.marker =
        (struct order_marker){.id = 5, .term = 7, .is_global = true, .opened_at = {999 * S}};
    scene->facts.gate = (struct order_gate){.known = true,
                                            .sent_at = {1000 * S},
                                            .refreshed_at = {1000 * S - 1},
                                            .refused_at = {1000 * S}};
}

void scene_takeover(struct scene *scene)
{
    make(scene);
    scene->facts.predecessor = ORDER_DEATH_CONFIRMED;
    scene->facts.death = (struct order_death){ORDER_DEATH_CONFIRMED, {999 * S}, 3, 7};
    scene->facts.row = (struct order_row){ORDER_ROW_OURS, {1000 * S}, {1020 * S}};
}

void scene_decide(struct scene *scene)
{
    order_decide(&scene->config, &scene->facts, &scene->memory, &scene->plan);
    for (uint32_t i = 0; i < scene->facts.node_count; i++) {
        const struct order_node_plan *plan = &scene->plan.nodes[i];

        if (plan->acts & ORDER_SEND_INIT)
            scene->nodes[i].init =
                (struct order_call){plan->init_serial, ORDER_CALL_PENDING, .is_sent = true};
        if (plan->acts & ORDER_ASK_STATS)
            scene->nodes[i].stats = (struct order_call){.serial = plan->stats_serial,
                                                        .outcome = ORDER_CALL_PENDING};
    }
}

void scene_turn(struct scene *scene, int64_t after_ns)
{
    struct order_facts *facts = &scene->facts;

    facts->now.ns += after_ns;
    facts->row.sent_at = facts->now;
    facts->status.sent_at = facts->now;
    facts->gate.sent_at = facts->now;
    facts->gate.refreshed_at.ns = facts->now.ns - 1; // before the state was read
    if (facts->gate.refused_at.ns != 0)
        facts->gate.refused_at = facts->now;
    for (uint32_t i = 0; i < facts->node_count; i++)
        scene->nodes[i].seen_at = facts->now;
    scene_decide(scene);
}

void scene_init(struct scene *scene, int node, enum order_outcome outcome)
{
    scene->nodes[node].init.outcome = outcome;
}

void scene_stats(struct scene *scene, int node, enum order_outcome outcome, uint32_t running)
{
    scene->nodes[node].stats.outcome = outcome;
    scene->nodes[node].running = running;
    scene->nodes[node].revision = scene->facts.drops.revision;
}

void scene_is(const struct scene *scene, enum order_step step, enum order_wait wait)
{
    if (scene->plan.step != step || scene->plan.wait != wait)
        fail_msg("%s, waits for %s; want %s, %s (%s)", order_step_name(scene->plan.step),
                 order_wait_name(scene->plan.wait), order_step_name(step),
                 order_wait_name(wait), order_block_name(scene->plan.block));
}

void scene_acts(const struct scene *scene, int node, unsigned acts)
{
    if (scene->plan.nodes[node].acts != acts)
        fail_msg("node %d: acts %u, want %u (%s)", node, scene->plan.nodes[node].acts, acts,
                 order_block_name(scene->plan.block));
}
