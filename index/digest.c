/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of what holders have, counted from their names; between counts they are kept where names
 * change. */
#include "index/hold.h"

uint8_t wp_name_tiers(const struct wp_index *ix, uint32_t holder, const struct wp_shelf *s,
                      uint32_t value)
{
    uint32_t d;

    if (value & WP_NAMED)
        return wp_copies_tiers(wp_name_at(ix, value & ~WP_NAMED)->copies);
    if (s->window >= 0)
        return (uint8_t)value;
    d = wp_detail_of(ix, holder, value);
    return d ? wp_detail_at(ix, d)->rest : wp_look_tiers(wp_part_look(ix, value, holder));
}

struct count {
    const struct wp_index *ix;
    uint32_t holder;
    const struct wp_shelf *shelf;
    struct wp_holder *into;
};

static bool count_entry(void *ctx, uint64_t key, uint32_t *value)
{
    struct count *c = ctx;

    wp_digest_name(c->into, key, c->shelf->group, wp_name_tiers(c->ix, c->holder, c->shelf, *value),
                   1);
    return true;
}

void wp_digest_count(const struct wp_index *ix, uint32_t holder, struct wp_index_digest *d)
{
    struct wp_holder *h = &ix->holders[holder], into = {.live = true};
    struct count c = {.ix = ix, .holder = holder, .into = &into};
    const struct wp_table *t = &ix->floats.named;

    for (uint32_t i = 0; i < h->shelves; i++) {
        c.shelf = &h->shelf[i];
        wp_book_sweep(&h->shelf[i].book, count_entry, &c);
    }
    for (uint32_t i = 0; h->floating && i < t->cap; i++) {
        const struct wp_fname *n =
            t->slot[i].item ? wp_fname_at(&ix->floats, t->slot[i].item) : NULL;

        if (n && n->holder == holder)
            wp_digest_floating(&into, n->engine, n->group, wp_copies_tiers(n->copies), 1);
    }
    *d = into.digest;
}

void wp_index_digest(const struct wp_index *ix, uint32_t holder, struct wp_index_digest *d)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&ix->lock;

    memset(d, 0, sizeof *d);
    pthread_mutex_lock(lock);
    if (holder < ix->n_holders && ix->holders[holder].live) {
        struct wp_holder *h = &ix->holders[holder];

        if (h->digest_stale) {
            wp_digest_count(ix, holder, &h->digest);
            h->digest_stale = false;
        }
        *d = h->digest;
    }
    pthread_mutex_unlock(lock);
}

enum { SLICE = 512 /* buckets */, SLOTS = 8192 };

struct names {
    const struct wp_index *ix;
    uint32_t holder;
    const struct wp_shelf *shelf;
    wp_index_name_fn fn;
    void *arg;
};

static void tell_entry(void *ctx, uint64_t key, uint32_t value)
{
    const struct names *n = ctx;
    uint8_t tiers = wp_name_tiers(n->ix, n->holder, n->shelf, value);

    if (tiers)
        n->fn(n->arg, key, n->shelf->group, tiers, false);
}

/* Of the table of all names that float, slots from that one on.  Returns where to go on; 0:
 * nowhere. */
static uint32_t tell_floating(const struct names *n, uint32_t from)
{
    const struct wp_table *t = &n->ix->floats.named;
    uint32_t i = from;

    for (; i < t->cap && i < from + SLOTS; i++) {
        const struct wp_fname *it =
            t->slot[i].item ? wp_fname_at(&n->ix->floats, t->slot[i].item) : NULL;

        if (it && it->holder == n->holder && wp_copies_tiers(it->copies))
            n->fn(n->arg, it->engine, it->group, wp_copies_tiers(it->copies), true);
    }
    return i < t->cap ? i : 0;
}

/* *at: which shelf, what floats behind the last one; then where in it. */
static uint64_t tell_some(struct names *n, uint64_t at)
{
    const struct wp_holder *h = &n->ix->holders[n->holder];
    uint32_t shelf = (uint32_t)(at >> 32), next;

    if (shelf < h->shelves) {
        n->shelf = &h->shelf[shelf];
        next = wp_book_look(&n->shelf->book, (uint32_t)at, SLICE, tell_entry, n);
        return next ? (uint64_t)shelf << 32 | next : (uint64_t)(shelf + 1) << 32;
    }
    next = h->floating ? tell_floating(n, (uint32_t)at) : 0;
    return next ? (uint64_t)shelf << 32 | next : 0;
}

bool wp_index_names(const struct wp_index *ix, uint32_t holder, uint64_t *at, wp_index_name_fn fn,
                    void *arg)
{
    struct names n = {.ix = ix, .holder = holder, .fn = fn, .arg = arg};
    pthread_mutex_t *lock = (pthread_mutex_t *)&ix->lock;

    pthread_mutex_lock(lock);
    *at = holder < ix->n_holders && ix->holders[holder].live ? tell_some(&n, *at) : 0;
    pthread_mutex_unlock(lock);
    return *at != 0;
}
