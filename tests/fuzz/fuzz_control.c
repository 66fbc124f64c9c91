// SPDX-License-Identifier: Apache-2.0
// A request on the agent's local socket.
#include "agent/control.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct control_request request = {0};
    struct err err = {0};

    if (control_parse((const char *)data, size, &request, &err) < 0) {
        fuzz_check_refusal(&err);
        return 0;
    }
    assert(strlen(request.reason) < CONTROL_REASON_SIZE);
    for (const char *c = request.reason; *c; c++)
        assert((unsigned char)*c >= ' ' && *c != 127);
    assert((request.command == CONTROL_PAUSE) == (request.pause_ns != 0));
    if (request.command == CONTROL_PAUSE)
        assert(request.pause_ns >= CONTROL_PAUSE_MIN_NS &&
               request.pause_ns <= CONTROL_PAUSE_MAX_NS);
    return 0;
}
