/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/repeats.h"

enum { FEW = 32, DIGITS = 256 };

size_t wp_repeats_room(size_t n)
{
    return n > FEW ? 2 * n : 0;
}

static bool few_repeat(const uint64_t v[], size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (v[i] == v[k])
                return true;
    return false;
}

/*
 * Deals v out by the byte at shift, into here, and looks at each heap; "there" is room for the next
 * deal, as long as here. The depth of the recursion is at most the bytes of a number.
 */
static bool repeats(const uint64_t v[], size_t n, unsigned shift, uint64_t here[], uint64_t there[])
{
    size_t end[DIGITS] = {0}, start = 0;

    if (n <= FEW)
        return few_repeat(v, n);
    if (shift >= 64)
        return true; /* equal in all their bytes */
    for (size_t i = 0; i < n; i++)
        end[v[i] >> shift & 0xFF]++;
    for (size_t d = 0, sum = 0; d < DIGITS; d++) {
        size_t many = end[d];

        end[d] = sum;
        sum += many;
    }
    for (size_t i = 0; i < n; i++)
        here[end[v[i] >> shift & 0xFF]++] = v[i];
    for (size_t d = 0; d < DIGITS; start = end[d++])
        if (end[d] - start > 1 &&
            repeats(here + start, end[d] - start, shift + 8, there + start, here + start))
            return true;
    return false;
}

bool wp_repeats(const uint64_t v[], size_t n, uint64_t room[])
{
    return repeats(v, n, 0, room, room + n);
}
