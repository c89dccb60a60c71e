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
    BEAT = 8,
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
    if (!buckets)
        return 0;
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

/* What is resident has changed.  It is paid already but where keys crowd beyond all chance. */
static void resident(struct wp_book *b, size_t bytes)
{
    b->bytes = bytes;
    if (bytes > b->paid)
        pay(b, bytes);
}

/* As place(), into the new table; counts its pages as they are written to. */
static void place_now(struct wp_book *b, uint64_t hash, uint64_t key, uint32_t value)
{
    uint32_t i = place(&b->now, hash, key, value), touched;

    if (!b->old.buckets || i < b->touched)
        return;
    touched = (i / PAGE_BUCKETS + 1) * PAGE_BUCKETS;
    resident(b, b->bytes + (size_t)(touched - b->touched) * LINE);
    b->touched = touched;
}

/* Moves those of bucket i of the old table that have that home; how many. */
static uint32_t move_from(struct wp_book *b, uint32_t i, uint32_t home)
{
    struct wp_book_bucket *k = &b->old.at[i];
    uint32_t n = 0;

    for (uint32_t way = 0; way < WP_BOOK_WAYS; way++) {
        uint64_t hash = wp_book_hash(b->secret, k->key[way]);

        if (!(k->state >> way & 1) || wp_book_home(hash, b->old.buckets) != home)
            continue;
        place_now(b, hash, k->key[way], k->value[way]);
        k->state &= ~(1u << way);
        n++;
    }
    return n;
}

static void move_home(struct wp_book *b, uint32_t home)
{
    uint32_t i = home, away = b->old.at[home].state / AWAY;

    move_from(b, i, home);
    while (away) {
        i = i + 1 == b->old.buckets ? 0 : i + 1;
        away -= move_from(b, i, home);
    }
    b->old.at[home].state &= USED;
}

/* So many buckets of a table may be empty and still resident while it is moved: a 16th, 16 pages at
 * most. */
static uint32_t drop_step(uint32_t buckets)
{
    uint32_t pages = buckets / PAGE_BUCKETS / 16;

    return (pages < 1 ? 1 : pages > 16 ? 16 : pages) * PAGE_BUCKETS;
}

/* Gives back the pages that the move has passed, but not those where keys of the last homes may be.
 */
static void drop_passed(struct wp_book *b)
{
    uint32_t to = b->moved / PAGE_BUCKETS * PAGE_BUCKETS, from = b->given;
    uint32_t kept = (b->old.wrapped + PAGE_BUCKETS - 1) / PAGE_BUCKETS * PAGE_BUCKETS;

    if (b->old.buckets < PAGE_BUCKETS || to - from < drop_step(b->old.buckets))
        return;
    b->given = to;
    if (from < kept)
        from = kept;
    if (from >= to)
        return;
    wp_pages_drop(&b->old.at[from], (size_t)(to - from) * LINE);
    resident(b, b->bytes - (size_t)(to - from) * LINE);
}

static void move_some(struct wp_book *b, uint32_t homes)
{
    while (homes-- && b->moved < b->old.buckets)
        move_home(b, b->moved++);
    if (b->moved < b->old.buckets) {
        drop_passed(b);
        return;
    }
    table_fini(&b->old);
    b->moved = b->given = b->touched = 0;
    b->bytes = table_bytes(b->now.buckets);
    pay(b, b->bytes);
}

/* The most that is resident on the way from one table to another, if keys do not crowd. */
static size_t most_bytes(uint32_t from, uint32_t to)
{
    size_t old = table_bytes(from), next = table_bytes(to);
    size_t both = (size_t)drop_step(from) * LINE + (size_t)4 * WP_PAGE;

    if (!from)
        return next;
    return (old > next ? old : next) + (both < old ? both : old);
}

