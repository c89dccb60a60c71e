/* SPDX-License-Identifier: Apache-2.0 */
/* Shelves of books, and what a book cannot say of a place. */
#include "index/hold.h"

#include <string.h>

/* Shelves. */

struct wp_shelf *wp_shelf_of(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group,
                             int window)
{
    struct wp_holder *h = &ix->holders[holder];

    for (uint32_t i = 0; i < h->shelves; i++)
        if (h->shelf[i].group == group && h->shelf[i].space == space &&
            h->shelf[i].window == window)
            return &h->shelf[i];
    return NULL;
}

/* Half of a cap is for what there is, not for what may come. */
static bool may_expect(const struct wp_index *ix, size_t blocks)
{
    uint64_t half = ix->budget.cap / 2;

    return !half || (blocks < half / 16 && ix->budget.bytes + blocks * 16 < half);
}

static bool only_one(const struct wp_holder *h, const struct wp_shelf *s)
{
    for (uint32_t i = 0; i < h->shelves; i++)
        if (&h->shelf[i] != s && h->shelf[i].window < 0 && h->shelf[i].book.at)
            return false;
    return true;
}

struct wp_shelf *wp_shelf_make(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group,
                               int window)
{
    struct wp_shelf *s = wp_shelf_of(ix, holder, space, group, window);
    struct wp_holder *h = &ix->holders[holder];

    for (uint32_t i = 0; !s && i < h->shelves; i++)
        if (!h->shelf[i].book.n) { /* what it was of is gone */
            s = &h->shelf[i];
            wp_book_fini(&s->book, &ix->budget);
        }
    if (!s) {
        if (h->shelves == WP_BOOKS_MAX)
            return NULL;
        if (h->shelves == h->shelves_cap) {
            uint32_t cap = h->shelves_cap ? h->shelves_cap * 2 : 1;
            int rc;
            struct wp_shelf *wider = wp_budget_alloc(&ix->budget, cap, sizeof *wider, &rc);

            if (!wider)
                return NULL;
            if (h->shelves)
                memcpy(wider, h->shelf, h->shelves * sizeof *wider);
            wp_budget_free(&ix->budget, h->shelf, h->shelves_cap, sizeof *wider);
            h->shelf = wider;
            h->shelves_cap = cap;
        }
        s = &h->shelf[h->shelves++];
        memset(s, 0, sizeof *s);
    }
    s->space = space;
    s->group = group;
    s->window = (int8_t)window;
    if (window < 0 && h->expect && !s->book.at && may_expect(ix, h->expect) &&
        only_one(h, s)) /* as far as there is room; else it grows as it must */
        (void)wp_book_expect(&s->book, ix->prefix.secret, h->expect, &ix->budget);
    return s;
}

/* Details. */

static uint32_t detail_hash(const struct wp_index *ix, uint32_t holder, uint32_t place)
{
    uint64_t x = ((uint64_t)holder << 32 | place) ^ ix->prefix.secret;

    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(x >> 32);
}

uint32_t wp_detail_of(const struct wp_index *ix, uint32_t holder, uint32_t place)
{
    uint32_t h;

    if (!ix->holders[holder].details || !wp_run_at(ix, wp_place_run(place))->detailed)
        return 0;
    h = detail_hash(ix, holder, place);
    WP_TABLE_EACH(&ix->detailed, h, d)
    {
        if (wp_detail_at(ix, d)->place == place && wp_detail_at(ix, d)->holder == holder)
            return d;
    }
    return 0;
}

bool wp_details_reserve(struct wp_index *ix)
{
    return wp_pool_reserve(&ix->details, 1, &ix->budget) == 0 &&
           wp_pool_reserve(&ix->names, 2, &ix->budget) == 0 &&
           wp_table_reserve(&ix->detailed, 1, &ix->budget) == 0;
}

int wp_hold_reserve(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group)
{
    struct wp_shelf *shelf = wp_shelf_make(ix, holder, space, group, -1);
    int rc = shelf ? wp_book_reserve(&shelf->book, ix->prefix.secret, 1, &ix->budget) : WP_ETOOBIG;

    return rc < 0 || wp_details_reserve(ix) ? rc : WP_ETOOBIG;
}

