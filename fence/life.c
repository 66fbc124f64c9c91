// SPDX-License-Identifier: Apache-2.0
// Births and deaths of incarnations: what is reset, what is kept, what is counted.
#include <string.h>
#include <sys/wait.h>

#include "fence/latch.h"
#include "fence/shim.h"

#define BACKOFF_MIN_GAP_NS   NS_PER_SEC        // between two starts
#define BACKOFF_QUICK_NS     (10 * NS_PER_SEC) // an end so soon after the start is a quick one
#define ABORT_HARMLESS_NS    (60 * NS_PER_SEC) // metas that start together abort each other
#define STORM_FIRST_DELAY_NS (10 * NS_PER_SEC)
#define STORM_MAX_TTLS       4
#define STATUS_ABORT         134 // 128 + SIGABRT, also as an exit code of a wrapper
#define SIGNAL_ABORT         6
#define SIGNAL_KILL          9

// Each kept kill but the first doubles the delay.
_Static_assert(SHIM_KILLS_KEPT <= 20, "doubled delays stay far from overflow");

// ---- one life

void shim_started(struct shim_memory *memory, struct instant now, int32_t pid,
                  uint64_t start_ticks, const char *tag)
{
    struct fence_status *status = &memory->status;

    if (status->incarnation > 0)
        status->restarts++;
    status->incarnation++;
    status->pid = pid;
    status->start_ticks = start_ticks;
    status->started_ns = now.ns;
    strncpy(status->tag, tag, sizeof(status->tag) - 1);
    latch_put(memory, SHIM_ENGAGED | SHIM_SUPERSEDED | SHIM_SILENCE_HELD, false);
    latch_put(memory, SHIM_ALIVE, true);
    status->engaged_ns = 0;
    status->permit = FENCE_ROLE_KEEP;
    status->hold = SHIM_HOLD_NONE;
    status->hold_until_ns = 0;
    status->deadline_ns = 0;
    status->system_id = 0;
    status->timeline = 0;
    status->term = 0;
    memory->service_was_open = false;
    memory->permit_deadline = (struct instant){0};
    memory->silence_grace = (struct instant){0};
    memory->kill_order = FENCE_REASON_NONE;
    memory->kill_sent = false;
    memory->kill_reason = FENCE_REASON_NONE;
    memory->kill_deadline_ns = 0;
    memory->last_start = now;
    memory->hold_since = (struct instant){0};
    latch_lease_base(memory);
}

static void record_death(struct shim_memory *memory, struct instant now, int wait_status)
{
    const struct fence_status *status = &memory->status;
    struct fence_death death = {.incarnation = status->incarnation,
                                .wait_status = wait_status,
                                .dead_ns = now.ns,
                                .engaged = latch_has(memory, SHIM_ENGAGED) ? 1 : 0};

    memcpy(death.tag, status->tag, sizeof(death.tag));
    death.deadline_ns = memory->kill_sent ? memory->kill_deadline_ns : status->deadline_ns;
    if (memory->kill_sent) {
        death.reason = memory->kill_reason;
        death.decided_ns = memory->kill_decided.ns;
    }
    memory->status.last_death = death;
}

static bool is_abort(int wait_status)
{
    return (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGNAL_ABORT) ||
           (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == STATUS_ABORT);
}

static bool is_clean(int wait_status)
{
    return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
}

// An operator's orders, exit 0, TERM and aborts of a first start don't count for the storm
// limit.
static bool end_counts(const struct shim_memory *memory, struct instant now, int wait_status)
{
    if (latch_has(memory, SHIM_TERM_RECEIVED))
        return false;
    if (memory->kill_sent)
        return memory->kill_reason != FENCE_REASON_MANUAL &&
               memory->kill_reason != FENCE_REASON_HANDOVER;
    return is_abort(wait_status) && instant_since(now, memory->last_start) >= ABORT_HARMLESS_NS;
}

static void count_kill(const struct shim_config *config, struct shim_memory *memory,
                       struct instant now)
{
    uint32_t recent = 0;
    uint32_t beyond = 0;
    int64_t delay_ns = STORM_FIRST_DELAY_NS;

    memory->status.kills++;
    if (memory->kill_count == SHIM_KILLS_KEPT) {
        memmove(&memory->kill_times[0], &memory->kill_times[1],
                sizeof(memory->kill_times) - sizeof(memory->kill_times[0]));
        memory->kill_count--;
    }
    memory->kill_times[memory->kill_count++] = now;
    for (uint32_t i = 0; i < memory->kill_count; i++)
        if (instant_since(now, memory->kill_times[i]) < config->kill_window_ns)
            recent++;
    if (recent <= config->max_kills)
        return;
    beyond = recent - config->max_kills - 1;
    delay_ns <<= beyond;
    if (delay_ns > STORM_MAX_TTLS * config->ttl_ns)
        delay_ns = STORM_MAX_TTLS * config->ttl_ns;
    memory->storm_until = instant_add(now, delay_ns);
}

