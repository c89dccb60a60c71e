/* SPDX-License-Identifier: Apache-2.0 */
#include "index/tree.h"

#include <string.h>

enum { EVICT_AT_ONCE = 32 };

/* Keys are somebody else's choice: what lies in one bucket must not be theirs to choose. */
static uint32_t mix(const struct wp_index *ix, uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ ix->conf.secret) * 0x9E3779B97F4A7C15u;

    x = (x ^ (x >> 32) ^ b) * 0xD6E8FEB86659FD93u;
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(x >> 32);
}

static uint32_t child_hash(const struct wp_index *ix, uint32_t node, uint64_t local)
{
    return mix(ix, local, node);
}

static uint32_t at_hash(const struct wp_index *ix, uint32_t node, uint32_t holder)
{
    return mix(ix, node, holder);
}

static uint32_t name_hash(const struct wp_index *ix, uint32_t holder, uint32_t space,
                          uint16_t group, uint64_t engine)
{
    return mix(ix, engine, holder | (uint64_t)group << 32 | (uint64_t)space << 48);
}

uint32_t wp_tree_head_hash(const struct wp_index *ix, uint32_t holder, uint64_t local)
{
    return mix(ix, local, holder);
}

bool wp_name_idle(const struct wp_name *n)
{
    static const uint16_t none[WP_TIER_MAX];

    return memcmp(n->copies, none, sizeof none) == 0;
}

uint32_t wp_tree_child(const struct wp_index *ix, uint32_t node, uint64_t local)
{
    uint32_t h = child_hash(ix, node, local);

    WP_TABLE_EACH(&ix->children, h, c)
    {
        const struct wp_node *it = wp_node_at(ix, c);

        if (it->local == local && it->parent == node)
            return c;
    }
    return 0;
}

uint32_t wp_tree_loc(const struct wp_index *ix, uint32_t node, uint32_t holder)
{
    uint32_t h = at_hash(ix, node, holder);

    WP_TABLE_EACH(&ix->at, h, l)
    {
        const struct wp_loc *it = wp_loc_at(ix, l);

        if (it->node == node && it->holder == holder)
            return l;
    }
    return 0;
}

uint32_t wp_tree_name(const struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group,
                      uint64_t engine)
{
    uint32_t h = name_hash(ix, holder, space, group, engine);

    WP_TABLE_EACH(&ix->named, h, n)
    {
        const struct wp_name *it = wp_name_at(ix, n);

        if (it->engine == engine && it->holder == holder && it->group == group &&
            it->space == space)
            return n;
    }
    return 0;
}

bool wp_tree_below(const struct wp_index *ix, uint32_t node, uint32_t top)
{
    while (node && node != top)
        node = wp_node_at(ix, node)->parent;
    return node == top;
}

void wp_tree_count(struct wp_index *ix, const struct wp_loc *l, int by)
{
    struct wp_holder *h = &ix->holders[l->holder];
    struct wp_node *node = wp_node_at(ix, l->node);
    uint64_t one = (uint64_t)(int64_t)by; /* wraps: adding it takes off */
    uint8_t tiers = wp_loc_tiers(l), sure = wp_loc_sure(ix, l);

    if (!tiers)
        return;
    h->blocks += one;
    if (node->flags & WP_NODE_FLOATS) {
        h->floating += one;
        ix->floating += one;
        return;
    }
    if (node->holders == (by > 0 ? 0 : 1))
        ix->blocks += one;
    node->holders += (uint32_t)by;
    for (int t = 0; t < WP_TIER_MAX; t++)
        if (tiers >> t & 1) {
            h->tier[t] += one;
            ix->locations += one;
        }
    h->sure += one * (unsigned)__builtin_popcount(sure);
    ix->sure += one * (unsigned)__builtin_popcount(sure);
}

void wp_tree_unleaf(struct wp_index *ix, uint32_t loc)
{
    struct wp_loc *l = wp_loc_at(ix, loc);
    struct wp_holder *h = &ix->holders[l->holder];

    if (!l->leaf)
        return;
    *(l->older ? &wp_loc_at(ix, l->older)->younger : &h->oldest[l->leaf - 1]) = l->younger;
    *(l->younger ? &wp_loc_at(ix, l->younger)->older : &h->youngest[l->leaf - 1]) = l->older;
    l->older = l->younger = l->leaf = 0;
}

