// SPDX-License-Identifier: Apache-2.0
#pragma once
// core: what the parts of one decision share; nobody outside agent/core includes it.
// A `struct turn` lives as long as one decide() and owns nothing. memory_update() runs first
// and is the only writer of memory, except for the two holds that decide() latches when their
// rule has fired.

#include "agent/core/decide.h"

struct turn {
    const struct core_config *config;
    const struct facts *facts;
    struct core_memory *memory;
    struct plan *plan;
    const struct fence_status *status; // NULL: metafence-run is not connected
    bool alive;    // our process may run; without metafence-run nobody can deny it
    bool usable;   // facts.election can be believed: answered, not older than one already taken
    bool fresh;    // … and it is new in this turn
    bool good;     // … and its row is whole
    bool timely;   // usable, and it was sent after our incarnation was seen to be engaged
    bool evidence; // … and its row is whole
    bool by_us;    // good, our id, and nothing says that another incarnation wrote it
    bool paused;
    enum row_state row; // of a usable read; contradictions are ROW_BROKEN
};

// memory.c and heartbeat.c: from facts to memory.
void memory_update(struct turn *turn);
void heartbeat_update(struct turn *turn);
void proof_void(struct core_memory *memory, struct instant at);

// timers.c: what has lasted for how long.
void timers_update(struct turn *turn);

// The leader deadline that applies now: the permit's, or when our incarnation has none, the one
// of a lease that it can have won at the earliest. INSTANT_NEVER: nothing to count from.
struct instant lease_end(const struct turn *turn);

// Why a passed deadline kills nobody: 0, NOT_COVERED_SINGLE_REPLICA or NOT_COVERED_AGENT_BLIND.
uint32_t lease_hold(const struct turn *turn);

// How far ahead of the deadline, and for how long at a time, such a hold is told to
// metafence-run.
int64_t lease_hold_span(const struct core_config *config);

// Small readings of the facts.
bool fact_is_our_tag(const struct turn *turn, const char *tag);
bool fact_is_foreign_tag(const struct turn *turn, const char *tag); // a known session, not ours
bool fact_tag_answers(
    const struct turn *turn); // tag_owned_term, tag_superseded speak of our tag
bool fact_id_is_ours(const struct core_config *config, const char *id);
bool fact_still_for(const struct core_memory *memory, int64_t ns); // heartbeat has not advanced
bool fact_death_known(const struct turn *turn); // our newest incarnation is dead, with proof
// The newest death that is proven, by metafence-run or by ourselves; NULL: none is known now.
const struct fence_death *fact_last_death(const struct turn *turn);
bool fact_promoting(const struct turn *turn); // engaged, 5690 closed, no leader port yet

// One rule: does it hold, and what does it put into the plan. Later rules may assume that the
// earlier ones do not hold.
typedef bool rule_holds(const struct turn *turn);
typedef void rule_fill(struct turn *turn);

rule_holds rule_manual_fence_holds, rule_paused_holds, rule_database_replaced_holds,
    rule_superseded_holds, rule_twin_identity_holds, rule_lease_expired_holds,
    rule_phantom_leader_holds, rule_promoting_holds, rule_handover_holds,
    rule_diverged_leader_holds, rule_leader_holds, rule_follower_holds, rule_row_broken_holds,
    rule_unknown_holds;
rule_fill rule_manual_fence_fill, rule_database_replaced_fill, rule_superseded_fill,
    rule_twin_identity_fill, rule_lease_expired_fill, rule_phantom_leader_fill,
    rule_promoting_fill, rule_handover_fill, rule_diverged_leader_fill, rule_leader_fill,
    rule_follower_fill, rule_row_broken_fill, rule_unknown_fill;

// plan.c: what rules put into a plan.
void plan_permit(struct turn *turn, enum role_label label);
void plan_kill(struct turn *turn, enum fence_reason reason, uint32_t hold_flags);
void plan_spare(struct turn *turn);  // paused: what was to be killed stays as it is
void plan_finish(struct turn *turn); // all that does not depend on the rule
void plan_add(struct plan *plan, enum action_kind kind);
void plan_wake_after(struct turn *turn, struct instant since, int64_t after_ns); // if not past
// The last death, if it mattered (it led or was killed), its sessions have a tag and Postgres
// answers; else NULL.
const struct fence_death *plan_cleanup_due(const struct turn *turn);

// ladder.c: which method, and is it confirmed. Once the order is filled.
void ladder_finish(struct turn *turn);
