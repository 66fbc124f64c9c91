// SPDX-License-Identifier: Apache-2.0
// The leader's memory against the rows: evidence, and the lightest cure. No other call than
// Recover, ListActorStates and the status goes to a leader that may have diverged: those abort
// none.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/workers/parts.h"
#include "base/log.h"

#define ACTORS_AGAIN_NS NS_PER_SEC // beside a suspicion
#define ACTORS_CALM_NS  (10 * NS_PER_SEC)

#define STATUS_NS NS_PER_SEC // for the answer

void cure_init(struct workers *workers)
{
    const struct converge_config config = CONVERGE_CONFIG;

    workers->cure.config = config;
}

void cure_free(struct workers *workers)
{
    grpc_client_free(workers->cure.asker);
}

static void ask_state(struct workers *workers);

// --- the evidence ---

// A cluster's actors are a long answer. One that can't be had, or not be read, is not asked for
// again each second.
static int64_t until_next_actors(const struct workers_cure *cure,
                                 const struct grpc_call_result *result)
{
    bool is_cheap = result->outcome == GRPC_CALL_ERROR || result->outcome == GRPC_CALL_NOT_SENT;

    return is_cheap || cure->memory.ghosts_seen.ns != 0 ? ACTORS_AGAIN_NS : ACTORS_CALM_NS;
}

static void take_actors(struct workers *workers, const struct grpc_call_result *result)
{
    struct workers_cure *cure = &workers->cure;
    struct grpc_workers actors = {.ids = cure->actors, .room = WORKERS_ACTORS_MAX};
    struct err err = {0};

    cure->are_actors_asked = false;
    cure->actors_next_at = instant_add(clock_now(), until_next_actors(cure, result));
    cure->actors_known = result->outcome == GRPC_CALL_OK &&
                         grpc_actor_workers(result->message, result->len, &actors, &err) == 0;
    cure->actor_count = actors.count;
    cure->actors_at = result->sent_at;
}

void cure_look(struct workers *workers)
{
    struct workers_cure *cure = &workers->cure;
    struct instant now = clock_now();
    struct err err = {0};

    cure->actors_known = false;
    // Busy with a call of an earlier round: the state goes without them.
    cure->are_actors_asked = instant_reached(now, cure->actors_next_at) &&
                             grpc_list_actors(workers->calls, now, &err) == 0;
    if (!cure->are_actors_asked)
        ask_state(workers);
}

// --- the recovery status ---

static enum converge_status status_of(const struct grpc_result *result)
{
    if (result->answer != GRPC_LEADING || result->recovery_status < 1)
        return CONVERGE_STATUS_UNKNOWN;
    return result->recovery_status < 3 ? CONVERGE_STATUS_RECOVERING : CONVERGE_STATUS_RUNNING;
}

static void on_status(const struct grpc_result *result, void *arg)
{
    struct workers *workers = arg;
    struct workers_cure *cure = &workers->cure;
    enum converge_status status = status_of(result);

    if (status != cure->status)
        cure->status_since = result->sent_at;
    cure->status = status;
}

// After the state was read: a leader that says then that it runs has begun no recovery before
// the log that was in it.
static void ask_status(struct workers *workers)
{
    struct err err = {0};

    if (!grpc_client_is_busy(workers->cure.asker) &&
        grpc_client_ask(workers->cure.asker, clock_now(), &err) < 0)
        workers->cure.status = CONVERGE_STATUS_UNKNOWN;
}

int64_t cure_recovering_ns(const struct workers_cure *cure)
{
    return cure->status == CONVERGE_STATUS_RECOVERING
               ? instant_since(clock_now(), cure->status_since)
               : 0;
}

void cure_begin_leading(struct workers *workers)
{
    const struct grpc_client_config config = {
        .port = (uint16_t)workers->agent->config.meta_service_port,
        .timeout_ns = STATUS_NS,
        .on_result = on_status,
        .arg = workers,
    };

    workers->cure.asker = grpc_client_new(workers->agent->loop, &config);
}

void cure_end_leading(struct workers *workers)
{
    struct workers_cure *cure = &workers->cure;

    cure->are_actors_asked = false;
    grpc_client_free(cure->asker);
    cure->asker = NULL;
    cure->status = CONVERGE_STATUS_UNKNOWN;
    cure->status_since = (struct instant){0};
}

