/* SPDX-License-Identifier: Apache-2.0 */
#include "index/inside.h"

#include <string.h>

enum { FLOATING_MAX = 65536 };

/* Keys are somebody else's choice: what lies in one bucket must not be theirs to choose. */
static uint32_t mix(const struct wp_index *ix, uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ ix->prefix.secret) * 0x9E3779B97F4A7C15u;

    x = (x ^ (x >> 32) ^ b) * 0xD6E8FEB86659FD93u;
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(x >> 32);
}

static uint32_t name_hash(const struct wp_index *ix, uint32_t holder, uint32_t space,
                          uint16_t group, uint64_t engine)
{
    return mix(ix, engine, holder | (uint64_t)group << 32 | (uint64_t)space << 48);
}

static struct wp_fnode *node_at(const struct wp_index *ix, uint32_t i)
{
    return wp_fnode_at(&ix->floats, i);
}

static struct wp_fname *name_at(const struct wp_index *ix, uint32_t i)
{
    return wp_fname_at(&ix->floats, i);
}

uint32_t wp_float_head_hash(const struct wp_index *ix, uint32_t holder, uint64_t local)
{
    return mix(ix, local, holder);
}

void wp_floats_init(struct wp_floats *f)
{
    f->nodes.size = sizeof(struct wp_fnode);
    f->names.size = sizeof(struct wp_fname);
}

void wp_floats_fini(struct wp_floats *f, struct wp_budget *b)
{
    wp_table_fini(&f->named, b);
    wp_table_fini(&f->below, b);
    wp_table_fini(&f->heads, b);
    wp_pool_fini(&f->nodes, b);
    wp_pool_fini(&f->names, b);
}

uint32_t wp_float_name(const struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group,
                       uint64_t engine)
{
    uint32_t h = name_hash(ix, holder, space, group, engine);

    WP_TABLE_EACH(&ix->floats.named, h, n)
    {
        const struct wp_fname *it = name_at(ix, n);

        if (it->engine == engine && it->holder == holder && it->group == group &&
            it->space == space)
            return n;
    }
    return 0;
}

uint32_t wp_float_child(const struct wp_index *ix, uint32_t node, uint64_t local)
{
    uint32_t h = mix(ix, local, node);

    WP_TABLE_EACH(&ix->floats.below, h, c)
    {
        const struct wp_fnode *it = node_at(ix, c);

        if (it->local == local && it->parent == node)
            return c;
    }
    return 0;
}

bool wp_float_awaited(const struct wp_index *ix, uint32_t node)
{
    return node_at(ix, node)->parent == 0;
}

static bool is_idle(const struct wp_fname *n)
{
    static const uint16_t none[WP_TIER_MAX];

    return memcmp(n->copies, none, sizeof none) == 0;
}

int wp_float_reserve(struct wp_index *ix)
{
    struct wp_floats *f = &ix->floats;
    int rc = wp_pool_reserve(&f->nodes, 1, &ix->budget);

    if (rc == 0)
        rc = wp_pool_reserve(&f->names, 2, &ix->budget);
    if (rc == 0)
        rc = wp_table_reserve(&f->named, 2, &ix->budget);
    if (rc == 0)
        rc = wp_table_reserve(&f->below, 1, &ix->budget);
    return rc == 0 ? wp_table_reserve(&f->heads, 1, &ix->budget) : rc;
}

static void count(struct wp_index *ix, const struct wp_fnode *n, int by)
{
    struct wp_holder *h = &ix->holders[n->holder];
    uint64_t one = (uint64_t)(int64_t)by; /* wraps: adding it takes off */

    if (!n->held)
        return;
    h->blocks += one;
    h->floating += one;
    ix->floats.blocks += one;
}

static void unleaf(struct wp_index *ix, uint32_t node)
{
    struct wp_fnode *n = node_at(ix, node);
    struct wp_float_ages *a = &ix->holders[n->holder].floats;

    if (!n->leaf)
        return;
    *(n->older ? &node_at(ix, n->older)->younger : &a->oldest) = n->younger;
    *(n->younger ? &node_at(ix, n->younger)->older : &a->youngest) = n->older;
    n->older = n->younger = 0;
    n->leaf = false;
}

