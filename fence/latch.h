// SPDX-License-Identifier: Apache-2.0
#pragma once
// latch: small accessors of struct shim_memory shared by shim.c (one turn) and life.c (births
// and deaths). Nobody else includes it.

#include "fence/shim.h"

static inline bool latch_has(const struct shim_memory *memory, uint32_t flag)
{
    return memory->status.flags & flag;
}

static inline void latch_put(struct shim_memory *memory, uint32_t flag, bool on)
{
    memory->status.flags = on ? memory->status.flags | flag : memory->status.flags & ~flag;
}

// Another id or none in the row, or our id by somebody else (the agent then calls it a
// follower): our lease, if we get one, is younger than that read. Our id: its heartbeat is a
// lower bound. What is read once we are engaged says nothing of this kind: only a leader permit
// extends then, so this must not be called for it.
static inline void latch_lease_base(struct shim_memory *memory)
{
    const struct fence_order *order = &memory->order;
    struct instant base = {order->read_ns};
    bool is_follower =
        order->role == FENCE_ROLE_FOLLOWER && order->incarnation == memory->status.incarnation;

    if (order->magic != 0 && order->row != FENCE_ROW_UNKNOWN) {
        if (order->row == FENCE_ROW_OURS && order->heartbeat_age_ns > 0 && !is_follower)
            base = instant_add(base, -order->heartbeat_age_ns);
        memory->lease_base = instant_max(memory->lease_base, base);
    }
    // Whatever lease it gets, it renews it itself: not before it was started.
    if (memory->lease_base.ns != 0)
        memory->lease_base = instant_max(memory->lease_base, memory->last_start);
}
