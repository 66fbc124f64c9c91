// SPDX-License-Identifier: Apache-2.0
#pragma once
// methods: the ways in which the agent ends meta, behind one interface. The first is
// metafence-run, or pidfence where there is none (fence.method). Beside metafence-run, in a
// shared PID namespace, the second is our own pidfd: for a metafence-run that is stopped,
// starved or gone without its children.

#include <stdbool.h>

#include "agent/config.h"
#include "agent/core/decide.h"
#include "agent/fencelink.h"
#include "agent/pidfd.h"
#include "base/loop.h"

struct pidfence;

struct methods_config {
    const struct config *config;
    const struct fencelink_ops *ops; // of the first method
    void (*on_change)(void *arg);    // a new decision is due
    void *arg;
};

struct methods {
    struct methods_config config;
    struct fencelink *link;    // NULL: pidfd mode
    struct pidfence *pidfence; // NULL: shim mode
    bool (*send)(struct methods *methods, const struct fence_order *order);

    // The second method.
    struct pidfd_view view;
    struct pidfd_group group;
    uint64_t incarnation; // that was looked at; 0: none yet, or again
    char why[224];        // it can't be used; "": it can
    bool is_killing;
    int64_t sweep_ns;
    struct loop_timer *sweep;
    struct fence_death proven;
};

// All of *config is borrowed. `methods` must stay where it is.
void methods_open(struct methods *methods, struct loop *loop,
                  const struct methods_config *config);
// Accepts zero.
void methods_close(struct methods *methods);

// To the first method. False: it was not sent.
static inline bool methods_send(struct methods *methods, const struct fence_order *order)
{
    return methods->send(methods, order);
}

// Before each decision: what can be used now, and what the second method has proven.
void methods_look(struct methods *methods, struct facts *facts);

// The numbers of incarnations begin anew: those that were looked at are other processes'.
void methods_forget(struct methods *methods);

// ACTION_KILL_PIDFD: begins to kill by the second method, until it is proven. A level.
void methods_kill(struct methods *methods, const struct facts *facts, const struct plan *plan);

// "not usable: …" of the first method; "": it is.
const char *methods_unusable(const struct methods *methods);
