// SPDX-License-Identifier: Apache-2.0
#pragma once
// options: the command line of metafence-run. Pure: parses and checks, touches nothing.

#include <sys/types.h>

#include "fence/ports.h"
#include "fence/shim.h"

enum options_command {
    OPTIONS_RUN = 0, // run argv
    OPTIONS_PROBE_STARTUP,
    OPTIONS_PROBE_LIVENESS,
    OPTIONS_PROBE_READINESS,
    OPTIONS_STATUS,
    OPTIONS_VERSION,
    OPTIONS_HELP,
};

struct options {
    enum options_command command;
    const char *socket_path; // all strings are borrowed from argv
    const char *state_path;
    const char *pod_uid;
    const char *host_id; // for messages; may be NULL
    uid_t peer_uid;
    struct ports_wanted ports;
    struct shim_config shim;
    char **argv; // of meta, NULL-terminated
};

// own_uid: the default of --peer-uid. Errors: INVALID; the message names option, value and fix.
must_check int options_parse(int argc, char **argv, uid_t own_uid, struct options *ret,
                             struct err *err);

extern const char options_usage[];
