// SPDX-License-Identifier: Apache-2.0
#include "agent/pidstate.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "fence/state.h"

#define AGAIN_NS NS_PER_SEC

void pidstate_init(struct pidstate *state, const char *socket_path)
{
    const char *slash = strrchr(socket_path, '/');

    *state = (struct pidstate){.fd = -1};
    (void)snprintf(state->path, sizeof(state->path), "%.*s/state",
                   (int)(slash ? slash - socket_path : 0), socket_path);
}

void pidstate_close(struct pidstate *state)
{
    if (state->fd >= 0)
        (void)close(state->fd);
    state->fd = -1;
}

static void say(struct pidstate *state, const struct err *err)
{
    bool is_failed = err != NULL;

    if (is_failed && !state->is_failed)
        log_error("what is known of meta would not outlive this agent",
                  kv_str("path", state->path), kv_err(err));
    if (!is_failed && state->is_failed)
        log_info("what is known of meta is kept again", kv_str("path", state->path));
    state->is_failed = is_failed;
}

bool pidstate_open(struct pidstate *state, struct fence_status *ret_left, struct instant now)
{
    struct err err = {0};
    bool has_left = false;

    if (state_open(state->path, &state->fd, ret_left, &has_left, &err) == 0)
        return has_left;
    state->fd = -1;
    state->due = instant_add(now, AGAIN_NS);
    say(state, &err);
    return false;
}

bool pidstate_is_news(const struct fence_status *before, const struct fence_status *after)
{
    struct fence_status then;
    struct fence_status now;

    memcpy(&then, before, sizeof(then));
    memcpy(&now, after, sizeof(now));
    then.written_ns = now.written_ns = 0;
    then.order_seq = now.order_seq = 0;
    then.checksum = now.checksum = 0;
    return memcmp(&then, &now, sizeof(now)) != 0;
}

void pidstate_write(struct pidstate *state, const struct fence_status *status,
                    struct instant now)
{
    struct fence_status left;
    struct err err = {0};

    // What we know is newer than what the file may hold.
    if (state->fd < 0 && instant_reached(now, state->due))
        (void)pidstate_open(state, &left, now);
    if (state->fd < 0 || !pidstate_is_news(&state->written, status))
        return;
    if (state_write(state->fd, status, &err) < 0) {
        say(state, &err);
        return;
    }
    say(state, NULL);
    memcpy(&state->written, status, sizeof(state->written));
}

void pidstate_resume(const struct fence_status *left, struct shim_memory *ret_memory)
{
    memcpy(&ret_memory->status, left, sizeof(*left));
    ret_memory->last_start.ns = left->started_ns;
    ret_memory->service_was_open =
        (left->flags & SHIM_ENGAGED) || (left->ports & SHIM_PORT_SERVICE);
    if (left->permit == FENCE_ROLE_LEADER)
        ret_memory->permit_deadline.ns = left->deadline_ns;
    if (left->state != SHIM_KILLING)
        return;
    // For what it was condemned is not in the file; that it was, is.
    ret_memory->kill_order = FENCE_REASON_LEASE_EXPIRED;
    if (left->flags & SHIM_SUPERSEDED)
        ret_memory->kill_order = FENCE_REASON_SUPERSEDED;
    if (left->flags & SHIM_MANUAL)
        ret_memory->kill_order = FENCE_REASON_MANUAL;
}
