/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/identity.h - what a prefix block is called.
 * A prompt is token ids cut into blocks of the engine's block size; a partial tail has no name.  The *local hash* names
 * a block's own content, the *block hash* (chain) names it and all before it:
 *     seed = 1337 + XXH3-64(lora, 0) + XXH3-64(salt, 1)   wrapping; absent adds nothing
 *     l[i] = XXH3-64(token ids as u32 little-endian || item hashes as u64 little-endian, sorted; seed)
 *     h[0] = l[0];  h[i] = XXH3-64(le64(h[i-1]) || le64(l[i]); 1337)
 * Source: these are the numbers of NVIDIA Dynamo's router, so that its tools can ask our index
 * (tests/data/spec/hash_vectors.json).  Model and block size are not in the hash: they make the space.
 * Threads: pure functions.
 */
#ifndef WP_INDEX_IDENTITY_H
#define WP_INDEX_IDENTITY_H

#include "base/str.h"

uint64_t wp_hash_seed(struct wp_str lora, struct wp_str salt);          /* absent and empty slices add nothing */
uint64_t wp_hash_item(struct wp_str text);                              /* a multimodal item named by text */
uint64_t wp_hash_next(uint64_t parent, uint64_t local);                 /* one link of the chain */

/* The leading whole blocks of token[n]: writes min(n / block_size, cap) local hashes, returns how many. */
size_t wp_hash_tokens(const uint32_t token[], size_t n, uint32_t block_size, uint64_t seed, uint64_t local[], size_t cap);
/* One block whose content has multimodal items; item[k] is sorted in place. */
uint64_t wp_hash_block_items(const uint32_t token[], uint32_t block_size, uint64_t seed, uint64_t item[], size_t k);
/* Prompts without tokens: text in chunks of chunk bytes, for a space of their own, matched approximately. */
size_t wp_hash_bytes(struct wp_str text, uint32_t chunk, uint64_t seed, uint64_t local[], size_t cap);
/* Chain of local[n] into chain[n]; may be the same array. */
void wp_hash_chain(const uint64_t local[], size_t n, uint64_t chain[]);

/* Blocks of an n-token prompt that an engine can serve from cache: never the one with the last token. */
static inline size_t wp_usable_blocks(size_t n_tokens, uint32_t block_size)
{
    return n_tokens && block_size ? (n_tokens - 1) / block_size : 0;
}

#endif
