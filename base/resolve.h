// SPDX-License-Identifier: Apache-2.0
#pragma once
// resolve: asynchronous host name look-up (evdns), one server per name. It keeps the last good
// answer and goes on giving it, marked stale, while the name servers are silent or say no: a
// resolver outage must not look like a database outage. Literal addresses and /etc/hosts are
// answered without a server.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"

#define RESOLVE_MAX_ADDRS 8
#define RESOLVE_ADDR_SIZE 46 // INET6_ADDRSTRLEN

struct resolver;
struct resolve_query;

struct resolve_config {
    const char *resolv_conf;  // NULL: /etc/resolv.conf; tests name their own
    const char *hosts;        // NULL: /etc/hosts
    int64_t query_timeout_ns; // of one try at one server; tries are two
};

struct resolve_answer {
    char addrs[RESOLVE_MAX_ADDRS][RESOLVE_ADDR_SIZE]; // numeric, in the order of the answer
    size_t count;                                     // at least one
    bool is_stale;        // the look-up failed, this is the last good answer
    struct instant since; // when this answer was last confirmed
};

// Exactly one of the two is set. `answer` is borrowed for the call. A stale answer comes with
// the error of the look-up that failed (`err` set as well).
typedef void resolve_fn(const struct resolve_answer *answer, const struct err *err, void *arg);

// Reads the files once. A missing resolv.conf leaves 127.0.0.1 as the server, as libc has it.
// Errors: TRANSIENT.
must_check int resolver_new(struct loop *loop, const struct resolve_config *config,
                            struct resolver **ret_resolver, struct err *err);
// Cancels all queries without calling back. Accepts NULL.
void resolver_free(struct resolver *resolver);

// Looks `host` up, for at most `timeout_ns`; while look-ups fail and an answer is kept, every
// other one for a quarter of it. Calls back from the loop, exactly once, never from
// inside this call; `host` is copied. The query is freed by its callback or by resolve_cancel.
// Error kinds in the callback: DENIED (no such name), TRANSIENT (no answer), INVALID (not a
// host name).
struct resolve_query *resolve_start(struct resolver *resolver, const char *host,
                                    int64_t timeout_ns, resolve_fn *fn, void *arg);
// No callback will come. Accepts NULL; not for a query that has called back.
void resolve_cancel(struct resolve_query *query);
