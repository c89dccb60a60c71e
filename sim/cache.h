/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/cache.h - one tier of blocks: hashes of fixed capacity, in order of last use, some of them pinned.  A hash may be there
 * several times: each copy is a block of its own, and the first that came is the one that is found.
 * All memory is taken at init (and touched only as it fills), so that nothing can fail later.  Every call is O(1 + copies).
 * Names are found in a table with open addressing that holds 32 bits of each name's hash: a miss costs one line of memory, and so does taking a
 * name out.  Copies lie in it in the order in which they came.
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
    uint32_t next;   /* of the free ones */
    uint32_t older, newer; /* pinned: NAMELESS or 0, and 0 */
    uint32_t pins; /* the order of use holds only what has none */
};

struct wp_cache {
    struct wp_cache_node *node; /* [cap + 1]; node[0].newer is the oldest, node[0].older the newest */
    uint64_t *table;            /* [mask + 1] 32 bits of the name's hash, the slot; 0: empty */
    uint32_t cap, used, pinned, fresh, freed;
    uint64_t mask, seed;
};

enum { WP_CACHE_MAX = 1 << 28 }; /* blocks of a tier */
#define WP_CACHE_NAMELESS UINT32_MAX

/* Capacity 0 is a tier that does not exist: it holds nothing.  Errors: WP_ENOMEM, WP_ETOOBIG. */
int wp_cache_init(struct wp_cache *c, uint64_t cap, uint64_t seed, struct wp_err *err);
void wp_cache_fini(struct wp_cache *c);

uint32_t wp_cache_find(const struct wp_cache *c, uint64_t hash);
uint32_t wp_cache_add(struct wp_cache *c, uint64_t hash); /* used < cap; newest, no pins; behind its copies */
void wp_cache_pin(struct wp_cache *c, uint32_t slot);
void wp_cache_unpin(struct wp_cache *c, uint32_t slot); /* the last one makes it the newest */
void wp_cache_touch(struct wp_cache *c, uint32_t slot);
bool wp_cache_evict(struct wp_cache *c, uint64_t *hash); /* the oldest without pins; false: there is none */
/* A pinned block loses its name: it is found no more, and its room is free with its last pin. */
void wp_cache_forget(struct wp_cache *c, uint32_t slot);
/* Each hash once, with its copies, in no order; do not change the cache meanwhile. */
void wp_cache_each(const struct wp_cache *c, void (*fn)(void *arg, uint64_t hash, uint32_t copies), void *arg);

static inline uint32_t wp_cache_evictable(const struct wp_cache *c)
{
    return c->used - c->pinned;
}

#endif
