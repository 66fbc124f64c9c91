// SPDX-License-Identifier: Apache-2.0
// One request and its curl handle.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cjson/cJSON.h>

#include "k8s/internal.h"
#include "k8s/json.h"

// A peer that vanished is noticed after KEEP_IDLE_S + USER_TIMEOUT_MS on an idle connection,
// and after USER_TIMEOUT_MS on one with unacknowledged bytes.
#define KEEP_IDLE_S     10L
#define KEEP_INTERVAL_S 5L
#define USER_TIMEOUT_MS 15000
// The API server closes what was idle for 90 s; what it has closed is noticed before it is
// used.
#define IDLE_MAX_S 300L

static void *must_have(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static char *copy(const char *text)
{
    return text ? must_have(strdup(text)) : NULL;
}

struct k8s_request *k8s_request_new(struct k8s *k8s, const struct k8s_call *call)
{
    struct k8s_request *request = must_have(calloc(1, sizeof(*request)));

    request->k8s = k8s;
    request->method = copy(call->method);
    request->path = copy(call->path);
    request->content_type = copy(call->content_type);
    request->body = copy(call->body);
    request->max_bytes = call->max_bytes ? call->max_bytes : K8S_ANSWER_MAX;
    request->timeout_ns = call->timeout_ns ? call->timeout_ns : k8s->timeout_ns;
    return request;
}

static void free_headers(struct k8s_request *request)
{
    for (struct curl_slist *line = request->headers; line; line = line->next)
        explicit_bzero(line->data, strlen(line->data)); // one of them holds the token
    curl_slist_free_all(request->headers);
    request->headers = NULL;
    curl_slist_free_all(request->resolve);
    request->resolve = NULL;
}

void k8s_request_free(struct k8s_request *request)
{
    curl_easy_cleanup(request->easy);
    free_headers(request);
    loop_timer_free(request->timer);
    loop_timer_free(request->deliver);
    buf_done(&request->answer);
    free(request->method);
    free(request->path);
    free(request->content_type);
    free(request->body);
    if (request->is_gone)
        *request->is_gone = true;
    free(request);
}

int k8s_request_status(const struct k8s_request *request)
{
    long status = 0;

    if (request->easy)
        (void)curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

// --- what curl calls back with; nothing here calls the user ---

// A connection is there, new or used before, and the request is about to be written.
static int on_sending(void *arg, char *peer_ip __attribute__((unused)),
                      char *own_ip __attribute__((unused)), int peer_port, int own_port)
{
    struct k8s_request *request = arg;

    (void)peer_port;
    (void)own_port;
    request->is_sent = true;
    return CURL_PREREQFUNC_OK;
}

static int on_socket(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    const int probes = 3;
    const unsigned user_timeout_ms = USER_TIMEOUT_MS;

    (void)arg;
    (void)purpose;
    // Without them the bounds of each request still hold.
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms,
                     sizeof(user_timeout_ms));
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return CURL_SOCKOPT_OK;
}

static bool is_stream_open(const struct k8s_request *request)
{
    return request->ops && k8s_request_status(request) == 200;
}

static bool is_end_of_header(const char *line, size_t len)
{
    return len == 2 && memcmp(line, "\r\n", 2) == 0;
}

static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
    struct k8s_request *request = arg;
    size_t len = size * count;

    if (!is_end_of_header(line, len) || !is_stream_open(request))
        return len;
    request->k8s->stats.answered_at = clock_now();
    loop_timer_arm(request->deliver, 0);
    loop_timer_arm(request->timer, request->silence_ns);
    return len;
}

// Keeps count of the line that has not ended; true if one has.
static bool count_lines(struct k8s_request *request, const char *data, size_t len)
{
    const char *last = memrchr(data, '\n', len);

    if (!last) {
        request->line_len += len;
        return false;
    }
    request->line_len = len - (size_t)(last + 1 - data);
    return true;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct k8s_request *request = arg;
    size_t len = size * count;

    request->k8s->stats.answered_at = clock_now();
    if (!is_stream_open(request))
        request->line_len += len;
    else if (count_lines(request, data, len)) {
        loop_timer_arm(request->deliver, 0);
        // Whole lines only: bytes that never end a line are silence too.
        loop_timer_arm(request->timer, request->silence_ns);
    }
    if (request->line_len > request->max_bytes) {
        request->is_too_long = true;
        return 0; // ends the transfer
    }
    buf_append(&request->answer, data, len);
    return len;
}

// --- options ---

static CURLcode set_method(struct k8s_request *request)
{
    CURL *easy = request->easy;
    CURLcode bad = CURLE_OK;

    if (strcmp(request->method, "GET") != 0)
        bad |= curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    if (!request->body)
        return bad;
    bad |= curl_easy_setopt(easy, CURLOPT_POST, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)strlen(request->body));
    bad |= curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body);
    return bad;
}

static CURLcode set_trust(struct k8s_request *request)
{
    const struct k8s *k8s = request->k8s;
    CURL *easy = request->easy;
    CURLcode bad = CURLE_OK;

    bad |= curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, k8s->server.is_tls ? "https" : "http");
    bad |= curl_easy_setopt(easy, CURLOPT_PROXY, ""); // whatever https_proxy says
    if (!k8s->server.is_tls)
        return bad;
    bad |= curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    bad |= curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    // The cluster's CA and no other; read from its file by each new connection, since the
    // kubelet replaces it: neither a cached store nor a resumed session may know better.
    bad |= curl_easy_setopt(easy, CURLOPT_CAINFO, k8s->ca_file);
    bad |= curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    bad |= curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, 0L);
    bad |= curl_easy_setopt(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L);
    return bad;
}

