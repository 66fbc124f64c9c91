// SPDX-License-Identifier: Apache-2.0
#pragma once
// internal: what client.c (whose requests run, and what became of them) and request.c (one
// request and its curl handle) share.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/curlmulti.h"
#include "base/resolve.h"
#include "k8s/client.h"
#include "k8s/server.h"
#include "k8s/token.h"

// A set of connections. The one for requests is left behind as soon as a request has timed out
// in it: over HTTP/2 curl would go on using a connection that is dead.
struct k8s_pool {
    struct k8s_pool *next; // retired ones
    struct k8s *k8s;
    struct curlmulti *curl;
    unsigned count; // transfers in it
};

struct k8s {
    struct loop *loop;
    struct k8s_server server;
    struct k8s_token token;
    char *ca_file; // NULL: none
    char *name_space;
    int64_t timeout_ns;
    struct k8s_pool *requests;
    struct k8s_pool *streams; // each stream has a connection of its own
    struct k8s_pool *retired;
    struct loop_timer *sweep; // frees retired pools that are empty
    struct k8s_request *first;
    struct resolver *resolver; // NULL for a server that is an address
    struct resolve_query *query;
    char *addresses; // CURLOPT_RESOLVE's line; NULL: not resolved yet
    struct instant resolved_at;
    struct k8s_stats stats;
};

struct k8s_request {
    struct k8s *k8s;
    struct k8s_request *prev;
    struct k8s_request *next;
    char *method;
    char *path;
    char *content_type;
    char *body;
    size_t max_bytes;
    int64_t timeout_ns;
    struct instant sent_at;
    k8s_result_fn *fn; // NULL for a stream
    void *arg;
    const struct k8s_stream_ops *ops; // of a stream
    int64_t silence_ns;
    CURL *easy;
    struct curl_slist *headers;
    struct curl_slist *resolve;
    struct k8s_pool *pool;      // NULL: in none
    struct loop_timer *timer;   // gives up, or ends what never began
    struct loop_timer *deliver; // lines of a stream, in the next turn
    struct buf answer;
    size_t line_len; // of the line of a stream that has not ended
    bool is_sent;    // a connection was there: from here on nobody knows
    bool is_too_long;
    bool is_open;      // on_open was called
    bool has_repeated; // after a 401
    bool has_failed;   // before it was in a pool: `early` says why
    struct err early;
    bool *is_gone; // set when the request is freed from inside its own callback
    char curl_error[CURL_ERROR_SIZE];
};

// --- request.c ---

struct k8s_request *k8s_request_new(struct k8s *k8s, const struct k8s_call *call);
// Not one that is in a pool or in a list.
void k8s_request_free(struct k8s_request *request);
// Creates the handle and its headers anew, with the token of now. Errors: TRANSIENT.
must_check int k8s_request_prepare(struct k8s_request *request, struct err *err);
int k8s_request_status(const struct k8s_request *request); // HTTP, 0: none yet
enum k8s_lines {
    LINES_OK,
    LINES_BAD,  // one was no JSON object, *err says so
    LINES_GONE, // the request was cancelled from inside its callback, and is freed
};
// Takes whole lines of a stream out of the buffer, each into on_line; before the first,
// on_open.
enum k8s_lines k8s_request_deliver(struct k8s_request *request, struct err *err);

// --- client.c ---

void k8s_client_on_done(CURL *easy, CURLcode code, void *arg); // arg: the pool
