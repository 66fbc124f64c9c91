// SPDX-License-Identifier: Apache-2.0
#include "agent/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "base/buf.h"

static const char *bool_text(bool value)
{
    return value ? "true" : "false";
}

static void put_text(struct buf *out, const char *key, const char *value)
{
    buf_printf(out, ",\"%s\":", key);
    buf_put_json(out, value);
}

static void put_bool(struct buf *out, const char *key, bool value)
{
    buf_printf(out, ",\"%s\":%s", key, bool_text(value));
}

static void put_count(struct buf *out, const char *key, uint64_t value)
{
    buf_printf(out, ",\"%s\":%" PRIu64, key, value);
}

static void put_ms(struct buf *out, const char *key, int64_t ns)
{
    buf_printf(out, ",\"%s\":%" PRId64, key, ns / NS_PER_MS);
}

// An instant as nanoseconds, null for none.
static void put_instant(struct buf *out, const char *key, struct instant t)
{
    if (t.ns)
        buf_printf(out, ",\"%s\":%" PRId64, key, t.ns);
    else
        buf_printf(out, ",\"%s\":null", key);
}

// A moment of our clock as wall time, for people.
static void put_wall(struct buf *out, const char *key, struct instant now, struct instant t)
{
    struct timespec wall = {0};
    char text[48];
    int64_t ns = 0;

    (void)clock_gettime(CLOCK_REALTIME, &wall); // can't fail
    ns = wall.tv_sec * NS_PER_SEC + wall.tv_nsec + instant_since(t, now);
    wall = (struct timespec){ns / NS_PER_SEC, ns % NS_PER_SEC};
    put_text(out, key, history_wall(wall, text, sizeof(text)));
}

static void put_election(const struct agent *agent, struct instant now, struct buf *out)
{
    static const char *const states[] = {[ROW_ABSENT] = "absent",
                                         [ROW_OURS] = "ours",
                                         [ROW_OTHER] = "other",
                                         [ROW_BROKEN] = "broken"};
    static const char *const defects[] = {
        [ROW_DEFECT_NONE] = "",
        [ROW_DEFECT_HEARTBEAT_NULL] = "heartbeat is NULL",
        [ROW_DEFECT_HEARTBEAT_FUTURE] = "heartbeat is in the future",
        [ROW_DEFECT_RELATION_MISSING] = "table is missing",
        [ROW_DEFECT_UNREADABLE] = "unreadable",
    };
    const struct election_fact *fact = &agent->facts.election;
    bool is_ours = strcasecmp(fact->owner_id, agent->config.core.id) == 0;
    enum row_state state = fact->row == ROW_OTHER && is_ours ? ROW_OURS : fact->row;

    buf_printf(out, ",\"row\":{\"known\":%s", bool_text(fact->known));
    put_text(out, "state", fact->known ? states[state] : "unknown");
    put_text(out, "defect", defects[fact->defect]);
    put_text(out, "id", fact->owner_id);
    put_ms(out, "age_ms", fact->known ? fact->age_ns + instant_since(now, fact->sent_at) : 0);
    put_bool(out, "advanced", agent->memory.heartbeat_advanced);
    put_text(out, "heartbeat_tag", fact->heartbeat_tag);
    buf_printf(out, "},\"term\":{\"known\":%s", bool_text(fact->term_known));
    put_count(out, "term", fact->term);
    put_text(out, "owner_id", fact->term_owner_id);
    put_text(out, "owner_tag", fact->owner_tag);
    put_bool(out, "guard_enforcing", fact->guard_enforcing);
    if (agent->executor.unguarded >= 0)
        put_count(out, "guard_tables_without", (uint64_t)agent->executor.unguarded);
    buf_puts(out, "},\"members\":");
    if (fact->members_known)
        buf_printf(out, "%" PRIu32, fact->other_members + 1);
    else
        buf_puts(out, "null");
}

static void put_database(const struct agent *agent, struct instant now, struct buf *out)
{
    const struct database_fact *fact = &agent->facts.database;

    buf_printf(out, ",\"database\":{\"state\":\"%s\"", database_state_name(fact->state));
    put_ms(out, "since_ms", fact->since.ns ? instant_since(now, fact->since) : 0);
    put_bool(out, "tls", agent->pg && pg_is_tls(agent->pg));
    put_bool(out, "listening", agent->pg && pg_is_listening(agent->pg));
    put_bool(out, "pooled", agent->pg && pg_is_pooled(agent->pg));
    put_text(out, "error", agent->database_error);
    buf_putc(out, '}');
}

