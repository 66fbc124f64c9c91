// SPDX-License-Identifier: Apache-2.0
#pragma once
// pod: what we read of a Pod object. A struct k8s_pod borrows from the JSON object that it was
// parsed from and lives no longer than that.

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct cJSON;

struct k8s_pod {
    const char *name;
    const char *name_space; // NULL: not said
    const char *uid;
    const char *resource_version; // opaque: never compared but for equality
    const char *node;             // NULL: not scheduled
    const char *owner_uid;        // of the controller (StatefulSet, …); NULL: none
    bool is_deleting;             // has a deletionTimestamp
    const struct cJSON *object;   // for k8s_pod_label and k8s_pod_annotation
};

// Errors: INVALID with the path (another kind of object, no name, no uid, wrong types).
must_check int k8s_pod_parse(const struct cJSON *object, struct k8s_pod *ret, struct err *err);

// Whether it is the pod that was asked for: a proxy may mix up answers, a server may not know
// selectors. What says no namespace is believed.
bool k8s_pod_is(const struct k8s_pod *pod, const char *name_space, const char *name);

// NULL: not there. Borrowed.
const char *k8s_pod_label(const struct k8s_pod *pod, const char *key);
const char *k8s_pod_annotation(const struct k8s_pod *pod, const char *key);

// The controller among an object's owners; NULL: none. Borrowed. Errors: INVALID with the path.
must_check int k8s_pod_controller(const struct cJSON *object, const struct cJSON **ret,
                                  struct err *err);

// What a reconciler wants to know of a pod beyond its name: who made it, by which addresses it
// is reached, and whether its processes may live. Borrowed as the pod is.
#define K8S_POD_IPS   4
#define K8S_POD_PORTS 8
struct k8s_pod_life {
    const char *owner_kind; // of the controller; NULL: none
    const char *owner_api;  // its apiVersion, "apps/v1"
    const char *owner_name;
    const char *hostname;  // spec; NULL: its name
    const char *subdomain; // NULL: none
    const char *ips[K8S_POD_IPS];
    unsigned ip_count;
    uint16_t ports[K8S_POD_PORTS]; // that containers declare
    unsigned port_count;           // 0: none, or more than fit
    bool host_network;
    bool is_terminal; // phase Failed or Succeeded, by whoever's word
    bool has_started; // a container runs, or has run
    // A container's status says that it runs, or that it waits to be started again; or the
    // garbage collector of pods, which knows nothing of processes, has called the pod failed.
    // Terminal without it is the kubelet's word that all processes are gone.
    bool is_running;
    // Its node has not been heard of: phase or Ready Unknown, Ready False while all containers
    // are said to be ready, reason NodeLost, evicted for a taint of its node.
    bool is_unreachable;
};
// Errors: INVALID with the path. Fields that a newer API adds are not looked at.
must_check int k8s_pod_life_parse(const struct k8s_pod *pod, struct k8s_pod_life *ret,
                                  struct err *err);

// The process behind a port of a pod: that of the container which declares it, or of the only
// one. Borrowed as the pod is.
struct k8s_pod_process {
    const char *container_id; // another one for each start; NULL: not told
    bool has_ended;           // its kubelet says that this very container has ended
};
// Errors: INVALID with the path.
must_check int k8s_pod_process_parse(const struct k8s_pod *pod, uint16_t port,
                                     struct k8s_pod_process *ret, struct err *err);