static void leaf_on(struct wp_index *ix, uint32_t loc, bool young)
{
    struct wp_loc *l = wp_loc_at(ix, loc);
    struct wp_holder *h = &ix->holders[l->holder];
    bool floats = wp_node_at(ix, l->node)->flags & WP_NODE_FLOATS;
    uint32_t *oldest = &h->oldest[floats], *youngest = &h->youngest[floats];

    l->leaf = floats ? 2 : 1;
    if (young) {
        l->older = *youngest;
        *(*youngest ? &wp_loc_at(ix, *youngest)->younger : oldest) = loc;
        *youngest = loc;
    } else {
        l->younger = *oldest;
        *(*oldest ? &wp_loc_at(ix, *oldest)->older : youngest) = loc;
        *oldest = loc;
    }
}

/* What becomes a leaf because all below is gone was stored before it: it is as old as anything. */
void wp_tree_leaf(struct wp_index *ix, uint32_t loc)
{
    struct wp_loc *l = wp_loc_at(ix, loc);
    uint8_t want = l->children || !l->held                           ? 0
                   : wp_node_at(ix, l->node)->flags & WP_NODE_FLOATS ? 2
                                                                     : 1;

    if (l->leaf == want)
        return;
    wp_tree_unleaf(ix, loc);
    if (want)
        leaf_on(ix, loc, false);
}

void wp_tree_touch(struct wp_index *ix, uint32_t loc)
{
    const struct wp_loc *l = wp_loc_at(ix, loc);

    wp_tree_unleaf(ix, loc);
    if (!l->children && l->held)
        leaf_on(ix, loc, true);
}

static int reserve(struct wp_index *ix, uint32_t nodes, uint32_t locs, uint32_t names)
{
    int rc = wp_pool_reserve(&ix->nodes, nodes, &ix->budget);

    if (rc == 0)
        rc = wp_pool_reserve(&ix->locs, locs, &ix->budget);
    if (rc == 0)
        rc = wp_pool_reserve(&ix->names, names, &ix->budget);
    if (rc == 0)
        rc = wp_table_reserve(&ix->children, nodes, &ix->budget);
    if (rc == 0)
        rc = wp_table_reserve(&ix->heads, nodes, &ix->budget);
    if (rc == 0)
        rc = wp_table_reserve(&ix->at, locs, &ix->budget);
    return rc == 0 ? wp_table_reserve(&ix->named, names, &ix->budget) : rc;
}

static uint64_t weight(const struct wp_holder *h)
{
    return h->blocks + h->windowed;
}

/* What a holder can lose: a tail, or the oldest window name when it has more of those. */
static bool evict_one(struct wp_index *ix, struct wp_holder *h)
{
    if (h->oldest_window && (h->windowed > h->blocks || !wp_holder_oldest(h))) {
        ix->evicted++;
        wp_window_drop(ix, h->oldest_window);
        return true;
    }
    if (!wp_holder_oldest(h))
        return false;
    wp_tree_evict(ix, wp_holder_oldest(h));
    return true;
}

static bool evict_some(struct wp_index *ix)
{
    struct wp_holder *fattest = NULL;

    for (uint32_t i = 0; i < ix->n_holders; i++) {
        struct wp_holder *h = &ix->holders[i];

        if ((wp_holder_oldest(h) || h->oldest_window) && (!fattest || weight(h) > weight(fattest)))
            fattest = h;
    }
    if (!fattest)
        return false;
    for (int i = 0; i < EVICT_AT_ONCE && evict_one(ix, fattest);)
        i++;
    return true;
}

bool wp_tree_reserve(struct wp_index *ix, uint32_t nodes, uint32_t locs, uint32_t names)
{
    int rc = reserve(ix, nodes, locs, names);

    while (rc == WP_ETOOBIG && evict_some(ix))
        rc = reserve(ix, nodes, locs, names);
    return rc == 0;
}

void wp_tree_link_node(struct wp_index *ix, uint32_t node, uint32_t parent, uint32_t holder)
{
    struct wp_node *it = wp_node_at(ix, node), *up = wp_node_at(ix, parent);

    it->parent = parent;
    it->prev = 0;
    it->next = up->child;
    if (up->child)
        wp_node_at(ix, up->child)->prev = node;
    up->child = node;
    wp_table_put(&ix->children, child_hash(ix, parent, it->local), node);
    if (up->flags & WP_NODE_AWAITED)
        wp_table_put(&ix->heads, wp_tree_head_hash(ix, holder, it->local), node);
}

void wp_tree_unlink_node(struct wp_index *ix, uint32_t node, uint32_t holder)
{
    struct wp_node *it = wp_node_at(ix, node), *up;

    if (!it->parent)
        return;
    up = wp_node_at(ix, it->parent);
    *(it->prev ? &wp_node_at(ix, it->prev)->next : &up->child) = it->next;
    if (it->next)
        wp_node_at(ix, it->next)->prev = it->prev;
    wp_table_del(&ix->children, child_hash(ix, it->parent, it->local), node);
    if (up->flags & WP_NODE_AWAITED)
        wp_table_del(&ix->heads, wp_tree_head_hash(ix, holder, it->local), node);
}

