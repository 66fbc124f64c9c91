// SPDX-License-Identifier: Apache-2.0
#include "fence/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define SOCKET_PATH_MAX 107 // sun_path without its NUL
#define POD_UID_MIN     8   // of which the session tag is made

enum kind {
    KIND_TEXT,
    KIND_DURATION,
    KIND_PORT,
    KIND_COUNT,
    KIND_UID,
    KIND_RESTART,
    KIND_AGENT_LOST,
    KIND_FLAG, // no value
};

struct option {
    const char *name;
    enum kind kind;
    size_t offset; // in struct options
};

#define AT(field) offsetof(struct options, field)
static const struct option table[] = {
    {"socket", KIND_TEXT, AT(socket_path)},
    {"state", KIND_TEXT, AT(state_path)},
    {"pod-uid", KIND_TEXT, AT(pod_uid)},
    {"host-id", KIND_TEXT, AT(host_id)},
    {"peer-uid", KIND_UID, AT(peer_uid)},
    {"service-port", KIND_PORT, AT(ports.service)},
    {"metrics-port", KIND_PORT, AT(ports.metrics)},
    {"dashboard-port", KIND_PORT, AT(ports.dashboard)},
    {"ttl", KIND_DURATION, AT(shim.ttl_ns)},
    {"margin", KIND_DURATION, AT(shim.margin_ns)},
    {"kill-budget", KIND_DURATION, AT(shim.kill_budget_ns)},
    {"database-hold", KIND_DURATION, AT(shim.database_hold_ns)},
    {"kill-window", KIND_DURATION, AT(shim.kill_window_ns)},
    {"max-kills", KIND_COUNT, AT(shim.max_kills)},
    {"restart", KIND_RESTART, AT(shim.restart)},
    {"when-agent-lost", KIND_AGENT_LOST, AT(shim.when_agent_lost)},
    {"require-agent", KIND_FLAG, AT(shim.require_agent)},
};

#define OPTION_COUNT (sizeof(table) / sizeof(table[0]))

const char options_usage[] =
    "usage: metafence-run [options] -- COMMAND [ARGUMENT…]\n"
    "       metafence-run probe startup|liveness|readiness --state PATH\n"
    "       metafence-run status --state PATH\n"
    "       metafence-run --version | --help\n"
    "\n"
    "Runs COMMAND (a RisingWave meta node) as its child and kills it when its permit to lead\n"
    "runs out. Durations are a whole number and one of ns us ms s m h.\n"
    "\n"
    "  --socket PATH            where the agent connects (needed)\n"
    "  --state PATH             state file, read by probes and by the next metafence-run "
    "(needed)\n"
    "  --pod-uid UID            at least 8 characters; the first 8 are in the session tag "
    "(needed)\n"
    "  --peer-uid N             user id that the agent runs as (own)\n"
    "  --host-id TEXT           advertised address of COMMAND, for messages\n"
    "  --ttl D                  lease of the election (30s)\n"
    "  --margin D               safety margin before its end (2s)\n"
    "  --kill-budget D          how long a kill may take (500ms)\n"
    "  --service-port N         5690; closed after having been open: it leads\n"
    "  --metrics-port N         1250; open: it leads\n"
    "  --dashboard-port N       5691; open: it leads\n"
    "  --restart in-place|container     who starts COMMAND again (in-place)\n"
    "  --when-agent-lost fence|hold     when the last permit of a lost agent runs out (fence)\n"
    "  --require-agent          start only with an agent, or after ttl; without one a leader "
    "is\n"
    "                           killed within its first lease\n"
    "  --max-kills N            further kills within --kill-window delay the next start (3)\n"
    "  --kill-window D          (10m)\n"
    "  --database-hold D        how long a start waits for a database that is known down "
    "(60s)\n";

static int parse_number(const struct option *option, const char *text, uint64_t max,
                        uint64_t *ret, struct err *err)
{
    uint64_t value = 0;
    const char *p = text;

    for (; *p >= '0' && *p <= '9' && value <= max; p++)
        value = value * 10 + (uint64_t)(*p - '0');
    if (p == text || *p != '\0' || value > max)
        return err_set(err, ERR_INVALID, 0,
                       "--%s \"%.60s\" is not a whole number from 0 to %llu", option->name,
                       text, (unsigned long long)max);
    *ret = value;
    return 0;
}

static int set_choice(const struct option *option, const char *value, void *field,
                      struct err *err)
{
    bool is_restart = option->kind == KIND_RESTART;
    const char *first = is_restart ? "in-place" : "fence";
    const char *second = is_restart ? "container" : "hold";
    bool is_second = strcmp(value, second) == 0;

