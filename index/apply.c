/* SPDX-License-Identifier: Apache-2.0 */
/* KV events, block by block: each block of an event leaves the index whole, so that memory may run
 * out anywhere. */
#include "index/inside.h"

/* Where the next block of a store goes: below a place, or below a node that floats. */
struct cursor {
    uint32_t place; /* WP_NOWHERE: before the first block */
    uint32_t node;  /* 0: it does not float */
};

/* Room for one more block of the event, making some if there is a cap. */
static bool reserve(struct wp_index *ix, const struct wp_kv_event *ev, bool floats)
{
    int rc;

    do {
        rc = floats ? wp_float_reserve(ix) : wp_place_reserve(ix);
        if (rc == 0 && !floats)
            rc = wp_hold_reserve(ix, ev->holder, ev->space, ev->group);
    } while (rc == WP_ETOOBIG && wp_evict(ix));
    return rc == 0;
}

static void move_cursor(struct wp_index *ix, struct cursor *cur, uint32_t place, uint32_t node)
{
    uint32_t before = cur->node;

    if (node)
        wp_float_pin(ix, node);
    wp_run_pin(ix, node || place == WP_NOWHERE ? 0 : wp_place_run(place));
    *cur = (struct cursor){place, node};
    if (before)
        wp_float_unpin(ix, before);
}

static bool start(struct wp_index *ix, const struct wp_kv_event *ev, struct cursor *cur)
{
    struct wp_known k;
    uint32_t name;

    *cur = (struct cursor){WP_NOWHERE, 0};
    if (!ev->has_parent)
        return true;
    if (wp_hold_find(ix, wp_shelf_of(ix, ev->holder, ev->space, ev->group, -1), ev->parent, &k)) {
        move_cursor(ix, cur, k.place, 0);
        return true;
    }
    name = wp_float_name(ix, ev->holder, ev->space, ev->group, ev->parent);
    if (!name && !reserve(ix, ev, true))
        return false;
    name = wp_float_name(ix, ev->holder, ev->space, ev->group, ev->parent);
    move_cursor(ix, cur, WP_NOWHERE,
                name ? wp_fname_at(&ix->floats, name)->node : wp_float_await(ix, ev, ev->parent));
    return true;
}

/* Block i below a node that floats. */
static bool store_floating(struct wp_index *ix, const struct wp_kv_event *ev, struct cursor *cur,
                           size_t i)
{
    struct wp_known k;
    uint32_t node;

    if (!reserve(ix, ev, true))
        return false;
    node = wp_float_child(ix, cur->node, ev->local[i]);
    if (!(node && wp_fnode_at(&ix->floats, node)->held) && !wp_float_room(ix, ev->holder))
        return false;
    if (wp_hold_find(ix, wp_shelf_of(ix, ev->holder, ev->space, ev->group, -1), ev->engine[i], &k))
        wp_hold_forget(ix, ev->holder,
                       &k); /* the last word wins; what it said before is void, copies and all */
    node = wp_float_store(ix, ev, cur->node, i);
    if (!node)
        return false;
    move_cursor(ix, cur, WP_NOWHERE, node);
    return true;
}

static bool give_floating(struct wp_index *ix, const struct wp_kv_event *ev, size_t i)
{
    uint32_t name = wp_float_name(ix, ev->holder, ev->space, ev->group, ev->engine[i]);

    return wp_float_give(ix, name, ev->tier, ev->vague && ev->vague[i]);
}

/* The place of block i below the cursor, made when new; what the name said elsewhere is void.
 * WP_NOWHERE: refused. */
