// SPDX-License-Identifier: Apache-2.0
#pragma once
// run: the command `metafence agent`.

struct cli_args;

// Runs until a signal ends it. Returns the exit status.
int run_agent(const struct cli_args *args);
