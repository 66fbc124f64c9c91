// SPDX-License-Identifier: Apache-2.0
#include "agent/command.h"

#include <string.h>

#include "agent/agent.h"
#include "agent/status.h"
#include "base/log.h"

static void put_metrics(const struct agent *agent, struct buf *answer)
{
    struct buf page = {0};

    metrics_write(agent, false, &page);
    buf_puts(answer, "{\"metrics\":");
    buf_put_json(answer, buf_str(&page));
    buf_putc(answer, '}');
    buf_done(&page);
}

static void put_config(const struct agent *agent, struct buf *answer)
{
    struct buf shown = {0};

    config_show_json(&agent->config, agent->password != NULL, &shown);
    buf_append(answer, shown.data, shown.len - 1); // an answer ends with its own newline
    buf_done(&shown);
}

void command_take(const struct control_request *request, struct buf *answer, void *arg)
{
    struct agent *agent = arg;
    struct order_fact *orders = &agent->facts.orders;

    switch (request->command) {
    case CONTROL_STATUS: status_json(agent, answer); return;
    case CONTROL_RECONCILE: workers_order(agent->workers, request->is_dry, answer); return;
    case CONTROL_REPORT: workers_report_json(agent->workers, answer); return;
    case CONTROL_METRICS: put_metrics(agent, answer); return;
    case CONTROL_CONFIG: put_config(agent, answer); return;
    case CONTROL_RECOVER:
    case CONTROL_HANDOVER: planned_order(agent, request, answer); return;
    case CONTROL_FENCE:
        orders->manual_fence = true;
        agent->has_manual = true;
        memcpy(agent->manual_reason, request->reason, CONTROL_REASON_SIZE);
        kube_mirror_fence(agent->kube, request->reason);
        break;
    case CONTROL_UNFENCE:
        orders->manual_fence = false;
        agent->has_manual = true;
        agent->manual_reason[0] = '\0';
        kube_mirror_fence(agent->kube, NULL);
        break;
    case CONTROL_PAUSE:
        orders->pause_end = instant_add(clock_now(), request->pause_ns);
        agent->has_pause = true;
        memcpy(agent->pause_reason, request->reason, CONTROL_REASON_SIZE);
        kube_mirror_pause(agent->kube);
        break;
    case CONTROL_RESUME:
        orders->pause_end = (struct instant){0};
        agent->has_pause = true;
        agent->pause_reason[0] = '\0';
        kube_mirror_pause(agent->kube);
        break;
    }
    log_warn("ordered", kv_str("command", control_command_name(request->command)),
             kv_str("reason", request->reason), kv_int("uid", (int64_t)request->peer_uid),
             kv_dur("for", request->pause_ns));
    history_add(&agent->history, &agent->facts, &agent->memory,
                control_command_name(request->command), request->reason);
    kube_keep_order(agent, request->command);
    agent_feed(agent);
    buf_puts(answer, "{\"ok\":true}");
}
