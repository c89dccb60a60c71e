/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups that restrict: what they hold, by hash alone.  An engine gives a block the same hash in
 * all its groups, so a look-up that stands at a main group's block asks for the group's name of
 * that hash; nothing is placed, and it does not matter which of the two groups spoke first.
 */
#include "index/tree.h"

struct wp_window *wp_window_of(struct wp_index *ix, uint32_t holder, uint16_t group)
{
    struct wp_holder *h = &ix->holders[holder];

    for (uint32_t i = 0; i < h->windows; i++)
        if (h->window[i].group == group)
            return &h->window[i];
    return NULL;
}

static uint32_t find(const struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group,
                     uint64_t engine)
{
    return wp_tree_name(ix, holder, space, (uint16_t)(group | WP_GROUP_WINDOW), engine);
}

static void unlink_name(struct wp_index *ix, uint32_t name)
{
    const struct wp_name *n = wp_name_at(ix, name);
    struct wp_holder *h = &ix->holders[n->holder];

    *(n->loc ? &wp_name_at(ix, n->loc)->next : &h->oldest_window) = n->next;
    *(n->next ? &wp_name_at(ix, n->next)->loc : &h->youngest_window) = n->loc;
    h->windowed--;
}

static void link_youngest(struct wp_index *ix, uint32_t name)
{
    struct wp_name *n = wp_name_at(ix, name);
    struct wp_holder *h = &ix->holders[n->holder];

    n->loc = h->youngest_window;
    n->next = 0;
    *(n->loc ? &wp_name_at(ix, n->loc)->next : &h->oldest_window) = name;
    h->youngest_window = name;
    h->windowed++;
}

void wp_window_drop(struct wp_index *ix, uint32_t name)
{
    unlink_name(ix, name);
    wp_tree_unlist_name(ix, name);
}

/* The name, the youngest now; 0: no room. */
static uint32_t make(struct wp_index *ix, const struct wp_kv_event *ev, uint64_t engine)
{
    uint32_t name = find(ix, ev->holder, ev->space, ev->group, engine);

    if (name) {
        unlink_name(ix, name);
    } else {
        if (!wp_tree_reserve(ix, 0, 0, 1))
            return 0;
        name = wp_tree_list_name(ix,
                                 &(struct wp_name){.engine = engine,
                                                   .holder = ev->holder,
                                                   .group = (uint16_t)(ev->group | WP_GROUP_WINDOW),
                                                   .space = (uint16_t)ev->space});
    }
    link_youngest(ix, name);
    return name;
}

/* The main group has a block of that name, wherever. */
static bool main_has(const struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group,
                     uint64_t engine)
{
    uint32_t name = wp_tree_name(ix, holder, space, group, engine);

    return name && !wp_name_idle(wp_name_at(ix, name));
}

void wp_window_store(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_window *w,
                     struct wp_kv_result *res)
{
    for (size_t i = 0; i < ev->n; i++) {
        uint32_t name = make(ix, ev, ev->engine[i]);

        if (!name || wp_name_at(ix, name)->copies[ev->tier] == WP_COPIES_MAX) {
            res->refused++;
            continue;
        }
        wp_name_at(ix, name)->copies[ev->tier]++;
        res->applied++;
        w->stored += w->stored < WP_WINDOW_TRIAL;
        w->met = w->met || main_has(ix, ev->holder, ev->space, w->main, ev->engine[i]);
    }
}

void wp_window_remove(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    for (size_t i = 0; i < ev->n; i++) {
        uint32_t name = find(ix, ev->holder, ev->space, ev->group, ev->engine[i]);

        if (!name || !wp_name_at(ix, name)->copies[ev->tier]) {
            res->unknown++;
            continue;
        }
        wp_name_at(ix, name)->copies[ev->tier]--;
        res->applied++;
        if (wp_name_idle(wp_name_at(ix, name)))
            wp_window_drop(ix, name);
    }
}

void wp_window_meet(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t main,
                    uint64_t engine)
{
    struct wp_holder *h = &ix->holders[holder];

    if (h->windows && !main_has(ix, holder, space, main, engine))
        return; /* refused, or not known */
    for (uint32_t i = 0; i < h->windows; i++)
        if (!h->window[i].met && h->window[i].main == main)
            h->window[i].met = find(ix, holder, space, h->window[i].group, engine) != 0;
}

bool wp_window_holds(const struct wp_index *ix, uint32_t loc, uint16_t group)
{
    const struct wp_loc *l = wp_loc_at(ix, loc);

    for (uint32_t n = l->names; n; n = wp_name_at(ix, n)->next) {
        const struct wp_name *it = wp_name_at(ix, n);

        if (!wp_name_idle(it) && find(ix, it->holder, it->space, group, it->engine))
            return true;
    }
    return false;
}

static void end(struct wp_index *ix, uint32_t holder, struct wp_window *w)
{
    struct wp_holder *h = &ix->holders[holder];

    for (uint32_t n = h->oldest_window, next; n; n = next) {
        next = wp_name_at(ix, n)->next;
        if (wp_name_at(ix, n)->group == (w->group | WP_GROUP_WINDOW))
            wp_window_drop(ix, n);
    }
    *w = h->window[--h->windows];
}

static int set(struct wp_index *ix, uint32_t holder, uint16_t group, uint16_t main, uint32_t blocks)
{
    struct wp_holder *h = &ix->holders[holder];
    struct wp_window *w = wp_window_of(ix, holder, group);

    if (!blocks) {
        if (w)
            end(ix, holder, w);
        return 0;
    }
    if (!w && h->windows == WP_WINDOWS_MAX)
        return WP_ETOOBIG;
    if (!w) {
        w = &h->window[h->windows++];
        *w = (struct wp_window){.group = group};
    }
    w->main = main;
    w->blocks = blocks;
    return 0;
}

int wp_index_window(struct wp_index *ix, uint32_t holder, uint16_t group, uint16_t main,
                    uint32_t blocks)
{
    int rc = WP_EINVAL;

    pthread_rwlock_wrlock(&ix->lock);
    if (holder < ix->n_holders && ix->holders[holder].live && group < WP_GROUPS &&
        main < WP_GROUPS && group != main)
        rc = set(ix, holder, group, main, blocks);
    pthread_rwlock_unlock(&ix->lock);
    return rc;
}
