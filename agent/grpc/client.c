// SPDX-License-Identifier: Apache-2.0
#include "agent/grpc/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "agent/grpc/frame.h"
#include "base/buf.h"

#define SOCKETS_MAX 4 // one call has one, and briefly a second while connecting
#define METHOD_PATH "/meta.ClusterService/GetClusterRecoveryStatus"

// An empty request message in its frame.
static const char request_frame[GRPC_FRAME_HEADER] = {0};

struct grpc_client {
    struct loop *loop;
    struct grpc_client_config config;
    CURLM *multi;
    CURL *easy;
    struct curl_slist *headers;
    struct loop_timer *timer;
    struct {
        struct loop_io *io;
        curl_socket_t fd;
    } sockets[SOCKETS_MAX];
    bool is_busy;
    struct instant sent_at;
    struct grpc_reply reply;
    struct buf body;
};

static void collect(struct grpc_client *client);

static void on_socket_ready(int fd, unsigned events, void *arg)
{
    struct grpc_client *client = arg;
    int running = 0;
    int mask = (events & LOOP_READ ? CURL_CSELECT_IN : 0) |
               (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0);

    // A failure shows as the result of the call.
    (void)curl_multi_socket_action(client->multi, fd, mask, &running);
    collect(client);
}

static void on_curl_timer(void *arg)
{
    struct grpc_client *client = arg;
    int running = 0;

    (void)curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(client);
}

// curl may not be called from here: only (re)arm.
static int set_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct grpc_client *client = arg;

    (void)multi;
    if (timeout_ms < 0)
        loop_timer_stop(client->timer);
    else
        loop_timer_arm(client->timer, timeout_ms * NS_PER_MS);
    return 0;
}

static int find_socket(const struct grpc_client *client, curl_socket_t fd)
{
    for (int i = 0; i < SOCKETS_MAX; i++)
        if (client->sockets[i].io && client->sockets[i].fd == fd)
            return i;
    return -1;
}

static int find_free(struct grpc_client *client, curl_socket_t fd)
{
    for (int i = 0; i < SOCKETS_MAX; i++) {
        if (client->sockets[i].io && client->sockets[i].fd >= 0)
            continue;
        if (!client->sockets[i].io)
            client->sockets[i].io = loop_io_new(client->loop, on_socket_ready, client);
        client->sockets[i].fd = fd;
        return i;
    }
    return -1;
}

static int set_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct grpc_client *client = arg;
    struct err err = {0};
    int i = find_socket(client, fd);
    unsigned events = 0;

    (void)easy;
    (void)socket_arg;
    if (what == CURL_POLL_REMOVE) {
        if (i >= 0) {
            loop_io_stop(client->sockets[i].io);
            client->sockets[i].fd = -1;
        }
        return 0;
    }
    if (i < 0)
        i = find_free(client, fd);
    if (i < 0)
        return -1; // curl gives the call up
    if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
        events |= LOOP_READ;
    if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
        events |= LOOP_WRITE;
    return loop_io_set(client->sockets[i].io, fd, events, &err);
}

static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
    struct grpc_client *client = arg;

    grpc_reply_header(&client->reply, line, size * count);
    return size * count;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct grpc_client *client = arg;
    size_t len = size * count;

    if (len > GRPC_BODY_MAX - client->body.len)
        return 0; // ends the call
    buf_append(&client->body, data, len);
    return len;
}

static bool set_options(struct grpc_client *client)
{
    CURL *easy = client->easy;
    char url[96];
    CURLcode bad = CURLE_OK;

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u" METHOD_PATH, client->config.port);
    bad |= curl_easy_setopt(easy, CURLOPT_URL, url);
    bad |=
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
    bad |= curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http");
    bad |= curl_easy_setopt(easy, CURLOPT_PROXY, ""); // whatever http_proxy says
    bad |= curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                            (long)(client->config.timeout_ns / NS_PER_MS));
    bad |= curl_easy_setopt(easy, CURLOPT_HTTPHEADER, client->headers);
    bad |= curl_easy_setopt(easy, CURLOPT_POST, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)sizeof(request_frame));
    bad |= curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request_frame);
    bad |= curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    bad |= curl_easy_setopt(easy, CURLOPT_HEADERDATA, client);
    bad |= curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    bad |= curl_easy_setopt(easy, CURLOPT_WRITEDATA, client);
    return bad == CURLE_OK;
}

