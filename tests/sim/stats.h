// SPDX-License-Identifier: Apache-2.0
#pragma once
// stats: what came up in the schedules, and whether all did that has to.

#include "tests/sim/cluster.h"

void stats_add(struct stats *to, const struct stats *from);
void stats_print(const struct stats *stats);

// Every rule, hold and reason must have come up, else the schedules prove less than they seem
// to. Says which did not; returns how many.
int stats_missing(const struct stats *stats);
