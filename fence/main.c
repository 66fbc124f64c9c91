// SPDX-License-Identifier: Apache-2.0
// metafence-run: parent of a RisingWave meta node, and what kubelet runs to ask about it.
#include <stdio.h>
#include <unistd.h>

#include "fence/options.h"
#include "fence/probe.h"
#include "fence/run.h"

#define EXIT_USAGE 2

int main(int argc, char **argv)
{
    struct options options = {0};
    struct err err = {0};

    if (options_parse(argc, argv, geteuid(), &options, &err) < 0) {
        (void)fprintf(stderr, "metafence-run: %s\n", err.msg);
        return EXIT_USAGE;
    }
    switch (options.command) {
    case OPTIONS_RUN: return run(&options);
    case OPTIONS_PROBE_STARTUP: return probe_run(PROBE_STARTUP, options.state_path);
    case OPTIONS_PROBE_LIVENESS: return probe_run(PROBE_LIVENESS, options.state_path);
    case OPTIONS_PROBE_READINESS: return probe_run(PROBE_READINESS, options.state_path);
    case OPTIONS_STATUS: return probe_status(options.state_path);
    case OPTIONS_VERSION: (void)printf("metafence-run %s\n", METAFENCE_VERSION); return 0;
    case OPTIONS_HELP: (void)fputs(options_usage, stdout); return 0;
    }
    return EXIT_USAGE;
}
