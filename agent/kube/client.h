// SPDX-License-Identifier: Apache-2.0
#pragma once
// client: the client of the Kubernetes API as configuration and environment say it; for the
// agent and for `metafence doctor`.

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct config_kubernetes;
struct k8s;
struct loop;

#define KUBE_CLIENT_NAMESPACE_SIZE 64

// kubernetes.enabled, or in a pod with a service account.
bool kube_client_is_wanted(const struct config_kubernetes *config);

// Where the client leads, for people.
struct kube_client_place {
    char server[320];
    char name_space[KUBE_CLIENT_NAMESPACE_SIZE];
};

// Errors: INVALID, naming what is missing. The namespace is read from a file once.
must_check int kube_client_new(struct loop *loop, const struct config_kubernetes *config,
                               struct kube_client_place *ret_place, struct k8s **ret_k8s,
                               struct err *err);
