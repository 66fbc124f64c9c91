// SPDX-License-Identifier: Apache-2.0
// What becomes an event. After each turn what is so is compared with what was said last. One
// event for each change of the role: where a leader is killed, the kill's event is the one.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/kube/parts.h"

#define HOLD_SAID_NS (2 * NS_PER_SEC)
#define UNCOVERED_NS (3 * NS_PER_SEC) // shorter gaps, as at each start, are not worth an event

static void say(struct kube *kube, bool is_warning, const char *action, const char *reason,
                const char *note)
{
    kube_say(kube, &(struct kube_event){is_warning, action, reason, note});
}

static const char *kill_reason(enum fence_reason reason)
{
    switch (reason) {
    case FENCE_REASON_NONE: return "Unknown";
    case FENCE_REASON_MANUAL: return "ManualFence";
    case FENCE_REASON_LEASE_EXPIRED: return "LeaseDeadlineExceeded";
    case FENCE_REASON_AGENT_LOST: return "AgentLost";
    case FENCE_REASON_SUPERSEDED: return "LeadershipLost";
    case FENCE_REASON_TWIN_IDENTITY: return "TwinIdentity";
    case FENCE_REASON_DATABASE_REPLACED: return "DatabaseReplaced";
    case FENCE_REASON_PHANTOM_LEADER: return "PhantomLeader";
    case FENCE_REASON_DIVERGED_LEADER: return "DivergedLeader";
    case FENCE_REASON_HANDOVER: return "Handover";
    }
    return "Unknown";
}

// "rule Superseded, row m2:5690, term 4, incarnation 7"
static void describe(const struct agent *agent, char *buf, size_t size)
{
    const struct election_fact *election = &agent->facts.election;

    (void)snprintf(buf, size, "rule %s, row %.100s, term %" PRIu64 ", incarnation %" PRIu64,
                   rule_name(agent->plan.rule),
                   election->known && election->owner_id[0] ? election->owner_id : "none",
                   election->term, agent->memory.incarnation);
}

// Returns whether a kill is said: the first turn says none that an earlier agent has said.
static bool say_kill(struct kube *kube)
{
    const struct agent *agent = kube->agent;
    const struct report_fence *fence = &agent->reporter.fence;
    struct kube_said *said = &kube->said;
    char basis[200];
    char note[KUBE_NOTE_SIZE];

    if (said->fence_incarnation == fence->incarnation)
        return false;
    said->fence_incarnation = fence->incarnation;
    said->has_said_dead = said->has_said_gone = false;
    if (!said->has_begun && fence->reason != FENCE_REASON_AGENT_LOST) {
        said->has_said_dead = said->has_said_gone = true;
        return false;
    }
    describe(agent, basis, sizeof(basis));
    (void)snprintf(note, sizeof(note), "meta (incarnation %" PRIu64 ") killed%s: %s%s%s",
                   fence->incarnation,
                   fence->by_shim ? " by metafence-run at its deadline" : "", basis,
                   agent->manual_reason[0] ? "; " : "", agent->manual_reason);
    say(kube, true, "KilledContainer", kill_reason(fence->reason), note);
    return true;
}

static void say_confirmed(struct kube *kube)
{
    const struct agent *agent = kube->agent;
    const struct report_fence *fence = &agent->reporter.fence;
    struct kube_said *said = &kube->said;
    bool can_ask = agent->facts.database.state == DATABASE_ANSWERS && !fence->is_untagged;
    char note[KUBE_NOTE_SIZE];

    if (!fence->incarnation || !fence->dead_at.ns)
        return;
    if (fence->sessions_gone_at.ns && !said->has_said_gone) {
        said->has_said_dead = said->has_said_gone = true;
        (void)snprintf(note, sizeof(note),
                       "meta (incarnation %" PRIu64 ") is dead, its sessions are gone",
                       fence->incarnation);
        say(kube, false, "ConfirmedFence", "SessionsTerminated", note);
    } else if (!can_ask && !said->has_said_dead) {
        said->has_said_dead = true;
        (void)snprintf(note, sizeof(note), "meta (incarnation %" PRIu64 ") is dead%s",
                       fence->incarnation,
                       fence->is_untagged ? "" : "; Postgres can't be asked for its sessions");
        say(kube, false, "ConfirmedFence", "ProcessExited", note);
    }
}

static void say_not_fenced(struct kube *kube)
{
    const struct plan *plan = &kube->agent->plan;
    struct kube_said *said = &kube->said;
    char note[KUBE_NOTE_SIZE];

    if (said->not_fenced == plan->not_fenced &&
        (!plan->not_fenced || said->method == plan->method))
        return;
    said->not_fenced = plan->not_fenced;
    said->method = plan->method;
    if (!plan->not_fenced)
        return;
    (void)snprintf(note, sizeof(note), "NotFenced: %.200s; method %s",
                   not_fenced_why(kube->agent), fence_method_name(plan->method));
    say(kube, true, "EscalatedFence", "StillAlive", note);
}

