/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/tokens/cache.h - answers by the hash of their question, bounded in bytes: the longest
 * unused go first. A question is known by 128 bits of XXH3 under a secret seed, and its length; its
 * text is not kept.
 */
#ifndef WP_ADAPTERS_TOKENS_CACHE_H
#define WP_ADAPTERS_TOKENS_CACHE_H

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"

struct wp_tokens_key {
    uint64_t low, high;
    size_t n;
};
struct wp_tokens_key wp_tokens_key(struct wp_str question, uint64_t secret);
bool wp_tokens_key_same(const struct wp_tokens_key *a, const struct wp_tokens_key *b);

struct wp_tokens_cache {
    struct wp_map at;      /* key.low -> entry */
    struct wp_list by_use; /* longest unused first */
    size_t bytes, cap_bytes;
};

void wp_tokens_cache_init(struct wp_tokens_cache *c, size_t cap_bytes, uint64_t secret);
void wp_tokens_cache_fini(struct wp_tokens_cache *c);
void wp_tokens_cache_limit(struct wp_tokens_cache *c, size_t cap_bytes); /* the longest unused go */
/* A new reference, or NULL. */
struct wp_blob *wp_tokens_cache_get(struct wp_tokens_cache *c, const struct wp_tokens_key *key);
/* Takes a reference of its own.  What does not fit, or finds no memory, is not kept. */
void wp_tokens_cache_put(struct wp_tokens_cache *c, const struct wp_tokens_key *key,
                         struct wp_blob *tokens);

#endif