/* Starts to move; a page or less is moved at once. */
static int move_to(struct wp_book *b, uint32_t buckets)
{
    struct wp_budget *budget = b->budget;
    size_t most = most_bytes(b->now.buckets, buckets);
    uint64_t others = budget->bytes - b->paid;
    struct wp_book_table next;

    if (buckets > b->now.buckets && budget->cap &&
        (most > budget->cap || others > budget->cap - most))
        return WP_ETOOBIG;
    if (!table_init(&next, buckets))
        return WP_ENOMEM;
    b->old = b->now;
    b->now = next;
    pay(b, most);
    b->touched = buckets < PAGE_BUCKETS ? buckets : PAGE_BUCKETS;
    b->bytes += table_bytes(b->touched);
    b->moved = b->n ? 0 : b->old.buckets;
    if (!b->n || b->old.buckets <= PAGE_BUCKETS)
        move_some(b, b->old.buckets);
    return 0;
}

static bool nearly_empty(const struct wp_book *b)
{
    return b->now.buckets > PAGE_BUCKETS && b->n + b->owed < room(b->now.buckets) / 4;
}

/* Starts to move to half the load that it has room for.  Without memory for it, it stays as it is.
 */
static void shrink(struct wp_book *b)
{
    size_t need = b->n + b->owed, meanwhile = need + b->now.buckets / 4;

    (void)move_to(b, buckets_for(need * 2 > meanwhile ? need * 2 : meanwhile));
}

/*
 * Each put and del of a table that moves pays for four homes, or sixteen on the way to a smaller
 * one; eight of them at a time, since the lines are next to each other.  So a move is over before
 * the tenth of the old table that is free is used.
 */
static void work(struct wp_book *b)
{
    if (b->old.buckets && ++b->beat % BEAT == 0)
        move_some(b, BEAT * (b->now.buckets < b->old.buckets ? 16 : 4));
}

int wp_book_reserve(struct wp_book *b, uint64_t secret, uint32_t n, struct wp_budget *budget)
{
    size_t want = b->n + n, have;
    uint32_t buckets;
    int rc;

    b->secret = secret;
    b->budget = budget;
    if (want > room(b->now.buckets)) {
        if (b->old.buckets)
            move_some(b, b->old.buckets);
        have = room(b->now.buckets);
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
    uint64_t hash = wp_book_hash(b->secret, key);

    assert(b->n < room(b->now.buckets));
    work(b);
    if (b->old.buckets && wp_book_home(hash, b->old.buckets) >= b->moved)
        place(&b->old, hash, key, value);
    else
        place_now(b, hash, key, value);
    b->n++;
    b->owed -= b->owed > 0;
}

static bool none_left(struct wp_book *b)
{
    if (b->n || b->owed || !b->budget)
        return false;
    table_fini(&b->now);
    table_fini(&b->old);
    b->moved = b->given = b->touched = 0;
    b->bytes = 0;
    pay(b, 0);
    return true;
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
    if (none_left(b))
        return true;
    if (!b->old.buckets && nearly_empty(b))
        shrink(b);
    work(b);
    return true;
}

bool wp_book_settle(struct wp_book *b, uint32_t n)
{
    if (!b->old.buckets && nearly_empty(b))
        shrink(b);
    if (b->old.buckets)
        move_some(b, n);
    return !b->old.buckets;
}

static void sweep(struct wp_book *b, struct wp_book_table *t, uint32_t from, uint32_t to,
                  bool (*fn)(void *ctx, uint64_t key, uint32_t *value), void *ctx)
{
    for (uint32_t i = from; i < to; i++) {
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
    struct wp_book_table *old = &b->old;
    uint32_t wrapped = old->wrapped < b->moved ? old->wrapped : b->moved;

    sweep(b, &b->now, 0, old->buckets ? b->touched : b->now.buckets, fn, ctx);
    sweep(b, old, 0, wrapped, fn, ctx);
    sweep(b, old, b->moved, old->buckets, fn, ctx);
    if (none_left(b) || !nearly_empty(b))
        return;
    if (old->buckets)
        move_some(b, old->buckets);
    if (nearly_empty(b))
        shrink(b);
    if (old->buckets)
        move_some(b, old->buckets);
}

void wp_book_fini(struct wp_book *b, struct wp_budget *budget)
{
    table_fini(&b->now);
    table_fini(&b->old);
    budget->bytes -= b->paid;
    *b = (struct wp_book){0};
}
