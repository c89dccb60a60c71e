/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups that restrict: what they hold, by hash alone.  An engine gives a block the same hash in
 * all its groups, so a main group's name places it; where the holder has the block, the span of its
 * windows says which groups have it too. In a window's book a value is the tiers that have one copy
 * each, and eight bits above them the tiers in doubt; or a name's number, and the name has the
 * doubt.
 */
#include "index/hold.h"

#include <string.h>

int wp_window_of(const struct wp_index *ix, uint32_t holder, uint16_t group)
{
    const struct wp_holder *h = &ix->holders[holder];

    for (int i = 0; h->windows && i < WP_WINDOWS_MAX; i++)
        if (h->window[i].used && h->window[i].group == group)
            return i;
    return -1;
}

uint16_t wp_windows_with(struct wp_index *ix, uint32_t holder, uint32_t space, uint64_t engine)
{
    struct wp_holder *h = &ix->holders[holder];
    uint16_t with = 0;

    for (uint32_t i = 0; i < h->shelves; i++)
        if (h->shelf[i].window >= 0 && h->shelf[i].space == space &&
            wp_book_find(&h->shelf[i].book, engine))
            with |= (uint16_t)(1u << h->shelf[i].window);
    return with;
}

static struct wp_name *name_at(const struct wp_index *ix, uint32_t value)
{
    return wp_pool_at(&ix->names, value & ~WP_NAMED);
}

static unsigned copies_of(const struct wp_index *ix, uint32_t value, uint8_t tier)
{
    return value & WP_NAMED ? name_at(ix, value)->copies[tier] : value >> tier & 1;
}

static uint8_t doubtful(const struct wp_index *ix, uint32_t value)
{
    return (uint8_t)(value & WP_NAMED ? name_at(ix, value)->windows : value >> 8);
}

static void set_doubtful(struct wp_index *ix, uint32_t *value, uint8_t tiers)
{
    if (*value & WP_NAMED)
        name_at(ix, *value)->windows = tiers;
    else
        *value = (*value & UINT8_MAX) | (uint32_t)tiers << 8;
}

/* The main group has copies of the hash, wherever. */
static bool main_has(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group,
                     uint64_t engine)
{
    struct wp_known k;
    uint32_t floating;

    if (wp_hold_find(ix, wp_shelf_of(ix, holder, space, group, -1), engine, &k))
        return !wp_hold_idle(ix, &k);
    floating = ix->holders[holder].floating ? wp_float_name(ix, holder, space, group, engine) : 0;
    return floating && !wp_float_awaited(ix, wp_fname_at(&ix->floats, floating)->node);
}

static void set_met(struct wp_index *ix, struct wp_window *w, bool met)
{
    bool before = wp_window_restricts(w);

    w->met = met;
    if (wp_window_restricts(w) != before)
        wp_census_make(ix);
}

void wp_window_meet(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group,
                    uint64_t engine)
{
    struct wp_holder *h = &ix->holders[holder];
    uint16_t with;

    if (!h->windows || !main_has(ix, holder, space, group, engine))
        return; /* refused, or not known */
    with = wp_windows_with(ix, holder, space, engine);
    for (int i = 0; i < WP_WINDOWS_MAX; i++)
        if (h->window[i].used && !h->window[i].met && h->window[i].main == group && with >> i & 1)
            set_met(ix, &h->window[i], true);
}

/* Tells the places of the hash that the window has it now, or no longer. */
static void tell(struct wp_index *ix, const struct wp_kv_event *ev, int window, uint64_t engine,
                 bool has)
{
    struct wp_holder *h = &ix->holders[ev->holder];
    struct wp_known k;

    for (uint32_t i = 0; i < h->shelves; i++)
        if (h->shelf[i].window < 0 && h->shelf[i].space == ev->space &&
            wp_hold_find(ix, &h->shelf[i], engine, &k))
            wp_hold_window(ix, ev->holder, &k, window, has);
}

static int reserve(struct wp_index *ix, const struct wp_kv_event *ev, int window)
{
    struct wp_shelf *s = wp_shelf_make(ix, ev->holder, ev->space, ev->group, window);
    int rc = s ? wp_book_reserve(&s->book, ix->prefix.secret, 1, &ix->budget) : WP_ETOOBIG;

    return rc < 0 ? rc : wp_pool_reserve(&ix->names, 1, &ix->budget);
}

