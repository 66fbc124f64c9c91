// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/config.h"
#include "agent/control.h"
#include "base/clock.h"
#include "base/err.h"

#define DEFAULT_TIMEOUT_NS (10 * NS_PER_SEC)
#define LONG_TIMEOUT_NS    (300 * NS_PER_SEC)

struct option {
    enum cli_option_id id;
    const char *name; // without dashes
    char letter;      // 0: none
    const char *value;
    const char *doc;
};

static const struct option options[] = {
    {CLI_OPTION_CONFIG, "config", 0, "FILE", "the agent's configuration"},
    {CLI_OPTION_SOCKET, "socket", 0, "PATH",
     "the agent's socket (default: that of --config, else " CLI_DEFAULT_SOCKET ")"},
    {CLI_OPTION_OUTPUT, "output", 'o', "table|wide|json|yaml",
     "form of the result (default table)"},
    {CLI_OPTION_REASON, "reason", 0, "TEXT", "why; shown in status, logs and history"},
    {CLI_OPTION_FOR, "for", 0, "DURATION", "how long, like 30m (1s to 24h)"},
    {CLI_OPTION_WAIT, "wait", 0, "DURATION",
     "for dropped jobs and those being created, before it begins (0s to 1h, default 60s)"},
    {CLI_OPTION_TIMEOUT, "timeout", 0, "DURATION",
     "how long to wait for confirmation (default 10s; 5m for recover and handover)"},
    {CLI_OPTION_ROLE, "agent-role", 0, "ROLE",
     "install, print: the agents' role, if it is not the metas'"},
    {CLI_OPTION_GUARD, "guard", 0, "off|observe|enforce",
     "install, print: the guard's mode (default: as it is, enforce when new)"},
    {CLI_OPTION_RECOVERY, "recovery", 0, "off|observe|enforce",
     "install, print: the mode of ordered recovery (default: as it is, observe when new)"},
    {CLI_OPTION_DRY_RUN, "dry-run", 0, NULL, "only say what would be done"},
    {CLI_OPTION_META_CONFIG, "meta-config", 0, "FILE",
     "the TOML that the metas read, - for standard input"},
    {CLI_OPTION_WATCH, "watch", 'w', NULL, "show it again each second, until it is ended"},
    {CLI_OPTION_NO_HEADERS, "no-headers", 0, NULL, "a table without its first line"},
};
#define OPTION_COUNT (sizeof(options) / sizeof(options[0]))

void cli_complain(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)fputs("metafence: ", stderr);
    (void)vfprintf(stderr, fmt, args);
    (void)fputc('\n', stderr);
    va_end(args);
}

static void print_overview(FILE *to, const char *program, const struct cli_command *commands)
{
    (void)fprintf(to,
                  "metafence %s: fences RisingWave meta nodes that lost leadership\n\n"
                  "usage: %s COMMAND [options]\n\n",
                  METAFENCE_VERSION, program);
    for (; commands->name; commands++)
        (void)fprintf(to, "  %-10s  %s\n", commands->name, commands->summary);
    (void)fprintf(to,
                  "\n`%s COMMAND --help` explains a command.\n"
                  "Exit status: 0 done, 1 failed, 2 wrong usage, 3 not confirmed.\n",
                  program);
}

static void print_verbs(FILE *to, const struct cli_command *command)
{
    for (size_t i = 0; command->verbs && command->verbs[i]; i++)
        (void)fprintf(to, "%s%s", i ? "|" : " ", command->verbs[i]);
}

static void print_help(FILE *to, const char *program, const struct cli_command *command)
{
    (void)fprintf(to, "usage: %s %s", program, command->name);
    print_verbs(to, command);
    (void)fprintf(to, "%s\n\n%s.\n", command->options ? " [options]" : "", command->summary);
    if (command->details)
        (void)fprintf(to, "%s\n", command->details);
    if (command->options)
        (void)fputc('\n', to);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char left[48];

        if (!(command->options & options[i].id))
            continue;
        if (!options[i].value && options[i].letter)
            (void)snprintf(left, sizeof(left), "-%c, --%s", options[i].letter, options[i].name);
        else if (!options[i].value)
            (void)snprintf(left, sizeof(left), "--%s", options[i].name);
        else if (options[i].letter)
            (void)snprintf(left, sizeof(left), "-%c, --%s %s", options[i].letter,
                           options[i].name, options[i].value);
        else
            (void)snprintf(left, sizeof(left), "--%s %s", options[i].name, options[i].value);
        (void)fprintf(to, "  %-34s  %s\n", left, options[i].doc);
    }
}

