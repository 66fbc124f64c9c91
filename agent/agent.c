// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/command.h"
#include "agent/trim.h"
#include "base/log.h"
#include "base/resolve.h"

#define NOTIFY_SPACING_NS (50 * NS_PER_MS)
#define CONTROL_RETRY_NS  NS_PER_SEC
#define CALM_NS           (5 * NS_PER_SEC)
#define TURN_AGAIN_NS     NS_PER_SEC // a decision at least so often, also with a poll of an hour

// --- reads ---

static void on_read(const struct election_read *read, void *arg)
{
    struct agent *agent = arg;
    struct executor *executor = &agent->executor;
    bool is_answer = read->status == ELECTION_OK;

    executor->is_reading = false;
    agent->reporter.counters.reads += is_answer;
    if (is_answer) {
        prom_observe(&agent->metrics.query, instant_since(read->received_at, read->sent_at));
        report_answer(agent, instant_since(read->received_at, read->sent_at));
    }
    agent->reporter.counters.reads_failed += !is_answer;
    (void)snprintf(agent->database_error, sizeof(agent->database_error), "%s",
                   read->status == ELECTION_STANDBY   ? "this is a standby"
                   : is_answer && read->schema_denied ? "schema metafence is not readable"
                                                      : read->fault.err.msg);
    if (is_answer)
        report_schema(agent, read->schema_denied);
    if (observe_read(&agent->facts, read, executor->read_tag,
                     agent->config.core.max_clock_jump_ns, clock_now()))
        agent_feed(agent);
    if (read->status == ELECTION_STANDBY)
        pg_renew(agent->pg);
    if (executor->read_again && is_answer)
        agent_read(agent);
}

void agent_read(struct agent *agent)
{
    struct executor *executor = &agent->executor;

    if (!agent->has_database || executor->is_reading)
        return;
    executor->read_again = false;
    memcpy(executor->read_tag, agent->facts.fence.status.tag, sizeof(executor->read_tag));
    executor->is_reading = election_read(agent->election, executor->read_tag, on_read, agent);
}

static void arm_poll(struct agent *agent, int64_t after_ns)
{
    agent->poll_due = instant_add(clock_now(), after_ns);
    loop_timer_arm(agent->poll, after_ns);
}

static void read_notified(struct agent *agent, struct instant now)
{
    agent->is_notified = false;
    agent->notified_at = now;
    agent->executor.read_again = agent->executor.is_reading;
    agent_read(agent);
}

static void on_poll(void *arg)
{
    struct agent *agent = arg;
    struct instant now = clock_now();
    int64_t quiet_ns = instant_since(now, agent->executor.sent_at);

    prom_observe(&agent->metrics.lag, instant_since(now, agent->poll_due));
    arm_poll(agent, agent->config.core.poll_ns);
    if (agent->is_notified)
        read_notified(agent, now);
    // Answered reads make turns; while they are not answered, the poll does.
    if (quiet_ns >= agent->config.core.poll_ns + agent->config.core.poll_ns / 2)
        agent_feed(agent);
    agent_read(agent);
}

static void on_pg_up(void *arg)
{
    struct agent *agent = arg;
    bool is_pooled = pg_is_pooled(agent->pg);

    if (is_pooled && !agent->is_pooled)
        log_warn("Postgres is reached through a pooler: polls alone, no notifications",
                 kv_str("fix", "point postgres.host at the server, or name the schema in "
                               "election.leaderTable, as other clients may set search_path"));
    agent->is_pooled = is_pooled;
    agent_read(agent);
}

static void on_pg_down(const struct pg_fault *fault, void *arg)
{
    struct agent *agent = arg;

    (void)snprintf(agent->database_error, sizeof(agent->database_error), "%s", fault->err.msg);
    if (observe_database_down(&agent->facts, fault, clock_now()))
        agent_feed(agent);
}

