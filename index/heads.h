/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/heads.h - from the key of a prefix to the run that begins with its last block.
 * Open addressing over words of (upper half of the key, run).  A reader gets candidates and checks the run's own key; it
 * probes while the writer adds, takes off and grows, and finds whatever was there all the time.
 * Growth moves a few words with each put: while it lasts there are two tables, and what is in the old one stays there.
 * Threads: find from any inside the epoch, the rest one at a time.
 */
#ifndef WP_INDEX_HEADS_H
#define WP_INDEX_HEADS_H

#include "index/epoch.h"
#include "index/pool.h"

struct wp_head_table {
    uint32_t mask;
    _Atomic uint64_t word[]; /* 0: never used; 1: used once */
};
struct wp_heads {
    struct wp_head_table *_Atomic table, *_Atomic older; /* older: being moved into table, or NULL */
    uint32_t n, used; /* runs; words of table that are not 0 */
    uint32_t moved;   /* words of older that were looked at */
};

/* Room for one more.  Errors: WP_ETOOBIG, WP_ENOMEM. */
int wp_heads_reserve(struct wp_heads *h, struct wp_budget *b, struct wp_epoch *e);
void wp_heads_put(struct wp_heads *h, uint64_t key, uint32_t run, struct wp_budget *b, struct wp_epoch *e);
void wp_heads_del(struct wp_heads *h, uint64_t key, uint32_t run); /* it is there */
void wp_heads_fini(struct wp_heads *h, struct wp_budget *b);

static inline uint32_t wp_head_tag(uint64_t key)
{
    uint32_t tag = (uint32_t)(key >> 32);

    return tag ? tag : 1; /* so that a word in use is above 1 */
}
static inline void wp_heads_prefetch(const struct wp_heads *h, uint64_t key)
{
    const struct wp_head_table *t =
        atomic_load_explicit(&((struct wp_heads *)h)->table, memory_order_acquire);

    if (t)
        __builtin_prefetch((const void *)&t->word[wp_head_tag(key) & t->mask]);
}

/* A reader's way through the candidates: wp_probe_start(), then wp_probe_next() until it is 0. */
struct wp_probe {
    const struct wp_head_table *table, *then;
    uint32_t tag, at, left;
};

static inline void wp_probe_enter(struct wp_probe *p, const struct wp_head_table *t)
{
    p->table = t;
    if (t) {
        p->at = p->tag & t->mask;
        p->left = t->mask + 1;
    }
}

static inline void wp_probe_start(struct wp_probe *p, const struct wp_heads *h, uint64_t key)
{
    struct wp_heads *own = (struct wp_heads *)h;
    const struct wp_head_table *t = atomic_load_explicit(&own->table, memory_order_acquire);

    p->tag = wp_head_tag(key);
    p->then = atomic_load_explicit(&own->older, memory_order_acquire);
    if (p->then == t)
        p->then = NULL;
    wp_probe_enter(p, t);
}

static inline uint32_t wp_probe_next(struct wp_probe *p)
{
    for (; p->table; wp_probe_enter(p, p->then), p->then = NULL)
        while (p->left) {
            uint64_t word = atomic_load_explicit(&((struct wp_head_table *)p->table)->word[p->at], memory_order_acquire);

            if (word == 0)
                break;
            p->left--;
            p->at = (p->at + 1) & p->table->mask;
            if (word >> 32 == p->tag && word > 1)
                return (uint32_t)word;
        }
    return 0;
}

#endif
