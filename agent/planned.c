// SPDX-License-Identifier: Apache-2.0
#include "agent/planned.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/grpc/calls.h"
#include "base/buf.h"
#include "base/log.h"

// Recover answers at the end of the recovery, which may have to wait for compute nodes. What is
// not answered by then is watched by its status.
#define RECOVER_NS (30 * 60 * NS_PER_SEC)

static const char *kind_name(enum order_request_kind kind)
{
    switch (kind) {
    case ORDER_REQUEST_RECOVER: return "recover";
    case ORDER_REQUEST_HANDOVER: return "handover";
    case ORDER_REQUEST_NONE: break;
    }
    return "none";
}

static const char *end_name(enum planned_end end)
{
    switch (end) {
    case PLANNED_OPEN: return "";
    case PLANNED_DONE: return "done";
    case PLANNED_FAILED: return "failed";
    case PLANNED_UNKNOWN: return "unknown";
    }
    return "";
}

static bool is_open(const struct planned *planned)
{
    return planned->order.kind != ORDER_REQUEST_NONE && planned->end == PLANNED_OPEN;
}

// --- the order comes ---

// Why nobody else would lead after the fence; NULL: somebody can.
static const char *handover_objection(const struct agent *agent)
{
    const struct election_fact *election = &agent->facts.election;

    if (agent->facts.methods.by_pidfd)
        return "without metafence-run nothing keeps this meta from taking its lease back: use "
               "fence, and unfence when another one leads";
    if (!election->members_known)
        return "which other metas there are is not known";
    if (election->other_members == 0)
        return "there is no other meta that could lead";
    return NULL;
}

// Writes why the order can't be taken; returns false when it can.
static bool object(const struct agent *agent, enum order_request_kind kind, char *why,
                   size_t size)
{
    const struct election_fact *election = &agent->facts.election;
    const struct planned *planned = &agent->planned;
    const char *objection = NULL;

    if (is_open(planned))
        (void)snprintf(why, size, "%s is under way: `metafence status` shows how far",
                       kind_name(planned->order.kind));
    else if (!agent->reclaim)
        (void)snprintf(why, size, "recovery.mode is off: there is no order to keep");
    else if (agent->plan.rule == RULE_PAUSED)
        (void)snprintf(why, size, "fencing is paused: resume first");
    else if (agent->plan.rule != RULE_LEADER)
        (void)snprintf(why, size,
                       "this agent's meta is not the verified leader (rule %s): ask the agent "
                       "of %.255s",
                       rule_name(agent->plan.rule),
                       election->known && election->row == ROW_OTHER ? election->owner_id
                                                                     : "the one that is");
    else if (!reclaim_is_leading(agent->reclaim))
        (void)snprintf(why, size,
                       "that this meta owns the present term is not verified: is the "
                       "schema installed? See `metafence doctor`");
    else if (kind == ORDER_REQUEST_HANDOVER && (objection = handover_objection(agent)))
        (void)snprintf(why, size, "%s", objection);
    else
        return false;
    return true;
}

static void refuse(struct buf *answer, const char *why)
{
    buf_puts(answer, "{\"ok\":false,\"error\":");
    buf_put_json(answer, why);
    buf_putc(answer, '}');
}

void planned_order(struct agent *agent, const struct control_request *control,
                   struct buf *answer)
{
    struct planned *planned = &agent->planned;
    enum order_request_kind kind =
        control->command == CONTROL_RECOVER ? ORDER_REQUEST_RECOVER : ORDER_REQUEST_HANDOVER;
    struct grpc_calls *calls = planned->calls;
    uint64_t id = planned->order.id + 1;
    char why[400];

    if (object(agent, kind, why, sizeof(why))) {
        refuse(answer, why);
        return;
    }
    *planned = (struct planned){
        .order = {.kind = kind, .id = id, .at = clock_now(), .wait_ns = control->wait_ns},
        .incarnation = agent->memory.incarnation,
        .calls = calls,
    };
    memcpy(planned->reason, control->reason, sizeof(planned->reason));
    log_warn("ordered", kv_str("command", kind_name(kind)), kv_str("reason", control->reason),
             kv_int("uid", (int64_t)control->peer_uid), kv_dur("wait", control->wait_ns));
    history_add(&agent->history, &agent->facts, &agent->memory, kind_name(kind),
                control->reason);
    agent_feed(agent);
    buf_printf(answer, "{\"ok\":true,\"request\":%" PRIu64 "}", id);
}

void planned_free(struct planned *planned)
{
    grpc_calls_free(planned->calls);
    planned->calls = NULL;
}

// --- what is decided on, and done ---

void planned_facts(const struct planned *planned, struct order_facts *facts)
{
    facts->request = is_open(planned) ? planned->order : (struct order_request){0};
}

static void on_recovered(const struct grpc_call_result *result, void *arg)
{
    struct agent *agent = arg;
    struct planned *planned = &agent->planned;

    if (!is_open(planned) || planned->order.recover != ORDER_CALL_PENDING)
        return;
    switch (result->outcome) {
    case GRPC_CALL_OK: planned->order.recover = ORDER_CALL_DONE; break;
    case GRPC_CALL_UNKNOWN: planned->order.recover = ORDER_CALL_UNKNOWN; break;
    case GRPC_CALL_ERROR:
    case GRPC_CALL_NOT_SENT: planned->order.recover = ORDER_CALL_FAILED; break;
    }
    planned->order.recover_ended_at = clock_now();
    if (result->outcome != GRPC_CALL_OK)
        (void)snprintf(planned->detail, sizeof(planned->detail), "Recover: %s: %s",
                       grpc_outcome_name(result->outcome), result->detail);
    agent_feed(agent);
}

