/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/tiers.h"

#include <assert.h>
#include <math.h>

/* In a slot: to be stored in any case, though there may be one of this name. */
#define COPY UINT32_MAX

static void tell(struct wp_tiers *t, uint64_t hash, enum wp_tier tier, bool stored)
{
    if (t->on_block)
        t->on_block(t->arg, hash, tier, stored);
}

int wp_tiers_init(struct wp_tiers *t, const uint64_t cap[WP_TIERS], uint64_t seed,
                  struct wp_err *err)
{
    int rc = 0;

    *t = (struct wp_tiers){0};
    for (unsigned i = 0; i < WP_TIERS && rc == 0; i++)
        rc = wp_cache_init(&t->tier[i], cap[i], seed, err);
    if (rc < 0)
        wp_tiers_fini(t);
    return rc;
}

void wp_tiers_fini(struct wp_tiers *t)
{
    for (unsigned i = 0; i < WP_TIERS; i++)
        wp_cache_fini(&t->tier[i]);
}

static void push_down(struct wp_tiers *t, uint64_t hash, unsigned tier);

/* The block has just been evicted there. */
static void leave(struct wp_tiers *t, uint64_t hash, unsigned tier)
{
    if (!t->store_first)
        tell(t, hash, tier, false);
    push_down(t, hash, tier + 1);
    if (t->store_first)
        tell(t, hash, tier, false);
}

/* What left a tier goes to the next one that there is, which may push its oldest out in turn. */
static void push_down(struct wp_tiers *t, uint64_t hash, unsigned tier)
{
    struct wp_cache *c;
    uint32_t slot;
    uint64_t out;

    while (tier < WP_TIERS && t->tier[tier].cap == 0)
        tier++;
    if (tier == WP_TIERS)
        return;
    c = &t->tier[tier];
    slot = wp_cache_find(c, hash);
    if (slot != 0) {
        wp_cache_touch(c, slot);
        return;
    }
    if (c->used == c->cap && wp_cache_evict(c, &out))
        leave(t, out, tier);
    wp_cache_add(c, hash);
    tell(t, hash, tier, true);
}

static uint64_t gpu_free(const struct wp_tiers *t)
{
    return t->tier[WP_GPU].cap - t->tier[WP_GPU].used - t->reserved;
}

static void make_room(struct wp_tiers *t, uint64_t need)
{
    uint64_t hash;

    while (gpu_free(t) < need && wp_cache_evict(&t->tier[WP_GPU], &hash))
        leave(t, hash, WP_GPU);
    assert(gpu_free(t) >= need);
}

/* Turns one reserved block of h into a cached one. */
static uint32_t name(struct wp_tiers *t, struct wp_holding *h, uint64_t hash)
{
    uint32_t slot;

    assert(h->reserved > 0);
    h->reserved--;
    t->reserved--;
    slot = wp_cache_add(&t->tier[WP_GPU], hash);
    tell(t, hash, WP_GPU, true);
    return slot;
}

/* The hits; h->slot gets the gpu's slots, not yet pinned.  Returns how many blocks hit; *idle:
 * those on the gpu that nobody pins. */
static size_t look_up(const struct wp_tiers *t, struct wp_holding *h, uint64_t *idle)
{
    size_t i = 0;

    *idle = 0;
    for (unsigned k = 0; k < WP_TIERS; k++)
        h->hit[k] = 0;
    for (; i < h->usable; i++) {
        uint32_t slot = wp_cache_find(&t->tier[WP_GPU], h->chain[i]);
        unsigned k = WP_GPU;

        h->slot[i] = slot;
        if (slot != 0)
            *idle += t->tier[WP_GPU].node[slot].pins == 0;
        while (slot == 0 && ++k < WP_TIERS)
            slot = wp_cache_find(&t->tier[k], h->chain[i]);
        if (slot == 0)
            break;
        h->hit[k]++;
        h->last = k;
    }
    return i;
}

/* Hits in lower tiers become the newest there, so that what makes room above pushes out others. */
static void touch_lower(struct wp_tiers *t, const struct wp_holding *h, size_t hits)
{
    for (size_t i = hits; i-- > 0;) {
        for (unsigned k = WP_CPU; k < WP_TIERS && h->slot[i] == 0; k++) {
            uint32_t slot = wp_cache_find(&t->tier[k], h->chain[i]);

            if (slot != 0)
                wp_cache_touch(&t->tier[k], slot);
        }
    }
}

/* Queues the reads from lower tiers and returns when the last one is through. */
static double read_lower(struct wp_tiers *t, const struct wp_holding *h)
{
    double ready = t->now_us;

    for (unsigned k = WP_CPU; k < WP_TIERS; k++) {
        if (h->hit[k] == 0)
            continue;
        t->reader_us[k] = fmax(t->reader_us[k], t->now_us) + h->hit[k] * t->read_us[k];
        ready = fmax(ready, t->reader_us[k]);
    }
    return ready;
}

