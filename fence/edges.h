// SPDX-License-Identifier: Apache-2.0
#pragma once
// edges: one log line for each thing that changed between two statuses, so that a log tells the
// story of every incarnation and stays silent in between.

#include "fence/proto.h"

void edges_log(const struct fence_status *before, const struct fence_status *after);