static void on_recover(struct workers *workers, const struct grpc_call_result *result)
{
    struct workers_cure *cure = &workers->cure;
    struct workers_deed *deed = &cure->deed;

    cure->outcome_at = clock_now();
    switch (result->outcome) {
    case GRPC_CALL_OK: cure->outcome = CONVERGE_DONE; break;
    case GRPC_CALL_UNKNOWN: cure->outcome = CONVERGE_UNKNOWN_SENT; break;
    case GRPC_CALL_ERROR:
    case GRPC_CALL_NOT_SENT: cure->outcome = CONVERGE_FAILED; break;
    }
    (void)snprintf(deed->outcome, sizeof(deed->outcome), "%s%s%s",
                   grpc_outcome_name(result->outcome), result->detail[0] ? ": " : "",
                   result->detail);
    say_deed(workers, WORKERS_RECOVERED, result->outcome == GRPC_CALL_OK, deed);
    say_record(workers, deed, NULL);
}

void cure_call_done(struct workers *workers, const struct grpc_call_result *result)
{
    switch (result->method) {
    case GRPC_LIST_ACTORS:
        if (!workers->cure.are_actors_asked)
            return; // leadership was lost meanwhile, and may be back: a round of its own goes
                    // on
        take_actors(workers, result);
        ask_state(workers);
        break;
    case GRPC_RECOVER: on_recover(workers, result); break;
    case GRPC_DELETE_WORKER: acts_removed(workers, result); break;
    case GRPC_METHODS: break;
    }
}

// --- the cure ---

static void describe(struct workers *workers, const struct converge_plan *plan)
{
    const struct store_state *state = &workers->state;
    struct workers_deed *deed = &workers->cure.deed;

    *deed = (struct workers_deed){
        .action = plan->cure == CURE_RECOVER ? "recover" : "restart",
        .worker_id = -1,
        .reason = converge_reason_name(plan->reason),
    };
    (void)snprintf(deed->endpoint, sizeof(deed->endpoint), "%s",
                   workers->agent->config.core.id);
    (void)snprintf(deed->evidence, sizeof(deed->evidence),
                   "rows by others that the leader can't know: %" PRIu32
                   ", ids deleted by others: %" PRIu32 ", of these registered anew: %" PRIu32
                   ", of these a pod runs by no row: %" PRIu32
                   ", ids of actors without a row: %" PRIu32 ", log entry %" PRIu64,
                   state->unknown_rows, state->lost_rows, state->reborn_rows,
                   workers->cure.facts.orphan_rows, state->ghosts_known ? state->ghosts : 0,
                   state->newest);
}

static void order_restart(struct workers *workers)
{
    struct agent *agent = workers->agent;

    (void)snprintf(workers->cure.restart_tag, sizeof(workers->cure.restart_tag), "%s",
                   agent->facts.fence.status.tag);
    agent->facts.workers.diverged_incarnation = workers->incarnation;
    agent_feed(agent);
}

void cure_turn(struct workers *workers)
{
    struct facts *facts = &workers->agent->facts;

    if (facts->fence.known && facts->fence.status.tag[0] &&
        strcmp(facts->fence.status.tag, workers->cure.restart_tag) != 0)
        facts->workers.diverged_incarnation = 0;
}

static void on_restart_recorded(const struct pg_reply *reply, void *arg)
{
    struct workers *workers = arg;

    (void)reply; // with or without its row: what was seen is reason enough
    if (workers_may_act(workers))
        order_restart(workers);
}

static void begin_cure(struct workers *workers, const struct converge_plan *plan)
{
    struct workers_cure *cure = &workers->cure;
    bool is_enforced = workers->agent->config.reconcile.mode == RECONCILE_ENFORCE;
    struct err err = {0};

    if (plan->cure == CURE_NONE) {
        // Its record was not written in time, or leadership was in doubt just then.
        if (plan->wants_restart && is_enforced)
            order_restart(workers);
        return;
    }
    describe(workers, plan);
    if (!is_enforced) {
        (void)snprintf(cure->deed.outcome, sizeof(cure->deed.outcome),
                       "not done: reconcile.mode is observe");
        cure->outcome = CONVERGE_FAILED;
        cure->outcome_at = clock_now();
        say_deed(workers, plan->cure == CURE_RECOVER ? WORKERS_RECOVERED : WORKERS_RESTARTED,
                 false, &cure->deed);
        return;
    }
    if (plan->cure == CURE_RESTART_LEADER) {
        (void)snprintf(cure->deed.outcome, sizeof(cure->deed.outcome),
                       "ordered: rule DivergedLeader");
        say_deed(workers, WORKERS_RESTARTED, true, &cure->deed);
        say_record(workers, &cure->deed, on_restart_recorded);
        return;
    }
    cure->outcome = CONVERGE_PENDING;
    cure->outcome_at = clock_now();
    if (grpc_recover(workers->calls, cure->outcome_at, &err) == 0)
        return;
    cure->outcome = CONVERGE_FAILED;
    (void)snprintf(cure->deed.outcome, sizeof(cure->deed.outcome), "not sent: %.150s", err.msg);
    say_deed(workers, WORKERS_RECOVERED, false, &cure->deed);
}

