// SPDX-License-Identifier: Apache-2.0
// /proc/net/tcp in pieces of any size: the result does not depend on how it was cut.
#include "fence/ports.h"
#include "tests/fuzz/fuzz.h"

static const struct ports_wanted wanted = {.service = 5690, .metrics = 1250, .dashboard = 5691};

static bool read_in_pieces(const char *bytes, size_t size, size_t piece,
                           uint32_t *ret_listening)
{
    struct ports_table table = {.wanted = wanted};

    for (size_t i = 0; i < size; i += piece)
        ports_feed(&table, bytes + i, size - i < piece ? size - i : piece);
    return ports_end(&table, ret_listening);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    uint32_t whole = 0;
    uint32_t cut = 0;
    bool whole_read = false;

    if (size == 0)
        return 0;
    whole_read = read_in_pieces(bytes, size, size, &whole);
    assert(read_in_pieces(bytes, size, data[0] % 61 + 1U, &cut) == whole_read);
    assert(!whole_read || cut == whole);
    assert(!(whole & SHIM_PORTS_KNOWN));
    return 0;
}
