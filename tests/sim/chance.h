// SPDX-License-Identifier: Apache-2.0
#pragma once
// chance: splitmix64: small, and the same everywhere, so that a seed is a schedule.

#include <stdint.h>

static inline uint64_t chance_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// From low to below high; low, and nothing drawn, when that is empty.
static inline int64_t chance_between(uint64_t *state, int64_t low, int64_t high)
{
    return high <= low ? low : low + (int64_t)(chance_next(state) % (uint64_t)(high - low));
}
