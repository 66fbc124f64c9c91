// SPDX-License-Identifier: Apache-2.0
#pragma once
// remains: processes of an incarnation whose metafence-run is gone. Its PDEATHSIG has killed
// meta itself; children of meta may live on, and their session tag in the environment tells
// them apart.

#include "fence/proto.h"

// Kills them and waits until none is left, at most 10 s. Each is checked by pid and start time
// through a pidfd, so that a reused pid is never hit. Blocks: before the loop only. Errors:
// TRANSIENT, with a pid.
must_check int remains_kill(const struct fence_status *left, struct err *err);
