// SPDX-License-Identifier: Apache-2.0
#include "agent/workers/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/workers/parts.h"
#include "base/log.h"

#define TICK_NS  NS_PER_SEC
#define QUERY_NS (10 * NS_PER_SEC) // a table of 100,000 rows is a long answer
#define CALL_NS  (5 * NS_PER_SEC)

// --- leadership ---

static bool is_leader(const struct agent *agent)
{
    const struct election_fact *election = &agent->facts.election;
    const struct fence_status *status = &agent->facts.fence.status;

    return agent->plan.rule == RULE_LEADER && agent->plan.label == LABEL_LEADER &&
           agent->facts.fence.known && status->tag[0] && election->term_known &&
           strcmp(election->owner_tag, status->tag) == 0 &&
           instant_before(clock_now(), agent->memory.deadline);
}

bool workers_may_act(const struct workers *workers)
{
    const struct agent *agent = workers->agent;
    const struct store_state *state = &workers->state;

    return workers->is_leading && is_leader(agent) &&
           agent->memory.incarnation == workers->incarnation &&
           state->term == agent->facts.election.term &&
           strcmp(state->owner_tag, agent->facts.fence.status.tag) == 0;
}

// --- rounds ---

void workers_end_round(struct workers *workers, const char *error)
{
    workers->is_busy = false;
    workers->rounds++;
    workers->failures += error != NULL;
    if (error && strcmp(workers->error, error) != 0)
        log_warn("reconcile: a round failed", kv_str("err", error));
    else if (!error && workers->error[0])
        log_info("reconcile: rounds work again");
    (void)snprintf(workers->error, sizeof(workers->error), "%s", error ? error : "");
}

void workers_end_fault(struct workers *workers, const char *what, const struct pg_fault *fault,
                       const struct err *err)
{
    const char *fix = fault ? store_fix(fault) : NULL;
    char text[sizeof(workers->error)];

    if (fault)
        reconcile_interrupted(&workers->pass.memory);
    (void)snprintf(text, sizeof(text), "%s: %.150s%s%s", what,
                   fault ? fault->err.msg : err->msg, fix ? ": " : "", fix ? fix : "");
    workers_end_round(workers, text);
}

bool workers_ask(struct workers *workers, const struct pg_request *request, pg_done_fn *fn)
{
    struct err err = {0};

    if (pg_send(workers->pg, request, fn, workers, &err) == 0)
        return true;
    workers_end_round(workers, err.msg);
    return false;
}

static void on_call(const struct grpc_call_result *result, void *arg)
{
    cure_call_done(arg, result);
}

static void on_timer(void *arg)
{
    struct workers *workers = arg;

    loop_timer_arm(workers->timer, TICK_NS);
    if (workers->is_busy)
        return;
    workers->is_busy = true;
    cure_look(workers);
}

// --- life ---

static const struct pg_ops pg_ops = {NULL, NULL, NULL};

static void begin(struct workers *workers)
{
    struct agent *agent = workers->agent;
    const struct pg_net net = {agent->loop, agent->resolver, &workers->params};
    const struct grpc_calls_config calls = {
        .port = (uint16_t)agent->config.meta_service_port,
        .timeout_ns = {[GRPC_DELETE_WORKER] = CALL_NS,
                       [GRPC_RECOVER] = agent->config.reconcile.recover_timeout_ns,
                       [GRPC_LIST_ACTORS] = CALL_NS},
        .on_result = on_call,
        .arg = workers,
    };
    struct err err = {0};

    if (pg_new(&net, &pg_ops, workers, &workers->pg, &err) < 0) {
        log_error("reconcile: no session", kv_err(&err)); // the agent's own parameters: not so
        return;
    }
    // Calls outlive the leadership: an answer tells what became of what was sent.
    if (!workers->calls)
        workers->calls = grpc_calls_new(agent->loop, &calls);
    workers->is_leading = true;
    workers->leading_since = agent->facts.now;
    workers->incarnation = agent->memory.incarnation;
    cure_begin_leading(workers);
    pass_begin_leading(workers);
    loop_timer_arm(workers->timer, 0);
}

static void end(struct workers *workers)
{
    workers->is_leading = workers->is_busy = false;
    workers->state_at = (struct instant){0};
    workers->agent->facts.workers.untagged_writers = false;
    loop_timer_stop(workers->timer);
    cure_end_leading(workers);
    pass_end_leading(workers);
    acts_forget(workers);
    pg_free(workers->pg);
    workers->pg = NULL;
}

void workers_turn(struct workers *workers)
{
    bool leads = false;

    if (!workers)
        return;
    cure_turn(workers);
    leads = is_leader(workers->agent);
    if (workers->is_leading &&
        (!leads || workers->agent->memory.incarnation != workers->incarnation))
        end(workers);
    if (leads && !workers->is_leading)
        begin(workers);
}

struct workers *workers_new(struct agent *agent)
{
    struct workers *workers = NULL;

    if (agent->config.reconcile.mode == RECONCILE_OFF || !agent->has_database)
        return NULL;
    workers = calloc(1, sizeof(*workers));
    if (!workers)
        abort();
    workers->agent = agent;
    workers->params = agent->pg_params;
    workers->params.listen = false;
    if (workers->params.query_timeout_ns < QUERY_NS)
        workers->params.query_timeout_ns = QUERY_NS;
    workers->timer = loop_timer_new(agent->loop, on_timer, workers);
    cure_init(workers);
    pass_init(workers);
    say_metrics(workers);
    return workers;
}

void workers_free(struct workers *workers)
{
    if (!workers)
        return;
    pass_free(workers);
    cure_free(workers);
    pg_free(workers->pg);
    grpc_calls_free(workers->calls);
    loop_timer_free(workers->timer);
    free(workers);
}
