// SPDX-License-Identifier: Apache-2.0
// Orders by annotation: from the watch to facts.orders, and from the control socket to the
// annotations. What could not be written yet is kept in a file beside the control socket: an
// agent that is restarted before the API is back must not take an unwritten fence for one that
// somebody has taken back.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/kube/parts.h"
#include "base/buf.h"
#include "base/log.h"

#define FILE_SIZE_MAX 1024

// --- facts ---

static void order_fence(struct kube *kube)
{
    struct agent *agent = kube->agent;
    const struct kube_order_value *value = &kube->fence.taken;

    agent->facts.orders.manual_fence = value->is_present;
    agent->has_manual = true;
    (void)snprintf(agent->manual_reason, sizeof(agent->manual_reason), "%s", value->text);
    agent_feed(agent);
}

static void refuse_pause(struct kube *kube, const struct err *err)
{
    char note[KUBE_NOTE_SIZE];

    log_error("kubernetes: annotation is no order", kv_str("annotation", KUBE_PAUSE_KEY),
              kv_err(err));
    (void)snprintf(note, sizeof(note), "annotation %s: %s; not paused", KUBE_PAUSE_KEY,
                   err->msg);
    (void)snprintf(kube->refused_order, sizeof(kube->refused_order), "%s", note);
    kube_say(kube, &(struct kube_event){.is_warning = true,
                                        .action = "RefusedOrder",
                                        .reason = "InvalidAnnotation",
                                        .note = note});
}

// The end by our clock is found once per text, with the wall clock of that moment: a wall clock
// that is set later moves no pause.
static void order_pause(struct kube *kube)
{
    struct agent *agent = kube->agent;
    const struct kube_order_value *value = &kube->pause.taken;
    struct instant now = clock_now();
    struct err err = {0};
    int64_t end_ns = 0;
    int64_t left_ns = 0;

    agent->facts.orders.pause_end = (struct instant){0};
    agent->has_pause = true;
    agent->pause_reason[0] = '\0';
    kube->refused_order[0] = '\0';
    agent_feed(agent);
    if (!value->is_present)
        return;
    if (kube_time_parse(value->text, &end_ns, &err) < 0) {
        refuse_pause(kube, &err);
        return;
    }
    left_ns = end_ns - kube_wall_ns();
    if (left_ns > CONTROL_PAUSE_MAX_NS) {
        (void)err_set(&err, ERR_INVALID, 0,
                      "\"%.40s\" is more than 24 h ahead: pause again later", value->text);
        refuse_pause(kube, &err);
        return;
    }
    if (left_ns <= 0)
        return; // over
    agent->facts.orders.pause_end = instant_add(now, left_ns);
    (void)snprintf(agent->pause_reason, sizeof(agent->pause_reason), "annotation");
}

static void say_order(const char *key, const struct kube_order_value *value)
{
    log_warn("ordered by annotation", kv_str("annotation", key),
             kv_str("is", value->is_present ? "set" : "removed"), kv_str("value", value->text));
}

static void take_orders(struct kube *kube, struct instant now)
{
    bool had_fence = kube->agent->facts.orders.manual_fence;

    // The first sync takes also what metafence-run has kept for an earlier agent: an annotation
    // that is not there (any more) takes it back.
    if (kube_order_sync(&kube->fence, now)) {
        if (had_fence || kube->fence.taken.is_present)
            say_order(KUBE_FENCE_KEY, &kube->fence.taken);
        order_fence(kube);
    }
    if (kube_order_sync(&kube->pause, now)) {
        if (kube->pause.taken.is_present)
            say_order(KUBE_PAUSE_KEY, &kube->pause.taken);
        order_pause(kube);
    }
}

// --- the file of what is not written yet ---

static const char *file_path(const struct agent *agent, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s.orders", agent->config.control_socket);
    return buf;
}

static void put_line(struct buf *out, const char *key, const struct kube_order *order)
{
    if (order->is_pending)
        buf_printf(out, "%s%c%s\n", key, order->taken.is_present ? '=' : '-',
                   order->taken.text);
}

// Written to a new file and moved there, so that it is whole whenever we die. The directory is
// in memory.
static void save_file(const struct agent *agent, const struct kube_order *fence,
                      const struct kube_order *pause)
{
    char path[CONFIG_SOCKET_SIZE + 16];
    char tmp[CONFIG_SOCKET_SIZE + 24];
    struct buf bytes = {0};
    bool is_written = false;
    int fd = -1;

    file_path(agent, path, sizeof(path));
    put_line(&bytes, KUBE_FENCE_KEY, fence);
    put_line(&bytes, KUBE_PAUSE_KEY, pause);
    (void)snprintf(tmp, sizeof(tmp), "%s.new", path);
    (void)unlink(
        tmp); // meta's container may write there too: no link of its making is followed
    if (bytes.len == 0) {
        (void)unlink(path); // nothing waits
        return;
    }
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        is_written = write(fd, bytes.data, bytes.len) == (ssize_t)bytes.len;
        close(fd);
    }
    if (!is_written || rename(tmp, path) != 0)
        log_warn("kubernetes: an order that is not written yet could not be kept",
                 kv_str("path", path), kv_int("errno", errno));
    buf_done(&bytes);
}

static void save(struct kube *kube)
{
    save_file(kube->agent, &kube->fence, &kube->pause);
}

static bool load_line(const char *line, const char *key, struct kube_order *order)
{
    size_t len = strlen(key);

    if (strncmp(line, key, len) != 0 || (line[len] != '=' && line[len] != '-'))
        return false;
    kube_order_mirror(order, line[len] == '=' ? line + len + 1 : NULL);
    return true;
}

