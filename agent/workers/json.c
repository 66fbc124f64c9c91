// SPDX-License-Identifier: Apache-2.0
// What status and `metafence reconcile` show.
#include <inttypes.h>
#include <stdio.h>

#include "agent/agent.h"
#include "agent/workers/parts.h"
#include "base/buf.h"

#define REPORT_ROWS_MAX 1000

static const char *bool_text(bool value)
{
    return value ? "true" : "false";
}

static const char *mode_name(enum reconcile_mode mode)
{
    switch (mode) {
    case RECONCILE_OFF: return "off";
    case RECONCILE_OBSERVE: return "observe";
    case RECONCILE_ENFORCE: return "enforce";
    }
    return "off";
}

static const char *guard_name(enum reconcile_guard guard)
{
    switch (guard) {
    case RECONCILE_GUARD_OFF: return "off";
    case RECONCILE_GUARD_OBSERVE: return "observe";
    case RECONCILE_GUARD_ENFORCE: return "enforce";
    }
    return "off";
}

static void put_state(const struct workers *workers, struct buf *out)
{
    const struct store_state *state = &workers->state;

    buf_printf(out,
               ",\"state\":{\"known\":%s,\"term\":%" PRIu64 ",\"guard\":\"%s\",\"log_known\":%s"
               ",\"tombstones\":%" PRIu32 ",\"intents\":%" PRIu32 ",\"unknown_rows\":%" PRIu32
               ",\"lost_rows\":%" PRIu32 ",\"reborn_rows\":%" PRIu32 ",\"untagged_writers\":%s",
               bool_text(workers->state_at.ns != 0), state->term, guard_name(state->guard),
               bool_text(state->is_known), state->tombstones, state->intents,
               state->unknown_rows, state->lost_rows, state->reborn_rows,
               bool_text(state->untagged_writers));
    if (state->ghosts_known)
        buf_printf(out, ",\"actor_ghosts\":%" PRIu32 "}", state->ghosts);
    else
        buf_puts(out, ",\"actor_ghosts\":null}");
}

static void put_cure(const struct workers *workers, struct buf *out)
{
    static const char *const outcomes[] = {[CONVERGE_IDLE] = "none",
                                           [CONVERGE_PENDING] = "pending",
                                           [CONVERGE_DONE] = "done",
                                           [CONVERGE_FAILED] = "failed",
                                           [CONVERGE_UNKNOWN_SENT] = "unknown"};
    const struct workers_cure *cure = &workers->cure;

    buf_puts(out, ",\"memory\":{\"reason\":");
    buf_put_json(out, converge_reason_name(cure->plan.reason));
    buf_printf(out,
               ",\"alarm\":%s,\"last_cure\":\"%s\",\"outcome\":\"%s\",\"recovers\":%u"
               ",\"restarts\":%u,\"recovering_ms\":",
               bool_text(converge_is_alarm(cure->plan.reason)),
               converge_cure_name(cure->memory.asked), outcomes[cure->outcome],
               cure->memory.recovers, cure->memory.restarts);
    if (cure->status == CONVERGE_STATUS_UNKNOWN)
        buf_puts(out, "null}");
    else
        buf_printf(out, "%" PRId64 "}", cure_recovering_ns(cure) / NS_PER_MS);
}

void workers_order(struct workers *workers, bool dry_run, struct buf *answer)
{
    const struct agent *agent = NULL;
    char error[2 * FACT_ID_SIZE + 128];

    if (!workers) {
        buf_puts(answer, "{\"ok\":false,\"error\":\"reconcile.mode is off, or no database is "
                         "configured\"}");
        return;
    }
    agent = workers->agent;
    if (!workers->is_leading) {
        (void)snprintf(error, sizeof(error),
                       "the meta beside this agent (%s) is not the verified leader: ask the "
                       "agent of the leader's pod, %.250s",
                       agent->config.core.id,
                       agent->facts.election.known && agent->facts.election.owner_id[0]
                           ? agent->facts.election.owner_id
                           : "which is not known now");
        buf_puts(answer, "{\"ok\":false,\"error\":");
        buf_put_json(answer, error);
        buf_putc(answer, '}');
        return;
    }
    workers->pass.is_ordered = true;
    workers->pass.is_dry = dry_run;
    loop_timer_arm(workers->timer, 0);
    // One that is under way now began before the order: it is not the answer.
    buf_printf(answer, "{\"ok\":true,\"passes\":%" PRIu64 "}",
               workers->pass.number + (workers->is_busy && !workers->pass.has_judged));
}