static void say_role(struct kube *kube, bool is_killed)
{
    struct kube_said *said = &kube->said;
    enum role_label before = said->role;
    enum role_label role = kube->label.wish;
    bool is_first = !said->has_role;
    const char *reason = "LeadershipUnknown";
    char basis[200];
    char note[KUBE_NOTE_SIZE];

    if (!kube->label.has_wish || (!is_first && before == role))
        return;
    said->has_role = true;
    said->role = role;
    // A new agent that finds its label as it should be has changed nothing.
    if (is_first && strcmp(kube->label.seen_own, kube_role_text(role)) == 0)
        return;
    if (is_killed && role == LABEL_UNKNOWN)
        return;
    if (role == LABEL_LEADER)
        reason = "LeadershipAcquired";
    else if (role == LABEL_FOLLOWER)
        reason = before == LABEL_LEADER ? "LeadershipLost" : "BecameFollower";
    describe(kube->agent, basis, sizeof(basis));
    (void)snprintf(note, sizeof(note), "role %s -> %s: %s",
                   is_first ? "(none)" : kube_role_text(before), kube_role_text(role), basis);
    say(kube, before == LABEL_LEADER && !is_first, "ChangedRole", reason, note);
}

static void say_pause(struct kube *kube)
{
    const struct agent *agent = kube->agent;
    struct kube_said *said = &kube->said;
    struct instant end = agent->facts.orders.pause_end;
    bool is_paused = instant_before(agent->facts.now, end);
    char note[KUBE_NOTE_SIZE];
    char until[KUBE_TIME_SIZE];

    if (is_paused == said->is_paused)
        return;
    said->is_paused = is_paused;
    if (is_paused) {
        kube_time_format(kube_wall_ns() + instant_since(end, agent->facts.now), until);
        (void)snprintf(note, sizeof(note), "fencing is paused until %s: %s", until,
                       agent->pause_reason);
        say(kube, true, "PausedFencing", "Operator", note);
    } else {
        say(kube, false, "ResumedFencing", end.ns ? "Expired" : "Operator",
            "fencing is on again");
    }
}

static void say_cover(struct kube *kube)
{
    const struct agent *agent = kube->agent;
    struct kube_said *said = &kube->said;
    uint32_t now = agent->plan.not_covered & ~(uint32_t)NOT_COVERED_PAUSED;
    char note[KUBE_NOTE_SIZE] = "not covered:";
    size_t used = strlen(note);
    const char *reason = NULL;

    if (now != said->uncovered_now) {
        said->uncovered_now = now;
        said->uncovered_at = agent->facts.now;
    }
    if (now == said->uncovered ||
        (now && instant_since(agent->facts.now, said->uncovered_at) < UNCOVERED_NS))
        return;
    for (uint32_t bit = 1; not_covered_name(bit); bit <<= 1) {
        if (!(now & bit))
            continue;
        if (!(said->uncovered & bit) || !reason)
            reason = not_covered_name(bit);
        used +=
            (size_t)snprintf(note + used, sizeof(note) - used, " %s", not_covered_name(bit));
    }
    said->uncovered = now;
    if (reason)
        say(kube, true, "LostCover", reason, note);
    else
        say(kube, false, "RegainedCover", "Covered", "covered again");
}

static void say_hold(struct kube *kube)
{
    const struct agent *agent = kube->agent;
    const struct fence_status *status = &agent->facts.fence.status;
    char note[KUBE_NOTE_SIZE];

    if (!agent->facts.fence.known)
        return;
    if (kube->said.hold != status->hold) {
        kube->said.hold = status->hold;
        kube->said.hold_at = agent->facts.now;
    }
    // The start gate's first look at the row takes a moment, at each start.
    if (status->hold == SHIM_HOLD_NONE ||
        !instant_reached(agent->facts.now, instant_add(kube->said.hold_at, HOLD_SAID_NS)))
        return;
    kube->said.hold_at = INSTANT_NEVER;
    (void)snprintf(note, sizeof(note),
                   "the start of meta is held: %s, after incarnation %" PRIu64,
                   shim_hold_name((enum shim_hold)status->hold), status->incarnation);
    say(kube, false, "HeldStart", shim_hold_name((enum shim_hold)status->hold), note);
}

static void say_config(struct kube *kube)
{
    const struct agent *agent = kube->agent;
    char note[KUBE_NOTE_SIZE];

    if (kube->said.has_begun)
        return;
    if (agent->config_error[0]) {
        (void)snprintf(note, sizeof(note), "%s; running on the %s", agent->config_error,
                       agent->is_last_good ? "last good configuration" : "built-in values");
        say(kube, true, "RefusedConfig", "ConfigInvalid", note);
    }
    if (agent->config.override_error[0]) {
        (void)snprintf(note, sizeof(note), "%s; running without the pod's annotations",
                       agent->config.override_error);
        say(kube, true, "RefusedConfig", "OverridesInvalid", note);
    }
}

void kube_say_turn(struct kube *kube)
{
    bool is_killed = false;

    if (!kube)
        return;
    say_config(kube);
    is_killed = say_kill(kube);
    say_role(kube, is_killed);
    say_not_fenced(kube);
    say_confirmed(kube);
    say_pause(kube);
    say_cover(kube);
    say_hold(kube);
    kube->said.has_begun = true;
}
