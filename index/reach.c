/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups for people and for other tools: they cost more than the walk of overlap.c, and say more.
 */
#include "index/identity.h"
#include "index/tree.h"

/* The tiers in which the holder, or its node, has the block. */
static uint8_t tiers_at(const struct wp_index *ix, uint32_t node, uint32_t holder)
{
    uint32_t of_node = ix->holders[holder].node;
    uint32_t own = wp_tree_loc(ix, node, holder);
    uint32_t shared = of_node == WP_NO_HOLDER ? 0 : wp_tree_loc(ix, node, of_node);

    return (uint8_t)((own ? wp_loc_tiers(wp_loc_at(ix, own)) : 0) |
                     (shared ? wp_loc_tiers(wp_loc_at(ix, shared)) : 0));
}

static void reach(const struct wp_index *ix, uint32_t holder, uint32_t node, const uint64_t local[],
                  size_t n, struct wp_reach *r)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t tiers;

        node = wp_tree_child(ix, node, local[i]);
        tiers = node ? tiers_at(ix, node, holder) : 0;
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
    pthread_rwlock_t *lock = (pthread_rwlock_t *)&ix->lock;

    *r = (struct wp_reach){0};
    pthread_rwlock_rdlock(lock);
    if (space < ix->n_spaces && holder < ix->n_holders && ix->holders[holder].live)
        reach(ix, holder, ix->spaces[space].root, local, n, r);
    pthread_rwlock_unlock(lock);
}

/* The child whose link of the chain is `want`; 0: none. */
static uint32_t child_called(const struct wp_index *ix, uint32_t node, uint64_t before,
                             uint64_t want)
{
    uint32_t c = wp_node_at(ix, node)->child;

    while (c && wp_hash_next(before, wp_node_at(ix, c)->local) != want)
        c = wp_node_at(ix, c)->next;
    return c;
}

size_t wp_index_unchain(const struct wp_index *ix, uint32_t space, const uint64_t chain[], size_t n,
                        uint64_t local[])
{
    pthread_rwlock_t *lock = (pthread_rwlock_t *)&ix->lock;
    uint32_t node;
    size_t i = 0;

    pthread_rwlock_rdlock(lock);
    node = space < ix->n_spaces ? ix->spaces[space].root : 0;
    for (; node && i < n; i++) {
        /* the first block's link is its local hash */
        node =
            i ? child_called(ix, node, chain[i - 1], chain[i]) : wp_tree_child(ix, node, chain[0]);
        if (!node)
            break;
        local[i] = wp_node_at(ix, node)->local;
    }
    pthread_rwlock_unlock(lock);
    return i;
}