static void put_row(const struct workers_pass *pass, uint32_t index, struct buf *out)
{
    const struct worker_row *row = &pass->gather.rows[index];
    const struct worker_judgment *judgment = &pass->plan.judgments[index];
    const char *pod = judgment->pod >= 0 ? pass->gather.pods[judgment->pod].name : "";

    buf_printf(out, "{\"id\":%" PRId32 ",\"type\":", row->id);
    buf_put_json(out, worker_type_name(row->type));
    buf_puts(out, ",\"host\":");
    buf_put_json(out, row->host ? row->host : "");
    buf_printf(out, ",\"port\":%" PRId32 ",\"verdict\":\"%s\",\"reason\":\"%s\"", row->port,
               worker_verdict_name((enum worker_verdict)judgment->verdict),
               worker_reason_name((enum worker_reason)judgment->reason));
    buf_printf(out, ",\"held\":%s,\"leader_knows\":%s,\"confirmed_in_ms\":%" PRId64 ",\"pod\":",
               bool_text(judgment->is_held), bool_text(row->leader_knows),
               judgment->confirm_in_ns / NS_PER_MS);
    buf_put_json(out, pod);
    buf_puts(out, ",\"known_pod\":");
    buf_put_json(out, reconcile_pod_uid(&pass->memory, judgment->known_pod));
    buf_puts(out, ",\"proof\":");
    if (judgment->verdict == VERDICT_GONE || judgment->reason == REASON_UNCONFIRMED)
        buf_put_json(out, worker_reason_name((enum worker_reason)judgment->proof));
    else
        buf_puts(out, "null");
    buf_putc(out, '}');
}

// First what does not live: that is what one asks for.
static void put_rows(const struct workers_pass *pass, struct buf *out)
{
    uint32_t count = pass->gather.snapshot.row_count;
    uint32_t put = 0;

    buf_puts(out, ",\"rows\":[");
    for (unsigned is_live = 0; is_live < 2; is_live++) {
        for (uint32_t i = 0; i < count && put < REPORT_ROWS_MAX; i++) {
            if ((pass->plan.judgments[i].verdict == VERDICT_LIVE) != (is_live == 1))
                continue;
            if (put++)
                buf_putc(out, ',');
            put_row(pass, i, out);
        }
    }
    buf_printf(out, "],\"rows_total\":%" PRIu32 ",\"pods\":%" PRIu32 ",\"endpoints\":%" PRIu32,
               count, pass->gather.snapshot.pod_count, pass->gather.snapshot.endpoint_count);
}

static void put_actions(const struct workers_pass *pass, struct buf *out)
{
    static const char *const names[] = {[RECONCILE_BURY] = "bury",
                                        [RECONCILE_UNBURY] = "unbury",
                                        [RECONCILE_DELETE_RPC] = "delete"};
    static const char *const results[] = {"would", "done", "not done"};

    buf_puts(out, ",\"actions\":[");
    for (unsigned i = 0; i < pass->plan.action_count; i++)
        buf_printf(out, "%s{\"action\":\"%s\",\"id\":%" PRId32 ",\"result\":\"%s\"}",
                   i ? "," : "", names[pass->plan.actions[i].kind],
                   pass->plan.actions[i].worker_id, results[pass->results[i]]);
    buf_puts(out, "]");
}

void workers_report_json(const struct workers *workers, struct buf *out)
{
    const struct workers_pass *pass = workers ? &workers->pass : NULL;

    if (!workers || !pass->has_judged || workers->is_busy) {
        buf_puts(out, "{\"ok\":false}");
        return;
    }
    buf_printf(out, "{\"ok\":true,\"passes\":%" PRIu64 ",\"dry\":%s,\"held\":%" PRIu32,
               pass->number, bool_text(pass->plan.is_dry), pass->held);
    put_state(workers, out);
    put_cure(workers, out);
    put_rows(pass, out);
    put_actions(pass, out);
    buf_puts(out, ",\"incomplete\":");
    buf_put_json(out, pass->error);
    buf_putc(out, '}');
}

static void put_last_pass(const struct pass_summary *last, struct buf *out)
{
    if (last->at.ns == 0) {
        buf_puts(out, ",\"last_pass\":null");
        return;
    }
    buf_printf(out,
               ",\"last_pass\":{\"age_ms\":%" PRId64 ",\"whole\":%s,\"live\":%" PRIu32
               ",\"gone\":%" PRIu32 ",\"unknown\":%" PRIu32 ",\"orphans\":",
               instant_since(clock_now(), last->at) / NS_PER_MS, bool_text(last->is_whole),
               last->rows[VERDICT_LIVE], last->rows[VERDICT_GONE], last->rows[VERDICT_UNKNOWN]);
    if (last->orphans < 0)
        buf_puts(out, "null}");
    else
        buf_printf(out, "%" PRId32 "}", last->orphans);
}

void workers_status_json(const struct workers *workers, struct buf *out)
{
    if (!workers) {
        buf_puts(out, ",\"workers\":null");
        return;
    }
    buf_printf(out,
               ",\"workers\":{\"mode\":\"%s\",\"leading\":%s,\"rounds\":%" PRIu64
               ",\"failures\":%" PRIu64,
               mode_name(workers->agent->config.reconcile.mode), bool_text(workers->is_leading),
               workers->rounds, workers->failures);
    put_state(workers, out);
    put_cure(workers, out);
    buf_printf(out,
               ",\"passes\":%" PRIu64 ",\"held\":%" PRIu32 ",\"error\":", workers->pass.number,
               workers->pass.held);
    buf_put_json(out, workers->error);
    put_last_pass(&workers->pass.last, out);
    buf_putc(out, '}');
}
