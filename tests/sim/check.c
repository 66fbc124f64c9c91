// SPDX-License-Identifier: Apache-2.0
// The promises, judged by what only the simulation knows: who renewed what when, by whose
// clock.
#include "tests/sim/cluster.h"

#include <string.h>

#define SLACK_NS (20 * MS)

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// From the first sign of engagement, or the end of a state that is not covered, to death.
static int64_t reaction_ns(const struct world *world, const struct pod *p)
{
    return SAMPLE_NS + world->shim.kill_budget_ns + p->shim.ipc_ns + SLACK_NS;
}

// The member table that this pod's agent read last named somebody else.
static bool saw_another(const struct world *world, int pod)
{
    const struct agent *agent = &world->pods[pod].agent;

    for (int id = 0; agent->view_known && id < PODS_MAX; id++)
        if (id != world->pods[pod].id && world->db.member_since[id] != 0 &&
            world->db.member_since[id] < agent->view.exec_at)
            return true;
    return false;
}

static bool is_named_uncovered(struct world *world, int pod)
{
    const struct pod *p = &world->pods[pod];
    bool held = p->shim.memory.status.pause_end_ns > sim_local(world, p).ns;

    if (p->pause_until > world->now || !p->armed)
        return true;
    if (world->cluster && world->cluster->nodes[pod].is_stopped)
        return true; // the kubelet's (promise.c)
    if (held && saw_another(world, pod) && p->pause_until == 0)
        sim_fail(world, pod, "P1: held as a single replica, but it saw another member");
    return held;
}

// P1: who acts past the end of its own last lease, although nobody said that it is not covered.
static void check_lease(struct world *world, int pod)
{
    struct pod *p = &world->pods[pod];
    const struct meta *meta = &p->meta;
    int64_t over_us = db_now_us(world) - meta->expiry_us;

    if (host_stands_still(world, pod) || is_named_uncovered(world, pod)) {
        p->is_uncovered = true; // who stands still does not act
        return;
    }
    if (p->is_uncovered) { // metafence-run wakes at the end of what was not covered
        p->is_uncovered = false;
        p->uncovered_until = world->now + reaction_ns(world, p);
    }
    if (over_us <= 0 || world->now < p->uncovered_until ||
        world->now < meta->engaged_at + reaction_ns(world, p))
        return;
    // A lease from before its clock lost time; the next one is judged by the clock that it has.
    if (world->now < p->lag_until + reaction_ns(world, p) &&
        meta->renewed_at <= p->lag_until - world->ttl_ns) {
        world->stats->lag_zombies++;
        return;
    }
    sim_fail(world, pod, "P1: acts %.3f ms past the end of its lease", (double)over_us / 1e3);
}

// Its agent knows the timeline of its term, and has read that it is no more: nothing extends
// its proof, and what is proven is void.
static bool is_disowned(const struct pod *p)
{
    return p->meta.is_timeline_read && p->read_timeline > p->meta.timeline;
}

// Such a leader ends with that read. Who has no agent any more has its deadline.
static void check_timeline(struct world *world, int pod)
{
    const struct pod *p = &world->pods[pod];

    if (is_disowned(p) && p->agent.alive &&
        world->now >
            later(p->timeline_read_at, p->agent.frozen_until) + reaction_ns(world, p) &&
        world->now > p->meta.engaged_at + reaction_ns(world, p) &&
        world->now > p->uncovered_until && !p->is_uncovered)
        sim_fail(world, pod, "P1: leads on a timeline that is no more");
}

static int64_t twin_bound_ns(const struct world *world)
{
    const struct core_config *core = &world->core;

    return 2 * (core->connect_timeout_ns + core->query_timeout_ns) + core->poll_ns +
           world->shim.kill_budget_ns + 2 * SAMPLE_NS + S;
}

static bool acts(const struct world *world, int pod)
{
    const struct pod *p = &world->pods[pod];

    return p->exists && p->meta.engaged_at != 0 && p->unsound == 0 && p->armed &&
           p->pause_until < world->now &&
           world->now - p->link.sound_since > twin_bound_ns(world);
}

static void check_twins(struct world *world)
{
    int twin = PODS_MAX - 1;
    bool both = false;

    for (int i = 0; i < twin && world->pods[twin].exists; i++)
        both |=
            world->pods[i].id == world->pods[twin].id && acts(world, i) && acts(world, twin);
    if (!both)
        world->twin_since = world->now;
    else if (world->now - world->twin_since > twin_bound_ns(world))
        sim_fail(world, twin, "P1: twins act beside each other");
}

