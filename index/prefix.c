/* SPDX-License-Identifier: Apache-2.0 */
#include "index/prefix.h"

#include "base/rng.h"

#define XXH_INLINE_ALL
#include <xxhash.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

void wp_prefix_init(struct wp_prefix *p, uint64_t secret)
{
    struct wp_rng rng = {secret};

    for (unsigned i = 0; i <= WP_SEGMENT; i++)
        p->k[i] = wp_rng_next(&rng);
    p->secret = wp_rng_next(&rng);
#if defined(__x86_64__)
    p->wide = __builtin_cpu_supports("avx2") != 0;
#else
    p->wide = false;
#endif
}

uint64_t wp_prefix_root(const struct wp_prefix *p, uint32_t space)
{
    return XXH3_64bits_withSeed(&space, sizeof space, p->secret);
}

static inline uint64_t product(uint64_t k, uint64_t local)
{
    return (uint64_t)((uint32_t)k + (uint32_t)local) *
           ((uint32_t)(k >> 32) + (uint32_t)(local >> 32));
}

/* One by one. */
static inline struct wp_sums add(const uint64_t k[], struct wp_sums s, const uint64_t local[],
                                 size_t n)
{
    for (size_t i = 0; i < n; i++) {
        s.a += product(k[i], local[i]);
        s.b += product(k[i + 1], local[i]);
    }
    return s;
}

#if defined(__x86_64__)
/* Products of four blocks; a block's halves are the halves of a lane. */
__attribute__((target("avx2"))) static inline __m256i products4(const uint64_t k[], __m256i local)
{
    __m256i x = _mm256_add_epi32(local, _mm256_loadu_si256((const __m256i *)(const void *)k));

    return _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32));
}

__attribute__((target("avx2"))) static struct wp_sums add_wide(const uint64_t k[], struct wp_sums s,
                                                               const uint64_t local[], size_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a;
    uint64_t sum[8];
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        __m256i it = _mm256_loadu_si256((const __m256i *)(const void *)(local + i));

        a = _mm256_add_epi64(a, products4(k + i, it));
        b = _mm256_add_epi64(b, products4(k + i + 1, it));
    }
    _mm256_storeu_si256((__m256i *)(void *)sum, a);
    _mm256_storeu_si256((__m256i *)(void *)(sum + 4), b);
    s.a += sum[0] + sum[1] + sum[2] + sum[3];
    s.b += sum[4] + sum[5] + sum[6] + sum[7];
    return add(k + i, s, local + i, n - i);
}

static inline __m128i products2(const uint64_t k[], __m128i local)
{
    __m128i x = _mm_add_epi32(local, _mm_loadu_si128((const __m128i *)(const void *)k));

    return _mm_mul_epu32(x, _mm_srli_epi64(x, 32));
}

static struct wp_sums add_many(const uint64_t k[], struct wp_sums s, const uint64_t local[],
                               size_t n)
{
    __m128i a = _mm_setzero_si128(), b = a;
    uint64_t sum[4];
    size_t i = 0;

    for (; i + 2 <= n; i += 2) {
        __m128i it = _mm_loadu_si128((const __m128i *)(const void *)(local + i));

        a = _mm_add_epi64(a, products2(k + i, it));
        b = _mm_add_epi64(b, products2(k + i + 1, it));
    }
    _mm_storeu_si128((__m128i *)(void *)sum, a);
    _mm_storeu_si128((__m128i *)(void *)(sum + 2), b);
    s.a += sum[0] + sum[1];
    s.b += sum[2] + sum[3];
    return add(k + i, s, local + i, n - i);
}
#else
static struct wp_sums add_wide(const uint64_t k[], struct wp_sums s, const uint64_t local[],
                               size_t n)
{
    return add(k, s, local, n);
}
#define add_many add_wide
#endif

struct wp_sums wp_prefix_add(const struct wp_prefix *p, struct wp_sums sums, uint32_t at,
                             const uint64_t local[], size_t n)
{
    if (n < 8)
        return add(p->k + at, sums, local, n);
    return p->wide ? add_wide(p->k + at, sums, local, n) : add_many(p->k + at, sums, local, n);
}

uint64_t wp_prefix_key(const struct wp_prefix *p, uint64_t base, struct wp_sums sums, uint32_t n)
{
    uint64_t word[4] = {base, sums.a, sums.b, n};

    return XXH3_64bits_withSeed(word, sizeof word, p->secret);
}
