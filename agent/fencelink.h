// SPDX-License-Identifier: Apache-2.0
#pragma once
// fencelink: the agent's end of the socket to metafence-run. It connects, connects again when
// the connection is lost, seals and sends orders, checks statuses. Orders are level-triggered:
// only the newest one waits for a full socket. A metafence-run that takes the connection and is
// silent (stopped, frozen) has its last word in its state file, beside the socket. Invariant:
// what `on_status` hands out is whole and in range.

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/loop.h"
#include "fence/proto.h"

struct fencelink;

struct fencelink_ops {
    // Borrowed for the call. Without on_up before it: from the state file, after a second of
    // silence.
    void (*on_status)(const struct fence_status *status, void *arg);
    // The connection was lost, or the first try failed. Called once until it has been up again.
    void (*on_down)(const struct err *err, void *arg);
    // The first whole status of a connection has come; on_status follows. A peer that accepts
    // and hangs up (another user is configured there) was never up: it is not told ten times a
    // second.
    void (*on_up)(void *arg);
    // A packet was refused; the connection stays.
    void (*on_garbage)(const struct err *err, void *arg);
};

// Starts connecting from the loop: no callback comes from inside this call. `path` and `ops`
// are borrowed. Never fails: out of memory aborts.
struct fencelink *fencelink_new(struct loop *loop, const char *path,
                                const struct fencelink_ops *ops, void *arg);
// Accepts NULL. Not from inside a callback.
void fencelink_free(struct fencelink *link);

// Connected, whether a status has come or not.
bool fencelink_is_up(const struct fencelink *link);

// Seals the order with the connection's next sequence number and sends it, or as soon as the
// socket takes it, unless a newer one comes first. Returns false when there is no connection:
// then it was not sent.
bool fencelink_send(struct fencelink *link, const struct fence_order *order);
