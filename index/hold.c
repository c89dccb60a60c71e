/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds what: names, copies, guesses, and what goes when they go. */
#include "index/tree.h"

void wp_tree_pin(struct wp_index *ix, uint32_t loc)
{
    if (!loc)
        return;
    wp_loc_at(ix, loc)->children++;
    wp_tree_unleaf(ix, loc);
}

void wp_tree_unpin(struct wp_index *ix, uint32_t loc)
{
    if (!loc)
        return;
    wp_loc_at(ix, loc)->children--;
    wp_tree_settle(ix, loc);
}

void wp_tree_drop_idle(struct wp_index *ix, uint32_t loc)
{
    for (uint32_t n = wp_loc_at(ix, loc)->names, next; n; n = next) {
        next = wp_name_at(ix, n)->next;
        if (wp_name_idle(wp_name_at(ix, n)))
            wp_tree_drop_name(ix, n);
    }
}

void wp_tree_guess(struct wp_index *ix, uint32_t loc, uint8_t tier)
{
    struct wp_loc *l = wp_loc_at(ix, loc);

    if (l->held || (l->guess && l->guess <= tier + 1))
        return;
    wp_tree_count(ix, l, -1);
    l->guess = (uint8_t)(tier + 1);
    l->sure = 0;
    wp_tree_count(ix, l, 1);
}

void wp_tree_unguess(struct wp_index *ix, uint32_t loc)
{
    struct wp_loc *l = wp_loc_at(ix, loc);

    if (!l->guess)
        return;
    wp_tree_count(ix, l, -1);
    l->guess = 0;
    l->sure = 0;
    wp_tree_count(ix, l, 1);
    wp_tree_drop_idle(ix, loc);
}

bool wp_tree_give(struct wp_index *ix, uint32_t name, uint8_t tier, bool vague)
{
    struct wp_name *n = wp_name_at(ix, name);
    struct wp_loc *l = wp_loc_at(ix, n->loc);

    if (n->copies[tier] == WP_COPIES_MAX)
        return false;
    n->copies[tier]++; /* first, so that it is not idle when the guess goes */
    wp_tree_unguess(ix, n->loc);
    wp_tree_count(ix, l, -1);
    l->sure = wp_loc_sure(ix, l);
    l->epoch = ix->holders[l->holder].epoch;
    l->held |= (uint8_t)(1u << tier);
    l->sure |= (uint8_t)(1u << tier);
    l->vague |= vague;
    if (l->vague)
        l->sure = 0;
    wp_tree_count(ix, l, 1);
    wp_tree_touch(ix, n->loc);
    return true;
}

/* The last copy that some name had in the tier is gone: so is the tier, unless another name has
 * one. */
static void lose(struct wp_index *ix, uint32_t loc, int tier)
{
    struct wp_loc *l = wp_loc_at(ix, loc);

    for (uint32_t n = l->names; n; n = wp_name_at(ix, n)->next)
        if (wp_name_at(ix, n)->copies[tier])
            return;
    wp_tree_count(ix, l, -1);
    l->held &= (uint8_t) ~(1u << tier);
    l->sure &= (uint8_t) ~(1u << tier);
    if (!l->held)
        l->vague = 0;
    wp_tree_count(ix, l, 1);
}

void wp_tree_take(struct wp_index *ix, uint32_t name, uint8_t tier)
{
    struct wp_name *n = wp_name_at(ix, name);
    uint32_t loc = n->loc;

    if (--n->copies[tier])
        return;
    lose(ix, loc, tier);
    if (wp_name_idle(n))
        wp_tree_drop_name(ix, name);
    wp_tree_settle(ix, loc);
}

void wp_tree_forget(struct wp_index *ix, uint32_t name)
{
    struct wp_name *n = wp_name_at(ix, name);
    uint32_t loc = n->loc;

    for (int t = 0; t < WP_TIER_MAX; t++)
        if (n->copies[t]) {
            n->copies[t] = 0;
            lose(ix, loc, t);
        }
    wp_tree_drop_name(ix, name);
    wp_tree_settle(ix, loc);
}

bool wp_tree_disown(struct wp_index *ix, uint32_t loc)
{
    struct wp_loc *l = wp_loc_at(ix, loc);
    uint8_t gone = wp_loc_tiers(l) & (uint8_t)~wp_loc_sure(ix, l);

    if (!gone)
        return false;
    if (l->guess) {
        wp_tree_unguess(ix, loc);
        wp_tree_settle(ix, loc);
        return true;
    }
    for (uint32_t n = l->names; n; n = wp_name_at(ix, n)->next)
        for (int t = 0; t < WP_TIER_MAX; t++)
            if (gone >> t & 1)
                wp_name_at(ix, n)->copies[t] = 0;
    wp_tree_count(ix, l, -1);
    l->held &= (uint8_t)~gone;
    l->sure &= l->held; /* bits of before the last doubt */
    if (!l->held)
        l->vague = 0;
    wp_tree_count(ix, l, 1);
    wp_tree_drop_idle(ix, loc);
    wp_tree_settle(ix, loc);
    return true;
}

/* Returns the holder's loc before it. */
static uint32_t drop_loc(struct wp_index *ix, uint32_t loc)
{
    const struct wp_loc *l = wp_loc_at(ix, loc);
    uint32_t node = l->node, up = wp_tree_loc(ix, wp_node_at(ix, node)->parent, l->holder);

    wp_tree_drop_idle(ix, loc);
    wp_tree_unleaf(ix, loc);
    wp_tree_unlink_loc(ix, loc);
    if (!wp_node_at(ix, node)->locs) {
        wp_tree_unlink_node(ix, node, l->holder);
        wp_pool_give(&ix->nodes, node);
    }
    wp_pool_give(&ix->locs, loc);
    return up;
}

void wp_tree_settle(struct wp_index *ix, uint32_t loc)
{
    while (loc) {
        struct wp_loc *l = wp_loc_at(ix, loc);

        if (!l->children)
            wp_tree_unguess(ix, loc);
        if (l->children || l->held) {
            wp_tree_leaf(ix, loc);
            return;
        }
        loc = drop_loc(ix, loc);
        if (loc)
            wp_loc_at(ix, loc)->children--;
    }
}

static void drop_leaf(struct wp_index *ix, uint32_t leaf)
{
    struct wp_loc *l = wp_loc_at(ix, leaf);

    wp_tree_count(ix, l, -1);
    l->held = l->sure = 0;
    l->vague = 0;
    while (l->names)
        wp_tree_drop_name(ix, l->names);
    wp_tree_settle(ix, leaf);
}

void wp_tree_evict(struct wp_index *ix, uint32_t leaf)
{
    ix->evicted++;
    drop_leaf(ix, leaf);
}

void wp_tree_clear(struct wp_index *ix, uint32_t holder)
{
    struct wp_holder *h = &ix->holders[holder];

    while (wp_holder_oldest(h))
        drop_leaf(ix, wp_holder_oldest(h));
    while (h->oldest_window)
        wp_window_drop(ix, h->oldest_window);
}