static uint32_t place_of(struct wp_index *ix, const struct wp_kv_event *ev, struct cursor *cur,
                         size_t i, uint32_t *awaited)
{
    uint32_t place = wp_place_below(ix, ev->space, cur->place, ev->local[i]), name;
    struct wp_shelf *shelf = wp_shelf_of(ix, ev->holder, ev->space, ev->group, -1);
    struct wp_known k;

    *awaited = 0;
    if (wp_hold_find(ix, shelf, ev->engine[i], &k) && k.place == place)
        return place;
    if (!reserve(ix, ev, false))
        return WP_NOWHERE;
    place =
        wp_place_below(ix, ev->space, cur->place, ev->local[i]); /* making room may have taken it */
    if (place == WP_NOWHERE)
        place = wp_place_make(ix, ev->space, cur->place, ev->local[i]);
    move_cursor(ix, cur, place, 0); /* held by the pin before the name leaves its old place */
    if (wp_hold_find(ix, wp_shelf_of(ix, ev->holder, ev->space, ev->group, -1), ev->engine[i], &k))
        wp_hold_forget(ix, ev->holder, &k);
    name =
        ix->floats.names.n ? wp_float_name(ix, ev->holder, ev->space, ev->group, ev->engine[i]) : 0;
    if (name && wp_float_awaited(ix, wp_fname_at(&ix->floats, name)->node))
        *awaited = wp_fname_at(&ix->floats, name)->node;
    else if (name)
        wp_float_forget(ix, name);
    return place;
}

static bool store_placed(struct wp_index *ix, const struct wp_kv_event *ev, struct cursor *cur,
                         size_t i, bool *given)
{
    struct wp_arrival a = {.holder = ev->holder,
                           .space = ev->space,
                           .group = ev->group,
                           .engine = ev->engine[i],
                           .sure = (uint8_t)(1u << ev->tier),
                           .stored = true,
                           .vague = ev->vague && ev->vague[i]};
    struct wp_known k;
    uint32_t awaited;

    a.copies[ev->tier] = 1;
    a.place = place_of(ix, ev, cur, i, &awaited);
    if (a.place == WP_NOWHERE)
        return false;
    move_cursor(ix, cur, a.place, 0);
    wp_own_at(ix, wp_place_run(a.place))->stamp = ix->clock;
    if (wp_hold_find(ix, wp_shelf_of(ix, ev->holder, ev->space, ev->group, -1), ev->engine[i],
                     &k)) {
        *given = wp_hold_give(ix, ev->holder, &k, ev->tier, a.vague);
        return true;
    }
    *given = wp_hold_arrive(ix, &a);
    if (!*given)
        return false;
    if (awaited)
        wp_float_land(ix, awaited, a.place);
    return true;
}

static void store(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    struct cursor cur;
    size_t i;

    if (!ev->n)
        return;
    ix->clock++;
    if (!start(ix, ev, &cur)) {
        res->refused += ev->n;
        return;
    }
    for (i = 0; i < ev->n; i++) {
        bool given = false, floats = cur.node != 0;
        size_t done = floats ? 0 : wp_bulk_store(ix, ev, i, &cur.place);

        if (done) {
            res->applied += done;
            i += done - 1;
            continue;
        }

        if (floats ? !store_floating(ix, ev, &cur, i) : !store_placed(ix, ev, &cur, i, &given))
            break; /* and what follows has no place either */
        if (floats)
            given = give_floating(ix, ev, i);
        *(given ? &res->applied : &res->refused) += 1;
        wp_window_meet(ix, ev->holder, ev->space, ev->group, ev->engine[i]);
        res->floating += floats;
    }
    res->refused += ev->n - i;
    move_cursor(ix, &cur, WP_NOWHERE, 0);
}

/* A tier of blocks that are known already. */
static void store_tier(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    for (size_t i = 0; i < ev->n; i++) {
        struct wp_known k;
        uint32_t name;
        bool given;

        if (wp_hold_find(ix, wp_shelf_of(ix, ev->holder, ev->space, ev->group, -1), ev->engine[i],
                         &k)) {
            given = wp_hold_give(ix, ev->holder, &k, ev->tier, false);
            *(given ? &res->applied : &res->refused) += 1;
        } else if ((name = wp_float_name(ix, ev->holder, ev->space, ev->group, ev->engine[i])) !=
                       0 &&
                   !wp_float_awaited(ix, wp_fname_at(&ix->floats, name)->node)) {
            given = wp_float_give(ix, name, ev->tier, false);
            *(given ? &res->applied : &res->refused) += 1;
        } else {
            res->unknown++;
        }
        wp_window_meet(ix, ev->holder, ev->space, ev->group, ev->engine[i]);
    }
}

