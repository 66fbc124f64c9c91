// SPDX-License-Identifier: Apache-2.0
// What has changed, told by log, event and history; and the counters.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/reclaim/parts.h"
#include "base/log.h"

static void say(struct reclaim *reclaim, const struct kube_event *event)
{
    struct agent *agent = reclaim->agent;
    char detail[HISTORY_DETAIL_SIZE];

    if (event->is_warning)
        log_warn("recovery", kv_str("event", event->reason), kv_str("note", event->note),
                 kv_int("term", (int64_t)reclaim->known.state.term));
    else
        log_info("recovery", kv_str("event", event->reason), kv_str("note", event->note),
                 kv_int("term", (int64_t)reclaim->known.state.term));
    kube_say(agent->kube, event);
    (void)snprintf(detail, sizeof(detail), "%s: %s", event->reason, event->note);
    history_add(&agent->history, &agent->facts, &agent->memory, "recovery", detail);
}

// "mv_one, mv_two"
static void name_drops(const struct reclaim *reclaim, char *to, size_t size)
{
    size_t len = 0;

    (void)snprintf(to, size, "%s", reclaim->drops.dropped_shown_count ? "" : "of unknown jobs");
    for (size_t i = 0; i < reclaim->drops.dropped_shown_count && len + 1 < size; i++) {
        const struct drops_shown *shown = &reclaim->drops.dropped_shown[i];

        if (i > 0 && shown->job_id == shown[-1].job_id)
            continue;
        len += (size_t)snprintf(to + len, size - len, "%s%s (job %" PRId64 ")", len ? ", " : "",
                                shown->name, shown->job_id);
    }
}

static void say_recovery(struct reclaim *reclaim)
{
    const struct recovery_state *state = &reclaim->known.state;
    char note[KUBE_NOTE_SIZE];

    if (!reclaim->facts.is_leader || reclaim->said_recovery == state->id)
        return;
    if (reclaim->said_recovery != 0) {
        (void)snprintf(note, sizeof(note), "recovery %" PRId64 " is over",
                       reclaim->said_recovery);
        say(reclaim, &(struct kube_event){false, "Recovery", "RecoveryOver", note});
    }
    reclaim->said_recovery = state->id;
    reclaim->said_held = false;
    if (state->id == 0)
        return;
    (void)snprintf(note, sizeof(note),
                   "recovery %" PRId64 ": %" PRIu32
                   " dropped fragments to be reclaimed, %" PRIu32
                   " jobs being created, %" PRIu32 " compute nodes",
                   state->id, state->dropped, state->creating, state->live);
    say(reclaim, &(struct kube_event){false, "Recovery", "RecoveryBegan", note});
}

static void say_held(struct reclaim *reclaim)
{
    char note[KUBE_NOTE_SIZE], names[200];

    if (reclaim->said_held || reclaim->facts.gate.refused_at.ns == 0 ||
        !reclaim->facts.is_leader)
        return;
    reclaim->said_held = true;
    name_drops(reclaim, names, sizeof(names));
    (void)snprintf(note, sizeof(note),
                   "recovery %" PRId64 ": the purge of %s is refused until all compute nodes "
                   "have reset; %" PRIu32 " have not yet",
                   reclaim->known.state.id, names, reclaim->known.state.missing);
    say(reclaim, &(struct kube_event){true, "Recovery", "PurgeHeld", note});
}

static void say_node(struct reclaim *reclaim, const struct reclaim_node *node,
                     enum order_evidence evidence)
{
    char note[KUBE_NOTE_SIZE];

    (void)snprintf(note, sizeof(note), "compute node %" PRId32 " at %.200s:%" PRId32 ": %s",
                   node->worker_id, node->host, node->port, order_evidence_name(evidence));
    switch (evidence) {
    case ORDER_UNKNOWN:
    case ORDER_EVIDENCES: break;
    case ORDER_NONE:
        say(reclaim, &(struct kube_event){false, "Recovery", "ComputeUnaffected", note});
        break;
    case ORDER_GONE:
        say(reclaim, &(struct kube_event){false, "Recovery", "ComputeGone", note});
        break;
    case ORDER_RESET:
        say(reclaim, &(struct kube_event){false, "Recovery", "ComputeReset", note});
        break;
    }
}

