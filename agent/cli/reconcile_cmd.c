// SPDX-License-Identifier: Apache-2.0
// reconcile: asks the leader's agent for a pass, waits for it, and shows what it has found.
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "agent/cli/cli.h"
#include "agent/cli/client.h"
#include "agent/cli/output.h"
#include "base/clock.h"

#define LOOK_EVERY_MS 50
#define ASK_NS        (2 * NS_PER_SEC)

// Something was not done, or could not be told.
static bool is_doubtful(const cJSON *report)
{
    const cJSON *action = NULL;

    cJSON_ArrayForEach(action, client_get(report, "actions"))
    {
        if (strcmp(client_text(action, "result"), "not done") == 0)
            return true;
    }
    return client_text(report, "incomplete")[0] != '\0' || client_number(report, "held", 0) > 0;
}

static void print_reason(const cJSON *row)
{
    (void)printf("%s", client_text(row, "reason"));
    if (client_number(row, "confirmed_in_ms", 0) > 0)
        (void)printf(" (%s, confirmed in %.0f s at the earliest)", client_text(row, "proof"),
                     client_number(row, "confirmed_in_ms", 0) / 1000);
    (void)puts(client_is_true(row, "held") ? " (held by the brake)" : "");
}

static void print_rows(const cJSON *report, bool is_wide)
{
    const cJSON *row = NULL;
    char endpoint[320];

    (void)printf("%-10s  %-13s  %-40s  %-8s  %s%s\n", "ID", "TYPE", "ENDPOINT", "VERDICT",
                 is_wide ? "REASON                POD                   LEADER KNOWS  "
                         : "REASON",
                 is_wide ? "KNOWN POD" : "");
    cJSON_ArrayForEach(row, client_get(report, "rows"))
    {
        (void)snprintf(endpoint, sizeof(endpoint), "%s:%.0f", client_text(row, "host"),
                       client_number(row, "port", 0));
        (void)printf("%-10.0f  %-13s  %-40s  %-8s  ", client_number(row, "id", 0),
                     client_text(row, "type"), endpoint, client_text(row, "verdict"));
        if (is_wide)
            (void)printf("%-20s  %-20s  %-12s  %s\n", client_text(row, "reason"),
                         client_text(row, "pod"),
                         client_is_true(row, "leader_knows") ? "yes" : "not surely",
                         client_text(row, "known_pod"));
        else
            print_reason(row);
    }
}

static void print_table(const cJSON *report, bool is_wide)
{
    const cJSON *action = NULL;

    print_rows(report, is_wide);
    (void)printf("\n%.0f rows, %.0f pods, %.0f endpoints; term %.0f, guard %s; the leader's "
                 "memory: %s\n",
                 client_number(report, "rows_total", 0), client_number(report, "pods", 0),
                 client_number(report, "endpoints", 0), client_number(report, "state.term", 0),
                 client_text(report, "state.guard"), client_text(report, "memory.reason"));
    cJSON_ArrayForEach(action, client_get(report, "actions"))
    {
        (void)printf("%s %s %.0f\n", client_text(action, "result"),
                     client_text(action, "action"), client_number(action, "id", 0));
    }
    if (!cJSON_GetArraySize(client_get(report, "actions")))
        (void)puts("nothing to do");
    if (client_number(report, "held", 0) > 0)
        cli_complain("reconcile: the brake holds %.0f rows: see reconcile.maxPercent",
                     client_number(report, "held", 0));
    if (client_text(report, "incomplete")[0])
        cli_complain("reconcile: not all could be read, so nothing is proven: %s",
                     client_text(report, "incomplete"));
}

static void print_report(const struct cli_args *args, const cJSON *report)
{
    if (args->output == CLI_TABLE || args->output == CLI_WIDE)
        print_table(report, args->output == CLI_WIDE);
    else
        output_print(args->output, report);
}

// The report of a pass after the `passes`-th; NULL when none came in time.
static cJSON *await_report(const char *socket, double passes, struct instant deadline)
{
    struct err err = {0};

    for (;;) {
        cJSON *report = NULL;

        if (client_ask(socket, "{\"cmd\":\"report\"}\n", ASK_NS, &report, &err) == 0 &&
            client_is_true(report, "ok") && client_number(report, "passes", 0) > passes)
            return report;
        cJSON_Delete(report);
        if (instant_reached(clock_now(), deadline))
            return NULL;
        (void)poll(NULL, 0, LOOK_EVERY_MS);
    }
}

// The number of passes before ours, or -1 after saying why there is none.
static double order_pass(const struct cli_args *args, const char *socket)
{
    const char *request = args->is_dry_run ? "{\"cmd\":\"reconcile\",\"dry\":true}\n"
                                           : "{\"cmd\":\"reconcile\"}\n";
    cJSON *answer = NULL;
    struct err err = {0};
    double passes = -1;

    if (client_ask(socket, request, ASK_NS, &answer, &err) < 0)
        cli_complain("reconcile: %s", err.msg);
    else if (!client_is_true(answer, "ok"))
        cli_complain("reconcile: %s", client_text(answer, "error"));
    else
        passes = client_number(answer, "passes", 0);
    cJSON_Delete(answer);
    return passes;
}

int cli_reconcile(const struct cli_args *args)
{
    struct instant deadline = instant_add(clock_now(), args->timeout_ns);
    char path[128];
    const char *socket = cli_socket(args, path, sizeof(path));
    double passes = socket ? order_pass(args, socket) : -1;
    cJSON *report = NULL;
    bool is_doubt = false;

    if (passes < 0)
        return CLI_FAILED;
    report = await_report(socket, passes, deadline);
    if (!report) {
        cli_complain("reconcile: asked for, but no pass was done in time: see `%s status`",
                     args->program);
        return CLI_NOT_CONFIRMED;
    }
    print_report(args, report);
    is_doubt = is_doubtful(report);
    cJSON_Delete(report);
    return is_doubt ? CLI_NOT_CONFIRMED : CLI_DONE;
}
