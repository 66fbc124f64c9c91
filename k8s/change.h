// SPDX-License-Identifier: Apache-2.0
#pragma once
// change: one line of a watch, taken apart, and the query that asks for a watch. Pure but for
// the spread of the time-out.

#include "base/buf.h"
#include "base/err.h"

struct cJSON;

enum k8s_change_kind {
    K8S_CHANGE_ADDED = 0,
    K8S_CHANGE_MODIFIED,
    K8S_CHANGE_DELETED,  // the object is its last state
    K8S_CHANGE_BOOKMARK, // only how far the stream is: the object is no object
};

struct k8s_change {
    enum k8s_change_kind kind;
    const struct cJSON *object; // borrowed
};

// Errors: CONFLICT for an ERROR event (410 and others, with its code and message), INVALID for
// all that is no event.
must_check int k8s_change_parse(const struct cJSON *line, struct k8s_change *ret,
                                struct err *err);

// "watch=true&…&resourceVersion=…&timeoutSeconds=…": the server ends a watch after so long,
// spread so that pods don't come back together.
void k8s_put_watch_query(struct buf *path, const char *version);
