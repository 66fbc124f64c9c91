// SPDX-License-Identifier: Apache-2.0
#pragma once
// shim: the decisions of metafence-run, pure: no clock, no I/O, no allocation. Events change
// facts and memory; shim_decide turns them into a plan; main.c executes it. Invariants: an
// engaged, armed incarnation whose deadline has passed is never left alive; at most one
// incarnation lives at a time; nothing is started after TERM; a kill order for another
// incarnation kills nobody.

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

#define SHIM_KILLS_KEPT    16
#define SHIM_MAX_KILLS_MAX 10 // storm delays must have room to double

// Everything that outlives one turn. Embedded in main.c and in the simulation; zero is a valid
// start.
struct shim_memory {
    struct fence_status status; // latches and counters as the world sees them
    struct fence_order order;   // last order taken; magic 0: none since our start
    struct instant order_at;    // when it came
    bool order_seen;            // an agent has ordered since our own start

    // Of the living incarnation.
    bool service_was_open;          // 5690 was seen open
    struct instant permit_deadline; // of the leader permit
    struct instant
        silence_grace; // an agent that was lost and held for gets until then to permit again
    enum fence_reason kill_order; // NONE: no order to kill it
    bool kill_sent;               // decided; repeated until the tree is reaped
    enum fence_reason kill_reason;
    struct instant kill_decided;
    int64_t kill_deadline_ns; // deadline that applied to it when the kill was decided; 0: none
    bool term_sent;           // forward_term was planned

    // Newest instant at which a good read bounds our lease from below: it showed another id or
    // none (the read itself), or ours (its heartbeat). Frozen while engaged. ns 0: never read.
    struct instant lease_base;

    // Between incarnations.
    bool exit_pending; // meta ended and metafence-run has to follow with exit_status
    int exit_status;
    struct instant last_start;
    struct instant hold_since;    // when the current wait for a start began; ns 0: no wait
    struct instant backoff_until; // not started earlier
    struct instant storm_until;   // same, because of too many kills
    uint32_t quick_exits;         // unordered ends in a row soon after a start
    uint32_t kill_count;
    struct instant kill_times[SHIM_KILLS_KEPT]; // counted kills, newest last
};

struct shim_plan {
    bool start;               // start a new incarnation now
    bool kill;                // SIGKILL the whole tree (repeated until it is reaped)
    enum fence_reason reason; // of the kill
    bool forward_term;        // send TERM to meta (once)
    bool exit;                // metafence-run ends with exit_status
    int exit_status;
    enum shim_hold hold;       // why nothing is started
    struct instant hold_until; // latest end of that hold
    struct instant wake_at;    // decide again at the latest then
};

// A valid order came. Updates permit, latches and the row knowledge of the start gate. Of an
// order for another incarnation only what does not speak of an incarnation is taken: row,
// database, manual, pause, armed, holds.
void shim_take_order(const struct shim_config *config, struct shim_memory *memory,
                     const struct fence_order *order, struct instant now);

// meta was started as `pid` with `tag` (copied); ends the hold, begins the next incarnation.
void shim_started(struct shim_memory *memory, struct instant now, int32_t pid,
                  uint64_t start_ticks, const char *tag);

// The whole tree of the current incarnation has been reaped; wait_status is meta's own.
void shim_reaped(const struct shim_config *config, struct shim_memory *memory,
                 struct instant now, int wait_status);

// Takes over what an earlier metafence-run of this pod left in the state file: counters,
// latches that outlive an incarnation (manual, pause) and the last death. Instants of another
// boot (boot_id differs from memory->status.boot_id, which the caller has set) mean nothing
// now: a death counts as of `now`, a pause is dropped. `tree_is_dead`: proven, because we are
// PID 1, the boot id differs, or none of its processes is left; false keeps no proof of that
// incarnation's death.
void shim_restore(struct shim_memory *memory, const struct fence_status *left,
                  bool tree_is_dead, struct instant now);

// One turn, level-triggered. `ret_plan` is wholly overwritten; status in *memory is brought up
// to date (not sealed, written_ns and boot_id are the caller's).
void shim_decide(const struct shim_config *config, const struct shim_facts *facts,
                 struct shim_memory *memory, struct shim_plan *ret_plan);

// Refuses numbers that cannot keep the promise. Errors: INVALID; the message has the numbers
// and what to change.
must_check int shim_config_check(const struct shim_config *config, struct err *err);
