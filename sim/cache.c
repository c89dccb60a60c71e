/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cache.h"
#include "base/mem.h"

#include <assert.h>

static uint32_t *bucket_of(const struct wp_cache *c, uint64_t hash)
{
    uint64_t x = (hash ^ c->seed) * 0x9e3779b97f4a7c15u; /* callers' hashes may be small numbers */

    return &c->bucket[(x ^ x >> 32) & c->mask];
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
    uint64_t buckets = 1;

    *c = (struct wp_cache){.seed = seed};
    if (cap > WP_CACHE_MAX)
        return wp_fail(err, WP_ETOOBIG, "want at most %d blocks in a tier, got %llu", WP_CACHE_MAX,
                       (unsigned long long)cap);
    while (buckets < 2 * cap) /* chains of more than one are rare, and each is a line of memory */
        buckets *= 2;
    c->node = wp_calloc(cap + 1, sizeof *c->node);
    c->bucket = wp_calloc(buckets, sizeof *c->bucket);
    if (!c->node || !c->bucket) {
        wp_cache_fini(c);
        return wp_fail(err, WP_ENOMEM, "out of memory for a tier of %llu blocks",
                       (unsigned long long)cap);
    }
    c->cap = (uint32_t)cap;
    c->mask = buckets - 1;
    c->fresh = 1;
    return 0;
}

void wp_cache_fini(struct wp_cache *c)
{
    wp_free(c->node);
    wp_free(c->bucket);
    *c = (struct wp_cache){0};
}

uint32_t wp_cache_find(const struct wp_cache *c, uint64_t hash)
{
    uint32_t slot = *bucket_of(c, hash);

    while (slot != 0 && c->node[slot].hash != hash)
        slot = c->node[slot].chain;
    return slot;
}

/* Copies of a hash stand together in their bucket, the first that came in front. */
static uint32_t *place_of(struct wp_cache *c, uint64_t hash)
{
    uint32_t *bucket = bucket_of(c, hash), *at = bucket;

    while (*at != 0 && c->node[*at].hash != hash)
        at = &c->node[*at].chain;
    if (*at == 0)
        return bucket;
    while (*at != 0 && c->node[*at].hash == hash)
        at = &c->node[*at].chain;
    return at;
}

uint32_t wp_cache_add(struct wp_cache *c, uint64_t hash)
{
    uint32_t *at = place_of(c, hash), slot = c->freed;

    assert(c->used < c->cap);
    if (slot != 0)
        c->freed = c->node[slot].chain;
    else
        slot = c->fresh++;
    c->node[slot] = (struct wp_cache_node){.hash = hash, .chain = *at};
    *at = slot;
    c->used++;
    link_newest(c, slot);
    return slot;
}

static void take_name(struct wp_cache *c, uint32_t slot)
{
    uint32_t *at = bucket_of(c, c->node[slot].hash);

    while (*at != slot)
        at = &c->node[*at].chain;
    *at = c->node[slot].chain;
}

static void free_slot(struct wp_cache *c, uint32_t slot)
{
    c->node[slot].chain = c->freed;
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
    for (uint64_t b = 0; b <= c->mask; b++) {
        for (uint32_t slot = c->bucket[b], next; slot != 0; slot = next) {
            uint32_t copies = 1;

            next = c->node[slot].chain;
            for (; next != 0 && c->node[next].hash == c->node[slot].hash; copies++)
                next = c->node[next].chain;
            fn(arg, c->node[slot].hash, copies);
        }
    }
}
