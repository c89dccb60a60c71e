/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How floating chains find their place: by the name that they hang from, once it is stored with a
 * place of its own, or by a prompt that they line up with.  Nothing is copied: nodes are hung
 * elsewhere, and where the place has such a node already, what the holder has moves over to it.
 */
#include "index/tree.h"

/* What has found its place counts from now on: a whole chain, one holder's. */
static void make_firm(struct wp_index *ix, uint32_t top)
{
    uint32_t node = top;

    for (;;) {
        struct wp_node *it = wp_node_at(ix, node);
        struct wp_loc *l = wp_loc_at(ix, it->locs);

        wp_tree_count(ix, l, -1);
        it->flags &= (uint16_t)~WP_NODE_FLOATS;
        wp_tree_count(ix, l, 1);
        wp_tree_leaf(ix, it->locs);
        if (it->child) {
            node = it->child;
            continue;
        }
        while (node != top && !wp_node_at(ix, node)->next)
            node = wp_node_at(ix, node)->parent;
        if (node == top)
            return;
        node = wp_node_at(ix, node)->next;
    }
}

/* Two locs of one holder become one. */
static void join_locs(struct wp_index *ix, uint32_t from, uint32_t to)
{
    struct wp_loc *a = wp_loc_at(ix, from), *b = wp_loc_at(ix, to);

    if (a->held)
        wp_tree_unguess(ix, to);
    wp_tree_count(ix, a, -1);
    wp_tree_count(ix, b, -1);
    b->sure = wp_loc_sure(ix, b) | wp_loc_sure(ix, a);
    b->epoch = ix->holders[b->holder].epoch;
    b->held |= a->held;
    b->vague |= a->vague;
    if (b->vague)
        b->sure = 0;
    wp_tree_count(ix, b, 1);
    while (a->names)
        wp_tree_bind(ix, a->names, to);
    wp_tree_unlink_loc(ix, from);
    wp_pool_give(&ix->locs, from);
}

/* What the holder has at node `from` is at node `to` now.  True: `to` had nothing of it before. */
static bool move_loc(struct wp_index *ix, uint32_t from, uint32_t to, uint32_t holder)
{
    uint32_t a = wp_tree_loc(ix, from, holder), b = wp_tree_loc(ix, to, holder);
    struct wp_loc *l = wp_loc_at(ix, a);

    wp_tree_unleaf(ix, a);
    if (b) {
        join_locs(ix, a, b);
        return false;
    }
    wp_tree_count(ix, l, -1);
    wp_tree_unlink_loc(ix, a);
    wp_tree_link_loc(ix, a, to);
    l->children = 0; /* counted anew as they come */
    wp_tree_count(ix, l, 1);
    return true;
}

/*
 * Walks the two trees side by side: s under what floats, t where it belongs.  A child of s that t
 * lacks is hung there with all that is below it; one that t has hands its loc over, and the walk
 * goes down.  An emptied s is dropped.
 */
void wp_tree_hang(struct wp_index *ix, uint32_t awaited, uint32_t to, uint32_t holder)
{
    bool firm = !(wp_node_at(ix, to)->flags & WP_NODE_FLOATS);
    uint32_t s = awaited, t = to, own = wp_tree_loc(ix, awaited, holder);

    wp_tree_drop_idle(ix, own);
    for (;;) {
        uint32_t c = wp_node_at(ix, s)->child, g, up;

        if (c) {
            g = wp_tree_child(ix, t, wp_node_at(ix, c)->local);
            if (!g) {
                wp_tree_unlink_node(ix, c, holder);
                wp_tree_link_node(ix, c, t, holder);
                wp_tree_pin(ix, wp_tree_loc(ix, t, holder));
                if (firm)
                    make_firm(ix, c);
                continue;
            }
            if (move_loc(ix, c, g, holder))
                wp_tree_pin(ix, wp_tree_loc(ix, t, holder));
            s = c;
            t = g;
            continue;
        }
        wp_tree_leaf(ix, wp_tree_loc(ix, t, holder));
        if (s == awaited)
            break;
        up = wp_node_at(ix, s)->parent;
        wp_tree_unlink_node(ix, s, holder);
        wp_pool_give(&ix->nodes, s);
        s = up;
        t = wp_node_at(ix, t)->parent;
    }
    wp_tree_unlink_loc(ix, own);
    wp_pool_give(&ix->locs, own);
    wp_pool_give(&ix->nodes, awaited);
}

/* How many blocks that the holder has below the awaited node lie on the prompt, from block k on;
 * the tier of the first. */
