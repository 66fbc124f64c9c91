// SPDX-License-Identifier: Apache-2.0
#include "agent/kube/label.h"

#include <stdio.h>
#include <string.h>

#define SUPERSEDE_NS    (500 * NS_PER_MS) // how long an older value may stay under way
#define BACKOFF_MIN_NS  (250 * NS_PER_MS)
#define BACKOFF_MAX_NS  (3 * NS_PER_SEC) // with one time-out: within 10 s of the API's return
#define DENIED_NS       (8 * NS_PER_SEC)
#define DENIED_RETRY_NS (5 * NS_PER_SEC) // of the second key, doubling up to the resync
#define DOUBT_NS        (10 * NS_PER_SEC)
#define REPAIR_NS       (5 * NS_PER_SEC)   // between two repairs of our own key: no fight
#define BUSY_MAX_NS     (7600 * NS_PER_MS) // and a quarter more: within 10 s, as above

const char *kube_role_text(enum role_label role)
{
    switch (role) {
    case LABEL_LEADER: return "leader";
    case LABEL_FOLLOWER: return "follower";
    case LABEL_UNKNOWN: break;
    }
    return "unknown";
}

const char *kube_role_key_name(enum kube_role_key state)
{
    switch (state) {
    case KUBE_ROLE_KEY_NONE: return "none";
    case KUBE_ROLE_KEY_OURS: return "ours";
    case KUBE_ROLE_KEY_YIELDED: return "yielded";
    case KUBE_ROLE_KEY_OBSERVED: return "observed";
    case KUBE_ROLE_KEY_DENIED: return "denied";
    }
    return "none";
}

void kube_label_init(struct kube_label *label, const struct kube_label_config *config)
{
    *label = (struct kube_label){.config = *config, .random = config->seed | 1U};
    if (!config->has_role_key)
        label->role_key = KUBE_ROLE_KEY_NONE;
    else
        label->role_key = config->observe ? KUBE_ROLE_KEY_OBSERVED : KUBE_ROLE_KEY_OURS;
}

// Three quarters of `ns` up to all of it: agents that lost the same server do not come back in
// step.
static int64_t jitter(struct kube_label *label, int64_t ns)
{
    label->random ^= label->random << 13;
    label->random ^= label->random >> 17;
    label->random ^= label->random << 5;
    return ns - (int64_t)(label->random % 256U) * (ns / 1024);
}

static void back_off(struct kube_label *label, struct instant now)
{
    int64_t wait_ns = BACKOFF_MAX_NS;

    if (label->failures < 4)
        wait_ns = BACKOFF_MIN_NS << label->failures;
    label->failures++;
    label->not_before = instant_add(now, jitter(label, wait_ns));
}

void kube_label_wish(struct kube_label *label, enum role_label role, struct instant now)
{
    if (label->has_wish && label->wish == role)
        return;
    label->has_wish = true;
    label->wish = role;
    if (!instant_before(now, label->not_before))
        return;
    // News does not wait for the end of a back-off, but roles that flap while the API is broken
    // are no reason for more requests.
    label->not_before = instant_min(
        label->not_before, instant_max(now, instant_add(label->sent_at, BACKOFF_MIN_NS)));
}

bool kube_label_is_overdue(const struct kube_label *label, struct instant now)
{
    return label->is_sending && label->sending.role != label->wish &&
           instant_reached(now, instant_add(label->sent_at, SUPERSEDE_NS));
}

static bool is_resync_due(const struct kube_label *label, struct instant now)
{
    return label->is_confirmed && instant_reached(now, label->resync_at);
}

static bool is_wanted(const struct kube_label *label)
{
    return !label->is_confirmed || label->confirmed != label->wish;
}

static bool is_lent(const struct kube_label *label)
{
    return label->role_key == KUBE_ROLE_KEY_YIELDED || label->role_key == KUBE_ROLE_KEY_DENIED;
}

// What the watch has shown since our last patch, once it can't be from before that.
static void check_seen(struct kube_label *label, struct instant now)
{
    const char *wished = kube_role_text(label->confirmed);

    if (!label->has_news || label->is_sending || !label->is_confirmed ||
        kube_await_blocks(&label->await, label->seen_version, now))
        return;
    label->has_news = false;
    if (strcmp(label->seen_own, wished) != 0) {
        label->is_confirmed = false;
        if (label->repaired_at.ns != 0)
            label->not_before = instant_add(label->repaired_at, REPAIR_NS);
        label->repaired_at = instant_max(now, label->not_before);
    } else if (label->role_key == KUBE_ROLE_KEY_OURS && strcmp(label->seen_role, wished) != 0) {
        label->role_key = KUBE_ROLE_KEY_YIELDED; // somebody has taken it
    }
}

bool kube_label_next(struct kube_label *label, struct instant now, struct kube_label_send *ret)
{
    bool is_resync = false;

    check_seen(label, now);
    is_resync = is_resync_due(label, now);
    if (!label->has_wish || label->is_sending || label->is_halted)
        return false;
    if (!is_wanted(label) && !is_resync)
        return false;
    if (!instant_reached(now, label->not_before) || !instant_reached(now, label->busy_until))
        return false;
    if (is_resync && is_lent(label) &&
        (!label->is_doubt_resync || label->role_key == KUBE_ROLE_KEY_DENIED))
        label->role_key = KUBE_ROLE_KEY_OURS;
    label->sending.role = label->wish;
    label->sending.with_role_key = label->role_key == KUBE_ROLE_KEY_OURS;
    label->sending.force = !label->sending.with_role_key || label->insists;
    label->insists = false;
    label->is_sending = true;
    label->has_news = false;
    label->sent_at = now;
    *ret = label->sending;
    return true;
}

