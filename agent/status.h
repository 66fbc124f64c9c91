// SPDX-License-Identifier: Apache-2.0
#pragma once
// status: what the agent knows, as one JSON object for the control socket.

struct agent;
struct buf;

// Appends the object, without newline.
void status_json(const struct agent *agent, struct buf *out);