static bool is_leaf(const struct wp_fnode *n)
{
    return n->held && !n->child && !n->pins;
}

/* What becomes a leaf because all below is gone was stored before it: it is as old as anything. */
static void leaf(struct wp_index *ix, uint32_t node, bool young)
{
    struct wp_fnode *n = node_at(ix, node);
    struct wp_float_ages *a = &ix->holders[n->holder].floats;

    if (n->leaf && (young || !is_leaf(n)))
        unleaf(ix, node);
    if (n->leaf || !is_leaf(n))
        return;
    n->leaf = true;
    if (young) {
        n->older = a->youngest;
        *(a->youngest ? &node_at(ix, a->youngest)->younger : &a->oldest) = node;
        a->youngest = node;
    } else {
        n->younger = a->oldest;
        *(a->oldest ? &node_at(ix, a->oldest)->older : &a->youngest) = node;
        a->oldest = node;
    }
}

static void link_node(struct wp_index *ix, uint32_t node, uint32_t parent)
{
    struct wp_fnode *n = node_at(ix, node), *up = node_at(ix, parent);

    n->parent = parent;
    n->prev = 0;
    n->next = up->child;
    if (up->child)
        node_at(ix, up->child)->prev = node;
    up->child = node;
    wp_table_put(&ix->floats.below, mix(ix, n->local, parent), node);
    if (!up->parent)
        wp_table_put(&ix->floats.heads, wp_float_head_hash(ix, n->holder, n->local), node);
    unleaf(ix, parent);
}

static void unlink_node(struct wp_index *ix, uint32_t node)
{
    struct wp_fnode *n = node_at(ix, node), *up = node_at(ix, n->parent);

    *(n->prev ? &node_at(ix, n->prev)->next : &up->child) = n->next;
    if (n->next)
        node_at(ix, n->next)->prev = n->prev;
    wp_table_del(&ix->floats.below, mix(ix, n->local, n->parent), node);
    if (!up->parent)
        wp_table_del(&ix->floats.heads, wp_float_head_hash(ix, n->holder, n->local), node);
}

static uint32_t make_name(struct wp_index *ix, uint32_t node, uint32_t space, uint16_t group,
                          uint64_t engine)
{
    uint32_t i = wp_pool_take(&ix->floats.names);
    struct wp_fnode *n = node_at(ix, node);

    *name_at(ix, i) = (struct wp_fname){.engine = engine,
                                        .node = node,
                                        .next = n->names,
                                        .holder = n->holder,
                                        .group = group,
                                        .space = (uint16_t)space};
    n->names = i;
    wp_table_put(&ix->floats.named, name_hash(ix, n->holder, space, group, engine), i);
    return i;
}

/* The name has no copies in the tier from now on. */
static void void_tier(struct wp_index *ix, struct wp_fname *n, int tier)
{
    if (n->copies[tier])
        wp_digest_floating(&ix->holders[n->holder], n->engine, n->group, (uint8_t)(1u << tier), -1);
    n->copies[tier] = 0;
}

static void drop_name(struct wp_index *ix, uint32_t name)
{
    struct wp_fname *n = name_at(ix, name);
    uint32_t *at = &node_at(ix, n->node)->names;

    for (int t = 0; t < WP_TIER_MAX; t++)
        void_tier(ix, n, t);
    while (*at != name)
        at = &name_at(ix, *at)->next;
    *at = n->next;
    wp_table_del(&ix->floats.named, name_hash(ix, n->holder, n->space, n->group, n->engine), name);
    wp_pool_give(&ix->floats.names, name);
}

uint32_t wp_float_await(struct wp_index *ix, const struct wp_kv_event *ev, uint64_t engine)
{
    uint32_t i = wp_pool_take(&ix->floats.nodes);
    struct wp_fnode *n = node_at(ix, i);

    n->holder = ev->holder;
    n->space = (uint16_t)ev->space;
    make_name(ix, i, ev->space, ev->group, engine);
    return i;
}