/* The entry, made when new; NULL: no memory. */
static uint32_t *entry(struct wp_index *ix, const struct wp_kv_event *ev, int window,
                       uint64_t engine, bool *fresh)
{
    struct wp_shelf *s;
    uint32_t *value;
    int rc;

    while ((rc = reserve(ix, ev, window)) == WP_ETOOBIG && wp_evict(ix))
        ;
    if (rc < 0)
        return NULL;
    s = wp_shelf_of(ix, ev->holder, ev->space, ev->group, window);
    value = wp_book_find(&s->book, engine);
    *fresh = !value;
    if (value)
        return value;
    wp_book_put(&s->book, engine, 0);
    ix->holders[ev->holder].windowed++;
    return wp_book_find(&s->book, engine);
}

/* From tiers to copies. */
static bool number(struct wp_index *ix, const struct wp_kv_event *ev, uint64_t engine,
                   uint32_t *value)
{
    uint32_t name;

    if (wp_pool_reserve(&ix->names, 1, &ix->budget) < 0)
        return false;
    name = wp_pool_take(&ix->names);
    *name_at(ix, name) =
        (struct wp_name){.engine = engine, .detail = ev->holder, .windows = doubtful(ix, *value)};
    for (int t = 0; t < WP_TIER_MAX; t++)
        name_at(ix, name)->copies[t] = *value >> t & 1;
    *value = WP_NAMED | name;
    return true;
}

/* One more copy.  What is in doubt counts anew: it may be what was lost, told again. */
static bool count(struct wp_index *ix, const struct wp_kv_event *ev, uint64_t engine,
                  uint32_t *value)
{
    uint8_t bit = (uint8_t)(1u << ev->tier), doubt = doubtful(ix, *value);

    if (doubt & bit) {
        set_doubtful(ix, value, (uint8_t)(doubt & ~bit));
        if (*value & WP_NAMED)
            name_at(ix, *value)->copies[ev->tier] = 1;
        return true;
    }
    if (copies_of(ix, *value, ev->tier) && !(*value & WP_NAMED) && !number(ix, ev, engine, value))
        return false;
    if (!(*value & WP_NAMED))
        *value |= bit;
    else if (name_at(ix, *value)->copies[ev->tier] == WP_COPIES_MAX)
        return false;
    else
        name_at(ix, *value)->copies[ev->tier]++;
    return true;
}

static bool store(struct wp_index *ix, const struct wp_kv_event *ev, int window, uint64_t engine)
{
    struct wp_window *w = &ix->holders[ev->holder].window[window];
    bool fresh, before;
    uint32_t *value = entry(ix, ev, window, engine, &fresh);
    bool had = value && copies_of(ix, *value, ev->tier);

    if (!value || !count(ix, ev, engine, value))
        return false;
    if (!had)
        wp_digest_name(&ix->holders[ev->holder], engine, ev->group, (uint8_t)(1u << ev->tier), 1);
    if (fresh)
        tell(ix, ev, window, engine, true);
    before = wp_window_restricts(w);
    w->stored += w->stored < WP_WINDOW_TRIAL;
    w->met = w->met || main_has(ix, ev->holder, ev->space, w->main, engine);
    if (wp_window_restricts(w) != before)
        wp_census_make(ix);
    return true;
}

static bool is_idle(const struct wp_index *ix, uint32_t value)
{
    static const uint16_t none[WP_TIER_MAX];

    return value & WP_NAMED ? memcmp(name_at(ix, value)->copies, none, sizeof none) == 0
                            : (value & UINT8_MAX) == 0;
}

static bool take(struct wp_index *ix, const struct wp_kv_event *ev, int window, uint64_t engine)
{
    struct wp_shelf *s = wp_shelf_of(ix, ev->holder, ev->space, ev->group, window);
    uint32_t *value = s ? wp_book_find(&s->book, engine) : NULL;

    if (!value || !copies_of(ix, *value, ev->tier))
        return false;
    if (*value & WP_NAMED)
        name_at(ix, *value)->copies[ev->tier]--;
    else
        *value &= ~(1u << ev->tier);
    if (!copies_of(ix, *value, ev->tier)) {
        wp_digest_name(&ix->holders[ev->holder], engine, ev->group, (uint8_t)(1u << ev->tier), -1);
        set_doubtful(ix, value, (uint8_t)(doubtful(ix, *value) & ~(1u << ev->tier)));
    }
    if (!is_idle(ix, *value))
        return true;
    if (*value & WP_NAMED)
        wp_pool_give(&ix->names, *value & ~WP_NAMED);
    wp_book_del(&s->book, engine);
    ix->holders[ev->holder].windowed--;
    tell(ix, ev, window, engine, false);
    return true;
}