// If `arg` is the option, returns true; *ret_value is what stands behind '=', or NULL.
static bool is_option(const char *arg, const struct option *option, const char **ret_value)
{
    size_t len = strlen(option->name);

    *ret_value = NULL;
    if (arg[0] == '-' && option->letter && arg[1] == option->letter) {
        if (arg[2] != '\0')
            *ret_value = arg[2] == '=' ? arg + 3 : arg + 2; // -ojson
        return true;
    }
    if (strncmp(arg, "--", 2) != 0 || strncmp(arg + 2, option->name, len) != 0)
        return false;
    if (arg[2 + len] == '=')
        *ret_value = arg + 2 + len + 1;
    return arg[2 + len] == '=' || arg[2 + len] == '\0';
}

static const struct option *find_option(const char *arg, unsigned known, const char **ret_value)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if ((options[i].id & known) && is_option(arg, &options[i], ret_value))
            return &options[i];
    return NULL;
}

static int take_duration(const struct option *option, const char *value, int64_t *ret_ns)
{
    struct err err = {0};

    if (duration_parse(value, ret_ns, &err) == 0 && *ret_ns > 0)
        return 0;
    cli_complain("--%s: %s", option->name,
                 err.kind ? err.msg : "must be longer than 0: write a duration like 30m");
    return -1;
}

static int take_wait(const char *value, int64_t *ret_ns)
{
    struct err err = {0};

    if (duration_parse(value, ret_ns, &err) == 0 && *ret_ns <= CONTROL_WAIT_MAX_NS)
        return 0;
    cli_complain("--wait: %s", err.kind ? err.msg : "must be from 0s to 1h");
    return -1;
}

static int take_form(struct cli_args *args, const char *value)
{
    static const char *const forms[] = {
        [CLI_TABLE] = "table", [CLI_JSON] = "json", [CLI_WIDE] = "wide", [CLI_YAML] = "yaml"};

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (strcmp(value, forms[i]) != 0)
            continue;
        args->output = (enum cli_output)i;
        return 0;
    }
    cli_complain("--output: \"%.40s\" is not a form: write table, wide, json or yaml", value);
    return -1;
}

static int take_mode(const struct option *option, const char *value, const char **ret)
{
    if (strcmp(value, "off") == 0 || strcmp(value, "observe") == 0 ||
        strcmp(value, "enforce") == 0) {
        *ret = value;
        return 0;
    }
    cli_complain("--%s: \"%.40s\" is no mode: write off, observe or enforce", option->name,
                 value);
    return -1;
}

static int take_option(struct cli_args *args, const struct option *option, const char *value)
{
    switch (option->id) {
    case CLI_OPTION_CONFIG: args->config = value; return 0;
    case CLI_OPTION_SOCKET: args->socket = value; return 0;
    case CLI_OPTION_REASON: args->reason = value; return 0;
    case CLI_OPTION_ROLE: args->role = value; return 0;
    case CLI_OPTION_GUARD: return take_mode(option, value, &args->guard);
    case CLI_OPTION_RECOVERY: return take_mode(option, value, &args->recovery);
    case CLI_OPTION_FOR: return take_duration(option, value, &args->for_ns);
    case CLI_OPTION_WAIT: return take_wait(value, &args->wait_ns);
    case CLI_OPTION_TIMEOUT: return take_duration(option, value, &args->timeout_ns);
    case CLI_OPTION_DRY_RUN: args->is_dry_run = true; return 0;
    case CLI_OPTION_WATCH: args->is_watching = true; return 0;
    case CLI_OPTION_NO_HEADERS: args->has_no_headers = true; return 0;
    case CLI_OPTION_OUTPUT: return take_form(args, value);
    case CLI_OPTION_META_CONFIG: args->meta_config = value; return 0;
    }
    return -1;
}

static int refuse_argument(const struct cli_args *args, const struct cli_command *command,
                           const char *arg)
{
    cli_complain("%s: \"%.60s\" is not understood: see `%s %s --help`", command->name, arg,
                 args->program, command->name);
    return -1;
}

static bool is_verb(const struct cli_command *command, const char *arg)
{
    for (size_t i = 0; command->verbs && command->verbs[i]; i++)
        if (strcmp(command->verbs[i], arg) == 0)
            return true;
    return false;
}

