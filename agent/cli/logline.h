// SPDX-License-Identifier: Apache-2.0
#pragma once
// logline: a line of the agent's or metafence-run's log, taken apart. Pure.

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

// Borrowed bytes, not ended by a NUL.
struct logline_text {
    const char *data;
    size_t len;
};

enum logline_level { LOGLINE_DEBUG = 0, LOGLINE_INFO, LOGLINE_WARN, LOGLINE_ERROR };

struct logline {
    struct logline_text prefix; // what stood before it, like kubectl's "[pod/x/y] "
    struct logline_text time;   // "2026-11-30T13:49:36.123456Z"
    enum logline_level level;
    struct logline_text message; // as it stands there, perhaps in quotes
    struct logline_text pairs;   // key=value …, as they stand there
};

// Takes `line` apart, which has no newline; what is found points into it. False: it is no line
// of theirs. Then *ret is not written.
bool logline_parse(const char *line, size_t len, struct logline *ret);

// Appends a message without its quotes. Control bytes stay escaped: it goes to a terminal.
void logline_put_message(const struct logline_text *message, struct buf *out);