/* What holds nothing and leads nowhere goes. */
static void settle(struct wp_index *ix, uint32_t node)
{
    while (node) {
        struct wp_fnode *n = node_at(ix, node);
        uint32_t up = n->parent;

        if (n->child || n->held || n->pins) {
            leaf(ix, node, false);
            return;
        }
        unleaf(ix, node);
        while (n->names)
            drop_name(ix, n->names);
        if (up)
            unlink_node(ix, node);
        wp_pool_give(&ix->floats.nodes, node);
        node = up;
    }
}

void wp_float_pin(struct wp_index *ix, uint32_t node)
{
    node_at(ix, node)->pins++;
    unleaf(ix, node);
}

void wp_float_unpin(struct wp_index *ix, uint32_t node)
{
    node_at(ix, node)->pins--;
    settle(ix, node);
}

bool wp_float_room(struct wp_index *ix, uint32_t holder)
{
    struct wp_holder *h = &ix->holders[holder];
    uint32_t max = ix->conf.floating_max ? ix->conf.floating_max : FLOATING_MAX;

    while (h->floating >= max && h->floats.oldest)
        wp_float_evict(ix, h->floats.oldest);
    return h->floating < max;
}

static bool is_below(const struct wp_index *ix, uint32_t node, uint32_t top)
{
    while (node && node != top)
        node = node_at(ix, node)->parent;
    return node == top;
}

/* Two nodes of one holder become one; what hung below `from` is the caller's to move. */
static void merge(struct wp_index *ix, uint32_t from, uint32_t to)
{
    struct wp_fnode *a = node_at(ix, from), *b = node_at(ix, to);
    uint32_t epoch = ix->holders[b->holder].epoch;

    count(ix, a, -1);
    count(ix, b, -1);
    b->sure = (uint8_t)((b->epoch == epoch ? b->sure : 0) | (a->epoch == epoch ? a->sure : 0));
    b->epoch = epoch;
    b->held |= a->held;
    b->vague |= a->vague;
    if (b->vague)
        b->sure = 0;
    count(ix, b, 1);
    while (a->names) {
        uint32_t name = a->names;

        a->names = name_at(ix, name)->next;
        name_at(ix, name)->node = to;
        name_at(ix, name)->next = b->names;
        b->names = name;
    }
    unleaf(ix, from);
    a->held = 0;
}

/* All that hangs below the awaited node goes below `to`, which floats as well; the awaited node is
 * gone. */
static void hang(struct wp_index *ix, uint32_t awaited, uint32_t to)
{
    uint32_t s = awaited, t = to;

    for (;;) {
        uint32_t c = node_at(ix, s)->child, g;

        if (c) {
            g = wp_float_child(ix, t, node_at(ix, c)->local);
            unlink_node(ix, c);
            if (!g) {
                link_node(ix, c, t);
                continue;
            }
            merge(ix, c, g);
            node_at(ix, c)->parent = s; /* only to find the way back: it is in no list */
            s = c;
            t = g;
            continue;
        }
        leaf(ix, t, false);
        if (s == awaited)
            break;
        c = s;
        s = node_at(ix, c)->parent;
        t = node_at(ix, t)->parent;
        wp_pool_give(&ix->floats.nodes, c);
    }
    while (node_at(ix, awaited)->names)
        drop_name(ix, node_at(ix, awaited)->names);
    wp_pool_give(&ix->floats.nodes, awaited);
}

static uint32_t child_or_new(struct wp_index *ix, uint32_t node, uint64_t local)
{
    uint32_t c = wp_float_child(ix, node, local);
    struct wp_fnode *n;

    if (c)
        return c;
    c = wp_pool_take(&ix->floats.nodes);
    n = node_at(ix, c);
    n->local = local;
    n->holder = node_at(ix, node)->holder;
    n->space = node_at(ix, node)->space;
    link_node(ix, c, node);
    return c;
}

