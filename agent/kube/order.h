// SPDX-License-Identifier: Apache-2.0
#pragma once
// order: an operator's orders as annotations of the pod. They are the truth, except for an
// order that came by the control socket and is not written there yet. Pure.

#include <stdbool.h>
#include <stdint.h>

#include "agent/control.h"
#include "agent/kube/await.h"
#include "base/err.h"
#include "k8s/client.h"

#define KUBE_FENCE_KEY  "metafence.io/fence"
#define KUBE_PAUSE_KEY  "metafence.io/pause-until"
#define KUBE_ORDER_SIZE CONTROL_REASON_SIZE

// RFC 3339, as in "2025-11-29T22:20:00Z" or with fraction and offset. To nanoseconds since
// 1970. Errors: INVALID, with what is wrong and how to write it.
must_check int kube_time_parse(const char *text, int64_t *ret_wall_ns, struct err *err);
// In UTC, whole seconds, rounded up: a pause is never shorter than asked. Returns buf.
#define KUBE_TIME_SIZE 32
const char *kube_time_format(int64_t wall_ns, char buf[KUBE_TIME_SIZE]);

// One annotation: present with a text, or absent.
struct kube_order_value {
    bool is_present;
    char text[KUBE_ORDER_SIZE]; // cut
};

struct kube_order {
    struct kube_order_value taken; // what facts.orders follow
    bool is_pending;               // `taken` is not written yet
    bool is_sending;
    bool is_denied;
    bool in_doubt;   // a write may have landed, or still land
    bool must_write; // … of another value than `taken`: what is seen proves nothing
    bool needs_look; // what was seen may be from before our write, and nothing newer came
    bool has_baseline;
    struct kube_order_value baseline; // what the annotation was when it was ordered
    struct kube_order_value sent;
    struct kube_await await;
    bool has_news;
    bool has_synced; // once at least
    struct kube_order_value seen;
    char seen_version[KUBE_VERSION_SIZE];
    unsigned failures;
    struct instant not_before;
};

// An order by the control socket: it holds at once, and is to be written.
void kube_order_mirror(struct kube_order *order, const char *text); // NULL: taken back
// What the watch shows; NULL: no such annotation.
void kube_order_seen(struct kube_order *order, const char *text, const char *version);
// What a read of the newest state shows that was asked for at `sent_at`.
void kube_order_read(struct kube_order *order, const char *text, const char *version,
                     struct instant sent_at);
// Judges what was seen. Returns whether `taken` is to be put into force: it has changed, or
// this is the first word of the API.
bool kube_order_sync(struct kube_order *order, struct instant now);

// Whether `taken` is to be written now, which then counts as sent.
bool kube_order_next(struct kube_order *order, struct instant now);
void kube_order_done(struct kube_order *order, enum k8s_outcome outcome, const char *version,
                     struct instant now);
void kube_order_hurry(struct kube_order *order, struct instant now);
struct instant kube_order_wake(const struct kube_order *order);
