// SPDX-License-Identifier: Apache-2.0
// config validate | show | options, and version.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/cli.h"
#include "agent/cli/output.h"
#include "agent/config.h"
#include "agent/grpc/client.h"
#include "agent/pg/pg.h"
#include "base/buf.h"

static int show(const struct cli_args *args, const struct config *config)
{
    bool has_password = getenv("PGPASSWORD") != NULL;
    struct buf out = {0};

    if (args->output == CLI_JSON)
        config_show_json(config, has_password, &out);
    else // it is YAML that a person can read
        config_show_yaml(config, has_password, &out);
    (void)fputs(buf_str(&out), stdout);
    buf_done(&out);
    return CLI_DONE;
}

static bool is_table(const struct cli_args *args)
{
    return args->output == CLI_TABLE || args->output == CLI_WIDE;
}

static int validate(const struct cli_args *args, const char *path, const struct config *config)
{
    const struct core_config *core = &config->core;
    char silence[32];
    char ttl[32], json[96];
    int64_t worst_ns = 2 * (core->connect_timeout_ns + core->query_timeout_ns) + core->poll_ns +
                       core->renew_gap_ns + core->margin_ns + core->kill_budget_ns;

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

int cli_config(const struct cli_args *args)
{
    const char *path = args->config ? args->config : CLI_DEFAULT_CONFIG;
    struct config config;
    struct err err = {0};
    struct buf out = {0};

    if (strcmp(args->verb, "options") == 0) {
        if (is_table(args))
            config_describe(&out);
        else
            config_describe_json(&out);
        if (is_table(args))
            (void)fputs(buf_str(&out), stdout);
        else
            output_text(args->output, buf_str(&out));
        buf_done(&out);
        return CLI_DONE;
    }
    if (config_load(path, &config, &err) == 0)
        return strcmp(args->verb, "show") == 0 ? show(args, &config)
                                               : validate(args, path, &config);
    if (!is_table(args)) {
        buf_puts(&out, "{\"valid\":false,\"error\":");
        buf_put_json(&out, err.msg);
        buf_putc(&out, '}');
        output_text(args->output, buf_str(&out));
        buf_done(&out);
    } else {
        cli_complain("%s", err.msg);
    }
    return CLI_FAILED;
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
