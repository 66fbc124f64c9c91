// SPDX-License-Identifier: Apache-2.0
// status: the agent's answer as it is, or as a table for people.
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/cli.h"
#include "agent/cli/client.h"
#include "agent/cli/output.h"
#include "base/clock.h"

#define WATCH_MS 1000

static void row(const char *name, const char *value)
{
    (void)printf("%-14s%s\n", name, value);
}

// What a person must not overlook.
static void loud_row(const char *name, enum output_color color, const char *value)
{
    (void)printf("%-14s%s%s%s\n", name, output_color(color), value, output_color(OUTPUT_PLAIN));
}

static void print_list(const cJSON *list, char *buf, size_t size)
{
    const cJSON *item = NULL;
    size_t used = 0;

    buf[0] = '\0';
    cJSON_ArrayForEach(item, list)
    {
        if (cJSON_IsString(item) && used < size)
            used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "",
                                     item->valuestring);
    }
}

// A duration that reads well: "4.2s", "310ms".
static const char *span(double ms, char *buf, size_t size)
{
    if (ms >= 1000 || ms <= -1000)
        (void)snprintf(buf, size, "%.1fs", ms / 1000);
    else
        (void)snprintf(buf, size, "%.0fms", ms);
    return buf;
}

static void print_meta(const cJSON *status)
{
    char text[256];
    char left[32];
    const char *hold = client_text(status, "meta.hold_reason");
    const char *last = client_text(status, "meta.last_exit");

    if (!client_is_true(status, "fence.connected")) {
        row("meta", "unknown: no connection to metafence-run");
        return;
    }
    (void)snprintf(text, sizeof(text), "%s%s%s, pid %.0f, incarnation %.0f, %.0f restarts",
                   client_text(status, "meta.state"), *hold ? ", held: " : "", hold,
                   client_number(status, "meta.pid", 0),
                   client_number(status, "meta.incarnation", 0),
                   client_number(status, "meta.restarts", 0));
    row("meta", text);
    if (client_number(status, "meta.hold_ms_left", -1) >= 0)
        row("held for",
            span(client_number(status, "meta.hold_ms_left", 0), left, sizeof(left)));
    if (*last)
        row("last exit", last);
    if (client_is_true(status, "fence.silent"))
        row("", "metafence-run does not answer");
}

static void print_election(const cJSON *status)
{
    char text[512];
    char age[32];

    if (client_is_true(status, "row.known")) {
        (void)snprintf(text, sizeof(text), "%s %s, %s old%s%s",
                       client_text(status, "row.state"), client_text(status, "row.id"),
                       span(client_number(status, "row.age_ms", 0), age, sizeof(age)),
                       *client_text(status, "row.defect") ? ", " : "",
                       client_text(status, "row.defect"));
        row("row", text);
    } else {
        row("row", "never read");
    }
    if (client_is_true(status, "term.known")) {
        (void)snprintf(
            text, sizeof(text), "%.0f, owner %s (%s)", client_number(status, "term.term", 0),
            client_text(status, "term.owner_id"), client_text(status, "term.owner_tag"));
        row("term", text);
    }
    if (client_is_true(status, "meta.alive") && client_get(status, "deadline_ms_left") &&
        !cJSON_IsNull(client_get(status, "deadline_ms_left")))
        row("deadline in",
            span(client_number(status, "deadline_ms_left", 0), age, sizeof(age)));
}

static void print_last_fence(const cJSON *status)
{
    char text[256];
    char death[32];
    double decided = client_number(status, "last_fence.decided_boot_ns", 0);
    double dead = client_number(status, "last_fence.dead_boot_ns", 0);
    double sessions = client_number(status, "last_fence.sessions_gone_boot_ns", 0);

    if (!cJSON_IsObject(client_get(status, "last_fence")))
        return;
    (void)snprintf(text, sizeof(text), "%s%s, incarnation %.0f, dead after %s, sessions %s",
                   client_text(status, "last_fence.reason"),
                   client_is_true(status, "last_fence.by_metafence_run") ? " (by metafence-run)"
                                                                         : "",
                   client_number(status, "last_fence.incarnation", 0),
                   dead > 0 ? span((dead - decided) / 1e6, death, sizeof(death)) : "not yet",
                   sessions > 0 ? "gone" : "not confirmed gone");
    row("last fence", text);
}

