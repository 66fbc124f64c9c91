// SPDX-License-Identifier: Apache-2.0
// What status shows.
#include <inttypes.h>

#include "agent/agent.h"
#include "agent/reclaim/parts.h"
#include "base/buf.h"

static const char *bool_text(bool value)
{
    return value ? "true" : "false";
}

static const char *mode_name(enum order_mode mode)
{
    switch (mode) {
    case ORDER_OFF: return "off";
    case ORDER_OBSERVE: return "observe";
    case ORDER_ENFORCE: return "enforce";
    }
    return "off";
}

static void put_text(struct buf *out, const char *key, const char *value)
{
    buf_printf(out, ",\"%s\":", key);
    buf_put_json(out, value);
}

static void put_order(const struct reclaim *reclaim, struct buf *out)
{
    const struct order_plan *plan = reclaim->plan;

    put_text(out, "step", order_step_name(plan->step));
    put_text(out, "waits_for", order_wait_name(plan->wait));
    put_text(out, "init", order_block_name(plan->block));
    if (plan->hold_start)
        buf_printf(out, ",\"start_held_ms\":%" PRId64,
                   instant_since(plan->hold_until, clock_now()) / NS_PER_MS);
    else
        buf_puts(out, ",\"start_held_ms\":null");
}

static void put_open(const struct recovery_state *state, struct buf *out)
{
    if (state->id == 0) {
        buf_puts(out, ",\"open\":null");
        return;
    }
    buf_printf(out,
               ",\"open\":{\"id\":%" PRId64 ",\"attempts\":%" PRIu32 ",\"refused\":%" PRIu32
               ",\"round\":%" PRIu32 ",\"age_ms\":%" PRId64 ",\"is_waiting\":%s"
               ",\"is_refused\":%s,\"missing\":%" PRIu32 ",\"hold_left_ms\":",
               state->id, state->attempts, state->refused, state->round, state->age_ms,
               bool_text(state->is_waiting), bool_text(state->is_refused), state->missing);
    if (state->is_hold_known)
        buf_printf(out, "%" PRId64 "}", state->hold_left_ms);
    else
        buf_puts(out, "null}");
}

static void put_state(const struct reclaim *reclaim, struct buf *out)
{
    static const char *const deaths[] = {[RECOVERY_DEATHS_UNKNOWN] = "unknown",
                                         [RECOVERY_DEATHS_IMPLIED] = "implied",
                                         [RECOVERY_DEATHS_CONFIRMED] = "confirmed"};
    const struct recovery_state *state = &reclaim->known.state;

    buf_printf(out, ",\"known\":%s,\"leading\":%s", bool_text(reclaim->known.is_known),
               bool_text(reclaim->facts.is_leader));
    put_text(out, "version", state->version);
    buf_printf(out,
               ",\"verified\":%s,\"predecessor\":\"%s\",\"gate_fresh\":%s"
               ",\"compute_nodes\":%" PRIu32 ",\"dropped_fragments\":%" PRIu32
               ",\"creating_jobs\":%" PRIu32,
               bool_text(state->is_verified), deaths[state->predecessor],
               bool_text(state->is_gate_fresh), state->live, state->dropped, state->creating);
    put_open(state, out);
}

static void put_nodes(const struct reclaim *reclaim, struct buf *out)
{
    buf_puts(out, ",\"nodes\":[");
    for (size_t i = 0; i < reclaim->node_count && i < ORDER_NODES_MAX; i++) {
        const struct reclaim_node *node = reclaim->nodes[i];

        buf_printf(out, "%s{\"worker_id\":%" PRId32 ",\"port\":%" PRId32, i ? "," : "",
                   node->worker_id, node->port);
        put_text(out, "host", node->host);
        put_text(out, "evidence", order_evidence_name(reclaim->plan->nodes[i].evidence));
        buf_printf(out, ",\"killed\":%s", bool_text(node->kill.agreed_at.ns != 0));
        put_text(out, "error", node->detail);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

static void put_shown(const char *key, const struct drops_shown *shown, size_t count,
                      struct buf *out)
{
    buf_printf(out, ",\"%s\":[", key);
    for (size_t i = 0; i < count; i++) {
        buf_printf(out, "%s{\"id\":%" PRId64 ",\"job\":%" PRId64 ",\"age_ms\":%" PRId64,
                   i ? "," : "", shown[i].id, shown[i].job_id, shown[i].age_ms);
        put_text(out, "name", shown[i].name);
        put_text(out, "tables", shown[i].tables);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

void reclaim_status_json(const struct reclaim *reclaim, struct buf *out)
{
    if (!reclaim) {
        buf_puts(out, ",\"recovery\":null");
        return;
    }
    buf_printf(out, ",\"recovery\":{\"mode\":\"%s\",\"acts_as\":\"%s\"",
               mode_name(reclaim->agent->config.recovery.mode), mode_name(reclaim->facts.mode));
    put_order(reclaim, out);
    put_state(reclaim, out);
    put_nodes(reclaim, out);
    put_shown("dropped", reclaim->drops.dropped_shown, reclaim->drops.dropped_shown_count, out);
    put_shown("creating", reclaim->drops.creating_shown, reclaim->drops.creating_shown_count,
              out);
    put_text(out, "error", reclaim->error);
    buf_putc(out, '}');
}
