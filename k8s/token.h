// SPDX-License-Identifier: Apache-2.0
#pragma once
// token: the service account's token, a file that the kubelet replaces. Read again when the
// file is another one, and at the latest after a minute; a file that can't be read leaves the
// token that we have. The text is wiped when it is replaced and appears in no error.

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"

#define K8S_TOKEN_MAX 16384 // bytes

// Zeroed: no file, no token.
struct k8s_token {
    char *path; // owned
    char *text; // owned; NULL until the first good read
    uint64_t inode;
    struct timespec changed_at; // mtime of the file, compared for equality only
    struct instant read_at;     // of `text`
    struct instant tried_at;
    uint64_t reads; // that gave a token
};

// `path` is copied.
void k8s_token_init(struct k8s_token *token, const char *path);
void k8s_token_done(struct k8s_token *token);

// Reads the file if it is due, or in any case with `force`. Errors: TRANSIENT (no file, empty,
// too long, not a token), the message names the file; token->text is then what it was. Blocks
// as long as a read from a local file does.
must_check int k8s_token_refresh(struct k8s_token *token, struct instant now, bool force,
                                 struct err *err);
