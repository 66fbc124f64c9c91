// SPDX-License-Identifier: Apache-2.0
#include "agent/grpc/compute.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/grpc/h2c.h"
#include "base/buf.h"

// StreamingControlStreamRequest{init: {}} in its frame. Empty, since the field of term_id moved
// between versions.
static const char init_request[] = {0, 0, 0, 0, 2, 0x0a, 0};
static const char stats_request[GRPC_FRAME_HEADER] = {0};

static const char *const paths[] = {
    [COMPUTE_INIT] = "/stream_service.StreamService/StreamingControlStream",
    [COMPUTE_STATS] = "/monitor_service.MonitorService/GetStreamingStats",
};

struct grpc_compute_call {
    struct grpc_computes *computes;
    struct grpc_compute_call *next;
    struct grpc_compute_order order; // its address is not kept
    CURL *easy;
    int fd;          // of the newest connection; -1: none yet
    bool was_sent;   // bytes of an Init were handed to the kernel's side
    bool is_refused; // by may_send, or by time
    bool is_reset;   // InitResponse has come
    bool is_stirred; // something has come
    struct grpc_reply reply;
    struct buf body;
};

struct grpc_computes {
    struct loop *loop;
    struct curlmulti *curl;
    struct curl_slist *headers;
    struct loop_timer *stirring;
    struct grpc_compute_call *calls;
};

// --- curl's callbacks ---

// curl 7.88 does not look for what it has read of a stream together with something else while
// the request of that stream is paused: not before more comes, which may be never. The end of
// the pause makes it look, from outside of its callbacks only.
static void stir(struct grpc_compute_call *call)
{
    call->is_stirred = true;
    loop_timer_arm(call->computes->stirring, 0);
}

static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
    struct grpc_compute_call *call = arg;
    size_t len = size * count;

    grpc_reply_header(&call->reply, line, len);
    if (call->order.kind == COMPUTE_INIT)
        stir(call);
    return len;
}

static void set_linger(int fd, int is_on)
{
    const struct linger linger = {.l_onoff = is_on, .l_linger = 0};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

// The first message decides: an answer to a stream has no end of its own. Returns what curl
// wants to hear: 0 ends the call.
static size_t take_init(struct grpc_compute_call *call, const char *data, size_t len)
{
    size_t room = GRPC_BODY_MAX - call->body.len;
    const uint8_t *message = NULL;
    size_t message_len = 0;
    enum grpc_first first = GRPC_FIRST_MORE;

    buf_append(&call->body, data, len < room ? len : room);
    first = grpc_first_message((const uint8_t *)buf_str(&call->body), call->body.len, &message,
                               &message_len);
    if (first == GRPC_FIRST_MORE) {
        stir(call);
        return len;
    }
    call->is_reset = first == GRPC_FIRST_WHOLE && grpc_is_init_response(message, message_len);
    if (call->is_reset && call->fd >= 0)
        set_linger(call->fd, 0); // nothing is left to take back: an orderly end
    return 0;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct grpc_compute_call *call = arg;
    size_t len = size * count;

    if (call->order.kind == COMPUTE_INIT)
        return take_init(call, data, len);
    if (len > COMPUTE_STATS_MAX - call->body.len)
        return 0;
    buf_append(&call->body, data, len);
    return len;
}

// The last moment at which an Init can be held back. After it the stream stays open, without
// another byte.
static size_t on_read(char *data, size_t size, size_t count, void *arg)
{
    struct grpc_compute_call *call = arg;

    if (call->was_sent)
        return CURL_READFUNC_PAUSE;
    if (size * count < sizeof(init_request) ||
        instant_reached(clock_now(), call->order.deadline) ||
        !call->order.may_send(call->order.arg)) {
        call->is_refused = true;
        return CURL_READFUNC_ABORT;
    }
    memcpy(data, init_request, sizeof(init_request));
    call->was_sent = true;
    return sizeof(init_request);
}

// A connection that is closed early takes its unsent bytes with it: else the kernel would go on
// sending them, into a recovery that has long gone on.
static int on_socket(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    struct grpc_compute_call *call = arg;

    (void)purpose;
    call->fd = fd;
    set_linger(fd, 1);
    return CURL_SOCKOPT_OK;
}

// --- the end ---

static void unlink_call(struct grpc_compute_call *call)
{
    struct grpc_compute_call **at = &call->computes->calls;

    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
}

static void free_call(struct grpc_compute_call *call)
{
    curl_easy_cleanup(call->easy);
    buf_done(&call->body);
    free(call);
}

static void judge_failure(struct grpc_compute_call *call, CURLcode code,
                          struct grpc_compute_result *result)
{
    long os_errno = 0;
    bool nothing_left = call->order.kind == COMPUTE_INIT && !call->was_sent;

    (void)curl_easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &os_errno);
    if (nothing_left || (code == CURLE_COULDNT_CONNECT && os_errno == ECONNREFUSED))
        result->outcome = GRPC_CALL_NOT_SENT;
    (void)snprintf(result->detail, sizeof(result->detail), "%s",
                   call->is_refused ? "no longer allowed when it was about to leave"
                                    : curl_easy_strerror(code));
}

