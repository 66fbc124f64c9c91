// SPDX-License-Identifier: Apache-2.0
// What Postgres and our own meta say of a recovery, and our row at the gate.
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/reclaim/parts.h"
#include "base/log.h"

#define OPEN_NS     (200 * NS_PER_MS) // between two looks while a recovery is open
#define LEADING_NS  NS_PER_SEC
#define CALM_NS     (3 * NS_PER_SEC)
#define REFRESH_NS  (RECLAIM_GATE_NS / 4)
#define FAILED_NS   NS_PER_SEC
#define STATUS_NS   NS_PER_SEC // for the answer
#define RUNNING_NS  NS_PER_SEC // so long the leader has to say that it runs: it may just begin
#define QUERY_NS    (2 * NS_PER_SEC)
#define STATUS_RUNS 3

// --- what is wanted ---

static bool is_leading(const struct reclaim *reclaim)
{
    return reclaim->facts.is_leader;
}

static bool is_enforced(const struct reclaim *reclaim)
{
    return reclaim->agent->config.recovery.mode == ORDER_ENFORCE;
}

static bool is_paused(const struct reclaim *reclaim)
{
    const struct facts *facts = &reclaim->agent->facts;

    return instant_before(facts->now, facts->orders.pause_end);
}

// Followers look too: their meta may have led, and its start may have to wait.
static bool wants_looks(const struct reclaim *reclaim)
{
    return is_enforced(reclaim) || is_leading(reclaim);
}

static bool is_urgent(const struct reclaim *reclaim)
{
    return reclaim->plan->hold_start || (is_leading(reclaim) && reclaim->known.state.id != 0);
}

// The rows too: who is to be reset, and what is pending.
static bool wants_rows(const struct reclaim *reclaim, const struct recovery_state *state)
{
    if (reclaim->agent->facts.recovery.holds_start)
        return true;
    return is_leading(reclaim) && (state->id != 0 || state->dropped > 0 || state->creating > 0);
}

static int64_t interval_ns(const struct reclaim *reclaim)
{
    if (reclaim->error[0])
        return FAILED_NS;
    if (is_urgent(reclaim))
        return OPEN_NS;
    return is_leading(reclaim) ? LEADING_NS : CALM_NS;
}

// --- looks ---

static void look(struct reclaim *reclaim);

static void end_look(struct reclaim *reclaim, const char *error)
{
    if (error && strcmp(error, reclaim->error) != 0)
        log_warn("recovery: Postgres could not be asked", kv_str("err", error));
    else if (!error && reclaim->error[0])
        log_info("recovery: Postgres answers again");
    (void)snprintf(reclaim->error, sizeof(reclaim->error), "%s", error ? error : "");
    reclaim->is_looking = false;
    loop_timer_arm(reclaim->poll, reclaim->looks_again ? 0 : interval_ns(reclaim));
    reclaim->looks_again = false;
    agent_feed(reclaim->agent);
}

static void take_state(struct reclaim *reclaim, bool has_rows)
{
    reclaim->known = reclaim->asked;
    reclaim->rows_known = has_rows;
    known_refusal_update(&reclaim->refusal, &reclaim->known);
}

// An acknowledgement of "none" counts for us only as what we have compared it with ourselves.
static void take_recorded(struct order_node *facts, const struct reclaim_node *node,
                          const struct recovery_row *row)
{
    facts->recorded_revision = node->none_revision;
    facts->recorded = row->has_reset                         ? ORDER_RESET
                      : row->has_gone                        ? ORDER_GONE
                      : row->has_none && node->none_revision ? ORDER_NONE
                                                             : ORDER_UNKNOWN;
}

static void take_row(struct reclaim *reclaim, const struct recovery_row *row)
{
    const struct reclaim_node *node = NULL;
    size_t at = 0;

    drops_add(&reclaim->drops, row);
    // One that is starting has no actors.
    if (row->kind != RECOVERY_WORKER || !row->is_running)
        return;
    node = calls_node(reclaim, row);
    while (reclaim->nodes[at] != node)
        at++;
    take_recorded(&reclaim->node_facts[at], node, row);
}

