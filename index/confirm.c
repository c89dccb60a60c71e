/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine says of its cache in an answer ends doubt, one way or the other. */
#include "index/tree.h"

static bool believe(struct wp_index *ix, uint32_t loc)
{
    struct wp_loc *l = wp_loc_at(ix, loc);
    uint8_t tiers = wp_loc_tiers(l), fastest = tiers & (uint8_t)-tiers, sure = wp_loc_sure(ix, l);

    if (l->vague || (sure | fastest) == sure)
        return false;
    wp_tree_count(ix, l, -1);
    l->sure = (uint8_t)(sure | fastest);
    l->epoch = ix->holders[l->holder].epoch;
    wp_tree_count(ix, l, 1);
    return true;
}

static bool restricted(const struct wp_holder *h)
{
    for (uint32_t i = 0; i < h->windows; i++)
        if (wp_window_restricts(&h->window[i]))
            return true;
    return false;
}

/* The next loc is found before this one is disowned: with it, all that is before may go. */
static size_t confirm(struct wp_index *ix, uint32_t holder, uint32_t node, const uint64_t local[],
                      size_t n, size_t blocks)
{
    bool drop = !restricted(&ix->holders[holder]);
    size_t changed = 0;
    uint32_t loc;

    node = n ? wp_tree_child(ix, node, local[0]) : 0;
    for (size_t i = 0; node; i++) {
        loc = wp_tree_loc(ix, node, holder);
        node = i + 1 < n ? wp_tree_child(ix, node, local[i + 1]) : 0;
        if (!loc)
            break;
        if (node && !wp_tree_loc(ix, node, holder))
            node = 0;
        if (i < blocks)
            changed += believe(ix, loc);
        else if (drop)
            changed += wp_tree_disown(ix, loc);
    }
    return changed;
}

size_t wp_index_confirm(struct wp_index *ix, uint32_t holder, uint32_t space,
                        const uint64_t local[], size_t n, size_t blocks)
{
    size_t changed = 0;

    pthread_rwlock_wrlock(&ix->lock);
    if (space < ix->n_spaces && holder < ix->n_holders && ix->holders[holder].live)
        changed = confirm(ix, holder, ix->spaces[space].root, local, n, blocks);
    pthread_rwlock_unlock(&ix->lock);
    return changed;
}