static void print_workers(const cJSON *status)
{
    char text[400];
    char age[32];
    int used = 0;
    bool has_pass = cJSON_IsObject(client_get(status, "workers.last_pass"));

    if (!cJSON_IsObject(client_get(status, "workers"))) {
        row("workers", "off");
        return;
    }
    if (!client_is_true(status, "workers.leading")) {
        (void)snprintf(text, sizeof(text), "%s; beside the leader alone",
                       client_text(status, "workers.mode"));
        row("workers", text);
        return;
    }
    used = snprintf(text, sizeof(text), "%s; leader's memory: %s%s",
                    client_text(status, "workers.mode"),
                    client_text(status, "workers.memory.reason"),
                    client_is_true(status, "workers.memory.alarm") ? " (alarm)" : "");
    if (has_pass)
        (void)snprintf(
            text + used, sizeof(text) - (size_t)used,
            "; %s ago: %.0f live, %.0f gone, %.0f unknown, %.0f held, %.0f orphans",
            span(client_number(status, "workers.last_pass.age_ms", 0), age, sizeof(age)),
            client_number(status, "workers.last_pass.live", 0),
            client_number(status, "workers.last_pass.gone", 0),
            client_number(status, "workers.last_pass.unknown", 0),
            client_number(status, "workers.held", 0),
            client_number(status, "workers.last_pass.orphans", 0));
    row("workers", text);
    if (*client_text(status, "workers.error"))
        row("", client_text(status, "workers.error"));
}

static void print_cover(const cJSON *status)
{
    const cJSON *list = client_get(status, "not_covered");
    const cJSON *item = NULL;
    char text[256];

    print_list(list, text, sizeof(text));
    if (*text)
        loud_row("not covered", OUTPUT_RED, text);
    else
        row("not covered", "-");
    cJSON_ArrayForEach(item, list)
    {
        if (cJSON_IsString(item) && strcmp(item->valuestring, "Untagged") == 0)
            row("", "Untagged: there is no term trigger: run `metafence sql install`");
    }
    if (cJSON_IsObject(client_get(status, "not_fenced")))
        loud_row("NOT FENCED", OUTPUT_RED, client_text(status, "not_fenced.why"));
}

static void print_orders(const cJSON *status)
{
    const char *refused = client_text(status, "kubernetes.refused_order");

    if (client_is_true(status, "manual_fence"))
        loud_row("manual fence", OUTPUT_YELLOW, client_text(status, "manual_reason"));
    if (*client_text(status, "paused_until"))
        loud_row("paused until", OUTPUT_YELLOW, client_text(status, "paused_until"));
    if (*refused)
        loud_row("refused order", OUTPUT_RED, refused);
    if (strcmp(client_text(status, "kubernetes.orders"), "denied") == 0)
        loud_row("refused", OUTPUT_RED,
                 "the API server lets no annotation of this pod be written: see its events");
}

// What the API server refuses, or shows otherwise than it is.
static void print_label(const cJSON *status)
{
    const char *state = client_text(status, "kubernetes.label.role_label");

    if (client_is_true(status, "kubernetes.label.denied"))
        loud_row("label", OUTPUT_RED,
                 "refused: the API server does not let metafence.io/role be written");
    else if (strcmp(state, "denied") == 0)
        loud_row("label", OUTPUT_RED, "refused: kubernetes.roleLabel can't be written");
    else if (client_is_true(status, "kubernetes.label.role_label_differs"))
        loud_row("label", OUTPUT_YELLOW,
                 "kubernetes.roleLabel is another writer's and shows another role");
    if (client_is_true(status, "kubernetes.enabled") &&
        !client_is_true(status, "kubernetes.up"))
        loud_row("kubernetes", OUTPUT_YELLOW, client_text(status, "kubernetes.error"));
}