static int take_rows(struct reclaim *reclaim, const struct pg_reply *reply, struct err *err)
{
    const char *fields[RECOVERY_ROW_FIELDS];
    struct recovery_row row;
    bool is_held = reclaim->facts.marker.id != 0 || reclaim->plan->hold_start;

    drops_clear(&reclaim->drops);
    calls_begin_rows(reclaim);
    for (size_t i = 0; i < pg_answer_rows(reply); i++) {
        if (pg_answer_row(reply, i, fields, RECOVERY_ROW_FIELDS, err) < 0 ||
            recovery_parse_row(fields, &row, err) < 0)
            return -1;
        take_row(reclaim, &row);
    }
    drops_close(&reclaim->drops);
    calls_end_rows(reclaim, !is_held);
    return 0;
}

static void on_rows(const struct pg_reply *reply, void *arg)
{
    struct reclaim *reclaim = arg;
    struct err err = {0};

    if (reply->fault.kind != PG_OK) {
        end_look(reclaim, reply->fault.err.msg);
        return;
    }
    if (take_rows(reclaim, reply, &err) < 0) {
        reclaim->rows_known = false;
        end_look(reclaim, err.msg);
        return;
    }
    take_state(reclaim, true);
    end_look(reclaim, NULL);
}

static void on_state(const struct pg_reply *reply, void *arg)
{
    struct reclaim *reclaim = arg;
    const char *params[] = {reclaim->agent->config.election.service};
    const struct pg_request request = {
        .sql = recovery_sql_rows, .param_count = 1, .params = params, .is_read = true};
    struct known_state asked = {
        .is_known = true, .sent_at = reply->sent_at, .received_at = reply->received_at};
    struct err err = {0};

    if (recovery_take_state(reply, &asked.state, &err) < 0) {
        end_look(reclaim, err.msg);
        return;
    }
    if (asked.state.is_standby) {
        end_look(reclaim, "this Postgres is a standby");
        return;
    }
    reclaim->asked = asked;
    if (!wants_rows(reclaim, &asked.state)) {
        take_state(reclaim, false);
        end_look(reclaim, NULL);
    } else if (pg_send(reclaim->pg, &request, on_rows, reclaim, &err) < 0) {
        end_look(reclaim, err.msg);
    }
}

static void look(struct reclaim *reclaim)
{
    const char *params[] = {reclaim->agent->config.election.service};
    const struct pg_request request = {
        .sql = recovery_sql_state, .param_count = 1, .params = params, .is_read = true};
    struct err err = {0};

    if (reclaim->is_looking) {
        reclaim->looks_again = true;
        return;
    }
    reclaim->is_looking = true;
    if (pg_send(reclaim->pg, &request, on_state, reclaim, &err) < 0)
        end_look(reclaim, err.msg);
}

static void on_poll(void *arg)
{
    struct reclaim *reclaim = arg;

    if (reclaim->pg && wants_looks(reclaim))
        look(reclaim);
    else
        loop_timer_arm(reclaim->poll, CALM_NS);
}

// --- our row at the gate ---

// Whether our meta is dead at the latest so long after its last renewal, whatever becomes of
// us.
static bool is_covered(const struct agent *agent)
{
    const uint32_t bits = NOT_COVERED_PAUSED | NOT_COVERED_UNARMED | NOT_COVERED_AGENT_BLIND |
                          NOT_COVERED_SINGLE_REPLICA | NOT_COVERED_NO_FENCE |
                          NOT_COVERED_UNUSABLE;

    return !agent->facts.methods.by_pidfd && !(agent->plan.not_covered & bits);
}

static bool wants_gate(const struct reclaim *reclaim)
{
    const struct fence_fact *fence = &reclaim->agent->facts.fence;

    return reclaim->pg && is_enforced(reclaim) && !is_paused(reclaim) && fence->known &&
           (fence->status.flags & SHIM_ALIVE) && fence->status.tag[0];
}

static void on_refreshed(int64_t count, const struct pg_fault *fault, void *arg)
{
    struct reclaim *reclaim = arg;

    reclaim->is_refreshing = false;
    if (fault) {
        log_warn("recovery: our row at the gate was not renewed", kv_err(&fault->err));
        loop_timer_arm(reclaim->gate_timer, FAILED_NS);
        return;
    }
    loop_timer_arm(reclaim->gate_timer, REFRESH_NS);
    if (count == 0)
        return; // its term is lost
    reclaim->refreshed_at = reclaim->refresh_sent_at;
    memcpy(reclaim->gate_tag, reclaim->refreshing_tag, sizeof(reclaim->gate_tag));
    agent_feed(reclaim->agent);
}

