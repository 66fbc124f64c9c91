// SPDX-License-Identifier: Apache-2.0
#pragma once
// database: the connection of the configuration, for commands.

#include "agent/config.h"
#include "agent/pg/conn.h"

// Borrows from `config` and from the environment (PGPASSWORD). An operator waits: the agent's
// own time-outs, which are tuned to the lease, are not taken.
struct pg_params cli_database(const struct config *config, int64_t timeout_ns);