// Any session may notify and anybody may probe, as often as they like: the first is answered by
// a read at once, what comes soon after it by one read for all.
static void want_fresh_read(struct agent *agent)
{
    struct instant now = clock_now();
    int64_t wait_ns = instant_since(instant_add(agent->notified_at, NOTIFY_SPACING_NS), now);

    if (wait_ns <= 0) {
        read_notified(agent, now);
    } else if (!agent->is_notified) {
        agent->is_notified = true;
        arm_poll(agent, wait_ns);
    }
}

static void on_pg_notify(const char *payload, void *arg)
{
    struct agent *agent = arg;

    (void)payload; // only a hint to look: what counts is what is read
    agent->reporter.counters.notifications++;
    want_fresh_read(agent);
}

void agent_probe(struct agent *agent)
{
    want_fresh_read(agent);
}

static const struct pg_ops pg_ops = {on_pg_up, on_pg_down, on_pg_notify};

// --- metafence-run ---

// What an operator asked of an earlier agent, metafence-run has kept.
static void take_over_orders(struct agent *agent, const struct fence_status *status)
{
    if (!agent->has_manual)
        agent->facts.orders.manual_fence = status->flags & SHIM_MANUAL;
    if (!agent->has_pause)
        agent->facts.orders.pause_end = (struct instant){status->pause_end_ns};
    agent->has_manual = agent->has_pause = true;
}

static void on_fence_status(const struct fence_status *status, void *arg)
{
    struct agent *agent = arg;
    bool is_new_count = observe_is_new_count(&agent->facts, status);

    agent->reporter.counters.statuses++;
    take_over_orders(agent, status);
    if (observe_fence_status(&agent->facts, status, clock_now()))
        agent_feed(agent);
    if (is_new_count)
        execute_forget_count(agent);
}

static void on_fence_up(void *arg)
{
    struct agent *agent = arg;

    execute_forget_order(&agent->executor);
    log_info("connected to metafence-run", kv_str("socket", agent->config.fence_socket));
}

static void on_fence_down(const struct err *err, void *arg)
{
    struct agent *agent = arg;

    log_warn("no connection to metafence-run", kv_err(err));
    (void)observe_fence_down(&agent->facts);
    agent_feed(agent);
}

static void on_fence_garbage(const struct err *err, void *arg)
{
    struct agent *agent = arg;

    if (agent->reporter.counters.statuses_refused++ == 0)
        log_warn("metafence-run sent what is no status; further ones are counted only",
                 kv_err(err));
}

static const struct fencelink_ops fence_ops = {on_fence_status, on_fence_down, on_fence_up,
                                               on_fence_garbage};

static void on_methods(void *arg)
{
    agent_feed(arg);
}

static void on_rpc(const struct grpc_result *result, void *arg)
{
    struct agent *agent = arg;

    execute_rpc_done(agent, result);
}

// --- turns ---

static void stop_if_meta_is_gone(struct agent *agent)
{
    const struct fence_status *status = &agent->facts.fence.status;

    if (!agent->is_stopping || (agent->facts.fence.known && (status->flags & SHIM_ALIVE)))
        return;
    // A metafence-run that ended with its meta may have left no word of it: the rules keep the
    // role of a silent one until its deadline, and we won't be there then.
    kube_label(agent->kube, LABEL_UNKNOWN);
    loop_stop(agent->loop);
}

static void on_calm(void *arg)
{
    (void)arg;
    trim_code_pages();
}

// What a start, a change of roles or an outage needed is not needed in the long calm after it.
static void trim_when_calm(struct agent *agent)
{
    if (agent->history.count == agent->history_seen)
        return;
    agent->history_seen = agent->history.count;
    loop_timer_arm(agent->calm, CALM_NS);
}

// Polls make the turns that keep metafence-run told of us, and liveness true. Rare ones don't.
static struct instant next_pulse(const struct agent *agent)
{
    return agent->config.core.poll_ns <= TURN_AGAIN_NS
               ? INSTANT_NEVER
               : instant_add(agent->facts.now, TURN_AGAIN_NS);
}

