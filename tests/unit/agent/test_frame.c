// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <string.h>

#include "agent/grpc/frame.h"

#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

static const struct {
    const char *name;
    const uint8_t *body;
    size_t len;
    int want; // length of the message, -1: refused
} frames[] = {
    {"empty body", BYTES(""), -1},
    {"cut header", BYTES("\0\0\0\0"), -1},
    {"empty message", BYTES("\0\0\0\0\0"), 0},
    {"two bytes", BYTES("\0\0\0\0\2\x08\x03"), 2},
    {"one byte short", BYTES("\0\0\0\0\2\x08"), -1},
    {"one byte more", BYTES("\0\0\0\0\2\x08\x03\0"), -1},
    {"two frames", BYTES("\0\0\0\0\0\0\0\0\0\0"), -1},
    {"compressed", BYTES("\1\0\0\0\2\x08\x03"), -1},
    {"unknown flag", BYTES("\x80\0\0\0\2\x08\x03"), -1},
    {"huge length", BYTES("\0\xff\xff\xff\xff\x08\x03"), -1},
    {"length with the sign bit", BYTES("\0\x80\0\0\2\x08\x03"), -1},
};

static void check_frame(const char *name, const uint8_t *body, size_t body_len, int want)
{
    const uint8_t *message = NULL;
    size_t len = 0;
    struct err err = {0};
    int r = grpc_frame_message(body, body_len, &message, &len, &err);

    if ((r == 0) != (want >= 0))
        fail_msg("%s: %d %s", name, r, err.msg);
    if (want < 0) {
        assert_int_equal(err.kind, ERR_INVALID);
        assert_true(strlen(err.msg) > 0);
        return;
    }
    assert_int_equal(len, want);
    assert_ptr_equal(message, body + GRPC_FRAME_HEADER);
}

static void test_frame_message(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++)
        check_frame(frames[i].name, frames[i].body, frames[i].len, frames[i].want);
}

// Header lines as curl hands them out, then the body.
static const struct {
    const char *name;
    long http;
    const char *lines[4];
    const uint8_t *body;
    size_t len;
    enum grpc_answer want;
    int status;
} answers[] = {
    {"running",
     200,
     {"content-type: application/grpc\r\n", "grpc-status: 0\r\n"},
     BYTES("\0\0\0\0\2\x08\x03"),
     GRPC_LEADING,
     3},
    {"starting, proto suffix, no blank",
     200,
     {"Content-Type:application/grpc+proto\r\n", "Grpc-Status:0\r\n"},
     BYTES("\0\0\0\0\2\x08\x01"),
     GRPC_LEADING,
     1},
    {"empty message is status 0",
     200,
     {"content-type: application/grpc", "grpc-status: 0"},
     BYTES("\0\0\0\0\0"),
     GRPC_LEADING,
     0},
    {"unknown field",
     200,
     {"content-type: application/grpc", "grpc-status: 0"},
     BYTES("\0\0\0\0\4\x08\x02\x78\x01"),
     GRPC_LEADING,
     2},
    {"unimplemented, trailers only",
     200,
     {"content-type: application/grpc\r\n", "grpc-status: 12\r\n"},
     BYTES(""),
     GRPC_FOLLOWING,
     0},
    {"other status",
     200,
     {"content-type: application/grpc", "grpc-status: 14"},
     BYTES(""),
     GRPC_UNKNOWN,
     0},
    {"no status",
     200,
     {"content-type: application/grpc"},
     BYTES("\0\0\0\0\2\x08\x03"),
     GRPC_UNKNOWN,
     0},
    {"empty status",
     200,
     {"content-type: application/grpc", "grpc-status: \r\n"},
     BYTES("\0\0\0\0\2\x08\x03"),
     GRPC_UNKNOWN,
     0},
    {"status 99",
     200,
     {"content-type: application/grpc", "grpc-status: 99"},
     BYTES(""),
     GRPC_UNKNOWN,
     0},
    {"status 000",
     200,
     {"content-type: application/grpc", "grpc-status: 000"},
     BYTES("\0\0\0\0\2\x08\x03"),
     GRPC_UNKNOWN,
     0},
    {"status -1",
     200,
     {"content-type: application/grpc", "grpc-status: -1"},
     BYTES("\0\0\0\0\2\x08\x03"),
     GRPC_UNKNOWN,
     0},
    {"two statuses",
     200,
     {"content-type: application/grpc", "grpc-status: 0", "grpc-status: 12"},
     BYTES("\0\0\0\0\2\x08\x03"),
     GRPC_UNKNOWN,
     0},
    {"a garbled status, then one",
     200,
     {"content-type: application/grpc", "grpc-status: x", "grpc-status: 12"},
     BYTES(""),
     GRPC_FOLLOWING,
     0},
    {"an HTML page",
     200,
     {"content-type: text/html", "grpc-status: 12"},
     BYTES("<html>"),
     GRPC_UNKNOWN,
     0},
    {"a longer type",
     200,
     {"content-type: application/grpcx", "grpc-status: 12"},
     BYTES(""),
     GRPC_UNKNOWN,
     0},
    {"no type", 200, {"grpc-status: 12"}, BYTES(""), GRPC_UNKNOWN, 0},
    {"HTTP 503",
     503,
     {"content-type: application/grpc", "grpc-status: 12"},
     BYTES(""),
     GRPC_UNKNOWN,
     0},
    {"truncated varint",
     200,
     {"content-type: application/grpc", "grpc-status: 0"},
     BYTES("\0\0\0\0\2\x08\xff"),
     GRPC_UNKNOWN,
     0},
    {"length beyond the message",
     200,
     {"content-type: application/grpc", "grpc-status: 0"},
     BYTES("\0\0\0\0\3\x12\x7f\x00"),
     GRPC_UNKNOWN,
     0},
    {"cut frame",
     200,
     {"content-type: application/grpc", "grpc-status: 0"},
     BYTES("\0\0\0\0\xff\x08\x03"),
     GRPC_UNKNOWN,
     0},
};