    if (!is_second && strcmp(value, first) != 0)
        return err_set(err, ERR_INVALID, 0, "--%s \"%.60s\" is neither %s nor %s", option->name,
                       value, first, second);
    if (is_restart)
        *(enum shim_restart *)field =
            is_second ? SHIM_RESTART_CONTAINER : SHIM_RESTART_IN_PLACE;
    else
        *(enum shim_agent_lost *)field =
            is_second ? SHIM_AGENT_LOST_HOLD : SHIM_AGENT_LOST_FENCE;
    return 0;
}

static int set_port(const struct option *option, const char *value, void *field,
                    struct err *err)
{
    uint64_t number = 0;

    if (parse_number(option, value, UINT16_MAX, &number, err) < 0)
        return -1;
    if (number == 0)
        return err_set(err, ERR_INVALID, 0, "--%s is 0: name the port that meta listens on",
                       option->name);
    *(uint16_t *)field = (uint16_t)number;
    return 0;
}

static int set_number(const struct option *option, const char *value, void *field,
                      struct err *err)
{
    // The last user id means "no user".
    uint64_t max = option->kind == KIND_UID ? UINT32_MAX - 1 : UINT32_MAX;
    uint64_t number = 0;

    if (parse_number(option, value, max, &number, err) < 0)
        return -1;
    if (option->kind == KIND_UID)
        *(uid_t *)field = (uid_t)number;
    else
        *(uint32_t *)field = (uint32_t)number;
    return 0;
}

static int set_value(const struct option *option, const char *value, struct options *ret,
                     struct err *err)
{
    void *field = (char *)ret + option->offset;

    switch (option->kind) {
    case KIND_TEXT:
        *(const char **)field = value;
        return value[0] != '\0' ? 0
                                : err_set(err, ERR_INVALID, 0, "--%s is empty", option->name);
    case KIND_DURATION:
        return duration_parse(value, field, err) < 0 ? err_wrap(err, "--%s", option->name) : 0;
    case KIND_PORT: return set_port(option, value, field, err);
    case KIND_COUNT:
    case KIND_UID: return set_number(option, value, field, err);
    case KIND_RESTART:
    case KIND_AGENT_LOST: return set_choice(option, value, field, err);
    case KIND_FLAG: *(bool *)field = true; return 0;
    }
    return err_set(err, ERR_BUG, 0, "option --%s has no kind", option->name);
}

// The option that `text` (behind its two dashes) names; *ret_value: what follows a '=', or
// NULL.
static const struct option *find_option(const char *text, const char **ret_value)
{
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);

    *ret_value = equals ? equals + 1 : NULL;
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (strlen(table[i].name) == length && strncmp(table[i].name, text, length) == 0)
            return &table[i];
    return NULL;
}

struct arguments {
    int count;
    char **list;
    int at; // the next one
};

// The option at arguments->at and its value (NULL for a flag); moves behind both.
static const struct option *take_option(struct arguments *arguments, const char **ret_value,
                                        struct err *err)
{
    const char *text = arguments->list[arguments->at++];
    const struct option *option = NULL;

    if (strncmp(text, "--", 2) == 0)
        option = find_option(text + 2, ret_value);
    if (!option) {
        (void)err_set(err, ERR_INVALID, 0,
                      "\"%.60s\" is no option of metafence-run: see --help; meta's command "
                      "follows after --",
                      text);
        return NULL;
    }
    if (option->kind == KIND_FLAG && *ret_value) {
        (void)err_set(err, ERR_INVALID, 0, "--%s takes no value", option->name);
        return NULL;
    }
    if (option->kind == KIND_FLAG || *ret_value)
        return option;
    if (arguments->at >= arguments->count ||
        strcmp(arguments->list[arguments->at], "--") == 0) {
        (void)err_set(err, ERR_INVALID, 0, "--%s needs a value", option->name);
        return NULL;
    }
    *ret_value = arguments->list[arguments->at++];
    return option;
}

// Takes options up to "--" or the end, and stops there.
static int take_options(struct arguments *arguments, struct options *ret, struct err *err)
{
    bool seen[OPTION_COUNT] = {false};

    while (arguments->at < arguments->count &&
           strcmp(arguments->list[arguments->at], "--") != 0) {
        const char *value = NULL;
        const struct option *option = take_option(arguments, &value, err);

        if (!option)
            return -1;
        if (seen[option - table])
            return err_set(err, ERR_INVALID, 0, "--%s is given twice", option->name);
        seen[option - table] = true;
        if (set_value(option, value, ret, err) < 0)
            return -1;
    }
    return 0;
}