static void refresh(struct reclaim *reclaim)
{
    const struct config *config = &reclaim->agent->config;
    const struct recovery_gate gate = {
        .service = config->election.service,
        .tag = reclaim->refreshing_tag,
        .policy =
            config->recovery.policy == RECOVERY_POLICY_HOLD ? RECOVERY_HOLD : RECOVERY_OPEN,
        .max_hold_ms = config->recovery.max_hold_ns / NS_PER_MS,
        .lifetime_ms = RECLAIM_GATE_NS / NS_PER_MS,
        .dead_after_ms = is_covered(reclaim->agent) ? config->core.ttl_ns / NS_PER_MS : -1,
    };
    struct err err = {0};

    memcpy(reclaim->refreshing_tag, reclaim->agent->facts.fence.status.tag,
           sizeof(reclaim->refreshing_tag));
    reclaim->refresh_sent_at = clock_now();
    reclaim->is_refreshing =
        recovery_refresh(reclaim->election, &gate, on_refreshed, reclaim, &err) == 0;
    if (!reclaim->is_refreshing)
        loop_timer_arm(reclaim->gate_timer, FAILED_NS);
}

static void on_gate_timer(void *arg)
{
    struct reclaim *reclaim = arg;

    if (wants_gate(reclaim) && !reclaim->is_refreshing)
        refresh(reclaim);
    else
        loop_timer_arm(reclaim->gate_timer, REFRESH_NS);
}

// An incarnation that has no row yet gets it at once: it may win at any moment.
static void refresh_for_new(struct reclaim *reclaim)
{
    const char *tag = reclaim->agent->facts.fence.status.tag;

    if (!wants_gate(reclaim) || reclaim->is_refreshing || strcmp(reclaim->gate_tag, tag) == 0)
        return;
    reclaim->refreshed_at = (struct instant){0};
    if (strcmp(reclaim->refreshing_tag, tag) != 0)
        refresh(reclaim);
}

// --- the leader's own word ---

static void on_ended(int64_t count, const struct pg_fault *fault, void *arg)
{
    struct reclaim *reclaim = arg;

    (void)count; // 0: another attempt has begun, or a commit has ended it
    reclaim->is_ending = false;
    if (!fault)
        look(reclaim);
}

// It has said for a while that it runs, in the attempt that is known: there was nothing to
// commit.
static void end_recovery(struct reclaim *reclaim, const struct grpc_result *result)
{
    const struct recovery_state *state = &reclaim->known.state;
    struct err err = {0};

    if (reclaim->running_recovery != state->id || reclaim->running_attempt != state->attempt ||
        reclaim->running_since.ns == 0) {
        reclaim->running_recovery = state->id;
        reclaim->running_attempt = state->attempt;
        reclaim->running_since = result->sent_at;
    }
    if (reclaim->is_ending || !is_leading(reclaim) || state->is_waiting ||
        instant_since(result->sent_at, reclaim->running_since) < RUNNING_NS)
        return;
    reclaim->is_ending = recovery_end(reclaim->election, state, on_ended, reclaim, &err) == 0;
}

static void on_status(const struct grpc_result *result, void *arg)
{
    struct reclaim *reclaim = arg;
    bool is_leading_answer = result->answer == GRPC_LEADING && result->recovery_status > 0;

    if (is_leading_answer)
        reclaim->facts.status = (struct order_status){result->recovery_status, result->sent_at};
    if (is_leading_answer && result->recovery_status == STATUS_RUNS &&
        reclaim->known.state.id != 0)
        end_recovery(reclaim, result);
    else
        reclaim->running_since = (struct instant){0};
    agent_feed(reclaim->agent);
}

