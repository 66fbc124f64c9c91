// SPDX-License-Identifier: Apache-2.0
// sql install | uninstall | print | status: agent/pg/install with the connection of the
// configuration.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/cli.h"
#include "agent/config.h"
#include "agent/pg/install.h"

static void say(const char *line, void *arg)
{
    (void)arg;
    (void)fprintf(stderr, "%s\n", line);
}

static int finish(int r, const char *verb, const char *done, const struct err *err)
{
    if (r < 0) {
        bool is_denied = strstr(err->msg, "SQLSTATE 42501") != NULL;

        cli_complain("sql %s: %s%s", verb, err->msg,
                     is_denied ? ": do it as the metas' own role or as a superuser" : "");
        return CLI_FAILED;
    }
    (void)puts(done);
    return CLI_DONE;
}

static int print_text(const struct sql_options *options)
{
    struct buf text = {0};
    struct err err = {0};
    int r = sql_print(options, &text, &err);

    if (r == 0)
        (void)fputs(buf_str(&text), stdout);
    else
        cli_complain("sql print: %s", err.msg);
    buf_done(&text);
    return r == 0 ? CLI_DONE : CLI_FAILED;
}

static void print_status_json(const struct sql_status *status)
{
    struct buf out = {0};

    buf_printf(&out, "{\"schema\":%s,\"readable\":%s,\"version\":%d,\"guard\":",
               status->has_schema ? "true" : "false", status->can_read ? "true" : "false",
               status->version);
    buf_put_json(&out, status->guard);
    buf_puts(&out, ",\"owner\":");
    buf_put_json(&out, status->owner);
    buf_printf(&out,
               ",\"leader_table\":%s,\"trigger\":%s,\"trigger_on\":%s,\"term\":%lld,"
               "\"tags\":%lld,\"deaths\":%lld}\n",
               status->has_table ? "true" : "false", status->has_trigger ? "true" : "false",
               status->is_trigger_on ? "true" : "false", (long long)status->term,
               (long long)status->tags, (long long)status->deaths);
    (void)fputs(buf_str(&out), stdout);
    buf_done(&out);
}

static void print_status_table(const struct sql_status *status)
{
    if (!status->has_schema)
        (void)puts("schema        not installed: run `metafence sql install`");
    else
        (void)printf("schema        version %d, owner %s%s\n", status->version, status->owner,
                     status->can_read ? ""
                                      : ", not readable by this role: run "
                                        "`metafence sql install --agent-role ROLE`");
    (void)printf("leader table  %s\n", status->has_table ? "present" : "missing");
    if (!status->has_trigger)
        (void)puts("term trigger  missing");
    else
        (void)printf("term trigger  %s\n", status->is_trigger_on ? "on" : "disabled");
    if (status->can_read)
        (void)printf("guard         %s\nterm          %lld\ntags          %lld\ndeaths        "
                     "%lld\n",
                     status->guard, (long long)status->term, (long long)status->tags,
                     (long long)status->deaths);
}

static int print_status(const struct cli_args *args, const struct sql_options *options)
{
    struct sql_status status;
    struct err err = {0};

    if (sql_status(options, &status, &err) < 0) {
        cli_complain("sql status: %s", err.msg);
        return CLI_FAILED;
    }
    if (args->output == CLI_JSON)
        print_status_json(&status);
    else
        print_status_table(&status);
    return status.has_schema && status.is_trigger_on ? CLI_DONE : CLI_FAILED;
}

int cli_sql(const struct cli_args *args)
{
    const char *path = args->config ? args->config : CLI_DEFAULT_CONFIG;
    struct config config;
    struct err err = {0};
    struct pg_params params = {0};
    struct sql_options options = {
        .params = &params, .timeout_ns = args->timeout_ns, .say = say};

    if (config_load(path, &config, &err) < 0) {
        cli_complain("%s", err.msg);
        return CLI_FAILED;
    }
    params = (struct pg_params){
        .host = config.postgres.host,
        .port = (uint16_t)config.postgres.port,
        .database = config.postgres.database,
        .user = config.postgres.user,
        .password = config.postgres.password_file[0] ? NULL : getenv("PGPASSWORD"),
        .password_file =
            config.postgres.password_file[0] ? config.postgres.password_file : NULL,
        .sslmode = config.postgres.sslmode,
        .sslrootcert = config.postgres.ssl_root_cert[0] ? config.postgres.ssl_root_cert : NULL,
        .application_name = config.postgres.application_name,
        // An operator waits; the agent's own time-outs are tuned to the lease.
        .connect_timeout_ns = args->timeout_ns,
        .query_timeout_ns = args->timeout_ns,
    };
    options.leader_table = config.election.leader_table;
    options.roles = &args->role;
    options.role_count = args->role ? 1 : 0;
    if (strcmp(args->verb, "install") == 0)
        return finish(sql_install(&options, &err), args->verb, "installed", &err);
    if (strcmp(args->verb, "uninstall") == 0)
        return finish(sql_uninstall(&options, &err), args->verb, "uninstalled", &err);
    if (strcmp(args->verb, "print") == 0)
        return print_text(&options);
    return print_status(args, &options);
}
