/* SPDX-License-Identifier: Apache-2.0 */
#include "net/json_digits.h"

#include "net/json_lex.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>

enum { SPAN = 64 };

struct marks { /* bit i: of byte i */
    uint64_t digit, nought, comma, space;
};

static inline struct marks marks_of(const char *p)
{
    struct marks m = {0};

    for (int i = 0; i < SPAN; i += 16) {
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
        __m128i digit = _mm_sub_epi8(b, _mm_set1_epi8('0')); /* 0 to 9, as unsigned bytes */

        digit = _mm_cmpeq_epi8(_mm_min_epu8(digit, _mm_set1_epi8(9)), digit);
        m.digit |= (uint64_t)(uint32_t)_mm_movemask_epi8(digit) << i;
        m.nought |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(b, _mm_set1_epi8('0'))) << i;
        m.comma |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(b, _mm_set1_epi8(','))) << i;
        m.space |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(b, _mm_set1_epi8(' '))) << i;
    }
    return m;
}

static unsigned highest(uint64_t bits)
{
    return 63 - (unsigned)__builtin_clzll(bits);
}

const char *wp_digits_skip(const char *p, const char *end)
{
    const char *start = p;
    uint64_t digit = 0, comma = 0, space = 1; /* what the byte before is; a number may begin at p */

    for (; end - p >= SPAN; p += SPAN) {
        struct marks m = marks_of(p);
        uint64_t behind = m.comma << 1 | comma, gap = m.space & behind;
        uint64_t starts = (behind & ~m.space) | (gap << 1 | space);
        uint64_t bad = ~(m.digit | m.comma | m.space) | (m.space & ~behind) | (starts & ~(m.digit & ~m.nought)) |
                       (m.comma & ~(m.digit << 1 | digit));

        if (bad) {
            starts &= (bad & -bad) | ((bad & -bad) - 1); /* up to the first bad one */
            return starts ? p + highest(starts) : start;
        }
        if (starts)
            start = p + highest(starts);
        digit = m.digit >> 63;
        comma = m.comma >> 63;
        space = gap >> 63;
    }
    return start;
}

/* The n digits before end, up to eight, of which the eight bytes before end can be read. */
static inline uint32_t number_before(const char *end, unsigned n)
{
    uint64_t x;

    memcpy(&x, end - 8, sizeof x);
    x = (x ^ 0x3030303030303030u) & ~(uint64_t)0 << (64 - 8 * n); /* the first digit is the lowest byte */
    x = x * 10 + (x >> 8);
    x = ((x & 0x000000FF000000FFu) * 0x000F424000000064u + (x >> 16 & 0x000000FF000000FFu) * 0x0000271000000001u) >> 32;
    return (uint32_t)x;
}

const char *wp_digits_read(const char *first, const char *p, const char *end, uint32_t *out, size_t cap, long *n)
{
    while (p - first >= 8 && end - p >= SPAN) {
        struct marks m = marks_of(p);
        uint64_t before = m.digit << 1, starts = m.digit & ~before, ends = ~m.digit & before;

        if (~(m.digit | m.comma | m.space) || !(m.digit & 1))
            break;
        for (; ends; starts &= starts - 1, ends &= ends - 1) {
            unsigned from = (unsigned)__builtin_ctzll(starts), to = (unsigned)__builtin_ctzll(ends);

            if (to - from > 8)
                return p + from;
            if ((size_t)*n < cap)
                out[*n] = number_before(p + to, to - from);
            ++*n;
        }
        if (starts == 1) /* one that is as long as all of it */
            break;
        p += starts ? (unsigned)__builtin_ctzll(starts) : SPAN;
        while (!starts && p < end && (*p == ',' || wp_json_blank(*p)))
            p++;
    }
    return p;
}

#else

const char *wp_digits_skip(const char *p, const char *end)
{
    (void)end;
    return p;
}

const char *wp_digits_read(const char *first, const char *p, const char *end, uint32_t *out, size_t cap, long *n)
{
    (void)first, (void)end, (void)out, (void)cap, (void)n;
    return p;
}

#endif
