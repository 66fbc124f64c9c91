// SPDX-License-Identifier: Apache-2.0
#include "fence/gate.h"

#include <string.h>

// Two reads of RisingWave's one second rhythm and then some: a heartbeat that stood still for
// so long is not being renewed by a process that is well.
#define GATE_STILL_NS    (5 * NS_PER_SEC / 2)
#define GATE_LEASE_EXTRA NS_PER_SEC

struct gate {
    const struct shim_config *config;
    const struct shim_memory *memory;
    const struct fence_order *order;
    const struct fence_death *death;
    struct instant now;
};

// A hold applies until its end, exclusively. Sets *until either way.
static bool lasts(const struct gate *gate, struct instant end, struct instant *until)
{
    *until = end;
    return instant_before(gate->now, end);
}

static bool order_has(const struct gate *gate, uint32_t flag)
{
    return gate->order->magic != 0 && (gate->order->flags & flag);
}

// The last good read is younger than the last death: it shows what is there without our own
// process.
static bool read_is_fresh(const struct gate *gate)
{
    return gate->order->magic != 0 && gate->order->row != FENCE_ROW_UNKNOWN &&
           gate->order->read_ns > gate->death->dead_ns;
}

static bool hold_manual(const struct gate *gate, struct instant *until)
{
    *until = INSTANT_NEVER;
    return gate->memory->status.flags & SHIM_MANUAL;
}

static bool hold_agent_required(const struct gate *gate, struct instant *until)
{
    return lasts(gate, instant_add(gate->memory->hold_since, gate->config->ttl_ns), until) &&
           gate->config->require_agent && !(gate->memory->status.flags & SHIM_ARMED);
}

// A lost agent cannot take the flag back: its last word is good for ttl.
static bool hold_twin(const struct gate *gate, struct instant *until)
{
    return lasts(gate, instant_add(gate->memory->order_at, gate->config->ttl_ns), until) &&
           order_has(gate, FENCE_ORDER_TWIN_HOLD);
}

static bool hold_phantom(const struct gate *gate, struct instant *until)
{
    struct instant dead = {gate->death->dead_ns};

    // Without a death of ours on record the wait began when we began to wait.
    if (gate->death->incarnation == 0)
        dead = gate->memory->hold_since;
    return lasts(gate, instant_add(dead, gate->config->ttl_ns), until) &&
           order_has(gate, FENCE_ORDER_PHANTOM_HOLD);
}

// Killed for silence: it may have renewed until it died, so its lease ends ttl after its death
// at the latest. Started earlier and blind, the same id would take the lease back while healthy
// peers wait.
static bool hold_lease(const struct gate *gate, struct instant *until)
{
    bool silenced = gate->death->reason == FENCE_REASON_LEASE_EXPIRED ||
                    gate->death->reason == FENCE_REASON_AGENT_LOST;
    int64_t wait_ns = gate->config->ttl_ns + GATE_LEASE_EXTRA;

    return lasts(gate, instant_add((struct instant){gate->death->dead_ns}, wait_ns), until) &&
           gate->death->incarnation != 0 && silenced && !read_is_fresh(gate);
}

// Killed so that another one leads: that can't be before the lease is over, and then whoever is
// there has one more to win.
static bool hold_handover(const struct gate *gate, struct instant *until)
{
    bool has_successor = read_is_fresh(gate) && gate->order->row == FENCE_ROW_OTHER;

    return lasts(gate,
                 instant_add((struct instant){gate->death->dead_ns}, 2 * gate->config->ttl_ns),
                 until) &&
           gate->death->incarnation != 0 && gate->death->reason == FENCE_REASON_HANDOVER &&
           !has_successor;
}

static bool hold_database(const struct gate *gate, struct instant *until)
{
    return lasts(gate, instant_add(gate->memory->hold_since, gate->config->database_hold_ns),
                 until) &&
           gate->order->magic != 0 && gate->order->database == FENCE_DATABASE_DOWN;
}

