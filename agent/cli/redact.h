// SPDX-License-Identifier: Apache-2.0
#pragma once
// redact: takes secrets out of a text that goes to others. Pure but for memory. Nothing of ours
// prints a secret: this is the second line, for what a person has put where it does not belong.

#include <stddef.h>

#include "base/buf.h"

#define REDACT_MARK  "[redacted]"
#define REDACT_MIN   6 // bytes; a shorter secret is a word that stands everywhere
#define REDACT_COUNT 8

// Secrets that are known, as they are and as they stand in JSON. Zeroed it has none.
struct redact {
    struct buf secrets[2 * REDACT_COUNT];
    size_t count;
};

// Copies `secret`; NULL, and one that is shorter than REDACT_MIN, are left out. At most
// REDACT_COUNT are kept.
void redact_add(struct redact *redact, const char *secret);
void redact_done(struct redact *redact);

// Replaces, in `text`, each secret, and what stands where one does: "password=…" and
// "passwd=…" of a connection string, "://user:…@" of a URL, "Bearer …".
void redact_text(const struct redact *redact, struct buf *text);
