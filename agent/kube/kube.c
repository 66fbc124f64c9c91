// SPDX-License-Identifier: Apache-2.0
// Life of the Kubernetes part: configuration, the watch of our pod, one step for all.
#include "agent/kube/kube.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "agent/kube/client.h"
#include "agent/kube/parts.h"
#include "base/hash.h"
#include "base/log.h"

#define START_NS  (3 * NS_PER_SEC)  // in which a new agent may find out the role
#define SETTLE_NS (250 * NS_PER_MS) // for which a new leader has to lead

int64_t kube_wall_ns(void)
{
    struct timespec wall = {0};

    (void)clock_gettime(CLOCK_REALTIME, &wall); // can't fail
    return wall.tv_sec * NS_PER_SEC + wall.tv_nsec;
}

void kube_log_edge(struct kube_edge *edge, const char *what, const struct k8s_result *result)
{
    bool is_bad = result->outcome != K8S_OK;

    if (edge->is_bad == is_bad && (!is_bad || edge->outcome == result->outcome))
        return;
    edge->is_bad = is_bad;
    edge->outcome = result->outcome;
    if (is_bad)
        log_warn("kubernetes: request failed", kv_str("what", what),
                 kv_str("outcome", k8s_outcome_name(result->outcome)),
                 kv_int("status", result->http_status), kv_err(&result->err));
    else
        log_info("kubernetes: request works again", kv_str("what", what));
}

// --- steps ---

void kube_step(struct kube *kube)
{
    struct instant now = clock_now();
    struct instant wake = kube_label_step(kube, now);

    wake = instant_min(wake, kube_siblings_step(kube, now));
    wake = instant_min(wake, kube_orders_step(kube, now)); // may want a look
    wake = instant_min(wake, kube_look_step(kube, now));
    wake = instant_min(wake, kube_events_step(kube, now));
    if (wake.ns == INSTANT_NEVER.ns)
        loop_timer_stop(kube->timer);
    else
        loop_timer_arm(kube->timer, instant_since(wake, now));
}

static void on_timer(void *arg)
{
    kube_step(arg);
}

// --- the watch ---

static void on_pod(const struct k8s_pod *pod, void *arg)
{
    struct kube *kube = arg;
    struct kube_label_state state = {.version = pod->resource_version,
                                     .own = k8s_pod_label(pod, KUBE_OWN_KEY)};

    kube->told_at = clock_now();
    kube_take_pod(kube, pod);
    if (kube->is_ours) {
        if (kube->role_key[0])
            state.role = k8s_pod_label(pod, kube->role_key);
        kube_label_seen(&kube->label, &state, clock_now());
        kube_orders_seen(kube, pod);
    }
    kube_step(kube);
}

static void on_absent(void *arg)
{
    struct kube *kube = arg;

    kube->told_at = clock_now();
    kube_take_pod(kube, NULL);
    kube_step(kube);
}

static void on_down(const struct err *err, void *arg)
{
    struct kube *kube = arg;

    kube->is_up = false;
    kube->up_since = clock_now();
    (void)snprintf(kube->error, sizeof(kube->error), "%s", err->msg);
    log_warn("kubernetes: our pod can't be watched", kv_str("pod", kube->pod), kv_err(err));
}

static void on_up(void *arg)
{
    struct kube *kube = arg;
    struct instant now = clock_now();

    kube->is_up = true;
    kube->up_since = now;
    kube->error[0] = '\0';
    log_info("kubernetes: our pod is watched", kv_str("pod", kube->pod));
    kube_label_hurry(&kube->label, now);
    kube_order_hurry(&kube->fence, now);
    kube_order_hurry(&kube->pause, now);
    kube_queue_hurry(&kube->queue, now);
    kube->siblings.list_at = instant_min(kube->siblings.list_at, now);
    kube_step(kube);
}

static const struct k8s_watch_ops watch_ops = {on_pod, on_absent, on_down, on_up};

// --- configuration ---

static void take(char *to, size_t size, const char *value, const char *env)
{
    const char *text = value[0] ? value : getenv(env);

    (void)snprintf(to, size, "%s", text ? text : "");
}

