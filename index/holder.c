/* SPDX-License-Identifier: Apache-2.0 */
/* All that a holder has, at once. */
#include "index/hold.h"

#include "base/mem.h"

#include <string.h>

/* Whole holders: a walk over all its names visits each of its runs once. */

struct walk {
    struct wp_index *ix;
    uint32_t holder, shelf;
    void (*run)(struct wp_index *ix, uint32_t holder, uint32_t run);
    bool keep;
};

static void visit(struct walk *w, uint32_t run)
{
    struct wp_run_own *own = wp_own_at(w->ix, run);

    if (own->mark == w->ix->mark)
        return;
    own->mark = w->ix->mark;
    w->run(w->ix, w->holder, run);
}

static bool visit_entry(void *ctx, uint64_t key, uint32_t *value)
{
    struct walk *w = ctx;
    uint32_t place = *value & WP_NAMED
                         ? wp_detail_at(w->ix, wp_name_at(w->ix, *value & ~WP_NAMED)->detail)->place
                         : *value;

    (void)key;
    visit(w, wp_place_run(place));
    return w->keep;
}

static void each_run(struct walk *w)
{
    struct wp_holder *h = &w->ix->holders[w->holder];

    if (w->ix->mark > UINT32_MAX / 2) { /* long before it could come round */
        for (uint32_t i = 1; i < w->ix->owns.top; i++)
            wp_own_at(w->ix, i)->mark = 0;
        w->ix->mark = 0;
    }
    w->ix->mark++;
    for (uint32_t d = h->detail; d; d = wp_detail_at(w->ix, d)->next)
        visit(w, wp_place_run(wp_detail_at(w->ix, d)->place));
    for (uint32_t i = 0; i < h->shelves; i++)
        if (h->shelf[i].window < 0)
            wp_book_sweep(&h->shelf[i].book, visit_entry, w);
}

static void list_run(struct wp_index *ix, uint32_t holder, uint32_t run)
{
    struct wp_run_list *l = &ix->list;

    (void)holder;
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 256;
        uint32_t *wider = wp_realloc(l->run, cap * sizeof *wider);

        if (!wider)
            return; /* fewer to choose from */
        l->run = wider;
        l->cap = cap;
    }
    l->run[l->n++] = run;
}

bool wp_hold_runs(struct wp_index *ix, uint32_t holder, uint32_t **run, size_t *n)
{
    struct walk w = {.ix = ix, .holder = holder, .run = list_run, .keep = true};

    ix->list = (struct wp_run_list){0};
    each_run(&w);
    *run = ix->list.run;
    *n = ix->list.n;
    return ix->list.run != NULL;
}

static void empty_run(struct wp_index *ix, uint32_t holder, uint32_t run)
{
    if (!wp_spans_put(ix, run, holder, NULL, 0))
        return; /* emptied where it stood */
    wp_run_settle(ix, run);
}

void wp_hold_clear(struct wp_index *ix, uint32_t holder)
{
    struct wp_holder *h = &ix->holders[holder];
    struct walk w = {.ix = ix, .holder = holder, .run = empty_run, .keep = true};

    wp_float_clear(ix, holder);
    each_run(&w);
    while (h->detail) {
        uint32_t d = h->detail;

        while (wp_detail_at(ix, d)->names)
            wp_name_free(ix, wp_detail_at(ix, d)->names);
        wp_detail_drop(ix, d);
    }
    for (uint32_t i = 0; i < h->shelves; i++) {
        struct wp_shelf *s = &h->shelf[i];

        if (s->window >= 0)
            wp_window_clear(ix, holder, s);
        wp_book_fini(&s->book, &ix->budget);
    }
    h->shelves = 0;
    memset(&h->digest, 0, sizeof h->digest);
    h->digest_stale = false;
}

static void doubt_run(struct wp_index *ix, uint32_t holder, uint32_t run)
{
    struct wp_part part;

    wp_part_get(ix, run, holder, &part);
    for (unsigned i = 0; i < WP_SEGMENT; i++)
        part.look[i] &= ~wp_look(0, 0xFF);
    if (!wp_part_put(ix, run, holder, &part))
        ix->lost = true;
}

void wp_hold_doubt(struct wp_index *ix, uint32_t holder)
{
    struct walk w = {.ix = ix, .holder = holder, .run = doubt_run, .keep = true};

    ix->holders[holder].epoch++;
    ix->lost = false;
    each_run(&w);
    if (ix->lost)
        wp_hold_purge(ix, holder);
    wp_window_doubt(ix, holder);
}

/* Names of places that the holder lost all at once. */
static bool purge_entry(void *ctx, uint64_t key, uint32_t *value)
{
    const struct walk *w = ctx;
    uint32_t name = *value & WP_NAMED ? *value & ~WP_NAMED : 0;
    uint32_t place = name ? wp_detail_at(w->ix, wp_name_at(w->ix, name)->detail)->place : *value;

    (void)key;
    if (wp_part_look(w->ix, place, w->holder))
        return true;
    if (name)
        wp_name_free(w->ix, name);
    return false;
}

