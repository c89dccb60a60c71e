/* SPDX-License-Identifier: Apache-2.0 */
#include "index/keys.h"

#include "base/rng.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

void wp_keys_init(struct wp_keys *keys, uint64_t secret)
{
    struct wp_rng rng = {secret};

    for (unsigned i = 0; i < WP_SEGMENT; i++)
        keys->k[i] = wp_rng_next(&rng);
    keys->secret = wp_rng_next(&rng);
}

uint64_t wp_keys_root(const struct wp_keys *keys, uint32_t space)
{
    return XXH3_64bits_withSeed(&space, sizeof space, keys->secret);
}

static wp_u128 pair(const struct wp_keys *keys, uint32_t at, uint64_t a, uint64_t b)
{
    return (wp_u128)(keys->k[at] + a) * (keys->k[at + 1] + b);
}

wp_u128 wp_keys_add(const struct wp_keys *keys, wp_u128 sum, uint32_t at, uint64_t before,
                    const uint64_t local[], size_t n)
{
    size_t i = 0;

    if (n && at % 2) {
        sum += pair(keys, at - 1, before, local[0]) - pair(keys, at - 1, before, 0);
        i = 1;
    }
    for (; i + 2 <= n; i += 2)
        sum += pair(keys, at + (uint32_t)i, local[i], local[i + 1]);
    if (i < n)
        sum += pair(keys, at + (uint32_t)i, local[i], 0);
    return sum;
}

uint64_t wp_keys_key(const struct wp_keys *keys, uint64_t base, wp_u128 sum, uint32_t n)
{
    uint64_t word[4] = {base, (uint64_t)sum, (uint64_t)(sum >> 64), n};

    return XXH3_64bits_withSeed(word, sizeof word, keys->secret);
}
