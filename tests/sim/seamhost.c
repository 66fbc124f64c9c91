// SPDX-License-Identifier: Apache-2.0
// What the agent's Kubernetes code finds in place of libc's clocks and files, of the event loop
// and of the client over curl.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/sim/seamparts.h"

struct seam *seam_current;

// --- clocks, chance, the log ---

struct instant seam_clock_now(void)
{
    return seam_host_now(seam_current->world, seam_current->pod);
}

int seam_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int64_t wall_ns = seam_host_wall_ns(seam_current->world);

    (void)clock;
    *ret = (struct timespec){wall_ns / NS_PER_SEC, wall_ns % NS_PER_SEC};
    return 0;
}

ssize_t seam_getrandom(void *bytes, size_t size, unsigned flags)
{
    uint32_t number = seam_host_random(seam_current->world);

    (void)flags;
    memcpy(bytes, &number, size < sizeof(number) ? size : sizeof(number));
    return (ssize_t)size;
}

void log_write(enum log_level level, const char *msg, const struct kv *kvs)
{
    char text[160];
    int used = snprintf(text, sizeof(text), "%s", msg);

    if (level < LOG_LEVEL_WARN)
        return;
    for (; kvs->key && used > 0 && (size_t)used < sizeof(text); kvs++)
        if (kvs->kind == KV_STR)
            used += snprintf(text + used, sizeof(text) - (size_t)used, " %s=%s", kvs->key,
                             kvs->str ? kvs->str : "");
    seam_host_log(seam_current->world, seam_current->pod, text);
}

// --- the file of orders that are not written yet: whole when it is renamed ---

#define FD_READ  1000
#define FD_WRITE 1001

int seam_open(const char *path, int flags, ...)
{
    (void)path;
    if (flags & O_CREAT) {
        seam_current->file_used = 0;
        return FD_WRITE;
    }
    return seam_host_load(seam_current->world, seam_current->pod) ? FD_READ : -1;
}

ssize_t seam_read(int fd, void *to, size_t size)
{
    const char *bytes = seam_host_load(seam_current->world, seam_current->pod);
    size_t len = strlen(bytes);

    (void)fd;
    if (len > size)
        len = size;
    memcpy(to, bytes, len);
    return (ssize_t)len;
}

ssize_t seam_write(int fd, const void *bytes, size_t size)
{
    (void)fd;
    if (size >= sizeof(seam_current->file))
        return -1;
    memcpy(seam_current->file, bytes, size);
    seam_current->file[size] = '\0';
    return (ssize_t)size;
}

int seam_close(int fd)
{
    (void)fd;
    return 0;
}

int seam_unlink(const char *path)
{
    size_t len = strlen(path);

    if (len > 7 && strcmp(path + len - 7, ".orders") == 0)
        seam_host_save(seam_current->world, seam_current->pod, NULL);
    return 0;
}

int seam_rename(const char *from, const char *to)
{
    (void)from;
    (void)to;
    seam_host_save(seam_current->world, seam_current->pod, seam_current->file);
    return 0;
}

// --- timers ---

struct loop_timer *loop_timer_new(struct loop *loop, loop_timer_fn *fn, void *arg)
{
    struct loop_timer *timer = calloc(1, sizeof(*timer));

    if (!timer)
        abort();
    *timer = (struct loop_timer){loop, fn, arg, INSTANT_NEVER, loop->timers};
    loop->timers = timer;
    loop->count++;
    return timer;
}

void loop_timer_arm(struct loop_timer *timer, int64_t after_ns)
{
    timer->at = instant_add(seam_clock_now(), after_ns > 0 ? after_ns : 0);
    seam_host_arm(seam_current->world, seam_current->pod, timer->at);
}

void loop_timer_stop(struct loop_timer *timer)
{
    timer->at = INSTANT_NEVER;
}

void loop_timer_free(struct loop_timer *timer)
{
    struct loop_timer **at = NULL;

    if (!timer)
        return;
    for (at = &timer->loop->timers; *at != timer; at = &(*at)->next)
        ;
    *at = timer->next;
    timer->loop->count--;
    free(timer);
}

struct loop_timer *seam_due_timer(struct loop *loop, struct instant now)
{
    for (struct loop_timer *timer = loop->timers; timer; timer = timer->next)
        if (instant_reached(now, timer->at))
            return timer;
    return NULL;
}

// --- the client ---

int k8s_new(struct loop *loop, const struct k8s_config *config, struct k8s **ret_k8s,
            struct err *err)
{
    struct k8s *k8s = calloc(1, sizeof(*k8s));

    (void)loop;
    (void)err;
    if (!k8s)
        abort();
    (void)snprintf(k8s->name_space, sizeof(k8s->name_space), "%s", config->name_space);
    *ret_k8s = k8s;
    return 0;
}

const char *k8s_namespace(const struct k8s *k8s)
{
    return k8s->name_space;
}

void k8s_get_stats(const struct k8s *k8s, struct k8s_stats *ret)
{
    *ret = k8s->stats;
}

void seam_free_request(struct k8s_request *request)
{
    struct k8s_request **at = NULL;

    for (at = &request->k8s->requests; *at != request; at = &(*at)->next)
        ;
    *at = request->next;
    request->k8s->count--;
    free(request);
}

void k8s_cancel(struct k8s_request *request)
{
    if (!request)
        return;
    seam_host_cancel(seam_current->world, seam_current->pod, request->id);
    seam_free_request(request);
}

void k8s_free(struct k8s *k8s)
{
    if (!k8s)
        return;
    while (k8s->requests)
        k8s_cancel(k8s->requests);
    free(k8s);
}

static struct k8s_request *begin(struct k8s *k8s, const struct k8s_call *call, void *arg)
{
    struct k8s_request *request = calloc(1, sizeof(*request));

    if (!request)
        abort();
    *request = (struct k8s_request){.k8s = k8s,
                                    .id = ++k8s->last_id,
                                    .arg = arg,
                                    .sent_at = seam_clock_now(),
                                    .next = k8s->requests};
    (void)snprintf(request->method, sizeof(request->method), "%s", call->method);
    (void)snprintf(request->path, sizeof(request->path), "%s", call->path);
    k8s->requests = request;
    k8s->count++;
    k8s->stats.requests++;
    return request;
}

static void put_on_wire(const struct k8s_request *request, const struct k8s_call *call)
{
    const struct kube *kube = seam_current->agent.kube;
    struct seam_call out = {.id = request->id,
                            .method = call->method,
                            .path = call->path,
                            .body = call->body,
                            .is_stream = request->ops != NULL};

    out.is_label = call->content_type && strstr(call->content_type, "apply-patch");
    out.is_own_label = out.is_label && kube && strstr(call->body, kube->uid);
    seam_host_send(seam_current->world, seam_current->pod, &out);
}

struct k8s_request *k8s_send(struct k8s *k8s, const struct k8s_call *call, k8s_result_fn *fn,
                             void *arg)
{
    struct k8s_request *request = begin(k8s, call, arg);

    request->fn = fn;
    put_on_wire(request, call);
    return request;
}

struct k8s_request *k8s_stream(struct k8s *k8s, const struct k8s_call *call, int64_t silence_ns,
                               const struct k8s_stream_ops *ops, void *arg)
{
    struct k8s_request *request = begin(k8s, call, arg);

    (void)silence_ns; // the world's, too
    request->ops = ops;
    put_on_wire(request, call);
    return request;
}

struct k8s_request *seam_find(struct seam *seam, uint32_t id)
{
    struct k8s_request *request = seam->agent.kube->k8s->requests;

    while (request && request->id != id)
        request = request->next;
    return request;
}
