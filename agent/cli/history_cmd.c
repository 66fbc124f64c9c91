// SPDX-License-Identifier: Apache-2.0
// history: what the agent did since its start, the newest last, each with its reason.
#include <stdio.h>
#include <string.h>

#include "agent/cli/cli.h"
#include "agent/cli/client.h"
#include "agent/cli/output.h"

static enum output_color color_of(const char *event)
{
    static const struct {
        const char *event;
        enum output_color color;
    } loud[] = {
        {"fence", OUTPUT_RED},
        {"fence by metafence-run", OUTPUT_RED},
        {"dead", OUTPUT_RED},
        {"not fenced", OUTPUT_RED},
        {"not covered", OUTPUT_YELLOW},
        {"fence lost", OUTPUT_YELLOW},
        {"fence silent", OUTPUT_YELLOW},
    };

    for (size_t i = 0; i < sizeof(loud) / sizeof(loud[0]); i++) {
        if (strcmp(event, loud[i].event) == 0)
            return loud[i].color;
    }
    return OUTPUT_PLAIN;
}

static void print_basis(const cJSON *entry)
{
    (void)printf("  %-4.0f  %-9s  %7.0f  %8.0f  %-30s", client_number(entry, "term", 0),
                 client_text(entry, "database"), client_number(entry, "row_age_ms", 0),
                 client_number(entry, "deadline_ms_left", 0), client_text(entry, "row_id"));
}

static void print_entry(const cJSON *entry, bool is_wide)
{
    const char *event = client_text(entry, "event");
    enum output_color color = color_of(event);

    (void)printf("%-24s  %s%-22s%s  %-16s", client_text(entry, "ts"),
                 color == OUTPUT_PLAIN ? "" : output_color(color), event,
                 color == OUTPUT_PLAIN ? "" : output_color(OUTPUT_PLAIN),
                 client_text(entry, "rule"));
    if (is_wide)
        print_basis(entry);
    (void)printf("  %s\n", client_text(entry, "detail"));
}

static void print_headers(bool is_wide)
{
    (void)printf("%-24s  %-22s  %-16s", "WHEN", "EVENT", "RULE");
    if (is_wide)
        (void)printf("  %-4s  %-9s  %7s  %8s  %-30s", "TERM", "DATABASE", "AGE MS", "LEFT MS",
                     "ROW");
    (void)puts("  REASON");
}

int cli_history(const struct cli_args *args)
{
    bool is_wide = args->output == CLI_WIDE;
    char path[128];
    const char *socket = cli_socket(args, path, sizeof(path));
    struct err err = {0};
    cJSON *status = NULL;
    const cJSON *entry = NULL;

    if (client_ask(socket, "{\"cmd\":\"status\"}\n", args->timeout_ns, &status, &err) < 0) {
        cli_complain("history: %s", err.msg);
        return CLI_FAILED;
    }
    if (args->output != CLI_TABLE && !is_wide) {
        output_print(args->output, client_get(status, "history"));
        cJSON_Delete(status);
        return CLI_DONE;
    }
    if (!args->has_no_headers)
        print_headers(is_wide);
    cJSON_ArrayForEach(entry, client_get(status, "history")) print_entry(entry, is_wide);
    cJSON_Delete(status);
    return CLI_DONE;
}
