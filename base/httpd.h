// SPDX-License-Identifier: Apache-2.0
#pragma once
// httpd: a small HTTP/1.1 server for probes and metrics. GET and HEAD, answered at once by one
// callback; OPTIONS says so, everything else is 405. Bodies of requests are never read into
// memory. Bounds: connections (a new one takes the place of the one that has waited for
// longest), bytes of a request's head, time for a request and its answer, time between
// requests. A client that exceeds one is closed; none can keep another waiting.

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/httphead.h"
#include "base/loop.h"

struct httpd;

struct httpd_answer {
    int status;               // 200, 404, 503, …; 200 when it begins
    const char *content_type; // literal; "text/plain; charset=utf-8" when it begins
    struct buf *body;         // empty when it begins; appended to
};

// Answers a GET or HEAD. The slices of `head` are borrowed for the call.
typedef void httpd_fn(const struct httphead *head, struct httpd_answer *answer, void *arg);

struct httpd_config {
    const char *address; // as listen_tcp; borrowed for the call
    uint16_t port;       // same; 0: any, see httpd_port
    unsigned max_conns;  // at least 1
    size_t max_head;     // bytes
    int64_t request_ns;  // from the connection, or a request's first byte, to its answer's end
    int64_t idle_ns;     // between two requests
    httpd_fn *fn;
    void *arg; // borrowed
};

// Listens. Errors: as listen_tcp.
must_check int httpd_new(struct loop *loop, const struct httpd_config *config,
                         struct httpd **ret_httpd, struct err *err);
// Closes all connections. Accepts NULL. Not from inside a callback.
void httpd_free(struct httpd *httpd);

uint16_t httpd_port(const struct httpd *httpd);
// Open connections, for tests.
unsigned httpd_conns(const struct httpd *httpd);
