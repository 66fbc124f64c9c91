// SPDX-License-Identifier: Apache-2.0
// Which requests run, over which connections, and what became of them.
#include "k8s/client.h"

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/answer.h"
#include "k8s/internal.h"
#include "k8s/pool.h"

#define RESOLVE_AGAIN_NS (30 * NS_PER_SEC)

static void begin(struct k8s_request *request);

// --- life of a client ---

static char *copy(const char *text)
{
    char *result = text ? strdup(text) : NULL;

    if (text && !result)
        abort();
    return result;
}

static int set_up(struct k8s *k8s, const struct k8s_config *config, struct err *err)
{
    struct resolve_config names = {.query_timeout_ns = config->timeout_ns / 2};

    if (k8s_server_parse(config->server, &k8s->server, err) < 0)
        return -1;
    if (k8s->server.is_tls && !k8s->ca_file)
        return err_set(err, ERR_INVALID, 0,
                       "https to %s needs a CA file: set kubernetes.caFile", k8s->server.base);
    if (k8s->server.is_name && resolver_new(k8s->loop, &names, &k8s->resolver, err) < 0)
        return -1;
    if (k8s_pool_new(k8s, &k8s->requests, err) < 0 || k8s_pool_new(k8s, &k8s->streams, err) < 0)
        return -1;
    return 0;
}

int k8s_new(struct loop *loop, const struct k8s_config *config, struct k8s **ret_k8s,
            struct err *err)
{
    struct k8s *k8s = calloc(1, sizeof(*k8s));

    if (!k8s)
        abort();
    k8s->loop = loop;
    k8s->ca_file = copy(config->ca_file);
    k8s->name_space = copy(config->name_space);
    k8s->timeout_ns = config->timeout_ns;
    k8s->sweep = loop_timer_new(loop, k8s_pools_sweep, k8s);
    if (config->token_file)
        k8s_token_init(&k8s->token, config->token_file);
    if (set_up(k8s, config, err) < 0) {
        k8s_free(k8s);
        return -1;
    }
    *ret_k8s = k8s;
    return 0;
}

static void unlink_request(struct k8s_request *request)
{
    if (request->prev)
        request->prev->next = request->next;
    else
        request->k8s->first = request->next;
    if (request->next)
        request->next->prev = request->prev;
}

void k8s_free(struct k8s *k8s)
{
    if (!k8s)
        return;
    while (k8s->first)
        k8s_cancel(k8s->first);
    resolve_cancel(k8s->query);
    resolver_free(k8s->resolver);
    k8s_pools_sweep(k8s);
    k8s_pool_free(k8s->requests);
    k8s_pool_free(k8s->streams);
    loop_timer_free(k8s->sweep);
    k8s_token_done(&k8s->token);
    k8s_server_done(&k8s->server);
    free(k8s->addresses);
    free(k8s->ca_file);
    free(k8s->name_space);
    free(k8s);
}

const char *k8s_namespace(const struct k8s *k8s)
{
    return k8s->name_space;
}

void k8s_get_stats(const struct k8s *k8s, struct k8s_stats *ret)
{
    *ret = k8s->stats;
    ret->token_reads = k8s->token.reads;
    ret->token_read_at = k8s->token.read_at;
}

// --- the end of a request ---

static void report(struct k8s_request *request, struct k8s_result *result)
{
    struct k8s *k8s = request->k8s;
    const struct k8s_stream_ops *ops = request->ops;
    k8s_result_fn *fn = ops ? ops->on_end : request->fn;
    void *arg = request->arg;

    result->sent_at = request->sent_at;
    result->received_at = clock_now();
    if (result->http_status != 0)
        k8s->stats.answered_at = result->received_at;
    k8s->stats.answers[result->outcome]++;
    unlink_request(request);
    k8s_request_free(request);
    fn(result, arg);
}

static void fail(struct k8s_request *request, enum k8s_outcome outcome, const char *why)
{
    struct k8s_result result = {.outcome = outcome, .http_status = k8s_request_status(request)};

    (void)err_set(&result.err, k8s_outcome_err(outcome), 0, "%s %.*s: %.160s", request->method,
                  (int)strcspn(request->path, "?"), request->path, why);
    report(request, &result);
}

