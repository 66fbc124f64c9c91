// SPDX-License-Identifier: Apache-2.0
#include "agent/http.h"

#include <stdlib.h>

#include "agent/agent.h"
#include "agent/http_answer.h"
#include "base/httpd.h"
#include "base/log.h"

// A kubelet, a few scrapers and people, with room for the connections that they forget.
#define CONNECTIONS_MAX 64
#define HEAD_MAX        8192
#define REQUEST_NS      (5 * NS_PER_SEC)
#define IDLE_NS         (30 * NS_PER_SEC)
#define RETRY_NS        NS_PER_SEC

struct http {
    struct agent *agent;
    struct httpd *httpd;
    struct loop_timer *retry; // armed while there is no httpd
    bool has_failed;          // … and that was said
};

// --- the view ---

static void view_meta(const struct agent *agent, struct instant now, struct http_view *ret)
{
    const struct fence_status *status = &agent->facts.fence.status;
    bool is_known = agent->facts.fence.known;
    bool is_alive = status->flags & SHIM_ALIVE;
    // What metafence-run said last holds, also while it can't be asked: it was to kill by now.
    bool is_past = is_alive && status->deadline_ns != 0 && now.ns >= status->deadline_ns &&
                   !(status->flags & SHIM_SILENCE_HELD);

    ret->is_fence_known = is_known;
    ret->is_fence_silent = report_is_fence_silent(agent);
    ret->is_meta_alive = is_known && is_alive;
    ret->is_meta_stopped =
        is_known && (status->state == SHIM_TERMINATING || status->state == SHIM_ENDED);
    ret->hold = is_known && !is_alive && status->hold != SHIM_HOLD_NONE
                    ? shim_hold_name((enum shim_hold)status->hold)
                    : "";
    ret->has_to_die = agent->memory.kill_since.ns != 0 || is_past ||
                      (is_known && is_alive && status->state == SHIM_KILLING);
    ret->is_not_fenced = agent->plan.not_fenced != NOT_FENCED_NO;
}

void http_view_take(const struct agent *agent, struct http_view *ret)
{
    const struct election_fact *election = &agent->facts.election;
    struct instant deadline = agent->memory.deadline;
    struct instant now = clock_now();

    *ret = (struct http_view){
        .since_turn_ns = instant_since(clock_monotonic(), agent->clock.monotonic),
        .install_error = install_error(agent->install),
        .is_leader = agent->plan.label == LABEL_LEADER,
        .is_follower = agent->plan.label == LABEL_FOLLOWER,
        .role = role_name(agent),
        .rule = rule_name(agent->plan.rule),
        .has_deadline = deadline.ns != 0,
        .deadline_left_ns = instant_since(deadline, now),
        .is_row_known = election->known,
        .leader = election->known ? election->owner_id : "",
        .proof_age_ns = instant_since(now, election->sent_at),
        .is_term_known = election->known && election->term_known,
        .term = election->term,
        .database = database_state_name(agent->facts.database.state),
        .does_database_answer = agent->facts.database.state == DATABASE_ANSWERS,
        .is_covered = agent->plan.not_covered == 0,
        .is_config_valid = !agent->config_error[0],
    };
    view_meta(agent, now, ret);
}

// --- requests ---

static void on_request(const struct httphead *head, struct httpd_answer *answer, void *arg)
{
    struct http *http = arg;
    struct http_view view;

    if (httphead_text_is(head->path, "/metrics")) {
        bool is_openmetrics = prom_accepts_openmetrics(head->accept);

        answer->content_type = prom_content_type(is_openmetrics);
        metrics_write(http->agent, is_openmetrics, answer->body);
        return;
    }
    http_view_take(http->agent, &view);
    answer->content_type = "application/json";
    answer->status = http_answer(&view, head->path, head->query, answer->body);
    // It was answered from what is known; what is asked for now is there for the next one, and
    // for the decision.
    if (httphead_text_is(head->path, "/readyz"))
        agent_probe(http->agent);
}

// --- life ---

static int listen_now(struct http *http, struct err *err)
{
    const struct config *config = &http->agent->config;
    const struct httpd_config httpd = {
        .address = config->http_address,
        .port = (uint16_t)config->http_port,
        .max_conns = CONNECTIONS_MAX,
        .max_head = HEAD_MAX,
        .request_ns = REQUEST_NS,
        .idle_ns = IDLE_NS,
        .fn = on_request,
        .arg = http,
    };

    return httpd_new(http->agent->loop, &httpd, &http->httpd, err);
}

static void on_retry(void *arg)
{
    struct http *http = arg;
    struct err err = {0};

    if (listen_now(http, &err) == 0) {
        log_info("probes and metrics", kv_int("port", http->agent->config.http_port),
                 kv_str("address", http->agent->config.http_address));
        return;
    }
    if (!http->has_failed)
        log_error("no probes and no metrics until the port can be had", kv_err(&err));
    http->has_failed = true;
    loop_timer_arm(http->retry, RETRY_NS);
}

struct http *http_new(struct agent *agent)
{
    struct http *http = NULL;

    if (agent->config.http_port == 0)
        return NULL;
    http = calloc(1, sizeof(*http));
    if (!http)
        abort();
    http->agent = agent;
    http->retry = loop_timer_new(agent->loop, on_retry, http);
    on_retry(http);
    return http;
}

void http_free(struct http *http)
{
    if (!http)
        return;
    httpd_free(http->httpd);
    loop_timer_free(http->retry);
    free(http);
}
