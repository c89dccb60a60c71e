/* SPDX-License-Identifier: Apache-2.0 */
#include "index/book.h"

#include "base/err.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum {
    LINE = sizeof(struct wp_book_bucket),
    PAGE_BUCKETS = WP_PAGE / LINE,
    USED = (1 << WP_BOOK_WAYS) - 1, /* in a bucket's state */
    AWAY = 1 << WP_BOOK_WAYS,       /* one displaced key */
    BUCKETS_MAX = 1 << 28,
};

_Static_assert(sizeof(struct wp_book_bucket) == 64, "a bucket is a cache line");

/* Entries that a table takes: nine tenths. */
static size_t room(uint32_t buckets)
{
    return (size_t)buckets * 9 / 2;
}

/* Buckets for so many entries: a power of two below a page, then whole pages; 0: too many. */
static uint32_t buckets_for(size_t entries)
{
    size_t want = entries / 9 * 2 + 2, some = 1;

    if (entries > room(BUCKETS_MAX - PAGE_BUCKETS))
        return 0;
    if (want > PAGE_BUCKETS)
        return (uint32_t)((want + PAGE_BUCKETS - 1) / PAGE_BUCKETS * PAGE_BUCKETS);
    while (room((uint32_t)some) < entries)
        some *= 2;
    return (uint32_t)some;
}

static size_t table_bytes(uint32_t buckets)
{
    return buckets < PAGE_BUCKETS ? (size_t)(buckets + 1) * LINE : (size_t)buckets * LINE;
}

/* A table for that many buckets. */
static bool table_init(struct wp_book_table *t, uint32_t buckets)
{
    *t = (struct wp_book_table){.buckets = buckets};
    if (buckets >= PAGE_BUCKETS)
        t->mem = wp_pages_alloc(table_bytes(buckets));
    else
        t->mem = wp_calloc(buckets + 1, LINE); /* one more, to align by hand */
    t->at = (struct wp_book_bucket *)(((uintptr_t)t->mem + LINE - 1) & ~(uintptr_t)(LINE - 1));
    return t->mem != NULL;
}

static void table_fini(struct wp_book_table *t)
{
    if (t->buckets >= PAGE_BUCKETS)
        wp_pages_free(t->mem, table_bytes(t->buckets));
    else
        wp_free(t->mem);
    *t = (struct wp_book_table){0};
}

/* Puts an entry into a table that has room; returns the bucket it came to stand in. */
static uint32_t place(struct wp_book_table *t, uint64_t hash, uint64_t key, uint32_t value)
{
    uint32_t home = wp_book_home(hash, t->buckets), i = home;
    struct wp_book_bucket *k;
    int way;

    while ((t->at[i].state & USED) == USED)
        i = i + 1 == t->buckets ? 0 : i + 1;
    k = &t->at[i];
    way = __builtin_ctz(~k->state);
    k->key[way] = key;
    k->value[way] = value;
    k->state |= 1u << way;
    if (i != home)
        t->at[home].state += AWAY;
    if (i < home && i >= t->wrapped)
        t->wrapped = i + 1;
    return i;
}

/* The ways of a bucket that hold the key: none or one. */
static inline uint32_t match(const struct wp_book_bucket *k, uint64_t key)
{
    uint32_t m = 0;

    for (uint32_t way = 0; way < WP_BOOK_WAYS; way++)
        m |= (uint32_t)(k->key[way] == key) << way;
    return m & k->state;
}

struct spot {
    struct wp_book_bucket *at, *home;
    uint32_t way;
};

/* How many of a bucket's entries have that home. */
static uint32_t of_home(const struct wp_book *b, const struct wp_book_table *t, uint32_t i,
                        uint32_t home)
{
    const struct wp_book_bucket *k = &t->at[i];
    uint32_t n = 0;

    for (uint32_t way = 0; way < WP_BOOK_WAYS; way++)
        if (k->state >> way & 1)
            n += wp_book_home(wp_book_hash(b->secret, k->key[way]), t->buckets) == home;
    return n;
}

static bool locate(const struct wp_book *b, uint64_t key, struct spot *s)
{
    uint64_t hash = wp_book_hash(b->secret, key);
    const struct wp_book_table *t = &b->now;
    uint32_t home = wp_book_home(hash, b->old.buckets), i, away, m;

    if (b->old.buckets && home >= b->moved)
        t = &b->old;
    else
        home = wp_book_home(hash, t->buckets);
    if (!t->buckets)
        return false;
    i = home;
    s->home = &t->at[home];
    m = match(s->home, key);
    away = s->home->state / AWAY;
    while (!m && away) {
        i = i + 1 == t->buckets ? 0 : i + 1;
        m = match(&t->at[i], key);
        if (!m)
            away -= of_home(b, t, i, home);
    }
    s->at = &t->at[i];
    s->way = m ? (uint32_t)__builtin_ctz(m) : 0;
    return m != 0;
}