static CURLcode set_connection(struct k8s_request *request)
{
    CURL *easy = request->easy;
    CURLcode bad = CURLE_OK;

    bad |= curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket);
    bad |= curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, KEEP_IDLE_S);
    bad |= curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, KEEP_INTERVAL_S);
    bad |= curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, IDLE_MAX_S);
    if (!request->ops)
        return bad | curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    // A stream of its own needs nothing of HTTP/2, neither its windows nor its farewells.
    bad |= curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    bad |= curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    return bad;
}

static CURLcode set_callbacks(struct k8s_request *request)
{
    CURL *easy = request->easy;
    CURLcode bad = CURLE_OK;

    bad |= curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
    bad |= curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, request->curl_error);
    bad |= curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_sending);
    bad |= curl_easy_setopt(easy, CURLOPT_PREREQDATA, request);
    bad |= curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    bad |= curl_easy_setopt(easy, CURLOPT_HEADERDATA, request);
    bad |= curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    bad |= curl_easy_setopt(easy, CURLOPT_WRITEDATA, request);
    return bad;
}

static CURLcode set_url(struct k8s_request *request)
{
    struct k8s *k8s = request->k8s;
    struct buf url = {0};
    CURLcode bad = CURLE_OK;

    buf_printf(&url, "%s%s", k8s->server.base, request->path);
    bad |= curl_easy_setopt(request->easy, CURLOPT_URL, buf_str(&url)); // copies
    bad |= curl_easy_setopt(request->easy, CURLOPT_PATH_AS_IS, 1L);
    buf_done(&url);
    if (!k8s->addresses)
        return bad;
    request->resolve = must_have(curl_slist_append(NULL, k8s->addresses));
    return bad | curl_easy_setopt(request->easy, CURLOPT_RESOLVE, request->resolve);
}

static void add_header(struct k8s_request *request, const char *name, const char *value)
{
    struct buf line = {0};

    buf_reserve(&line, strlen(name) + strlen(value)); // so that no copy of a token is left
    buf_puts(&line, name);
    buf_puts(&line, value);
    request->headers = must_have(curl_slist_append(request->headers, line.data));
    explicit_bzero(line.data, line.len);
    buf_done(&line);
}

static void make_headers(struct k8s_request *request)
{
    free_headers(request);
    add_header(request, "Accept: ", "application/json");
    add_header(request, "User-Agent: ", "metafence/" METAFENCE_VERSION);
    if (request->content_type)
        add_header(request, "Content-Type: ", request->content_type);
    if (request->k8s->token.text)
        add_header(request, "Authorization: Bearer ", request->k8s->token.text);
}

int k8s_request_prepare(struct k8s_request *request, struct err *err)
{
    CURLcode bad = CURLE_OK;

    curl_easy_cleanup(request->easy);
    request->easy = curl_easy_init();
    if (!request->easy)
        return err_set(err, ERR_TRANSIENT, 0, "curl gives no handle");
    buf_clear(&request->answer);
    request->line_len = 0;
    request->is_sent = false;
    make_headers(request);
    bad |= set_url(request);
    bad |= set_method(request);
    bad |= set_trust(request);
    bad |= set_connection(request);
    bad |= set_callbacks(request);
    bad |= curl_easy_setopt(request->easy, CURLOPT_HTTPHEADER, request->headers);
    if (bad != CURLE_OK)
        return err_set(err, ERR_TRANSIENT, 0, "this curl can't do what is needed: %s",
                       curl_easy_strerror(bad));
    return 0;
}

// --- lines of a stream ---

static enum k8s_lines deliver_line(struct k8s_request *request, const char *line, size_t len,
                                   struct err *err)
{
    bool is_gone = false;
    cJSON *object = json_parse(line, len, err);

    if (!cJSON_IsObject(object)) {
        if (object)
            (void)err_set(err, ERR_INVALID, 0, "a line that is JSON, but no object");
        cJSON_Delete(object);
        return LINES_BAD;
    }
    request->is_gone = &is_gone;
    request->ops->on_line(object, request->arg);
    cJSON_Delete(object);
    if (is_gone)
        return LINES_GONE;
    request->is_gone = NULL;
    return LINES_OK;
}

static enum k8s_lines deliver_open(struct k8s_request *request)
{
    bool is_gone = false;

    if (request->is_open || !request->ops->on_open)
        return LINES_OK;
    request->is_open = true;
    request->is_gone = &is_gone;
    request->ops->on_open(request->arg);
    if (is_gone)
        return LINES_GONE;
    request->is_gone = NULL;
    return LINES_OK;
}

enum k8s_lines k8s_request_deliver(struct k8s_request *request, struct err *err)
{
    size_t at = 0;
    enum k8s_lines result = deliver_open(request);

    while (result == LINES_OK && at < request->answer.len) {
        const char *line = request->answer.data + at;
        const char *end = memchr(line, '\n', request->answer.len - at);

        if (!end)
            break;
        at += (size_t)(end + 1 - line);
        if (end == line || (end == line + 1 && *line == '\r'))
            continue; // empty
        result = deliver_line(request, line, (size_t)(end - line), err);
    }
    if (result != LINES_GONE)
        buf_consume(&request->answer, at);
    return result;
}
