// SPDX-License-Identifier: Apache-2.0
#pragma once
// config_option: the one table of all options. Private to agent/config*.c.

#include <stddef.h>
#include <stdint.h>

enum option_type {
    OPTION_TEXT,
    OPTION_CHOICE,      // stored as an unsigned, the index in choices
    OPTION_CHOICE_TEXT, // stored as text
    OPTION_NUMBER,      // int64_t
    OPTION_DURATION,    // int64_t, nanoseconds
    OPTION_BOOL,
};

enum option_flag {
    OPTION_REQUIRED = 1U << 0, // text only
    OPTION_ABSOLUTE = 1U << 1, // a path that starts with /
    OPTION_NO_SPACE = 1U << 2,
    OPTION_TABLE = 1U << 3, // [schema.]table of plain identifiers
    // A pod may say otherwise, by an annotation that the chart puts into `env`. Only for what
    // nobody but this agent has to know, and where the file's own value is safe as well.
    OPTION_PER_POD = 1U << 4,
};

struct config_option {
    const char *key; // "section.name" or "name"
    enum option_type type;
    unsigned flags;       // enum option_flag
    const char *fallback; // as it would be written; NULL: empty text
    int64_t min;          // numbers and durations
    int64_t max;
    const char *choices; // "a|b|c"
    const char *env;     // overrides the file when set and not empty
    size_t offset;       // in struct config
    size_t size;         // of the field
    const char *doc;     // one line, no full stop
};

extern const struct config_option config_options[];
extern const size_t config_option_count;

// "metafence.io/log-level" of METAFENCE_LOG_LEVEL; returns buf. For OPTION_PER_POD alone.
char *config_annotation(const struct config_option *option, char *buf, size_t size);

// The key that `key` probably meant, or NULL when none is near.
const char *config_nearest(const char *key);