/* Blocks that come up from below are cached and pinned now, but may be used only when they are
 * here. */
static void bring_up(struct wp_tiers *t, struct wp_holding *h, size_t hits)
{
    struct wp_cache *gpu = &t->tier[WP_GPU];

    for (size_t i = 0; i < hits; i++) {
        if (h->slot[i] != 0)
            continue;
        h->slot[i] = wp_cache_find(gpu, h->chain[i]); /* a chain that names a block twice */
        if (h->slot[i] == 0) {
            h->slot[i] = name(t, h, h->chain[i]);
            gpu->node[h->slot[i]].ready_us = h->ready_us;
        }
        wp_cache_pin(gpu, h->slot[i]);
    }
}

static void mark_copies(const struct wp_tiers *t, struct wp_holding *h, size_t hits)
{
    for (size_t i = hits; i < h->n; i++)
        if (i >= h->usable || wp_cache_find(&t->tier[WP_GPU], h->chain[i]) != 0)
            h->slot[i] = COPY;
}

bool wp_tiers_take(struct wp_tiers *t, struct wp_holding *h, uint64_t blocks)
{
    struct wp_cache *gpu = &t->tier[WP_GPU];
    uint64_t idle, need;
    size_t hits = look_up(t, h, &idle);

    need = blocks - h->hit[WP_GPU];
    if (need + idle > gpu_free(t) + wp_cache_evictable(gpu)) {
        for (size_t i = 0; i < h->n; i++)
            h->slot[i] = 0;
        return false;
    }
    h->ready_us = read_lower(t, h);
    touch_lower(t, h, hits);
    for (size_t i = 0; i < hits; i++) {
        if (h->slot[i] == 0)
            continue;
        wp_cache_pin(gpu, h->slot[i]);
        h->ready_us = fmax(h->ready_us, gpu->node[h->slot[i]].ready_us);
    }
    make_room(t, need);
    h->reserved = (uint32_t)need;
    t->reserved += need;
    bring_up(t, h, hits);
    if (t->copies)
        mark_copies(t, h, hits);
    return true;
}

bool wp_tiers_store(struct wp_tiers *t, struct wp_holding *h, size_t i)
{
    bool copy = h->slot[i] == COPY;

    if (copy)
        h->slot[i] = 0;
    if (h->mute || h->slot[i] != 0)
        return false;
    if (!copy && wp_cache_find(&t->tier[WP_GPU], h->chain[i]) != 0)
        return false;
    h->slot[i] = name(t, h, h->chain[i]);
    wp_cache_pin(&t->tier[WP_GPU], h->slot[i]);
    return true;
}

void wp_tiers_name(struct wp_tiers *t, struct wp_holding *h, uint64_t hash)
{
    uint32_t slot = 0;

    if (h->mute)
        return;
    if (!t->copies)
        slot = wp_cache_find(&t->tier[WP_GPU], hash);
    if (slot == 0 && h->reserved > 0)
        slot = name(t, h, hash);
    if (slot != 0)
        wp_cache_pin(&t->tier[WP_GPU], slot);
    h->slot[h->n + h->named++] = slot;
}

void wp_tiers_land(struct wp_tiers *t, uint64_t hash)
{
    struct wp_cache *gpu = &t->tier[WP_GPU];
    uint32_t slot;

    if (t->tier[WP_CPU].cap > 0) {
        push_down(t, hash, WP_CPU);
        return;
    }
    slot = wp_cache_find(gpu, hash);
    if (slot != 0) {
        wp_cache_touch(gpu, slot);
    } else if (gpu_free(t) + wp_cache_evictable(gpu) > 0) {
        make_room(t, 1);
        wp_cache_add(gpu, hash);
        tell(t, hash, WP_GPU, true);
    }
}

void wp_tiers_release(struct wp_tiers *t, struct wp_holding *h)
{
    for (size_t i = h->n + h->named; i-- > 0;) {
        if (h->slot[i] != 0 && h->slot[i] != COPY)
            wp_cache_unpin(&t->tier[WP_GPU], h->slot[i]);
        h->slot[i] = 0;
    }
    h->named = 0;
    t->reserved -= h->reserved;
    h->reserved = 0;
}

void wp_tiers_reset(struct wp_tiers *t)
{
    struct wp_cache *gpu = &t->tier[WP_GPU];
    uint64_t hash;

    for (unsigned k = 0; k < WP_TIERS; k++) {
        while (wp_cache_evict(&t->tier[k], &hash))
            tell(t, hash, k, false);
    }
    for (uint32_t slot = 1; slot < gpu->fresh; slot++) {
        if (gpu->node[slot].pins == 0 || gpu->node[slot].older == WP_CACHE_NAMELESS)
            continue;
        wp_cache_forget(gpu, slot);
        tell(t, gpu->node[slot].hash, WP_GPU, false);
    }
}