static struct curl_slist *make_headers(void)
{
    static const char agent_line[] = "user-agent: metafence/" METAFENCE_VERSION;
    static const char *const lines[] = {"content-type: application/grpc", "te: trailers",
                                        agent_line};
    struct curl_slist *headers = NULL;

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        headers = curl_slist_append(headers, lines[i]);
        if (!headers)
            abort();
    }
    return headers;
}

// curl is initialized by the first call, without TLS, which costs a megabyte that h2c has no
// use for.
static int create_handles(struct grpc_client *client, struct err *err)
{
    if (client->easy)
        return 0;
    if (!client->multi) {
        if (curl_global_init(CURL_GLOBAL_NOTHING) != CURLE_OK)
            return err_set(err, ERR_TRANSIENT, 0, "curl can't be initialized");
        client->multi = curl_multi_init();
        if (!client->multi)
            return err_set(err, ERR_TRANSIENT, 0, "curl gives no multi handle");
        (void)curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
        (void)curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
        (void)curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, set_timer);
        (void)curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    }
    if (!client->headers)
        client->headers = make_headers();
    client->easy = curl_easy_init();
    if (client->easy && set_options(client))
        return 0;
    curl_easy_cleanup(client->easy);
    client->easy = NULL;
    return err_set(err, ERR_TRANSIENT, 0, "curl gives no handle for h2c");
}

struct grpc_client *grpc_client_new(struct loop *loop, const struct grpc_client_config *config)
{
    struct grpc_client *client = calloc(1, sizeof(*client));

    if (!client)
        abort();
    client->loop = loop;
    client->config = *config;
    client->timer = loop_timer_new(loop, on_curl_timer, client);
    return client;
}

void grpc_client_free(struct grpc_client *client)
{
    if (!client)
        return;
    if (client->is_busy)
        (void)curl_multi_remove_handle(client->multi, client->easy);
    curl_easy_cleanup(client->easy);
    if (client->multi) {
        (void)curl_multi_cleanup(client->multi);
        curl_global_cleanup();
    }
    curl_slist_free_all(client->headers);
    for (int i = 0; i < SOCKETS_MAX; i++)
        loop_io_free(client->sockets[i].io);
    loop_timer_free(client->timer);
    buf_done(&client->body);
    free(client);
}

const char *grpc_client_curl_version(void)
{
    return curl_version_info(CURLVERSION_NOW)->version;
}

bool grpc_client_is_busy(const struct grpc_client *client)
{
    return client->is_busy;
}

int grpc_client_ask(struct grpc_client *client, struct instant now, struct err *err)
{
    if (client->is_busy)
        return err_set(err, ERR_CONFLICT, 0, "a status call is in flight");
    if (create_handles(client, err) < 0)
        return -1;
    client->reply = (struct grpc_reply){.grpc_status = GRPC_STATUS_MISSING};
    buf_clear(&client->body);
    client->sent_at = now;
    if (curl_multi_add_handle(client->multi, client->easy) != CURLM_OK)
        return err_set(err, ERR_TRANSIENT, 0, "curl refuses a status call");
    client->is_busy = true;
    return 0;
}

static void judge(struct grpc_client *client, CURLcode code, struct grpc_result *result)
{
    long os_errno = 0;

    result->sent_at = client->sent_at;
    if (code != CURLE_OK) {
        (void)curl_easy_getinfo(client->easy, CURLINFO_OS_ERRNO, &os_errno);
        if (code == CURLE_COULDNT_CONNECT && os_errno == ECONNREFUSED)
            result->answer = GRPC_REFUSED;
        (void)snprintf(result->detail, sizeof(result->detail), "%s", curl_easy_strerror(code));
        return;
    }
    (void)curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &client->reply.http_status);
    client->reply.body = (const uint8_t *)buf_str(&client->body);
    client->reply.body_len = client->body.len;
    result->answer = grpc_judge_status(&client->reply, &result->recovery_status);
    if (result->answer == GRPC_UNKNOWN)
        (void)snprintf(result->detail, sizeof(result->detail),
                       "HTTP %ld, grpc-status %d, %zu bytes", client->reply.http_status,
                       client->reply.grpc_status, client->reply.body_len);
}

// Takes the finished call, if there is one, out of curl, then reports it.
static void collect(struct grpc_client *client)
{
    struct grpc_result result = {.answer = GRPC_UNKNOWN};
    bool is_done = false;
    int left = 0;
    CURLMsg *message = NULL;

    while ((message = curl_multi_info_read(client->multi, &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        judge(client, message->data.result, &result);
        is_done = true;
    }
    if (!is_done)
        return;
    (void)curl_multi_remove_handle(client->multi, client->easy);
    client->is_busy = false;
    client->config.on_result(&result, client->config.arg);
}