// Our key alone was applied, which takes the second one off if it was ours. A policy denies it
// for good, a server in trouble for a moment: it can't stay wrong until the next resync.
static int64_t next_resync_ns(struct kube_label *label)
{
    int64_t wait_ns = label->config.resync_ns;

    if (label->is_doubt_resync && wait_ns > DOUBT_NS)
        wait_ns = DOUBT_NS;
    if (label->role_key != KUBE_ROLE_KEY_DENIED) {
        label->role_key_denials = 0;
        return wait_ns;
    }
    if (label->role_key_denials < 16 && wait_ns > DENIED_RETRY_NS << label->role_key_denials)
        wait_ns = DENIED_RETRY_NS << label->role_key_denials++;
    return wait_ns;
}

static void confirm(struct kube_label *label, const char *version, struct instant now)
{
    label->is_confirmed = true;
    label->confirmed = label->sending.role;
    label->is_denied = false;
    label->failures = 0;
    label->not_before = (struct instant){0};
    // A patch that was given up may land after this one: once more, a little later.
    label->is_doubt_resync = label->in_doubt;
    label->in_doubt = false;
    label->resync_at = instant_add(now, next_resync_ns(label));
    kube_await_begin(&label->await, version, label->seen_version, now);
}

// Refused: without the second key, or not at all. Returns whether to try without it at once.
static bool lend_role_key(struct kube_label *label, enum kube_role_key state)
{
    if (!label->sending.with_role_key)
        return false;
    label->role_key = state;
    return true;
}

static void deny(struct kube_label *label, struct instant now)
{
    if (lend_role_key(label, KUBE_ROLE_KEY_DENIED))
        return;
    // Not the second key's fault.
    if (label->role_key == KUBE_ROLE_KEY_DENIED)
        label->role_key = KUBE_ROLE_KEY_OURS;
    label->is_denied = true;
    label->not_before = instant_add(now, jitter(label, DENIED_NS));
}

bool kube_label_done(struct kube_label *label, const struct kube_label_answer *answer,
                     struct instant now)
{
    int64_t busy_ns =
        answer->retry_after_ns < BUSY_MAX_NS ? answer->retry_after_ns : BUSY_MAX_NS;

    label->is_sending = false;
    if (answer->outcome == K8S_OK) {
        confirm(label, answer->version, now);
        return false;
    }
    label->is_confirmed = false;
    switch (answer->outcome) {
    case K8S_OK: break;
    case K8S_BUSY: // a server in trouble may have done it all the same
        if (busy_ns > 0)
            label->busy_until =
                instant_add(now, busy_ns + busy_ns / 4 - jitter(label, busy_ns / 4));
        label->in_doubt = true;
        back_off(label, now);
        break;
    case K8S_UNKNOWN:
    case K8S_GARBAGE:
    case K8S_GONE:
        label->in_doubt = true;
        back_off(label, now);
        if (label->sending.role != label->wish)
            label->not_before = now; // it was an old value that took too long
        break;
    case K8S_NOT_SENT: back_off(label, now); break;
    case K8S_DENIED: deny(label, now); break;
    case K8S_OWNED:
        // Our key alone would take the second one off for nothing.
        if (!label->sending.force && !answer->role_key_is_owned) {
            label->insists = true;
            break;
        }
        if (lend_role_key(label, KUBE_ROLE_KEY_YIELDED))
            break;
        back_off(label, now); // nobody can own our key against our will
        return true;
    case K8S_CONFLICT: // no word about the second key: ours alone would take it off
    case K8S_NOT_FOUND:
    case K8S_REFUSED: back_off(label, now); return true;
    }
    return false;
}

static void take_text(char *to, size_t size, const char *text)
{
    (void)snprintf(to, size, "%s", text ? text : "");
}

void kube_label_seen(struct kube_label *label, const struct kube_label_state *state,
                     struct instant now)
{
    label->has_seen = label->has_news = true;
    take_text(label->seen_version, sizeof(label->seen_version), state->version);
    take_text(label->seen_own, sizeof(label->seen_own), state->own);
    take_text(label->seen_role, sizeof(label->seen_role), state->role);
    check_seen(label, now);
}

void kube_label_found(struct kube_label *label, bool is_ours, struct instant now)
{
    if (is_ours && label->is_halted)
        kube_label_hurry(label, now);
    if (!is_ours)
        label->is_confirmed = false;
    label->is_halted = !is_ours;
}

void kube_label_hurry(struct kube_label *label, struct instant now)
{
    if (label->failures == 0 && !label->is_denied)
        return;
    label->failures = 0;
    label->not_before = instant_min(label->not_before, now);
}

bool kube_label_role_differs(const struct kube_label *label)
{
    return label->has_seen && label->is_confirmed && label->role_key != KUBE_ROLE_KEY_NONE &&
           label->role_key != KUBE_ROLE_KEY_OURS &&
           strcmp(label->seen_role, kube_role_text(label->confirmed)) != 0;
}

struct instant kube_label_wake(const struct kube_label *label)
{
    if (!label->has_wish || label->is_halted)
        return INSTANT_NEVER;
    if (label->is_sending)
        return label->sending.role != label->wish ? instant_add(label->sent_at, SUPERSEDE_NS)
                                                  : INSTANT_NEVER;
    if (is_wanted(label))
        return instant_max(label->not_before, label->busy_until);
    if (label->has_news && label->await.is_waiting)
        return instant_min(label->await.until, label->resync_at);
    return instant_max(label->resync_at, instant_max(label->not_before, label->busy_until));
}
