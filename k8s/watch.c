// SPDX-License-Identifier: Apache-2.0
#include "k8s/watch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "k8s/change.h"
#include "k8s/json.h"
#include "k8s/path.h"

enum watch_state {
    WATCH_WAITING,  // for the timer
    WATCH_LISTING,  // the list is in flight
    WATCH_WATCHING, // the stream is in flight, and now and then a list beside it
};

struct k8s_watch {
    struct k8s *k8s;
    char *pod_name;
    const struct k8s_watch_ops *ops;
    void *arg;
    struct k8s_watch_times times;
    enum watch_state state;
    struct loop_timer *timer;
    struct k8s_request *list;
    struct k8s_request *stream;
    bool is_settled; // the stream has held for a while
    bool is_up;
    bool is_down;
    uint64_t events;       // of all streams, that changed what we know
    uint64_t events_asked; // at the time that the list was sent
    bool is_behind;        // the list beside the stream knew more than the stream
    char *version;         // of the pod as last told; NULL: absent
    unsigned failures;     // in a row
    uint64_t restarts;
};

static uint32_t random_below(uint32_t limit)
{
    uint32_t number = 0;

    // Without entropy all wait equally long, and no worse.
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number))
        return 0;
    return number % limit;
}

// --- what is told ---

static void tell_down(struct k8s_watch *watch, const struct err *err)
{
    if (watch->is_down)
        return;
    watch->is_down = true;
    watch->is_up = false;
    if (watch->ops->on_down)
        watch->ops->on_down(err, watch->arg);
}

static void tell_up(struct k8s_watch *watch)
{
    if (watch->is_up)
        return;
    watch->is_up = true;
    watch->is_down = false;
    if (watch->ops->on_up)
        watch->ops->on_up(watch->arg);
}

static bool is_known(const struct k8s_watch *watch, const char *version)
{
    if (!version || !watch->version)
        return version == watch->version;
    return strcmp(version, watch->version) == 0;
}

static void remember(struct k8s_watch *watch, const char *version)
{
    if (is_known(watch, version))
        return;
    free(watch->version);
    watch->version = version ? strdup(version) : NULL;
    if (version && !watch->version)
        abort();
}

static void tell_pod(struct k8s_watch *watch, const struct k8s_pod *pod)
{
    remember(watch, pod->resource_version);
    watch->ops->on_pod(pod, watch->arg);
}

static void tell_absent(struct k8s_watch *watch)
{
    remember(watch, NULL);
    watch->ops->on_absent(watch->arg);
}

// --- starting over ---

static int64_t back_off_ns(const struct k8s_watch *watch)
{
    int64_t delay_ns = watch->times.backoff_min_ns;

    for (unsigned i = 1; i < watch->failures && delay_ns < watch->times.backoff_max_ns; i++)
        delay_ns *= 2;
    if (delay_ns > watch->times.backoff_max_ns)
        delay_ns = watch->times.backoff_max_ns;
    return delay_ns / 4 * 3 + delay_ns / 2 * random_below(1000) / 1000;
}

static void stop_requests(struct k8s_watch *watch)
{
    k8s_cancel(watch->list);
    k8s_cancel(watch->stream);
    watch->list = NULL;
    watch->stream = NULL;
    watch->is_settled = false;
    watch->is_behind = false;
}

static void list_after(struct k8s_watch *watch, int64_t delay_ns)
{
    stop_requests(watch);
    watch->state = WATCH_WAITING;
    loop_timer_arm(watch->timer, delay_ns);
}

// One broken stream is no news: the list that follows may well succeed.
static void fail(struct k8s_watch *watch, const struct err *err, int64_t retry_after_ns)
{
    bool is_blind = watch->state == WATCH_LISTING;
    int64_t delay_ns = 0;

    watch->failures++;
    watch->restarts++;
    delay_ns = back_off_ns(watch);
    // Who orders by annotation must not wait for the minutes that some proxy thought of.
    if (retry_after_ns > watch->times.backoff_max_ns)
        retry_after_ns = watch->times.backoff_max_ns;
    list_after(watch, retry_after_ns > delay_ns ? retry_after_ns : delay_ns);
    if (is_blind || watch->failures > 1)
        tell_down(watch, err);
}

