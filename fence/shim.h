// SPDX-License-Identifier: Apache-2.0
#pragma once
// shim: the decisions of metafence-run, pure: no clock, no I/O, no allocation. Events change facts and
// memory; shim_decide turns them into a plan; main.c executes it.
// Invariants: an engaged, armed incarnation whose deadline has passed is never left alive; at most
// one incarnation lives at a time; nothing is started after TERM; a kill order for another incarnation
// kills nobody.

#include "fence/proto.h"

enum shim_restart { SHIM_RESTART_IN_PLACE, SHIM_RESTART_CONTAINER };
enum shim_agent_lost { SHIM_AGENT_LOST_FENCE, SHIM_AGENT_LOST_HOLD };

struct shim_config {
    int64_t ttl_ns;
    int64_t margin_ns;
    int64_t kill_budget_ns;
    int64_t database_hold_ns;
    int64_t kill_window_ns;
    int64_t agent_silence_ns; // an agent that says nothing for so long counts as lost
    uint32_t max_kills;
    enum shim_restart restart;
    enum shim_agent_lost when_agent_lost;
    bool require_agent;
};

// What main.c observed, as of now.
struct shim_facts {
    struct instant now;
    bool agent_connected; // an accepted peer of the right UID
    bool term_requested;  // SIGTERM or SIGINT came
    uint32_t ports;       // enum shim_port
};

#define SHIM_KILLS_KEPT 16

// Everything that outlives one turn. Embedded in main.c and in the simulation; zero is a valid start.
struct shim_memory {
    struct fence_status status;  // latches and counters as the world sees them
    struct fence_order order;    // last order taken; magic 0: none since our start
    struct instant order_at;     // when it came
    bool order_seen;             // an agent has ordered since our own start
    bool service_was_open;       // 5690 of this incarnation was seen open
    bool kill_sent;              // for this incarnation
    bool exit_pending;           // meta ended and metafence-run has to follow with exit_status
    int exit_status;
    struct instant kill_times[SHIM_KILLS_KEPT]; // counted kills, newest last
    uint32_t kill_count;
    uint32_t quick_exits;        // unordered ends in a row soon after a start
    struct instant last_start;
    struct instant hold_since;   // when the current wait for a start began
};

struct shim_plan {
    bool start;                // start a new incarnation now
    bool kill;                 // SIGKILL the whole tree (repeated until it is reaped)
    enum fence_reason reason;  // of the kill
    bool forward_term;         // send TERM to meta (once)
    bool exit;                 // metafence-run ends with exit_status
    int exit_status;
    enum shim_hold hold;       // why nothing is started
    struct instant hold_until; // latest end of that hold
    struct instant wake_at;    // decide again at the latest then
};

// A valid order came. Updates permit, latches and the row knowledge of the start gate.
void shim_take_order(const struct shim_config *config, struct shim_memory *memory,
                     const struct fence_order *order, struct instant now);

// meta was started as `pid` with `tag` (copied); ends the hold, begins the next incarnation.
void shim_started(struct shim_memory *memory, struct instant now, int32_t pid, uint64_t start_ticks,
                  const char *tag);

// The whole tree of the current incarnation has been reaped; wait_status is meta's own.
void shim_reaped(const struct shim_config *config, struct shim_memory *memory, struct instant now,
                 int wait_status);

// Takes over what an earlier metafence-run of this pod left in the state file: counters, latches that
// outlive an incarnation (manual, pause) and the last death. `tree_is_dead`: proven, because we are
// PID 1, the boot id differs, or that pid and start time are gone.
void shim_restore(struct shim_memory *memory, const struct fence_status *left, bool tree_is_dead,
                  struct instant now);

void shim_decide(const struct shim_config *config, const struct shim_facts *facts,
                 struct shim_memory *memory, struct shim_plan *ret_plan);
