// SPDX-License-Identifier: Apache-2.0
// config validate | show | diff | options, and version.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/cli.h"
#include "agent/cli/client.h"
#include "agent/cli/output.h"
#include "agent/config.h"
#include "agent/grpc/client.h"
#include "agent/pg/pg.h"
#include "base/buf.h"

static bool is_table(const struct cli_args *args)
{
    return args->output == CLI_TABLE || args->output == CLI_WIDE;
}

static int show(const struct cli_args *args, const struct config *config)
{
    bool has_password = getenv("PGPASSWORD") != NULL;
    struct buf out = {0};

    if (config->override_error[0])
        cli_complain("%s: none of them holds", config->override_error);
    if (args->output == CLI_JSON)
        config_show_json(config, has_password, &out);
    else // it is YAML that a person can read
        config_show_yaml(config, has_password, &out);
    (void)fputs(buf_str(&out), stdout);
    buf_done(&out);
    return CLI_DONE;
}

static int refuse(const struct cli_args *args, const char *why)
{
    struct buf out = {0};

    if (is_table(args)) {
        cli_complain("%s", why);
        return CLI_FAILED;
    }
    buf_puts(&out, "{\"valid\":false,\"error\":");
    buf_put_json(&out, why);
    buf_putc(&out, '}');
    output_text(args->output, buf_str(&out));
    buf_done(&out);
    return CLI_FAILED;
}

static int validate(const struct cli_args *args, const char *path, const struct config *config)
{
    const struct core_config *core = &config->core;
    char silence[32];
    char ttl[32], json[96];
    int64_t worst_ns = 2 * (core->connect_timeout_ns + core->query_timeout_ns) + core->poll_ns +
                       core->renew_gap_ns + core->margin_ns + core->kill_budget_ns;

    if (config->override_error[0])
        return refuse(args, config->override_error);
    duration_format(worst_ns, silence, sizeof(silence));
    duration_format(core->ttl_ns, ttl, sizeof(ttl));
    (void)snprintf(json, sizeof(json),
                   "{\"valid\":true,\"worst_case_ns\":%lld,\"ttl_ns\":%lld}",
                   (long long)worst_ns, (long long)core->ttl_ns);
    if (is_table(args))
        (void)printf("%s is valid: the worst case %s is below the ttl %s\n", path, silence,
                     ttl);
    else
        output_text(args->output, json);
    return CLI_DONE;
}

// --- diff ---

// Of an option its value; of the password, which nobody shows, where it comes from.
static const char *compared(const cJSON *option)
{
    return client_get(option, "value") ? "value" : "source";
}

// Adds {"key", "running", "file"}, each {"value", "source"}, if they are not the same.
static void add_difference(cJSON *list, const cJSON *running, const cJSON *file)
{
    const char *member = compared(file);
    cJSON *item = NULL;

    if (cJSON_Compare(client_get(running, member), client_get(file, member), true))
        return;
    item = cJSON_CreateObject();
    if (!item || !cJSON_AddStringToObject(item, "key", file->string) ||
        !cJSON_AddItemToObject(item, "running",
                               running ? cJSON_Duplicate(running, true) : cJSON_CreateNull()) ||
        !cJSON_AddItemToObject(item, "file", cJSON_Duplicate(file, true)) ||
        !cJSON_AddItemToArray(list, item))
        abort();
}

static void print_side(const cJSON *side)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(side, "value");
    char *text = value && !cJSON_IsString(value) ? cJSON_PrintUnformatted(value) : NULL;

    (void)printf("%s%s(%s)", text ? text : client_text(side, "value"), value ? " " : "",
                 client_text(side, "source"));
    cJSON_free(text);
}

static void print_differences(const cJSON *list)
{
    const cJSON *item = NULL;

    if (cJSON_GetArraySize(list) == 0)
        (void)puts("the agent runs on what the file says");
    cJSON_ArrayForEach(item, list)
    {
        (void)printf("%s\n  running  ", client_text(item, "key"));
        print_side(cJSON_GetObjectItemCaseSensitive(item, "running"));
        (void)fputs("\n  file     ", stdout);
        print_side(cJSON_GetObjectItemCaseSensitive(item, "file"));
        (void)puts("");
    }
}

static int compare(const struct cli_args *args, const cJSON *running, const cJSON *file)
{
    cJSON *answer = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(answer, "differences");
    const cJSON *option = NULL;
    int status = CLI_DONE;

    if (!list)
        abort();
    cJSON_ArrayForEach(option, file)
    {
        add_difference(list, cJSON_GetObjectItemCaseSensitive(running, option->string), option);
    }
    if (cJSON_GetArraySize(list) > 0)
        status = CLI_FAILED;
    if (is_table(args))
        print_differences(list);
    else
        output_print(args->output, answer);
    cJSON_Delete(answer);
    return status;
}

static int diff(const struct cli_args *args, const struct config *config)
{
    char path[CONFIG_SOCKET_SIZE];
    struct buf shown = {0};
    struct err err = {0};
    cJSON *running = NULL;
    cJSON *file = NULL;
    int status = CLI_FAILED;

    if (client_ask(cli_socket(args, path, sizeof(path)), "{\"cmd\":\"config\"}\n",
                   args->timeout_ns, &running, &err) < 0) {
        cli_complain("config diff: %s", err.msg);
        return CLI_FAILED;
    }
    if (*client_text(running, "error")) { // an agent of an older version
        cli_complain("config diff: %s", client_text(running, "error"));
        cJSON_Delete(running);
        return CLI_FAILED;
    }
    config_show_json(config, getenv("PGPASSWORD") != NULL, &shown);
    file = cJSON_Parse(buf_str(&shown));
    status = compare(args, running, file);
    cJSON_Delete(running);
    cJSON_Delete(file);
    buf_done(&shown);
    return status;
}

// --- commands ---

static int describe(const struct cli_args *args)
{
    struct buf out = {0};

    if (is_table(args)) {
        config_describe(&out);
        (void)fputs(buf_str(&out), stdout);
    } else {
        config_describe_json(&out);
        output_text(args->output, buf_str(&out));
    }
    buf_done(&out);
    return CLI_DONE;
}

int cli_config(const struct cli_args *args)
{
    const char *path = args->config ? args->config : CLI_DEFAULT_CONFIG;
    struct config config;
    struct err err = {0};

    if (strcmp(args->verb, "options") == 0)
        return describe(args);
    if (config_load(path, &config, &err) < 0)
        return refuse(args, err.msg);
    if (strcmp(args->verb, "show") == 0)
        return show(args, &config);
    if (strcmp(args->verb, "diff") == 0)
        return diff(args, &config);
    return validate(args, path, &config);
}

int cli_version(const struct cli_args *args)
{
    const char *curl = grpc_client_curl_version();
    char json[160];

    (void)snprintf(json, sizeof(json), "{\"version\":\"%s\",\"libpq\":%d,\"libcurl\":\"%s\"}",
                   METAFENCE_VERSION, PQlibVersion(), curl);
    if (is_table(args))
        (void)printf("metafence %s (libpq %d.%d, libcurl %s)\n", METAFENCE_VERSION,
                     PQlibVersion() / 10000, PQlibVersion() % 10000, curl);
    else
        output_text(args->output, json);
    return CLI_DONE;
}
