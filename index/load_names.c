/* SPDX-License-Identifier: Apache-2.0 */
/* Names of blocks, from a file: details first, then the books, which name them. */
#include "index/load_impl.h"

#include "index/hold.h"

enum { AHEAD = 16 };

static int load_name(struct wp_loading *l, uint32_t d, bool guess)
{
    struct wp_detail *it = wp_detail_at(l->ix, d);
    struct wp_holder *h = &l->ix->holders[it->holder];
    struct wp_saved_name saved;
    struct wp_name *name;
    uint32_t n;

    if (!wp_frames_get(l->in, &saved, sizeof saved) || saved.book >= h->shelves ||
        h->shelf[saved.book].window >= 0 || saved.windows > UINT16_MAX ||
        (wp_copies_tiers(saved.copies) == 0) != guess)
        return wp_loading_refuse(l, "a name is none");
    for (uint32_t i = it->names; i; i = wp_name_at(l->ix, i)->next)
        if (wp_name_at(l->ix, i)->engine == saved.engine &&
            wp_name_at(l->ix, i)->book == saved.book)
            return wp_loading_refuse(l, "a name is told twice");
    if (wp_pool_reserve(&l->ix->names, 1, &l->ix->budget) < 0)
        return wp_loading_failed(l, WP_ETOOBIG);
    n = wp_name_make(l->ix, d, &h->shelf[saved.book], saved.engine);
    name = wp_name_at(l->ix, n);
    name->windows = (uint16_t)saved.windows;
    memcpy(name->copies, saved.copies, sizeof name->copies);
    l->names++;
    return 0;
}

static int load_detail(struct wp_loading *l, const struct wp_saved_detail *it)
{
    struct wp_index *ix = l->ix;
    uint32_t place = wp_loading_place(l, it->place), d;
    uint64_t look;
    bool guess;
    int rc = 0;

    if (it->holder >= ix->n_holders || !ix->holders[it->holder].live || place == WP_NOWHERE ||
        it->rest > UINT8_MAX || it->rest_windows > UINT16_MAX ||
        wp_detail_of(ix, it->holder, place))
        return wp_loading_refuse(l, "a detail is none");
    if (!wp_details_reserve(ix))
        return wp_loading_failed(l, WP_ETOOBIG);
    look = wp_part_look(ix, place, it->holder);
    guess = look & WP_SPAN_GUESS;
    d = wp_detail_make(ix, it->holder, place);
    wp_detail_at(ix, d)->rest = (uint8_t)it->rest;
    wp_detail_at(ix, d)->rest_windows = (uint16_t)it->rest_windows;
    for (uint32_t i = 0; rc == 0 && i < it->names; i++)
        rc = load_name(l, d, guess);
    if (rc < 0)
        return rc;
    if (guess ? it->rest != 0 : !look || wp_detail_tiers(ix, d) != wp_look_tiers(look))
        return wp_loading_refuse(l, "names have other copies than the holder has blocks");
    return 0;
}

int wp_load_details(struct wp_loading *l)
{
    struct wp_saved_detail it;
    int rc = wp_frames_enter(l->in, WP_SAVED_DETAILS, "details", l->err);

    while (rc == 0) {
        if (!wp_frames_get(l->in, &it, sizeof it))
            return wp_loading_refuse(l, "there are fewer than it says");
        if (it.holder == WP_NO_HOLDER)
            return 0;
        rc = load_detail(l, &it);
    }
    return rc;
}

/* -- books -- */

struct shelf { /* that is being filled */
    struct wp_loading *l;
    uint32_t holder, number;
    struct wp_shelf *it;
    uint64_t plain; /* names that have no detail of their own */
};

static uint32_t name_of(const struct shelf *s, uint32_t place, uint64_t key)
{
    const struct wp_index *ix = s->l->ix;
    uint32_t d = wp_detail_of(ix, s->holder, place), n = d ? wp_detail_at(ix, d)->names : 0;

    while (n && (wp_name_at(ix, n)->engine != key || wp_name_at(ix, n)->book != s->number))
        n = wp_name_at(ix, n)->next;
    return n;
}

/* What the book is to say; false: it cannot. */
static bool main_value(struct shelf *s, uint64_t key, uint32_t *value)
{
    bool named = *value & WP_NAMED;
    uint32_t place = wp_loading_place(s->l, *value & ~WP_NAMED), n;

    if (place == WP_NOWHERE)
        return false;
    if (!named) {
        s->plain++;
        *value = place;
        return wp_look_real(wp_part_look(s->l->ix, place, s->holder));
    }
    n = name_of(s, place, key);
    s->l->names--; /* every key comes once, so no name is counted twice */
    *value = WP_NAMED | n;
    return n != 0;
}

