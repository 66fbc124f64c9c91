// SPDX-License-Identifier: Apache-2.0
// What the leader's answers to our calls say: done, refused, or not known.
#include "tests/unit/unit.h"

#include <string.h>

#include "agent/grpc/calls.h"

static const uint8_t empty[] = {0, 0, 0, 0, 0};

static void test_outcomes(void **state)
{
    static const struct {
        long http;
        bool is_grpc;
        int status;
        size_t len;
        enum grpc_outcome outcome;
    } rows[] = {
        {200, true, 0, sizeof(empty), GRPC_CALL_OK},
        {200, true, 0, 0, GRPC_CALL_UNKNOWN}, // OK without its message
        {200, true, 0, 3, GRPC_CALL_UNKNOWN},
        {200, true, GRPC_STATUS_MISSING, sizeof(empty), GRPC_CALL_UNKNOWN},
        {200, false, 0, sizeof(empty), GRPC_CALL_UNKNOWN},
        {502, true, 0, sizeof(empty), GRPC_CALL_UNKNOWN},
        {200, true, 13, 0, GRPC_CALL_ERROR}, // INTERNAL: the handler has ended
        {200, true, 12, 0, GRPC_CALL_ERROR},
        {200, true, 1, 0, GRPC_CALL_UNKNOWN}, // somebody gave up waiting
        {200, true, 4, 0, GRPC_CALL_UNKNOWN},
        {200, true, 14, 0, GRPC_CALL_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct grpc_reply reply = {.http_status = rows[i].http,
                                         .is_grpc = rows[i].is_grpc,
                                         .grpc_status = rows[i].status,
                                         .body = empty,
                                         .body_len = rows[i].len};
        const uint8_t *message = NULL;
        size_t len = 0;

        if (grpc_judge_call(&reply, &message, &len) != rows[i].outcome)
            fail_msg("row %zu", i);
    }
}

static void test_actors(void **state)
{
    // Workers 3, 1, 3 and 0 (not said), with a field that is new, and one that is absent.
    static const uint8_t message[] = {0x0a, 6, 0x08, 9, 0x10, 2, 0x28, 3, 0x0a, 2,   0x28, 1,
                                      0x0a, 4, 0x28, 3, 0x30, 1, 0x0a, 2, 0x08, 0x05};
    uint32_t ids[4] = {0};
    struct grpc_workers workers = {.ids = ids, .room = 4, .count = 9};
    struct grpc_workers two = {.ids = ids, .room = 2, .count = 9};
    struct err err = {0};

    (void)state;
    assert_int_equal(grpc_actor_workers(message, sizeof(message), &workers, &err), 0);
    assert_int_equal(workers.count, 3);
    assert_true(ids[0] == 0 && ids[1] == 1 && ids[2] == 3);
    assert_int_equal(grpc_actor_workers(message, sizeof(message), &two, &err), -1);
    assert_int_equal(two.count, 9); // not touched
    assert_int_equal(grpc_actor_workers(message, 0, &workers, &err), 0);
    assert_int_equal(workers.count, 0);
    for (size_t cut = 1; cut < 8; cut++)
        assert_int_equal(grpc_actor_workers(message, cut, &workers, &err), -1);
}

static void test_messages(void **state)
{
    struct grpc_reply reply = {.grpc_status = GRPC_STATUS_MISSING};
    static const char line[] = "grpc-message: worker%20not\tfound!\r\n";

    (void)state;
    grpc_reply_header(&reply, line, sizeof(line) - 1);
    assert_string_equal(reply.message, "worker%20not?found!");
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(grpc_outcome_name(GRPC_CALL_NOT_SENT), "not sent");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_outcomes),
    cmocka_unit_test(test_actors),
    cmocka_unit_test(test_messages),
    cmocka_unit_test(test_names),
};

UNIT_MAIN(tests)