void check_step(struct world *world)
{
    for (int i = 0; i < world->pod_count; i++) {
        if (world->pods[i].manual)
            world->pods[i].manual_at = world->now;
        if (world->pods[i].exists && world->pods[i].meta.engaged_at != 0) {
            check_lease(world, i);
            check_timeline(world, i);
        }
    }
    if (world->pod_count == PODS_MAX)
        check_twins(world);
    if (world->cluster)
        promise_step(world);
}

// ---- P2

static bool is_healthy(const struct world *world, int pod)
{
    const struct pod *p = &world->pods[pod];
    const struct database *db = &world->db;

    if (world->cluster && !p->agent.alive)
        return false; // it waits for the kubelet
    if (is_disowned(p))
        return false;
    return p->unsound == 0 && world->now - p->link.sound_since >= world->ttl_ns &&
           p->meta.is_leader && db->up && db->row && !db->null && db->id == p->id &&
           db->row_tag == p->meta.tag && db->owner_tag == p->meta.tag &&
           world->now - p->meta.renewed_at < world->core.renew_gap_ns;
}

static bool twin_exists(const struct world *world, int pod)
{
    for (int i = 0; i < world->pod_count; i++)
        if (i != pod && world->pods[i].exists && world->pods[i].id == world->pods[pod].id)
            return true;
    return false;
}

// Its agent has read that it owned the term on a timeline that is no more. Whether its process
// heard of that, and acted on it, or led only when it won once more, nobody can know.
static bool was_shown_elsewhere(const struct world *world, const struct pod *p)
{
    return p->owned_timeline != 0 && p->owned_timeline != world->db.timeline;
}

static bool is_reason_true(const struct world *world, int pod, enum fence_reason reason)
{
    const struct pod *p = &world->pods[pod];
    const struct meta *meta = &p->meta;
    bool true_reason = true;

    switch (reason) {
    case FENCE_REASON_MANUAL:
        true_reason =
            p->manual || world->now < later(later(p->manual_at, p->agent.frozen_until),
                                            p->standstill_until) +
                                          S; // as long as the order may be under way
        break;
    case FENCE_REASON_SUPERSEDED:
        true_reason =
            meta->lost_at != 0 || world->db.tags[meta->tag].superseded ||
            (world->db.row && world->db.id != p->id); // elected by an answer that came late
        break;
    case FENCE_REASON_TWIN_IDENTITY:
        // Also when the twin has ended since: the term is not ours any more, and never again.
        true_reason = twin_exists(world, pod) || world->db.tags[meta->tag].superseded;
        break;
    case FENCE_REASON_DATABASE_REPLACED:
        true_reason = meta->timeline != world->db.timeline || was_shown_elsewhere(world, p);
        break;
    case FENCE_REASON_PHANTOM_LEADER:
        true_reason =
            meta->phantom || (meta->state == META_PROMOTING &&
                              world->now - meta->promoting_at >=
                                  world->core.promote_after_ns - S - p->clock_moved_ns);
        break;
    case FENCE_REASON_DIVERGED_LEADER:
        true_reason = world->cluster &&
                      world->cluster->nodes[pod].diverged == p->shim.memory.status.incarnation;
        break;
    case FENCE_REASON_HANDOVER:
        true_reason = world->cluster &&
                      world->cluster->nodes[pod].handover == p->shim.memory.status.incarnation;
        break;
    case FENCE_REASON_LEASE_EXPIRED:
    case FENCE_REASON_AGENT_LOST:
    case FENCE_REASON_NONE: true_reason = world->now >= p->proof_until || is_disowned(p); break;
    }
    return true_reason;
}

// After an outage the row can be won before the agent has read again: no proof, so no permit,
// and the only safe end is a fence. It is counted, because it costs a restart.
static bool is_hasty(const struct world *world, int pod)
{
    const struct pod *p = &world->pods[pod];

    return p->meta.engaged_at != 0 && world->now - p->meta.engaged_at < S / 2 &&
           p->meta.won_in_time && world->db.id == p->id && world->db.owner_tag == p->meta.tag;
}

// What metafence-run has not seen to serve may lead, so a silence that outlasts a start is no
// excuse for it: nor for one that has served for less than two looks are apart.
static bool is_start_in_silence(const struct world *world, int pod)
{
    const struct pod *p = &world->pods[pod];
    bool is_unseen =
        p->meta.state == META_STARTING || world->now - p->meta.served_at <= SAMPLE_NS;

    return is_unseen && (p->unsound != 0 || !p->agent.alive ||
                         world->now - p->link.sound_since < world->ttl_ns);
}