// Takes argv[i] and, if it has one, its value. Returns how many elements were taken, or -1.
static int take_argument(struct cli_args *args, const struct cli_command *command,
                         char *const *arg)
{
    const char *value = NULL;
    const struct option *option = NULL;

    if (strcmp(arg[0], "--help") == 0 || strcmp(arg[0], "-h") == 0) {
        args->is_help = true;
        return 1;
    }
    if (!args->verb && is_verb(command, arg[0])) {
        args->verb = arg[0];
        return 1;
    }
    option = find_option(arg[0], command->options, &value);
    if (!option || (value && !option->value))
        return refuse_argument(args, command, arg[0]);
    if (!option->value)
        return take_option(args, option, "") < 0 ? -1 : 1;
    if (value)
        return take_option(args, option, value) < 0 ? -1 : 1;
    if (!arg[1]) {
        cli_complain("%s: --%s lacks its value: write --%s %s", command->name, option->name,
                     option->name, option->value);
        return -1;
    }
    return take_option(args, option, arg[1]) < 0 ? -1 : 2;
}

static const char *program_name(const char *argv0)
{
    const char *slash = strrchr(argv0, '/');

    return slash ? slash + 1 : argv0;
}

static int run_command(int argc, char **argv, const struct cli_command *command,
                       const struct cli_command *commands)
{
    struct cli_args args = {.commands = commands,
                            .program = program_name(argv[0]),
                            .command = command->name,
                            .wait_ns = CONTROL_WAIT_NS,
                            .timeout_ns = command->options & CLI_OPTION_WAIT
                                              ? LONG_TIMEOUT_NS
                                              : DEFAULT_TIMEOUT_NS};

    for (int i = 2; i < argc;) {
        int taken = take_argument(&args, command, argv + i);

        if (taken < 0)
            return CLI_USAGE;
        i += taken;
    }
    if (args.is_help) {
        print_help(stdout, args.program, command);
        return CLI_DONE;
    }
    if (command->verbs && !args.verb) {
        cli_complain("%s: what of it is missing", command->name);
        print_help(stderr, args.program, command);
        return CLI_USAGE;
    }
    return command->run(&args);
}

// --- completion ---

static void print_words(const struct cli_command *command)
{
    for (size_t i = 0; command->verbs && command->verbs[i]; i++)
        (void)printf("%s ", command->verbs[i]);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (command->options & options[i].id)
            (void)printf("--%s ", options[i].name);
}

// What may stand behind an option: a file, found by `for_path`, or one of a few words.
static void print_values(const struct option *option, const char *for_path)
{
    bool is_path = option->value &&
                   (strcmp(option->value, "FILE") == 0 || strcmp(option->value, "PATH") == 0);

    if (!option->value)
        return;
    (void)fputs("    ", stdout);
    if (option->letter)
        (void)printf("-%c | ", option->letter);
    (void)printf("--%s) ", option->name);
    if (is_path) {
        (void)printf("%s ;;\n", for_path);
        return;
    }
    (void)printf("words='");
    for (const char *p = strchr(option->value, '|') ? option->value : ""; *p; p++)
        (void)putchar(*p == '|' ? ' ' : *p);
    (void)puts("' ;;");
}

// Of the binary in the pod, `kubectl metafence` leaves out what makes no sense from outside.
static bool is_for_kubectl(const struct cli_command *command)
{
    return strcmp(command->name, "agent") != 0 && strcmp(command->name, "completion") != 0;
}

