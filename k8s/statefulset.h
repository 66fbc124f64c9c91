// SPDX-License-Identifier: Apache-2.0
#pragma once
// statefulset: how many pods a StatefulSet (of apps/v1 or of OpenKruise) or a CloneSet wants,
// and under which numbers. Borrows from the JSON object.

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct cJSON;

enum k8s_set_kind {
    K8S_SET_STATEFULSET = 0,
    K8S_SET_KRUISE_STATEFULSET,
    K8S_SET_CLONESET,
};

struct k8s_set {
    const char *name;
    const char *uid;
    int32_t replicas; // spec.replicas; absent is 1
    int32_t start;    // spec.ordinals.start
    int32_t reserved; // numbers in spec.reserveOrdinals (5, "7-9"), of which no pod is made
};

// The kind of an item is not said in a list: `kind` is that of the list. Errors: INVALID with
// the path.
must_check int k8s_set_parse(const struct cJSON *object, enum k8s_set_kind kind,
                             struct k8s_set *ret, struct err *err);

// "apps/v1", "statefulsets".
const char *k8s_set_group(enum k8s_set_kind kind);
const char *k8s_set_resource(enum k8s_set_kind kind);