static bool is_ours(const struct k8s_watch *watch, const struct k8s_pod *pod)
{
    return k8s_pod_is(pod, k8s_namespace(watch->k8s), watch->pod_name);
}

// --- events of the stream ---

static int take_pod_event(struct k8s_watch *watch, enum k8s_change_kind kind,
                          const cJSON *object, struct err *err)
{
    struct k8s_pod pod = {0};

    if (k8s_pod_parse(object, &pod, err) < 0)
        return -1;
    if (!is_ours(watch, &pod))
        return 0;
    watch->events++;
    watch->is_behind = false;
    if (kind == K8S_CHANGE_DELETED)
        tell_absent(watch);
    else
        tell_pod(watch, &pod);
    return 0;
}

static int take_event(struct k8s_watch *watch, const cJSON *event, struct err *err)
{
    struct k8s_change change = {0};

    if (k8s_change_parse(event, &change, err) < 0)
        return -1;
    // It says how far the stream is, which nobody asks: each watch begins with a list.
    if (change.kind == K8S_CHANGE_BOOKMARK)
        return 0;
    return take_pod_event(watch, change.kind, change.object, err);
}

static void on_line(const struct cJSON *event, void *arg)
{
    struct k8s_watch *watch = arg;
    struct err err = {0};

    if (take_event(watch, event, &err) == 0)
        return;
    (void)err_wrap(&err, "event of the watch");
    fail(watch, &err, 0);
}

static void on_open(void *arg)
{
    struct k8s_watch *watch = arg;

    loop_timer_arm(watch->timer, watch->times.settle_ns);
}

static void on_end(const struct k8s_result *result, void *arg)
{
    struct k8s_watch *watch = arg;
    struct err err = result->err;

    watch->stream = NULL;
    if (result->outcome == K8S_OK && watch->is_settled) {
        list_after(watch, 0);
        return;
    }
    if (result->outcome == K8S_OK)
        (void)err_set(&err, ERR_TRANSIENT, 0, "the watch was closed at once");
    fail(watch, &err, result->retry_after_ns);
}

static const struct k8s_stream_ops stream_ops = {
    .on_open = on_open, .on_line = on_line, .on_end = on_end};

// --- list, then watch ---

static void put_path(struct buf *path, const struct k8s_watch *watch)
{
    k8s_put_pods_path(path, k8s_namespace(watch->k8s), NULL);
    buf_puts(path, "?fieldSelector=metadata.name%3D");
    k8s_put_escaped(path, watch->pod_name);
}

static void start_stream(struct k8s_watch *watch, const char *version)
{
    struct buf path = {0};
    struct k8s_call call = {.method = "GET"};

    put_path(&path, watch);
    buf_putc(&path, '&');
    k8s_put_watch_query(&path, version);
    call.path = buf_str(&path);
    watch->state = WATCH_WATCHING;
    watch->stream = k8s_stream(watch->k8s, &call, watch->times.silence_ns, &stream_ops, watch);
    buf_done(&path);
}

// *ret_pod without a name: the list has no pod of ours.
static int take_list(const struct k8s_watch *watch, const cJSON *list, const char **ret_version,
                     struct k8s_pod *ret_pod, struct err *err)
{
    const char *kind = NULL;
    const cJSON *items = NULL;
    const cJSON *item = NULL;

    if (json_need_text(list, "kind", &kind, err) < 0 ||
        json_need_text(list, "metadata.resourceVersion", ret_version, err) < 0 ||
        json_array(list, "items", &items, err) < 0)
        return -1;
    if (strcmp(kind, "PodList") != 0)
        return err_set(err, ERR_INVALID, 0, "kind: \"%.40s\", want PodList", kind);
    cJSON_ArrayForEach(item, items)
    {
        struct k8s_pod pod = {0};

        if (k8s_pod_parse(item, &pod, err) < 0)
            return -1;
        if (is_ours(watch, &pod))
            *ret_pod = pod;
    }
    return 0;
}