static void judge_reply(struct grpc_compute_call *call, struct grpc_compute_result *result)
{
    struct grpc_reply *reply = &call->reply;

    (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &reply->http_status);
    reply->body = (const uint8_t *)buf_str(&call->body);
    reply->body_len = call->body.len;
    result->outcome = grpc_judge_call(reply, &result->message, &result->len);
    if (call->order.kind == COMPUTE_INIT && result->outcome == GRPC_CALL_OK)
        result->outcome = GRPC_CALL_UNKNOWN; // it has ended without one
    if (result->outcome == GRPC_CALL_ERROR)
        result->code = reply->grpc_status;
    if (result->outcome != GRPC_CALL_OK)
        (void)snprintf(result->detail, sizeof(result->detail),
                       "HTTP %ld, grpc-status %d, %zu bytes: %.100s", reply->http_status,
                       reply->grpc_status, reply->body_len, reply->message);
}

static void on_done(CURL *easy, CURLcode code, void *arg)
{
    struct grpc_compute_call *call = NULL;
    struct grpc_compute_result result = {.outcome = GRPC_CALL_UNKNOWN};

    (void)arg;
    (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&call);
    result.kind = call->order.kind;
    if (call->is_reset)
        result.outcome = GRPC_CALL_OK;
    else if (code == CURLE_OK)
        judge_reply(call, &result);
    else if (code == CURLE_WRITE_ERROR)
        (void)snprintf(result.detail, sizeof(result.detail), "%s",
                       call->order.kind == COMPUTE_INIT ? "answered, but not by InitResponse"
                                                        : "the answer is too long");
    else
        judge_failure(call, code, &result);
    unlink_call(call);
    call->order.on_end(&result, call->order.arg);
    free_call(call);
}

static void on_stirring(void *arg)
{
    struct grpc_computes *computes = arg;
    struct grpc_compute_call *call = computes->calls;

    while (call && !call->is_stirred)
        call = call->next;
    if (!call)
        return;
    call->is_stirred = false;
    loop_timer_arm(computes->stirring, 0); // for the others: a report may change the list
    if (call->reply.grpc_status == GRPC_STATUS_MISSING) {
        (void)curl_easy_pause(call->easy, CURLPAUSE_CONT);
        return;
    }
    curlmulti_remove(computes->curl, call->easy);
    on_done(call->easy, CURLE_OK, computes);
}

// --- begin ---

static CURLcode set_request(struct grpc_compute_call *call)
{
    CURL *easy = call->easy;
    CURLcode bad = CURLE_OK;

    if (call->order.kind == COMPUTE_STATS) {
        bad |= curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)sizeof(stats_request));
        bad |= curl_easy_setopt(easy, CURLOPT_POSTFIELDS, stats_request);
        return bad;
    }
    bad |= curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, -1L);
    bad |= curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
    bad |= curl_easy_setopt(easy, CURLOPT_READDATA, call);
    bad |= curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket);
    bad |= curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, call);
    return bad;
}

