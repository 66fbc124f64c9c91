// SPDX-License-Identifier: Apache-2.0
// metafence-run's status: a packet to the agent, and a state file that may be left from
// anything.
#include "fence/shim.h"
#include "tests/fuzz/fuzz.h"

static void restore(const struct fence_status *left)
{
    struct shim_memory memory = {0};
    struct instant now = {1000 * NS_PER_SEC};

    shim_restore(&memory, left, left->written_ns & 1, now);
    assert(!(memory.status.flags & SHIM_ALIVE));
    assert(memory.status.pid == 0);
    fence_status_seal(&memory.status);
}

static void parse(const void *bytes, size_t size)
{
    struct fence_status status;
    struct err err = {0};

    if (fence_status_parse(bytes, size, &status, &err) < 0) {
        fuzz_check_refusal(&err);
        return;
    }
    assert(memchr(status.tag, '\0', sizeof(status.tag)));
    assert(memchr(status.boot_id, '\0', sizeof(status.boot_id)));
    assert(memchr(status.last_death.tag, '\0', sizeof(status.last_death.tag)));
    restore(&status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fence_status status = {0};

    parse(data, size);
    memcpy(&status, data, size < sizeof(status) ? size : sizeof(status));
    status.reserved = 0;
    fence_status_seal(&status);
    parse(&status, sizeof(status));
    return 0;
}
