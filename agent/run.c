// SPDX-License-Identifier: Apache-2.0
// `metafence agent`: hardens the process, finds a configuration to run on, runs the agent.
#include "agent/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/cli/cli.h"
#include "base/buf.h"
#include "base/log.h"

#define LAST_GOOD_SIZE (CONFIG_SOCKET_SIZE + 16)

// No core dump and no ptrace by others: the password is in our memory.
static void harden(void)
{
    const struct rlimit none = {0, 0};

    if (prctl(PR_SET_DUMPABLE, 0L, 0L, 0L, 0L) != 0 || setrlimit(RLIMIT_CORE, &none) != 0)
        log_warn("core dumps could not be turned off", kv_int("errno", errno));
    (void)signal(SIGPIPE, SIG_IGN); // fails only for an invalid number
}

// Takes PGPASSWORD out of the environment, so that /proc/PID/environ and children don't show
// it.
static char *take_password(void)
{
    char *in_environment = getenv("PGPASSWORD");
    char *password = NULL;

    if (!in_environment || !*in_environment)
        return NULL;
    password = strdup(in_environment);
    if (!password)
        abort();
    explicit_bzero(in_environment, strlen(in_environment));
    (void)unsetenv("PGPASSWORD"); // can't fail for this name
    return password;
}

static const char *last_good_path(const struct config *config, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s.last-good", config->control_socket);
    return buf;
}

// Keeps a copy of a file that was good beside the socket, where the next agent finds it. Not
// synced: after a power cut this pod's volume is gone as well.
static void keep_last_good(const struct config *config, const struct buf *bytes)
{
    char path[LAST_GOOD_SIZE];
    char tmp[LAST_GOOD_SIZE + 8];
    int fd = -1;
    bool is_written = false;

    last_good_path(config, path, sizeof(path));
    (void)snprintf(tmp, sizeof(tmp), "%s.new", path);
    // Meta's container may write there too: no link of its making is followed.
    (void)unlink(tmp);
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        is_written = write(fd, buf_str(bytes), bytes->len) == (ssize_t)bytes->len;
        close(fd);
    }
    if (!is_written || rename(tmp, path) != 0) {
        log_warn("no copy of the good configuration could be kept", kv_str("path", path),
                 kv_int("errno", errno));
        (void)unlink(tmp); // what is left of it is of no use
    }
}

// What the agent runs on.
struct choice {
    struct config config;
    struct err error; // of the file; kind NONE when it is good
    bool is_last_good;
};

static void choose_config(const struct cli_args *args, const char *path, struct choice *ret)
{
    char last_good[LAST_GOOD_SIZE];
    struct buf bytes = {0};
    struct config config;
    struct err err = {0};
    bool is_good = config_load(path, &config, &ret->error) == 0;

    if (args->socket)
        (void)snprintf(config.control_socket, sizeof(config.control_socket), "%s",
                       args->socket);
    ret->config = config;
    if (is_good) {
        ret->error = (struct err){0};
        if (config_read_file(path, &bytes, &err) == 0)
            keep_last_good(&config, &bytes);
        buf_done(&bytes);
        return;
    }
    last_good_path(&config, last_good, sizeof(last_good));
    if (config_load(last_good, &ret->config, &err) == 0) {
        ret->is_last_good = true;
        return;
    }
    // Nothing of a broken file is believed but where to listen, where metafence-run is, and
    // where its copy goes: meta does not start without that.
    config_defaults(&ret->config);
    memcpy(ret->config.control_socket, config.control_socket, sizeof(config.control_socket));
    memcpy(ret->config.fence_socket, config.fence_socket, sizeof(config.fence_socket));
    memcpy(ret->config.metafence_run, config.metafence_run, sizeof(config.metafence_run));
    memcpy(ret->config.http_address, config.http_address, sizeof(config.http_address));
    ret->config.http_port = config.http_port;
}

static void say_start(const struct choice *choice, const char *path)
{
    const struct config *config = &choice->config;
    enum log_level level = LOG_LEVEL_INFO;
    struct err err = {0};

    if (log_level_parse(config->log_level, &level, &err) == 0)
        log_set_level(level);
    log_info("metafence agent", kv_str("version", METAFENCE_VERSION), kv_str("config", path),
             kv_str("id", config->core.id), kv_str("postgres", config->postgres.host),
             kv_int("port", config->postgres.port), kv_dur("ttl", config->core.ttl_ns),
             kv_dur("poll", config->core.poll_ns));
    if (choice->error.kind != ERR_NONE)
        log_error("ConfigInvalid", kv_err(&choice->error),
                  kv_str("running_on", choice->is_last_good ? "last good" : "built-in"));
    if (config->override_error[0])
        log_error("OverridesInvalid: none of the pod's annotations holds",
                  kv_str("error", config->override_error));
}

int run_agent(const struct cli_args *args)
{
    const char *path = args->config ? args->config : CLI_DEFAULT_CONFIG;
    struct choice *choice = calloc(1, sizeof(*choice));
    struct agent_start start = {0};
    struct agent *agent = NULL;
    struct err err = {0};
    int status = CLI_FAILED;

    if (!choice)
        abort();
    harden();
    start.password = take_password();
    choose_config(args, path, choice);
    say_start(choice, path);
    start.config = &choice->config;
    start.config_error = choice->error.msg;
    start.is_last_good = choice->is_last_good;
    if (agent_new(&start, &agent, &err) < 0)
        log_error("the agent can't start", kv_err(&err));
    else
        status = agent_run(agent);
    agent_free(agent);
    free(choice);
    return status;
}
