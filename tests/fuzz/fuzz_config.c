// SPDX-License-Identifier: Apache-2.0
// The agent's configuration. What is accepted keeps the timing inequality and can be shown and
// read again.
#include "agent/config.h"
#include "base/buf.h"
#include "tests/fuzz/fuzz.h"

static void check_shown(const struct config *config)
{
    struct buf shown = {0};
    struct config again;
    struct err err = {0};

    config_show_yaml(config, false, &shown);
    const struct config_input input = {
        .name = "shown.yaml", .bytes = shown.data, .len = shown.len};
    assert(config_parse(&input, &again, &err) == 0);
    assert(memcmp(&again.core, &config->core, sizeof(again.core)) == 0);
    buf_done(&shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct config_input input = {
        .name = "fuzz.yaml", .bytes = (const char *)data, .len = size};
    struct config config;
    struct err err = {0};

    if (config_parse(&input, &config, &err) < 0) {
        fuzz_check_refusal(&err);
        return 0;
    }
    assert(core_config_check(&config.core, &err) == 0);
    if (!fuzz_lacks_memory)
        check_shown(&config);
    return 0;
}