static void send_recover(struct agent *agent)
{
    struct planned *planned = &agent->planned;
    const struct grpc_calls_config config = {
        .port = (uint16_t)agent->config.meta_service_port,
        .timeout_ns = {[GRPC_RECOVER] = RECOVER_NS},
        .on_result = on_recovered,
        .arg = agent,
    };
    struct err err = {0};

    // A call of an order that was given up: its answer would be taken for this one's.
    if (planned->calls && grpc_calls_is_busy(planned->calls, GRPC_RECOVER))
        planned_free(planned);
    if (!planned->calls)
        planned->calls = grpc_calls_new(agent->loop, &config);
    planned->order.recover = ORDER_CALL_PENDING;
    if (grpc_recover(planned->calls, clock_now(), &err) == 0)
        return;
    planned->order.recover = ORDER_CALL_FAILED;
    planned->order.recover_ended_at = clock_now();
    (void)snprintf(planned->detail, sizeof(planned->detail), "Recover: not sent: %.150s",
                   err.msg);
    agent_feed(agent);
}

// Whether it is sure that nothing has happened, or will.
static bool is_undone(const struct planned *planned, bool has_acted)
{
    if (!has_acted || planned->order.kind == ORDER_REQUEST_NONE)
        return true;
    return planned->order.kind == ORDER_REQUEST_RECOVER &&
           (planned->order.recover == ORDER_CALL_FAILED ||
            planned->order.recover == ORDER_CALL_NONE);
}

static const char *failure_text(const struct agent *agent, bool has_acted)
{
    const struct planned *planned = &agent->planned;

    if (!has_acted)
        return "leadership was lost while it waited";
    if (planned->order.kind == ORDER_REQUEST_HANDOVER)
        return planned->wait == ORDER_WAIT_DEATH ? "meta's death could not be confirmed"
                                                 : "no other meta has taken the lead";
    return agent->plan.rule == RULE_LEADER ? "the end of the recovery was not seen"
                                           : "leadership was lost during the recovery";
}

static void end(struct agent *agent, enum order_end how)
{
    struct planned *planned = &agent->planned;
    bool has_acted = planned->step != ORDER_IDLE && planned->step != ORDER_DRAIN;

    planned->end = how == ORDER_END_DONE           ? PLANNED_DONE
                   : is_undone(planned, has_acted) ? PLANNED_FAILED
                                                   : PLANNED_UNKNOWN;
    planned->ended_at = clock_now();
    if (how != ORDER_END_DONE && !planned->detail[0])
        (void)snprintf(planned->detail, sizeof(planned->detail), "%s",
                       failure_text(agent, has_acted));
    if (how == ORDER_END_DONE)
        planned->detail[0] = '\0';
    log_warn("order ended", kv_str("command", kind_name(planned->order.kind)),
             kv_str("result", end_name(planned->end)), kv_str("detail", planned->detail),
             kv_dur("took", instant_since(planned->ended_at, planned->order.at)));
    history_add(&agent->history, &agent->facts, &agent->memory, kind_name(planned->order.kind),
                end_name(planned->end));
}

// Log lines at edges alone.
static void say_progress(struct planned *planned, const struct order_plan *plan,
                         const struct order_drops *drops)
{
    const char *command = kind_name(planned->order.kind);

    if (plan->drain_gave_up) {
        planned->has_given_up_waiting = true;
        log_warn("what is dropped or being created is waited for no longer",
                 kv_str("command", command), kv_int("dropped_fragments", drops->fragments),
                 kv_int("creating_jobs", drops->creating));
    }
    if (planned->step == plan->step && planned->wait == plan->wait)
        return;
    planned->step = plan->step;
    planned->wait = plan->wait;
    log_info("order goes on", kv_str("command", command),
             kv_str("step", order_step_name(plan->step)),
             kv_str("waits_for", order_wait_name(plan->wait)),
             kv_int("dropped_fragments", drops->fragments),
             kv_int("creating_jobs", drops->creating));
}

void planned_turn(struct agent *agent, const struct order_plan *plan,
                  const struct order_drops *drops)
{
    struct planned *planned = &agent->planned;
    uint64_t handover = 0;

    if (is_open(planned)) {
        if (plan->ended != ORDER_END_NONE)
            end(agent, plan->ended);
        else
            say_progress(planned, plan, drops);
        if (plan->send_recover)
            send_recover(agent);
        handover = plan->fence_meta ? planned->incarnation : 0;
    }
    if (agent->facts.orders.handover == handover)
        return;
    agent->facts.orders.handover = handover;
    agent_feed(agent);
}

// --- for people ---

void planned_status_json(const struct agent *agent, struct instant now, struct buf *out)
{
    const struct planned *planned = &agent->planned;
    struct instant until = planned->end == PLANNED_OPEN ? now : planned->ended_at;

    if (planned->order.kind == ORDER_REQUEST_NONE) {
        buf_puts(out, ",\"request\":null");
        return;
    }
    buf_printf(out, ",\"request\":{\"id\":%" PRIu64 ",\"command\":\"%s\",\"result\":\"%s\"",
               planned->order.id, kind_name(planned->order.kind), end_name(planned->end));
    buf_printf(out, ",\"took_ms\":%" PRId64 ",\"wait_ms\":%" PRId64,
               instant_since(until, planned->order.at) / NS_PER_MS,
               planned->order.wait_ns / NS_PER_MS);
    buf_printf(out, ",\"step\":\"%s\",\"waits_for\":\"%s\",\"gave_up_waiting\":%s,\"reason\":",
               order_step_name(planned->step), order_wait_name(planned->wait),
               planned->has_given_up_waiting ? "true" : "false");
    buf_put_json(out, planned->reason);
    buf_puts(out, ",\"detail\":");
    buf_put_json(out, planned->detail);
    buf_putc(out, '}');
}