static void test_judge_status(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct grpc_reply reply = {.http_status = answers[i].http,
                                   .grpc_status = GRPC_STATUS_MISSING,
                                   .body = answers[i].body,
                                   .body_len = answers[i].len};
        int status = -1;
        enum grpc_answer got = GRPC_UNKNOWN;

        for (size_t j = 0; j < 4 && answers[i].lines[j]; j++)
            grpc_reply_header(&reply, answers[i].lines[j], strlen(answers[i].lines[j]));
        got = grpc_judge_status(&reply, &status);
        if (got != answers[i].want || status != answers[i].status)
            fail_msg("%s: answer %d status %d", answers[i].name, (int)got, status);
    }
}

// Every single-byte change and every cut of a good answer, and random bytes: never a crash, and
// GRPC_LEADING only for something that is still a well-formed frame.
static void test_mutations(void **state)
{
    static const uint8_t good[] = {0, 0, 0, 0, 2, 0x08, 0x03};
    uint32_t random = 12345;

    (void)state;
    for (size_t i = 0; i < sizeof(good) * 256; i++) {
        uint8_t body[sizeof(good)];
        struct grpc_reply reply = {200, true, GRPC_STATUS_OK, body, sizeof(body), ""};
        int status = 0;
        enum grpc_answer got = GRPC_UNKNOWN;

        memcpy(body, good, sizeof(good));
        body[i / 256] = (uint8_t)i;
        got = grpc_judge_status(&reply, &status);
        if (i / 256 < GRPC_FRAME_HEADER && body[i / 256] != good[i / 256])
            assert_int_equal(got, GRPC_UNKNOWN);
        reply.body_len = i % sizeof(good);
        assert_int_equal(grpc_judge_status(&reply, &status), GRPC_UNKNOWN);
    }
    for (int i = 0; i < 20000; i++) {
        uint8_t body[64];
        struct grpc_reply reply = {200, true, GRPC_STATUS_OK, body, 0, ""};
        int status = 0;

        for (size_t j = 0; j < sizeof(body); j++) {
            random = random * 1664525U + 1013904223U;
            body[j] = (uint8_t)(random >> 24);
        }
        reply.body_len = 5 + random % 40;
        memset(body, 0, 4);
        body[4] = (uint8_t)(reply.body_len - 5);
        (void)grpc_judge_status(&reply, &status); // the sanitizers judge
        grpc_reply_header(&reply, (const char *)body, sizeof(body));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_frame_message),
    cmocka_unit_test(test_judge_status),
    cmocka_unit_test(test_mutations),
};

UNIT_MAIN(tests)
