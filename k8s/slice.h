// SPDX-License-Identifier: Apache-2.0
#pragma once
// slice: what we read of an EndpointSlice. Borrows from the JSON object.

#include "base/err.h"

struct cJSON;

// A condition that is not said is neither true nor false.
enum k8s_tri {
    K8S_TRI_ABSENT = 0,
    K8S_TRI_FALSE,
    K8S_TRI_TRUE,
};

struct k8s_slice {
    const char *name;
    const char *uid;
    const char *service;      // label kubernetes.io/service-name; NULL: none
    const char *address_type; // "IPv4", "IPv6", "FQDN"
    const struct cJSON *next; // for k8s_slice_next
};

#define K8S_ENDPOINT_ADDRESSES 100 // the API's own limit

struct k8s_endpoint {
    const char *addresses[K8S_ENDPOINT_ADDRESSES];
    unsigned address_count;
    const char *hostname;    // NULL: none
    const char *target_uid;  // of a Pod; NULL: none, or no pod
    const char *target_name; // …
    enum k8s_tri ready;
    enum k8s_tri serving;
    enum k8s_tri terminating;
};

// Errors: INVALID with the path (another kind, no name, no uid, no addressType, wrong types).
must_check int k8s_slice_parse(const struct cJSON *object, struct k8s_slice *ret,
                               struct err *err);
// The endpoints one after the other: 1 with *ret, 0 when there are no more. Errors: < 0,
// INVALID.
must_check int k8s_slice_next(struct k8s_slice *slice, struct k8s_endpoint *ret,
                              struct err *err);

// "/apis/discovery.k8s.io/v1/namespaces/<ns>/endpointslices"
#define K8S_SLICES_GROUP "discovery.k8s.io/v1"
