/* SPDX-License-Identifier: Apache-2.0 */
#include "index/slab.h"

#include "base/mem.h"

#include <string.h>

enum { HUGE_FROM = 2 * WP_HUGE_PAGE };

void wp_slab_init(struct wp_slab *s, uint32_t size, uint32_t shift, uint32_t max)
{
    memset(s, 0, sizeof *s);
    s->size = size;
    s->shift = shift;
    s->max = max;
    s->top = 1;
}

static size_t chunk_bytes(const struct wp_slab *s)
{
    return (size_t)s->size << s->shift;
}

void wp_slab_fini(struct wp_slab *s, struct wp_budget *b)
{
    char **list = atomic_load_explicit(&s->list, memory_order_relaxed);

    for (uint32_t i = 0; i < s->chunks; i++) {
        b->bytes -= chunk_bytes(s);
        if (i < s->small || (i - s->small) % (WP_HUGE_PAGE / chunk_bytes(s)) == 0)
            wp_free(list[i]);
    }
    b->bytes -= s->room * sizeof *list;
    wp_free(list);
    wp_slab_init(s, s->size, s->shift, s->max);
    atomic_init(&s->list, NULL);
}

static int list_grow(struct wp_slab *s, struct wp_budget *b, struct wp_epoch *e)
{
    uint32_t room = s->room ? s->room * 2 : 16;
    char **old = atomic_load_explicit(&s->list, memory_order_relaxed), **wider;
    int rc = 0;

    wider = wp_budget_alloc(b, room, sizeof *wider, &rc);
    if (!wider)
        return rc;
    if (s->chunks)
        memcpy(wider, old, s->chunks * sizeof *wider);
    b->bytes -= s->room * sizeof *old;
    atomic_store_explicit(&s->list, wider, memory_order_release);
    s->room = room;
    if (old)
        wp_epoch_retire(e, WP_RETIRED_MEMORY, (uintptr_t)old);
    return 0;
}

/* How many chunks come at a time. */
static uint32_t at_once(const struct wp_slab *s)
{
    size_t size = chunk_bytes(s), have = s->chunks * size;

    return have >= HUGE_FROM && WP_HUGE_PAGE % size == 0 && size < WP_HUGE_PAGE
               ? (uint32_t)(WP_HUGE_PAGE / size)
               : 1;
}

int wp_slab_grow(struct wp_slab *s, uint32_t n, struct wp_budget *b, struct wp_epoch *e)
{
    wp_epoch_reclaim(e);
    while (wp_slab_left(s) < n) {
        uint32_t more = at_once(s);
        size_t bytes = more * chunk_bytes(s);
        char *chunk;
        int rc;

        if ((uint64_t)s->chunks << s->shift >= s->max || (b->cap && b->bytes + bytes > b->cap))
            return WP_ETOOBIG;
        while (s->chunks + more > s->room)
            if ((rc = list_grow(s, b, e)) < 0)
                return rc;
        chunk = more > 1 ? wp_huge_alloc(1) : wp_aligned_alloc(64, bytes);
        if (!chunk)
            return WP_ENOMEM;
        b->bytes += bytes;
        s->small += more == 1;
        for (uint32_t i = 0; i < more; i++)
            atomic_load_explicit(&s->list, memory_order_relaxed)[s->chunks++] =
                chunk + i * chunk_bytes(s);
    }
    return 0;
}

uint32_t wp_slab_take(struct wp_slab *s)
{
    uint32_t i = s->free;

    s->n++;
    if (!i)
        return s->top++;
    memcpy(&s->free, wp_slab_at(s, i), sizeof s->free);
    s->spare--;
    if (s->free)
        __builtin_prefetch(wp_slab_at(s, s->free), 1); /* the next one to be taken */
    return i;
}

void wp_slab_give(struct wp_slab *s, uint32_t i)
{
    memcpy(wp_slab_at(s, i), &s->free, sizeof s->free);
    s->free = i;
    s->spare++;
    s->n--;
}
