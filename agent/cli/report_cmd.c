// SPDX-License-Identifier: Apache-2.0
// report: all that helps another person to understand what happens here, as one text without
// secrets. A section is what the command of that name prints.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "agent/cli/cli.h"
#include "agent/cli/client.h"
#include "agent/cli/redact.h"
#include "agent/config.h"
#include "base/buf.h"

#define CHUNK      4096
#define SECRET_MAX 8192 // bytes of a file with one

static int print_metrics(const struct cli_args *args)
{
    char path[128];
    const char *socket = cli_socket(args, path, sizeof(path));
    struct err err = {0};
    cJSON *answer = NULL;

    if (client_ask(socket, "{\"cmd\":\"metrics\"}\n", args->timeout_ns, &answer, &err) < 0) {
        cli_complain("metrics: %s", err.msg);
        return CLI_FAILED;
    }
    (void)fputs(client_text(answer, "metrics"), stdout);
    cJSON_Delete(answer);
    return CLI_DONE;
}

static const struct section {
    const char *title;
    int (*run)(const struct cli_args *args);
    const char *verb;
    enum cli_output output;
} sections[] = {
    {"version", cli_version, NULL, CLI_TABLE},
    {"status", cli_status, NULL, CLI_WIDE},
    {"history", cli_history, NULL, CLI_WIDE},
    {"doctor", cli_doctor, NULL, CLI_TABLE},
    {"config show", cli_config, "show", CLI_TABLE},
    {"sql status", cli_sql, "status", CLI_TABLE},
    {"reconcile --dry-run", cli_reconcile, NULL, CLI_WIDE},
    {"status -o json", cli_status, NULL, CLI_JSON},
    {"metrics", print_metrics, NULL, CLI_TABLE},
};

// --- secrets ---

// The beginning of a file without what stands behind its last letter; "" when it can't be read.
static void read_secret(const char *path, char buf[SECRET_MAX])
{
    int fd = *path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t len = fd < 0 ? 0 : read(fd, buf, SECRET_MAX - 1);

    if (fd >= 0)
        close(fd);
    while (len > 0 && (buf[len - 1] == '\n' || buf[len - 1] == '\r'))
        len--;
    buf[len < 0 ? 0 : len] = '\0';
}

// What the agent itself has of secrets.
static void learn_secrets(const struct cli_args *args, struct redact *redact)
{
    const char *path = args->config ? args->config : CLI_DEFAULT_CONFIG;
    char secret[SECRET_MAX];
    struct config config;
    struct err err = {0};

    // Of a broken file counts what was understood. What is wrong could be a secret itself.
    if (config_load(path, &config, &err) < 0)
        (void)puts("The configuration is refused: `config show`, below, says why.\n");
    redact_add(redact, getenv("PGPASSWORD"));
    read_secret(config.postgres.password_file, secret);
    redact_add(redact, secret);
    read_secret(config.kubernetes.token_file, secret);
    redact_add(redact, secret);
}

// --- sections ---

static int read_all(int fd, struct buf *ret)
{
    ssize_t got = lseek(fd, 0, SEEK_SET) == 0 ? 1 : -1;

    while (got > 0) {
        got = read(fd, buf_reserve(ret, CHUNK), CHUNK);
        if (got > 0)
            buf_added(ret, (size_t)got);
    }
    return got < 0 ? -1 : 0;
}

// Runs a section with what it prints, and complains, going to `fd`.
static void run_into(int fd, const struct section *section, const struct cli_args *args)
{
    struct cli_args own = *args;
    int out = dup(STDOUT_FILENO);
    int err = dup(STDERR_FILENO);

    own.verb = section->verb;
    own.output = section->output;
    own.is_dry_run = true;
    if (out >= 0 && err >= 0 && dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0) {
        (void)section->run(&own); // a section that fails has said so in its place
        (void)fflush(stdout);
        (void)fflush(stderr);
    }
    if (out >= 0) {
        (void)dup2(out, STDOUT_FILENO);
        close(out);
    }
    if (err >= 0) {
        (void)dup2(err, STDERR_FILENO);
        close(err);
    }
}

// In memory: the sidecar's file system can't be written.
static int print_section(const struct section *section, const struct cli_args *args,
                         const struct redact *redact)
{
    int fd = memfd_create(section->title, MFD_CLOEXEC);
    struct buf text = {0};
    int r = fd < 0 ? -1 : 0;

    if (r == 0) {
        run_into(fd, section, args);
        r = read_all(fd, &text);
        close(fd);
    }
    redact_text(redact, &text);
    (void)printf("== %s\n\n", section->title);
    (void)fwrite(buf_str(&text), 1, text.len, stdout);
    (void)putchar('\n');
    if (fflush(stdout) != 0)
        r = -1;
    buf_done(&text);
    return r;
}

int cli_report(const struct cli_args *args)
{
    const char *pod = getenv("POD_NAME");
    struct redact redact = {0};
    struct tm tm = {0};
    char when[32] = "";
    time_t now = 0;
    struct timespec wall = {0};
    int r = 0;

    (void)clock_gettime(CLOCK_REALTIME, &wall); // for people only
    now = wall.tv_sec;
    if (gmtime_r(&now, &tm))
        (void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    (void)printf(
        "metafence report of %s at %s\nPasswords and tokens are taken out: look all the "
        "same before you give it to others.\n\n",
        pod && *pod ? pod : "this machine", when);
    learn_secrets(args, &redact);
    (void)fflush(stdout); // what a section prints goes another way
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]) && r == 0; i++)
        r = print_section(&sections[i], args, &redact);
    redact_done(&redact);
    if (r < 0)
        cli_complain("report: %m");
    return r < 0 ? CLI_FAILED : CLI_DONE;
}
