// SPDX-License-Identifier: Apache-2.0
// sql install | uninstall | print | status: agent/pg/install with the connection of the
// configuration.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/cli.h"
#include "agent/cli/database.h"
#include "agent/cli/output.h"
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

struct counter {
    const char *name;
    int64_t value;
    const char *doc;
};

#define COUNTERS 19

static void list_counters(const struct sql_counters *counters, struct counter ret[COUNTERS])
{
    const struct counter all[COUNTERS] = {
        {"refused", counters->refused, "writes refused"},
        {"observed", counters->observed, "writes that enforce would refuse"},
        {"held", counters->held, "campaigns of superseded tags without effect"},
        {"untagged", counters->untagged, "statements let pass: no session tag, P5 off"},
        {"not_owner", counters->not_owner, "statements let pass: tag without a term"},
        {"unreadable", counters->unreadable, "statements let pass: the guard's tables failed"},
        {"unlocked", counters->unlocked, "statements let pass: no writers' lock"},
        {"unrecorded", counters->unrecorded, "campaigns not recorded"},
        {"unlogged", counters->unlogged, "worker rows not logged"},
        {"intended", counters->intended, "deletes refused for an intent"},
        {"takeover", counters->takeover, "takeovers"},
        {"ended", counters->ended, "takeovers that ended sessions"},
        {"takeover_without_lock", counters->takeover_without_lock,
         "takeovers with a writer under way"},
        {"recovery_refused", counters->recovery_refused, "removals of state tables refused"},
        {"recovery_observed", counters->recovery_observed,
         "removals that enforce would refuse"},
        {"recovery_bound", counters->recovery_bound, "removals let pass at maxHold, unproven"},
        {"recovery_open", counters->recovery_open, "removals let pass: nobody could answer"},
        {"recovery_failed", counters->recovery_failed, "triggers of the recovery that failed"},
        {"recovery_unknown", counters->recovery_unknown, "statements or deltas not understood"},
    };

    memcpy(ret, all, sizeof all);
}

static void put_counters_json(struct buf *out, const struct sql_counters *counters)
{
    struct counter all[COUNTERS];

    list_counters(counters, all);
    buf_puts(out, ",\"counters\":{");
    for (size_t i = 0; i < COUNTERS; i++)
        buf_printf(out, "%s\"%s\":%lld", i ? "," : "", all[i].name, (long long)all[i].value);
    buf_puts(out, "}");
}

static void print_recovery(const struct sql_status *status)
{
    if (!status->recovery[0]) {
        (void)puts("recovery      not installed: run `metafence sql install` again");
        return;
    }
    (void)printf("recovery      %s, %lld open, %lld fragments dropped and not removed%s%s\n",
                 status->recovery, (long long)status->open_recoveries,
                 (long long)status->dropped,
                 status->unwatched_names[0] ? ", not watched: " : "", status->unwatched_names);
    if (!status->is_verified && status->has_tables)
        (void)printf("  version %s of RisingWave is not verified: enforce does as observe\n",
                     status->catalog_version[0] ? status->catalog_version : "(unknown)");
}

static void print_guard(const struct sql_status *status, bool is_wide)
{
    struct counter all[COUNTERS];

    (void)printf("guard         %s\n", status->guard);
    if (!status->has_tables && status->version >= 2)
        (void)puts("guarded       nothing yet: the metas have not made their tables");
    else if (status->version >= 2)
        (void)printf("guarded       %lld tables%s%s\n", (long long)status->guarded,
                     status->unguarded ? ", not: " : "", status->unguarded_names);
    if (status->is_pooled)
        (void)puts(
            "pooler        yes: this connection goes through one. A session tag belongs to "
            "a session: give metas and agents the server's own address, or P5 is off");
    else if (status->pooled_tags > 0)
        (void)printf("pooler        likely: %lld tags came on a session of another tag\n",
                     (long long)status->pooled_tags);
    print_recovery(status);
    list_counters(&status->counters, all);
    for (size_t i = 0; i < COUNTERS; i++) {
        if (all[i].value > 0 || is_wide)
            (void)printf("  %-22s %lld (%s)\n", all[i].name, (long long)all[i].value,
                         all[i].doc);
    }
}