static bool set_options(struct grpc_compute_call *call, const char *url, int64_t timeout_ns)
{
    CURL *easy = call->easy;
    CURLcode bad = h2c_set_options(easy, url, timeout_ns, call->computes->headers);

    bad |= set_request(call);
    bad |= curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    bad |= curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
    bad |= curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    bad |= curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    bad |= curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    return bad == CURLE_OK;
}

static int make_url(const struct grpc_compute_order *order, char *url, size_t size,
                    struct err *err)
{
    uint8_t binary[16];

    if (inet_pton(AF_INET, order->address, binary) == 1)
        (void)snprintf(url, size, "http://%s:%u%s", order->address, order->port,
                       paths[order->kind]);
    else if (inet_pton(AF_INET6, order->address, binary) == 1)
        (void)snprintf(url, size, "http://[%s]:%u%s", order->address, order->port,
                       paths[order->kind]);
    else
        return err_set(err, ERR_INVALID, 0, "\"%.64s\" is no IP address", order->address);
    return 0;
}

int grpc_compute_begin(struct grpc_computes *computes, const struct grpc_compute_order *order,
                       struct instant now, struct grpc_compute_call **ret_call, struct err *err)
{
    struct grpc_compute_call *call = NULL;
    char url[192];

    if (make_url(order, url, sizeof(url), err) < 0)
        return -1;
    if (instant_reached(now, order->deadline))
        return err_set(err, ERR_TRANSIENT, 0, "%s: its deadline has passed", order->address);
    if (!computes->curl &&
        curlmulti_new(computes->loop, on_done, computes, &computes->curl, err) < 0)
        return -1;
    call = calloc(1, sizeof(*call));
    if (!call)
        abort();
    *call = (struct grpc_compute_call){.computes = computes,
                                       .order = *order,
                                       .easy = curl_easy_init(),
                                       .fd = -1,
                                       .reply.grpc_status = GRPC_STATUS_MISSING};
    call->order.address = NULL;
    if (!call->easy || !set_options(call, url, instant_since(order->deadline, now))) {
        free_call(call);
        return err_set(err, ERR_TRANSIENT, 0, "curl gives no handle for h2c");
    }
    if (curlmulti_add(computes->curl, call->easy, err) < 0) {
        free_call(call);
        return err_wrap(err, "call of %s", order->address);
    }
    call->next = computes->calls;
    computes->calls = call;
    *ret_call = call;
    return 0;
}

void grpc_compute_cancel(struct grpc_compute_call *call)
{
    curlmulti_remove(call->computes->curl, call->easy);
    unlink_call(call);
    free_call(call);
}

struct grpc_computes *grpc_computes_new(struct loop *loop)
{
    // "Expect" would hold the Init back until a 100 that no gRPC server sends.
    static const char agent_line[] = "user-agent: metafence/" METAFENCE_VERSION;
    static const char *const lines[] = {"content-type: application/grpc", "te: trailers",
                                        agent_line, "expect:"};
    struct grpc_computes *computes = calloc(1, sizeof(*computes));

    if (!computes)
        abort();
    computes->loop = loop;
    computes->stirring = loop_timer_new(loop, on_stirring, computes);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        computes->headers = curl_slist_append(computes->headers, lines[i]);
        if (!computes->headers)
            abort();
    }
    return computes;
}

void grpc_computes_free(struct grpc_computes *computes)
{
    if (!computes)
        return;
    while (computes->calls)
        grpc_compute_cancel(computes->calls);
    curlmulti_free(computes->curl);
    loop_timer_free(computes->stirring);
    curl_slist_free_all(computes->headers);
    free(computes);
}
