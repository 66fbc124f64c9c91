// SPDX-License-Identifier: Apache-2.0
// What the port of a compute node answers: a control stream's first message, statistics.
#include "agent/grpc/compute.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t ids[] = {0, 1, 7, 127, 128, 300, UINT32_MAX};
    const struct grpc_fragments all = {ids, sizeof(ids) / sizeof(ids[0])};
    const struct grpc_fragments one = {ids + 2, 1};
    const uint8_t *message = NULL;
    size_t len = 0;
    uint32_t running = UINT32_MAX;
    uint32_t of_one = 0;
    struct err err = {0};

    if (grpc_first_message(data, size, &message, &len) == GRPC_FIRST_WHOLE) {
        assert(message == data + GRPC_FRAME_HEADER && len <= size - GRPC_FRAME_HEADER);
        (void)grpc_is_init_response(message, len);
    }
    if (grpc_count_running(data, size, &all, &running, &err) < 0) {
        fuzz_check_refusal(&err);
        assert(running == UINT32_MAX);
        return 0;
    }
    assert(running <= size / 2); // an entry has two bytes at least
    assert(grpc_count_running(data, size, &one, &of_one, &err) == 0);
    assert(of_one <= running);
    return 0;
}
