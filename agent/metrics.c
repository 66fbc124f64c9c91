// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

void metrics_init(struct metrics *metrics)
{
    struct timespec wall = {0};

    (void)clock_gettime(CLOCK_REALTIME, &wall); // can't fail
    metrics->started_at = clock_now();
    metrics->started_wall_ns = wall.tv_sec * NS_PER_SEC + wall.tv_nsec;
}

void metrics_add_source(struct metrics *metrics, metrics_source_fn *fn, void *arg)
{
    assert(metrics->source_count < METRICS_SOURCES_MAX);
    metrics->sources[metrics->source_count].fn = fn;
    metrics->sources[metrics->source_count].arg = arg;
    metrics->source_count++;
}

static void count_attempt(struct metrics *metrics, enum fence_method method,
                          enum fence_reason reason, enum metrics_result result)
{
    metrics->attempts[method][reason][result]++;
}

// A change of the leader that the row names. Gone and back is none.
static void see_leader(struct metrics *metrics, const struct election_fact *election)
{
    bool is_first = !metrics->leader_id[0];

    if (!election->known || (election->row != ROW_OURS && election->row != ROW_OTHER) ||
        !election->owner_id[0] || strcasecmp(metrics->leader_id, election->owner_id) == 0)
        return;
    (void)snprintf(metrics->leader_id, sizeof(metrics->leader_id), "%s", election->owner_id);
    metrics->leader_transitions += !is_first;
}

// Without an order of ours it is metafence-run's own deadline that has passed.
static enum fence_reason reason_of(const struct plan *plan)
{
    return plan->order.role == FENCE_ROLE_KILL ? (enum fence_reason)plan->order.reason
                                               : FENCE_REASON_LEASE_EXPIRED;
}

// A method in use against an incarnation is one attempt; the next method ends it.
static void see_method(struct metrics *metrics, const struct facts *facts,
                       const struct plan *plan)
{
    uint64_t incarnation = facts->fence.status.incarnation;
    enum fence_method method =
        plan->not_fenced == NOT_FENCED_SESSIONS ? FENCE_METHOD_NONE : plan->method;

    if (method == FENCE_METHOD_NONE || incarnation == 0)
        return;
    if (metrics->attempt.incarnation == incarnation) {
        if (metrics->attempt.method == method)
            return;
        count_attempt(metrics, metrics->attempt.method, metrics->attempt.reason,
                      METRICS_UNCONFIRMED);
    }
    metrics->attempt.incarnation = incarnation;
    metrics->attempt.method = method;
    metrics->attempt.reason = reason_of(plan);
}

static const struct fence_death *death_of(const struct facts *facts, uint64_t incarnation)
{
    const struct fence_death *last = &facts->fence.status.last_death;

    return last->incarnation == incarnation ? last : &facts->proven;
}

static void see_death(struct metrics *metrics, const struct facts *facts,
                      const struct plan *plan)
{
    const struct fence_death *death = death_of(facts, plan->dead_incarnation);
    bool has_attempt = metrics->attempt.incarnation == plan->dead_incarnation;
    enum fence_method method = has_attempt ? metrics->attempt.method : plan->dead_method;

    if (plan->dead_incarnation == 0 || metrics->counted_death == plan->dead_incarnation)
        return;
    metrics->counted_death = plan->dead_incarnation;
    metrics->attempt.incarnation = 0;
    if (death->dead_ns < metrics->started_at.ns)
        return; // an earlier agent's to count
    if (plan->dead_reason == FENCE_REASON_NONE) {
        if (has_attempt)
            count_attempt(metrics, method, metrics->attempt.reason, METRICS_ENDED);
        return;
    }
    count_attempt(metrics, method, plan->dead_reason, METRICS_CONFIRMED);
    if (death->decided_ns == 0)
        return; // since when it had to be dead, nobody knows
    metrics->unconfirmed.incarnation = plan->dead_incarnation;
    metrics->unconfirmed.method = method;
    metrics->unconfirmed.decided_ns = death->decided_ns;
    metrics->unconfirmed.dead_ns = death->dead_ns;
}

static bool waits_for_sessions(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->action_count; i++)
        if (plan->actions[i].kind == ACTION_END_SESSIONS)
            return true;
    return false;
}

// Confirmed dead is the process and, when Postgres can be asked, its sessions.
static void see_confirmation(struct metrics *metrics, const struct facts *facts,
                             const struct plan *plan)
{
    uint64_t incarnation = metrics->unconfirmed.incarnation;
    bool are_gone = facts->cleanup.sessions_gone == incarnation;
    int64_t end_ns = are_gone ? facts->now.ns : metrics->unconfirmed.dead_ns;

    if (incarnation == 0 || (!are_gone && waits_for_sessions(plan)))
        return;
    metrics->unconfirmed.incarnation = 0;
    prom_observe(&metrics->fence[metrics->unconfirmed.method],
                 end_ns - metrics->unconfirmed.decided_ns);
}

// How long what a kill is decided for had been so. Others than these two have no beginning that
// could be seen.
static void see_detection(struct metrics *metrics, const struct facts *facts,
                          const struct plan *plan)
{
    const struct fence_order *order = &plan->order;
    const struct election_fact *election = &facts->election;
    const struct fence_status *status = &facts->fence.status;

    if (order->role != FENCE_ROLE_KILL || !(status->flags & SHIM_ALIVE) ||
        metrics->detected == order->incarnation)
        return;
    metrics->detected = order->incarnation;
    if (order->reason == FENCE_REASON_SUPERSEDED && election->known &&
        election->row == ROW_OTHER)
        prom_observe(&metrics->detection[METRICS_SUPERSEDED],
                     election->age_ns + instant_since(facts->now, election->sent_at));
    if (order->reason == FENCE_REASON_LEASE_EXPIRED && status->deadline_ns != 0)
        prom_observe(&metrics->detection[METRICS_LEASE_EXPIRED],
                     facts->now.ns - status->deadline_ns);
}

static void see_skipped(struct metrics *metrics, const struct plan *plan)
{
    uint32_t begun = plan->not_covered & ~metrics->not_covered;

    metrics->skipped_blind += (begun & NOT_COVERED_AGENT_BLIND) != 0;
    metrics->skipped_single += (begun & NOT_COVERED_SINGLE_REPLICA) != 0;
    metrics->not_covered = plan->not_covered;
}

static void see_split(struct metrics *metrics, const struct facts *facts)
{
    uint32_t leads = SHIM_ALIVE | SHIM_ENGAGED;
    bool is_split = facts->fence.known && (facts->fence.status.flags & leads) == leads &&
                    facts->election.known && facts->election.row == ROW_OTHER;

    if (metrics->split_at.ns != 0)
        metrics->split_ns += instant_since(facts->now, metrics->split_at);
    metrics->split_at = is_split ? facts->now : (struct instant){0};
}

void metrics_turn(struct metrics *metrics, const struct facts *facts, const struct plan *plan)
{
    see_leader(metrics, &facts->election);
    see_detection(metrics, facts, plan);
    see_skipped(metrics, plan);
    see_split(metrics, facts);
    see_method(metrics, facts, plan);
    see_death(metrics, facts, plan);
    see_confirmation(metrics, facts, plan);
}
