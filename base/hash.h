// SPDX-License-Identifier: Apache-2.0
#pragma once
// hash: FNV-1a over text, for names, repeats and seeds. Not for anything that an enemy may
// choose.

#include <stdint.h>

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

// Goes on from `sum`: several texts are one chain of calls that begins with HASH_BEGIN.
static inline uint64_t hash_text(uint64_t sum, const char *text)
{
    for (; *text; text++)
        sum = (sum ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return sum;
}
