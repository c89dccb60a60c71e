/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/events/gather.h"

#include "base/mem.h"

#include <string.h>

struct wp_gather_part {
    uint64_t hash, seed;
    uint64_t parent; /* of a block's first part: the block before */
    uint32_t up; /* the part before, in the same block; of one that is free, the next free one */
    uint32_t child, next, prev;
    uint16_t copies[WP_TIER_MAX];
    uint32_t pos; /* in its block */
    int8_t told;  /* of a block's last part: the tier that was told, -1: none */
    bool has_parent, opaque;
};

enum { CAP_MIN = 64 };

void wp_gather_init(struct wp_gather *g, uint32_t size, uint32_t parts, bool bigram, size_t max,
                    uint64_t seed, wp_gather_fn tell, void *arg)
{
    *g = (struct wp_gather){.size = size,
                            .parts = parts,
                            .bigram = bigram,
                            .max = max,
                            .tell = tell,
                            .arg = arg,
                            .at = {.seed = seed}};
}

void wp_gather_clear(struct wp_gather *g)
{
    uint64_t seed = g->at.seed;

    wp_free(g->part);
    wp_free(g->token);
    wp_free(g->block);
    wp_map_fini(&g->at);
    g->at = (struct wp_map){.seed = seed};
    g->part = NULL;
    g->token = g->block = NULL;
    g->n = g->cap = g->top = 0;
    g->free = 0;
}

void wp_gather_fini(struct wp_gather *g)
{
    wp_gather_clear(g);
    *g = (struct wp_gather){0};
}

/* --- parts ------------------------------------------------------------------------------------ */

static size_t width(const struct wp_gather *g)
{
    return (size_t)g->size + 1;
}

static uint32_t find(const struct wp_gather *g, uint64_t hash)
{
    uint64_t i = 0;

    return wp_map_get(&g->at, hash, &i) ? (uint32_t)i : 0;
}

static bool grow(struct wp_gather *g)
{
    size_t cap = g->cap ? g->cap * 2 : CAP_MIN;
    void *p;

    if (!g->block)
        g->block = wp_calloc((size_t)g->size * g->parts + 1, sizeof g->block[0]);
    if (!g->block)
        return false;
    p = wp_realloc(g->part, cap * sizeof g->part[0]);
    if (!p)
        return false;
    g->part = p;
    p = wp_realloc(g->token, cap * width(g) * sizeof g->token[0]);
    if (!p)
        return false;
    g->token = p;
    g->cap = cap;
    if (!g->top)
        g->top = 1;
    return true;
}

/* A new part of that hash; 0: no room. */
static uint32_t make(struct wp_gather *g, uint64_t hash)
{
    uint32_t i = g->free;

    if (g->n >= g->max || (!i && g->top >= g->cap && !grow(g)))
        return 0;
    if (!i)
        i = (uint32_t)g->top;
    if (wp_map_put(&g->at, hash, i) < 0)
        return 0;
    if (i == g->free)
        g->free = g->part[i].up;
    else
        g->top++;
    g->part[i] = (struct wp_gather_part){.hash = hash, .told = -1};
    g->n++;
    return i;
}

static void hang(struct wp_gather *g, uint32_t i, uint32_t up)
{
    struct wp_gather_part *it = &g->part[i], *parent = &g->part[up];

    it->up = up;
    it->pos = parent->pos + 1;
    it->next = parent->child;
    if (it->next)
        g->part[it->next].prev = i;
    parent->child = i;
}

static bool has_copies(const struct wp_gather_part *it)
{
    static const uint16_t none[WP_TIER_MAX];

    return memcmp(it->copies, none, sizeof none) != 0;
}

/* What has no copies and leads nowhere goes, and then perhaps what it hung from. */
static void settle(struct wp_gather *g, uint32_t i)
{
    while (i && !has_copies(&g->part[i]) && !g->part[i].child) {
        struct wp_gather_part *it = &g->part[i];
        uint32_t up = it->up;

        if (up)
            *(it->prev ? &g->part[it->prev].next : &g->part[up].child) = it->next;
        if (it->next)
            g->part[it->next].prev = it->prev;
        wp_map_del(&g->at, it->hash);
        it->up = g->free;
        g->free = i;
        g->n--;
        i = up;
    }
}

