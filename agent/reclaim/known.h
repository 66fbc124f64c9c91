// SPDX-License-Identifier: Apache-2.0
#pragma once
// known: from what the agent and Postgres say to the facts of the order. Pure: plain values in,
// plain values out. Whatever is missing is unknown, never "nothing there".

#include "agent/core/decide.h"
#include "agent/pg/recovery.h"
#include "agent/recovery/order.h"

// One answer to recovery_state, and when it was asked for and came.
struct known_state {
    bool is_known;
    struct instant sent_at;
    struct instant received_at;
    struct recovery_state state;
};

// What one agent remembers of the refusals in a round.
struct known_refusal {
    int64_t recovery;
    uint32_t round;
    struct instant at; // ns 0: none was seen in this round
};

// After each answer: a removal that waits now, or has ended the newest attempt, is refused in
// this round. One of an earlier attempt counts as long as the round lasts.
void known_refusal_update(struct known_refusal *refusal, const struct known_state *known);

// Of what was configured and what the schema says the weaker; a version that is not verified is
// only observed, and so is what a pooler hides.
enum order_mode known_mode(enum order_mode configured, const struct known_state *known);

// Whether enforce is configured, and it is known that it has no effect.
bool known_is_weakened(enum order_mode configured, const struct known_state *known);

// `max_hold_ns` as we have told the gate.
struct order_marker known_marker(const struct known_state *known, int64_t max_hold_ns);

// `refreshed_at`: before our row was last written. `refusal` is of the same answer.
struct order_gate known_gate(const struct known_state *known,
                             const struct known_refusal *refusal, struct instant refreshed_at);

// Of all who owned a term before that of `tag`; NONE while that is not known, and if the term
// is another's.
enum order_death_kind known_predecessor(const struct known_state *known, const char *tag);

// The death of our last engaged incarnation, if metafence-run holds its successor's start.
struct order_death known_death(const struct facts *facts);

// The election row. A heartbeat by another session than the dead one's is another's.
struct order_row known_row(const struct core_config *config, const struct facts *facts);

// What was read before our meta died says nothing of the compute nodes that it left. `facts`
// has meta_runs and death.
bool known_is_current(const struct known_state *known, const struct order_facts *facts);

// That our own meta may run: only metafence-run's word and ours deny it. `released`: the
// incarnation after whose death a start was allowed.
bool known_meta_runs(const struct facts *facts, uint64_t released);

// Our meta leads, verified at this moment.
struct known_own {
    const struct facts *facts;
    const struct core_memory *memory;
    const struct plan *plan; // of the last decision
};
bool known_is_leader(const struct known_own *own, struct instant now);