void tell_kill(struct reclaim *reclaim, const struct reclaim_node *node)
{
    char note[KUBE_NOTE_SIZE];

    (void)snprintf(note, sizeof(note),
                   "compute node %" PRId32 " at %.120s:%" PRId32
                   " has not answered its reset for recovery.killAfter: pod %.120s, uid %s, is "
                   "deleted",
                   node->worker_id, node->host, node->port, node->pod_name, node->kill.uid);
    say(reclaim, &(struct kube_event){true, "Recovery", "ComputeKilled", note});
}

void tell_kill_denied(struct reclaim *reclaim, const struct reclaim_node *node, const char *why)
{
    char note[KUBE_NOTE_SIZE];

    (void)snprintf(note, sizeof(note),
                   "compute node %" PRId32 " at %.120s:%" PRId32
                   " does not end its actors, and its pod %.120s can't be deleted: %.120s",
                   node->worker_id, node->host, node->port, node->pod_name, why);
    say(reclaim, &(struct kube_event){true, "Recovery", "ComputeNotKilled", note});
}

static void say_nodes(struct reclaim *reclaim)
{
    for (size_t i = 0; i < reclaim->node_count && i < ORDER_NODES_MAX; i++) {
        struct reclaim_node *node = reclaim->nodes[i];
        enum order_evidence evidence = reclaim->plan->nodes[i].evidence;

        if (node->said == evidence)
            continue;
        node->said = evidence;
        reclaim->counts[RECLAIM_KILL_CONFIRMED] +=
            evidence == ORDER_GONE && node->kill.agreed_at.ns != 0;
        say_node(reclaim, node, evidence);
    }
}

// Said once a hold.
static void say_bound(struct reclaim *reclaim)
{
    bool is_start = reclaim->cause == ORDER_TAKEOVER;
    char note[KUBE_NOTE_SIZE], names[200];

    if (!reclaim->plan->bound_reached || reclaim->said_bound)
        return;
    reclaim->said_bound = true;
    reclaim->counts[RECLAIM_BOUNDS]++;
    name_drops(reclaim, names, sizeof(names));
    (void)snprintf(note, sizeof(note),
                   "%s is over, and %" PRIu32 " compute nodes have not acknowledged their "
                   "reset: it goes on without them (dropped: %s)",
                   is_start ? "recovery.resetBeforeStart" : "recovery.maxHold",
                   reclaim->plan->evidence[ORDER_UNKNOWN], names);
    if (is_start)
        say(reclaim, &(struct kube_event){true, "Recovery", "StartUnproven", note});
    else
        say(reclaim, &(struct kube_event){true, "Recovery", "PurgeUnproven", note});
}

static void say_start(struct reclaim *reclaim)
{
    uint64_t dead = reclaim->facts.death.incarnation;
    char note[KUBE_NOTE_SIZE];

    if (!reclaim->plan->hold_start || reclaim->said_start == dead)
        return;
    reclaim->said_start = dead;
    reclaim->counts[RECLAIM_STARTS_HELD]++;
    (void)snprintf(note, sizeof(note),
                   "incarnation %" PRIu64 " led and is dead: its successor waits until %zu "
                   "compute nodes have reset, for %" PRId64 " ms at most",
                   dead, reclaim->node_count,
                   instant_since(reclaim->plan->hold_until, reclaim->facts.now) / NS_PER_MS);
    say(reclaim, &(struct kube_event){false, "Recovery", "StartHeld", note});
}

static void say_step(struct reclaim *reclaim)
{
    const struct order_plan *plan = reclaim->plan;

    if (plan->step == reclaim->said_step && plan->wait == reclaim->said_wait &&
        plan->block == reclaim->said_block)
        return;
    reclaim->said_step = plan->step;
    reclaim->said_wait = plan->wait;
    reclaim->said_block = plan->block;
    log_debug("recovery: order", kv_str("step", order_step_name(plan->step)),
              kv_str("waits_for", order_wait_name(plan->wait)),
              kv_str("init", order_block_name(plan->block)));
}

void tell_turn(struct reclaim *reclaim)
{
    say_recovery(reclaim);
    say_held(reclaim);
    say_start(reclaim);
    say_nodes(reclaim);
    say_bound(reclaim);
    say_step(reclaim);
}

// --- metrics ---

