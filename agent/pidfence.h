// SPDX-License-Identifier: Apache-2.0
#pragma once
// pidfence: the fence without metafence-run, in a pod with a shared PID namespace and one user
// for both containers. It takes metafence-run's place toward the agent: the same orders come
// in, the same statuses go out, the same decisions (fence/shim.h) are made on them. What
// differs is the doing: meta is started by the kubelet and found in /proc, its whole container
// is killed by pidfd, and nothing can hold a start: what appears under a hold that an order
// asked for (Manual, Twin, Phantom) is killed again, at the pace of the kubelet's back-off. The
// other holds of metafence-run are a courtesy to peers and to the database, and not worth a
// kill. Latches outlive the agent in the same state file, beside the fence's socket. While no
// agent runs there is no fence: the kubelet's liveness probe of meta, which asks the agent,
// ends it.

#include <stdbool.h>

#include "agent/config.h"
#include "agent/fencelink.h"

// Of an end that nobody waited for: fence_death.wait_status.
#define PIDFENCE_WAIT_UNKNOWN (-1)

struct pidfence;

// Starts looking from the loop: no callback comes from inside this call. Of `ops` on_status is
// called, as by a fencelink, and on_change, which may be NULL, when pidfence_unusable() says
// something else. All is borrowed. `proc` is "/proc". Never fails: without its state file it
// works on, says so, and tries again.
struct pidfence_config {
    const struct config *config;
    const char *proc;
    const struct fencelink_ops *ops;
    void (*on_change)(void *arg);
    void *arg;
};
struct pidfence *pidfence_new(struct loop *loop, const struct pidfence_config *config);
// Accepts NULL. Not from inside a callback.
void pidfence_free(struct pidfence *fence);

// Takes the order and acts on it before it returns. Its status follows from the loop. Always
// true: there is no connection that could be lost.
bool pidfence_send(struct pidfence *fence, const struct fence_order *order);

// Why meta could not be killed now, and the fix: "not usable: …"; "": it could.
const char *pidfence_unusable(const struct pidfence *fence);

// Meta may run, but which process it is can't be told: no status comes, the last one is void.
bool pidfence_is_blind(const struct pidfence *fence);
