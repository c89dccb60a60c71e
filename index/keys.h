/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/keys.h - names for prefixes that cost next to nothing to compute.
 * A prompt's local hashes l[0..n) are cut into segments of WP_SEGMENT.  Within a segment, the *sum* is
 *     sum over pairs (2i, 2i + 1) of (k[2i] + l[2i] mod 2^64) * (k[2i + 1] + l[2i + 1] mod 2^64)   in 128 bits
 * (a last odd block stands alone, l of its partner being 0), and the *prefix key* of l[0..d) mixes the key of the segments
 * before, the sum and d.  k comes from the index's secret: two different prefixes have one key with a chance of about 2^-63, and nobody
 * outside can aim at one.  So a look-up needs no chain of hashes: the keys of far segments are known before the near ones
 * have been found.
 * Source: NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, CRYPTO 1999), with words of 64 bits.
 * Threads: pure functions of their arguments.  Cost: about half a multiplication a block, and one XXH3 of 32 bytes a key.
 */
#ifndef WP_INDEX_KEYS_H
#define WP_INDEX_KEYS_H

#include <stddef.h>
#include <stdint.h>

#ifndef WP_SEGMENT /* tests make it small, so that short prompts cross many */
#define WP_SEGMENT 128u
#endif

__extension__ typedef unsigned __int128 wp_u128;

struct wp_keys {
    uint64_t k[WP_SEGMENT];
    uint64_t secret;
};

void wp_keys_init(struct wp_keys *keys, uint64_t secret);
uint64_t wp_keys_root(const struct wp_keys *keys, uint32_t space); /* the key of nothing at all */

/* Adds local[n] as the blocks at .. at + n of a segment.  before: the block at - 1; asked for only when at is odd. */
wp_u128 wp_keys_add(const struct wp_keys *keys, wp_u128 sum, uint32_t at, uint64_t before, const uint64_t local[],
                    size_t n);
/* The key of a prefix: base is that of the segments before, sum is of the first n blocks of its last one, n > 0. */
uint64_t wp_keys_key(const struct wp_keys *keys, uint64_t base, wp_u128 sum, uint32_t n);

#endif
