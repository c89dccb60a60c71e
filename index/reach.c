/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups for people and for other tools: they cost more than the walk of overlap.c, and say more.
 */
#include "index/identity.h"
#include "index/inside.h"

/* The tiers in which the holder, or its node, has the block. */
static uint8_t tiers_at(const struct wp_index *ix, uint32_t place, uint32_t holder)
{
    uint32_t of_node = ix->holders[holder].node;
    uint8_t shared = of_node == WP_NO_HOLDER ? 0 : wp_look_tiers(wp_part_look(ix, place, of_node));

    return (uint8_t)(wp_look_tiers(wp_part_look(ix, place, holder)) | shared);
}

static void reach(const struct wp_index *ix, uint32_t holder, uint32_t space,
                  const uint64_t local[], size_t n, struct wp_reach *r)
{
    uint32_t place = WP_NOWHERE;

    for (size_t i = 0; i < n; i++) {
        uint8_t tiers;

        place = wp_place_below(ix, space, place, local[i]);
        tiers = place != WP_NOWHERE ? tiers_at(ix, place, holder) : 0;
        if (!tiers)
            return;
        for (int t = 0; t < WP_TIER_MAX; t++) {
            r->upto[t] += r->upto[t] == i && (tiers & ((2u << t) - 1)) != 0;
            r->on[t] += tiers >> t & 1;
        }
    }
}

void wp_index_reach(const struct wp_index *ix, uint32_t holder, uint32_t space,
                    const uint64_t local[], size_t n, struct wp_reach *r)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&ix->lock;

    *r = (struct wp_reach){0};
    pthread_mutex_lock(lock);
    if (space < ix->n_spaces && holder < ix->n_holders && ix->holders[holder].live)
        reach(ix, holder, space, local, n, r);
    pthread_mutex_unlock(lock);
}

/* The block below the place whose link of the chain is `want`; WP_NOWHERE: none. */
static uint32_t child_called(const struct wp_index *ix, uint32_t space, uint32_t place,
                             uint64_t before, uint64_t want)
{
    uint32_t run = wp_place_run(place),
             c = place == WP_NOWHERE ? ix->spaces[space].child : wp_own_at(ix, run)->child;
    unsigned off = wp_place_off(place) + 1;

    if (place != WP_NOWHERE && off < wp_run_len(wp_run_at(ix, run)) &&
        wp_hash_next(before, wp_run_local(ix, wp_run_at(ix, run), off)) == want)
        return place + 1;
    for (; c; c = wp_own_at(ix, c)->next) {
        uint64_t local = wp_run_local(ix, wp_run_at(ix, c), 0);

        if (wp_run_at(ix, c)->parent == place &&
            (place == WP_NOWHERE ? local : wp_hash_next(before, local)) == want)
            return wp_place(c, 0);
    }
    return WP_NOWHERE;
}

/* Some block there is somebody's, or leads to one that is. */
static bool leads_on(const struct wp_index *ix, uint32_t place)
{
    uint32_t run = wp_place_run(place), c = wp_own_at(ix, run)->child;
    unsigned off = wp_place_off(place);

    if (wp_run_cover(ix, run) >> off)
        return true;
    while (c && wp_place_off(wp_run_at(ix, c)->parent) < off)
        c = wp_own_at(ix, c)->next;
    return c != 0;
}

size_t wp_index_unchain(const struct wp_index *ix, uint32_t space, const uint64_t chain[], size_t n,
                        uint64_t local[])
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&ix->lock;
    uint32_t place = WP_NOWHERE;
    size_t i = 0;

    pthread_mutex_lock(lock);
    for (; space < ix->n_spaces && i < n; i++) {
        place = i ? child_called(ix, space, place, chain[i - 1], chain[i])
                  : wp_place_below(ix, space, WP_NOWHERE,
                                   chain[0]); /* the first block's link is its local hash */
        if (place == WP_NOWHERE || !leads_on(ix, place))
            break;
        local[i] = wp_run_local(ix, wp_run_at(ix, wp_place_run(place)), wp_place_off(place));
    }
    pthread_mutex_unlock(lock);
    return i;
}
