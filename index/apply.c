/* SPDX-License-Identifier: Apache-2.0 */
/* KV events, block by block: each block of an event leaves the index whole, so that memory may run
 * out anywhere. */
#include "index/tree.h"

enum { FLOATING_MAX = 65536 };

/* Where the next block of a store goes: below node, of which the holder has the (pinned) loc; 0 at
 * a root. */
struct cursor {
    uint32_t node, loc;
};

static bool floats(const struct wp_index *ix, uint32_t node)
{
    return wp_node_at(ix, node)->flags & WP_NODE_FLOATS;
}

static bool is_awaited(const struct wp_index *ix, uint32_t name)
{
    return wp_node_at(ix, wp_loc_at(ix, wp_name_at(ix, name)->loc)->node)->flags & WP_NODE_AWAITED;
}

/* Makes room for one more floating block of the holder: the oldest tail of what floats goes. */
static bool float_room(struct wp_index *ix, uint32_t holder)
{
    struct wp_holder *h = &ix->holders[holder];
    uint32_t max = ix->conf.floating_max ? ix->conf.floating_max : FLOATING_MAX;

    while (h->floating >= max && h->oldest[1])
        wp_tree_evict(ix, h->oldest[1]);
    return h->floating < max;
}

/* The name, bound to the loc of block local below the cursor; 0: refused. */
static uint32_t place(struct wp_index *ix, const struct wp_kv_event *ev, const struct cursor *cur,
                      size_t i)
{
    uint32_t name = wp_tree_name(ix, ev->holder, ev->space, ev->group, ev->engine[i]);
    uint32_t node = wp_tree_child(ix, cur->node, ev->local[i]), loc;

    if (name && wp_loc_at(ix, wp_name_at(ix, name)->loc)->node == node)
        return name;
    loc = node ? wp_tree_loc(ix, node, ev->holder) : 0;
    if (floats(ix, cur->node) && !(loc && wp_loc_at(ix, loc)->held) && !float_room(ix, ev->holder))
        return 0;
    if (!wp_tree_reserve(ix, 1, 1, 1))
        return 0;
    name = wp_tree_name(ix, ev->holder, ev->space, ev->group,
                        ev->engine[i]); /* making room may have taken it */
    if (name && is_awaited(ix, name)) {
        if (wp_tree_below(ix, cur->node, wp_loc_at(ix, wp_name_at(ix, name)->loc)->node))
            return 0; /* a block below itself */
    } else if (name) {
        wp_tree_forget(ix,
                       name); /* the last word wins; what it said before is void, copies and all */
        name = 0;
    }
    node = wp_tree_child(ix, cur->node, ev->local[i]);
    if (!node)
        node = wp_tree_make_child(ix, cur->node, ev->local[i], ev->holder);
    loc = wp_tree_loc(ix, node, ev->holder);
    if (!loc)
        loc = wp_tree_make_loc(ix, node, ev->holder);
    if (!name)
        return wp_tree_make_name(ix, loc, ev->space, ev->group, ev->engine[i]);
    node = wp_loc_at(ix, wp_name_at(ix, name)->loc)->node;
    wp_tree_bind(ix, name, loc);
    wp_tree_hang(ix, node, wp_loc_at(ix, loc)->node, ev->holder);
    return name;
}

static bool start(struct wp_index *ix, const struct wp_kv_event *ev, struct cursor *cur)
{
    uint32_t name;

    *cur = (struct cursor){ix->spaces[ev->space].root, 0};
    if (!ev->has_parent)
        return true;
    name = wp_tree_name(ix, ev->holder, ev->space, ev->group, ev->parent);
    if (name) {
        cur->loc = wp_name_at(ix, name)->loc;
    } else {
        if (!wp_tree_reserve(ix, 1, 1, 1))
            return false;
        cur->loc = wp_tree_make_awaited(ix, ev->holder, ev->space, ev->group, ev->parent);
    }
    cur->node = wp_loc_at(ix, cur->loc)->node;
    wp_tree_pin(ix, cur->loc);
    return true;
}

static void store(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    struct cursor cur;
    size_t i;

    if (!ev->n)
        return;
    if (!start(ix, ev, &cur)) {
        res->refused += ev->n;
        return;
    }
    for (i = 0; i < ev->n; i++) {
        uint32_t name = place(ix, ev, &cur, i), before = cur.loc;

        if (!name)
            break; /* and what follows has no place either */
        *(wp_tree_give(ix, name, ev->tier, ev->vague && ev->vague[i]) ? &res->applied
                                                                      : &res->refused) += 1;
        wp_window_meet(ix, ev->holder, ev->space, ev->group, ev->engine[i]);
        cur.loc = wp_name_at(ix, name)->loc;
        cur.node = wp_loc_at(ix, cur.loc)->node;
        res->floating += floats(ix, cur.node);
        wp_tree_pin(ix, cur.loc);
        wp_tree_unpin(ix, before);
    }
    res->refused += ev->n - i;
    wp_tree_unpin(ix, cur.loc);
}

static void store_tier(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    for (size_t i = 0; i < ev->n; i++) {
        uint32_t name = wp_tree_name(ix, ev->holder, ev->space, ev->group, ev->engine[i]);

        if (!name || is_awaited(ix, name))
            res->unknown++;
        else if (wp_tree_give(ix, name, ev->tier, false))
            res->applied++;
        else
            res->refused++;
        wp_window_meet(ix, ev->holder, ev->space, ev->group, ev->engine[i]);
    }
}

static bool remove_one(struct wp_index *ix, const struct wp_kv_event *ev, uint64_t engine)
{
    uint32_t name = wp_tree_name(ix, ev->holder, ev->space, ev->group, engine), loc;

    if (!name || is_awaited(ix, name))
        return false;
    if (wp_name_at(ix, name)->copies[ev->tier]) {
        wp_tree_take(ix, name, ev->tier);
        return true;
    }
    loc = wp_name_at(ix, name)->loc;
    if (wp_loc_at(ix, loc)->guess != ev->tier + 1)
        return false;
    wp_tree_unguess(ix, loc);
    wp_tree_settle(ix, loc);
    return true;
}

static void apply(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    struct wp_window *w;

    if (ev->holder >= ix->n_holders || !ix->holders[ev->holder].live) {
        res->refused += ev->n;
    } else if (ev->kind == WP_KV_CLEARED) {
        res->applied += ix->holders[ev->holder].blocks;
        wp_tree_clear(ix, ev->holder);
    } else if (ev->space >= ix->n_spaces || ev->tier >= WP_TIER_MAX ||
               ev->group >= WP_GROUPS) {
        res->refused += ev->n;
    } else if ((w = wp_window_of(ix, ev->holder, ev->group)) != NULL) {
        if (ev->kind == WP_KV_REMOVED)
            wp_window_remove(ix, ev, res);
        else
            wp_window_store(ix, ev, w, res);
    } else if (ev->kind == WP_KV_REMOVED) {
        for (size_t i = 0; i < ev->n; i++)
            *(remove_one(ix, ev, ev->engine[i]) ? &res->applied : &res->unknown) += 1;
    } else if (!ev->main_group) {
        res->ignored += ev->n;
    } else if (ev->local) {
        store(ix, ev, res);
    } else {
        store_tier(ix, ev, res);
    }
}

void wp_index_apply(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    struct wp_kv_result own;

    if (!res)
        res = &own;
    *res = (struct wp_kv_result){0};
    pthread_rwlock_wrlock(&ix->lock);
    apply(ix, ev, res);
    pthread_rwlock_unlock(&ix->lock);
}