static enum output_color color_of_role(const char *role)
{
    if (strcmp(role, "leader") == 0 || strcmp(role, "follower") == 0)
        return OUTPUT_GREEN;
    return strcmp(role, "fenced") == 0 ? OUTPUT_RED : OUTPUT_YELLOW;
}

// For people who look closer.
static void print_wide(const cJSON *status)
{
    char text[256];

    row("tag", client_text(status, "meta.tag"));
    (void)snprintf(text, sizeof(text), "%s, %.0f members, heartbeat by %s",
                   client_is_true(status, "armed") ? "armed" : "not armed",
                   client_number(status, "members", 0),
                   *client_text(status, "row.heartbeat_tag")
                       ? client_text(status, "row.heartbeat_tag")
                       : "an unknown session");
    row("election", text);
    (void)snprintf(text, sizeof(text), "method %s%s%s", client_text(status, "fence.method"),
                   *client_text(status, "fence.unusable") ? ": " : "",
                   client_text(status, "fence.unusable"));
    row("fence", text);
    (void)snprintf(text, sizeof(text), "%.0f reads, %.0f failed; %.0f kills, %.0f deaths",
                   client_number(status, "counters.reads", 0),
                   client_number(status, "counters.reads_failed", 0),
                   client_number(status, "counters.kills", 0),
                   client_number(status, "counters.deaths", 0));
    row("counted", text);
    row("version", client_text(status, "version"));
}

static void print_table(const cJSON *status, bool is_wide)
{
    const char *role = client_text(status, "role");
    char text[256];

    row("id", client_text(status, "id"));
    (void)snprintf(text, sizeof(text), "%s (rule %s)", role, client_text(status, "rule"));
    loud_row("role", color_of_role(role), text);
    print_meta(status);
    print_election(status);
    (void)snprintf(text, sizeof(text), "%s%s%s", client_text(status, "database.state"),
                   *client_text(status, "database.error") ? ": " : "",
                   client_text(status, "database.error"));
    row("database", text);
    print_cover(status);
    print_workers(status);
    print_orders(status);
    print_label(status);
    print_last_fence(status);
    if (!client_is_true(status, "config.valid")) {
        loud_row("configuration", OUTPUT_RED, client_text(status, "config.error"));
        row("running on", client_text(status, "config.running_on"));
    }
    if (*client_text(status, "config.override_error"))
        loud_row("annotations", OUTPUT_RED, client_text(status, "config.override_error"));
    if (is_wide)
        print_wide(status);
}

static int show(const struct cli_args *args, const char *socket)
{
    struct err err = {0};
    cJSON *status = NULL;

    if (client_ask(socket, "{\"cmd\":\"status\"}\n", args->timeout_ns, &status, &err) < 0) {
        cli_complain("status: %s", err.msg);
        return CLI_FAILED;
    }
    if (args->output == CLI_TABLE || args->output == CLI_WIDE)
        print_table(status, args->output == CLI_WIDE);
    else
        output_print(args->output, status);
    cJSON_Delete(status);
    return CLI_DONE;
}

// Until somebody ends it: a screen that is drawn anew, or one answer after the other where
// nobody looks. An agent that is away comes back.
static int watch(const struct cli_args *args, const char *socket)
{
    bool is_screen =
        isatty(STDOUT_FILENO) && (args->output == CLI_TABLE || args->output == CLI_WIDE);

    for (;;) {
        if (is_screen)
            (void)fputs("\033[H\033[J", stdout);
        else if (args->output == CLI_YAML)
            (void)puts("---");
        (void)show(args, socket);
        if (!is_screen && args->output != CLI_JSON && args->output != CLI_YAML)
            (void)puts("");
        if (fflush(stdout) != 0)
            return CLI_FAILED; // nobody reads any more
        (void)poll(NULL, 0, WATCH_MS);
    }
}

int cli_status(const struct cli_args *args)
{
    char path[128];
    const char *socket = cli_socket(args, path, sizeof(path));

    return args->is_watching ? watch(args, socket) : show(args, socket);
}
