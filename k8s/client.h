// SPDX-License-Identifier: Apache-2.0
#pragma once
// client: requests to one Kubernetes API server over curl's multi interface. Token and CA are
// files that the kubelet rotates: both are read again when they change, the token also at once
// on a 401. A request that is safe to repeat is repeated by its caller, who alone knows whether
// its wish is still the newest; the client only says what came of it. Invariants: no callback
// comes from inside a call of this header; exactly one for each request that was begun and not
// cancelled; memory is bounded by `max_bytes`. The process must ignore SIGPIPE.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"

struct k8s;
struct k8s_request;

struct k8s_config {
    const char *server;     // "https://10.96.0.1:443", IPv6 in brackets; http:// only in tests
    const char *token_file; // NULL: anonymous
    const char *ca_file;    // NULL: none (http)
    const char *name_space; // of our pod
    int64_t timeout_ns;     // of a whole request that is no watch
};

// Everything is copied. Errors: INVALID for a server that is no URL, or https without a CA
// file; TRANSIENT when curl gives no handle. A missing token or CA file is no error here: it is
// one of each request, until the file is there.
must_check int k8s_new(struct loop *loop, const struct k8s_config *config, struct k8s **ret_k8s,
                       struct err *err);
// Cancels everything without calling back. Accepts NULL. Not from inside a callback.
void k8s_free(struct k8s *k8s);

const char *k8s_namespace(const struct k8s *k8s);

// What became of a request, by what its sender may do about it.
enum k8s_outcome {
    K8S_OK = 0,
    K8S_NOT_SENT,  // no connection, no token: surely nothing has happened; try again
    K8S_UNKNOWN,   // sent and not answered: it may have happened
    K8S_BUSY,      // 408, 429, 5xx: try again, not before retry_after
    K8S_CONFLICT,  // 409: the object has changed, or is another, or is there already
    K8S_OWNED,     // 409: another field manager owns what was applied
    K8S_NOT_FOUND, // 404
    K8S_GONE,      // 410: the resourceVersion is too old
    K8S_DENIED,    // 401 with a fresh token, 403: rights or policy
    K8S_REFUSED,   // any other 4xx: the request itself is wrong (422: the uid is another's)
    K8S_GARBAGE,   // sent, but the answer is no JSON object, longer than max_bytes, a redirect
};

const char *k8s_outcome_name(enum k8s_outcome outcome);

struct cJSON;

struct k8s_result {
    enum k8s_outcome outcome;
    int http_status;          // 0: none
    int64_t retry_after_ns;   // 0: not said; at most K8S_RETRY_AFTER_MAX_NS
    const struct cJSON *body; // K8S_OK, and K8S_OWNED (a Status): a JSON object; borrowed
    struct err err;           // what is wrong, with the server's own message; never a token
    struct instant sent_at;
    struct instant received_at;
};

typedef void k8s_result_fn(const struct k8s_result *result, void *arg);

struct k8s_call {
    const char *method;       // "GET", "PATCH", "POST", "DELETE"
    const char *path;         // "/api/v1/namespaces/…?…", already escaped
    const char *content_type; // NULL without a body
    const char *body;         // copied
    size_t max_bytes;         // of the answer; 0: K8S_ANSWER_MAX
    int64_t timeout_ns;       // 0: the client's
};

#define K8S_ANSWER_MAX         ((size_t)4 << 20)
#define K8S_RETRY_AFTER_MAX_NS (600 * NS_PER_SEC)

// Begins a request; if a connection is open, it is on the wire when this returns. Never fails:
// what can't be sent calls back with K8S_NOT_SENT. The request is freed by its callback or by
// k8s_cancel. Two repeats happen by themselves: one after a 401, with the token of now; and by
// curl, on a new connection, when a used one breaks before the first byte of an answer. So what
// is sent must be safe to send twice (all of write.h is).
struct k8s_request *k8s_send(struct k8s *k8s, const struct k8s_call *call, k8s_result_fn *fn,
                             void *arg);
// No callback will come. What was sent may still happen. Accepts NULL; not for one that has
// called back.
void k8s_cancel(struct k8s_request *request);

// A request whose answer is a stream of JSON objects, one a line (a watch). Frames may be split
// anywhere.
struct k8s_stream_ops {
    void (*on_open)(void *arg); // the server said 200; NULL: not wanted
    void (*on_line)(const struct cJSON *object, void *arg); // borrowed for the call
    // The stream ended: outcome K8S_OK when the server closed it in good order. Called once,
    // last; the request is freed.
    void (*on_end)(const struct k8s_result *result, void *arg);
};
// `silence_ns`: ended as K8S_UNKNOWN when no whole line comes for so long. max_bytes bounds one
// line, timeout_ns the time until the server's 200. A stream has a connection of its own. `ops`
// is borrowed.
struct k8s_request *k8s_stream(struct k8s *k8s, const struct k8s_call *call, int64_t silence_ns,
                               const struct k8s_stream_ops *ops, void *arg);

// For metrics; all monotonic.
struct k8s_stats {
    uint64_t requests;
    uint64_t answers[K8S_GARBAGE + 1]; // by outcome
    uint64_t connects;
    uint64_t token_reads;
    struct instant token_read_at; // of the token in use
    struct instant answered_at;   // last answer or frame of any kind; ns 0: never
};
void k8s_get_stats(const struct k8s *k8s, struct k8s_stats *ret);
