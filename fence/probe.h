// SPDX-License-Identifier: Apache-2.0
#pragma once
// probe: what kubelet asks, answered from the state file alone: no agent, no network, no lock,
// so that it takes a millisecond whatever hangs. A stopped metafence-run cannot hide: its file
// keeps the deadline.

#include "fence/options.h"

enum probe_kind { PROBE_STARTUP, PROBE_LIVENESS, PROBE_READINESS };

// Pure: true is a pass; *ret_why says why either way (a literal).
bool probe_judge(enum probe_kind kind, const struct fence_status *status, const char *boot_id,
                 struct instant now, const char **ret_why);

// Reads the file, prints one line, returns the exit status: 0 or 1.
int probe_run(enum probe_kind kind, const char *state_path);

// Prints the file as one JSON object. Returns 0, or 1 with a message on stderr.
int probe_status(const char *state_path);
