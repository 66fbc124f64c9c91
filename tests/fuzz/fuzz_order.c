// SPDX-License-Identifier: Apache-2.0
// A packet on metafence-run's socket, and what it may do: whatever parses, an order for another
// incarnation permits nothing and kills nobody, and an incarnation that is not engaged is
// killed by an order to kill alone.
#include "fence/shim.h"
#include "tests/fuzz/fuzz.h"

static const struct shim_config config = {
    .ttl_ns = 30 * NS_PER_SEC,
    .margin_ns = 2 * NS_PER_SEC,
    .kill_budget_ns = NS_PER_SEC / 2,
    .database_hold_ns = 60 * NS_PER_SEC,
    .kill_window_ns = 600 * NS_PER_SEC,
    .agent_silence_ns = 3 * NS_PER_SEC,
    .max_kills = 3,
};

static void obey(const struct fence_order *order)
{
    struct shim_facts facts = {.now = {1000 * NS_PER_SEC},
                               .agent_connected = true,
                               .ports = SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE};
    struct shim_memory memory = {0};
    struct shim_plan plan;
    bool for_us = false;

    shim_started(&memory, (struct instant){990 * NS_PER_SEC}, 42, 7, "metafence:fuzz:1");
    for_us = order->incarnation == memory.status.incarnation;
    shim_take_order(&config, &memory, order, facts.now);
    shim_decide(&config, &facts, &memory, &plan);
    assert(!plan.start && !plan.exit);
    assert(for_us || !plan.kill);
    assert(for_us || memory.status.permit == FENCE_ROLE_KEEP);
    if (plan.kill && !(memory.status.flags & SHIM_ENGAGED))
        assert(order->role == FENCE_ROLE_KILL);
    fence_status_seal(&memory.status);
}

static void parse(const void *bytes, size_t size)
{
    struct fence_order order;
    struct err err = {0};

    if (fence_order_parse(bytes, size, &order, &err) < 0)
        fuzz_check_refusal(&err);
    else
        obey(&order);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fence_order order = {0};

    parse(data, size);
    // The checksum keeps nearly all inputs out: the same fields again, sealed.
    memcpy(&order, data, size < sizeof(order) ? size : sizeof(order));
    order.reserved = 0;
    fence_order_seal(&order);
    parse(&order, sizeof(order));
    return 0;
}
