/* SPDX-License-Identifier: Apache-2.0 */
#include "index/heads.h"

#include "base/mem.h"
#include "index/slab.h"

enum { WORDS_MIN = 256, MOVE_AT_ONCE = 16, GONE = 1 };

static size_t bytes_of(uint32_t words)
{
    return sizeof(struct wp_head_table) + words * sizeof(uint64_t);
}

static struct wp_head_table *table_of(const struct wp_heads *h)
{
    return atomic_load_explicit(&((struct wp_heads *)h)->table, memory_order_relaxed);
}

static struct wp_head_table *older_of(const struct wp_heads *h)
{
    return atomic_load_explicit(&((struct wp_heads *)h)->older, memory_order_relaxed);
}

static void put(struct wp_heads *h, struct wp_head_table *t, uint64_t word)
{
    uint32_t at = (uint32_t)(word >> 32) & t->mask;
    uint64_t old;

    while ((old = atomic_load_explicit(&t->word[at], memory_order_relaxed)) > GONE)
        at = (at + 1) & t->mask;
    h->used += old == 0;
    atomic_store_explicit(&t->word[at], word, memory_order_release);
}

static void move_some(struct wp_heads *h, struct wp_budget *b, struct wp_epoch *e, uint32_t n)
{
    struct wp_head_table *from = older_of(h), *to = table_of(h);

    if (!from)
        return;
    for (; n && h->moved <= from->mask; n--, h->moved++) {
        uint64_t word = atomic_load_explicit(&from->word[h->moved], memory_order_relaxed);

        if (word > GONE)
            put(h, to, word);
    }
    if (h->moved <= from->mask)
        return;
    atomic_store_explicit(&h->older, NULL, memory_order_release);
    b->bytes -= bytes_of(from->mask + 1);
    wp_epoch_retire(e, WP_RETIRED_MEMORY, (uintptr_t)from);
}

/* Words of older that are still to come, and twice as many that may be put meanwhile, must find
 * room. */
static bool has_room(const struct wp_heads *h)
{
    const struct wp_head_table *t = table_of(h), *o = older_of(h);
    uint64_t coming = o ? o->mask + 1 - h->moved : 0;

    return t && (h->used + 1ull) * 4 <= (t->mask + 1ull) * 3 && (!o || h->used + coming < t->mask);
}

int wp_heads_reserve(struct wp_heads *h, struct wp_budget *b, struct wp_epoch *e)
{
    struct wp_head_table *t = table_of(h), *wider;
    uint32_t words = WORDS_MIN;
    int rc = 0;

    if (has_room(h))
        return 0;
    move_some(h, b, e, UINT32_MAX);
    if (has_room(h))
        return 0;
    while ((uint64_t)words < (h->n + 1ull) * 2)
        words *= 2;
    if (words > 1u << 30)
        return WP_ETOOBIG;
    wider = wp_budget_alloc(b, 1, bytes_of(words), &rc);
    if (!wider)
        return rc;
    wider->mask = words - 1;
    h->used = 0;
    h->moved = 0;
    /* readers look into the older one last: it is told of before it stops being the newer one */
    atomic_store_explicit(&h->older, t, memory_order_release);
    atomic_store_explicit(&h->table, wider, memory_order_release);
    return 0;
}

void wp_heads_put(struct wp_heads *h, uint64_t key, uint32_t run, struct wp_budget *b,
                  struct wp_epoch *e)
{
    put(h, table_of(h), (uint64_t)wp_head_tag(key) << 32 | run);
    h->n++;
    move_some(h, b, e, MOVE_AT_ONCE);
}

static void del(struct wp_head_table *t, uint64_t word)
{
    uint32_t at = (uint32_t)(word >> 32) & t->mask;

    for (uint32_t left = t->mask + 1; left; left--, at = (at + 1) & t->mask) {
        uint64_t it = atomic_load_explicit(&t->word[at], memory_order_relaxed);

        if (it == word)
            atomic_store_explicit(&t->word[at], GONE, memory_order_release);
        if (it == word || it == 0)
            return;
    }
}

void wp_heads_del(struct wp_heads *h, uint64_t key, uint32_t run)
{
    uint64_t word = (uint64_t)wp_head_tag(key) << 32 | run;

    if (older_of(h))
        del(older_of(h), word);
    del(table_of(h), word);
    h->n--;
}

void wp_heads_fini(struct wp_heads *h, struct wp_budget *b)
{
    struct wp_head_table *t[] = {table_of(h), older_of(h)};

    for (int i = 0; i < 2; i++)
        if (t[i])
            wp_budget_free(b, t[i], 1, bytes_of(t[i]->mask + 1));
    atomic_init(&h->table, NULL);
    atomic_init(&h->older, NULL);
    h->n = h->used = h->moved = 0;
}
