// SPDX-License-Identifier: Apache-2.0
#include "fence/probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fence/log.h"
#include "fence/state.h"

static bool is_ready(const struct fence_status *status, const char **ret_why)
{
    if (!(status->flags & SHIM_ALIVE)) {
        *ret_why = "meta is down";
        return false;
    }
    if (status->state == SHIM_KILLING) {
        *ret_why = "meta has to die";
        return false;
    }
    *ret_why = "service port listens";
    if (status->ports & SHIM_PORT_SERVICE)
        return true;
    *ret_why = status->flags & SHIM_ENGAGED ? "promoting" : "service port does not listen";
    return status->flags & SHIM_ENGAGED;
}

bool probe_judge(enum probe_kind kind, const struct fence_status *status, const char *boot_id,
                 struct instant now, const char **ret_why)
{
    bool alive = status->flags & SHIM_ALIVE;

    if (strncmp(status->boot_id, boot_id, sizeof(status->boot_id)) != 0) {
        *ret_why = "state file is of an earlier boot: metafence-run has not started";
        return false;
    }
    if (alive && status->deadline_ns != 0 &&
        instant_reached(now, (struct instant){status->deadline_ns})) {
        *ret_why = "deadline has passed and meta is not dead";
        return false;
    }
    if (kind == PROBE_READINESS)
        return is_ready(status, ret_why);
    *ret_why = alive ? "meta runs" : "meta is deliberately held";
    return true;
}

int probe_run(enum probe_kind kind, const char *state_path)
{
    struct fence_status status = {0};
    struct err err = {0};
    char boot_id[sizeof(status.boot_id)];
    const char *why = "";
    bool passes = false;

    state_boot_id(boot_id, sizeof(boot_id));
    if (state_read(state_path, &status, &err) < 0) {
        (void)printf("fail: %s\n", err.msg);
        return 1;
    }
    passes = probe_judge(kind, &status, boot_id, clock_now(), &why);
    (void)printf("%s: %s (state %s, hold %s, incarnation %" PRIu64 ")\n",
                 passes ? "ok" : "fail", why, shim_state_name((enum shim_state)status.state),
                 shim_hold_name((enum shim_hold)status.hold), status.incarnation);
    return passes ? 0 : 1;
}

// ---- JSON

// A tag is what a peer wrote into Postgres: it may hold anything.
static void print_text(const char *name, const char *text)
{
    (void)printf("\"%s\":\"", name);
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            (void)printf("\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            (void)printf("\\u%04x", c);
        else
            (void)putchar(c);
    }
    (void)printf("\",");
}

static void print_number(const char *name, int64_t value)
{
    (void)printf("\"%s\":%" PRId64 ",", name, value);
}

static void print_bit(const char *name, uint32_t bits, uint32_t bit)
{
    (void)printf("\"%s\":%s,", name, bits & bit ? "true" : "false");
}

static void print_flags(const struct fence_status *status)
{
    print_bit("engaged", status->flags, SHIM_ENGAGED);
    print_bit("superseded", status->flags, SHIM_SUPERSEDED);
    print_bit("armed", status->flags, SHIM_ARMED);
    print_bit("manual", status->flags, SHIM_MANUAL);
    print_bit("agent_present", status->flags, SHIM_AGENT_PRESENT);
    print_bit("term_received", status->flags, SHIM_TERM_RECEIVED);
    print_bit("memory_locked", status->flags, SHIM_MEMORY_LOCKED);
    print_bit("alive", status->flags, SHIM_ALIVE);
    print_bit("silence_held", status->flags, SHIM_SILENCE_HELD);
    print_bit("ports_known", status->ports, SHIM_PORTS_KNOWN);
    print_bit("service_open", status->ports, SHIM_PORT_SERVICE);
    print_bit("metrics_open", status->ports, SHIM_PORT_METRICS);
    print_bit("dashboard_open", status->ports, SHIM_PORT_DASHBOARD);
}

static void print_death(const struct fence_death *death)
{
    (void)printf("\"last_death\":{");
    print_number("incarnation", (int64_t)death->incarnation);
    print_text("tag", death->tag);
    print_text("reason", fence_reason_name((enum fence_reason)death->reason));
    print_number("wait_status", death->wait_status);
    print_number("decided_ns", death->decided_ns);
    print_number("dead_ns", death->dead_ns);
    print_number("deadline_ns", death->deadline_ns);
    (void)printf("\"engaged\":%s}", death->engaged ? "true" : "false");
}

int probe_status(const char *state_path)
{
    struct fence_status status = {0};
    struct err err = {0};

    if (state_read(state_path, &status, &err) < 0) {
        (void)fprintf(stderr, "metafence-run: %s\n", err.msg);
        return 1;
    }
    (void)printf("{");
    print_text("state", shim_state_name((enum shim_state)status.state));
    print_text("hold", shim_hold_name((enum shim_hold)status.hold));
    print_text("permit", fence_role_name((enum fence_role)status.permit));
    print_text("tag", status.tag);
    print_text("boot_id", status.boot_id);
    print_number("incarnation", (int64_t)status.incarnation);
    print_number("pid", status.pid);
    print_number("start_ticks", (int64_t)status.start_ticks);
    print_number("written_ns", status.written_ns);
    print_number("started_ns", status.started_ns);
    print_number("engaged_ns", status.engaged_ns);
    print_number("deadline_ns", status.deadline_ns);
    print_number("hold_until_ns", status.hold_until_ns);
    print_number("pause_end_ns", status.pause_end_ns);
    (void)printf("\"system_id\":%" PRIu64 ",\"term\":%" PRIu64 ",", status.system_id,
                 status.term);
    print_number("timeline", status.timeline);
    print_number("restarts", status.restarts);
    print_number("kills", status.kills);
    print_number("fences", status.fences);
    print_flags(&status);
    print_death(&status.last_death);
    (void)printf("}\n");
    return fflush(stdout) == 0 ? 0 : 1;
}
