// SPDX-License-Identifier: Apache-2.0
#include "agent/kube/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define REPEAT_NS      (60 * NS_PER_SEC)
#define TRIES_MAX      4 // that may have arrived; what surely did not is tried for longer
#define BACKOFF_MIN_NS NS_PER_SEC
#define BACKOFF_MAX_NS (8 * NS_PER_SEC)
#define BUSY_MAX_NS    (120 * NS_PER_SEC)

static struct kube_recent *find_recent(struct kube_queue *queue, const struct kube_event *event,
                                       uint64_t hash)
{
    for (size_t i = 0; i < KUBE_RECENT_SIZE; i++) {
        struct kube_recent *recent = &queue->recent[i];

        if (recent->action && recent->note_hash == hash &&
            strcmp(recent->action, event->action) == 0 &&
            strcmp(recent->reason, event->reason) == 0)
            return recent;
    }
    return NULL;
}

static struct kube_recent *oldest_recent(struct kube_queue *queue)
{
    struct kube_recent *oldest = &queue->recent[0];

    for (size_t i = 1; i < KUBE_RECENT_SIZE; i++)
        if (!queue->recent[i].action ||
            (oldest->action && instant_before(queue->recent[i].at, oldest->at)))
            oldest = &queue->recent[i];
    return oldest;
}

static bool spend(struct kube_queue *queue, struct instant now)
{
    int64_t back_ns = instant_since(now, queue->spent_at);

    queue->spent_ns = back_ns < queue->spent_ns ? queue->spent_ns - back_ns : 0;
    queue->spent_at = now;
    if (queue->spent_ns > (KUBE_EVENT_BURST - 1) * KUBE_EVENT_EACH_NS)
        return false;
    queue->spent_ns += KUBE_EVENT_EACH_NS;
    return true;
}

static struct kube_queued *append(struct kube_queue *queue)
{
    if (queue->count == KUBE_QUEUE_SIZE) {
        queue->first = (queue->first + 1) % KUBE_QUEUE_SIZE;
        queue->count--;
        queue->dropped++;
    }
    return &queue->waiting[(queue->first + queue->count++) % KUBE_QUEUE_SIZE];
}

// The note with how often it was not said; a long one loses its end, not the number.
static void fill_note(char note[KUBE_NOTE_SIZE], const char *text, uint64_t repeats)
{
    char more[48] = "";

    if (repeats > 0)
        (void)snprintf(more, sizeof(more), " (and %" PRIu64 " times before)", repeats);
    (void)snprintf(note, KUBE_NOTE_SIZE, "[fence] %.*s%s",
                   (int)(KUBE_NOTE_SIZE - sizeof(more) - sizeof("[fence] ")), text, more);
}

void kube_queue_put(struct kube_queue *queue, const struct kube_event *event,
                    struct instant now, int64_t wall_us)
{
    uint64_t hash = hash_text(HASH_BEGIN, event->note);
    struct kube_recent *recent = find_recent(queue, event, hash);
    struct kube_queued *queued = NULL;

    if (recent && instant_since(now, recent->at) < REPEAT_NS) {
        recent->repeats++;
        queue->repeated++;
        return;
    }
    if (!spend(queue, now)) {
        queue->dropped++;
        return;
    }
    queued = append(queue);
    *queued = (struct kube_queued){.is_warning = event->is_warning,
                                   .action = event->action,
                                   .reason = event->reason,
                                   .wall_us = wall_us};
    fill_note(queued->note, event->note, recent ? recent->repeats : 0);
    if (!recent)
        recent = oldest_recent(queue);
    *recent = (struct kube_recent){event->action, event->reason, hash, now, 0};
}

const struct kube_queued *kube_queue_next(struct kube_queue *queue, struct instant now)
{
    if (queue->is_sending || !instant_reached(now, queue->not_before))
        return NULL;
    if (!queue->has_current) {
        if (queue->count == 0)
            return NULL;
        queue->current = queue->waiting[queue->first];
        queue->first = (queue->first + 1) % KUBE_QUEUE_SIZE;
        queue->count--;
        queue->has_current = true;
    }
    queue->is_sending = true;
    return &queue->current;
}

static void again_later(struct kube_queue *queue, int64_t retry_after_ns, struct instant now)
{
    int64_t wait_ns = queue->failures < 3 ? BACKOFF_MIN_NS << queue->failures : BACKOFF_MAX_NS;

    if (retry_after_ns > wait_ns)
        wait_ns = retry_after_ns < BUSY_MAX_NS ? retry_after_ns : BUSY_MAX_NS;
    queue->failures++;
    queue->not_before = instant_add(now, wait_ns);
}

static void drop_current(struct kube_queue *queue)
{
    queue->has_current = false;
    queue->dropped++;
}

void kube_queue_done(struct kube_queue *queue, enum k8s_outcome outcome, int64_t retry_after_ns,
                     struct instant now)
{
    queue->is_sending = false;
    switch (outcome) {
    case K8S_OK:
    case K8S_CONFLICT: // a try that was not answered had arrived
        queue->has_current = false;
        queue->sent++;
        queue->failures = 0;
        return;
    case K8S_NOT_SENT:
        again_later(queue, retry_after_ns, now);
        // The newest are kept: what could not even be sent makes way for what happened later.
        if (queue->count == KUBE_QUEUE_SIZE)
            drop_current(queue);
        return;
    case K8S_UNKNOWN:
    case K8S_BUSY:
    case K8S_GARBAGE:
    case K8S_GONE:
        again_later(queue, retry_after_ns, now);
        if (++queue->current.tries >= TRIES_MAX)
            drop_current(queue);
        return;
    case K8S_NOT_FOUND:
    case K8S_OWNED:
    case K8S_DENIED:
    case K8S_REFUSED: // will not get better
        again_later(queue, retry_after_ns, now);
        drop_current(queue);
        return;
    }
}

void kube_queue_hurry(struct kube_queue *queue, struct instant now)
{
    queue->failures = 0;
    queue->not_before = instant_min(queue->not_before, now);
}

struct instant kube_queue_wake(const struct kube_queue *queue)
{
    if (queue->is_sending || (!queue->has_current && queue->count == 0))
        return INSTANT_NEVER;
    return queue->not_before;
}
