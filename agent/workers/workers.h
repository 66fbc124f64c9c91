// SPDX-License-Identifier: Apache-2.0
#pragma once
// workers: keeps the worker rows true to the endpoints that live, and the leader's memory true
// to the rows. It looks and acts only while the meta beside this agent is the verified leader
// (rule Leader, the term is its tag's), on a session of its own, so that no read of the lease
// ever waits behind it. What is proven gone is buried, or removed by the leader itself under an
// intent; what the leader's memory lacks is mended by the lightest cure. Invariants: no SQL of
// ours deletes a worker row; no call goes to another meta than our own; a step whose outcome is
// not known is never taken for done. Every function accepts NULL: reconcile.mode is off.

#include <stdbool.h>

struct agent;
struct buf;
struct workers;

// `agent` is borrowed; its configuration, loop and kube must be there. NULL where it is off or
// there is no database.
struct workers *workers_new(struct agent *agent);
// Before the agent's kube and loop. What is under way is given up.
void workers_free(struct workers *workers);

// After each decision: begins and ends with the leadership.
void workers_turn(struct workers *workers);

// Answers "reconcile" of the control socket: a pass is asked for now. {"ok":true,"passes":N}:
// it is the report whose "passes" is above N; {"ok":false,"error":…} where this agent can't.
void workers_order(struct workers *workers, bool dry_run, struct buf *answer);

// Answers "report": the last pass, {"ok":true,"passes":N,"rows":[…],…}; "ok":false, without an
// error, while one is under way.
void workers_report_json(const struct workers *workers, struct buf *out);

// The member "workers" of the status, with its leading comma.
void workers_status_json(const struct workers *workers, struct buf *out);