// Ended without a whole answer.
static void end_broken(struct k8s_request *request, CURLcode code)
{
    enum k8s_outcome outcome = request->is_sent ? K8S_UNKNOWN : K8S_NOT_SENT;

    if (request->is_too_long) {
        fail(request, K8S_GARBAGE, "the answer is too long");
        return;
    }
    fail(request, outcome,
         request->curl_error[0] ? request->curl_error : curl_easy_strerror(code));
}

static int64_t retry_after(const struct k8s_request *request)
{
    curl_off_t seconds = 0;

    (void)curl_easy_getinfo(request->easy, CURLINFO_RETRY_AFTER, &seconds);
    if (seconds > K8S_RETRY_AFTER_MAX_NS / NS_PER_SEC)
        return K8S_RETRY_AFTER_MAX_NS;
    return seconds * NS_PER_SEC;
}

static void end_answered(struct k8s_request *request)
{
    struct k8s_result result = {.http_status = k8s_request_status(request)};
    struct k8s_answer answer = {
        .http_status = result.http_status,
        .method = request->method,
        .path = request->path,
        .body = buf_str(&request->answer),
        .len = request->answer.len,
    };
    cJSON *object = NULL;

    result.retry_after_ns = retry_after(request);
    result.outcome = k8s_answer_judge(&answer, &object, &result.err);
    result.body = object;
    report(request, &result);
    cJSON_Delete(object);
}

static void end_stream(struct k8s_request *request)
{
    struct k8s_result result = {.outcome = K8S_OK, .http_status = 200};

    if (request->answer.len > 0) {
        fail(request, K8S_UNKNOWN, "the stream ended in the middle of a line");
        return;
    }
    report(request, &result);
}

// --- lines of a stream ---

static void leave_pool(struct k8s_request *request)
{
    if (!request->pool)
        return;
    curlmulti_remove(request->pool->curl, request->easy);
    k8s_pool_left(request);
}

// Returns false when the request is no more.
static bool deliver(struct k8s_request *request)
{
    struct err err = {0};
    enum k8s_lines result = LINES_OK;

    if (k8s_request_status(request) == 200)
        result = k8s_request_deliver(request, &err);
    if (result == LINES_BAD) {
        leave_pool(request);
        fail(request, K8S_GARBAGE, err.msg);
    }
    return result == LINES_OK;
}

static void on_lines(void *arg)
{
    (void)deliver(arg);
}

// --- running ---

// A 401 is answered by the token of now, once. True: it runs again.
static bool repeat(struct k8s_request *request)
{
    struct k8s *k8s = request->k8s;
    struct err err = {0};

    if (k8s_request_status(request) != 401 || request->has_repeated || !k8s->token.path ||
        k8s_token_refresh(&k8s->token, clock_now(), true, &err) < 0)
        return false;
    request->has_repeated = true;
    begin(request);
    return true;
}

static void count_connects(struct k8s_request *request)
{
    long connects = 0;

    (void)curl_easy_getinfo(request->easy, CURLINFO_NUM_CONNECTS, &connects);
    request->k8s->stats.connects += (uint64_t)connects;
}

void k8s_client_on_done(CURL *easy, CURLcode code, void *arg)
{
    struct k8s_request *request = NULL;
    struct k8s_pool *pool = arg;

    (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&request);
    k8s_pool_left(request);
    count_connects(request);
    if (code != CURLE_OK && request->is_sent && !request->ops)
        k8s_pool_retire(pool);
    if (request->ops && !deliver(request))
        return;
    if (code != CURLE_OK)
        end_broken(request, code);
    else if (repeat(request))
        return;
    else if (request->ops && k8s_request_status(request) == 200)
        end_stream(request);
    else
        end_answered(request);
}

// It calls back from the next turn of the loop.
static void fail_later(struct k8s_request *request, const struct err *err)
{
    request->has_failed = true;
    request->early = *err;
    loop_timer_arm(request->timer, 0);
}

static void begin(struct k8s_request *request)
{
    struct k8s *k8s = request->k8s;
    struct err err = {0};
    struct k8s_pool *pool = request->ops ? k8s->streams : k8s->requests;

    if (k8s_request_prepare(request, &err) < 0 ||
        curlmulti_add(pool->curl, request->easy, &err) < 0) {
        fail_later(request, &err);
        return;
    }
    request->pool = pool;
    pool->count++;
    curlmulti_push(pool->curl);
}