/* --- blocks ----------------------------------------------------------------------------------- */

static int fastest(const struct wp_gather_part *it)
{
    for (int t = 0; t < WP_TIER_MAX; t++)
        if (it->copies[t])
            return t;
    return -1;
}

/* The block that the part ends: in which tier it is now. */
static int tier_of(const struct wp_gather *g, uint32_t end)
{
    int slowest = 0;

    for (uint32_t i = end; i; i = g->part[i].up) {
        int t = fastest(&g->part[i]);

        if (t < 0)
            return -1;
        slowest = t > slowest ? t : slowest;
    }
    return slowest;
}

static void look(struct wp_gather *g, uint32_t end)
{
    struct wp_gather_part *last = &g->part[end];
    struct wp_gathered b = {.name = last->hash,
                            .was = last->told,
                            .now = tier_of(g, end),
                            .seed = last->seed,
                            .bigram = g->bigram};
    size_t at = g->parts;

    if (b.was == b.now)
        return;
    for (uint32_t i = end; i; i = g->part[i].up) {
        const struct wp_gather_part *it = &g->part[i];

        memcpy(g->block + --at * g->size, g->token + i * width(g), g->size * sizeof g->token[0]);
        b.opaque |= it->opaque;
        b.has_parent = it->has_parent;
        b.parent = it->parent;
    }
    if (g->bigram)
        g->block[(size_t)g->size * g->parts] = g->token[end * width(g) + g->size];
    b.token = g->block;
    last->told = (int8_t)b.now;
    g->tell(g->arg, &b);
}

/* All blocks that the part belongs to: it may have changed. */
static void look_below(struct wp_gather *g, uint32_t top)
{
    uint32_t i = top;

    for (;;) {
        if (g->part[i].pos + 1 == g->parts)
            look(g, i);
        if (g->part[i].child) {
            i = g->part[i].child;
            continue;
        }
        while (i != top && !g->part[i].next)
            i = g->part[i].up;
        if (i == top)
            return;
        i = g->part[i].next;
    }
}

static void give(struct wp_gather *g, uint32_t i, uint8_t tier)
{
    struct wp_gather_part *it = &g->part[i];
    int before = fastest(it);

    if (it->copies[tier] < UINT16_MAX)
        it->copies[tier]++;
    if (fastest(it) != before)
        look_below(g, i);
}

size_t wp_gather_store(struct wp_gather *g, const uint64_t hash[], size_t n, bool has_parent,
                       uint64_t parent, const uint32_t token[], uint64_t seed, bool opaque,
                       uint8_t tier)
{
    uint32_t up = has_parent ? find(g, parent) : 0;

    for (size_t k = 0; k < n; k++) {
        uint32_t i = find(g, hash[k]);

        if (!i) {
            i = make(g, hash[k]);
            if (!i)
                return k;
            g->part[i].seed = seed;
            g->part[i].opaque = opaque;
            memcpy(g->token + i * width(g), token + k * g->size,
                   (g->size + g->bigram) * sizeof token[0]);
            if (up && g->part[up].pos + 1 < g->parts) {
                hang(g, i, up);
            } else {
                g->part[i].has_parent = has_parent;
                g->part[i].parent = parent;
            }
        }
        give(g, i, tier);
        up = i;
        has_parent = true;
        parent = hash[k];
    }
    return n;
}

bool wp_gather_give(struct wp_gather *g, uint64_t hash, uint8_t tier)
{
    uint32_t i = find(g, hash);

    if (i)
        give(g, i, tier);
    return i != 0;
}

bool wp_gather_take(struct wp_gather *g, uint64_t hash, uint8_t tier)
{
    uint32_t i = find(g, hash);
    struct wp_gather_part *it = i ? &g->part[i] : NULL;
    int before;

    if (!it || !it->copies[tier])
        return false;
    before = fastest(it);
    it->copies[tier]--;
    if (fastest(it) != before)
        look_below(g, i);
    settle(g, i);
    return true;
}