void wp_window_apply(struct wp_index *ix, const struct wp_kv_event *ev, int window,
                     struct wp_kv_result *res)
{
    for (size_t i = 0; i < ev->n; i++)
        if (ev->kind == WP_KV_REMOVED)
            *(take(ix, ev, window, ev->engine[i]) ? &res->applied : &res->unknown) += 1;
        else
            *(store(ix, ev, window, ev->engine[i]) ? &res->applied : &res->refused) += 1;
}

static bool doubt_entry(void *ctx, uint64_t key, uint32_t *value)
{
    struct wp_index *ix = ctx;

    (void)key;
    set_doubtful(ix, value,
                 *value & WP_NAMED ? wp_copies_tiers(name_at(ix, *value)->copies)
                                   : (uint8_t)*value);
    return true;
}

void wp_window_doubt(struct wp_index *ix, uint32_t holder)
{
    struct wp_holder *h = &ix->holders[holder];

    for (uint32_t i = 0; h->windows && i < h->shelves; i++)
        if (h->shelf[i].window >= 0)
            wp_book_sweep(&h->shelf[i].book, doubt_entry, ix);
}

struct clear {
    struct wp_index *ix;
    uint32_t holder;
    const struct wp_shelf *shelf;
};

static void lost(struct wp_index *ix, uint32_t holder, const struct wp_shelf *s, uint64_t engine,
                 uint32_t value)
{
    wp_digest_name(&ix->holders[holder], engine, s->group, wp_name_tiers(ix, holder, s, value), -1);
    if (value & WP_NAMED)
        wp_pool_give(&ix->names, value & ~WP_NAMED);
    ix->holders[holder].windowed--;
}

static bool clear_entry(void *ctx, uint64_t key, uint32_t *value)
{
    const struct clear *c = ctx;

    lost(c->ix, c->holder, c->shelf, key, *value);
    return false;
}

void wp_window_clear(struct wp_index *ix, uint32_t holder, struct wp_shelf *s)
{
    struct clear c = {ix, holder, s};

    wp_book_sweep(&s->book, clear_entry, &c);
}

struct evict {
    struct wp_index *ix;
    struct wp_kv_event of; /* for telling */
    const struct wp_shelf *shelf;
    uint32_t beat;
};

static bool evict_entry(void *ctx, uint64_t key, uint32_t *value)
{
    struct evict *e = ctx;

    if (e->beat++ % 8)
        return true;
    lost(e->ix, e->of.holder, e->shelf, key, *value);
    e->ix->evicted++;
    tell(e->ix, &e->of, e->shelf->window, key, false);
    return false;
}

bool wp_window_evict(struct wp_index *ix, uint32_t holder)
{
    struct wp_holder *h = &ix->holders[holder];
    struct evict e = {.ix = ix, .of = {.holder = holder}};
    uint64_t before = h->windowed;

    for (uint32_t i = 0; i < h->shelves; i++)
        if (h->shelf[i].window >= 0) {
            e.of.space = h->shelf[i].space;
            e.shelf = &h->shelf[i];
            wp_book_sweep(&h->shelf[i].book, evict_entry, &e);
        }
    return h->windowed < before;
}

static void end(struct wp_index *ix, uint32_t holder, int window)
{
    struct wp_holder *h = &ix->holders[holder];

    for (uint32_t i = 0; i < h->shelves; i++)
        if (h->shelf[i].window == window)
            wp_window_clear(ix, holder, &h->shelf[i]);
    wp_hold_window_end(ix, holder, window);
    h->window[window].used = false;
    h->windows--;
}

static int set(struct wp_index *ix, uint32_t holder, uint16_t group, uint16_t main, uint32_t blocks)
{
    struct wp_holder *h = &ix->holders[holder];
    int i = wp_window_of(ix, holder, group);

    if (!blocks && i < 0)
        return 0;
    if (!blocks) {
        end(ix, holder, i);
        return wp_census_make(ix);
    }
    if (i < 0 && h->windows == WP_WINDOWS_MAX)
        return WP_ETOOBIG;
    if (i < 0) {
        for (i = 0; h->window[i].used;)
            i++;
        h->window[i] = (struct wp_window){.used = true, .group = group};
        h->windows++;
    }
    h->window[i].main = main;
    h->window[i].blocks = blocks;
    return wp_census_make(ix);
}

int wp_index_window(struct wp_index *ix, uint32_t holder, uint16_t group, uint16_t main,
                    uint32_t blocks)
{
    int rc = WP_EINVAL;

    pthread_mutex_lock(&ix->lock);
    if (holder < ix->n_holders && ix->holders[holder].live && group < WP_GROUPS &&
        main < WP_GROUPS && group != main)
        rc = set(ix, holder, group, main, blocks);
    pthread_mutex_unlock(&ix->lock);
    return rc;
}
