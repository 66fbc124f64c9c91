// SPDX-License-Identifier: Apache-2.0
#pragma once
// kube: what the agent is and does in Kubernetes: the role label, stale labels of siblings,
// orders by annotation, events, and the fact whether the API lists our pod. Invariant: nothing
// of it can delay or end the agent, and the only decisions that it has a say in are those that
// look at facts.api and facts.orders. Every function accepts a NULL kube: no Kubernetes.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/control.h"
#include "agent/core/decide.h"
#include "k8s/client.h"

struct agent;
struct buf;
struct kube;

// Starts from the loop. NULL where Kubernetes is off, or where what it needs is missing, which
// is logged. `agent` is borrowed; its loop, config and facts must be there.
struct kube *kube_new(struct agent *agent);
// What is under way is given up. Not from inside a callback of the API.
void kube_free(struct kube *kube);

// The role that our pod has now. A level: call it in each turn, before the order goes out. A
// new role is on the wire when this returns, if a connection is open; its answer is never
// waited for.
void kube_label(struct kube *kube, enum role_label role);

// What the operator has just asked for by the control socket (facts.orders): it is written to
// the pod's annotations, which are the truth from then on.
void kube_mirror_fence(struct kube *kube, const char *reason); // NULL: unfence
void kube_mirror_pause(struct kube *kube);                     // or resume

// The same while Kubernetes is off: an order that stands is kept for the day on which it is
// switched on, when an annotation that is not there must not lift it.
void kube_keep_order(const struct agent *agent, enum control_command command);

// Whether a delete of our own pod may well be done now: the API answers, knows our pod and has
// not refused one.
bool kube_can_delete_pod(const struct kube *kube);
// Deletes our own pod (grace 1 s, with its UID as precondition). A level: one request at a
// time, again with back-off until the API has agreed.
void kube_delete_pod(struct kube *kube);

// One thing to tell people. `action` and `reason` are literals from the project's list; `note`
// is copied and cut at KUBE_NOTE_SIZE. Never blocks and never fails: what can't be sent is
// dropped and counted.
#define KUBE_NOTE_SIZE 512
struct kube_event {
    bool is_warning;
    const char *action;
    const char *reason;
    const char *note;
};
void kube_say(struct kube *kube, const struct kube_event *event);

// Says by events what the turn has changed. After report_turn's own work.
void kube_say_turn(struct kube *kube);

// For requests of other parts, which end before kube_free. NULL for a NULL kube.
struct k8s *kube_client(const struct kube *kube);
// Our own pod's label risingwave/name; "": none, or not seen yet.
const char *kube_release(const struct kube *kube);
// Our pod was seen by the API: it is there, by its uid.
bool kube_knows_us(const struct kube *kube);

// The member "kubernetes" of the status, with its leading comma.
void kube_status_json(const struct kube *kube, struct buf *out);

// For metrics; all monotonic but token_age_ns. False for a NULL kube.
struct kube_stats {
    struct k8s_stats requests;
    uint64_t label_patches[K8S_GARBAGE + 1]; // by outcome
    uint64_t watch_restarts;
    uint64_t events_sent;
    uint64_t events_repeated; // counted only, as the same was said within a minute
    uint64_t events_dropped;
    int64_t token_age_ns; // -1: none read
    bool is_up;           // the watch of our pod
};
bool kube_get_stats(const struct kube *kube, struct kube_stats *ret);
