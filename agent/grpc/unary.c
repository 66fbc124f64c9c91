// SPDX-License-Identifier: Apache-2.0
#include "agent/grpc/unary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/grpc/h2c.h"
#include "base/buf.h"

struct grpc_unary {
    struct loop *loop;
    struct grpc_unary_config config;
    struct curlmulti *curl;
    CURL *easy;
    struct curl_slist *headers;
    bool is_busy;
    struct instant sent_at;
    struct buf request; // frame and message, as curl borrows it
    struct grpc_reply reply;
    struct buf body;
};

static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
    struct grpc_unary *unary = arg;

    grpc_reply_header(&unary->reply, line, size * count);
    return size * count;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct grpc_unary *unary = arg;
    size_t len = size * count;

    if (len > unary->config.body_max - unary->body.len)
        return 0; // ends the call
    buf_append(&unary->body, data, len);
    return len;
}

static bool set_options(struct grpc_unary *unary)
{
    CURL *easy = unary->easy;
    char url[128];
    CURLcode bad = CURLE_OK;

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", unary->config.port,
                   unary->config.path);
    bad |= h2c_set_options(easy, url, unary->config.timeout_ns, unary->headers);
    bad |= curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    bad |= curl_easy_setopt(easy, CURLOPT_HEADERDATA, unary);
    bad |= curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    bad |= curl_easy_setopt(easy, CURLOPT_WRITEDATA, unary);
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

static void on_done(CURL *easy, CURLcode code, void *arg)
{
    struct grpc_unary *unary = arg;
    struct grpc_unary_end end = {.sent_at = unary->sent_at, .detail = ""};
    long os_errno = 0;

    (void)easy; // there is one
    if (code == CURLE_OK) {
        (void)curl_easy_getinfo(unary->easy, CURLINFO_RESPONSE_CODE, &unary->reply.http_status);
        end.has_reply = true;
        end.reply = unary->reply;
        end.reply.body = (const uint8_t *)buf_str(&unary->body);
        end.reply.body_len = unary->body.len;
    } else {
        (void)curl_easy_getinfo(unary->easy, CURLINFO_OS_ERRNO, &os_errno);
        end.is_refused = code == CURLE_COULDNT_CONNECT && os_errno == ECONNREFUSED;
        end.detail = curl_easy_strerror(code);
    }
    unary->is_busy = false;
    unary->config.on_end(&end, unary->config.arg);
    if (!unary->is_busy)
        buf_done(&unary->body); // may have been large
}

static int create_handles(struct grpc_unary *unary, struct err *err)
{
    if (unary->easy)
        return 0;
    if (!unary->curl && curlmulti_new(unary->loop, on_done, unary, &unary->curl, err) < 0)
        return -1;
    if (!unary->headers)
        unary->headers = make_headers();
    unary->easy = curl_easy_init();
    if (unary->easy && set_options(unary))
        return 0;
    curl_easy_cleanup(unary->easy);
    unary->easy = NULL;
    return err_set(err, ERR_TRANSIENT, 0, "curl gives no handle for h2c");
}

struct grpc_unary *grpc_unary_new(struct loop *loop, const struct grpc_unary_config *config)
{
    struct grpc_unary *unary = calloc(1, sizeof(*unary));

    if (!unary)
        abort();
    unary->loop = loop;
    unary->config = *config;
    return unary;
}

void grpc_unary_free(struct grpc_unary *unary)
{
    if (!unary)
        return;
    if (unary->is_busy)
        curlmulti_remove(unary->curl, unary->easy);
    curl_easy_cleanup(unary->easy);
    curlmulti_free(unary->curl);
    curl_slist_free_all(unary->headers);
    buf_done(&unary->request);
    buf_done(&unary->body);
    free(unary);
}

bool grpc_unary_is_busy(const struct grpc_unary *unary)
{
    return unary->is_busy;
}

static bool set_request(struct grpc_unary *unary, const void *message, size_t len)
{
    const char header[GRPC_FRAME_HEADER] = {0, (char)(len >> 24), (char)(len >> 16),
                                            (char)(len >> 8), (char)len};
    CURLcode bad = CURLE_OK;

    buf_clear(&unary->request);
    buf_append(&unary->request, header, sizeof(header));
    if (len > 0)
        buf_append(&unary->request, message, len);
    bad |= curl_easy_setopt(unary->easy, CURLOPT_POSTFIELDSIZE, (long)unary->request.len);
    bad |= curl_easy_setopt(unary->easy, CURLOPT_POSTFIELDS, buf_str(&unary->request));
    return bad == CURLE_OK;
}

int grpc_unary_begin(struct grpc_unary *unary, const void *message, size_t len,
                     struct instant now, struct err *err)
{
    if (unary->is_busy)
        return err_set(err, ERR_CONFLICT, 0, "a call of %s is in flight", unary->config.path);
    if (create_handles(unary, err) < 0)
        return -1;
    if (!set_request(unary, message, len))
        return err_set(err, ERR_TRANSIENT, 0, "curl takes no request");
    unary->reply = (struct grpc_reply){.grpc_status = GRPC_STATUS_MISSING};
    buf_clear(&unary->body);
    unary->sent_at = now;
    if (curlmulti_add(unary->curl, unary->easy, err) < 0)
        return err_wrap(err, "call of %s", unary->config.path);
    unary->is_busy = true;
    return 0;
}
