// SPDX-License-Identifier: Apache-2.0
#include "agent/reconcile/converge.h"

// --- what is seen ---

// A global recovery is under way.
static bool is_recovering(const struct converge_facts *facts)
{
    return facts->status == CONVERGE_STATUS_RECOVERING;
}

// Evidence from before a cure is of what the cure was for.
static bool is_fresh(const struct converge_memory *memory, const struct converge_facts *facts,
                     struct instant read_at)
{
    return memory->asked_at.ns == 0 ||
           (instant_before(memory->asked_at, read_at) &&
            (facts->outcome == CONVERGE_IDLE || instant_before(facts->outcome_at, read_at)));
}

// The leader's actors are stale for a moment after each change of the table: two looks.
static enum converge_reason look_at_ghosts(const struct converge_config *config,
                                           const struct converge_facts *facts,
                                           struct converge_memory *memory)
{
    if (is_recovering(facts)) { // places them anew
        memory->ghosts_seen.ns = 0;
        return CONVERGE_FINE;
    }
    if (!facts->actors_known || !is_fresh(memory, facts, facts->actors_read_at) ||
        instant_before(facts->actors_read_at, facts->status_since))
        return CONVERGE_FINE;
    if (facts->actor_ghosts == 0) {
        memory->ghosts_seen.ns = 0;
        memory->recovered = 0;
        return CONVERGE_FINE;
    }
    if (memory->ghosts_seen.ns == 0)
        memory->ghosts_seen = facts->actors_read_at;
    return instant_since(facts->actors_read_at, memory->ghosts_seen) >= config->recheck_ns &&
                   instant_before(memory->ghosts_seen, facts->actors_read_at)
               ? CONVERGE_GHOST
               : CONVERGE_UNSURE;
}

static enum converge_reason look_at_unknown(const struct converge_config *config,
                                            const struct converge_facts *facts,
                                            struct converge_memory *memory)
{
    if (facts->unknown_rows == 0) {
        memory->unknown_seen.ns = 0;
        return CONVERGE_FINE;
    }
    if (memory->unknown_seen.ns == 0)
        memory->unknown_seen = facts->log_read_at;
    return facts->unknown_rows > facts->untagged_rows ||
                   instant_since(facts->log_read_at, memory->unknown_seen) >=
                       config->untagged_after_ns
               ? CONVERGE_UNKNOWN_ROW
               : CONVERGE_UNSURE;
}

// It beats and is answered, so it never registers again, and a Recover reads a table in which
// it is not: its leader has to forget it.
static bool is_orphaned(const struct converge_config *config,
                        const struct converge_facts *facts, struct converge_memory *memory)
{
    if (!facts->orphans_known || !is_fresh(memory, facts, facts->orphans_read_at))
        return false;
    if (facts->orphan_rows == 0 || facts->lost_rows == 0) {
        memory->orphans_seen.ns = 0;
        return false;
    }
    if (memory->orphans_seen.ns == 0)
        memory->orphans_seen = facts->orphans_read_at;
    return instant_since(facts->orphans_read_at, memory->orphans_seen) >=
           config->orphan_after_ns;
}

// Recover would only wait for the end of the one that is under way, and a restart begin it
// anew.
static enum converge_reason look_at_recovery(const struct converge_config *config,
                                             const struct converge_facts *facts, bool is_lost)
{
    bool is_long = instant_since(facts->now, facts->status_since) >= config->slow_after_ns;

    if (is_lost && facts->lost_rows > 0)
        return is_long ? CONVERGE_STUCK : CONVERGE_RECOVERING;
    return is_long ? CONVERGE_SLOW : CONVERGE_FINE;
}

static enum converge_reason find_reason(const struct converge_config *config,
                                        const struct converge_facts *facts,
                                        struct converge_memory *memory)
{
    enum converge_reason unknown = look_at_unknown(config, facts, memory);
    enum converge_reason ghosts = look_at_ghosts(config, facts, memory);
    bool is_orphan = is_orphaned(config, facts, memory);
    bool is_lost = is_fresh(memory, facts, facts->log_read_at) &&
                   facts->foreign_log_id > memory->cured_log_id;

