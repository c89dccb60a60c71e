/* SPDX-License-Identifier: Apache-2.0 */
#include "index/slab.h"

#include "base/mem.h"

#include <string.h>

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

int wp_slab_grow(struct wp_slab *s, uint32_t n, struct wp_budget *b, struct wp_epoch *e)
{
    wp_epoch_reclaim(e);
    while (wp_slab_left(s) < n) {
        char *chunk;
        int rc;

        if ((uint64_t)s->chunks << s->shift >= s->max ||
            (b->cap && b->bytes + chunk_bytes(s) > b->cap))
            return WP_ETOOBIG;
        if (s->chunks == s->room && (rc = list_grow(s, b, e)) < 0)
            return rc;
        chunk = wp_aligned_alloc(64, chunk_bytes(s));
        if (!chunk)
            return WP_ENOMEM;
        b->bytes += chunk_bytes(s);
        atomic_load_explicit(&s->list, memory_order_relaxed)[s->chunks++] = chunk;
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
    return i;
}

void wp_slab_give(struct wp_slab *s, uint32_t i)
{
    memcpy(wp_slab_at(s, i), &s->free, sizeof s->free);
    s->free = i;
    s->spare++;
    s->n--;
}
