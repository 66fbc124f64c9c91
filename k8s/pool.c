// SPDX-License-Identifier: Apache-2.0
#include "k8s/pool.h"

#include <stdlib.h>

#define IDLE_CONNECTIONS 2L // kept open

int k8s_pool_new(struct k8s *k8s, struct k8s_pool **ret_pool, struct err *err)
{
    struct k8s_pool *pool = calloc(1, sizeof(*pool));

    if (!pool)
        abort();
    pool->k8s = k8s;
    if (curlmulti_new(k8s->loop, k8s_client_on_done, pool, &pool->curl, err) < 0) {
        free(pool);
        return -1;
    }
    (void)curl_multi_setopt(curlmulti_handle(pool->curl), CURLMOPT_MAXCONNECTS,
                            IDLE_CONNECTIONS);
    *ret_pool = pool;
    return 0;
}

void k8s_pool_free(struct k8s_pool *pool)
{
    if (!pool)
        return;
    curlmulti_free(pool->curl);
    free(pool);
}

void k8s_pool_left(struct k8s_request *request)
{
    struct k8s_pool *pool = request->pool;

    request->pool = NULL;
    pool->count--;
    if (pool->count == 0 && pool->k8s->retired)
        loop_timer_arm(pool->k8s->sweep, 0);
}

void k8s_pool_retire(struct k8s_pool *pool)
{
    struct k8s *k8s = pool->k8s;
    struct k8s_pool *fresh = NULL;
    struct err err = {0};

    if (pool != k8s->requests)
        return;
    if (k8s_pool_new(k8s, &fresh, &err) < 0)
        return; // out of memory, as good as: the old one may still do
    k8s->requests = fresh;
    pool->next = k8s->retired;
    k8s->retired = pool;
    loop_timer_arm(k8s->sweep, 0);
}

void k8s_pools_sweep(void *arg)
{
    struct k8s *k8s = arg;
    struct k8s_pool **at = &k8s->retired;

    while (*at) {
        struct k8s_pool *pool = *at;

        if (pool->count > 0) {
            at = &pool->next;
            continue;
        }
        *at = pool->next;
        k8s_pool_free(pool);
    }
}
