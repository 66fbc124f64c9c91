// SPDX-License-Identifier: Apache-2.0
#pragma once
// log: logfmt lines of metafence-run on stderr, without allocation and without ever blocking:
// what a full pipe does not take is dropped and counted (dropped=N in the next line). Its own
// writer and not base/log, because it must work without heap, time zone or any lock.

#include <stddef.h>

enum fence_log_level { FENCE_LOG_INFO, FENCE_LOG_WARN, FENCE_LOG_ERROR };

// Opens a private, non-blocking description of stderr where the kernel allows it (pipes,
// terminals, files), so that meta's own stderr keeps its mode. Before PR_SET_DUMPABLE 0, which
// closes /proc/self/fd.
void fence_log_init(void);

// Writes `ts=… boot_ns=… level=… msg="…" ` and the pairs that fmt makes ("key=%s"). `msg` is a
// literal; free text among the pairs goes through fence_log_quote.
void fence_log(enum fence_log_level level, const char *msg, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// text in double quotes, with quotes, backslashes and control bytes escaped; cut to fit.
// Returns buf.
const char *fence_log_quote(const char *text, char *buf, size_t size);
