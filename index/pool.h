/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/pool.h - what the index is made of: items of one size named by 32-bit numbers, and tables
 * that find them. An item never moves; number 0 is no item.  Memory is taken in chunks, counted
 * against a budget, and kept for reuse. Threads: one at a time, or many readers.
 */
#ifndef WP_INDEX_POOL_H
#define WP_INDEX_POOL_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wp_budget {
    uint64_t bytes, cap; /* cap 0: none */
};

/* Allocation within the budget, cleared.  NULL with *rc WP_ETOOBIG (over the cap) or WP_ENOMEM. */
void *wp_budget_alloc(struct wp_budget *b, size_t n, size_t size, int *rc);
void wp_budget_free(struct wp_budget *b, void *p, size_t n, size_t size);

enum { WP_POOL_CHUNK = 1024 }; /* items */

struct wp_pool {
    char **chunk;
    uint32_t chunks, room; /* chunks there are, and that the list has room for */
    uint32_t size;         /* of an item, set by the owner; a multiple of 8 */
    uint32_t top, free, n; /* next number never given, first one given back, items in use */
};

static inline void *wp_pool_at(const struct wp_pool *p, uint32_t i)
{
    return p->chunk[i / WP_POOL_CHUNK] + (size_t)(i % WP_POOL_CHUNK) * p->size;
}

/* Makes sure that n more items can be taken.  Errors: WP_ETOOBIG, WP_ENOMEM. */
int wp_pool_reserve(struct wp_pool *p, uint32_t n, struct wp_budget *b);
uint32_t wp_pool_take(struct wp_pool *p); /* cleared; after a reserve */
void wp_pool_give(struct wp_pool *p, uint32_t i);
void wp_pool_fini(struct wp_pool *p, struct wp_budget *b);

/* Open addressing over (hash, item); equality is the caller's. */
struct wp_slot {
    uint32_t hash, item; /* item 0: empty */
};
struct wp_table {
    struct wp_slot *slot;
    uint32_t cap, n; /* cap is 0 or a power of two, at most 3/4 full */
};

int wp_table_reserve(struct wp_table *t, uint32_t n, struct wp_budget *b);
void wp_table_put(struct wp_table *t, uint32_t hash, uint32_t item); /* after a reserve */
void wp_table_del(struct wp_table *t, uint32_t hash, uint32_t item); /* it is there */
void wp_table_fini(struct wp_table *t, struct wp_budget *b);

/* Visits the items whose hash is h; the table must not change meanwhile. */
#define WP_TABLE_EACH(t, h, it)                                          \
    for (uint32_t it##_at = (t)->cap ? (h) & ((t)->cap - 1) : 0, it = 0; \
         (t)->cap && (it = (t)->slot[it##_at].item) != 0;                \
         it##_at = (it##_at + 1) & ((t)->cap - 1))                       \
        if ((t)->slot[it##_at].hash == (h))

#endif