void wp_hold_purge(struct wp_index *ix, uint32_t holder)
{
    struct wp_holder *h = &ix->holders[holder];
    struct walk w = {.ix = ix, .holder = holder};

    h->digest_stale = true;
    for (uint32_t i = 0; i < h->shelves; i++)
        if (h->shelf[i].window < 0)
            wp_book_sweep(&h->shelf[i].book, purge_entry, &w);
    for (uint32_t d = h->detail, next; d; d = next) {
        next = wp_detail_at(ix, d)->next;
        if (!wp_part_look(ix, wp_detail_at(ix, d)->place, holder))
            wp_detail_drop(ix, d);
    }
}

struct plain {
    struct wp_holder *h;
    const struct wp_shelf *shelf;
    uint32_t place;
    uint8_t tiers;
};

static bool plain_entry(void *ctx, uint64_t key, uint32_t *value)
{
    const struct plain *p = ctx;

    if (*value != p->place)
        return true;
    wp_digest_name(p->h, key, p->shelf->group, p->tiers, -1);
    return false;
}

void wp_hold_forget_plain(struct wp_index *ix, uint32_t holder, uint32_t place, uint8_t tiers)
{
    struct plain p = {.h = &ix->holders[holder], .place = place, .tiers = tiers};

    for (uint32_t i = 0; i < p.h->shelves; i++)
        if (p.h->shelf[i].window < 0) {
            p.shelf = &p.h->shelf[i];
            wp_book_sweep(&p.h->shelf[i].book, plain_entry, &p);
        }
}

static bool marked_entry(void *ctx, uint64_t key, uint32_t *value)
{
    const struct walk *w = ctx;
    uint32_t name = *value & WP_NAMED ? *value & ~WP_NAMED : 0;
    uint32_t place = name ? wp_detail_at(w->ix, wp_name_at(w->ix, name)->detail)->place : *value;

    if (wp_own_at(w->ix, wp_place_run(place))->mark != w->ix->mark)
        return true;
    wp_digest_name(
        &w->ix->holders[w->holder], key, w->ix->holders[w->holder].shelf[w->shelf].group,
        wp_name_tiers(w->ix, w->holder, &w->ix->holders[w->holder].shelf[w->shelf], *value), -1);
    if (name)
        wp_name_free(w->ix, name);
    return false;
}

uint64_t wp_hold_drop_marked(struct wp_index *ix, uint32_t holder, const uint32_t run[], size_t n)
{
    struct wp_holder *h = &ix->holders[holder];
    struct walk w = {.ix = ix, .holder = holder};
    uint64_t before = h->blocks;

    for (uint32_t i = 0; i < h->shelves; i++)
        if (h->shelf[i].window < 0) {
            w.shelf = i;
            wp_book_sweep(&h->shelf[i].book, marked_entry, &w);
        }
    for (uint32_t d = h->detail, next; d; d = next) {
        next = wp_detail_at(ix, d)->next;
        if (wp_own_at(ix, wp_place_run(wp_detail_at(ix, d)->place))->mark == ix->mark)
            wp_detail_drop(ix, d);
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t parent = wp_run_at(ix, run[i])->parent;

        wp_spans_put(ix, run[i], holder, NULL, 0);
        if (parent != WP_NOWHERE && h->guesses)
            wp_hold_lost(ix, holder, wp_place(run[i], 0));
        else
            wp_run_settle(ix, run[i]);
    }
    return before - h->blocks;
}

static void end_window_of_run(struct wp_index *ix, uint32_t holder, uint32_t run)
{
    struct wp_part part;

    wp_part_get(ix, run, holder, &part);
    for (unsigned i = 0; i < WP_SEGMENT; i++)
        part.windows[i] &= (uint16_t) ~(1u << ix->ending);
    if (!wp_part_put(ix, run, holder, &part))
        ix->lost = true;
}

void wp_hold_window_end(struct wp_index *ix, uint32_t holder, int window)
{
    struct walk w = {.ix = ix, .holder = holder, .run = end_window_of_run, .keep = true};

    ix->ending = window;
    ix->lost = false;
    each_run(&w);
    for (uint32_t d = ix->holders[holder].detail; d; d = wp_detail_at(ix, d)->next) {
        wp_detail_at(ix, d)->rest_windows &= (uint16_t) ~(1u << window);
        for (uint32_t n = wp_detail_at(ix, d)->names; n; n = wp_name_at(ix, n)->next)
            wp_name_at(ix, n)->windows &= (uint16_t) ~(1u << window);
    }
    if (ix->lost)
        wp_hold_purge(ix, holder);
}