static void ask_status(struct reclaim *reclaim)
{
    struct instant now = reclaim->facts.now;
    struct err err = {0};

    if (grpc_client_is_busy(reclaim->asker) ||
        instant_since(now, reclaim->asked_status_at) < OPEN_NS)
        return;
    reclaim->asked_status_at = now;
    if (grpc_client_ask(reclaim->asker, now, &err) < 0)
        log_debug("recovery: the status was not asked", kv_err(&err));
}

// --- life ---

static void on_listening(const struct pg_reply *reply, void *arg)
{
    (void)arg;
    if (reply->fault.kind != PG_OK)
        log_info("recovery: no notifications, polls alone", kv_err(&reply->fault.err));
}

static void on_up(void *arg)
{
    struct reclaim *reclaim = arg;
    const struct pg_request request = {.sql = recovery_sql_listen};
    struct err err = {0};

    // Behind a pooler the backend is other clients' too.
    if (!pg_is_pooled(reclaim->pg) && reclaim->agent->config.notify &&
        pg_send(reclaim->pg, &request, on_listening, reclaim, &err) < 0)
        log_info("recovery: no notifications, polls alone", kv_err(&err));
    look(reclaim);
}

static void on_notify(const char *payload, void *arg)
{
    (void)payload; // what counts is what is read
    look(arg);
}

static const struct pg_ops pg_ops = {.up = on_up, .notify = on_notify};

static void open_session(struct reclaim *reclaim)
{
    struct agent *agent = reclaim->agent;
    const struct pg_net net = {agent->loop, agent->resolver, &reclaim->params};
    struct err err = {0};

    if (pg_new(&net, &pg_ops, reclaim, &reclaim->pg, &err) < 0 ||
        election_new(reclaim->pg, &agent->election_config, &reclaim->election, &err) < 0)
        log_error("recovery: no session", kv_err(&err)); // the agent's own parameters: not so
}

static void close_session(struct reclaim *reclaim)
{
    pg_free(reclaim->pg);
    election_free(reclaim->election);
    reclaim->pg = NULL;
    reclaim->election = NULL;
    reclaim->is_looking = reclaim->looks_again = false;
    reclaim->is_refreshing = reclaim->is_ending = false;
    reclaim->refreshed_at = (struct instant){0};
    reclaim->known = (struct known_state){0};
    reclaim->rows_known = false;
    reclaim->error[0] = '\0';
    for (size_t i = 0; i < reclaim->node_count; i++)
        reclaim->nodes[i]->is_writing = reclaim->nodes[i]->is_noting = false;
}

void look_turn(struct reclaim *reclaim)
{
    if (!wants_looks(reclaim)) {
        close_session(reclaim);
        return;
    }
    if (!reclaim->pg)
        open_session(reclaim);
    refresh_for_new(reclaim);
    if (is_leading(reclaim) && (reclaim->plan->read_status || reclaim->known.state.id != 0))
        ask_status(reclaim);
    // A hold that has just begun must not wait for a calm poll.
    if (!reclaim->is_looking && is_urgent(reclaim) && !reclaim->error[0] &&
        instant_since(reclaim->facts.now, reclaim->known.sent_at) > OPEN_NS)
        look(reclaim);
}

void look_begin(struct reclaim *reclaim)
{
    struct agent *agent = reclaim->agent;
    const struct grpc_client_config asker = {
        .port = (uint16_t)agent->config.meta_service_port,
        .timeout_ns = STATUS_NS,
        .on_result = on_status,
        .arg = reclaim,
    };

    reclaim->params = agent->pg_params;
    reclaim->params.listen = false;
    if (reclaim->params.query_timeout_ns < QUERY_NS)
        reclaim->params.query_timeout_ns = QUERY_NS;
    reclaim->poll = loop_timer_new(agent->loop, on_poll, reclaim);
    reclaim->gate_timer = loop_timer_new(agent->loop, on_gate_timer, reclaim);
    reclaim->asker = grpc_client_new(agent->loop, &asker);
    loop_timer_arm(reclaim->poll, 0);
    loop_timer_arm(reclaim->gate_timer, 0);
}

void look_end(struct reclaim *reclaim)
{
    close_session(reclaim);
    grpc_client_free(reclaim->asker);
    loop_timer_free(reclaim->poll);
    loop_timer_free(reclaim->gate_timer);
    drops_clear(&reclaim->drops);
}
