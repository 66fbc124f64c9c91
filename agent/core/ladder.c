// SPDX-License-Identifier: Apache-2.0
// ladder: a kill that is wanted goes on until death is confirmed, with the next method when one
// did not confirm within its time. Invariants: nobody is killed or deleted here whom no rule
// condemned, so while paused only what an operator has fenced; a pod is deleted only for a
// process that is known to have run; a method's time is time that we have watched.
#include "agent/core/core.h"

// Between two turns lies a second at most; a longer gap is a suspended machine or an agent that
// was stopped, and metafence-run's word may be waiting.
#define GAP_NS (3 * NS_PER_SEC)

const char *fence_method_name(enum fence_method method)
{
    switch (method) {
    case FENCE_METHOD_NONE: return "None";
    case FENCE_METHOD_PERMIT: return "Permit";
    case FENCE_METHOD_PIDFD: return "Pidfd";
    case FENCE_METHOD_KUBELET: return "Kubelet";
    case FENCE_METHOD_API: return "Api";
    }
    return "None";
}

const char *fence_method_word(enum fence_method method)
{
    switch (method) {
    case FENCE_METHOD_NONE: return "exit";
    case FENCE_METHOD_PERMIT: return "permit";
    case FENCE_METHOD_PIDFD: return "pidfd";
    case FENCE_METHOD_KUBELET: return "kubelet";
    case FENCE_METHOD_API: return "api";
    }
    return "exit";
}

// Nobody has ever said anything of a process: there may be one, or none yet.
static bool is_unheard_of(const struct turn *turn)
{
    return !turn->status && turn->facts->fence.status.incarnation == 0;
}

// As far as anybody has said: a metafence-run that is not there now, and whose last word was
// that nothing runs, started nothing since.
static bool may_run(const struct turn *turn)
{
    const struct fence_status *last = &turn->facts->fence.status;

    return is_unheard_of(turn) ||
           (turn->alive && last->incarnation != 0 && (last->flags & SHIM_ALIVE));
}

// By a rule of ours; or metafence-run has decided by itself, and a pause came too late for it.
static bool is_condemned(const struct turn *turn)
{
    if (!may_run(turn))
        return false;
    if (turn->plan->order.role == FENCE_ROLE_KILL)
        return true;
    return turn->status && turn->status->state == SHIM_KILLING && !turn->paused;
}

static void update_kill(struct turn *turn)
{
    struct core_memory *memory = turn->memory;
    int64_t gap_ns = instant_since(turn->facts->now, memory->last_turn);

    memory->last_turn = turn->facts->now;
    if (!is_condemned(turn)) {
        memory->kill_since = (struct instant){0};
        memory->kill_incarnation = 0;
        return;
    }
    if (memory->kill_since.ns != 0 && memory->kill_incarnation == memory->incarnation) {
        if (gap_ns > GAP_NS)
            memory->kill_unwatched_ns += gap_ns;
        return;
    }
    memory->kill_since = turn->facts->now;
    memory->kill_incarnation = memory->incarnation;
    memory->kill_unwatched_ns = 0;
}

// From when the methods' times are counted.
static struct instant counted_from(const struct turn *turn)
{
    return instant_add(turn->memory->kill_since, turn->memory->kill_unwatched_ns);
}

static bool has_taken(const struct turn *turn, int64_t ns)
{
    return instant_since(turn->facts->now, counted_from(turn)) >= ns;
}

// The pod that takes the place of a deleted one has neither annotation nor state: an operator's
// fence would be lifted by it. Only what else condemns our process is worth that.
static bool may_delete_pod(const struct turn *turn)
{
    if (!turn->facts->methods.delete_pod || is_unheard_of(turn))
        return false;
    return !turn->facts->orders.manual_fence || rule_database_replaced_holds(turn) ||
           rule_superseded_holds(turn) || rule_twin_identity_holds(turn) ||
           rule_lease_expired_holds(turn);
}

static enum fence_method choose_method(const struct turn *turn)
{
    const struct method_fact *methods = &turn->facts->methods;
    enum fence_method first = methods->by_pidfd ? FENCE_METHOD_PIDFD : FENCE_METHOD_PERMIT;
    int64_t budget_ns = turn->config->kill_budget_ns;

    if (may_delete_pod(turn) && has_taken(turn, turn->config->confirm_after_ns))
        return FENCE_METHOD_API;
    if (!has_taken(turn, budget_ns))
        return first;
    if (methods->kubelet && (!methods->pidfd || has_taken(turn, 2 * budget_ns)))
        return FENCE_METHOD_KUBELET;
    return methods->pidfd ? FENCE_METHOD_PIDFD : first;
}

static void fill_living(struct turn *turn)
{
    const struct core_config *config = turn->config;
    const struct method_fact *methods = &turn->facts->methods;
    struct plan *plan = turn->plan;
    struct instant since = counted_from(turn);

    plan->method = choose_method(turn);
    plan_wake_after(turn, since, config->kill_budget_ns);
    plan_wake_after(turn, since, 2 * config->kill_budget_ns);
    plan_wake_after(turn, since, config->confirm_after_ns);
    if (!has_taken(turn, config->kill_budget_ns))
        return;
    plan->not_fenced = NOT_FENCED_ALIVE;
    plan->not_fenced_since = turn->memory->kill_since;
    if (methods->pidfd)
        plan_add(plan, ACTION_KILL_PIDFD);
    if (plan->method == FENCE_METHOD_API)
        plan_add(plan, ACTION_DELETE_POD);
}

// A statement of the dead one that waits on a lock would still commit.
static void fill_dead_sessions(struct turn *turn)
{
    const struct fence_death *death = plan_cleanup_due(turn);
    struct plan *plan = turn->plan;
    struct instant since = {0};
    struct instant from = {0};

    if (!death || turn->facts->cleanup.sessions_gone == death->incarnation)
        return;
    since.ns = death->decided_ns ? death->decided_ns : death->dead_ns;
    from = instant_max(since, turn->facts->database.since);
    plan_wake_after(turn, from, turn->config->kill_budget_ns);
    if (instant_since(turn->facts->now, from) < turn->config->kill_budget_ns)
        return;
    plan->not_fenced = NOT_FENCED_SESSIONS;
    plan->not_fenced_since = since;
    plan->method = plan->dead_method;
}

void ladder_finish(struct turn *turn)
{
    update_kill(turn);
    if (turn->memory->kill_since.ns != 0)
        fill_living(turn);
    else
        fill_dead_sessions(turn);
}
