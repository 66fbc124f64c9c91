// SPDX-License-Identifier: Apache-2.0
#pragma once
// control: the agent's local socket. A client sends one JSON object a line, {"cmd":"status"},
// and gets one JSON object a line back. Only root and the agent's own user are let in. Parsing
// is a pure function.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/loop.h"

#define CONTROL_REASON_SIZE  201
#define CONTROL_LINE_MAX     4096                          // bytes of a request
#define CONTROL_PAUSE_MIN_NS INT64_C(1000000000)           // 1 s
#define CONTROL_PAUSE_MAX_NS (INT64_C(86400) * 1000000000) // 24 h
#define CONTROL_WAIT_MAX_NS  (INT64_C(3600) * 1000000000)  // 1 h
#define CONTROL_WAIT_NS      (INT64_C(60) * 1000000000)    // default

enum control_command {
    CONTROL_STATUS = 0,
    CONTROL_FENCE,
    CONTROL_UNFENCE,
    CONTROL_PAUSE,
    CONTROL_RESUME,
    CONTROL_RECONCILE, // a pass now
    CONTROL_REPORT,    // what the last pass has found
    CONTROL_RECOVER,   // wait for pending drops, then a global recovery
    CONTROL_HANDOVER,  // … then the fence of a leader, and another one leads
    CONTROL_METRICS,   // as Prometheus gets them
    CONTROL_CONFIG,    // what it runs on
};

struct control_request {
    enum control_command command;
    char reason[CONTROL_REASON_SIZE]; // printable, "" when none was given
    int64_t pause_ns;                 // for CONTROL_PAUSE
    int64_t wait_ns;                  // for CONTROL_RECOVER and CONTROL_HANDOVER
    bool is_dry;                      // for CONTROL_RECONCILE
    uid_t peer_uid;
};

const char *control_command_name(enum control_command command);

// {"cmd":"status"|"fence"|"unfence"|"pause"|"resume"|"reconcile"|"report"|"recover"|"handover"|
// "metrics"|"config", "reason":"…", "for":"30m", "wait":"60s", "dry":true}; "for" belongs to
// pause alone, which needs it, "wait" to recover and handover, and "dry" to reconcile. Unknown
// members are refused: a typo must not turn into something else. Errors: INVALID, saying what
// is wrong and how to write it.
must_check int control_parse(const char *line, size_t len, struct control_request *ret,
                             struct err *err);

// Answers a valid request: appends one JSON object without newline.
typedef void control_fn(const struct control_request *request, struct buf *answer, void *arg);

struct control;

struct control_config {
    const char *path; // of the socket; copied
    control_fn *fn;
    void *arg; // borrowed
};

// Listens on `config->path`. Requests that can't be parsed are answered
// {"ok":false,"error":"…"} here. Errors: as lines_server_new.
must_check int control_new(struct loop *loop, const struct control_config *config,
                           struct control **ret_control, struct err *err);
// Accepts NULL. Not from inside a callback.
void control_free(struct control *control);
