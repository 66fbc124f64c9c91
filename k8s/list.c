// SPDX-License-Identifier: Apache-2.0
#include "k8s/list.h"

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/hash.h"
#include "k8s/json.h"
#include "k8s/path.h"

struct k8s_list {
    struct k8s *k8s;
    char *path;
    char *kind;
    char *selector; // NULL: all
    unsigned limit;
    const struct k8s_list_ops *ops;
    void *arg;
    struct k8s_request *request;
    char *version;  // of the first page
    char *next;     // token that was sent with the request in flight
    uint64_t *seen; // hashes of uids, open addressing; 0: free
    size_t seen_slots;
    unsigned items;
    unsigned pages;
    struct instant sent_at;
};

static char *copy(const char *text)
{
    char *made = text ? strdup(text) : NULL;

    if (text && !made)
        abort();
    return made;
}

static void list_free(struct k8s_list *list)
{
    free(list->path);
    free(list->kind);
    free(list->selector);
    free(list->version);
    free(list->next);
    free(list->seen);
    free(list);
}

// --- what was seen already ---

static bool put_hash(uint64_t *slots, size_t count, uint64_t hash)
{
    size_t at = (size_t)(hash ^ (hash >> 32)) & (count - 1);

    while (slots[at] != 0) {
        if (slots[at] == hash)
            return false;
        at = (at + 1) & (count - 1);
    }
    slots[at] = hash;
    return true;
}

static void grow_seen(struct k8s_list *list)
{
    size_t slots = list->seen_slots ? list->seen_slots * 2 : 256;
    uint64_t *made = calloc(slots, sizeof(*made));

    if (!made)
        abort();
    for (size_t i = 0; i < list->seen_slots; i++) {
        if (list->seen[i] != 0)
            (void)put_hash(made, slots, list->seen[i]);
    }
    free(list->seen);
    list->seen = made;
    list->seen_slots = slots;
}

// False: it was there before.
static bool note_uid(struct k8s_list *list, const char *uid)
{
    uint64_t hash = hash_text(HASH_BEGIN, uid);

    if ((size_t)list->items * 2 >= list->seen_slots)
        grow_seen(list);
    return put_hash(list->seen, list->seen_slots, hash ? hash : 1);
}

// --- one page ---

int k8s_list_page_parse(const struct cJSON *body, const char *kind, struct k8s_list_page *ret,
                        struct err *err)
{
    struct k8s_list_page page = {0};
    const char *is_kind = NULL;
    int64_t remaining = 0;

    if (json_need_text(body, "kind", &is_kind, err) < 0)
        return -1;
    if (strcmp(is_kind, kind) != 0)
        return err_set(err, ERR_INVALID, 0, "kind: \"%.40s\", want %s", is_kind, kind);
    if (json_need_text(body, "metadata.resourceVersion", &page.version, err) < 0 ||
        json_text(body, "metadata.continue", &page.next, err) < 0 ||
        json_int(body, "metadata.remainingItemCount", &remaining, err) < 0 ||
        json_array(body, "items", &page.items, err) < 0)
        return -1;
    if (page.next && page.next[0] == '\0')
        page.next = NULL;
    if (!page.next && remaining > 0)
        return err_set(err, ERR_INVALID, 0,
                       "metadata.remainingItemCount: %lld, and no way to go on",
                       (long long)remaining);
    if (page.next && (!page.items || !page.items->child))
        return err_set(err, ERR_INVALID, 0, "items: none, but there is more to come");
    *ret = page;
    return 0;
}

