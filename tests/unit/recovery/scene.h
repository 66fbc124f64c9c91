// SPDX-License-Identifier: Apache-2.0
#pragma once
// scene: a recovery, or a takeover, in which all is well and two compute nodes run; a case
// changes what it is about. Times are seconds after the agent's start.

#include "agent/recovery/order.h"

#define S      NS_PER_SEC
#define NODE_A 11
#define NODE_B 22

struct scene {
    struct order_config config;
    struct order_facts facts;
    struct order_node nodes[4];
    struct order_memory memory;
    struct order_plan plan;
};

// At 1000 s: our meta leads term 7, its recovery began at 999 s, and a removal is refused.
void scene_recovery(struct scene *scene);
// At 1000 s: our meta of term 7 died at 999 s, the row is its own until 1020 s.
void scene_takeover(struct scene *scene);
// The next turn, with every read anew.
void scene_turn(struct scene *scene, int64_t after_ns);
// … with what was read before.
void scene_decide(struct scene *scene);
// The answer to the last Init, or look at the statistics, of a node (0, 1, …).
void scene_init(struct scene *scene, int node, enum order_outcome outcome);
void scene_stats(struct scene *scene, int node, enum order_outcome outcome, uint32_t running);
void scene_is(const struct scene *scene, enum order_step step, enum order_wait wait);
void scene_acts(const struct scene *scene, int node, unsigned acts);