static void put_meta(const struct agent *agent, struct instant now, struct buf *out)
{
    const struct fence_status *status = &agent->facts.fence.status;
    bool is_known = agent->facts.fence.known;
    char how[32] = "";

    buf_printf(out, ",\"fence\":{\"connected\":%s", bool_text(is_known));
    put_bool(out, "silent", report_is_fence_silent(agent));
    put_text(out, "method", agent->methods.pidfence ? "pidfd" : "shim");
    put_text(out, "unusable", methods_unusable(&agent->methods));
    put_bool(out, "pidfd_beside", agent->facts.methods.pidfd);
    buf_printf(out, "},\"meta\":{\"known\":%s", bool_text(is_known));
    put_count(out, "incarnation", status->incarnation);
    buf_printf(out, ",\"pid\":%" PRId32, status->pid);
    put_text(out, "tag", status->tag);
    put_bool(out, "alive", status->flags & SHIM_ALIVE);
    put_text(out, "state", is_known ? shim_state_name((enum shim_state)status->state) : "");
    put_text(out, "hold_reason",
             status->hold ? shim_hold_name((enum shim_hold)status->hold) : "");
    if (status->hold && status->hold_until_ns != INT64_MAX)
        put_ms(out, "hold_ms_left",
               instant_since((struct instant){status->hold_until_ns}, now));
    else
        buf_puts(out, ",\"hold_ms_left\":null");
    put_bool(out, "manual", status->flags & SHIM_MANUAL);
    put_bool(out, "paused", status->pause_end_ns > now.ns);
    put_bool(out, "service_open", status->ports & SHIM_PORT_SERVICE);
    put_bool(out, "leader_ports_open",
             status->ports & (SHIM_PORT_METRICS | SHIM_PORT_DASHBOARD));
    put_count(out, "restarts", status->restarts);
    put_count(out, "fences", status->fences);
    if (status->last_death.incarnation)
        report_wait_status(status->last_death.wait_status, how, sizeof(how));
    put_text(out, "last_exit", how);
    buf_putc(out, '}');
}

static void put_last_fence(const struct agent *agent, struct buf *out)
{
    const struct report_fence *fence = &agent->reporter.fence;

    if (!fence->incarnation) {
        buf_puts(out, ",\"last_fence\":null");
        return;
    }
    buf_printf(out, ",\"last_fence\":{\"incarnation\":%" PRIu64, fence->incarnation);
    put_text(out, "reason", fence_reason_name(fence->reason));
    put_bool(out, "by_metafence_run", fence->by_shim);
    put_instant(out, "decided_boot_ns", fence->decided_at);
    put_instant(out, "dead_boot_ns", fence->dead_at);
    put_instant(out, "sessions_gone_boot_ns", fence->sessions_gone_at);
    put_bool(out, "confirmed", report_is_confirmed(fence));
    buf_putc(out, '}');
}

// What keeps a manual fence from being confirmed; NULL: nothing.
static const char *fence_missing(const struct agent *agent)
{
    const struct fence_status *status = &agent->facts.fence.status;
    const struct fence_death *death = &status->last_death;

    if (!agent->facts.orders.manual_fence)
        return "no fence is ordered";
    if (!agent->facts.fence.known && !agent->methods.pidfence)
        return "NotFenced: no connection to metafence-run";
    if (report_is_fence_silent(agent) && !agent->methods.pidfence)
        return "NotFenced: metafence-run does not answer";
    if (!agent->facts.fence.known)
        return "NotFenced: meta can't be told from other processes, or is not seen";
    if (status->flags & SHIM_ALIVE)
        return "NotFenced: meta is still alive";
    if (!(status->flags & SHIM_MANUAL))
        return "NotFenced: metafence-run has not taken the order yet";
    if (death->incarnation == 0 || !death->tag[0] ||
        agent->facts.cleanup.sessions_gone == death->incarnation)
        return NULL;
    if (!death->engaged && death->reason == FENCE_REASON_NONE)
        return NULL;
    if (agent->facts.database.state != DATABASE_ANSWERS)
        return "meta is dead, but Postgres can't be asked whether its sessions are gone";
    return "meta is dead, but its sessions in Postgres are not gone yet";
}

static void put_orders(const struct agent *agent, struct instant now, struct buf *out)
{
    const struct order_fact *orders = &agent->facts.orders;
    const char *missing = fence_missing(agent);

    put_bool(out, "manual_fence", orders->manual_fence);
    put_text(out, "manual_reason", agent->manual_reason);
    if (instant_before(now, orders->pause_end))
        put_wall(out, "paused_until", now, orders->pause_end);
    else
        buf_puts(out, ",\"paused_until\":null");
    put_text(out, "pause_reason", agent->pause_reason);
    buf_printf(out, ",\"fenced\":{\"confirmed\":%s", bool_text(!missing));
    put_text(out, "why", missing ? missing : "");
    buf_putc(out, '}');
}

