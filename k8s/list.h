// SPDX-License-Identifier: Apache-2.0
#pragma once
// list: all objects of a collection, page by page, or an error; nothing between. All pages are
// of one resourceVersion; a page that fails, is cut off, of another kind or version, or that
// repeats objects makes the whole list one that was not had: "empty" is only what a server says
// with a whole, good answer. The list is of the newest state (no resourceVersion is sent), not
// of a cache that lags. Memory: one page at a time, with the default limit about 1.5 MB of JSON
// and four times that parsed, and 16 bytes for each object (10,000 pods: 160 KB).

#include "base/err.h"
#include "k8s/client.h"

struct cJSON;
struct k8s_list;

#define K8S_LIST_LIMIT     100U
#define K8S_LIST_ITEMS_MAX 200000U

struct k8s_list_call {
    const char *path;     // "/api/v1/namespaces/ns/pods", as k8s_put_pods_path makes it
    const char *kind;     // "PodList"
    const char *selector; // of labels, not escaped: "a=b,c in (d,e)"; NULL: all
    unsigned limit;       // objects in a page; 0: K8S_LIST_LIMIT
};

struct k8s_list_result {
    // K8S_OK: every object was handed in. K8S_GARBAGE: an answer that can't be used; else what
    // became of the request that failed. 404 for a kind that the API does not have is
    // K8S_NOT_FOUND.
    enum k8s_outcome outcome;
    struct err err;
    int64_t retry_after_ns;
    unsigned items;
    unsigned pages;
    const char *version; // resourceVersion, for k8s_follow_begin; borrowed; NULL unless K8S_OK
    struct instant sent_at; // of the first page: no object is older than that
};

struct k8s_list_ops {
    // Each object as its page comes, borrowed for the call. What it got is of no use before
    // on_end has said K8S_OK. Returns < 0 with *err to refuse the list (K8S_GARBAGE).
    int (*on_item)(const struct cJSON *object, void *arg, struct err *err);
    // Once, last; the list is freed.
    void (*on_end)(const struct k8s_list_result *result, void *arg);
};

// `call` is copied, `ops` borrowed. Never fails: what can't be sent ends with K8S_NOT_SENT.
struct k8s_list *k8s_list_begin(struct k8s *k8s, const struct k8s_list_call *call,
                                const struct k8s_list_ops *ops, void *arg);
// No callback will come. Accepts NULL; not from inside on_item, nor for one that has ended.
void k8s_list_cancel(struct k8s_list *list);

// One page, taken apart; for list.c and its tests.
struct k8s_list_page {
    const char *version;
    const char *next;          // continue token; NULL: this is the last
    const struct cJSON *items; // NULL: none
};
// Errors: INVALID.
must_check int k8s_list_page_parse(const struct cJSON *body, const char *kind,
                                   struct k8s_list_page *ret, struct err *err);
