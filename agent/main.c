// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/cli.h"
#include "agent/run.h"

static const char *const config_verbs[] = {"validate", "show", "diff", "options", NULL};
static const char *const completion_verbs[] = {"bash", "kubectl", NULL};
static const char *const logs_verbs[] = {"pretty", NULL};
static const char *const sql_verbs[] = {"install", "uninstall", "print", "status", NULL};

#define TO_AGENT (CLI_OPTION_CONFIG | CLI_OPTION_SOCKET | CLI_OPTION_OUTPUT)
#define ORDER    (TO_AGENT | CLI_OPTION_REASON | CLI_OPTION_TIMEOUT | CLI_OPTION_DRY_RUN)

static const struct cli_command commands[] = {
    {"agent", CLI_OPTION_CONFIG | CLI_OPTION_SOCKET, NULL, "run the agent beside a meta",
     "Reads the configuration once. Postgres' password comes from postgres.passwordFile or\n"
     "from the environment variable PGPASSWORD. With a broken configuration it goes on with\n"
     "the last good one, or without a database, and says so: it never keeps meta from\n"
     "running. After a first TERM it goes on until meta is gone, because a leader needs its\n"
     "permits; a second one ends it at once.",
     run_agent},
    {"status", TO_AGENT | CLI_OPTION_WATCH | CLI_OPTION_TIMEOUT, NULL,
     "what the agent knows, and what it makes of it", NULL, cli_status},
    {"history", TO_AGENT | CLI_OPTION_TIMEOUT | CLI_OPTION_NO_HEADERS, NULL,
     "what the agent did since its start, and why",
     "The newest last. What it was based on: -o wide. The agent keeps the last 64.",
     cli_history},
    {"fence", ORDER, NULL, "kill meta, prove it dead, keep it down",
     "Returns when the process is reaped and its sessions are gone from Postgres. Exit status "
     "3\n"
     "says that this was ordered, but not confirmed in time.",
     cli_fence},
    {"unfence", ORDER, NULL, "let meta start again", NULL, cli_unfence},
    {"pause", ORDER | CLI_OPTION_FOR, NULL, "kill nothing for a while",
     "The end of the pause is kept by metafence-run: it comes also without an agent.",
     cli_pause},
    {"resume", ORDER, NULL, "end a pause", NULL, cli_resume},
    {"handover", ORDER | CLI_OPTION_WAIT, NULL, "let another meta lead, in the safe order",
     "Asks the leader's agent: it waits for dropped jobs and jobs being created, kills its\n"
     "meta with its lease kept, resets the compute nodes before anybody else leads\n"
     "(recovery.mode enforce), and lets it start again when another one does, after ttl at\n"
     "the earliest. What is still there after --wait is not waited for: it goes on. Exit\n"
     "status 3 says that it was begun, and its end was not seen.",
     cli_handover},
    {"recover", ORDER | CLI_OPTION_WAIT, NULL, "a global recovery, in the safe order",
     "Asks the leader's agent: it waits for dropped jobs and jobs being created, then has its\n"
     "meta recover. What the recovery removes waits for the resets of the compute nodes\n"
     "(recovery.mode enforce). What is still there after --wait is not waited for: it goes\n"
     "on. Returns at the end of the recovery; exit status 3 says that it was begun, and its\n"
     "end was not seen.",
     cli_recover},
    {"reconcile",
     CLI_OPTION_CONFIG | CLI_OPTION_SOCKET | CLI_OPTION_OUTPUT | CLI_OPTION_DRY_RUN |
         CLI_OPTION_TIMEOUT,
     NULL, "compare the worker rows with the pods now, and remove what is proven gone",
     "Asks the agent beside the leader. Exit status 3 says that something could not be read,\n"
     "that the brake holds, or that an action was not done: nothing was removed for that.",
     cli_reconcile},
    {"doctor", TO_AGENT | CLI_OPTION_TIMEOUT | CLI_OPTION_META_CONFIG, NULL,
     "check each assumption: configuration, agent, Postgres, pod, rights",
     "Run it beside a meta, as the agent's user. It changes nothing. Each line is good, a\n"
     "warning or a failure with its fix; exit status 1 says that something failed.",
     cli_doctor},
    {"report", CLI_OPTION_CONFIG | CLI_OPTION_SOCKET | CLI_OPTION_TIMEOUT, NULL,
     "one text with all that explains what happens here, without secrets",
     "Version, status, history, doctor, configuration, schema, worker rows and metrics. The\n"
     "log is not with it: `kubectl metafence report` puts it behind.",
     cli_report},
    {"logs", 0, logs_verbs, "make the log of the agent or of metafence-run readable",
     "kubectl logs POD -c metafence -f | metafence logs pretty\n"
     "Lines of others, such as meta's, stay as they are.",
     cli_logs},
    {"config", TO_AGENT | CLI_OPTION_TIMEOUT, config_verbs,
     "check a configuration, show it as it takes effect, list all options",
     "diff: what the agent runs on, against the file and environment as they are now, which\n"
     "its next start would read; exit status 1 says that something differs.",
     cli_config},
    {"sql",
     CLI_OPTION_CONFIG | CLI_OPTION_OUTPUT | CLI_OPTION_TIMEOUT | CLI_OPTION_ROLE |
         CLI_OPTION_GUARD | CLI_OPTION_RECOVERY | CLI_OPTION_DRY_RUN,
     sql_verbs, "install, remove, print or check what metafence needs in Postgres",
     "Connects as the configuration says. To install, that must be the metas' own role (with\n"
     "CREATE on the database) or a superuser. After an uninstall a new installation counts\n"
     "the terms from 1 again, which costs the leader a restart.",
     cli_sql},
    {"completion", 0, completion_verbs, "print what a shell needs to complete commands",
     "bash: source <(metafence completion bash)\n"
     "kubectl: the file kubectl_complete-metafence, for `kubectl metafence`",
     cli_completion},
    {"version", CLI_OPTION_OUTPUT, NULL, "versions of the program and its libraries", NULL,
     cli_version},
    {0},
};

int main(int argc, char **argv)
{
    return cli_main(argc, argv, commands);
}
