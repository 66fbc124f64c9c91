// SPDX-License-Identifier: Apache-2.0
#pragma once
// shim_fixture: configuration, orders and turns for the table tests of metafence-run's
// decisions.

#include "fence/shim.h"

#define S(seconds) ((int64_t)(seconds)*NS_PER_SEC)
#define AT(ns)     ((struct instant){ns})

// The defaults of metafence-run: a lease that begins at t has to be given up at t + 27.5 s.
#define LEASE_ROOM (S(30) - S(2) - NS_PER_SEC / 2)

#define TAG_OWN   "metafence:11111111:aaaaaaaaaaaaaaaa"
#define TAG_OLDER "metafence:11111111:bbbbbbbbbbbbbbbb"
#define TAG_TWIN  "metafence:22222222:cccccccccccccccc"

#define PORTS_FOLLOWER (SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE)
#define PORTS_LEADER                                                                           \
    (SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE | SHIM_PORT_METRICS | SHIM_PORT_DASHBOARD)
#define PORTS_NONE SHIM_PORTS_KNOWN

static inline struct shim_config fixture_config(void)
{
    return (struct shim_config){.ttl_ns = S(30),
                                .margin_ns = S(2),
                                .kill_budget_ns = NS_PER_SEC / 2,
                                .database_hold_ns = S(60),
                                .kill_window_ns = S(600),
                                .agent_silence_ns = S(10),
                                .max_kills = 3};
}

static inline struct shim_plan fixture_turn(const struct shim_config *config,
                                            struct shim_memory *memory, int64_t now_ns,
                                            uint32_t ports)
{
    const struct shim_facts facts = {.now = {now_ns}, .agent_connected = true, .ports = ports};
    struct shim_plan plan = {0};

    shim_decide(config, &facts, memory, &plan);
    return plan;
}

static inline void fixture_order(const struct shim_config *config, struct shim_memory *memory,
                                 struct fence_order order, int64_t now_ns)
{
    order.magic = FENCE_ORDER_MAGIC;
    shim_take_order(config, memory, &order, AT(now_ns));
}
