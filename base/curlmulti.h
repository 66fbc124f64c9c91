// SPDX-License-Identifier: Apache-2.0
#pragma once
// curlmulti: one curl multi handle on the loop. It owns the handle, its connections and their
// watchers; easy handles stay the caller's. Invariant: an end of a transfer is reported from
// the loop only, never from inside a call of this header. curl's own callbacks (header, body)
// may run inside curlmulti_push: they take what came, and act on it later.

#include <curl/curl.h>

#include "base/err.h"
#include "base/loop.h"

struct curlmulti;

// A transfer has ended and is out of the multi handle already: the easy handle may be freed or
// added again, and other ones added or removed. Not for curlmulti_free.
typedef void curlmulti_done_fn(CURL *easy, CURLcode code, void *arg);

// Initializes curl with the first handle of the process. `arg` is borrowed. Errors: TRANSIENT.
must_check int curlmulti_new(struct loop *loop, curlmulti_done_fn *on_done, void *arg,
                             struct curlmulti **ret_curl, struct err *err);
// Closes all connections. No easy handle may be in it any more. Accepts NULL.
void curlmulti_free(struct curlmulti *curl);

// For options that are not set here (CURLMOPT_MAXCONNECTS). Borrowed.
CURLM *curlmulti_handle(struct curlmulti *curl);

// Begins a transfer in the next turn of the loop. Errors: TRANSIENT.
must_check int curlmulti_add(struct curlmulti *curl, CURL *easy, struct err *err);
// Lets curl do now what it can do without waiting: a transfer that was just added is on the
// wire when this returns, if a connection is open. Not from inside one of curl's callbacks.
void curlmulti_push(struct curlmulti *curl);
// Gives a transfer up without a report. Not from inside one of curl's callbacks.
void curlmulti_remove(struct curlmulti *curl, CURL *easy);
