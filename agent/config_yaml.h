// SPDX-License-Identifier: Apache-2.0
#pragma once
// config_yaml: walks the YAML of a configuration file and hands out its scalars with their
// place. It knows the allowed form (sections of scalars, nothing deeper, no lists, anchors,
// aliases, tags or second documents) but not the options. It goes on after a mistake where it
// can, so that the good rest of a broken file is still known; the first mistake is what it
// reports.

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define CONFIG_KEY_SIZE 96

// Where something stands, 1-based.
struct config_place {
    const char *file;
    int line;
    int column;
};

struct config_scalar {
    char key[CONFIG_KEY_SIZE]; // "timing.poll"; a longer key is cut, which no option is
    const char *value;         // borrowed, NUL-terminated, without NUL inside
    bool is_plain;             // written without quotes
    struct config_place key_place;
    struct config_place value_place;
};

struct config_yaml_visitor {
    // Called for each "key: value". Errors end up in the report, the walk goes on.
    int (*on_scalar)(const struct config_scalar *scalar, void *arg, struct err *err);
    // Called for each "key:" that holds a section; `key` is its full name.
    int (*on_section)(const char *key, const struct config_place *place, void *arg,
                      struct err *err);
    void *arg;
};

// Errors: INVALID, with file, line and column, for the first mistake of the file or of the
// visitor.
must_check int config_yaml_walk(const char *file, const char *bytes, size_t len,
                                const struct config_yaml_visitor *visitor, struct err *err);

// Sets INVALID "FILE:line:column: …", for the visitor's own findings. Returns -1.
int config_fault(struct err *err, const struct config_place *place, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Copies `text` for a message: at most size - 1 bytes, cut with "…", control bytes as '?'.
// Returns buf.
const char *config_quote(const char *text, char *buf, size_t size);
