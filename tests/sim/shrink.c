// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/shrink.h"

#include <stdio.h>
#include <string.h>

bool muted_has(const struct muted *muted, int fault)
{
    return fault < MUTED_MAX && (muted->bits[fault / 64] >> (fault % 64) & 1) != 0;
}

void muted_set(struct muted *muted, int fault, bool is_muted)
{
    uint64_t bit = UINT64_C(1) << (fault % 64);

    if (fault >= MUTED_MAX)
        return;
    if (is_muted)
        muted->bits[fault / 64] |= bit;
    else
        muted->bits[fault / 64] &= ~bit;
}

bool muted_keep(struct muted *ret_muted, const char *list)
{
    struct muted muted;
    int number = 0;
    bool has_digit = false;

    memset(&muted, 0xff, sizeof(muted));
    for (const char *c = list;; c++) {
        if (*c >= '0' && *c <= '9' && number < MUTED_MAX) {
            number = number * 10 + (*c - '0');
            has_digit = true;
            continue;
        }
        if ((*c != ',' && *c != '\0') || !has_digit || number >= MUTED_MAX)
            return false;
        muted_set(&muted, number, false);
        number = 0;
        has_digit = false;
        if (*c == '\0')
            break;
    }
    *ret_muted = muted;
    return true;
}

static int count_left(const struct muted *muted, int count)
{
    int left = 0;

    for (int i = 0; i < count; i++)
        left += !muted_has(muted, i);
    return left;
}

// Mutes `size` that are still heard, from the one at *at on, which then is behind them. The
// number muted.
static int mute_group(struct muted *muted, int count, int size, int *at)
{
    int done = 0;

    for (; *at < count && done < size; ++*at) {
        if (muted_has(muted, *at))
            continue;
        muted_set(muted, *at, true);
        done++;
    }
    return done;
}

// One pass with groups of that size. True: something could go.
static bool pass(struct muted *muted, int count, int size, int *tries, shrink_fails fails,
                 void *arg)
{
    bool has_shrunk = false;

    for (int at = 0; at<count && * tries> 0;) {
        struct muted next = *muted;
        if (mute_group(&next, count, size, &at) == 0)
            break;
        --*tries;
        if (!fails(arg, &next))
            continue;
        *muted = next;
        has_shrunk = true;
    }
    return has_shrunk;
}

// From halves to single ones; these as long as one of them can go.
int shrink_muted(struct muted *muted, int count, int tries, shrink_fails fails, void *arg)
{
    int size = count_left(muted, count);

    while (size > 0 && tries > 0) {
        bool has_shrunk = pass(muted, count, size, &tries, fails, arg);
        if (size > 1)
            size /= 2;
        else if (!has_shrunk)
            break;
    }
    return count_left(muted, count);
}

bool shrink_is_same(const char *first, const char *why)
{
    size_t length = strcspn(first, ":");

    return strncmp(first, why, length) == 0 && why[length] == first[length];
}

void shrink_print_kept(const struct muted *muted, int count)
{
    const char *before = " --keep ";

    for (int i = 0; i < count; i++) {
        if (muted_has(muted, i))
            continue;
        (void)printf("%s%d", before, i);
        before = ",";
    }
    if (before[0] == ' ') // nothing is left: a number that no fault has
        (void)printf(" --keep %d", MUTED_MAX - 1);
}
