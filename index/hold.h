/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/hold.h - what detail.c, hold.c, holder.c and confirm.c share: names and details, and a place that is being changed.
 */
#ifndef WP_INDEX_HOLD_H
#define WP_INDEX_HOLD_H

#include "index/inside.h"

#include <string.h>

static inline struct wp_name *wp_name_at(const struct wp_index *ix, uint32_t i)
{
    return wp_pool_at(&ix->names, i);
}
static inline struct wp_detail *wp_detail_at(const struct wp_index *ix, uint32_t i)
{
    return wp_pool_at(&ix->details, i);
}
static inline bool wp_name_idle(const struct wp_name *n)
{
    static const uint16_t none[WP_TIER_MAX];

    return memcmp(n->copies, none, sizeof none) == 0;
}
/* The name has no copies in the tier from now on. */
static inline void wp_name_void(struct wp_index *ix, uint32_t holder, struct wp_name *n, int tier)
{
    if (n->copies[tier])
        wp_digest_name(&ix->holders[holder], n->engine, ix->holders[holder].shelf[n->book].group, (uint8_t)(1u << tier), -1);
    n->copies[tier] = 0;
}
static inline uint8_t wp_copies_tiers(const uint16_t copies[WP_TIER_MAX])
{
    uint8_t tiers = 0;

    for (int t = 0; t < WP_TIER_MAX; t++)
        tiers |= (uint8_t)((copies[t] != 0) << t);
    return tiers;
}

uint32_t wp_detail_of(const struct wp_index *ix, uint32_t holder, uint32_t place); /* 0: none */
bool wp_details_reserve(struct wp_index *ix); /* for one detail and two names */
uint32_t wp_detail_make(struct wp_index *ix, uint32_t holder, uint32_t place);
void wp_detail_drop(struct wp_index *ix, uint32_t d); /* without its names */
void wp_detail_drop_idle(struct wp_index *ix, uint32_t d);
void wp_detail_normalise(struct wp_index *ix, uint32_t d, bool guess); /* one that says no more than a book can is dropped */
uint8_t wp_detail_tiers(const struct wp_index *ix, uint32_t d);     /* in which its names have copies */
uint16_t wp_detail_windows(const struct wp_index *ix, uint32_t d);
uint32_t wp_name_make(struct wp_index *ix, uint32_t d, const struct wp_shelf *shelf, uint64_t engine);
void wp_name_free(struct wp_index *ix, uint32_t name); /* off the detail's list; the book's entry is the caller's */
void wp_name_drop(struct wp_index *ix, uint32_t name);

struct wp_spot { /* what the holder has at a place, to be changed */
    struct wp_part part;
    uint32_t holder, place, run;
    unsigned off;
};
void wp_spot_open(const struct wp_index *ix, uint32_t holder, uint32_t place, struct wp_spot *s);
static inline uint64_t wp_spot_look(const struct wp_spot *s)
{
    return s->part.look[s->off];
}
void wp_spot_set(struct wp_spot *s, uint8_t tiers, uint8_t sure, uint64_t flags);
void wp_spot_less(struct wp_spot *s, uint8_t named); /* tiers that its names no longer have are gone */
void wp_spot_sum_up(struct wp_index *ix, struct wp_spot *s); /* after names changed: the windows' bits, and whether there must be a detail */
bool wp_spot_close(struct wp_index *ix, const struct wp_spot *s); /* false: no memory, and the holder has lost the run */

void wp_hold_unguess(struct wp_index *ix, uint32_t holder, uint32_t place);
/* Something was lost at the place: guesses before it that nothing speaks for any more end, and runs that are empty go. */
void wp_hold_lost(struct wp_index *ix, uint32_t holder, uint32_t place);

/* The plain name of the place goes, whatever it is; it had copies in these tiers.  Cost: a sweep of the holder's books. */
void wp_hold_forget_plain(struct wp_index *ix, uint32_t holder, uint32_t place, uint8_t tiers);

#endif