static int check_pod_uid(const char *uid, struct err *err)
{
    if (strlen(uid) < POD_UID_MIN)
        return err_set(err, ERR_INVALID, 0, "--pod-uid \"%.60s\" has less than %d characters",
                       uid, POD_UID_MIN);
    for (int i = 0; i < POD_UID_MIN; i++) {
        char c = uid[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                     (c >= 'A' && c <= 'Z') || c == '-';
        if (!plain)
            return err_set(
                err, ERR_INVALID, 0,
                "--pod-uid \"%.60s\": its first %d characters must be letters, digits "
                "or -",
                uid, POD_UID_MIN);
    }
    return 0;
}

static int check_run(const struct options *options, struct err *err)
{
    const struct ports_wanted *ports = &options->ports;

    if (!options->socket_path)
        return err_set(err, ERR_INVALID, 0, "--socket is missing: where the agent connects");
    if (strlen(options->socket_path) > SOCKET_PATH_MAX)
        return err_set(err, ERR_INVALID, 0,
                       "--socket \"%.60s…\" has %zu bytes: the kernel takes %d",
                       options->socket_path, strlen(options->socket_path), SOCKET_PATH_MAX);
    if (!options->pod_uid)
        return err_set(err, ERR_INVALID, 0,
                       "--pod-uid is missing: give metadata.uid of the pod");
    if (check_pod_uid(options->pod_uid, err) < 0)
        return -1;
    if (ports->service == ports->metrics || ports->service == ports->dashboard ||
        ports->metrics == ports->dashboard)
        return err_set(
            err, ERR_INVALID, 0,
            "--service-port %u, --metrics-port %u and --dashboard-port %u must differ",
            ports->service, ports->metrics, ports->dashboard);
    return shim_config_check(&options->shim, err);
}

static int find_probe(const char *kind, struct options *ret, struct err *err)
{
    static const struct {
        const char *name;
        enum options_command command;
    } probes[] = {{"startup", OPTIONS_PROBE_STARTUP},
                  {"liveness", OPTIONS_PROBE_LIVENESS},
                  {"readiness", OPTIONS_PROBE_READINESS}};

    for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++) {
        if (strcmp(kind, probes[i].name) == 0) {
            ret->command = probes[i].command;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, 0,
                   "probe \"%.60s\" is none of startup, liveness, readiness", kind);
}

static int find_command(struct arguments *arguments, struct options *ret, struct err *err)
{
    const char *word = arguments->count > 1 ? arguments->list[1] : "--help";

    arguments->at = 2;
    if (strcmp(word, "--version") == 0) {
        ret->command = OPTIONS_VERSION;
    } else if (strcmp(word, "--help") == 0) {
        ret->command = OPTIONS_HELP;
    } else if (strcmp(word, "status") == 0) {
        ret->command = OPTIONS_STATUS;
    } else if (strcmp(word, "probe") == 0) {
        arguments->at = 3;
        return find_probe(arguments->count > 2 ? arguments->list[2] : "", ret, err);
    } else {
        ret->command = OPTIONS_RUN;
        arguments->at = 1;
    }
    return 0;
}

int options_parse(int argc, char **argv, uid_t own_uid, struct options *ret, struct err *err)
{
    struct options options = {.peer_uid = own_uid,
                              .ports = {.service = 5690, .metrics = 1250, .dashboard = 5691},
                              .shim = {.ttl_ns = 30 * NS_PER_SEC,
                                       .margin_ns = 2 * NS_PER_SEC,
                                       .kill_budget_ns = NS_PER_SEC / 2,
                                       .database_hold_ns = 60 * NS_PER_SEC,
                                       .kill_window_ns = 600 * NS_PER_SEC,
                                       .max_kills = 3}};
    struct arguments arguments = {.count = argc, .list = argv};

    if (find_command(&arguments, &options, err) < 0)
        return -1;
    if (options.command == OPTIONS_VERSION || options.command == OPTIONS_HELP) {
        *ret = options;
        return 0;
    }
    if (take_options(&arguments, &options, err) < 0)
        return -1;
    if (!options.state_path)
        return err_set(err, ERR_INVALID, 0, "--state is missing: the path of the state file");
    if (options.command == OPTIONS_RUN && check_run(&options, err) < 0)
        return -1;
    if (options.command == OPTIONS_RUN && arguments.at + 1 >= argc)
        return err_set(err, ERR_INVALID, 0, "no command to run: it follows after --");
    // Long enough for a restart of the agent, short enough to know a lost one before its last
    // permit has run out.
    options.shim.agent_silence_ns = options.shim.ttl_ns / 3;
    options.argv = argv + arguments.at + 1;
    *ret = options;
    return 0;
}
