/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine says of its cache in an answer ends doubt, one way or the other. */
#include "index/hold.h"

#include "base/mem.h"

#include <stdlib.h>

struct disowned_place {
    uint32_t place;
    uint8_t gone; /* tiers that its plain name has no more */
    bool all;     /* and nothing else: the name goes */
};

struct disowned {
    struct wp_index *ix;
    uint32_t holder;
    const struct wp_shelf *shelf; /* that is swept */
    struct disowned_place *at;
    size_t n;
};

static int by_number(const void *a, const void *b)
{
    const struct disowned_place *x = a, *y = b;

    return x->place < y->place ? -1 : x->place > y->place;
}

static bool disown_entry(void *ctx, uint64_t key, uint32_t *value)
{
    struct disowned *d = ctx;
    struct disowned_place want = {.place = *value}, *p;

    if (*value & WP_NAMED)
        return true;
    p = bsearch(&want, d->at, d->n, sizeof d->at[0], by_number);
    if (p)
        wp_digest_name(&d->ix->holders[d->holder], key, d->shelf->group, p->gone, -1);
    return !p || !p->all;
}

static bool believe(struct wp_index *ix, uint32_t holder, uint32_t place)
{
    struct wp_spot s;
    uint64_t look;
    uint8_t tiers, fastest, sure;

    wp_spot_open(ix, holder, place, &s);
    look = wp_spot_look(&s);
    tiers = wp_look_tiers(look);
    fastest = tiers & (uint8_t)-tiers;
    sure = wp_span_sure(look);
    if (look & WP_SPAN_VAGUE || (sure | fastest) == sure)
        return false;
    wp_spot_set(&s, tiers, sure | fastest, look & WP_SPAN_GUESS);
    wp_spot_close(ix, &s);
    return true;
}

/* What is in doubt at the place goes.  The plain name that lost something is the caller's to find.
 */
static bool disown(struct wp_index *ix, uint32_t holder, uint32_t place, struct disowned *out)
{
    uint32_t d = wp_detail_of(ix, holder, place);
    struct wp_spot s;
    uint8_t gone, left;
    uint64_t look;

    wp_spot_open(ix, holder, place, &s);
    look = wp_spot_look(&s);
    gone = wp_look_tiers(look) & (uint8_t)~wp_span_sure(look);
    left = wp_look_tiers(look) & wp_span_sure(look);
    if (!gone)
        return false;
    if (look & WP_SPAN_GUESS) {
        wp_hold_unguess(ix, holder, place);
        wp_hold_lost(ix, holder, place);
        return true;
    }
    if (d) {
        uint8_t rest = wp_detail_at(ix, d)->rest;

        for (uint32_t n = wp_detail_at(ix, d)->names; n; n = wp_name_at(ix, n)->next)
            for (int t = 0; t < WP_TIER_MAX; t++)
                if (gone >> t & 1)
                    wp_name_void(ix, holder, wp_name_at(ix, n), t);
        wp_detail_at(ix, d)->rest &= (uint8_t)~gone;
        if (rest && !(rest & ~gone)) /* at once: another name may become the plain one */
            wp_hold_forget_plain(ix, holder, place, rest);
        else if (rest & gone)
            ix->holders[holder].digest_stale = true;
        wp_detail_drop_idle(ix, d);
    } else {
        out->at[out->n++] = (struct disowned_place){place, gone, !left};
    }
    wp_spot_less(&s, left);
    wp_spot_sum_up(ix, &s);
    wp_spot_close(ix, &s);
    if (!left)
        wp_hold_lost(ix, holder, place);
    return true;
}

static bool restricted(const struct wp_holder *h)
{
    for (uint32_t i = 0; i < WP_WINDOWS_MAX; i++)
        if (wp_window_restricts(&h->window[i]))
            return true;
    return false;
}

size_t wp_hold_confirm(struct wp_index *ix, uint32_t holder, uint32_t space, const uint64_t local[],
                       size_t n, size_t blocks)
{
    struct wp_holder *h = &ix->holders[holder];
    struct disowned gone = {.ix = ix, .holder = holder};
    uint32_t place = WP_NOWHERE;
    size_t changed = 0;
    bool drop = !restricted(h) && n > blocks && h->sure < h->blocks * WP_TIER_MAX;

    if (drop)
        gone.at = wp_malloc((n - blocks) * sizeof gone.at[0]);
    for (size_t i = 0; i < n && (i < blocks || gone.at); i++) {
        place = wp_place_below(ix, space, place, local[i]);
        if (place == WP_NOWHERE)
            break;
        wp_run_pin(ix, wp_place_run(place));
        if (i < blocks)
            changed += believe(ix, holder, place);
        else
            changed += disown(ix, holder, place, &gone);
    }
    if (gone.n) {
        qsort(gone.at, gone.n, sizeof gone.at[0], by_number);
        for (uint32_t i = 0; i < h->shelves; i++)
            if (h->shelf[i].window < 0 && h->shelf[i].space == space) {
                gone.shelf = &h->shelf[i];
                wp_book_sweep(&h->shelf[i].book, disown_entry, &gone);
            }
    }
    wp_run_pin(ix, 0);
    wp_free(gone.at);
    return changed;
}
