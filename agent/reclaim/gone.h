// SPDX-License-Identifier: Apache-2.0
#pragma once
// gone: what pods say of a compute node's process. Pure. A process counts as replaced only
// within one pod: its kubelet starts a container after the one before it has ended. A pod that
// is another one by UID proves nothing of its predecessor, which may run on where nobody sees
// it.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/reconcile/address.h"
#include "agent/recovery/order.h"

#define GONE_IPS 4

// One pod, as a list showed it. Strings are borrowed.
struct gone_pod {
    const char *pod; // its name
    const char *uid;
    const char *container_id; // of what serves the node's port; NULL: not told
    bool has_ended;           // … by its kubelet's word
    bool is_terminal;         // so has the pod
    bool host_network;        // its address is its node's: others may have it, too
    const char *ips[GONE_IPS];
    unsigned ip_count;
    struct address_pod name;
};

// What one whole list has shown of a node.
struct gone_look {
    uint32_t pods;    // that have its address
    uint64_t pod;     // of the pod that counts; 0: not told
    uint64_t process; // of it
    bool is_ended;
    bool can_fence;     // by deleting it
    char pod_name[254]; // of it
};

bool gone_is_pod_of(const struct address *host, const struct gone_pod *pod);
// Stands for pod UID and container ID; 0: not told.
uint64_t gone_process_of(const struct gone_pod *pod);
// Stands for the UID; never 0.
uint64_t gone_uid_of(const char *uid);
// Whether its end is that of the one process behind its address.
bool gone_can_fence(const struct gone_pod *pod);
// Takes a pod that has the node's address in. `base`: the pod of the first look in this hold,
// 0: this is the first one; others than that are not looked at then.
void gone_add(struct gone_look *look, const struct gone_pod *pod, uint64_t base);
// After a whole list: fills `node`, and *base with the first look's pod.
void gone_take(const struct gone_look *look, struct instant seen_at, uint64_t *base,
               struct order_node *node);
