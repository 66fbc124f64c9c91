// SPDX-License-Identifier: Apache-2.0
#include "k8s/follow.h"

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"
#include "k8s/path.h"

#define SILENCE_NS (150 * NS_PER_SEC) // bookmarks come every minute
#define RETRY_NS   (NS_PER_SEC / 2)

struct k8s_follow {
    struct k8s *k8s;
    char *path;
    char *selector;
    const struct k8s_follow_ops *ops;
    void *arg;
    int64_t silence_ns;
    int64_t retry_ns;
    struct loop_timer *timer; // goes on after a stream has ended
    struct k8s_request *stream;
    char *version;  // up to which every change was handed on
    bool is_begun;  // else lost, or never begun
    bool has_moved; // a line came since the stream was asked for
    uint64_t losses;
};

static char *copy(const char *text)
{
    char *made = text ? strdup(text) : NULL;

    if (text && !made)
        abort();
    return made;
}

static void lose(struct k8s_follow *follow, const struct err *err)
{
    k8s_cancel(follow->stream);
    follow->stream = NULL;
    loop_timer_stop(follow->timer);
    follow->is_begun = false;
    follow->losses++;
    follow->ops->on_lost(err, follow->arg);
}

static int take_line(struct k8s_follow *follow, const cJSON *line, struct err *err)
{
    struct k8s_change change = {0};
    const char *version = NULL;

    if (k8s_change_parse(line, &change, err) < 0 ||
        json_need_text(change.object, "metadata.resourceVersion", &version, err) < 0)
        return -1;
    if (change.kind != K8S_CHANGE_BOOKMARK &&
        follow->ops->on_change(&change, follow->arg, err) < 0)
        return -1;
    free(follow->version);
    follow->version = copy(version);
    follow->has_moved = true;
    return 0;
}

static void on_line(const struct cJSON *line, void *arg)
{
    struct k8s_follow *follow = arg;
    struct err err = {0};

    if (take_line(follow, line, &err) == 0)
        return;
    (void)err_wrap(&err, "event of %s", follow->path);
    lose(follow, &err);
}

// Nothing is missed by a stream that ends: the next one begins where it was. Two in a row that
// bring nothing are no stream.
static void on_end(const struct k8s_result *result, void *arg)
{
    struct k8s_follow *follow = arg;
    struct err err = result->err;
    bool is_good = result->outcome == K8S_OK || result->outcome == K8S_UNKNOWN ||
                   result->outcome == K8S_NOT_SENT || result->outcome == K8S_BUSY;

    follow->stream = NULL;
    if (is_good && follow->has_moved) {
        follow->has_moved = false;
        loop_timer_arm(follow->timer, follow->retry_ns);
        return;
    }
    if (result->outcome == K8S_OK)
        (void)err_set(&err, ERR_TRANSIENT, 0, "closed without a word");
    (void)err_wrap(&err, "watch of %s", follow->path);
    lose(follow, &err);
}

static const struct k8s_stream_ops stream_ops = {.on_line = on_line, .on_end = on_end};

static void on_timer(void *arg)
{
    struct k8s_follow *follow = arg;
    struct buf path = {0};
    struct k8s_call call = {.method = "GET"};

    buf_printf(&path, "%s?", follow->path);
    if (follow->selector) {
        buf_puts(&path, "labelSelector=");
        k8s_put_escaped(&path, follow->selector);
        buf_putc(&path, '&');
    }
    k8s_put_watch_query(&path, follow->version);
    call.path = buf_str(&path);
    follow->stream = k8s_stream(follow->k8s, &call, follow->silence_ns, &stream_ops, follow);
    buf_done(&path);
}

struct k8s_follow *k8s_follow_new(struct k8s *k8s, struct loop *loop,
                                  const struct k8s_follow_call *call,
                                  const struct k8s_follow_ops *ops, void *arg)
{
    struct k8s_follow *follow = calloc(1, sizeof(*follow));

    if (!follow)
        abort();
    *follow = (struct k8s_follow){.k8s = k8s,
                                  .path = copy(call->path),
                                  .selector = copy(call->selector),
                                  .ops = ops,
                                  .arg = arg,
                                  .silence_ns = SILENCE_NS,
                                  .retry_ns = RETRY_NS};
    follow->timer = loop_timer_new(loop, on_timer, follow);
    return follow;
}

void k8s_follow_set_times(struct k8s_follow *follow, int64_t silence_ns, int64_t retry_ns)
{
    follow->silence_ns = silence_ns;
    follow->retry_ns = retry_ns;
}

void k8s_follow_begin(struct k8s_follow *follow, const char *version)
{
    if (follow->is_begun)
        return;
    free(follow->version);
    follow->version = copy(version);
    follow->is_begun = true;
    // One that ends without a line is tried once more: no list is lost by that.
    follow->has_moved = true;
    loop_timer_arm(follow->timer, 0);
}

bool k8s_follow_is_lost(const struct k8s_follow *follow)
{
    return !follow->is_begun;
}

void k8s_follow_free(struct k8s_follow *follow)
{
    if (!follow)
        return;
    k8s_cancel(follow->stream);
    loop_timer_free(follow->timer);
    free(follow->path);
    free(follow->selector);
    free(follow->version);
    free(follow);
}

uint64_t k8s_follow_losses(const struct k8s_follow *follow)
{
    return follow->losses;
}
