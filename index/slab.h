/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/slab.h - items of one size, named by 32-bit numbers, that readers may look at while the writer takes new ones.
 * A slab that has become large takes huge pages: a look-up is a few misses, and each would cost a walk through page tables too.
 * An item never moves; number 0 is no item.  Memory comes in chunks, counted against a budget, and is kept for reuse.
 * The list of chunks is replaced when it grows, and the old one retired; so whoever learns a number after the item was filled
 * (by a release store) finds it.
 * Threads: wp_slab_at() from any, inside the epoch; the rest one at a time.  Not cleared when taken.
 */
#ifndef WP_INDEX_SLAB_H
#define WP_INDEX_SLAB_H

#include "index/epoch.h"
#include "index/pool.h"

struct wp_slab {
    char **_Atomic list;
    uint32_t size;               /* of an item; a divisor or a multiple of 64 keeps items in as few lines as can be */
    uint32_t shift;              /* a chunk has 1 << shift items */
    uint32_t max;                /* items */
    uint32_t chunks, room;       /* there are, and the list has room for */
    uint32_t small;              /* chunks of their own; those after them are cut from huge pages */
    uint32_t top, free, n, spare; /* next never given; first one given back; in use; how many given back */
};

/* retired lists come back with this kind and their address in ref: wp_free() them */
enum { WP_RETIRED_MEMORY = 0 };

void wp_slab_init(struct wp_slab *s, uint32_t size, uint32_t shift, uint32_t max);
void wp_slab_fini(struct wp_slab *s, struct wp_budget *b);
static inline uint64_t wp_slab_left(const struct wp_slab *s) /* that can be taken without a reserve */
{
    uint64_t there = (uint64_t)s->chunks << s->shift;

    return s->spare + (there > s->top ? there - s->top : 0);
}
/* Makes sure that n more can be taken.  Errors: WP_ETOOBIG (the cap, or max), WP_ENOMEM. */
int wp_slab_grow(struct wp_slab *s, uint32_t n, struct wp_budget *b, struct wp_epoch *e);
static inline int wp_slab_reserve(struct wp_slab *s, uint32_t n, struct wp_budget *b, struct wp_epoch *e)
{
    return wp_slab_left(s) >= n ? 0 : wp_slab_grow(s, n, b, e);
}

static inline void *wp_slab_at(const struct wp_slab *s, uint32_t i)
{
    char **list = atomic_load_explicit(&((struct wp_slab *)s)->list, memory_order_acquire);

    return list[i >> s->shift] + (size_t)(i & ((1u << s->shift) - 1)) * s->size;
}
uint32_t wp_slab_take(struct wp_slab *s); /* after a reserve */
void wp_slab_give(struct wp_slab *s, uint32_t i);

#endif
