// SPDX-License-Identifier: Apache-2.0
#pragma once
// gate: may the next incarnation of meta be started now, and if not, what is waited for and
// until when. Pure. Invariant: every hold but Manual ends by itself, also if no agent ever
// speaks again.

#include "fence/shim.h"

// NONE: start. Otherwise the first hold that applies (Manual first, back-off last), and in
// *ret_until its latest end without further news. Only asked while nothing of meta lives.
enum shim_hold gate_hold(const struct shim_config *config, const struct shim_memory *memory,
                         struct instant now, struct instant *ret_until);