static void give_up(struct k8s_request *request)
{
    struct k8s_pool *pool = request->pool;
    enum k8s_outcome outcome = request->is_sent ? K8S_UNKNOWN : K8S_NOT_SENT;

    leave_pool(request);
    if (request->ops && k8s_request_status(request) == 200) {
        fail(request, outcome, "the stream is silent");
        return;
    }
    if (pool && request->is_sent && !request->ops)
        k8s_pool_retire(pool);
    fail(request, outcome, request->is_sent ? "no answer in time" : "no connection in time");
}

static void on_timer(void *arg)
{
    struct k8s_request *request = arg;

    if (request->has_failed)
        fail(request, K8S_NOT_SENT, request->early.msg);
    else
        give_up(request);
}

// --- the server's name ---

static void set_addresses(struct k8s *k8s, const struct resolve_answer *answer)
{
    struct buf line = {0};

    buf_printf(&line, "%s:%s:", k8s->server.host, k8s->server.port);
    for (size_t i = 0; i < answer->count; i++) {
        bool is_ipv6 = strchr(answer->addrs[i], ':') != NULL;

        buf_printf(&line, "%s%s%s%s", i ? "," : "", is_ipv6 ? "[" : "", answer->addrs[i],
                   is_ipv6 ? "]" : "");
    }
    free(k8s->addresses);
    k8s->addresses = copy(line.data);
    buf_done(&line);
}

static void on_resolved(const struct resolve_answer *answer, const struct err *err, void *arg)
{
    struct k8s *k8s = arg;
    struct k8s_request *next = NULL;

    k8s->query = NULL;
    k8s->resolved_at = clock_now(); // or tried: not again for each request
    if (answer)
        set_addresses(k8s, answer);
    for (struct k8s_request *request = k8s->first; request; request = next) {
        next = request->next;
        if (request->pool || request->has_failed)
            continue;
        if (k8s->addresses)
            begin(request);
        else
            fail_later(request, err);
    }
}

// True if there are addresses to go on with.
static bool has_addresses(struct k8s *k8s)
{
    struct instant now = clock_now();
    bool is_old = !k8s->addresses || instant_since(now, k8s->resolved_at) > RESOLVE_AGAIN_NS;

    if (!k8s->resolver)
        return true;
    if (is_old && !k8s->query)
        k8s->query =
            resolve_start(k8s->resolver, k8s->server.host, k8s->timeout_ns, on_resolved, k8s);
    return k8s->addresses != NULL;
}

// --- what callers use ---

static void start(struct k8s_request *request)
{
    struct k8s *k8s = request->k8s;
    struct err err = {0};

    request->sent_at = clock_now();
    request->next = k8s->first;
    if (k8s->first)
        k8s->first->prev = request;
    k8s->first = request;
    k8s->stats.requests++;
    request->timer = loop_timer_new(k8s->loop, on_timer, request);
    loop_timer_arm(request->timer, request->timeout_ns);
    if (k8s_token_refresh(&k8s->token, request->sent_at, false, &err) < 0 && !k8s->token.text) {
        fail_later(request, &err);
        return;
    }
    if (has_addresses(k8s))
        begin(request);
}

struct k8s_request *k8s_send(struct k8s *k8s, const struct k8s_call *call, k8s_result_fn *fn,
                             void *arg)
{
    struct k8s_request *request = k8s_request_new(k8s, call);

    request->fn = fn;
    request->arg = arg;
    start(request);
    return request;
}

struct k8s_request *k8s_stream(struct k8s *k8s, const struct k8s_call *call, int64_t silence_ns,
                               const struct k8s_stream_ops *ops, void *arg)
{
    struct k8s_request *request = k8s_request_new(k8s, call);

    request->ops = ops;
    request->arg = arg;
    request->silence_ns = silence_ns;
    request->deliver = loop_timer_new(k8s->loop, on_lines, request);
    start(request);
    return request;
}

void k8s_cancel(struct k8s_request *request)
{
    if (!request)
        return;
    leave_pool(request);
    unlink_request(request);
    k8s_request_free(request);
}
