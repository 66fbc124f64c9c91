// SPDX-License-Identifier: Apache-2.0
#pragma once
// httphead: parses the head of an HTTP/1.x request. Pure: bytes in, slices of them out, no
// copy. As strict as RFC 9112 allows: what two parsers could read differently is refused.

#include <stdbool.h>
#include <stddef.h>

// A slice of somebody else's bytes, not NUL-terminated. len 0: absent or empty.
struct httphead_text {
    const char *data;
    size_t len;
};

enum httphead_method { HTTPHEAD_GET = 0, HTTPHEAD_HEAD, HTTPHEAD_OPTIONS, HTTPHEAD_OTHER };

struct httphead {
    enum httphead_method method;
    struct httphead_text path;   // from the slash up to '?', as sent: not percent-decoded
    struct httphead_text query;  // behind the '?'
    struct httphead_text accept; // of the first Accept header
    bool is_persistent;          // the client takes more answers on this connection
    bool has_body;               // bytes follow that belong to this request
};

enum httphead_result {
    HTTPHEAD_PARTIAL = 0, // whole so far, the end has not come
    HTTPHEAD_WHOLE,
    HTTPHEAD_REFUSED,
};

// Looks for one whole head at the start of `bytes`. WHOLE: fills *ret, whose slices point into
// `bytes`, and *ret_len, the bytes up to the end of the head. REFUSED: *ret_status is the HTTP
// status to answer: 400 malformed, 431 too many headers, 501 a transfer coding, 505 another
// major version. A head without an end is PARTIAL whatever its size: bounding it is the
// caller's.
enum httphead_result httphead_parse(const char *bytes, size_t len, struct httphead *ret,
                                    size_t *ret_len, int *ret_status);

bool httphead_text_is(struct httphead_text text, const char *other);
// Compares without case: header names and tokens.
bool httphead_text_is_nocase(struct httphead_text text, const char *other);
