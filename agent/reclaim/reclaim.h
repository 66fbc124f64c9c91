// SPDX-License-Identifier: Apache-2.0
#pragma once
// reclaim: the shell around agent/recovery. It reads what the metafence schema says of a
// recovery, keeps our row at the gate before the purge, asks compute nodes to reset and for
// their statistics, and writes down what they have proven; whether and when is the order's
// word. On a session of its own, so that no read of the lease ever waits behind it. Invariants:
// the bytes of an Init leave only after order_may_reset() has agreed to facts of that very
// moment; in observe nothing is sent, written or held. Every function accepts NULL:
// recovery.mode is off, or no database is configured.

#include <stdbool.h>

#include "base/clock.h"

struct agent;
struct buf;
struct reclaim;

// `agent` is borrowed; its configuration, loop and resolver must be there.
struct reclaim *reclaim_new(struct agent *agent);
// Before the agent's loop and resolver. What is under way is given up.
void reclaim_free(struct reclaim *reclaim);

// Before each decision: facts.recovery.
void reclaim_before_turn(struct reclaim *reclaim);
// After each decision. Returns when it is to be called again at the latest.
struct instant reclaim_turn(struct reclaim *reclaim);

// By the last turn: the meta beside us is the verified leader, of the term's owner.
bool reclaim_is_leading(const struct reclaim *reclaim);

// The member "recovery" of the status, with its leading comma.
void reclaim_status_json(const struct reclaim *reclaim, struct buf *out);