static int window_value(struct shelf *s, uint64_t key, uint32_t *value)
{
    struct wp_loading *l = s->l;
    struct wp_name *name;
    uint16_t copies[WP_TIER_MAX];
    uint32_t n;

    l->ix->holders[s->holder].windowed++;
    if (*value != WP_NAMED)
        return *value && *value <= UINT8_MAX ? 0 : wp_loading_refuse(l, "copies are none");
    if (!wp_frames_get(l->in, copies, sizeof copies) || !wp_copies_tiers(copies))
        return wp_loading_refuse(l, "copies are none");
    if (wp_pool_reserve(&l->ix->names, 1, &l->ix->budget) < 0)
        return wp_loading_failed(l, WP_ETOOBIG);
    n = wp_pool_take(&l->ix->names);
    name = wp_name_at(l->ix, n);
    *name = (struct wp_name){.engine = key, .detail = s->holder};
    memcpy(name->copies, copies, sizeof copies);
    *value = WP_NAMED | n;
    return 0;
}

struct entry {
    uint64_t key;
    uint32_t value;
};

static bool take_entry(struct wp_loading *l, struct entry *e)
{
    return wp_frames_get(l->in, &e->key, sizeof e->key) &&
           wp_frames_get(l->in, &e->value, sizeof e->value);
}

static int load_entry(struct shelf *s, struct entry e)
{
    struct wp_loading *l = s->l;
    int rc = 0;

    if (wp_book_find(&s->it->book, e.key))
        return wp_loading_refuse(l, "a book has a name twice");
    if (s->it->window >= 0)
        rc = window_value(s, e.key, &e.value);
    else if (!main_value(s, e.key, &e.value))
        rc = wp_loading_refuse(l, "a book names what the holder has not");
    if (rc == 0)
        wp_book_put(&s->it->book, e.key, e.value);
    return rc;
}

/* The entry's run will be looked at. */
static void prefetch(const struct shelf *s, const struct entry *e)
{
    uint32_t number = wp_place_run(e->value & ~WP_NAMED);
    const struct wp_loading *l = s->l;

    if (number < l->head.runs_top && l->run[number])
        __builtin_prefetch(wp_run_at(l->ix, l->run[number]));
}

/* Entries of which nothing but key and value is said are read some ahead. */
static int load_main(struct shelf *s, uint32_t n)
{
    struct entry e[AHEAD];
    int rc = 0;

    for (uint32_t some; rc == 0 && n; n -= some) {
        some = n < AHEAD ? n : AHEAD;
        for (uint32_t i = 0; i < some; i++) {
            if (!take_entry(s->l, &e[i]))
                return wp_loading_refuse(s->l, "a book ends too soon");
            prefetch(s, &e[i]);
        }
        for (uint32_t i = 0; rc == 0 && i < some; i++)
            rc = load_entry(s, e[i]);
    }
    return rc;
}

static int load_shelf(struct shelf *s, uint32_t n)
{
    struct wp_loading *l = s->l;
    struct entry e;
    int rc = 0;

    if (n > wp_frames_ahead(l->in) / 12)
        return wp_loading_refuse(l, "a book has more names than there are");
    if (n)
        rc = wp_book_reserve(&s->it->book, l->ix->prefix.secret, n, &l->ix->budget);
    if (rc < 0)
        return wp_loading_failed(l, rc);
    wp_pages_touch(&s->it->book.pages);
    if (s->it->window < 0)
        return load_main(s, n);
    for (; rc == 0 && n; n--)
        rc = take_entry(l, &e) ? load_entry(s, e) : wp_loading_refuse(l, "a book ends too soon");
    return rc;
}

/* Each place that is held has one plain name, or a detail; those with a detail may have both. */
static int check_names(struct shelf *s)
{
    const struct wp_index *ix = s->l->ix;
    const struct wp_holder *h = &ix->holders[s->holder];
    uint64_t rest = 0;

    for (uint32_t d = h->detail; d; d = wp_detail_at(ix, d)->next)
        rest += wp_detail_at(ix, d)->rest != 0;
    return s->plain - rest + h->details == h->blocks
               ? 0
               : wp_loading_refuse(s->l, "a holder has blocks without a name");
}

int wp_load_books(struct wp_loading *l)
{
    uint32_t at = 0;
    int rc = wp_frames_enter(l->in, WP_SAVED_BOOKS, "books", l->err);

    for (uint32_t i = 0; rc == 0 && i < l->ix->n_holders; i++) {
        struct wp_holder *h = &l->ix->holders[i];
        struct shelf s = {.l = l, .holder = i};

        for (; rc == 0 && s.number < h->shelves; s.number++) {
            s.it = &h->shelf[s.number];
            rc = load_shelf(&s, l->shelf_n[at++]);
        }
        h->digest_stale = h->live;
        rc = rc ? rc : check_names(&s);
    }
    if (rc == 0 && l->names)
        return wp_loading_refuse(l, "a detail has a name that no book has");
    return rc;
}
