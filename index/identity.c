/* SPDX-License-Identifier: Apache-2.0 */
#include "index/identity.h"

#include <endian.h>
#define XXH_INLINE_ALL /* the key is 16 to 256 bytes: the call would cost as much as the work */
#include <xxhash.h>

enum { SEED = 1337, LORA_SEED = 0, SALT_SEED = 1, ITEM_SEED = 0 };
enum { SLICE_WORDS = 64 }; /* of a block that must be turned to little-endian, or carries items */

uint64_t wp_hash_seed(struct wp_str lora, struct wp_str salt)
{
    uint64_t seed = SEED;

    if (lora.n)
        seed += XXH3_64bits_withSeed(lora.p, lora.n, LORA_SEED);
    if (salt.n)
        seed += XXH3_64bits_withSeed(salt.p, salt.n, SALT_SEED);
    return seed;
}

uint64_t wp_hash_item(struct wp_str text)
{
    return XXH3_64bits_withSeed(text.n ? text.p : "", text.n, ITEM_SEED);
}

uint64_t wp_hash_next(uint64_t parent, uint64_t local)
{
    uint64_t pair[2] = {htole64(parent), htole64(local)};

    return XXH3_64bits_withSeed(pair, sizeof pair, SEED);
}

/* For blocks whose bytes do not lie in memory as they are hashed: token by token through a small
 * slice. */
static uint64_t hash_in_slices(const uint32_t token[], size_t n, uint64_t seed,
                               const uint64_t item[], size_t k)
{
    XXH3_state_t state;
    uint32_t slice[SLICE_WORDS];

    XXH3_INITSTATE(&state);
    XXH3_64bits_reset_withSeed(&state, seed);
    while (n) {
        size_t now = n < SLICE_WORDS ? n : SLICE_WORDS;

        for (size_t i = 0; i < now; i++)
            slice[i] = htole32(token[i]);
        XXH3_64bits_update(&state, slice, now * sizeof slice[0]);
        token += now;
        n -= now;
    }
    for (size_t i = 0; i < k; i++) {
        uint64_t le = htole64(item[i]);

        XXH3_64bits_update(&state, &le, sizeof le);
    }
    return XXH3_64bits_digest(&state);
}

static uint64_t hash_block(const uint32_t token[], uint32_t block_size, uint64_t seed)
{
    if (__BYTE_ORDER == __LITTLE_ENDIAN)
        return XXH3_64bits_withSeed(token, (size_t)block_size * sizeof token[0], seed);
    return hash_in_slices(token, block_size, seed, NULL, 0);
}

size_t wp_hash_tokens(const uint32_t token[], size_t n, uint32_t block_size, uint64_t seed,
                      uint64_t local[], size_t cap)
{
    size_t blocks = block_size ? n / block_size : 0;

    if (blocks > cap)
        blocks = cap;
    for (size_t i = 0; i < blocks; i++)
        local[i] = hash_block(token + i * block_size, block_size, seed);
    return blocks;
}

uint64_t wp_hash_block_items(const uint32_t token[], uint32_t block_size, uint64_t seed,
                             uint64_t item[], size_t k)
{
    for (size_t i = 1; i < k; i++) { /* a block rarely has more than one item: insertion suffices */
        uint64_t it = item[i];
        size_t at = i;

        for (; at > 0 && item[at - 1] > it; at--)
            item[at] = item[at - 1];
        item[at] = it;
    }
    return hash_in_slices(token, block_size, seed, item, k);
}

size_t wp_hash_bytes(struct wp_str text, uint32_t chunk, uint64_t seed, uint64_t local[],
                     size_t cap)
{
    size_t chunks = chunk ? text.n / chunk : 0;

    if (chunks > cap)
        chunks = cap;
    for (size_t i = 0; i < chunks; i++)
        local[i] = XXH3_64bits_withSeed(text.p + i * chunk, chunk, seed);
    return chunks;
}

void wp_hash_chain(const uint64_t local[], size_t n, uint64_t chain[])
{
    for (size_t i = 0; i < n; i++)
        chain[i] = i ? wp_hash_next(chain[i - 1], local[i]) : local[i];
}
