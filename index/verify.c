/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: everything that index/tree.h promises, checked one by one, and every figure counted
 * anew. */
#include "index/tree.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct check {
    const struct wp_index *ix;
    struct wp_err *err;
    struct wp_holder *want; /* the holders' figures, counted */
    uint64_t blocks, locations, sure, floating;
    uint32_t nodes, locs, names, heads;
};

static bool wrong(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool wrong(struct check *c, const char *fmt, ...)
{
    char text[128];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    wp_fail(c->err, WP_EINVAL, "index: %s", text);
    return false;
}

static bool check_names(struct check *c, uint32_t i, const struct wp_loc *l)
{
    bool awaited = wp_node_at(c->ix, l->node)->flags & WP_NODE_AWAITED;
    uint8_t held = 0;

    for (uint32_t n = l->names; n; n = wp_name_at(c->ix, n)->next, c->names++) {
        const struct wp_name *it = wp_name_at(c->ix, n);

        if (c->names > c->ix->names.n)
            return wrong(c, "names of loc %u go round", i);
        if (it->loc != i || it->holder != l->holder ||
            it->space != wp_node_at(c->ix, l->node)->space)
            return wrong(c, "name %u is not of loc %u", n, i);
        if (wp_tree_name(c->ix, it->holder, it->space, it->group, it->engine) != n)
            return wrong(c, "name %u cannot be found", n);
        if (wp_name_idle(it) && !l->guess && !awaited)
            return wrong(c, "name %u has no copies", n);
        for (int t = 0; t < WP_TIER_MAX; t++)
            held |= (uint8_t)((it->copies[t] != 0) << t);
    }
    if (held != l->held)
        return wrong(c, "loc %u holds tiers %x, its names have %x", i, l->held, held);
    if (awaited && (held || !l->names || wp_name_at(c->ix, l->names)->next))
        return wrong(c, "loc %u is awaited and has not one idle name", i);
    return true;
}

static void count(struct check *c, const struct wp_node *node, const struct wp_loc *l)
{
    struct wp_holder *h = &c->want[l->holder];
    unsigned sure = (unsigned)__builtin_popcount(wp_loc_sure(c->ix, l));

    if (!wp_loc_tiers(l))
        return;
    h->blocks++;
    if (node->flags & WP_NODE_FLOATS) {
        h->floating++;
        c->floating++;
        return;
    }
    for (int t = 0; t < WP_TIER_MAX; t++)
        if (wp_loc_tiers(l) >> t & 1) {
            h->tier[t]++;
            c->locations++;
        }
    h->sure += sure;
    c->sure += sure;
}

static bool check_loc(struct check *c, uint32_t i, uint32_t node)
{
    const struct wp_loc *l = wp_loc_at(c->ix, i);
    const struct wp_node *it = wp_node_at(c->ix, node);
    uint32_t children = 0;
    bool leaf;

    if (c->locs++ > c->ix->locs.n)
        return wrong(c, "locs of node %u go round", node);
    if (l->node != node || l->holder >= c->ix->n_holders || !c->ix->holders[l->holder].live)
        return wrong(c, "loc %u is of node %u and holder %u", i, l->node, l->holder);
    if (wp_tree_loc(c->ix, node, l->holder) != i)
        return wrong(c, "loc %u cannot be found", i);
    if (it->parent && !(wp_node_at(c->ix, it->parent)->flags & WP_NODE_ROOT) &&
        !wp_tree_loc(c->ix, it->parent, l->holder))
        return wrong(c, "loc %u has none before it", i);
    for (uint32_t k = it->child; k; k = wp_node_at(c->ix, k)->next)
        children += wp_tree_loc(c->ix, k, l->holder) != 0;
    if (children != l->children)
        return wrong(c, "loc %u counts %u below it, there are %u", i, l->children, children);
    if (!l->held && !l->children)
        return wrong(c, "loc %u is good for nothing", i);
    if ((l->sure & ~wp_loc_tiers(l)) || (l->vague && (l->sure || !l->held)) ||
        (l->guess && (l->held || !l->children || (it->flags & WP_NODE_FLOATS))))
        return wrong(c, "loc %u: held %x, sure %x, guess %u", i, l->held, l->sure, l->guess);
    leaf = l->held && !l->children;
    if (l->leaf != (leaf ? 1 + !!(it->flags & WP_NODE_FLOATS) : 0))
        return wrong(c, "loc %u is in list of leaves %u", i, l->leaf);
    count(c, it, l);
    return check_names(c, i, l);
}

static bool check_node(struct check *c, uint32_t i, uint32_t parent)
{
    const struct wp_node *it = wp_node_at(c->ix, i);
    uint32_t holders = 0, before = c->locs;

    if (c->nodes++ > c->ix->nodes.n)
        return wrong(c, "nodes go round at %u", i);
    if (it->parent != parent)
        return wrong(c, "node %u hangs below %u, not %u", i, it->parent, parent);
    if (it->child && wp_node_at(c->ix, it->child)->prev)
        return wrong(c, "the first child of node %u has one before it", i);
    if (parent && wp_tree_child(c->ix, parent, it->local) != i)
        return wrong(c, "node %u cannot be found", i);
    if (parent && ((it->flags ^ wp_node_at(c->ix, parent)->flags) & WP_NODE_FLOATS))
        return wrong(c, "node %u floats, or what is before it does, not both", i);
    if (parent && (wp_node_at(c->ix, parent)->flags & WP_NODE_AWAITED))
        c->heads++;
    for (uint32_t l = it->locs; l; l = wp_loc_at(c->ix, l)->next) {
        if (!check_loc(c, l, i))
            return false;
        holders += wp_loc_tiers(wp_loc_at(c->ix, l)) != 0;
    }
    if (it->flags & WP_NODE_FLOATS)
        return c->locs == before + 1 || wrong(c, "floating node %u is not one holder's", i);
    c->blocks += holders != 0;
    if (holders != it->holders)
        return wrong(c, "node %u counts %u holders, there are %u", i, it->holders, holders);
    return (it->flags & WP_NODE_ROOT) || it->locs || wrong(c, "node %u is nobody's", i);
}

static bool check_tree(struct check *c, uint32_t top)
{
    uint32_t node = top, parent = 0;

    for (;;) {
        if (!check_node(c, node, parent))
            return false;
        if (wp_node_at(c->ix, node)->child) {
            parent = node;
            node = wp_node_at(c->ix, node)->child;
            continue;
        }
        while (node != top && !wp_node_at(c->ix, node)->next)
            node = wp_node_at(c->ix, node)->parent;
        if (node == top)
            return true;
        parent = wp_node_at(c->ix, node)->parent;
        node = wp_node_at(c->ix, node)->next;
    }
}

/* The list of a holder's window names, walked both ways. */
static bool check_windows(struct check *c, uint32_t holder)
{
    const struct wp_holder *h = &c->ix->holders[holder];
    uint32_t older = 0;
    uint64_t n = 0;

    for (uint32_t i = h->oldest_window; i; older = i, i = wp_name_at(c->ix, i)->next, n++) {
        const struct wp_name *it = wp_name_at(c->ix, i);

        if (n > c->ix->names.n || it->loc != older || it->holder != holder || wp_name_idle(it) ||
            !(it->group & WP_GROUP_WINDOW))
            return wrong(c, "window name %u of holder %u stands wrong", i, holder);
        if (wp_tree_name(c->ix, holder, it->space, it->group, it->engine) != i)
            return wrong(c, "window name %u cannot be found", i);
    }
    c->names += (uint32_t)n;
    return (older == h->youngest_window && n == h->windowed) ||
           wrong(c, "the window names of holder %u are %u", holder, (unsigned)n);
}

static bool check_trees(struct check *c)
{
    for (uint32_t i = 0; i < c->ix->n_spaces; i++)
        if (!check_tree(c, c->ix->spaces[i].root))
            return false;
    for (uint32_t i = 0; i < c->ix->named.cap; i++) {
        uint32_t name = c->ix->named.slot[i].item, node;

        if (!name || wp_name_at(c->ix, name)->group & WP_GROUP_WINDOW)
            continue;
        node = wp_loc_at(c->ix, wp_name_at(c->ix, name)->loc)->node;
        if ((wp_node_at(c->ix, node)->flags & WP_NODE_AWAITED) && !check_tree(c, node))
            return false;
    }
    for (uint32_t i = 0; i < c->ix->n_holders; i++)
        if (!check_windows(c, i))
            return false;
    if (c->nodes != c->ix->nodes.n || c->nodes < c->ix->children.n)
        return wrong(c, "%u nodes of %u can be reached", c->nodes, c->ix->nodes.n);
    if (c->locs != c->ix->locs.n || c->locs != c->ix->at.n)
        return wrong(c, "%u locs of %u can be reached", c->locs, c->ix->locs.n);
    if (c->names != c->ix->names.n || c->names != c->ix->named.n)
        return wrong(c, "%u names of %u can be reached", c->names, c->ix->names.n);
    return c->heads == c->ix->heads.n || wrong(c, "%u heads, %u found", c->ix->heads.n, c->heads);
}

/* A list of leaves is walked both ways; that each leaf is in the right one, check_loc() has seen.
 */
static bool check_leaves(struct check *c, uint32_t holder, int list)
{
    const struct wp_holder *h = &c->ix->holders[holder];
    uint32_t older = 0, n = 0;

    for (uint32_t l = h->oldest[list]; l; older = l, l = wp_loc_at(c->ix, l)->younger) {
        const struct wp_loc *it = wp_loc_at(c->ix, l);

        if (n++ > c->ix->locs.n || it->older != older || it->holder != holder ||
            it->leaf != list + 1)
            return wrong(c, "leaf %u of holder %u stands wrong", l, holder);
    }
    if (older != h->youngest[list])
        return wrong(c, "the youngest leaf of holder %u is not the last", holder);
    return true;
}

static bool check_holders(struct check *c)
{
    for (uint32_t i = 0; i < c->ix->n_holders; i++) {
        const struct wp_holder *h = &c->ix->holders[i], *want = &c->want[i];

        if (!check_leaves(c, i, 0) || !check_leaves(c, i, 1))
            return false;
        if (h->blocks != want->blocks || h->floating != want->floating || h->sure != want->sure ||
            memcmp(h->tier, want->tier, sizeof h->tier) != 0)
            return wrong(c, "figures of holder %u are not what it holds", i);
        if (h->live && h->node != WP_NO_HOLDER && !c->ix->holders[h->node].live)
            return wrong(c, "holder %u has a node that is gone", i);
    }
    return true;
}

static bool check_figures(struct check *c)
{
    const struct wp_index *ix = c->ix;

    if (c->blocks != ix->blocks || c->locations != ix->locations || c->sure != ix->sure ||
        c->floating != ix->floating)
        return wrong(c, "the figures are not what is held");
    if (ix->budget.cap && ix->budget.bytes > ix->budget.cap)
        return wrong(c, "%llu bytes are over the cap", (unsigned long long)ix->budget.bytes);
    return true;
}

bool wp_index_verify(const struct wp_index *ix, struct wp_err *err)
{
    struct check c = {.ix = ix, .err = err};
    pthread_rwlock_t *lock = (pthread_rwlock_t *)&ix->lock;
    bool ok;

    pthread_rwlock_rdlock(lock);
    c.want = wp_calloc(ix->n_holders, sizeof *c.want);
    ok = c.want ? check_trees(&c) && check_holders(&c) && check_figures(&c)
                : wrong(&c, "out of memory");
    pthread_rwlock_unlock(lock);
    wp_free(c.want);
    return ok;
}