static void on_turn(void *arg)
{
    struct agent *agent = arg;
    struct instant again;

    if (!agent->turn_due)
        return;
    agent->turn_due = false;
    observe_time(&agent->facts, &agent->clock, clock_now(), clock_monotonic());
    methods_look(&agent->methods, &agent->facts);
    agent->facts.methods.kubelet = agent->kube != NULL;
    agent->facts.methods.delete_pod =
        agent->config.fence_delete_pod && kube_can_delete_pod(agent->kube);
    reclaim_before_turn(agent->reclaim);
    decide(&agent->config.core, &agent->facts, &agent->memory, &agent->plan);
    again = execute_plan(agent);
    report_turn(agent);
    workers_turn(agent->workers);
    again = instant_min(again, reclaim_turn(agent->reclaim));
    metrics_turn(&agent->metrics, &agent->facts, &agent->plan);
    again = instant_min(again, next_pulse(agent));
    loop_deadline_set(agent->wake, instant_min(agent->plan.wake_at, again));
    stop_if_meta_is_gone(agent);
    trim_when_calm(agent);
}

static void on_wake(struct instant deadline, void *arg)
{
    (void)deadline;
    agent_feed(arg);
}

static void on_signal(int signo, void *arg)
{
    struct agent *agent = arg;
    const struct fence_status *status = &agent->facts.fence.status;
    bool is_needed = agent->facts.fence.known && (status->flags & SHIM_ALIVE);

    if (signo == SIGINT || agent->is_stopping || !is_needed) {
        log_info("stopping", kv_int("signal", signo));
        loop_stop(agent->loop);
        return;
    }
    // An agent that leaves first would let a healthy leader's permit run out.
    agent->is_stopping = true;
    log_info("asked to stop: permitting until meta is gone; a second signal stops at once",
             kv_int("pid", status->pid));
}

// --- the control socket ---

// Orders come by this socket, permits do not: without it (a full disk, a directory that is not
// there yet) a healthy leader is permitted to live all the same. Another agent in its place is
// a reason not to run.
static int open_control(struct agent *agent, struct err *err)
{
    const struct control_config control = {agent->config.control_socket, command_take, agent};

    if (control_new(agent->loop, &control, &agent->control, err) == 0)
        return 0;
    if (err->kind == ERR_CONFLICT)
        return -1;
    log_error("no status and no orders until the control socket can be made", kv_err(err));
    loop_timer_arm(agent->control_retry, CONTROL_RETRY_NS);
    return 0;
}

static void on_control_retry(void *arg)
{
    struct agent *agent = arg;
    const struct control_config control = {agent->config.control_socket, command_take, agent};
    struct err err = {0};

    if (control_new(agent->loop, &control, &agent->control, &err) < 0)
        loop_timer_arm(agent->control_retry, CONTROL_RETRY_NS);
    else
        log_info("control socket", kv_str("path", agent->config.control_socket));
}

// --- life ---

static int open_database(struct agent *agent, struct err *err)
{
    const struct config *config = &agent->config;
    const struct config_postgres *postgres = &config->postgres;
    const struct resolve_config resolve = {.query_timeout_ns = config->core.connect_timeout_ns};

    agent->pg_params = (struct pg_params){
        .host = postgres->host,
        .port = (uint16_t)postgres->port,
        .database = postgres->database,
        .user = postgres->user,
        .password = postgres->password_file[0] ? NULL : agent->password,
        .password_file = postgres->password_file[0] ? postgres->password_file : NULL,
        .sslmode = postgres->sslmode,
        .sslrootcert = postgres->ssl_root_cert[0] ? postgres->ssl_root_cert : NULL,
        .application_name = postgres->application_name,
        .connect_timeout_ns = config->core.connect_timeout_ns,
        .query_timeout_ns = config->core.query_timeout_ns,
        .listen = config->notify,
    };
    agent->election_config = (struct election_config){
        .service = config->election.service,
        .leader_table = config->election.leader_table,
        .member_table = config->election.member_table,
        .id = config->core.id,
    };
    if (resolver_new(agent->loop, &resolve, &agent->resolver, err) < 0)
        return err_wrap(err, "resolver");
    const struct pg_net net = {agent->loop, agent->resolver, &agent->pg_params};
    if (pg_new(&net, &pg_ops, agent, &agent->pg, err) < 0)
        return err_wrap(err, "postgres");
    if (election_new(agent->pg, &agent->election_config, &agent->election, err) < 0)
        return -1;
    agent->has_database = true;
    return 0;
}

