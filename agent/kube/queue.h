// SPDX-License-Identifier: Apache-2.0
#pragma once
// queue: events that wait to be sent. Pure, bounded in memory and in rate: what was said
// within the last minute is counted instead of said again, a burst is cut by a budget, and when
// the queue is full the oldest that waits is dropped. One is under way at a time.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/kube/kube.h"

#define KUBE_QUEUE_SIZE    16
#define KUBE_RECENT_SIZE   16
#define KUBE_EVENT_BURST   24 // and then one each KUBE_EVENT_EACH_NS
#define KUBE_EVENT_EACH_NS (5 * NS_PER_SEC)

struct kube_queued {
    bool is_warning;
    const char *action; // literals
    const char *reason;
    char note[KUBE_NOTE_SIZE];
    int64_t wall_us; // when it happened, for people
    unsigned tries;
};

struct kube_recent {
    const char *action; // NULL: free
    const char *reason;
    uint64_t note_hash;
    struct instant at;
    uint64_t repeats; // since then
};

struct kube_queue {
    struct kube_queued waiting[KUBE_QUEUE_SIZE]; // a ring
    unsigned first, count;
    bool is_sending;
    struct kube_queued current; // while is_sending, or between two tries of it
    bool has_current;
    struct kube_recent recent[KUBE_RECENT_SIZE];
    int64_t spent_ns; // of the budget, as time; runs back to 0
    struct instant spent_at;
    unsigned failures;
    struct instant not_before;
    uint64_t sent, repeated, dropped;
};

// Takes an event that happened at `now`, `wall_us` by the wall clock.
void kube_queue_put(struct kube_queue *queue, const struct kube_event *event,
                    struct instant now, int64_t wall_us);
// The event to send now, which then counts as under way; NULL: none. Borrowed until
// kube_queue_done.
const struct kube_queued *kube_queue_next(struct kube_queue *queue, struct instant now);
void kube_queue_done(struct kube_queue *queue, enum k8s_outcome outcome, int64_t retry_after_ns,
                     struct instant now);
void kube_queue_hurry(struct kube_queue *queue, struct instant now);
struct instant kube_queue_wake(const struct kube_queue *queue);
