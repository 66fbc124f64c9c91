// SPDX-License-Identifier: Apache-2.0
#pragma once
// frame: what the bytes of a unary gRPC answer mean, as pure functions. Anything that is not
// exactly one well-formed answer is GRPC_UNKNOWN: garbage from the port of a meta is no
// evidence of anything.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define GRPC_FRAME_HEADER 5     // compressed flag, 4 bytes of length
#define GRPC_BODY_MAX     65536 // bytes; the answer that we ask for has 2

#define GRPC_STATUS_MISSING       (-1)
#define GRPC_STATUS_OK            0
#define GRPC_STATUS_UNIMPLEMENTED 12

enum grpc_answer {
    GRPC_UNKNOWN = 0, // no answer, or garbage
    GRPC_LEADING,     // GetClusterRecoveryStatus answered OK
    GRPC_FOLLOWING,   // UNIMPLEMENTED
    GRPC_REFUSED,     // nobody listens
};

// Everything of an answer that its judgement needs.
struct grpc_reply {
    long http_status;
    bool is_grpc;        // content-type application/grpc, with or without a suffix
    int grpc_status;     // from headers or trailers; GRPC_STATUS_MISSING
    const uint8_t *body; // borrowed
    size_t body_len;
    char message[112]; // grpc-message, for people; as it came, cut, printable
};

// Takes one header or trailer line, as received ("name: value\r\n"), into the reply. Lines of
// other names and malformed ones are ignored; a status that is no number in 0..16 counts as
// missing, and a second status as well: an answer that contradicts itself is no answer.
void grpc_reply_header(struct grpc_reply *reply, const char *line, size_t len);

// Finds the message in a unary body: exactly one frame, not compressed, nothing behind it.
// Errors: INVALID.
must_check int grpc_frame_message(const uint8_t *body, size_t len, const uint8_t **ret_message,
                                  size_t *ret_len, struct err *err);

// What the answer to GetClusterRecoveryStatus says. *ret_status is the RecoveryStatus (0 unless
// GRPC_LEADING). Never GRPC_REFUSED, which is the connection's to say.
enum grpc_answer grpc_judge_status(const struct grpc_reply *reply, int *ret_status);
