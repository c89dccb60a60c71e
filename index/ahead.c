/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calling ahead for what an event will touch.  Each step needs what the step before has called for,
 * so each is taken some events after it: first the books' lines of its names, then the run that
 * they lead to, then what the run leads to.  Nothing is changed, and a wrong guess costs a line.
 */
#include "index/inside.h"

static struct wp_shelf *shelf_of(struct wp_index *ix, const struct wp_kv_event *ev)
{
    struct wp_shelf *s;

    if (!ev->n || ev->kind == WP_KV_CLEARED || ev->holder >= ix->n_holders)
        return NULL;
    s = wp_shelf_of(ix, ev->holder, ev->space, ev->group, -1);
    return s && s->book.n ? s : NULL;
}

void wp_ahead_names(struct wp_index *ix, const struct wp_kv_event *ev)
{
    struct wp_shelf *s = shelf_of(ix, ev);

    if (!s)
        return;
    if (ev->kind == WP_KV_STORED && !ev->has_parent)
        wp_place_prefetch(ix, ev->space, ev->local);
    else if (ev->kind == WP_KV_STORED)
        wp_book_prefetch(&s->book, ev->parent);
    wp_book_prefetch(&s->book, ev->engine[0]);
}

/* The run that the event begins at, or goes on from. */
static struct wp_run *run_of(struct wp_index *ix, const struct wp_kv_event *ev, uint32_t *run)
{
    struct wp_shelf *s = shelf_of(ix, ev);
    const uint32_t *value;

    if (!s || (ev->kind == WP_KV_STORED && !ev->has_parent))
        return NULL;
    value = wp_book_find(&s->book, ev->kind == WP_KV_STORED ? ev->parent : ev->engine[0]);
    if (!value || *value & WP_NAMED)
        return NULL;
    *run = wp_place_run(*value);
    return wp_run_at(ix, *run);
}

void wp_ahead_run(struct wp_index *ix, const struct wp_kv_event *ev)
{
    uint32_t run;
    const struct wp_run *r = run_of(ix, ev, &run);

    if (!r)
        return;
    __builtin_prefetch(r, 1);
    __builtin_prefetch(wp_own_at(ix, run), 1);
}

void wp_ahead_parts(struct wp_index *ix, const struct wp_kv_event *ev)
{
    uint32_t run;
    const struct wp_run *r = run_of(ix, ev, &run);
    uint64_t who;
    unsigned len;

    if (!r)
        return;
    who = atomic_load_explicit(&((struct wp_run *)r)->who, memory_order_relaxed);
    if (who & WP_WHO_ROSTER)
        __builtin_prefetch(wp_slab_at(&ix->rosters[who >> 32 & 31], (uint32_t)who));
    len = wp_run_len(r);
    if (ev->kind == WP_KV_STORED)
        __builtin_prefetch(wp_run_chunk(ix, r, (len - 1) / WP_CHUNK) + len % WP_CHUNK, 1);
    else
        wp_run_prefetch_links(ix, run);
}
