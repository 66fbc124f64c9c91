// SPDX-License-Identifier: Apache-2.0
#pragma once
// parts: what the files of this folder share; nobody else includes it. One step looks at every
// part, begins the requests that are due, and arms the timer for what is due next; all
// callbacks end in a step.

#include "agent/kube/kube.h"
#include "agent/kube/label.h"
#include "agent/kube/order.h"
#include "agent/kube/queue.h"
#include "base/loop.h"
#include "k8s/client.h"
#include "k8s/pod.h"
#include "k8s/watch.h"
#include "k8s/write.h"

#define KUBE_NAME_SIZE     254
#define KUBE_UID_SIZE      64
#define KUBE_SIBLINGS_MAX  8
#define KUBE_ROLE_KEY_SIZE 318

struct kube_sibling {
    char name[KUBE_NAME_SIZE];
    char uid[KUBE_UID_SIZE];
    bool own_key_alone; // the second key is another manager's, or denied
    bool insists;       // somebody else has written our key alone
    bool shows_leader;  // by the second key, too
};

struct kube_siblings {
    struct k8s_request *request; // a list or a patch
    bool is_leading;
    bool has_failed; // a patch of the last list
    struct instant leading_since;
    struct instant list_at;
    unsigned failures;
    struct kube_sibling stale[KUBE_SIBLINGS_MAX];
    unsigned count;
    uint64_t cleared;
};

// An error that is logged when it begins, changes its kind or ends.
struct kube_edge {
    bool is_bad;
    enum k8s_outcome outcome;
};

// What was said last by events.
struct kube_said {
    bool has_begun;
    bool has_role;
    enum role_label role;
    uint64_t fence_incarnation;
    bool has_said_dead, has_said_gone; // of it
    enum not_fenced not_fenced;
    enum fence_method method;
    bool is_paused;
    uint32_t uncovered; // bits of plan.not_covered
    uint32_t uncovered_now;
    struct instant uncovered_at; // since when they are so
    uint32_t hold;               // of a start, as it is now
    struct instant hold_at;      // since when; INSTANT_NEVER: it was said
};

struct kube {
    struct agent *agent;
    struct k8s *k8s;
    struct k8s_watch *watch;
    struct loop_timer *timer;
    struct instant started_at;
    struct instant leading_since; // ns 0: not leading
    char pod[KUBE_NAME_SIZE];
    char uid[KUBE_UID_SIZE];
    char role_key[KUBE_ROLE_KEY_SIZE];
    // Of our pod, as last seen.
    char owner_uid[KUBE_UID_SIZE]; // "": no controller
    char node[KUBE_NAME_SIZE];
    char release[64]; // its risingwave/name; "": none
    bool is_ours;     // the pod of our name has our uid
    bool is_known;    // … has been looked at yet
    // The watch.
    bool is_up;
    struct instant up_since; // or down since
    char error[256];         // the last one; "": none
    struct instant told_at;  // when it last showed a state of our pod
    // A fresh look at our pod.
    struct k8s_request *look;
    bool wants_look;
    struct instant look_at; // not before

    struct kube_label label;
    struct k8s_request *label_request;
    struct kube_edge label_edge;
    enum kube_role_key role_key_said;
    bool role_differs_said;
    uint64_t label_patches[K8S_GARBAGE + 1];

    struct kube_siblings siblings;
    struct kube_edge siblings_edge;

    struct kube_order fence, pause;
    char refused_order[KUBE_NOTE_SIZE]; // an annotation that is no order, and why; "": none
    struct k8s_request *fence_request, *pause_request;
    struct kube_edge order_edge;

    bool says_events;
    struct kube_queue queue;
    struct kube_edge event_edge;
    struct kube_said said;

    struct k8s_request *delete_request;
    struct instant delete_at;
    bool delete_is_denied, delete_is_agreed;
    struct kube_edge delete_edge;
};

void kube_step(struct kube *kube);
int64_t kube_wall_ns(void); // since 1970

// Logs the edge of an error: what could not be done, with the answer.
void kube_log_edge(struct kube_edge *edge, const char *what, const struct k8s_result *result);

// A fresh state of the pod of our name; NULL: there is none.
void kube_take_pod(struct kube *kube, const struct k8s_pod *pod);

// Each begins what is due at `now` and returns when to come again at the latest.
struct instant kube_label_step(struct kube *kube, struct instant now);
struct instant kube_look_step(struct kube *kube, struct instant now);
struct instant kube_siblings_step(struct kube *kube, struct instant now);
struct instant kube_orders_step(struct kube *kube, struct instant now);
struct instant kube_events_step(struct kube *kube, struct instant now);

void kube_metrics_begin(struct kube *kube);
void kube_orders_begin(struct kube *kube); // what an earlier agent could not write
void kube_orders_seen(struct kube *kube, const struct k8s_pod *pod);
void kube_orders_read(struct kube *kube, const struct k8s_pod *pod, struct instant sent_at);
void kube_siblings_lead(struct kube *kube, bool is_leading, struct instant now);
