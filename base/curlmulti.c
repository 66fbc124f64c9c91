// SPDX-License-Identifier: Apache-2.0
#include "base/curlmulti.h"

#include <stdlib.h>

// One socket of curl's, known to curl by curl_multi_assign.
struct socket_watch {
    struct socket_watch *next;
    struct loop_io *io;
};

struct curlmulti {
    struct loop *loop;
    CURLM *multi;
    struct loop_timer *timer;   // curl's own
    struct loop_timer *reports; // for what ended inside a push
    struct socket_watch *sockets;
    curlmulti_done_fn *on_done;
    void *arg;
};

// Takes finished transfers out of curl, then reports each: the report may do with curl what it
// wants.
static void report_ends(struct curlmulti *curl)
{
    CURLMsg *message = NULL;
    int left = 0;

    while ((message = curl_multi_info_read(curl->multi, &left))) {
        CURL *easy = message->easy_handle;
        CURLcode code = message->data.result;

        if (message->msg != CURLMSG_DONE)
            continue;
        (void)curl_multi_remove_handle(curl->multi, easy); // fails only for one that is not in
        curl->on_done(easy, code, curl->arg);
    }
}

static void on_socket_ready(int fd, unsigned events, void *arg)
{
    struct curlmulti *curl = arg;
    int running = 0;
    int mask = (events & LOOP_READ ? CURL_CSELECT_IN : 0) |
               (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0);

    // A failure shows as the result of the transfer.
    (void)curl_multi_socket_action(curl->multi, fd, mask, &running);
    report_ends(curl);
}

static void on_timer(void *arg)
{
    struct curlmulti *curl = arg;
    int running = 0;

    (void)curl_multi_socket_action(curl->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    report_ends(curl);
}

static void on_reports(void *arg)
{
    report_ends(arg);
}

// curl may not be called from here: only (re)arm.
static int set_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct curlmulti *curl = arg;

    (void)multi;
    if (timeout_ms < 0)
        loop_timer_stop(curl->timer);
    else
        loop_timer_arm(curl->timer, timeout_ms * NS_PER_MS);
    return 0;
}

static void drop_socket(struct curlmulti *curl, struct socket_watch *socket)
{
    struct socket_watch **at = &curl->sockets;

    while (*at != socket)
        at = &(*at)->next;
    *at = socket->next;
    loop_io_free(socket->io);
    free(socket);
}

static struct socket_watch *new_socket(struct curlmulti *curl)
{
    struct socket_watch *socket = calloc(1, sizeof(*socket));

    if (!socket)
        abort();
    socket->io = loop_io_new(curl->loop, on_socket_ready, curl);
    socket->next = curl->sockets;
    curl->sockets = socket;
    return socket;
}

static int set_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct curlmulti *curl = arg;
    struct socket_watch *socket = socket_arg;
    struct err err = {0};
    unsigned events = 0;

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (socket)
            drop_socket(curl, socket);
        return 0;
    }
    if (!socket) {
        socket = new_socket(curl);
        (void)curl_multi_assign(curl->multi, fd, socket);
    }
    if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
        events |= LOOP_READ;
    if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
        events |= LOOP_WRITE;
    return loop_io_set(socket->io, fd, events, &err); // curl gives the transfer up
}

static void set_options(struct curlmulti *curl)
{
    // These fail only for a handle that is none.
    (void)curl_multi_setopt(curl->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
    (void)curl_multi_setopt(curl->multi, CURLMOPT_SOCKETDATA, curl);
    (void)curl_multi_setopt(curl->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    (void)curl_multi_setopt(curl->multi, CURLMOPT_TIMERDATA, curl);
}

int curlmulti_new(struct loop *loop, curlmulti_done_fn *on_done, void *arg,
                  struct curlmulti **ret_curl, struct err *err)
{
    struct curlmulti *curl = NULL;
    CURLM *multi = NULL;

    // Counted by curl: the first one initializes, the last curl_global_cleanup frees.
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, ERR_TRANSIENT, 0, "curl can't be initialized");
    multi = curl_multi_init();
    if (!multi) {
        curl_global_cleanup();
        return err_set(err, ERR_TRANSIENT, 0, "curl gives no multi handle");
    }
    curl = calloc(1, sizeof(*curl));
    if (!curl)
        abort();
    *curl = (struct curlmulti){.loop = loop, .multi = multi, .on_done = on_done, .arg = arg};
    curl->timer = loop_timer_new(loop, on_timer, curl);
    curl->reports = loop_timer_new(loop, on_reports, curl);
    set_options(curl);
    *ret_curl = curl;
    return 0;
}

void curlmulti_free(struct curlmulti *curl)
{
    if (!curl)
        return;
    (void)curl_multi_cleanup(curl->multi);
    while (curl->sockets)
        drop_socket(curl, curl->sockets);
    loop_timer_free(curl->timer);
    loop_timer_free(curl->reports);
    free(curl);
    curl_global_cleanup();
}

CURLM *curlmulti_handle(struct curlmulti *curl)
{
    return curl->multi;
}

int curlmulti_add(struct curlmulti *curl, CURL *easy, struct err *err)
{
    CURLMcode code = curl_multi_add_handle(curl->multi, easy);

    if (code != CURLM_OK)
        return err_set(err, ERR_TRANSIENT, 0, "curl takes no transfer: %s",
                       curl_multi_strerror(code));
    return 0;
}

void curlmulti_push(struct curlmulti *curl)
{
    int running = 0;

    (void)curl_multi_socket_action(curl->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    loop_timer_arm(curl->reports, 0);
}

void curlmulti_remove(struct curlmulti *curl, CURL *easy)
{
    (void)curl_multi_remove_handle(curl->multi, easy);
}
