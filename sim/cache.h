/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/cache.h - one tier of blocks: a set of hashes of fixed capacity, in order of last use, some of them pinned.
 * All memory is taken at init (and touched only as it fills), so that nothing can fail later.  Every call is O(1).
 * A block is named by its hash or, while it stays, by its slot: a number from 1 on; 0 is none.
 * Threads: one.
 */
#ifndef WP_SIM_CACHE_H
#define WP_SIM_CACHE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct wp_cache_node {
    uint64_t hash;
    double ready_us; /* a hit may be used from then on */
    uint32_t chain;  /* next in its bucket */
    uint32_t older, newer;
    uint32_t pins; /* the order of use holds only what has none */
};

struct wp_cache {
    struct wp_cache_node *node; /* [cap + 1]; node[0].newer is the oldest, node[0].older the newest */
    uint32_t *bucket;           /* [mask + 1] */
    uint32_t cap, used, pinned, fresh, freed;
    uint64_t mask, seed;
};

enum { WP_CACHE_MAX = 1 << 28 }; /* blocks of a tier */

/* Capacity 0 is a tier that does not exist: it holds nothing.  Errors: WP_ENOMEM, WP_ETOOBIG. */
int wp_cache_init(struct wp_cache *c, uint64_t cap, uint64_t seed, struct wp_err *err);
void wp_cache_fini(struct wp_cache *c);

uint32_t wp_cache_find(const struct wp_cache *c, uint64_t hash);
uint32_t wp_cache_add(struct wp_cache *c, uint64_t hash); /* used < cap, hash is absent; newest, no pins */
void wp_cache_pin(struct wp_cache *c, uint32_t slot);
void wp_cache_unpin(struct wp_cache *c, uint32_t slot); /* the last one makes it the newest */
void wp_cache_touch(struct wp_cache *c, uint32_t slot);
bool wp_cache_evict(struct wp_cache *c, uint64_t *hash); /* the oldest without pins; false: there is none */

static inline uint32_t wp_cache_evictable(const struct wp_cache *c)
{
    return c->used - c->pinned;
}

#endif