static bool remove_one(struct wp_index *ix, const struct wp_kv_event *ev, uint64_t engine)
{
    struct wp_known k;
    uint32_t name;

    if (wp_hold_find(ix, wp_shelf_of(ix, ev->holder, ev->space, ev->group, -1), engine, &k))
        return wp_hold_take(ix, ev->holder, &k, ev->tier);
    name = ix->floats.names.n ? wp_float_name(ix, ev->holder, ev->space, ev->group, engine) : 0;
    return name && wp_float_take(ix, name, ev->tier);
}

static void remove_all(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    for (size_t i = 0; i < ev->n; i++) {
        size_t done = wp_bulk_remove(ix, ev, i);

        res->applied += done;
        i += done;
        if (i < ev->n)
            *(remove_one(ix, ev, ev->engine[i]) ? &res->applied : &res->unknown) += 1;
    }
}

static void apply(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_kv_result *res)
{
    int window;

    if (ev->holder >= ix->n_holders || !ix->holders[ev->holder].live) {
        res->refused += ev->n;
    } else if (ev->kind == WP_KV_CLEARED) {
        res->applied += ix->holders[ev->holder].blocks;
        wp_hold_clear(ix, ev->holder);
    } else if (ev->space >= ix->n_spaces || ev->tier >= WP_TIER_MAX || ev->group >= WP_GROUPS) {
        res->refused += ev->n;
    } else if ((window = wp_window_of(ix, ev->holder, ev->group)) >= 0) {
        wp_window_apply(ix, ev, window, res);
    } else if (ev->kind == WP_KV_REMOVED) {
        remove_all(ix, ev, res);
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
    pthread_mutex_lock(&ix->lock);
    apply(ix, ev, res);
    wp_epoch_reclaim(&ix->epoch);
    pthread_mutex_unlock(&ix->lock);
}

/* At a turn of the lock: so many events, or blocks. */
enum { TURN_EVENTS = 32, TURN_BLOCKS = 256 };
enum { AHEAD_NAMES = 12, AHEAD_RUN = 8, AHEAD_PARTS = 4 };

static void look_ahead(struct wp_index *ix, const struct wp_kv_event ev[], size_t n, size_t i)
{
    if (i + AHEAD_NAMES < n)
        wp_ahead_names(ix, &ev[i + AHEAD_NAMES]);
    if (i + AHEAD_RUN < n)
        wp_ahead_run(ix, &ev[i + AHEAD_RUN]);
    if (i + AHEAD_PARTS < n)
        wp_ahead_parts(ix, &ev[i + AHEAD_PARTS]);
}

/* Of the first events everything is called for at once. */
static void look_at_first(struct wp_index *ix, const struct wp_kv_event ev[], size_t n)
{
    for (size_t i = 0; i < n && i < AHEAD_NAMES; i++)
        wp_ahead_names(ix, &ev[i]);
    for (size_t i = 0; i < n && i < AHEAD_RUN; i++)
        wp_ahead_run(ix, &ev[i]);
    for (size_t i = 0; i < n && i < AHEAD_PARTS; i++)
        wp_ahead_parts(ix, &ev[i]);
}

void wp_index_apply_all(struct wp_index *ix, const struct wp_kv_event ev[], size_t n,
                        struct wp_kv_result res[])
{
    struct wp_kv_result own = {0};

    for (size_t i = 0; i < n;) {
        size_t blocks = 0, upto = i + TURN_EVENTS < n ? i + TURN_EVENTS : n;

        pthread_mutex_lock(&ix->lock);
        if (i == 0 && n > 1)
            look_at_first(ix, ev, n);
        for (; i < upto && blocks < TURN_BLOCKS; blocks += ev[i++].n) {
            struct wp_kv_result *to = res ? &res[i] : &own;

            look_ahead(ix, ev, n, i);
            *to = (struct wp_kv_result){0};
            apply(ix, &ev[i], to);
        }
        wp_epoch_reclaim(&ix->epoch);
        pthread_mutex_unlock(&ix->lock);
    }
}