static size_t line_up(const struct wp_index *ix, uint32_t awaited, uint32_t holder,
                      const uint64_t local[], size_t n, size_t k, uint8_t *tier)
{
    uint32_t node = awaited;
    size_t held = 0;

    for (; k < n && (node = wp_tree_child(ix, node, local[k])) != 0; k++) {
        uint8_t tiers = wp_loc_tiers(wp_loc_at(ix, wp_tree_loc(ix, node, holder)));

        if (tiers && !held++)
            *tier = (uint8_t)__builtin_ctz(tiers);
    }
    return held;
}

/* The one block of the prompt from which most lies on it; 0: none, or not certain. */
static size_t place_of(const struct wp_index *ix, uint32_t awaited, uint32_t holder,
                       const uint64_t local[], size_t n, uint8_t *tier)
{
    size_t best = 0, most = 0;

    for (size_t k = 1; k < n; k++) {
        uint8_t its = 0;
        size_t held = line_up(ix, awaited, holder, local, n, k, &its);

        if (held && held == most)
            best = 0;
        if (held > most) {
            most = held;
            best = k;
            *tier = its;
        }
    }
    return best;
}

/* The prompt's first k blocks count as held by the holder, in doubt; what is awaited is block k
 * - 1. */
static void hang_on_prompt(struct wp_index *ix, uint32_t awaited, uint32_t holder,
                           const uint64_t local[], size_t k, uint8_t tier)
{
    uint32_t space = wp_node_at(ix, awaited)->space, node = ix->spaces[space].root, loc = 0, name;

    for (size_t i = 0; i < k; i++) {
        uint32_t child = wp_tree_child(ix, node, local[i]);

        node = child ? child : wp_tree_make_child(ix, node, local[i], holder);
        loc = wp_tree_loc(ix, node, holder);
        if (!loc)
            loc = wp_tree_make_loc(ix, node, holder);
        wp_tree_guess(ix, loc, tier);
    }
    name = wp_loc_at(ix, wp_tree_loc(ix, awaited, holder))->names;
    if (wp_loc_at(ix, loc)->guess)
        wp_tree_bind(ix, name, loc); /* a removal by this name ends the guess */
    wp_tree_hang(ix, awaited, node, holder);
}

/* An awaited node of the holder with a child of that local hash that has a certain place on the
 * prompt; 0: none. */
static uint32_t candidate(const struct wp_index *ix, uint32_t holder, uint32_t space,
                          const uint64_t local[], size_t n, size_t k, size_t *place, uint8_t *tier)
{
    uint32_t hash = wp_tree_head_hash(ix, holder, local[k]);

    WP_TABLE_EACH(&ix->heads, hash, head)
    {
        const struct wp_node *it = wp_node_at(ix, head);

        if (it->local != local[k] || it->space != space ||
            wp_loc_at(ix, it->locs)->holder != holder)
            continue;
        *place = place_of(ix, it->parent, holder, local, n, tier);
        if (*place)
            return it->parent;
    }
    return 0;
}

static bool seen_before(const uint64_t local[], size_t k)
{
    for (size_t i = 1; i < k; i++)
        if (local[i] == local[k])
            return true;
    return false;
}

static size_t graft(struct wp_index *ix, uint32_t holder, uint32_t space, const uint64_t local[],
                    size_t n)
{
    uint64_t before = ix->holders[holder].floating;

    for (size_t k = 1; k < n; k++) {
        uint32_t hash = wp_tree_head_hash(ix, holder, local[k]), awaited;
        bool any = false;
        size_t place = 0;
        uint8_t tier = 0;

        WP_TABLE_EACH(&ix->heads, hash, head)
        {
            any = true;
            break;
        }
        if (!any || seen_before(local, k))
            continue;
        for (;;) {
            /* room first: making it may evict what we are about to hang */
            if (!wp_tree_reserve(ix, (uint32_t)n, (uint32_t)n, 0))
                return before - ix->holders[holder].floating;
            awaited = candidate(ix, holder, space, local, n, k, &place, &tier);
            if (!awaited)
                break;
            hang_on_prompt(ix, awaited, holder, local, place, tier);
        }
    }
    return before - ix->holders[holder].floating;
}

size_t wp_index_graft(struct wp_index *ix, uint32_t holder, uint32_t space, const uint64_t local[],
                      size_t n)
{
    size_t done = 0;

    pthread_rwlock_wrlock(&ix->lock);
    if (holder < ix->n_holders && ix->holders[holder].live && space < ix->n_spaces &&
        n < UINT32_MAX && ix->holders[holder].floating)
        done = graft(ix, holder, space, local, n);
    pthread_rwlock_unlock(&ix->lock);
    return done;
}