    // A log with holes proves nothing by what it lacks, but what it has was written.
    if (unknown != CONVERGE_FINE)
        return unknown;
    if (is_recovering(facts))
        return is_orphan ? CONVERGE_ORPHAN : look_at_recovery(config, facts, is_lost);
    if (is_lost && facts->reborn_rows > 0)
        return CONVERGE_REBORN;
    if (ghosts != CONVERGE_FINE)
        return ghosts;
    if (is_orphan)
        return CONVERGE_ORPHAN;
    return facts->log_known || facts->actors_known ? CONVERGE_FINE : CONVERGE_UNREADABLE;
}

// --- what is done ---

static void ask(struct converge_memory *memory, const struct converge_facts *facts,
                enum converge_cure cure)
{
    memory->asked = cure;
    memory->asked_at = facts->now;
    memory->asked_log_id = facts->foreign_log_id;
    memory->is_counted = false;
    memory->ghosts_seen.ns = 0;
}

static struct converge_plan restart(const struct converge_config *config,
                                    const struct converge_facts *facts,
                                    struct converge_memory *memory, enum converge_reason reason)
{
    if (memory->restarts >= config->max_restarts)
        return (struct converge_plan){.reason = CONVERGE_GAVE_UP};
    if (memory->restarts++ == 0)
        memory->restarts_since = facts->now;
    ask(memory, facts, CURE_RESTART_LEADER);
    return (struct converge_plan){
        .cure = CURE_RESTART_LEADER, .reason = reason, .wants_restart = true};
}

// Only ghosts that outlive a Recover say that it had no effect: a row that others have deleted
// since is another case, and a Recover that is refused or gets no answer says nothing about the
// leader's memory.
static struct converge_plan recover(const struct converge_config *config,
                                    const struct converge_facts *facts,
                                    struct converge_memory *memory, enum converge_reason reason)
{
    if (reason == CONVERGE_GHOST && memory->recovered >= config->max_recovers)
        return restart(config, facts, memory, CONVERGE_NO_EFFECT);
    if (memory->recovers >= config->max_recovers)
        return (struct converge_plan){.reason = CONVERGE_GAVE_UP};
    memory->recovers++;
    ask(memory, facts, CURE_RECOVER);
    return (struct converge_plan){.cure = CURE_RECOVER, .reason = reason};
}

bool converge_is_alarm(enum converge_reason reason)
{
    return reason == CONVERGE_SLOW || reason == CONVERGE_STUCK || reason == CONVERGE_GAVE_UP;
}

static struct converge_plan act(const struct converge_config *config,
                                const struct converge_facts *facts,
                                struct converge_memory *memory, enum converge_reason reason)
{
    switch (reason) {
    case CONVERGE_ORPHAN:
    case CONVERGE_UNKNOWN_ROW: return restart(config, facts, memory, reason);
    case CONVERGE_REBORN:
    case CONVERGE_GHOST: return recover(config, facts, memory, reason);
    case CONVERGE_FINE:
    case CONVERGE_NOT_LEADER:
    case CONVERGE_UNREADABLE:
    case CONVERGE_RUNNING:
    case CONVERGE_SETTLING:
    case CONVERGE_RECOVERING:
    case CONVERGE_SLOW:
    case CONVERGE_STUCK:
    case CONVERGE_UNSURE:
    case CONVERGE_NO_EFFECT:
    case CONVERGE_GAVE_UP:
    case CONVERGE_REASONS: break;
    }
    return (struct converge_plan){.reason = reason};
}

// --- what was done before ---