// Not worth a line: nothing differs, or nothing can be said at this moment.
static bool is_calm(enum converge_reason reason)
{
    return reason == CONVERGE_FINE || reason == CONVERGE_UNREADABLE ||
           reason == CONVERGE_NOT_LEADER;
}

static void say_reason(struct workers *workers, enum converge_reason reason)
{
    struct workers_cure *cure = &workers->cure;
    enum converge_reason before = cure->said;

    if (before == reason || (is_calm(before) && is_calm(reason)))
        return;
    cure->said = reason;
    if (converge_is_alarm(reason))
        say_alarm(workers, reason);
    else
        log_info("reconcile: the leader's memory",
                 kv_str("state", converge_reason_name(reason)));
}

void cure_judge(struct workers *workers)
{
    struct workers_cure *cure = &workers->cure;
    const struct store_state *state = &workers->state;
    const struct reconcile_plan *pass = &workers->pass.plan;
    // Without a guard the log stands still, and what it shows may be long over.
    bool has_log = state->guard != RECONCILE_GUARD_OFF;
    const struct converge_facts facts = {
        .now = clock_now(),
        .is_leader = workers_may_act(workers),
        .term = state->term,
        .incarnation = workers->incarnation,
        .log_known = state->is_known && has_log,
        .log_read_at = workers->state_at,
        .unknown_rows = has_log ? state->unknown_rows : 0,
        .untagged_rows = has_log ? state->untagged_rows : 0,
        .lost_rows = has_log ? state->lost_rows : 0,
        .reborn_rows = has_log ? state->reborn_rows : 0,
        .foreign_log_id = has_log ? state->newest : 0,
        .orphans_known =
            pass->orphans >= 0 && instant_before(workers->leading_since, pass->orphans_at),
        .orphans_read_at = pass->orphans_at,
        .orphan_rows = pass->orphans > 0 ? (uint32_t)pass->orphans : 0,
        // Only the log tells them from what the leader has deleted itself.
        .actors_known = has_log && cure->actors_known && state->ghosts_known,
        .actors_read_at = cure->actors_at,
        .actor_ghosts = state->ghosts,
        .status = cure->status,
        .status_since = cure->status_since,
        .outcome = cure->outcome,
        .outcome_at = cure->outcome_at,
    };

    cure->facts = facts;
    cure->plan = converge_decide(&cure->config, &facts, &cure->memory);
    if (facts.actors_known && facts.actor_ghosts > 0)
        cure->actors_next_at = instant_add(facts.now, ACTORS_AGAIN_NS);
    say_reason(workers, cure->plan.reason);
    begin_cure(workers, &cure->plan);
    ask_status(workers);
}

// --- the state ---

static int take_state(const struct pg_reply *reply, struct store_state *ret, struct err *err)
{
    const char *fields[STORE_STATE_FIELDS];

    if (pg_answer_rows(reply) != 1)
        return err_set(
            err, ERR_INVALID, 0,
            "no term is recorded yet: no meta has campaigned since the installation");
    if (pg_answer_row(reply, 0, fields, STORE_STATE_FIELDS, err) < 0)
        return -1;
    return store_parse_state(fields, ret, err);
}

static void on_state(const struct pg_reply *reply, void *arg)
{
    struct workers *workers = arg;
    struct store_state state = {0};
    struct err err = {0};

    if (reply->fault.kind != PG_OK) {
        workers_end_fault(workers, "state", &reply->fault, NULL);
        return;
    }
    if (take_state(reply, &state, &err) < 0) {
        workers_end_fault(workers, "state", NULL, &err);
        return;
    }
    workers->state = state;
    workers->state_at = reply->sent_at;
    workers->agent->facts.workers.untagged_writers = state.untagged_writers;
    if (state.is_standby) {
        workers_end_round(workers, "this Postgres is a standby");
        return;
    }
    if (!workers_may_act(workers)) {
        workers_end_round(workers, "the term is not our leader's");
        return;
    }
    cure_judge(workers);
    pass_run(workers);
}

static void ask_state(struct workers *workers)
{
    const struct workers_cure *cure = &workers->cure;
    struct buf ids = {0};

    if (cure->actors_known)
        store_put_ids(&ids, cure->actors, cure->actor_count);
    const char *params[] = {workers->agent->config.election.service,
                            cure->actors_known ? buf_str(&ids) : NULL,
                            workers->agent->is_pooled ? "t" : "f"};
    const struct pg_request request = {
        .sql = store_sql_state, .param_count = 3, .params = params, .is_read = true};

    (void)workers_ask(workers, &request, on_state);
    buf_done(&ids);
}