static void load_file(const struct agent *agent, struct kube_order *fence,
                      struct kube_order *pause)
{
    char path[CONFIG_SOCKET_SIZE + 16];
    char bytes[FILE_SIZE_MAX];
    char *line = bytes;
    ssize_t got = 0;
    int fd = open(file_path(agent, path, sizeof(path)), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return;
    got = read(fd, bytes, sizeof(bytes) - 1);
    close(fd);
    bytes[got > 0 ? got : 0] = '\0';
    for (char *end = NULL; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        if (!load_line(line, KUBE_FENCE_KEY, fence))
            (void)load_line(line, KUBE_PAUSE_KEY, pause);
    }
}

void kube_orders_begin(struct kube *kube)
{
    load_file(kube->agent, &kube->fence, &kube->pause);
    if (kube->fence.is_pending)
        order_fence(kube);
    if (kube->pause.is_pending)
        order_pause(kube);
}

// --- mirror ---

static const char *pause_text(const struct agent *agent, char text[KUBE_TIME_SIZE])
{
    struct instant end = agent->facts.orders.pause_end;

    if (end.ns == 0)
        return NULL;
    return kube_time_format(kube_wall_ns() + instant_since(end, clock_now()), text);
}

void kube_keep_order(const struct agent *agent, enum control_command command)
{
    struct kube_order fence = {0};
    struct kube_order pause = {0};
    char text[KUBE_TIME_SIZE];

    if (agent->kube)
        return; // mirrored
    load_file(agent, &fence, &pause);
    switch (command) {
    case CONTROL_STATUS:
    case CONTROL_RECONCILE:
    case CONTROL_REPORT:
    case CONTROL_METRICS:
    case CONTROL_CONFIG:
    case CONTROL_RECOVER:
    case CONTROL_HANDOVER: return; // over soon, and not for the next agent
    case CONTROL_FENCE: kube_order_mirror(&fence, agent->manual_reason); break;
    case CONTROL_UNFENCE: fence.is_pending = false; break;
    case CONTROL_PAUSE: kube_order_mirror(&pause, pause_text(agent, text)); break;
    case CONTROL_RESUME: pause.is_pending = false; break;
    }
    save_file(agent, &fence, &pause);
}

void kube_mirror_fence(struct kube *kube, const char *reason)
{
    if (!kube)
        return;
    kube_order_mirror(&kube->fence, reason);
    save(kube);
    kube_step(kube);
}

void kube_mirror_pause(struct kube *kube)
{
    char text[KUBE_TIME_SIZE];

    if (!kube)
        return;
    kube_order_mirror(&kube->pause, pause_text(kube->agent, text));
    save(kube);
    kube_step(kube);
}

static void mirrored(struct kube *kube, struct kube_order *order,
                     const struct k8s_result *result)
{
    struct k8s_pod pod = {0};
    struct err err = {0};
    bool is_pod = result->outcome == K8S_OK && k8s_pod_parse(result->body, &pod, &err) == 0;

    kube_log_edge(&kube->order_edge, "write an order to the annotations", result);
    kube_order_done(order, result->outcome, is_pod ? pod.resource_version : NULL, clock_now());
    if (!order->is_pending)
        save(kube);
    if (result->outcome == K8S_CONFLICT || result->outcome == K8S_REFUSED ||
        result->outcome == K8S_NOT_FOUND)
        kube->wants_look = true; // another pod's uid?
    kube_step(kube);
}

static void on_fence_mirrored(const struct k8s_result *result, void *arg)
{
    struct kube *kube = arg;

    kube->fence_request = NULL;
    mirrored(kube, &kube->fence, result);
}

static void on_pause_mirrored(const struct k8s_result *result, void *arg)
{
    struct kube *kube = arg;

    kube->pause_request = NULL;
    mirrored(kube, &kube->pause, result);
}

static struct k8s_request *patch(struct kube *kube, const char *key,
                                 const struct kube_order_value *value, k8s_result_fn *fn)
{
    const struct k8s_annotation_call call = {.pod = kube->pod,
                                             .uid = kube->uid,
                                             .key = key,
                                             .value = value->is_present ? value->text : NULL};

    return k8s_patch_annotation(kube->k8s, &call, fn, kube);
}

void kube_orders_seen(struct kube *kube, const struct k8s_pod *pod)
{
    kube_order_seen(&kube->fence, k8s_pod_annotation(pod, KUBE_FENCE_KEY),
                    pod->resource_version);
    kube_order_seen(&kube->pause, k8s_pod_annotation(pod, KUBE_PAUSE_KEY),
                    pod->resource_version);
}

void kube_orders_read(struct kube *kube, const struct k8s_pod *pod, struct instant sent_at)
{
    kube_order_read(&kube->fence, k8s_pod_annotation(pod, KUBE_FENCE_KEY),
                    pod->resource_version, sent_at);
    kube_order_read(&kube->pause, k8s_pod_annotation(pod, KUBE_PAUSE_KEY),
                    pod->resource_version, sent_at);
}

struct instant kube_orders_step(struct kube *kube, struct instant now)
{
    bool was_pending = kube->fence.is_pending || kube->pause.is_pending;

    take_orders(kube, now);
    if (was_pending && !kube->fence.is_pending && !kube->pause.is_pending)
        save(kube);
    if (!kube->is_ours)
        return INSTANT_NEVER;
    if (kube_order_next(&kube->fence, now))
        kube->fence_request = patch(kube, KUBE_FENCE_KEY, &kube->fence.sent, on_fence_mirrored);
    if (kube_order_next(&kube->pause, now))
        kube->pause_request = patch(kube, KUBE_PAUSE_KEY, &kube->pause.sent, on_pause_mirrored);
    return instant_min(kube_order_wake(&kube->fence), kube_order_wake(&kube->pause));
}
