// SPDX-License-Identifier: Apache-2.0
#pragma once
// write: the few changes that we make, each one request. The caller keeps order: it never has
// two in flight for the same pod and key. uid is a precondition in each: a pod of the same name
// that is another pod is never touched (K8S_REFUSED or K8S_CONFLICT).

#include <stdbool.h>
#include <stdint.h>

#include "k8s/client.h"
#include "k8s/pod.h"

#define K8S_FIELD_MANAGER "metafence"

struct k8s_label {
    const char *key;
    const char *value;
};

// Server-side apply of labels, nothing else. Without `force` K8S_OWNED says that another
// manager owns one.
struct k8s_labels_call {
    const char *pod;
    const char *uid;
    const struct k8s_label *labels;
    unsigned count;
    bool force;
};
struct k8s_request *k8s_apply_labels(struct k8s *k8s, const struct k8s_labels_call *call,
                                     k8s_result_fn *fn, void *arg);

// Whether K8S_OWNED is, among others, about this label.
bool k8s_is_owned(const struct k8s_result *result, const char *label);

// Merge patch of one annotation; value NULL removes it.
struct k8s_annotation_call {
    const char *pod;
    const char *uid;
    const char *key;
    const char *value;
};
struct k8s_request *k8s_patch_annotation(struct k8s *k8s,
                                         const struct k8s_annotation_call *call,
                                         k8s_result_fn *fn, void *arg);

// With a UID precondition. A grace of 0 is sent as 1: the API would forget the pod while its
// processes live, and a twin starts.
struct k8s_delete_call {
    const char *pod;
    const char *uid;
    const char *version; // resourceVersion: only the pod as it was then; NULL: as it is
    unsigned grace_s;
};
struct k8s_request *k8s_delete_pod(struct k8s *k8s, const struct k8s_delete_call *call,
                                   k8s_result_fn *fn, void *arg);

struct k8s_request *k8s_get_pod(struct k8s *k8s, const char *pod, k8s_result_fn *fn, void *arg);
// All pods of the namespace with label key=value: the body of the result is a PodList;
// `continue` pages are the caller's.
struct k8s_request *k8s_list_pods(struct k8s *k8s, const char *key, const char *value,
                                  k8s_result_fn *fn, void *arg);

// events.k8s.io/v1. Limits of the API: action, reason <= 128 bytes, note <= 1024 bytes; longer
// ones are cut at a UTF-8 border.
struct k8s_event {
    const char *pod; // regarding
    const char *uid;
    const char *node; // related; NULL: none
    const char *type; // "Normal", "Warning"
    const char *action;
    const char *reason;
    const char *note;
    int64_t wall_us; // since 1970
};
struct k8s_request *k8s_create_event(struct k8s *k8s, const struct k8s_event *event,
                                     k8s_result_fn *fn, void *arg);
