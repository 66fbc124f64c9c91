// SPDX-License-Identifier: Apache-2.0
#pragma once
// run: the loop of metafence-run. Observes (signals, children, ports, orders), asks
// shim_decide, does what the plan says. One thread, nothing blocks, nothing is allocated once
// meta runs.

#include "fence/options.h"

// Returns the exit status of metafence-run: meta's own, or 1 with a logged error.
int run(const struct options *options);