static void back_off(struct shim_memory *memory, struct instant now)
{
    static const int64_t delays_ns[] = {1 * NS_PER_SEC, 2 * NS_PER_SEC, 4 * NS_PER_SEC,
                                        8 * NS_PER_SEC, 10 * NS_PER_SEC};
    const uint32_t last = sizeof(delays_ns) / sizeof(delays_ns[0]) - 1;
    uint32_t step = memory->quick_exits < last ? memory->quick_exits : last;

    memory->backoff_until = instant_add(memory->last_start, BACKOFF_MIN_GAP_NS);
    if (memory->kill_sent)
        return;
    if (instant_since(now, memory->last_start) >= BACKOFF_QUICK_NS) {
        memory->quick_exits = 0;
        return;
    }
    memory->quick_exits++;
    memory->backoff_until =
        instant_max(memory->backoff_until, instant_add(now, delays_ns[step]));
}

// An order to kill still waited, as while we were stopped, and somebody else has done it.
static void adopt_kill(struct shim_memory *memory, struct instant now, int wait_status)
{
    if (memory->kill_sent || memory->kill_order == FENCE_REASON_NONE ||
        !WIFSIGNALED(wait_status) || WTERMSIG(wait_status) != SIGNAL_KILL)
        return;
    memory->kill_sent = true;
    memory->kill_reason = memory->kill_order;
    memory->kill_decided = now;
    memory->kill_deadline_ns = memory->status.deadline_ns;
}

void shim_reaped(const struct shim_config *config, struct shim_memory *memory,
                 struct instant now, int wait_status)
{
    struct fence_status *status = &memory->status;
    bool in_place = false;

    adopt_kill(memory, now, wait_status);
    in_place = memory->kill_sent || is_clean(wait_status) || is_abort(wait_status);
    record_death(memory, now, wait_status);
    latch_put(memory, SHIM_ALIVE | SHIM_SILENCE_HELD, false);
    status->pid = 0;
    status->start_ticks = 0;
    status->deadline_ns = 0;
    status->permit = FENCE_ROLE_KEEP;
    if (memory->kill_sent)
        status->fences++;
    if (end_counts(memory, now, wait_status))
        count_kill(config, memory, now);
    // One fence for a lost agent, not one a lease: until an agent is back, silence does not
    // count.
    if (status->last_death.reason == FENCE_REASON_AGENT_LOST)
        latch_put(memory, SHIM_ARMED, false);
    back_off(memory, now);
    memory->hold_since = now;
    memory->exit_status =
        WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    memory->exit_pending = latch_has(memory, SHIM_TERM_RECEIVED) ||
                           config->restart == SHIM_RESTART_CONTAINER || !in_place;
}

// ---- a new metafence-run in an old pod

// The incarnation that was alive when the state file was written last, dead by now.
static void restore_unseen_death(struct shim_memory *memory, const struct fence_status *left,
                                 struct instant now)
{
    bool overdue =
        (left->flags & SHIM_ENGAGED) && left->deadline_ns != 0 && left->deadline_ns <= now.ns;
    struct fence_death death = {.incarnation = left->incarnation,
                                .dead_ns = now.ns,
                                .deadline_ns = left->deadline_ns,
                                .engaged = left->flags & SHIM_ENGAGED ? 1 : 0};

    memcpy(death.tag, left->tag, sizeof(death.tag));
    // Somebody else had to end it past its deadline: the lease is not taken back at once
    // either.
    if (overdue)
        death.reason = FENCE_REASON_LEASE_EXPIRED;
    memory->status.last_death = death;
}

void shim_restore(struct shim_memory *memory, const struct fence_status *left,
                  bool tree_is_dead, struct instant now)
{
    struct fence_status *status = &memory->status;
    bool same_boot = strncmp(status->boot_id, left->boot_id, sizeof(status->boot_id)) == 0;

    status->incarnation = left->incarnation;
    status->restarts = left->restarts;
    status->kills = left->kills;
    status->fences = left->fences;
    latch_put(memory, SHIM_MANUAL, left->flags & SHIM_MANUAL);
    status->pause_end_ns = same_boot ? left->pause_end_ns : 0;
    status->last_death = left->last_death;
    memory->hold_since = now;
    if (!(left->flags & SHIM_ALIVE)) {
        if (!same_boot && status->last_death.incarnation != 0)
            status->last_death.dead_ns = now.ns;
        return;
    }
    status->last_death = (struct fence_death){0};
    if (tree_is_dead)
        restore_unseen_death(memory, left, now);
}