uint32_t wp_float_store(struct wp_index *ix, const struct wp_kv_event *ev, uint32_t node, size_t i)
{
    uint32_t name = wp_float_name(ix, ev->holder, ev->space, ev->group, ev->engine[i]);
    uint32_t c = wp_float_child(ix, node, ev->local[i]), awaited = 0;

    if (name && name_at(ix, name)->node == c)
        return c;
    if (!(c && node_at(ix, c)->held) && !wp_float_room(ix, ev->holder))
        return 0;
    name = wp_float_name(ix, ev->holder, ev->space, ev->group,
                         ev->engine[i]); /* making room may have taken it */
    if (name && wp_float_awaited(ix, name_at(ix, name)->node)) {
        awaited = name_at(ix, name)->node;
        if (is_below(ix, node, awaited))
            return 0; /* a block below itself */
        drop_name(ix, name);
    } else if (name) {
        wp_float_forget(ix,
                        name); /* the last word wins; what it said before is void, copies and all */
    }
    c = child_or_new(ix, node, ev->local[i]);
    make_name(ix, c, ev->space, ev->group, ev->engine[i]);
    if (awaited)
        hang(ix, awaited, c);
    return c;
}

/* A store of what is in doubt in the tier begins its count anew (index/hold.c). */
static bool void_copies(struct wp_index *ix, const struct wp_fnode *n, uint8_t tier)
{
    uint8_t sure = n->epoch == ix->holders[n->holder].epoch ? n->sure : 0;

    if (n->vague || !((n->held & ~sure) >> tier & 1))
        return false;
    for (uint32_t i = n->names; i; i = name_at(ix, i)->next)
        void_tier(ix, name_at(ix, i), tier);
    return true;
}

static void drop_idle(struct wp_index *ix, uint32_t node)
{
    for (uint32_t i = node_at(ix, node)->names, next; i; i = next) {
        next = name_at(ix, i)->next;
        if (is_idle(name_at(ix, i)))
            drop_name(ix, i);
    }
}

bool wp_float_give(struct wp_index *ix, uint32_t name, uint8_t tier, bool vague)
{
    struct wp_fname *it = name_at(ix, name);
    struct wp_fnode *n = node_at(ix, it->node);
    uint32_t epoch = ix->holders[n->holder].epoch;
    bool anew = void_copies(ix, n, tier);

    if (it->copies[tier] == WP_COPIES_MAX)
        return false;
    if (it->copies[tier]++ == 0)
        wp_digest_floating(&ix->holders[n->holder], it->engine, it->group, (uint8_t)(1u << tier),
                           1);
    if (anew)
        drop_idle(ix, it->node);
    count(ix, n, -1);
    if (n->epoch != epoch)
        n->sure = 0;
    n->epoch = epoch;
    n->held |= (uint8_t)(1u << tier);
    n->sure |= (uint8_t)(1u << tier);
    n->vague |= vague;
    if (n->vague)
        n->sure = 0;
    count(ix, n, 1);
    leaf(ix, it->node, true);
    return true;
}

/* The last copy that some name had in the tier is gone: so is the tier, unless another name has
 * one. */
static void lose(struct wp_index *ix, uint32_t node, int tier)
{
    struct wp_fnode *n = node_at(ix, node);

    for (uint32_t i = n->names; i; i = name_at(ix, i)->next)
        if (name_at(ix, i)->copies[tier])
            return;
    count(ix, n, -1);
    n->held &= (uint8_t) ~(1u << tier);
    n->sure &= (uint8_t) ~(1u << tier);
    if (!n->held)
        n->vague = false;
    count(ix, n, 1);
}

bool wp_float_take(struct wp_index *ix, uint32_t name, uint8_t tier)
{
    struct wp_fname *it = name_at(ix, name);
    uint32_t node = it->node;

    if (!it->copies[tier])
        return false;
    if (it->copies[tier] > 1) {
        it->copies[tier]--;
        return true;
    }
    void_tier(ix, it, tier);
    lose(ix, node, tier);
    if (is_idle(it))
        drop_name(ix, name);
    settle(ix, node);
    return true;
}