static const char kubectl_head[] =
    "#!/usr/bin/env bash\n"
    "# SPDX-License-Identifier: Apache-2.0\n"
    "# By `metafence completion kubectl`. What kubectl's own completion asks for `kubectl\n"
    "# metafence`: its words, the last as far as it is typed. Put it into PATH beside\n"
    "# kubectl-metafence.\n"
    "command='' before='' words='' where=()\n"
    "while [ $# -gt 1 ]; do\n"
    "    before=$1\n"
    "    shift\n"
    "    [ -z \"$command\" ] || continue\n"
    "    case $before in\n"
    "    -n | --namespace | --context | --kubeconfig | --request-timeout)\n"
    "        [ $# -le 1 ] || { where+=(\"$before\" \"$1\") && shift && before=''; }\n"
    "        ;;\n"
    "    -p | --pod | -l | --selector | -v | --v) [ $# -le 1 ] || { shift && before=''; } ;;\n"
    "    --namespace=* | --context=* | --kubeconfig=*) where+=(\"$before\") ;;\n"
    "    -*) ;;\n"
    "    *) command=$before ;;\n"
    "    esac\n"
    "done\n"
    "if [ -z \"$command\" ]; then\n"
    "    case $before in\n"
    "    -n | --namespace | --context | --kubeconfig | --request-timeout) ;;\n"
    "    -l | --selector | -v | --v) ;;\n"
    "    -p | --pod)\n"
    "        words=$(kubectl ${where[@]+\"${where[@]}\"} get pods -l metafence.io/role \\\n"
    "            -o 'jsonpath={.items[*].metadata.name}')\n"
    "        ;;\n"
    "    *)\n"
    "        words='--namespace --context --kubeconfig --request-timeout --pod --all '\n"
    "        words+='--selector --v --help '";
static const char kubectl_tail[] = "    esac\n"
                                   "fi\n"
                                   "for word in $words; do\n"
                                   "    printf '%s\\n' \"$word\"\n"
                                   "done\n"
                                   "echo :4";

// The whole of agent/cli/kubectl_complete-metafence. Of what it offers, kubectl takes what
// begins as the last word does.
static int complete_for_kubectl(const struct cli_args *args)
{
    (void)puts(kubectl_head);
    for (const struct cli_command *command = args->commands; command->name; command++)
        if (is_for_kubectl(command))
            (void)printf("        words+='%s '\n", command->name);
    (void)puts("        ;;\n    esac\nelse\n    case $command in");
    for (const struct cli_command *command = args->commands; command->name; command++) {
        if (!is_for_kubectl(command))
            continue;
        (void)printf("    %s) words='", command->name);
        print_words(command);
        (void)puts("--help' ;;");
    }
    (void)puts("    esac\n    case $before in");
    for (size_t i = 0; i < OPTION_COUNT; i++)
        print_values(&options[i], "words=''");
    (void)puts(kubectl_tail);
    return CLI_DONE;
}

int cli_completion(const struct cli_args *args)
{
    if (strcmp(args->verb, "kubectl") == 0)
        return complete_for_kubectl(args);
    (void)puts("# bash completion for metafence: source <(metafence completion bash)\n"
               "_metafence()\n{\n"
               "    local word=${COMP_WORDS[COMP_CWORD]} words=''\n"
               "    case ${COMP_WORDS[1]} in");
    for (const struct cli_command *command = args->commands; command->name; command++) {
        (void)printf("    %s) words='", command->name);
        print_words(command);
        (void)puts("--help' ;;");
    }
    (void)puts("    esac\n    case ${COMP_WORDS[COMP_CWORD - 1]} in");
    for (size_t i = 0; i < OPTION_COUNT; i++)
        print_values(&options[i], "mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return");
    (void)printf("    esac\n    [ \"$COMP_CWORD\" -gt 1 ] || words='");
    for (const struct cli_command *command = args->commands; command->name; command++)
        (void)printf("%s ", command->name);
    (void)puts("--help'\n"
               "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n}\n"
               "complete -F _metafence metafence");
    return CLI_DONE;
}

int cli_main(int argc, char **argv, const struct cli_command *commands)
{
    const char *name = argc > 1 ? argv[1] : NULL;

    if (!name) {
        print_overview(stderr, "metafence", commands);
        return CLI_USAGE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_overview(stdout, program_name(argv[0]), commands);
        return CLI_DONE;
    }
    if (strcmp(name, "--version") == 0)
        name = "version";
    for (const struct cli_command *command = commands; command->name; command++)
        if (strcmp(command->name, name) == 0)
            return run_command(argc, argv, command, commands);
    cli_complain("there is no command \"%.40s\": `%s --help` lists them", name,
                 program_name(argv[0]));
    return CLI_USAGE;
}

const char *cli_socket(const struct cli_args *args, char *buf, size_t size)
{
    struct config config;
    struct err err = {0};

    if (args->socket)
        return args->socket;
    if (!args->config)
        return CLI_DEFAULT_SOCKET;
    // A broken file still tells where the agent that runs on it listens.
    if (config_load(args->config, &config, &err) < 0)
        cli_complain("%s (trying %s)", err.msg, config.control_socket);
    (void)snprintf(buf, size, "%s", config.control_socket);
    return buf;
}
