/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room under the cap.  The holder with the most loses: what floats first, for it answers nobody
 * yet; then whole runs, those that nothing was stored in, or below, for longest.  A run counts as
 * young as the youngest of the holder's runs below it, so tails go before what they hang from.
 * Names have no way from a place to themselves; so a good part goes at once, and one sweep of the
 * books finds them.
 */
#include "index/inside.h"

#include "base/mem.h"

#include <stdlib.h>

enum { FLOATING_AT_ONCE = 32, PART = 16, RUNS_AT_LEAST = 4 };

struct victim {
    uint32_t run, age, depth;
};

static int oldest_first(const void *a, const void *b)
{
    const struct victim *x = a, *y = b;

    if (x->age != y->age)
        return x->age > y->age ? -1 : 1;
    return x->depth > y->depth ? -1 : x->depth < y->depth;
}

static void age_by_what_is_below(const struct wp_index *ix, struct victim *v, size_t n,
                                 uint32_t first_mark)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t place = wp_run_at(ix, v[i].run)->parent; place != WP_NOWHERE;
             place = wp_run_at(ix, wp_place_run(place))->parent) {
            uint32_t up = wp_own_at(ix, wp_place_run(place))->mark - first_mark;

            if (up >= n)
                continue;
            if (v[up].age <= v[i].age)
                break;
            v[up].age = v[i].age;
        }
}

static uint64_t blocks_in(const struct wp_index *ix, uint32_t run, uint32_t holder)
{
    struct wp_part part;
    uint64_t n = 0;

    wp_part_get(ix, run, holder, &part);
    for (unsigned i = 0; i < WP_SEGMENT; i++)
        n += wp_look_tiers(part.look[i]) != 0;
    return n;
}

static bool evict_runs(struct wp_index *ix, uint32_t holder)
{
    struct wp_holder *h = &ix->holders[holder];
    uint64_t want = (h->blocks - h->floating) / PART, got = 0;
    size_t n, chosen = 0;
    uint32_t *run, first_mark;
    struct victim *v;

    if (!wp_hold_runs(ix, holder, &run, &n) || !n)
        return false;
    v = wp_malloc(n * sizeof *v);
    if (!v) {
        wp_free(run);
        return false;
    }
    first_mark = ix->mark + 1;
    for (size_t i = 0; i < n; i++) {
        struct wp_run_own *own = wp_own_at(ix, run[i]);

        own->mark = ++ix->mark;
        v[i] = (struct victim){run[i], ix->clock - own->stamp,
                               own->segment * WP_SEGMENT + wp_run_at(ix, run[i])->first};
        if (run[i] == ix->pinned)
            v[i].age = 0;
    }
    age_by_what_is_below(ix, v, n, first_mark);
    qsort(v, n, sizeof *v, oldest_first);
    ix->mark++;
    for (; chosen < n && v[chosen].age && (got < want || chosen < RUNS_AT_LEAST); chosen++) {
        got += blocks_in(ix, v[chosen].run, holder);
        wp_own_at(ix, v[chosen].run)->mark = ix->mark;
        run[chosen] = v[chosen].run;
    }
    ix->evicted += wp_hold_drop_marked(ix, holder, run, chosen);
    wp_free(v);
    wp_free(run);
    return chosen > 0;
}

static bool evict_of(struct wp_index *ix, uint32_t holder)
{
    struct wp_holder *h = &ix->holders[holder];

    if (h->floats.oldest) {
        for (int i = 0; i < FLOATING_AT_ONCE && h->floats.oldest; i++)
            wp_float_evict(ix, h->floats.oldest);
        return true;
    }
    if (h->windowed && (h->windowed > h->blocks || h->blocks == 0))
        return wp_window_evict(ix, holder);
    return evict_runs(ix, holder) || (h->windowed && wp_window_evict(ix, holder));
}

static uint64_t weight(const struct wp_holder *h)
{
    return h->blocks + h->windowed;
}

/* The heaviest of those that are lighter than that, or as heavy and behind it. */
static bool next_heaviest(const struct wp_index *ix, uint64_t than, uint32_t *holder)
{
    uint32_t best = WP_NO_HOLDER;

    for (uint32_t i = 0; i < ix->n_holders; i++) {
        uint64_t w = weight(&ix->holders[i]);

        if (w && (w < than || (w == than && *holder != WP_NO_HOLDER && i > *holder)) &&
            (best == WP_NO_HOLDER || w > weight(&ix->holders[best])))
            best = i;
    }
    *holder = best;
    return best != WP_NO_HOLDER;
}

/* Room that books keep for what was only expected is the first to go. */
static bool expect_no_more(struct wp_index *ix)
{
    uint64_t before = ix->budget.bytes;

    for (uint32_t i = 0; i < ix->n_holders; i++)
        for (uint32_t k = 0; k < ix->holders[i].shelves; k++) {
            struct wp_book *b = &ix->holders[i].shelf[k].book;

            if (!b->least)
                continue;
            b->least = 0;
            while (b->at && !wp_book_settle(b, UINT32_MAX))
                ;
        }
    return ix->budget.bytes < before;
}

bool wp_evict(struct wp_index *ix)
{
    uint64_t than = UINT64_MAX;
    uint32_t holder = WP_NO_HOLDER;

    if (expect_no_more(ix))
        return true;
    while (next_heaviest(ix, than, &holder)) {
        if (evict_of(ix, holder))
            return true;
        than = weight(&ix->holders[holder]);
    }
    return false;
}