static void put_recovery_json(struct buf *out, const struct sql_status *status)
{
    buf_puts(out, ",\"recovery\":{\"mode\":");
    buf_put_json(out, status->recovery);
    buf_puts(out, ",\"catalog_version\":");
    buf_put_json(out, status->catalog_version);
    buf_printf(out, ",\"verified\":%s,\"open\":%lld,\"dropped\":%lld,\"purges\":%lld",
               status->is_verified ? "true" : "false", (long long)status->open_recoveries,
               (long long)status->dropped, (long long)status->purges);
    buf_puts(out, ",\"unwatched_names\":");
    buf_put_json(out, status->unwatched_names);
    buf_puts(out, "}");
}

static void print_status_json(enum cli_output form, const struct sql_status *status)
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
               "\"tags\":%lld,\"deaths\":%lld",
               status->has_table ? "true" : "false", status->has_trigger ? "true" : "false",
               status->is_trigger_on ? "true" : "false", (long long)status->term,
               (long long)status->tags, (long long)status->deaths);
    buf_printf(&out, ",\"guarded\":%lld,\"unguarded\":%lld,\"unguarded_names\":",
               (long long)status->guarded, (long long)status->unguarded);
    buf_put_json(&out, status->unguarded_names);
    buf_printf(&out,
               ",\"tombstones\":%lld,\"mutations\":%lld,\"pooled\":%s,\"pooled_tags\":%lld",
               (long long)status->tombstones, (long long)status->mutations,
               status->is_pooled ? "true" : "false", (long long)status->pooled_tags);
    put_recovery_json(&out, status);
    put_counters_json(&out, &status->counters);
    buf_putc(&out, '}');
    output_text(form, buf_str(&out));
    buf_done(&out);
}

static void print_status_table(const struct sql_status *status, bool is_wide)
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
        (void)puts("triggers      missing");
    else
        (void)printf("triggers      %s\n",
                     status->is_trigger_on ? "on" : "disabled or incomplete");
    if (!status->can_read)
        return;
    (void)printf("term          %lld\ntags          %lld\ndeaths        %lld\n",
                 (long long)status->term, (long long)status->tags, (long long)status->deaths);
    print_guard(status, is_wide);
}

static int print_status(const struct cli_args *args, const struct sql_options *options)
{
    struct sql_status status;
    struct err err = {0};

    if (sql_status(options, &status, &err) < 0) {
        cli_complain("sql status: %s", err.msg);
        return CLI_FAILED;
    }
    if (args->output == CLI_TABLE || args->output == CLI_WIDE)
        print_status_table(&status, args->output == CLI_WIDE);
    else
        print_status_json(args->output, &status);
    return status.has_schema && status.is_trigger_on && status.unguarded == 0 &&
                   !status.unwatched_names[0]
               ? CLI_DONE
               : CLI_FAILED;
}

struct pg_params cli_database(const struct config *config, int64_t timeout_ns)
{
    const struct config_postgres *postgres = &config->postgres;
    bool has_file = postgres->password_file[0] != '\0';

    return (struct pg_params){
        .host = postgres->host,
        .port = (uint16_t)postgres->port,
        .database = postgres->database,
        .user = postgres->user,
        .password = has_file ? NULL : getenv("PGPASSWORD"),
        .password_file = has_file ? postgres->password_file : NULL,
        .sslmode = postgres->sslmode,
        .sslrootcert = postgres->ssl_root_cert[0] ? postgres->ssl_root_cert : NULL,
        .application_name = postgres->application_name,
        .connect_timeout_ns = timeout_ns,
        .query_timeout_ns = timeout_ns,
    };
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
    params = cli_database(&config, args->timeout_ns);
    options.leader_table = config.election.leader_table;
    options.roles = &args->role;
    options.role_count = args->role ? 1 : 0;
    options.guard = args->guard;
    options.recovery = args->recovery;
    if (args->is_dry_run && strcmp(args->verb, "install") == 0)
        return print_text(&options);
    if (args->is_dry_run && strcmp(args->verb, "uninstall") == 0) {
        (void)puts(
            "would take out the triggers and schema metafence with all that it recorded; "
            "the metas' own tables and rows stay");
        return CLI_DONE;
    }
    if (strcmp(args->verb, "install") == 0)
        return finish(sql_install(&options, &err), args->verb, "installed", &err);
    if (strcmp(args->verb, "uninstall") == 0)
        return finish(sql_uninstall(&options, &err), args->verb, "uninstalled", &err);
    if (strcmp(args->verb, "print") == 0)
        return print_text(&options);
    return print_status(args, &options);
}
