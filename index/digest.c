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