static void begin(struct converge_memory *memory, const struct converge_config *config,
                  const struct converge_facts *facts)
{
    if (memory->restarts > 0 &&
        instant_since(facts->now, memory->restarts_since) > config->window_ns)
        memory->restarts = 0;
    if (memory->recovers > 0 && instant_since(facts->now, memory->asked_at) > config->window_ns)
        memory->recovers = 0;
    if (memory->term == facts->term && memory->incarnation == facts->incarnation)
        return;
    *memory = (struct converge_memory){.term = facts->term,
                                       .incarnation = facts->incarnation,
                                       .restarts = memory->restarts,
                                       .restarts_since = memory->restarts_since};
}

// A recovery that began after the log was read has read the table anew: what was in that log is
// no evidence any more, whoever asked for the recovery.
static void note_recovery(struct converge_memory *memory, const struct converge_facts *facts)
{
    if (is_recovering(facts)) {
        memory->was_recovering = true;
        return;
    }
    if (facts->status != CONVERGE_STATUS_RUNNING)
        return;
    if (!memory->was_recovering)
        memory->running_log_id = memory->last_log_id;
    else if (memory->running_log_id > memory->cured_log_id)
        memory->cured_log_id = memory->running_log_id;
    memory->was_recovering = false;
    memory->last_log_id = facts->foreign_log_id;
}

static void count_done(struct converge_memory *memory)
{
    if (memory->is_counted)
        return;
    memory->is_counted = true;
    memory->recovered++;
    if (memory->asked_log_id > memory->cured_log_id)
        memory->cured_log_id = memory->asked_log_id;
}

// What is under way of the last cure; CONVERGE_FINE: nothing.
static enum converge_reason look_at_cure(const struct converge_config *config,
                                         const struct converge_facts *facts,
                                         struct converge_memory *memory)
{
    struct instant since = memory->asked_at;

    if (memory->asked_at.ns == 0)
        return CONVERGE_FINE;
    if (facts->outcome != CONVERGE_IDLE && instant_before(since, facts->outcome_at))
        since = facts->outcome_at;
    switch (facts->outcome) {
    case CONVERGE_PENDING: return CONVERGE_RUNNING;
    case CONVERGE_UNKNOWN_SENT:
        // A recovery has ended that began after it was asked for.
        if (facts->status == CONVERGE_STATUS_RUNNING &&
            instant_before(memory->asked_at, facts->status_since))
            count_done(memory);
        // It may still run; asked again, it would only wait behind that one.
        else if (instant_since(facts->now, since) < config->unanswered_after_ns)
            return CONVERGE_RUNNING;
        break;
    case CONVERGE_DONE: count_done(memory); break;
    case CONVERGE_IDLE:
    case CONVERGE_FAILED: break;
    }
    return instant_since(facts->now, since) < config->settle_ns ? CONVERGE_SETTLING
                                                                : CONVERGE_FINE;
}

struct converge_plan converge_decide(const struct converge_config *config,
                                     const struct converge_facts *facts,
                                     struct converge_memory *memory)
{
    enum converge_reason reason = CONVERGE_FINE;
    enum converge_reason cure = CONVERGE_FINE;

    if (!facts->is_leader) {
        memory->unknown_seen.ns = 0;
        memory->ghosts_seen.ns = 0;
        memory->orphans_seen.ns = 0;
        return (struct converge_plan){.reason = CONVERGE_NOT_LEADER};
    }
    begin(memory, config, facts);
    note_recovery(memory, facts);
    // The process that is to be ended is still there.
    if (memory->asked == CURE_RESTART_LEADER)
        return (struct converge_plan){.reason = CONVERGE_RUNNING, .wants_restart = true};
    cure = look_at_cure(config, facts, memory);
    reason = find_reason(config, facts, memory);
    // This one can't wait: the next global recovery may abort the leader, and a Recover that is
    // under way does not help. An alarm outranks the cure that it is about.
    if (reason != CONVERGE_UNKNOWN_ROW && cure != CONVERGE_FINE && !converge_is_alarm(reason))
        return (struct converge_plan){.reason = cure};
    return act(config, facts, memory, reason);
}