void wp_float_forget(struct wp_index *ix, uint32_t name)
{
    struct wp_fname *it = name_at(ix, name);
    uint32_t node = it->node;

    for (int t = 0; t < WP_TIER_MAX; t++)
        if (it->copies[t]) {
            void_tier(ix, it, t);
            lose(ix, node, t);
        }
    drop_name(ix, name);
    settle(ix, node);
}

void wp_float_evict(struct wp_index *ix, uint32_t leaf)
{
    struct wp_fnode *n = node_at(ix, leaf);

    ix->evicted++;
    count(ix, n, -1);
    n->held = 0;
    settle(ix, leaf);
}

void wp_float_clear(struct wp_index *ix, uint32_t holder)
{
    struct wp_float_ages *a = &ix->holders[holder].floats;
    uint64_t evicted = ix->evicted;

    while (a->oldest)
        wp_float_evict(ix, a->oldest);
    ix->evicted = evicted;
}

/* What one node has becomes the holder's at the place. */
static void land_names(struct wp_index *ix, uint32_t node, uint32_t place)
{
    struct wp_fnode *n = node_at(ix, node);
    struct wp_arrival a = {.holder = n->holder,
                           .space = n->space,
                           .place = place,
                           .sure = n->epoch == ix->holders[n->holder].epoch ? n->sure : 0,
                           .vague = n->vague};

    count(ix, n, -1);
    n->held = 0;
    unleaf(ix, node);
    while (n->names) {
        const struct wp_fname *it = name_at(ix, n->names);

        a.group = it->group;
        a.engine = it->engine;
        memcpy(a.copies, it->copies, sizeof a.copies);
        drop_name(ix, n->names);
        wp_hold_arrive(ix, &a);
    }
}

/* Without memory for the place, what hangs there is lost. */
static void lose_below(struct wp_index *ix, uint32_t top)
{
    uint32_t s = top;

    for (;;) {
        struct wp_fnode *n = node_at(ix, s);
        uint32_t up = n->parent;

        if (n->child) {
            s = n->child;
            continue;
        }
        count(ix, n, -1);
        n->held = 0;
        unleaf(ix, s);
        while (n->names)
            drop_name(ix, n->names);
        unlink_node(ix, s);
        wp_pool_give(&ix->floats.nodes, s);
        if (s == top)
            return;
        s = up;
    }
}

/* The place before; a run that is left empty goes, but not what is before it: more may land there.
 */
static uint32_t step_back(struct wp_index *ix, uint32_t place)
{
    uint32_t before = wp_place_before(ix, place), pinned = ix->pinned;

    if (wp_place_off(place) == 0 && before != WP_NOWHERE) {
        ix->pinned = wp_place_run(before);
        wp_run_settle(ix, wp_place_run(place));
        ix->pinned = pinned;
    }
    return before;
}

void wp_float_land(struct wp_index *ix, uint32_t awaited, uint32_t place)
{
    uint32_t s = awaited, t = place, space = node_at(ix, awaited)->space;

    for (;;) {
        uint32_t c = node_at(ix, s)->child, g;

        if (c) {
            g = wp_place_below(ix, space, t, node_at(ix, c)->local);
            if (g == WP_NOWHERE && wp_place_reserve(ix) == 0)
                g = wp_place_make(ix, space, t, node_at(ix, c)->local);
            if (g == WP_NOWHERE) {
                lose_below(ix, c);
                continue;
            }
            land_names(ix, c, g);
            s = c;
            t = g;
            continue;
        }
        if (s == awaited)
            break;
        c = s;
        s = node_at(ix, c)->parent;
        t = step_back(ix, t);
        unlink_node(ix, c);
        wp_pool_give(&ix->floats.nodes, c);
    }
    while (node_at(ix, awaited)->names)
        drop_name(ix, node_at(ix, awaited)->names);
    wp_pool_give(&ix->floats.nodes, awaited);
}
