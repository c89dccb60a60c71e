/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cache.h"
#include "base/mem.h"

#include <assert.h>

/* Callers' names may be small numbers. */
static uint32_t tag_of(const struct wp_cache *c, uint64_t hash)
{
    return (uint32_t)(((hash ^ c->seed) * 0x9e3779b97f4a7c15u) >> 32);
}

static void unlink_use(struct wp_cache *c, uint32_t slot)
{
    struct wp_cache_node *n = &c->node[slot];

    c->node[n->older].newer = n->newer;
    c->node[n->newer].older = n->older;
}

static void link_newest(struct wp_cache *c, uint32_t slot)
{
    struct wp_cache_node *n = &c->node[slot];

    n->newer = 0;
    n->older = c->node[0].older;
    c->node[n->older].newer = slot;
    c->node[0].older = slot;
}

int wp_cache_init(struct wp_cache *c, uint64_t cap, uint64_t seed, struct wp_err *err)
{
    uint64_t places = 2;

    *c = (struct wp_cache){.seed = seed};
    if (cap > WP_CACHE_MAX)
        return wp_fail(err, WP_ETOOBIG, "want at most %d blocks in a tier, got %llu", WP_CACHE_MAX,
                       (unsigned long long)cap);
    while (places < cap + cap / 2 + 1) /* never full: an empty place ends a search */
        places *= 2;
    c->node = wp_calloc(cap + 1, sizeof *c->node);
    c->table = wp_calloc(places, sizeof *c->table);
    if (!c->node || !c->table) {
        wp_cache_fini(c);
        return wp_fail(err, WP_ENOMEM, "out of memory for a tier of %llu blocks",
                       (unsigned long long)cap);
    }
    c->cap = (uint32_t)cap;
    c->mask = places - 1;
    c->fresh = 1;
    return 0;
}

void wp_cache_fini(struct wp_cache *c)
{
    wp_free(c->node);
    wp_free(c->table);
    *c = (struct wp_cache){0};
}

uint32_t wp_cache_find(const struct wp_cache *c, uint64_t hash)
{
    uint32_t tag = tag_of(c, hash);

    if (c->cap == 0)
        return 0;
    for (uint64_t i = tag & c->mask; c->table[i]; i = (i + 1) & c->mask)
        if (c->table[i] >> 32 == tag && c->node[(uint32_t)c->table[i]].hash == hash)
            return (uint32_t)c->table[i];
    return 0;
}

uint32_t wp_cache_add(struct wp_cache *c, uint64_t hash)
{
    uint32_t tag = tag_of(c, hash), slot = c->freed;
    uint64_t i = tag & c->mask;

    assert(c->used < c->cap);
    if (slot != 0)
        c->freed = c->node[slot].next;
    else
        slot = c->fresh++;
    c->node[slot] = (struct wp_cache_node){.hash = hash};
    while (c->table[i])
        i = (i + 1) & c->mask;
    c->table[i] = (uint64_t)tag << 32 | slot;
    c->used++;
    link_newest(c, slot);
    return slot;
}

/* What stands behind the hole closes up, as far as it may stand there. */
static void take_name(struct wp_cache *c, uint32_t slot)
{
    uint64_t hole = tag_of(c, c->node[slot].hash) & c->mask, i;

    while ((uint32_t)c->table[hole] != slot)
        hole = (hole + 1) & c->mask;
    for (i = (hole + 1) & c->mask; c->table[i]; i = (i + 1) & c->mask) {
        uint64_t home = c->table[i] >> 32 & c->mask;

        if (((i - home) & c->mask) < ((i - hole) & c->mask))
            continue;
        c->table[hole] = c->table[i];
        hole = i;
    }
    c->table[hole] = 0;
}

static void free_slot(struct wp_cache *c, uint32_t slot)
{
    c->node[slot].next = c->freed;
    c->freed = slot;
    c->used--;
}

void wp_cache_pin(struct wp_cache *c, uint32_t slot)
{
    if (c->node[slot].pins++ > 0)
        return;
    unlink_use(c, slot);
    c->node[slot].older = c->node[slot].newer = 0;
    c->pinned++;
}

void wp_cache_unpin(struct wp_cache *c, uint32_t slot)
{
    assert(c->node[slot].pins > 0);
    if (--c->node[slot].pins > 0)
        return;
    c->pinned--;
    if (c->node[slot].older == WP_CACHE_NAMELESS)
        free_slot(c, slot);
    else
        link_newest(c, slot);
}

void wp_cache_touch(struct wp_cache *c, uint32_t slot)
{
    if (c->node[slot].pins > 0)
        return;
    unlink_use(c, slot);
    link_newest(c, slot);
}

bool wp_cache_evict(struct wp_cache *c, uint64_t *hash)
{
    uint32_t slot = c->node[0].newer;

    if (slot == 0)
        return false;
    *hash = c->node[slot].hash;
    unlink_use(c, slot);
    take_name(c, slot);
    free_slot(c, slot);
    return true;
}

void wp_cache_forget(struct wp_cache *c, uint32_t slot)
{
    assert(c->node[slot].pins > 0 && c->node[slot].older != WP_CACHE_NAMELESS);
    take_name(c, slot);
    c->node[slot].older = WP_CACHE_NAMELESS;
}

void wp_cache_each(const struct wp_cache *c, void (*fn)(void *arg, uint64_t hash, uint32_t copies),
                   void *arg)
{
    for (uint64_t i = 0; c->cap && i <= c->mask; i++) {
        uint32_t slot = (uint32_t)c->table[i], copies = 0;
        uint64_t hash = c->node[slot].hash;

        if (c->table[i] == 0 || wp_cache_find(c, hash) != slot)
            continue; /* told with the first of its name */
        for (uint64_t k = i; c->table[k]; k = (k + 1) & c->mask)
            copies += c->node[(uint32_t)c->table[k]].hash == hash;
        fn(arg, hash, copies);
    }
}
