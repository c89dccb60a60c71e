/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/prefix.h - names for prefixes that cost next to nothing to compute.
 * A prompt's local hashes l[0..n) are cut into segments of WP_SEGMENT.  Within a segment a prefix has two *sums*, mod 2^64, over its
 * blocks, of products of the halves of each:
 *     a = sum of  low(k[i] + l[i]) x high(k[i] + l[i]),    b = the same with k[i + 1]        (halves are added apart, mod 2^32)
 * and the *prefix key* of l[0..d) mixes the key of the segments before, the sums and d.  k comes from the index's secret: two
 * different prefixes have one key with a chance of about 2^-63, and nobody outside can aim at one.  So a look-up needs no chain of
 * hashes: the keys of far segments are known before the near ones have been found.
 * Source: NH in two passes whose keys are shifted by one pair (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, CRYPTO 1999), with
 * words of 32 bits.
 * Threads: pure functions of their arguments.  Cost: two multiplications a block, of four blocks at once where the processor has AVX2;
 * a key one XXH3 of 32 bytes.
 */
#ifndef WP_INDEX_PREFIX_H
#define WP_INDEX_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef WP_SEGMENT /* tests make it small, so that short prompts cross many */
#define WP_SEGMENT 128u
#endif

struct wp_prefix {
    uint64_t k[WP_SEGMENT + 1];
    uint64_t secret;
    bool wide; /* the processor has AVX2 */
};
struct wp_sums {
    uint64_t a, b;
};

void wp_prefix_init(struct wp_prefix *p, uint64_t secret);
uint64_t wp_prefix_root(const struct wp_prefix *p, uint32_t space); /* the key of nothing at all */

/* Adds local[n] as the blocks at .. at + n of a segment. */
struct wp_sums wp_prefix_add(const struct wp_prefix *p, struct wp_sums sums, uint32_t at, const uint64_t local[], size_t n);
/* The key of a prefix: base is that of the segments before, sums are of the first n blocks of its last one, n > 0. */
uint64_t wp_prefix_key(const struct wp_prefix *p, uint64_t base, struct wp_sums sums, uint32_t n);

#endif
