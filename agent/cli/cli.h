// SPDX-License-Identifier: Apache-2.0
#pragma once
// cli: the commands of the binary. Each is a function in the table of main.c; options are
// parsed by one table, so that help, errors and parsing can't differ. Commands print results on
// stdout, complaints on stderr.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_NOT_CONFIRMED = 3,
};

#define CLI_DEFAULT_SOCKET "/run/metafence/agent.sock"
#define CLI_DEFAULT_CONFIG "/etc/metafence/agent.yaml"

enum cli_output { CLI_TABLE = 0, CLI_JSON, CLI_WIDE, CLI_YAML };

struct cli_command;

// What the command line said. Strings are borrowed from argv.
struct cli_args {
    const struct cli_command *commands; // all of them
    const char *program;                // how we were called
    const char *command;                // "status"
    const char *verb;                   // "install" of "sql install"; NULL for commands without
    const char *config;                 // NULL: not given
    const char *socket;                 // NULL: not given
    const char *reason;                 // NULL: not given
    const char *role;                   // NULL: not given
    const char *guard;                  // NULL: not given
    const char *recovery;               // the same
    const char *meta_config;            // NULL: not given
    enum cli_output output;
    bool is_dry_run;
    bool is_watching;
    bool has_no_headers;
    int64_t for_ns;     // 0: not given
    int64_t wait_ns;    // default 60 s
    int64_t timeout_ns; // default 10 s, 5 min of commands that take --wait
    bool is_help;
};

enum cli_option_id {
    CLI_OPTION_CONFIG = 1U << 0,
    CLI_OPTION_SOCKET = 1U << 1,
    CLI_OPTION_OUTPUT = 1U << 2,
    CLI_OPTION_REASON = 1U << 3,
    CLI_OPTION_FOR = 1U << 4,
    CLI_OPTION_TIMEOUT = 1U << 5,
    CLI_OPTION_ROLE = 1U << 6,
    CLI_OPTION_GUARD = 1U << 7,
    CLI_OPTION_DRY_RUN = 1U << 8,
    CLI_OPTION_META_CONFIG = 1U << 9,
    CLI_OPTION_WATCH = 1U << 10,
    CLI_OPTION_RECOVERY = 1U << 11,
    CLI_OPTION_WAIT = 1U << 12,
    CLI_OPTION_NO_HEADERS = 1U << 13,
};

struct cli_command {
    const char *name;
    unsigned options;         // enum cli_option_id that it takes
    const char *const *verbs; // NULL-terminated; NULL: takes none
    const char *summary;
    const char *details;                     // for its help; may be NULL
    int (*run)(const struct cli_args *args); // returns enum cli_exit
};

// Finds the command in the table (ended by a NULL name), parses its options, runs it. Prints
// help and usage errors itself.
int cli_main(int argc, char **argv, const struct cli_command *commands);

// The agent's socket: --socket, or that of --config, or the default. `buf` is used when a file
// had to be read. Returns NULL after printing why.
const char *cli_socket(const struct cli_args *args, char *buf, size_t size);

// "metafence: …" on stderr.
void cli_complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

int cli_status(const struct cli_args *args);
int cli_fence(const struct cli_args *args);
int cli_history(const struct cli_args *args);
int cli_unfence(const struct cli_args *args);
int cli_pause(const struct cli_args *args);
int cli_resume(const struct cli_args *args);
int cli_completion(const struct cli_args *args);
int cli_config(const struct cli_args *args);
int cli_doctor(const struct cli_args *args);
int cli_reconcile(const struct cli_args *args);
int cli_recover(const struct cli_args *args);
int cli_handover(const struct cli_args *args);
int cli_logs(const struct cli_args *args);
int cli_report(const struct cli_args *args);
int cli_sql(const struct cli_args *args);
int cli_version(const struct cli_args *args);