static int open_client(struct kube *kube, struct err *err)
{
    struct kube_client_place place;

    if (kube_client_new(kube->agent->loop, &kube->agent->config.kubernetes, &place, &kube->k8s,
                        err) < 0)
        return -1;
    log_info("kubernetes", kv_str("server", place.server),
             kv_str("namespace", place.name_space), kv_str("pod", kube->pod),
             kv_str("uid", kube->uid), kv_str("role_label", kube->role_key));
    return 0;
}

static int find_pod(struct kube *kube, struct err *err)
{
    take(kube->pod, sizeof(kube->pod), kube->agent->config.pod_name, "POD_NAME");
    take(kube->uid, sizeof(kube->uid), kube->agent->config.pod_uid, "POD_UID");
    if (kube->pod[0] && kube->uid[0])
        return 0;
    return err_set(err, ERR_INVALID, 0, "%s is not known: set it or %s",
                   kube->pod[0] ? "podUid" : "podName", kube->pod[0] ? "POD_UID" : "POD_NAME");
}

struct kube *kube_new(struct agent *agent)
{
    const struct config_kubernetes *config = &agent->config.kubernetes;
    struct kube *kube = NULL;
    struct err err = {0};

    if (!kube_client_is_wanted(config))
        return NULL;
    kube = calloc(1, sizeof(*kube));
    if (!kube)
        abort();
    kube->agent = agent;
    kube->started_at = kube->up_since = clock_now();
    kube->is_ours = true;
    kube->says_events = config->events;
    (void)snprintf(kube->role_key, sizeof(kube->role_key), "%s", config->role_label);
    if (find_pod(kube, &err) < 0 || open_client(kube, &err) < 0) {
        log_error("kubernetes: off: no label, no events, no orders by annotation",
                  kv_err(&err));
        free(kube);
        return NULL;
    }
    const struct kube_label_config label = {.has_role_key = kube->role_key[0] != '\0',
                                            .observe =
                                                config->on_conflict == ON_CONFLICT_OBSERVE,
                                            .resync_ns = config->resync_ns,
                                            .seed = (uint32_t)hash_text(HASH_BEGIN, kube->uid)};
    kube_label_init(&kube->label, &label);
    kube->role_key_said = kube->label.role_key;
    kube->timer = loop_timer_new(agent->loop, on_timer, kube);
    kube->watch = k8s_watch_new(kube->k8s, agent->loop, kube->pod, &watch_ops, kube);
    kube_orders_begin(kube);
    kube_metrics_begin(kube);
    return kube;
}

void kube_free(struct kube *kube)
{
    if (!kube)
        return;
    k8s_watch_free(kube->watch);
    k8s_free(kube->k8s);
    loop_timer_free(kube->timer);
    free(kube);
}

// A meta that has just won closes its port and then promotes for a while: what is leading for a
// moment is not a leader yet, and shows what it was. Only the way up is slow.
static enum role_label settle(struct kube *kube, enum role_label role, struct instant now)
{
    if (role != LABEL_LEADER) {
        kube->leading_since = (struct instant){0};
        return role;
    }
    if (kube->leading_since.ns == 0)
        kube->leading_since = now;
    if (!kube->label.has_wish || kube->label.wish == LABEL_LEADER ||
        instant_since(now, kube->leading_since) >= SETTLE_NS)
        return role;
    return kube->label.wish;
}

void kube_label(struct kube *kube, enum role_label role)
{
    struct instant now = {0};
    bool is_blank = false;

    if (!kube)
        return;
    now = clock_now();
    role = settle(kube, role, now);
    // A new agent beside a healthy leader needs a moment to see it lead: the label that an
    // earlier one has set is not taken off for that.
    is_blank = !kube->label.has_wish && role == LABEL_UNKNOWN &&
               kube->agent->plan.order.role != FENCE_ROLE_KILL &&
               instant_since(now, kube->started_at) < START_NS;
    if (!is_blank) {
        kube_label_wish(&kube->label, role, now);
        kube_siblings_lead(kube, role == LABEL_LEADER, now);
    }
    kube_step(kube);
}