uint32_t wp_detail_make(struct wp_index *ix, uint32_t holder, uint32_t place)
{
    struct wp_holder *h = &ix->holders[holder];
    uint32_t d = wp_pool_take(&ix->details);

    *wp_detail_at(ix, d) = (struct wp_detail){.holder = holder, .place = place, .next = h->detail};
    if (h->detail)
        wp_detail_at(ix, h->detail)->prev = d;
    h->detail = d;
    h->details++;
    wp_table_put(&ix->detailed, detail_hash(ix, holder, place), d);
    wp_run_at(ix, wp_place_run(place))->detailed = 1;
    return d;
}

void wp_detail_drop(struct wp_index *ix, uint32_t d)
{
    struct wp_detail *it = wp_detail_at(ix, d);
    struct wp_holder *h = &ix->holders[it->holder];

    *(it->prev ? &wp_detail_at(ix, it->prev)->next : &h->detail) = it->next;
    if (it->next)
        wp_detail_at(ix, it->next)->prev = it->prev;
    h->details--;
    wp_table_del(&ix->detailed, detail_hash(ix, it->holder, it->place), d);
    wp_pool_give(&ix->details, d);
}

uint32_t wp_name_make(struct wp_index *ix, uint32_t d, const struct wp_shelf *shelf,
                      uint64_t engine)
{
    struct wp_detail *it = wp_detail_at(ix, d);
    uint32_t i = wp_pool_take(&ix->names);

    *wp_name_at(ix, i) =
        (struct wp_name){.engine = engine,
                         .detail = d,
                         .next = it->names,
                         .book = (uint16_t)(shelf - ix->holders[it->holder].shelf)};
    it->names = i;
    return i;
}

/* Off the detail's list; the book's entry is the caller's. */
void wp_name_free(struct wp_index *ix, uint32_t name)
{
    uint32_t *at = &wp_detail_at(ix, wp_name_at(ix, name)->detail)->names;

    while (*at != name)
        at = &wp_name_at(ix, *at)->next;
    *at = wp_name_at(ix, name)->next;
    wp_pool_give(&ix->names, name);
}

void wp_name_drop(struct wp_index *ix, uint32_t name)
{
    const struct wp_name *n = wp_name_at(ix, name);

    wp_book_del(&ix->holders[wp_detail_at(ix, n->detail)->holder].shelf[n->book].book, n->engine);
    wp_name_free(ix, name);
}

void wp_detail_drop_idle(struct wp_index *ix, uint32_t d)
{
    for (uint32_t n = wp_detail_at(ix, d)->names, next; n; n = next) {
        next = wp_name_at(ix, n)->next;
        if (wp_name_idle(wp_name_at(ix, n)))
            wp_name_drop(ix, n);
    }
}

/* A detail that says no more than a book can is dropped. */
void wp_detail_normalise(struct wp_index *ix, uint32_t d, bool guess)
{
    struct wp_detail *it = wp_detail_at(ix, d);
    uint32_t n = it->names;

    if (guess)
        return;
    if (!n) {
        wp_detail_drop(ix, d);
        return;
    }
    if (it->rest || wp_name_at(ix, n)->next)
        return;
    for (int t = 0; t < WP_TIER_MAX; t++)
        if (wp_name_at(ix, n)->copies[t] > 1)
            return;
    *wp_book_find(&ix->holders[it->holder].shelf[wp_name_at(ix, n)->book].book,
                  wp_name_at(ix, n)->engine) = it->place;
    wp_name_free(ix, n);
    wp_detail_drop(ix, d);
}

/* Tiers that names at the place have; look: what is held there. */
uint8_t wp_detail_tiers(const struct wp_index *ix, uint32_t d)
{
    uint8_t tiers = wp_detail_at(ix, d)->rest;

    for (uint32_t n = wp_detail_at(ix, d)->names; n; n = wp_name_at(ix, n)->next)
        tiers |= wp_copies_tiers(wp_name_at(ix, n)->copies);
    return tiers;
}

uint16_t wp_detail_windows(const struct wp_index *ix, uint32_t d)
{
    const struct wp_detail *it = wp_detail_at(ix, d);
    uint16_t windows = it->rest ? it->rest_windows : 0;

    for (uint32_t n = it->names; n; n = wp_name_at(ix, n)->next)
        if (!wp_name_idle(wp_name_at(ix, n)))
            windows |= wp_name_at(ix, n)->windows;
    return windows;
}