static void write_kills(struct prom *prom, const struct reclaim *reclaim)
{
    static const struct {
        const char *result;
        enum reclaim_count count;
    } kills[] = {
        {"sent", RECLAIM_KILL_SENT},       {"agreed", RECLAIM_KILL_AGREED},
        {"changed", RECLAIM_KILL_CHANGED}, {"denied", RECLAIM_KILL_DENIED},
        {"failed", RECLAIM_KILL_FAILED},   {"confirmed", RECLAIM_KILL_CONFIRMED},
    };

    prom_family(prom, PROM_COUNTER, "metafence_recovery_compute_kills",
                "Deletes of compute nodes' pods whose actors did not end, and what became of "
                "them.");
    for (size_t i = 0; i < sizeof(kills) / sizeof(kills[0]); i++)
        prom_count(prom, PROM_LABELS({"result", kills[i].result}),
                   reclaim->counts[kills[i].count]);
}

static void write_counts(struct prom *prom, const struct reclaim *reclaim)
{
    static const char *const results[] = {
        [RECLAIM_INIT_SENT] = "sent",           [RECLAIM_INIT_ANSWERED] = "answered",
        [RECLAIM_INIT_FAILED] = "not_sent",     [RECLAIM_INIT_UNKNOWN] = "unknown",
        [RECLAIM_INIT_CANCELLED] = "cancelled",
    };

    prom_family(prom, PROM_COUNTER, "metafence_recovery_resets",
                "Resets of compute nodes that were asked for, and what became of them.");
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
        prom_count(prom, PROM_LABELS({"result", results[i]}), reclaim->counts[i]);
    prom_family(prom, PROM_COUNTER, "metafence_recovery_acknowledgements",
                "What compute nodes have proven, written to Postgres.");
    prom_count(prom, PROM_LABELS({"result", "done"}), reclaim->counts[RECLAIM_WRITTEN]);
    prom_count(prom, PROM_LABELS({"result", "failed"}), reclaim->counts[RECLAIM_WRITE_FAILED]);
    prom_one_count(prom, "metafence_recovery_starts_held",
                   "Starts of our meta that waited for resets.",
                   reclaim->counts[RECLAIM_STARTS_HELD]);
    write_kills(prom, reclaim);
    prom_one_count(prom, "metafence_recovery_unproven",
                   "Holds that ended at their bound before all compute nodes had acknowledged.",
                   reclaim->counts[RECLAIM_BOUNDS]);
}

static void write_metrics(struct prom *prom, void *arg)
{
    static const struct recovery_state none;
    const struct reclaim *reclaim = arg;
    const struct recovery_state *state =
        reclaim->facts.is_leader ? &reclaim->known.state : &none;
    // Also between two refusals, while meta's next attempt is on its way to the gate.
    bool is_held = state->id != 0 && reclaim->facts.gate.refused_at.ns != 0 &&
                   !reclaim->facts.gate.is_open;

    write_counts(prom, reclaim);
    prom_one_int(
        prom, "metafence_recovery_not_enforced",
        "1 while recovery.mode enforce has no effect: by the schema's mode, the version "
        "of RisingWave, or a pooler.",
        known_is_weakened(reclaim->agent->config.recovery.mode, &reclaim->known));
    prom_one_int(prom, "metafence_recovery_open", "1 while a global recovery is open.",
                 state->id != 0);
    prom_one_int(prom, "metafence_recovery_held",
                 "1 while its purge is refused for want of resets.", is_held);
    prom_one_int(prom, "metafence_recovery_missing",
                 "Compute nodes that have not acknowledged their reset in it.", state->missing);
    prom_one_int(prom, "metafence_recovery_dropped",
                 "Dropped fragments whose state tables are not reclaimed yet.", state->dropped);
    prom_one_seconds(prom, "metafence_recovery_dropped_age_seconds",
                     "Age of the oldest of them.", state->dropped_age_ms * NS_PER_MS);
    prom_one_int(prom, "metafence_recovery_creating", "Jobs that are being created.",
                 state->creating);
    prom_family(prom, PROM_GAUGE, "metafence_recovery_step",
                "1 for how far an ordered recovery has come.");
    for (int i = 0; i < ORDER_STEPS; i++)
        prom_int(prom, PROM_LABELS({"step", order_step_name((enum order_step)i)}),
                 reclaim->plan->step == (enum order_step)i);
}

void tell_metrics(struct reclaim *reclaim)
{
    metrics_add_source(&reclaim->agent->metrics, write_metrics, reclaim);
}
