// SPDX-License-Identifier: Apache-2.0
#pragma once
// pool: sets of connections, and their retirement. Inside of the client.

#include "k8s/internal.h"

must_check int k8s_pool_new(struct k8s *k8s, struct k8s_pool **ret_pool, struct err *err);
// Closes its connections; nothing may run in it. Accepts NULL.
void k8s_pool_free(struct k8s_pool *pool);
// A request is out of its pool.
void k8s_pool_left(struct k8s_request *request);
// What runs in it may end; new requests get new connections. Does nothing for one that is not
// in use for requests now.
void k8s_pool_retire(struct k8s_pool *pool);
// Frees retired pools in which nothing runs. `arg` is the struct k8s.
void k8s_pools_sweep(void *arg);
