// SPDX-License-Identifier: Apache-2.0
#pragma once
// command: what comes by the control socket: questions are answered, orders become facts, and
// the next decision carries them out.

#include "agent/control.h"

struct buf;

// A control_fn; `arg` is the agent.
void command_take(const struct control_request *request, struct buf *answer, void *arg);
