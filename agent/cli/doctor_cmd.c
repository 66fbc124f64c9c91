// SPDX-License-Identifier: Apache-2.0
// doctor: gathers what agent/doctor judges, and prints the findings.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/cli.h"
#include "agent/cli/client.h"
#include "agent/cli/database.h"
#include "agent/cli/doctor_kube.h"
#include "agent/cli/output.h"
#include "agent/config.h"
#include "agent/doctor/doctor.h"
#include "agent/kube/client.h"
#include "agent/pg/survey.h"
#include "base/buf.h"
#include "fence/proc.h"

#define FILE_MAX ((size_t)256 * 1024) // of the metas' TOML
#define CHUNK    4096

struct visit {
    const struct cli_args *args;
    struct config config;
    bool is_config_good;
    cJSON *status; // NULL: no agent answered
    struct doctor doctor;
};

// --- gathering ---

static void visit_config(struct visit *visit)
{
    const char *path = visit->args->config ? visit->args->config : CLI_DEFAULT_CONFIG;
    struct err err = {0};

    visit->is_config_good = config_load(path, &visit->config, &err) == 0;
    if (visit->is_config_good)
        doctor_ok(&visit->doctor, "config", "%.200s is valid, its margins fit into the lease",
                  path);
    else
        doctor_bad(&visit->doctor, "config", "correct it; `metafence config options` lists all",
                   "%s", err.msg);
}

static void visit_agent(struct visit *visit)
{
    const char *socket =
        visit->args->socket ? visit->args->socket : visit->config.control_socket;
    struct err err = {0};

    if (client_ask(socket, "{\"cmd\":\"status\"}\n", visit->args->timeout_ns, &visit->status,
                   &err) < 0)
        doctor_bad(&visit->doctor, "agent", "start it: metafence agent --config FILE", "%s",
                   err.msg);
    else
        doctor_agent(&visit->doctor, visit->status, &visit->config);
}

static void visit_postgres(struct visit *visit)
{
    const char *leader_table = visit->config.election.leader_table;
    struct pg_params params = cli_database(&visit->config, visit->args->timeout_ns);
    const struct sql_options options = {
        .params = &params, .leader_table = leader_table, .timeout_ns = visit->args->timeout_ns};
    struct pg_survey survey;
    struct err err = {0};

    if (!visit->config.postgres.host[0])
        doctor_bad(&visit->doctor, "postgres", "set postgres.host, database and user",
                   "no database is configured");
    else if (pg_survey(&options, &survey, &err) < 0)
        doctor_bad(&visit->doctor, "postgres",
                   err.kind == ERR_DENIED
                       ? "see postgres.* in the configuration, the password and pg_hba.conf"
                       : "see postgres.host and port, the network policy and the server's log",
                   "%s", err.msg);
    else {
        doctor_postgres(&visit->doctor, &survey);
        doctor_recovery(&visit->doctor, &survey, &visit->config);
    }
}

// At most `max` bytes of a file; "-" is standard input. Returns 0, or -1 with errno.
static int read_text(const char *path, size_t max, struct buf *ret)
{
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = 1;

    if (fd < 0)
        return -1;
    while (got > 0 && ret->len < max) {
        got = read(fd, buf_reserve(ret, CHUNK), CHUNK);
        if (got > 0)
            buf_added(ret, (size_t)got);
    }
    if (!is_stdin)
        close(fd);
    return got < 0 ? -1 : 0;
}

static void visit_meta_config(struct visit *visit)
{
    const char *path = visit->args->meta_config;
    struct buf text = {0};

    if (!path)
        doctor_skip(
            &visit->doctor, "meta.lease",
            "the metas' TOML is not given: --meta-config FILE, or - for standard input");
    else if (read_text(path, FILE_MAX, &text) < 0)
        doctor_bad(&visit->doctor, "meta.lease", "give the file that RW_CONFIG_PATH names",
                   "%.200s can't be read: %m", path);
    else
        doctor_meta_config(&visit->doctor, buf_str(&text), &visit->config);
    buf_done(&text);
}

// metafence-run as it runs beside us: without Kubernetes there is no pod that says how.
static void visit_process(struct visit *visit)
{
    pid_t meta = (pid_t)client_number(visit->status, "meta.pid", 0);
    struct proc_stat stat = {0};
    struct doctor_shim shim = {0};
    struct buf text = {0};
    char path[64];

    if (meta > 0 && !proc_stat_read(meta, &stat))
        stat.parent = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", stat.parent);
    if (stat.parent > 0 && read_text(path, FILE_MAX, &text) == 0) {
        for (size_t at = 0; at < text.len && shim.count < DOCTOR_ARGS_MAX;) {
            const char *word = text.data + at;

            if (strcmp(word, "--") == 0)
                break;
            shim.args[shim.count++] = word;
            at += strlen(word) + 1;
        }
    }
    if (shim.count > 0 && strstr(shim.args[0], "metafence-run"))
        doctor_shim(&visit->doctor, &shim, &visit->config);
    else
        doctor_skip(&visit->doctor, "shim.options", "metafence-run's command line is not seen");
    buf_done(&text);
}

