// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/cli.h"
#include "agent/run.h"

static const char *const config_verbs[] = {"validate", "show", "options", NULL};
static const char *const sql_verbs[] = {"install", "uninstall", "print", "status", NULL};

#define TO_AGENT (CLI_OPTION_CONFIG | CLI_OPTION_SOCKET | CLI_OPTION_OUTPUT)
#define ORDER    (TO_AGENT | CLI_OPTION_REASON | CLI_OPTION_TIMEOUT)

static const struct cli_command commands[] = {
    {"agent", CLI_OPTION_CONFIG | CLI_OPTION_SOCKET, NULL, "run the agent beside a meta",
     "Reads the configuration once. Postgres' password comes from postgres.passwordFile or\n"
     "from the environment variable PGPASSWORD. With a broken configuration it goes on with\n"
     "the last good one, or without a database, and says so: it never keeps meta from\n"
     "running. After a first TERM it goes on until meta is gone, because a leader needs its\n"
     "permits; a second one ends it at once.",
     run_agent},
    {"status", TO_AGENT, NULL, "what the agent knows, and what it makes of it", NULL,
     cli_status},
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
    {"config", CLI_OPTION_CONFIG | CLI_OPTION_OUTPUT, config_verbs,
     "check a configuration, show it as it takes effect, list all options", NULL, cli_config},
    {"sql", CLI_OPTION_CONFIG | CLI_OPTION_OUTPUT | CLI_OPTION_TIMEOUT | CLI_OPTION_ROLE,
     sql_verbs, "install, remove, print or check what metafence needs in Postgres",
     "Connects as the configuration says. To install, that must be the metas' own role (with\n"
     "CREATE on the database) or a superuser. After an uninstall a new installation counts\n"
     "the terms from 1 again, which costs the leader a restart.",
     cli_sql},
    {"version", CLI_OPTION_OUTPUT, NULL, "versions of the program and its libraries", NULL,
     cli_version},
    {0},
};

int main(int argc, char **argv)
{
    return cli_main(argc, argv, commands);
}