static int open_parts(struct agent *agent, struct err *err)
{
    const struct grpc_client_config grpc = {
        .port = (uint16_t)agent->config.meta_service_port,
        .timeout_ns = agent->config.core.query_timeout_ns,
        .on_result = on_rpc,
        .arg = agent,
    };
    const struct methods_config methods = {&agent->config, &fence_ops, on_methods, agent};
    static const int signos[] = {SIGTERM, SIGINT};

    if (loop_new(&agent->loop, err) < 0 ||
        loop_deadline_new(agent->loop, on_wake, agent, &agent->wake, err) < 0)
        return -1;
    agent->control_retry = loop_timer_new(agent->loop, on_control_retry, agent);
    if (open_control(agent, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(signos) / sizeof(signos[0]); i++) {
        agent->signals[i] = loop_signal_new(agent->loop, signos[i], on_signal, agent, err);
        if (!agent->signals[i])
            return -1;
    }
    agent->poll = loop_timer_new(agent->loop, on_poll, agent);
    agent->calm = loop_timer_new(agent->loop, on_calm, agent);
    agent->grpc = grpc_client_new(agent->loop, &grpc);
    methods_open(&agent->methods, agent->loop, &methods);
    loop_on_turn(agent->loop, on_turn, agent);
    agent->install = install_new(agent->loop, agent->config.metafence_run);
    agent->http = http_new(agent);
    return 0;
}

int agent_new(const struct agent_start *start, struct agent **ret_agent, struct err *err)
{
    struct agent *agent = calloc(1, sizeof(*agent));

    if (!agent)
        abort();
    agent->executor.unguarded = agent->reporter.unguarded = -1;
    agent->config = *start->config;
    metrics_init(&agent->metrics);
    agent->clock.monotonic = clock_monotonic(); // until the first decision
    agent->password = start->password;
    agent->is_last_good = start->is_last_good;
    (void)snprintf(agent->config_error, sizeof(agent->config_error), "%s", start->config_error);
    if (open_parts(agent, err) < 0 ||
        (agent->config.postgres.host[0] && open_database(agent, err) < 0)) {
        agent_free(agent);
        return -1;
    }
    agent->kube = kube_new(agent);
    agent->workers = workers_new(agent);
    agent->reclaim = reclaim_new(agent);
    *ret_agent = agent;
    return 0;
}

void agent_free(struct agent *agent)
{
    if (!agent)
        return;
    reclaim_free(agent->reclaim);
    workers_free(agent->workers);
    planned_free(&agent->planned);
    kube_free(agent->kube);
    http_free(agent->http);
    install_free(agent->install);
    pg_free(agent->pg);
    election_free(agent->election);
    resolver_free(agent->resolver);
    methods_close(&agent->methods);
    grpc_client_free(agent->grpc);
    loop_timer_free(agent->poll);
    loop_timer_free(agent->calm);
    loop_timer_free(agent->control_retry);
    for (size_t i = 0; i < sizeof(agent->signals) / sizeof(agent->signals[0]); i++)
        loop_signal_free(agent->signals[i]);
    control_free(agent->control);
    loop_deadline_free(agent->wake);
    loop_free(agent->loop);
    if (agent->password)
        explicit_bzero(agent->password, strlen(agent->password));
    free(agent->password);
    free(agent);
}

int agent_run(struct agent *agent)
{
    struct err err = {0};

    arm_poll(agent, 0);
    agent_feed(agent);
    if (loop_run(agent->loop, &err) < 0) {
        log_error("the loop ended", kv_err(&err));
        return 1;
    }
    return 0;
}