static void put_not_covered(uint32_t bits, struct buf *out)
{
    bool is_first = true;

    buf_puts(out, ",\"not_covered\":[");
    for (uint32_t bit = 1; not_covered_name(bit); bit <<= 1) {
        if (!(bits & bit))
            continue;
        buf_printf(out, "%s\"%s\"", is_first ? "" : ",", not_covered_name(bit));
        is_first = false;
    }
    buf_putc(out, ']');
}

static void put_not_fenced(const struct agent *agent, struct instant now, struct buf *out)
{
    const struct plan *plan = &agent->plan;

    if (!plan->not_fenced) {
        buf_puts(out, ",\"not_fenced\":null");
        return;
    }
    buf_printf(out, ",\"not_fenced\":{\"since_ms\":%" PRId64,
               instant_since(now, plan->not_fenced_since) / NS_PER_MS);
    put_text(out, "method", fence_method_name(plan->method));
    put_text(out, "why", not_fenced_why(agent));
    buf_putc(out, '}');
}

static void put_counters(const struct agent *agent, struct buf *out)
{
    static const struct pg_stats none = {0};
    const struct report_counters *counters = &agent->reporter.counters;
    const struct pg_stats *pg = agent->pg ? pg_stats(agent->pg) : &none;

    buf_printf(out, ",\"counters\":{\"turns\":%" PRIu64, counters->turns);
    put_count(out, "reads", counters->reads);
    put_count(out, "reads_failed", counters->reads_failed);
    put_count(out, "hedges", pg->hedges);
    put_count(out, "hedge_wins", pg->hedge_wins);
    put_count(out, "connects", pg->connects);
    put_count(out, "connect_failures", pg->connect_failures);
    put_count(out, "notifications", counters->notifications);
    put_count(out, "orders", counters->orders);
    put_count(out, "statuses", counters->statuses);
    put_count(out, "statuses_refused", counters->statuses_refused);
    put_count(out, "status_calls", counters->status_calls);
    put_count(out, "kills", counters->kills);
    put_count(out, "deaths", counters->deaths);
    put_count(out, "shim_kills", counters->shim_kills);
    put_count(out, "sessions_ended", counters->sessions_ended);
    put_count(out, "phantoms_dropped", counters->phantoms_dropped);
    buf_puts(out, ",\"rules\":{");
    for (int i = 0; i < RULE_COUNT; i++)
        buf_printf(out, "%s\"%s\":%" PRIu64, i ? "," : "", rule_name((enum rule)i),
                   counters->rules[i]);
    buf_puts(out, "}}");
}

static void put_config(const struct agent *agent, struct buf *out)
{
    bool is_good = !agent->config_error[0];

    buf_printf(out, ",\"config\":{\"valid\":%s", bool_text(is_good));
    put_text(out, "running_on",
             is_good ? "file" : (agent->is_last_good ? "last good" : "built-in"));
    put_text(out, "error", agent->config_error);
    put_text(out, "override_error", agent->config.override_error);
    buf_putc(out, '}');
}

void status_json(const struct agent *agent, struct buf *out)
{
    const struct core_memory *memory = &agent->memory;
    struct instant now = clock_now();

    buf_printf(out, "{\"version\":\"%s\",\"boot_ns\":%" PRId64, METAFENCE_VERSION, now.ns);
    put_text(out, "id", agent->config.core.id);
    put_text(out, "podUid", agent->config.pod_uid);
    put_text(out, "podName", agent->config.pod_name);
    put_config(agent, out);
    put_text(out, "rule", rule_name(agent->plan.rule));
    put_text(out, "role", role_name(agent));
    put_bool(out, "armed", memory->armed);
    put_bool(out, "engaged", memory->engaged);
    put_bool(out, "superseded", memory->superseded);
    put_orders(agent, now, out);
    put_election(agent, now, out);
    put_database(agent, now, out);
    if (memory->deadline.ns)
        put_ms(out, "deadline_ms_left", instant_since(memory->deadline, now));
    else
        buf_puts(out, ",\"deadline_ms_left\":null");
    put_not_covered(agent->plan.not_covered, out);
    put_not_fenced(agent, now, out);
    put_meta(agent, now, out);
    put_last_fence(agent, out);
    kube_status_json(agent->kube, out);
    workers_status_json(agent->workers, out);
    reclaim_status_json(agent->reclaim, out);
    planned_status_json(agent, now, out);
    put_counters(agent, out);
    buf_puts(out, ",\"history\":");
    history_json(&agent->history, out);
    buf_putc(out, '}');
}
