// SPDX-License-Identifier: Apache-2.0
#pragma once
// fuzz: what all targets share. libFuzzer's entry point, and the check that every refusal
// explains itself.

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// True where allocations fail (sweep.c): two looks at the same bytes need not agree then.
#ifndef FUZZ_LACKS_MEMORY
#define FUZZ_LACKS_MEMORY false
#endif
static const bool fuzz_lacks_memory = FUZZ_LACKS_MEMORY;

// A refused input has a kind and a whole, non-empty message.
static inline void fuzz_check_refusal(const struct err *err)
{
    assert(err->kind != ERR_NONE && err->kind != ERR_BUG);
    assert(err->msg[0] != '\0');
    assert(memchr(err->msg, '\0', sizeof(err->msg)));
}
