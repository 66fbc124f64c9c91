// SPDX-License-Identifier: Apache-2.0
// The agent's side of the seam: an agent around agent/kube, as much of it as that looks at.
#include "tests/sim/seam.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/answer.h"
#include "tests/sim/seamparts.h"

// --- what the rest of the agent is for agent/kube ---

void kube_metrics_begin(struct kube *kube)
{
    (void)kube;
}

const char *not_covered_name(uint32_t bit)
{
    return bit <= NOT_COVERED_UNTAGGED_WRITERS ? "NotCovered" : NULL;
}

const char *not_fenced_why(const struct agent *agent)
{
    (void)agent;
    return "not confirmed";
}

// As the reporter does: the last kill, from the plan and from what became of it.
static void note_fence(struct agent *agent)
{
    struct report_fence *fence = &agent->reporter.fence;
    const struct fence_death *death = &agent->facts.fence.status.last_death;

    if (agent->plan.order.role == FENCE_ROLE_KILL &&
        fence->incarnation != agent->plan.order.incarnation)
        *fence = (struct report_fence){.incarnation = agent->plan.order.incarnation,
                                       .reason = (enum fence_reason)agent->plan.order.reason,
                                       .decided_at = agent->facts.now};
    if (fence->incarnation == 0 || death->incarnation != fence->incarnation)
        return;
    fence->dead_at.ns = death->dead_ns;
    if (agent->facts.cleanup.sessions_gone == fence->incarnation && !fence->sessions_gone_at.ns)
        fence->sessions_gone_at = agent->facts.now;
}

// --- faults of our own ---

static void tamper(struct seam *seam)
{
    struct kube_label *label = &seam->agent.kube->label;

    if (seam->plant == SEAM_PLANT_NO_RECHECK && !label->is_sending) {
        label->await.is_waiting = true;
        label->await.until = INSTANT_NEVER;
        (void)snprintf(label->await.version, sizeof(label->await.version), "none");
        label->resync_at = INSTANT_NEVER;
    }
    if (seam->plant == SEAM_PLANT_NO_BACKOFF) {
        label->not_before = label->busy_until = (struct instant){0};
        if (!label->is_confirmed && !label->is_sending)
            loop_timer_arm(seam->agent.kube->timer, NS_PER_MS);
    }
}

void seam_plant(struct seam *seam, enum seam_plant plant)
{
    seam->plant = plant;
}

// --- life ---

struct seam *seam_new(const struct seam_start *start)
{
    struct seam *seam = calloc(1, sizeof(*seam));
    struct config *config = NULL;

    if (!seam)
        abort();
    seam_current = seam;
    seam->world = start->world;
    seam->pod = start->pod;
    seam->agent.loop = &seam->loop;
    seam->agent.facts.orders = *start->orders;
    config = &seam->agent.config;
    (void)snprintf(config->pod_name, sizeof(config->pod_name), "%s", start->name);
    (void)snprintf(config->pod_uid, sizeof(config->pod_uid), "%s", start->uid);
    (void)snprintf(config->control_socket, sizeof(config->control_socket), "%s", start->socket);
    config->kubernetes = (struct config_kubernetes){
        .enabled = KUBERNETES_ON,
        .server = "https://10.96.0.1:443",
        .name_space = "ns",
        .role_label = "risingwave/meta-role",
        .on_conflict = start->observe ? ON_CONFLICT_OBSERVE : ON_CONFLICT_YIELD,
        .resync_ns = start->resync_ns,
        .timeout_ns = start->timeout_ns,
        .events = true};
    seam->agent.kube = kube_new(&seam->agent);
    if (!seam->agent.kube)
        abort(); // the configuration above is whole
    return seam;
}

void seam_free(struct seam *seam)
{
    if (!seam)
        return;
    seam_current = seam;
    kube_free(seam->agent.kube);
    free(seam);
}

// --- a turn ---

void seam_take(struct seam *seam, const struct facts *facts, const struct core_memory *memory,
               const struct plan *plan)
{
    struct agent *agent = &seam->agent;
    struct api_fact api = agent->facts.api;
    struct order_fact orders = agent->facts.orders;

    seam_current = seam;
    agent->facts = *facts;
    agent->facts.api = api;
    agent->facts.orders = orders;
    agent->memory = *memory;
    agent->plan = *plan;
    note_fence(agent);
}

void seam_label(struct seam *seam, enum role_label role)
{
    struct kube *kube = seam->agent.kube;

    seam_current = seam;
    if (seam->plant == SEAM_PLANT_OLD_VALUE && kube->label.has_wish &&
        (kube->label.failures > 0 || kube->label.is_sending))
        role = kube->label.wish;
    kube_label(kube, role);
    tamper(seam);
}

void seam_say(struct seam *seam)
{
    seam_current = seam;
    kube_say_turn(seam->agent.kube);
}

void seam_delete_pod(struct seam *seam)
{
    seam_current = seam;
    kube_delete_pod(seam->agent.kube);
}

bool seam_can_delete_pod(struct seam *seam)
{
    seam_current = seam;
    return kube_can_delete_pod(seam->agent.kube);
}

