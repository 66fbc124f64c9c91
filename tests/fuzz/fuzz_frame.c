// SPDX-License-Identifier: Apache-2.0
// What the port of a meta answers: header lines up to an empty line, then the body.
#include "agent/grpc/frame.h"
#include "tests/fuzz/fuzz.h"

static size_t feed_headers(struct grpc_reply *reply, const char *bytes, size_t size)
{
    size_t start = 0;

    while (start < size) {
        const char *end = memchr(bytes + start, '\n', size - start);
        size_t len = end ? (size_t)(end - (bytes + start)) + 1 : size - start;
        grpc_reply_header(reply, bytes + start, len);
        start += len;
        if (len == 1)
            break;
    }
    return start;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grpc_reply reply = {.http_status = 200, .grpc_status = GRPC_STATUS_MISSING};
    size_t start = feed_headers(&reply, (const char *)data, size);
    const uint8_t *message = NULL;
    size_t message_len = 0;
    struct err err = {0};
    int status = -1;
    enum grpc_answer answer;

    reply.body = data + start;
    reply.body_len = size - start;
    if (grpc_frame_message(reply.body, reply.body_len, &message, &message_len, &err) < 0)
        fuzz_check_refusal(&err);
    else
        assert(message_len + GRPC_FRAME_HEADER == reply.body_len);
    answer = grpc_judge_status(&reply, &status);
    assert(answer != GRPC_REFUSED);
    assert(answer != GRPC_LEADING || (reply.is_grpc && reply.grpc_status == GRPC_STATUS_OK));
    assert(answer == GRPC_LEADING || status == 0);
    return 0;
}
