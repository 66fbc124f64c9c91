// SPDX-License-Identifier: Apache-2.0
#pragma once
// http: probes and metrics of the agent, answered from what it knows at the moment. Nothing
// here can hold the agent up or end it: without its port it runs all the same, and tries again.

struct agent;
struct http;
struct http_view;

// Listens where the configuration says, or as soon as that is possible; a failure is logged
// once. NULL when the configuration wants none. `agent` is borrowed; its loop must be there.
struct http *http_new(struct agent *agent);
// Accepts NULL. Not from inside a request.
void http_free(struct http *http);

// The agent as it is now, for answers. Reads clocks.
void http_view_take(const struct agent *agent, struct http_view *ret);