void seam_order(struct seam *seam, const struct order_fact *orders)
{
    struct order_fact *have = &seam->agent.facts.orders;
    bool is_fence = have->manual_fence != orders->manual_fence;
    bool is_pause = have->pause_end.ns != orders->pause_end.ns;

    seam_current = seam;
    *have = *orders;
    if (is_fence)
        kube_mirror_fence(seam->agent.kube, orders->manual_fence ? "simulated" : NULL);
    if (is_pause)
        kube_mirror_pause(seam->agent.kube);
}

struct api_fact seam_api(const struct seam *seam)
{
    struct api_fact api = seam->agent.facts.api;

    if (seam->plant == SEAM_PLANT_API_VERDICT && !seam->agent.kube->is_up)
        api = (struct api_fact){
            .known = true, .observed_at = seam_clock_now(), .lists_other_uid = true};
    return api;
}

struct order_fact seam_orders(const struct seam *seam)
{
    return seam->agent.facts.orders;
}

bool seam_wants_turn(struct seam *seam)
{
    bool wants = seam->agent.turn_due;

    seam->agent.turn_due = false;
    return wants;
}

// --- what comes from outside ---

void seam_tick(struct seam *seam)
{
    struct loop_timer *timer = NULL;
    struct instant next = INSTANT_NEVER;

    seam_current = seam;
    while ((timer = seam_due_timer(&seam->loop, seam_clock_now())) != NULL) {
        timer->at = INSTANT_NEVER;
        timer->fn(timer->arg);
    }
    tamper(seam);
    for (timer = seam->loop.timers; timer; timer = timer->next)
        next = instant_min(next, timer->at);
    if (next.ns != INSTANT_NEVER.ns)
        seam_host_arm(seam->world, seam->pod, next);
}

static void judge(const struct seam *seam, const struct k8s_request *request,
                  const struct seam_answer *answer, struct k8s_result *result, cJSON **ret_body)
{
    const char *body = answer->body ? answer->body : "";

    if (seam->plant == SEAM_PLANT_NO_SIBLINGS && strstr(request->path, "labelSelector="))
        body = "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}";
    const struct k8s_answer said = {.http_status = answer->http_status,
                                    .method = request->method,
                                    .path = request->path,
                                    .body = body,
                                    .len = strlen(body)};

    result->outcome = k8s_answer_judge(&said, ret_body, &result->err);
    result->http_status = answer->http_status;
    result->retry_after_ns = answer->retry_after_ns;
    result->body = *ret_body;
}

void seam_answer(struct seam *seam, uint32_t id, const struct seam_answer *answer)
{
    struct k8s_request *request = seam_find(seam, id);
    struct k8s_result result = {0};
    cJSON *body = NULL;

    if (!request)
        return;
    seam_current = seam;
    result.sent_at = request->sent_at;
    result.received_at = seam_clock_now();
    if (answer->http_status == 0) {
        result.outcome = answer->is_sent ? K8S_UNKNOWN : K8S_NOT_SENT;
        (void)err_set(&result.err, k8s_outcome_err(result.outcome), 0, "no answer");
    } else {
        seam->agent.kube->k8s->stats.answered_at = result.received_at;
        judge(seam, request, answer, &result, &body);
    }
    seam->agent.kube->k8s->stats.answers[result.outcome]++;
    if (request->ops) {
        const struct k8s_stream_ops *ops = request->ops;
        void *arg = request->arg;

        seam_free_request(request);
        ops->on_end(&result, arg);
    } else {
        k8s_result_fn *fn = request->fn;
        void *arg = request->arg;

        seam_free_request(request);
        fn(&result, arg);
    }
    cJSON_Delete(body);
    tamper(seam);
}

void seam_stream_open(struct seam *seam, uint32_t id)
{
    struct k8s_request *request = seam_find(seam, id);

    if (!request || !request->ops->on_open)
        return;
    seam_current = seam;
    seam->agent.kube->k8s->stats.answered_at = seam_clock_now();
    request->ops->on_open(request->arg);
    tamper(seam);
}

void seam_stream_line(struct seam *seam, uint32_t id, const char *line)
{
    struct k8s_request *request = seam_find(seam, id);
    cJSON *object = NULL;

    if (!request)
        return;
    seam_current = seam;
    seam->agent.kube->k8s->stats.answered_at = seam_clock_now();
    object = cJSON_Parse(line);
    request->ops->on_line(object, request->arg);
    cJSON_Delete(object);
    tamper(seam);
}

struct seam_view seam_look(struct seam *seam)
{
    const struct kube *kube = seam->agent.kube;
    const struct kube_label *label = &kube->label;
    struct instant now = {0};

    seam_current = seam;
    now = seam_clock_now();
    return (struct seam_view){.has_wish = label->has_wish,
                              .wish = label->wish,
                              .is_sending = label->is_sending,
                              .sending = label->sending.role,
                              .sent_at = label->sent_at,
                              .is_confirmed =
                                  label->is_confirmed && label->confirmed == label->wish,
                              .is_waiting = !instant_reached(now, label->not_before) ||
                                            !instant_reached(now, label->busy_until),
                              .is_halted = label->is_halted,
                              .cleared = kube->siblings.cleared,
                              .events_dropped = kube->queue.dropped,
                              .events_waiting = kube->queue.count,
                              .in_flight = kube->k8s->count,
                              .timers = seam->loop.count};
}