static void tell_list(struct k8s_watch *watch, const struct k8s_pod *pod)
{
    if (pod->name)
        tell_pod(watch, pod);
    else
        tell_absent(watch);
}

// A list beside the stream: an event that came meanwhile is newer, or will come again.
static void take_beside(struct k8s_watch *watch, const struct k8s_pod *pod)
{
    if (watch->events != watch->events_asked)
        return;
    watch->is_behind = !is_known(watch, pod->name ? pod->resource_version : NULL);
    tell_list(watch, pod);
    if (watch->is_behind)
        loop_timer_arm(watch->timer, watch->times.settle_ns);
}

static void on_list(const struct k8s_result *result, void *arg)
{
    struct k8s_watch *watch = arg;
    const char *version = NULL;
    struct k8s_pod pod = {0};
    struct err err = result->err;
    bool is_good =
        result->outcome == K8S_OK && take_list(watch, result->body, &version, &pod, &err) == 0;

    watch->list = NULL;
    if (watch->state == WATCH_WATCHING) {
        if (is_good)
            take_beside(watch, &pod);
        return; // the stream stands: it is asked again at the next turn
    }
    if (!is_good) {
        (void)err_wrap(&err, "list of the pod");
        fail(watch, &err, result->retry_after_ns);
        return;
    }
    start_stream(watch, version);
    if (watch->failures == 0)
        tell_up(watch);
    tell_list(watch, &pod);
}

// No resourceVersion: the newest state there is, not one from the cache of a server that lags.
static void send_list(struct k8s_watch *watch)
{
    struct buf path = {0};
    struct k8s_call call = {.method = "GET"};

    put_path(&path, watch);
    buf_puts(&path, "&limit=2");
    call.path = buf_str(&path);
    watch->events_asked = watch->events;
    watch->list = k8s_send(watch->k8s, &call, on_list, watch);
    buf_done(&path);
}

// While the stream stands: first to settle, then to ask beside it.
static void on_watching(struct k8s_watch *watch)
{
    struct err err = {0};

    if (watch->is_behind) {
        (void)err_set(&err, ERR_TRANSIENT, 0, "the watch has missed a change");
        fail(watch, &err, 0);
        return;
    }
    if (watch->is_settled && !watch->list)
        send_list(watch);
    watch->is_settled = true;
    watch->failures = 0;
    tell_up(watch);
    loop_timer_arm(watch->timer, watch->times.refresh_ns);
}

static void on_timer(void *arg)
{
    struct k8s_watch *watch = arg;

    switch (watch->state) {
    case WATCH_WAITING:
        watch->state = WATCH_LISTING;
        send_list(watch);
        break;
    case WATCH_LISTING: break; // the timer is not armed
    case WATCH_WATCHING: on_watching(watch); break;
    }
}

// --- what callers use ---

struct k8s_watch *k8s_watch_new(struct k8s *k8s, struct loop *loop, const char *pod_name,
                                const struct k8s_watch_ops *ops, void *arg)
{
    struct k8s_watch *watch = calloc(1, sizeof(*watch));

    if (!watch)
        abort();
    *watch = (struct k8s_watch){
        .k8s = k8s, .ops = ops, .arg = arg, .times = K8S_WATCH_TIMES, .state = WATCH_WAITING};
    watch->pod_name = strdup(pod_name);
    if (!watch->pod_name)
        abort();
    watch->timer = loop_timer_new(loop, on_timer, watch);
    loop_timer_arm(watch->timer, 0);
    return watch;
}

void k8s_watch_set_times(struct k8s_watch *watch, const struct k8s_watch_times *times)
{
    watch->times = *times;
}

void k8s_watch_free(struct k8s_watch *watch)
{
    if (!watch)
        return;
    stop_requests(watch);
    loop_timer_free(watch->timer);
    free(watch->version);
    free(watch->pod_name);
    free(watch);
}

uint64_t k8s_watch_restarts(const struct k8s_watch *watch)
{
    return watch->restarts;
}
