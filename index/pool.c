/* SPDX-License-Identifier: Apache-2.0 */
#include "index/pool.h"

#include "base/mem.h"

#include <string.h>

enum { SLOTS_MIN = 64 };

void *wp_budget_alloc(struct wp_budget *b, size_t n, size_t size, int *rc)
{
    void *p;

    if (b->cap && (n * size > b->cap || b->bytes > b->cap - n * size)) {
        *rc = WP_ETOOBIG;
        return NULL;
    }
    p = wp_calloc(n, size);
    if (p)
        b->bytes += n * size;
    else
        *rc = WP_ENOMEM;
    return p;
}

void wp_budget_free(struct wp_budget *b, void *p, size_t n, size_t size)
{
    if (!p)
        return;
    b->bytes -= n * size;
    wp_free(p);
}

static int list_grow(struct wp_pool *p, struct wp_budget *b)
{
    uint32_t room = p->room ? p->room * 2 : 8;
    int rc = 0;
    char **wider = wp_budget_alloc(b, room, sizeof *wider, &rc);

    if (!wider)
        return rc;
    if (p->chunks)
        memcpy(wider, p->chunk, p->chunks * sizeof *wider);
    wp_budget_free(b, p->chunk, p->room, sizeof *wider);
    p->chunk = wider;
    p->room = room;
    return 0;
}

int wp_pool_reserve(struct wp_pool *p, uint32_t n, struct wp_budget *b)
{
    int rc = 0;

    while (p->chunks * (uint64_t)WP_POOL_CHUNK < (uint64_t)p->n + n + 1) { /* one for number 0 */
        if (p->chunks >= UINT32_MAX / WP_POOL_CHUNK)
            return WP_ETOOBIG;
        if (p->chunks == p->room)
            rc = list_grow(p, b);
        if (rc < 0)
            return rc;
        p->chunk[p->chunks] = wp_budget_alloc(b, WP_POOL_CHUNK, p->size, &rc);
        if (rc < 0)
            return rc;
        p->chunks++;
    }
    return 0;
}

uint32_t wp_pool_take(struct wp_pool *p)
{
    uint32_t i = p->free;

    if (i)
        memcpy(&p->free, wp_pool_at(p, i), sizeof p->free);
    else
        i = ++p->top;
    memset(wp_pool_at(p, i), 0, p->size);
    p->n++;
    return i;
}

void wp_pool_give(struct wp_pool *p, uint32_t i)
{
    memcpy(wp_pool_at(p, i), &p->free, sizeof p->free);
    p->free = i;
    p->n--;
}

void wp_pool_fini(struct wp_pool *p, struct wp_budget *b)
{
    for (uint32_t i = 0; i < p->chunks; i++)
        wp_budget_free(b, p->chunk[i], WP_POOL_CHUNK, p->size);
    wp_budget_free(b, p->chunk, p->room, sizeof *p->chunk);
    p->chunk = NULL;
    p->chunks = p->room = p->top = p->free = p->n = 0;
}

int wp_table_reserve(struct wp_table *t, uint32_t n, struct wp_budget *b)
{
    struct wp_table wider = {.cap = t->cap ? t->cap : SLOTS_MIN};
    int rc = 0;

    if ((uint64_t)t->n + n <= t->cap / 4 * 3)
        return 0;
    while ((uint64_t)t->n + n > wider.cap / 4 * 3) {
        if (wider.cap > UINT32_MAX / 2)
            return WP_ETOOBIG;
        wider.cap *= 2;
    }
    wider.slot = wp_budget_alloc(b, wider.cap, sizeof *wider.slot, &rc);
    if (!wider.slot)
        return rc;
    for (uint32_t i = 0; i < t->cap; i++)
        if (t->slot[i].item)
            wp_table_put(&wider, t->slot[i].hash, t->slot[i].item);
    wp_table_fini(t, b);
    *t = wider;
    return 0;
}

void wp_table_put(struct wp_table *t, uint32_t hash, uint32_t item)
{
    uint32_t i = hash & (t->cap - 1);

    while (t->slot[i].item)
        i = (i + 1) & (t->cap - 1);
    t->slot[i] = (struct wp_slot){hash, item};
    t->n++;
}

void wp_table_del(struct wp_table *t, uint32_t hash, uint32_t item)
{
    uint32_t mask = t->cap - 1, hole = hash & mask;

    while (t->slot[hole].item != item)
        hole = (hole + 1) & mask;
    for (uint32_t i = (hole + 1) & mask; t->slot[i].item; i = (i + 1) & mask)
        if (((i - t->slot[i].hash) & mask) >=
            ((i - hole) & mask)) { /* its home is not after the hole */
            t->slot[hole] = t->slot[i];
            hole = i;
        }
    t->slot[hole] = (struct wp_slot){0, 0};
    t->n--;
}

void wp_table_fini(struct wp_table *t, struct wp_budget *b)
{
    wp_budget_free(b, t->slot, t->cap, sizeof *t->slot);
    *t = (struct wp_table){0};
}