static void visit_platform(struct visit *visit)
{
    if (kube_client_is_wanted(&visit->config.kubernetes)) {
        doctor_kube(&visit->doctor, &visit->config);
        return;
    }
    doctor_skip(&visit->doctor, "api", "kubernetes is off");
    if (visit->config.fence_method == FENCE_BY_SHIM)
        visit_process(visit);
}

// --- printing ---

static const char *mark_of(enum doctor_level level)
{
    switch (level) {
    case DOCTOR_OK: return "✓";
    case DOCTOR_WARN: return "!";
    case DOCTOR_BAD: return "✗";
    case DOCTOR_SKIP: return "-";
    }
    return "";
}

static enum output_color color_of(enum doctor_level level)
{
    switch (level) {
    case DOCTOR_OK: return OUTPUT_GREEN;
    case DOCTOR_WARN: return OUTPUT_YELLOW;
    case DOCTOR_BAD: return OUTPUT_RED;
    case DOCTOR_SKIP: return OUTPUT_DIM;
    }
    return OUTPUT_PLAIN;
}

static void print_table(const struct doctor *doctor, bool is_wide)
{
    for (size_t i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->list[i];

        if (finding->level == DOCTOR_SKIP && !is_wide)
            continue;
        (void)printf("%s%s%s %-28s %s\n", output_color(color_of(finding->level)),
                     mark_of(finding->level), output_color(OUTPUT_PLAIN), finding->check,
                     finding->text);
        if (finding->fix[0])
            (void)printf("  %-28s fix: %s\n", "", finding->fix);
    }
    (void)printf("\n%zu good, %zu warnings, %zu failed, %zu not looked at%s\n",
                 doctor_count(doctor, DOCTOR_OK), doctor_count(doctor, DOCTOR_WARN),
                 doctor_count(doctor, DOCTOR_BAD), doctor_count(doctor, DOCTOR_SKIP),
                 is_wide ? "" : " (-o wide shows them)");
}

static cJSON *to_json(const struct doctor *doctor)
{
    cJSON *out = cJSON_CreateObject();
    cJSON *counts = NULL;
    cJSON *list = NULL;

    (void)cJSON_AddBoolToObject(out, "good", doctor_count(doctor, DOCTOR_BAD) == 0);
    counts = cJSON_AddObjectToObject(out, "counts");
    for (int level = DOCTOR_OK; level <= DOCTOR_SKIP; level++)
        (void)cJSON_AddNumberToObject(counts, doctor_level_name((enum doctor_level)level),
                                      (double)doctor_count(doctor, (enum doctor_level)level));
    list = cJSON_AddArrayToObject(out, "findings");
    for (size_t i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->list[i];
        cJSON *item = cJSON_CreateObject();

        (void)cJSON_AddStringToObject(item, "check", finding->check);
        (void)cJSON_AddStringToObject(item, "level", doctor_level_name(finding->level));
        (void)cJSON_AddStringToObject(item, "text", finding->text);
        if (finding->fix[0])
            (void)cJSON_AddStringToObject(item, "fix", finding->fix);
        (void)cJSON_AddItemToArray(list, item);
    }
    return out;
}

static void print(const struct cli_args *args, const struct doctor *doctor)
{
    cJSON *json = NULL;

    if (args->output == CLI_TABLE || args->output == CLI_WIDE) {
        print_table(doctor, args->output == CLI_WIDE);
        return;
    }
    json = to_json(doctor);
    output_print(args->output, json);
    cJSON_Delete(json);
}

int cli_doctor(const struct cli_args *args)
{
    struct visit *visit = calloc(1, sizeof(*visit));
    int result = CLI_DONE;

    if (!visit)
        abort();
    visit->args = args;
    visit_config(visit);
    visit_agent(visit);
    if (visit->is_config_good) {
        visit_postgres(visit);
        visit_meta_config(visit);
        visit_platform(visit);
    } else {
        doctor_skip(&visit->doctor, "postgres",
                    "without a valid configuration nobody is asked");
    }
    print(args, &visit->doctor);
    if (doctor_count(&visit->doctor, DOCTOR_BAD) > 0)
        result = CLI_FAILED;
    cJSON_Delete(visit->status);
    free(visit);
    return result;
}