// Tags are metafence:POD:RANDOM. Every incarnation of this pod but the last is dead: none is
// started before the death of the one before it is proven.
static bool same_pod(const char *tag, const char *other)
{
    const char *end = strrchr(tag, ':');

    return end && strncmp(tag, other, (size_t)(end - tag) + 1) == 0;
}

// The row carries our id. Is it proven that whoever wrote its heartbeat no longer does?
static bool writer_is_gone(const struct gate *gate)
{
    const char *writer = gate->order->heartbeat_tag;
    const char *dead = gate->death->tag;
    bool proven = gate->death->incarnation != 0;
    int64_t still_ns = gate->order->heartbeat_still_ns;

    if (still_ns >= gate->config->ttl_ns)
        return true;
    if (!proven)
        return false;
    if (writer[0] != '\0' && strcmp(writer, dead) == 0)
        return true;
    return still_ns >= GATE_STILL_NS && (writer[0] == '\0' || same_pod(dead, writer));
}

static bool hold_identity(const struct gate *gate, struct instant *until)
{
    if (!read_is_fresh(gate))
        return lasts(gate, instant_add(gate->memory->hold_since, gate->config->ttl_ns), until);
    if (gate->order->row != FENCE_ROW_OURS || writer_is_gone(gate))
        return false;
    // Somebody renews our id. Each read moves this end; without reads it is the guard's
    // business then.
    return lasts(
        gate, instant_add((struct instant){gate->order->read_ns}, gate->config->ttl_ns), until);
}

// The compute nodes of the dead leader are being reset; nobody else can lead before its lease
// is over. The agent's word ends with the agent.
static bool hold_reset(const struct gate *gate, struct instant *until)
{
    struct instant said = instant_add(gate->memory->order_at, gate->config->agent_silence_ns);
    struct instant lease =
        instant_add((struct instant){gate->death->dead_ns}, gate->config->ttl_ns);

    return lasts(gate, instant_min(said, lease), until) && gate->death->incarnation != 0 &&
           order_has(gate, FENCE_ORDER_RESET_HOLD);
}

static bool hold_storm(const struct gate *gate, struct instant *until)
{
    return lasts(gate, gate->memory->storm_until, until);
}

static bool hold_backoff(const struct gate *gate, struct instant *until)
{
    return lasts(gate, gate->memory->backoff_until, until);
}

static const struct {
    enum shim_hold hold;
    bool (*applies)(const struct gate *gate, struct instant *until);
} holds[] = {
    {SHIM_HOLD_MANUAL, hold_manual},     {SHIM_HOLD_AGENT_REQUIRED, hold_agent_required},
    {SHIM_HOLD_TWIN, hold_twin},         {SHIM_HOLD_PHANTOM, hold_phantom},
    {SHIM_HOLD_LEASE, hold_lease},       {SHIM_HOLD_DATABASE, hold_database},
    {SHIM_HOLD_IDENTITY, hold_identity}, {SHIM_HOLD_RESET, hold_reset},
    {SHIM_HOLD_HANDOVER, hold_handover}, {SHIM_HOLD_STORM, hold_storm},
    {SHIM_HOLD_BACKOFF, hold_backoff},
};

enum shim_hold gate_hold(const struct shim_config *config, const struct shim_memory *memory,
                         struct instant now, struct instant *ret_until)
{
    const struct gate gate = {.config = config,
                              .memory = memory,
                              .order = &memory->order,
                              .death = &memory->status.last_death,
                              .now = now};

    for (size_t i = 0; i < sizeof(holds) / sizeof(holds[0]); i++) {
        struct instant until = {0};
        if (holds[i].applies(&gate, &until)) {
            *ret_until = until;
            return holds[i].hold;
        }
    }
    *ret_until = now;
    return SHIM_HOLD_NONE;
}