void wp_tree_link_loc(struct wp_index *ix, uint32_t loc, uint32_t node)
{
    struct wp_loc *l = wp_loc_at(ix, loc);
    struct wp_node *it = wp_node_at(ix, node);

    l->node = node;
    l->prev = 0;
    l->next = it->locs;
    if (it->locs)
        wp_loc_at(ix, it->locs)->prev = loc;
    it->locs = loc;
    wp_table_put(&ix->at, at_hash(ix, node, l->holder), loc);
}

void wp_tree_unlink_loc(struct wp_index *ix, uint32_t loc)
{
    struct wp_loc *l = wp_loc_at(ix, loc);

    *(l->prev ? &wp_loc_at(ix, l->prev)->next : &wp_node_at(ix, l->node)->locs) = l->next;
    if (l->next)
        wp_loc_at(ix, l->next)->prev = l->prev;
    wp_table_del(&ix->at, at_hash(ix, l->node, l->holder), loc);
}

uint32_t wp_tree_make_root(struct wp_index *ix, uint32_t space)
{
    uint32_t i = wp_pool_take(&ix->nodes);
    struct wp_node *root = wp_node_at(ix, i);

    root->space = (uint16_t)space;
    root->flags = WP_NODE_ROOT;
    return i;
}

uint32_t wp_tree_make_child(struct wp_index *ix, uint32_t node, uint64_t local, uint32_t holder)
{
    uint32_t i = wp_pool_take(&ix->nodes);
    struct wp_node *it = wp_node_at(ix, i);
    const struct wp_node *up = wp_node_at(ix, node);

    it->local = local;
    it->space = up->space;
    it->flags = up->flags & WP_NODE_FLOATS;
    wp_tree_link_node(ix, i, node, holder);
    return i;
}

uint32_t wp_tree_make_loc(struct wp_index *ix, uint32_t node, uint32_t holder)
{
    uint32_t i = wp_pool_take(&ix->locs),
             up = wp_tree_loc(ix, wp_node_at(ix, node)->parent, holder);

    wp_loc_at(ix, i)->holder = holder;
    wp_loc_at(ix, i)->epoch = ix->holders[holder].epoch;
    wp_tree_link_loc(ix, i, node);
    wp_tree_pin(ix, up);
    return i;
}

uint32_t wp_tree_list_name(struct wp_index *ix, const struct wp_name *like)
{
    uint32_t i = wp_pool_take(&ix->names);

    *wp_name_at(ix, i) = *like;
    wp_table_put(&ix->named,
                 name_hash(ix, like->holder, like->space, like->group, like->engine), i);
    return i;
}

void wp_tree_unlist_name(struct wp_index *ix, uint32_t name)
{
    const struct wp_name *n = wp_name_at(ix, name);

    wp_table_del(&ix->named, name_hash(ix, n->holder, n->space, n->group, n->engine), name);
    wp_pool_give(&ix->names, name);
}

uint32_t wp_tree_make_name(struct wp_index *ix, uint32_t loc, uint32_t space, uint16_t group,
                           uint64_t engine)
{
    struct wp_loc *l = wp_loc_at(ix, loc);
    struct wp_name like = {.engine = engine,
                           .holder = l->holder,
                           .loc = loc,
                           .next = l->names,
                           .group = group,
                           .space = (uint16_t)space};

    l->names = wp_tree_list_name(ix, &like);
    return l->names;
}

uint32_t wp_tree_make_awaited(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group,
                              uint64_t engine)
{
    uint32_t i = wp_pool_take(&ix->nodes), loc;
    struct wp_node *it = wp_node_at(ix, i);

    it->space = (uint16_t)space;
    it->flags = WP_NODE_AWAITED | WP_NODE_FLOATS;
    loc = wp_tree_make_loc(ix, i, holder);
    wp_tree_make_name(ix, loc, space, group, engine);
    return loc;
}

static void unlink_name(struct wp_index *ix, uint32_t name)
{
    uint32_t *at = &wp_loc_at(ix, wp_name_at(ix, name)->loc)->names;

    while (*at != name)
        at = &wp_name_at(ix, *at)->next;
    *at = wp_name_at(ix, name)->next;
}

void wp_tree_drop_name(struct wp_index *ix, uint32_t name)
{
    unlink_name(ix, name);
    wp_tree_unlist_name(ix, name);
}

void wp_tree_bind(struct wp_index *ix, uint32_t name, uint32_t loc)
{
    struct wp_name *n = wp_name_at(ix, name);

    unlink_name(ix, name);
    n->loc = loc;
    n->next = wp_loc_at(ix, loc)->names;
    wp_loc_at(ix, loc)->names = name;
}