void check_kill(struct world *world, int pod, enum fence_reason reason)
{
    const struct meta *meta = &world->pods[pod].meta;
    bool by_clock = reason == FENCE_REASON_LEASE_EXPIRED || reason == FENCE_REASON_AGENT_LOST;

    if (world->calm)
        sim_fail(world, pod, "P2: killed for %s, though everything lasts less than a lease",
                 fence_reason_name(reason));
    if (world->cluster && world->cluster->is_api_only)
        sim_fail(world, pod, "P8: killed for %s, though only the API is in trouble",
                 fence_reason_name(reason));
    if (by_clock && is_hasty(world, pod))
        world->stats->hasty++;
    if (reason != FENCE_REASON_MANUAL && reason != FENCE_REASON_TWIN_IDENTITY &&
        meta->renewed_at == 0 && !(by_clock && is_start_in_silence(world, pod)))
        sim_fail(world, pod, "P2: killed for %s, but it never held the row",
                 fence_reason_name(reason));
    else if (!is_reason_true(world, pod, reason))
        sim_fail(world, pod, "P2: killed for %s, which is not so", fence_reason_name(reason));
    else if ((by_clock || reason == FENCE_REASON_SUPERSEDED) && is_healthy(world, pod))
        sim_fail(world, pod, "P2: a healthy, provable leader is killed for %s",
                 fence_reason_name(reason));
}

// ---- latches and the start gate

// Three know that it leads: metafence-run by its ports, the agent that has read its win, and
// Postgres. The first was stopped before it could look, until after this read; the second is
// no more; the third has lost it with its last seconds: nobody is left who could tell that it
// has been superseded.
static bool is_win_forgotten(const struct world *world, int pod, const struct row_view *view)
{
    const struct pod *p = &world->pods[pod];
    const struct kube_node *node = world->cluster ? &world->cluster->nodes[pod] : NULL;

    return node && node->stopped_at != 0 &&
           node->stopped_at <= p->meta.engaged_at + SAMPLE_NS &&
           (node->is_stopped || view->exec_at <= node->resumed_at + SAMPLE_NS) &&
           p->agent.started_at > p->meta.engaged_at && !view->asked_owned &&
           !view->asked_superseded;
}

void check_read(struct world *world, int pod, const struct row_view *view)
{
    struct pod *p = &world->pods[pod];

    if (p->meta.state == META_DOWN)
        p->read_since_death = view->exec_at;
    if (p->meta.engaged_at != 0 && view->exec_at > p->meta.engaged_at + SAMPLE_NS &&
        view->timeline == p->meta.timeline && view->exists && view->tag == p->meta.tag)
        p->meta.is_timeline_read = true;
    if (p->read_timeline != view->timeline) {
        p->read_timeline = view->timeline;
        p->timeline_read_at = world->now;
    }
    if (p->meta.engaged_at != 0 && view->exec_at > p->meta.engaged_at + SAMPLE_NS &&
        view->exists && !view->null && view->id != p->id && !is_win_forgotten(world, pod, view))
        p->lost_seen = true;
    if (p->owned_timeline == 0 && p->meta.state != META_DOWN && view->asked_owned &&
        view->owner_tag == p->meta.tag)
        p->owned_timeline = view->timeline;
}

void check_permit(struct world *world, int pod, const struct fence_order *order)
{
    struct pod *p = &world->pods[pod];
    const struct row_view *view = &p->agent.view;
    int64_t lease_ns = 0;

    if (order->role != FENCE_ROLE_LEADER || p->meta.state == META_DOWN ||
        order->incarnation != p->shim.memory.status.incarnation)
        return;
    if (!p->agent.view_known || !view->exists || view->tag != p->meta.tag ||
        view->id != p->id || view->null)
        return;
    // What was asked before its clock leapt, or it stood still, is older than it seems.
    if (view->exec_at <= later(p->leapt_at, p->standstill_until) +
                             world->core.connect_timeout_ns + 2 * world->core.query_timeout_ns)
        return;
    // A jump of the clock voids the proof until the heartbeat was seen to advance again.
    if (world->db.steps_ns + p->clock_moved_ns > world->core.max_clock_jump_ns &&
        p->agent.memory.proof_void)
        return;
    lease_ns = world->ttl_ns - (view->now_us - view->heartbeat_us) * 1000;
    lease_ns -= world->core.margin_ns + world->core.kill_budget_ns +
                world->core.connect_timeout_ns + 2 * world->core.query_timeout_ns +
                world->db.steps_ns + p->clock_moved_ns + world->ttl_ns / 2000 + SLACK_NS;
    if (view->exec_at + lease_ns > p->proof_until)
        p->proof_until = view->exec_at + lease_ns;
}

