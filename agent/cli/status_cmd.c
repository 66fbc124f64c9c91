// SPDX-License-Identifier: Apache-2.0
// status: the agent's answer as it is, or as a table for people.
#include <stdio.h>
#include <string.h>

#include "agent/cli/cli.h"
#include "agent/cli/client.h"
#include "base/clock.h"

static void row(const char *name, const char *value)
{
    (void)printf("%-14s%s\n", name, value);
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

static void print_table(const cJSON *status)
{
    char text[256];

    row("id", client_text(status, "id"));
    (void)snprintf(text, sizeof(text), "%s (rule %s)", client_text(status, "role"),
                   client_text(status, "rule"));
    row("role", text);
    print_meta(status);
    print_election(status);
    (void)snprintf(text, sizeof(text), "%s%s%s", client_text(status, "database.state"),
                   *client_text(status, "database.error") ? ": " : "",
                   client_text(status, "database.error"));
    row("database", text);
    print_list(client_get(status, "not_covered"), text, sizeof(text));
    row("not covered", *text ? text : "-");
    if (client_is_true(status, "manual_fence"))
        row("manual fence", client_text(status, "manual_reason"));
    if (*client_text(status, "paused_until"))
        row("paused until", client_text(status, "paused_until"));
    print_last_fence(status);
    if (!client_is_true(status, "config.valid")) {
        row("configuration", client_text(status, "config.error"));
        row("running on", client_text(status, "config.running_on"));
    }
}

int cli_status(const struct cli_args *args)
{
    char path[128];
    const char *socket = cli_socket(args, path, sizeof(path));
    struct err err = {0};
    cJSON *status = NULL;
    char *text = NULL;

    if (client_ask(socket, "{\"cmd\":\"status\"}\n", args->timeout_ns, &status, &err) < 0) {
        cli_complain("status: %s", err.msg);
        return CLI_FAILED;
    }
    if (args->output == CLI_JSON) {
        text = cJSON_PrintUnformatted(status);
        (void)puts(text ? text : "{}");
        cJSON_free(text);
    } else {
        print_table(status);
    }
    cJSON_Delete(status);
    return CLI_DONE;
}