uint32_t *wp_book_find(const struct wp_book *b, uint64_t key)
{
    struct spot s;

    return locate(b, key, &s) ? &s.at->value[s.way] : NULL;
}

static void pay(struct wp_book *b, size_t bytes)
{
    b->budget->bytes += bytes - b->paid;
    b->paid = bytes;
}

static void move_all(struct wp_book *b)
{
    for (uint32_t i = 0; i < b->old.buckets; i++) {
        struct wp_book_bucket *k = &b->old.at[i];

        for (uint32_t way = 0; way < WP_BOOK_WAYS; way++)
            if (k->state >> way & 1)
                place(&b->now, wp_book_hash(b->secret, k->key[way]), k->key[way], k->value[way]);
    }
    table_fini(&b->old);
    b->bytes = table_bytes(b->now.buckets);
    pay(b, b->bytes);
}

static int move_to(struct wp_book *b, uint32_t buckets)
{
    const struct wp_budget *budget = b->budget;
    size_t more = table_bytes(buckets);
    struct wp_book_table next;

    if (budget->cap && (more > budget->cap || budget->bytes > budget->cap - more))
        return WP_ETOOBIG;
    if (!table_init(&next, buckets))
        return WP_ENOMEM;
    b->old = b->now;
    b->now = next;
    pay(b, b->paid + more);
    move_all(b);
    return 0;
}

int wp_book_reserve(struct wp_book *b, uint64_t secret, uint32_t n, struct wp_budget *budget)
{
    size_t want = b->n + n, have = room(b->now.buckets);
    uint32_t buckets;
    int rc;

    b->secret = secret;
    b->budget = budget;
    if (want > have) {
        buckets = buckets_for(want > have + have / 8 ? want : have + have / 8);
        rc = buckets ? move_to(b, buckets) : WP_ETOOBIG;
        if (rc < 0)
            return rc;
    }
    b->owed = n;
    return 0;
}

void wp_book_put(struct wp_book *b, uint64_t key, uint32_t value)
{
    assert(b->n < room(b->now.buckets));
    place(&b->now, wp_book_hash(b->secret, key), key, value);
    b->n++;
    b->owed -= b->owed > 0;
}

static void none_left(struct wp_book *b)
{
    if (b->n || b->owed)
        return;
    table_fini(&b->now);
    table_fini(&b->old);
    b->bytes = 0;
    pay(b, 0);
}

bool wp_book_del(struct wp_book *b, uint64_t key)
{
    struct spot s;

    if (!locate(b, key, &s))
        return false;
    s.at->state &= ~(1u << s.way);
    if (s.at != s.home)
        s.home->state -= AWAY;
    b->n--;
    none_left(b);
    return true;
}

static void sweep_table(struct wp_book *b, struct wp_book_table *t,
                        bool (*fn)(void *ctx, uint64_t key, uint32_t *value), void *ctx)
{
    for (uint32_t i = 0; i < t->buckets; i++) {
        struct wp_book_bucket *k = &t->at[i];

        for (uint32_t way = 0; way < WP_BOOK_WAYS; way++) {
            uint32_t home;

            if (!(k->state >> way & 1) || fn(ctx, k->key[way], &k->value[way]))
                continue;
            home = wp_book_home(wp_book_hash(b->secret, k->key[way]), t->buckets);
            k->state &= ~(1u << way);
            if (home != i)
                t->at[home].state -= AWAY;
            b->n--;
        }
    }
}

void wp_book_sweep(struct wp_book *b, bool (*fn)(void *ctx, uint64_t key, uint32_t *value),
                   void *ctx)
{
    sweep_table(b, &b->now, fn, ctx);
    sweep_table(b, &b->old, fn, ctx);
    if (b->budget)
        none_left(b);
}

bool wp_book_settle(struct wp_book *b, uint32_t n)
{
    (void)n;
    return b->old.buckets == 0;
}

void wp_book_fini(struct wp_book *b, struct wp_budget *budget)
{
    table_fini(&b->now);
    table_fini(&b->old);
    budget->bytes -= b->paid;
    *b = (struct wp_book){0};
}