void check_sent(struct world *world, int pod, const struct fence_order *order)
{
    const struct pod *p = &world->pods[pod];

    if (order->role == FENCE_ROLE_LEADER && p->lost_seen && p->meta.state != META_DOWN &&
        order->incarnation == p->shim.memory.status.incarnation)
        sim_fail(world, pod, "latch: a superseded incarnation gets a leader permit");
}

void check_start(struct world *world, int pod)
{
    const struct pod *p = &world->pods[pod];
    const struct database *db = &world->db;
    bool by_clock =
        p->died_of == FENCE_REASON_LEASE_EXPIRED || p->died_of == FENCE_REASON_AGENT_LOST;
    int64_t written_at = world->now - (db_now_us(world) - db->heartbeat_us) * 1000;
    // A statement of the dead that was under way may still renew: nobody can know then.
    bool holds_lease = db->row && !db->null && db->id == p->id && db->row_tag == p->meta.tag &&
                       written_at <= p->died_at &&
                       db->heartbeat_us + world->ttl_ns / 1000 > db_now_us(world);

    if (p->meta.state != META_DOWN)
        sim_fail(world, pod, "gate: started beside a living predecessor");
    if (by_clock && holds_lease && p->read_since_death == 0 && p->leapt_at <= p->died_at)
        sim_fail(world, pod, "gate: takes the lease back that it lost by silence");
    for (int i = 0; i < world->pod_count; i++) {
        const struct pod *twin = &world->pods[i];
        if (i == pod || !twin->exists || twin->id != p->id || twin->meta.engaged_at == 0 ||
            world->now - twin->meta.renewed_at > 2 * S || p->unsound != 0 ||
            twin->unsound > 1 || twin->meta.engaged_at > p->agent.view.exec_at ||
            world->now - p->link.sound_since < 2 * world->ttl_ns)
            continue;
        if (db->row_tag == twin->meta.tag)
            sim_fail(world, pod, "gate: started beside a twin that renews");
    }
}

// ---- P3

static const char *unsettled(const struct world *world, int *ret_pod)
{
    const struct database *db = &world->db;
    int leaders = 0;

    for (int i = 0; i < world->pod_count; i++) {
        const struct pod *p = &world->pods[i];
        bool owner = db->row && db->id == p->id && db->row_tag == p->meta.tag;
        *ret_pod = i;
        if (!p->exists)
            continue;
        if (p->meta.state == META_LEADER && owner && p->meta.is_leader &&
            p->shim.memory.status.permit == FENCE_ROLE_LEADER) {
            leaders++;
            continue;
        }
        if (p->meta.state != META_FOLLOWER || owner)
            return p->meta.state == META_DOWN ? "is down" : "is neither leader nor follower";
        if (p->agent.plan.rule != RULE_FOLLOWER)
            return "is a follower whose agent does not say so";
    }
    return leaders == 1 ? NULL : "there is no leader";
}

// A delay that the storm limit, a back-off, a handover to nobody or a new pod gave is a bounded
// hold: it may move the moment, also when it has just ended.
static int64_t hold_end(const struct world *world)
{
    int64_t latest = 0;

    for (int i = 0; i < world->pod_count; i++) {
        const struct pod *p = &world->pods[i];
        if (world->cluster && kubelet_start_at(world, i) > latest)
            latest = kubelet_start_at(world, i);
        if (p->exists && p->held_until > latest)
            latest = p->held_until;
    }
    return latest;
}

void check_settled(struct world *world)
{
    int pod = -1;
    const char *why = NULL;
    int64_t until = 0;

    if (world->now < world->settled_by)
        return;
    why = unsettled(world, &pod);
    if (!why && world->cluster) {
        why = promise_unsettled(world, &pod);
        if (why)
            sim_fail(world, pod, "P4: %.1f s after the last fault: %s",
                     (double)(world->now - world->faults_end) / 1e9, why);
    }
    if (!why)
        return;
    until = hold_end(world) + 2 * world->ttl_ns;
    if (until > world->settled_by && until < world->faults_end + 12 * world->ttl_ns + 60 * S) {
        world->settled_by = until;
        if (world->end_at < until + world->ttl_ns)
            world->end_at = until + world->ttl_ns;
        return;
    }
    sim_fail(world, pod, "P3: %.1f s after the last fault: %s",
             (double)(world->now - world->faults_end) / 1e9, why);
}