static int take_items(struct k8s_list *list, const struct k8s_list_page *page, struct err *err)
{
    const cJSON *item = NULL;

    cJSON_ArrayForEach(item, page->items)
    {
        const char *uid = NULL;

        if (!cJSON_IsObject(item))
            return err_set(err, ERR_INVALID, 0, "items: one is no object");
        if (json_need_text(item, "metadata.uid", &uid, err) < 0)
            return -1;
        if (list->items >= K8S_LIST_ITEMS_MAX)
            return err_set(err, ERR_INVALID, 0, "more than %u objects", K8S_LIST_ITEMS_MAX);
        if (!note_uid(list, uid))
            return err_set(err, ERR_INVALID, 0, "uid %.60s is there twice", uid);
        list->items++;
        if (list->ops->on_item(item, list->arg, err) < 0)
            return -1;
    }
    return 0;
}

static int take_page(struct k8s_list *list, const cJSON *body, struct k8s_list_page *ret,
                     struct err *err)
{
    if (k8s_list_page_parse(body, list->kind, ret, err) < 0)
        return -1;
    if (list->version && strcmp(list->version, ret->version) != 0)
        return err_set(err, ERR_INVALID, 0, "resourceVersion: \"%.40s\", began with \"%.40s\"",
                       ret->version, list->version);
    if (list->next && ret->next && strcmp(list->next, ret->next) == 0)
        return err_set(err, ERR_INVALID, 0, "the page says to go on where it began");
    if (!list->version)
        list->version = copy(ret->version);
    list->pages++;
    return take_items(list, ret, err);
}

// --- the whole ---

static void end(struct k8s_list *list, enum k8s_outcome outcome, const struct err *err,
                int64_t retry_after_ns)
{
    struct k8s_list_result result = {.outcome = outcome,
                                     .err = *err,
                                     .retry_after_ns = retry_after_ns,
                                     .items = list->items,
                                     .pages = list->pages,
                                     .version = outcome == K8S_OK ? list->version : NULL,
                                     .sent_at = list->sent_at};

    if (outcome != K8S_OK)
        (void)err_wrap(&result.err, "%s, page %u", list->kind, list->pages + 1);
    list->ops->on_end(&result, list->arg);
    list_free(list);
}

static void send_page(struct k8s_list *list);

static void on_page(const struct k8s_result *result, void *arg)
{
    struct k8s_list *list = arg;
    struct k8s_list_page page = {.version = ""};
    struct err err = result->err;

    list->request = NULL;
    if (list->pages == 0)
        list->sent_at = result->sent_at;
    if (result->outcome != K8S_OK) {
        end(list, result->outcome, &err, result->retry_after_ns);
        return;
    }
    if (take_page(list, result->body, &page, &err) < 0) {
        end(list, K8S_GARBAGE, &err, 0);
        return;
    }
    if (!page.next) {
        end(list, K8S_OK, &err, 0);
        return;
    }
    free(list->next);
    list->next = copy(page.next);
    send_page(list);
}

static void send_page(struct k8s_list *list)
{
    struct buf path = {0};
    struct k8s_call call = {.method = "GET"};

    buf_printf(&path, "%s?limit=%u", list->path, list->limit);
    if (list->selector) {
        buf_puts(&path, "&labelSelector=");
        k8s_put_escaped(&path, list->selector);
    }
    if (list->next) {
        buf_puts(&path, "&continue=");
        k8s_put_escaped(&path, list->next);
    }
    call.path = buf_str(&path);
    list->request = k8s_send(list->k8s, &call, on_page, list);
    buf_done(&path);
}

struct k8s_list *k8s_list_begin(struct k8s *k8s, const struct k8s_list_call *call,
                                const struct k8s_list_ops *ops, void *arg)
{
    struct k8s_list *list = calloc(1, sizeof(*list));

    if (!list)
        abort();
    *list = (struct k8s_list){.k8s = k8s,
                              .path = copy(call->path),
                              .kind = copy(call->kind),
                              .selector = copy(call->selector),
                              .limit = call->limit ? call->limit : K8S_LIST_LIMIT,
                              .ops = ops,
                              .arg = arg};
    send_page(list);
    return list;
}

void k8s_list_cancel(struct k8s_list *list)
{
    if (!list)
        return;
    k8s_cancel(list->request);
    list_free(list);
}
