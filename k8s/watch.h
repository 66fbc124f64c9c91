// SPDX-License-Identifier: Apache-2.0
#pragma once
// watch: keeps an eye on one pod by name: list, then watch from there, with bookmarks; lists
// again on 410 in both disguises (HTTP status and an ERROR event), on a silent stream, on
// garbage, with back-off and jitter, and whenever a stream ends. Beside a stream that stands it
// lists once in a while: a stream that says nothing any more is found out, and the client's
// connection for requests stays open. Level-triggered: what it calls back with is the newest
// state, and the same state may come again.

#include "base/err.h"
#include "k8s/client.h"
#include "k8s/pod.h"

struct k8s_watch;

struct k8s_watch_ops {
    void (*on_pod)(const struct k8s_pod *pod, void *arg); // borrowed for the call
    // The API server answered that no pod of this name exists.
    void (*on_absent)(void *arg);
    // A list failed, or the watch twice in a row; called once until on_up. NULL: not wanted.
    void (*on_down)(const struct err *err, void *arg);
    // After the first list, and when a watch holds again.
    void (*on_up)(void *arg);
};

struct k8s_watch_times {
    int64_t silence_ns; // no line from the server, whose bookmarks come every minute
    int64_t settle_ns;  // a stream that has held for so long counts as good
    int64_t refresh_ns; // between lists beside a stream
    int64_t backoff_min_ns;
    int64_t backoff_max_ns; // give or take a quarter; also of a server's Retry-After
};
// The API server closes connections that were idle for 90 s.
#define K8S_WATCH_TIMES                                                                        \
    {                                                                                          \
        .silence_ns = 150 * NS_PER_SEC, .settle_ns = 5 * NS_PER_SEC,                           \
        .refresh_ns = 50 * NS_PER_SEC, .backoff_min_ns = NS_PER_SEC / 2,                       \
        .backoff_max_ns = 8 * NS_PER_SEC,                                                      \
    }

// Starts from the loop. `pod_name` is copied, `ops` borrowed. Never fails: out of memory
// aborts.
struct k8s_watch *k8s_watch_new(struct k8s *k8s, struct loop *loop, const char *pod_name,
                                const struct k8s_watch_ops *ops, void *arg);
// In place of K8S_WATCH_TIMES, for tests; before the loop turns.
void k8s_watch_set_times(struct k8s_watch *watch, const struct k8s_watch_times *times);
// At any moment, but not from inside a callback. Accepts NULL.
void k8s_watch_free(struct k8s_watch *watch);

// Restarts that were not the server's ordinary time-out, since the start.
uint64_t k8s_watch_restarts(const struct k8s_watch *watch);
