/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/book_impl.h - what the two halves of the engine map share: book.c has single operations and
 * moves, book_run.c many at a time.
 */
#ifndef WP_INDEX_BOOK_IMPL_H
#define WP_INDEX_BOOK_IMPL_H

#include "index/book.h"

enum {
    LINE = sizeof(struct wp_book_bucket),
    PAGE_BUCKETS = WP_PAGE / LINE,
    USED = (1 << WP_BOOK_WAYS) - 1, /* in a bucket's state */
    SIDE = 1 << WP_BOOK_WAYS,       /* of the first way */
    AWAY = SIDE << WP_BOOK_WAYS,    /* one key that stands elsewhere */
    AWAY_BITS = 14,            /* more of one home than these can count do not meet by chance */
    SIEVE = AWAY << AWAY_BITS, /* the first of the bits that say which those may be */
    SIEVE_BITS = 8,
    BUCKETS_MAX = 1 << 28,
    BEAT = 8,
    DROP_PAGES = 16, /* given back at a time */
    EXPECT_MORE = 11, /* one in so many is added to what was foretold: such a table is filled to 77 % */
    HOLES_WAIT = 4,   /* that wait for their lines */
    FILLED_AT_ONCE = 2,
};

/*
 * Entries that a table takes: 84 % of its ways.  With 90 % an entry would be a byte smaller, and a del a third slower; with 77 %,
 * which a table that need not grow has for the same bytes, both are a fifth faster.
 */
static inline size_t room(uint32_t buckets)
{
    return (size_t)buckets * 21 / 5;
}

static inline uint32_t away_of(uint32_t state)
{
    return state / AWAY & ((1u << AWAY_BITS) - 1);
}

/* The bit of the sieve for a key of that hash; homes are made of its upper half. */
static inline uint32_t sieve_bit(uint64_t hash)
{
    return (uint32_t)SIEVE << ((uint64_t)(uint32_t)hash * SIEVE_BITS >> 32);
}

/* Where a key of that hash belongs. */
struct home {
    uint32_t at, side;
};

static inline struct home home_of(const struct wp_book *b, uint64_t hash)
{
    uint32_t old = wp_book_home(hash, b->side[!b->now].buckets);

    if (old - b->left < b->n_left)
        return (struct home){old, !b->now};
    return (struct home){wp_book_home(hash, b->side[b->now].buckets), b->now};
}

static inline uint32_t after(const struct wp_book *b, uint32_t i, uint32_t side)
{
    return i + 1 == b->side[side].end ? 0 : i + 1;
}

/* Where the key belongs has been reckoned; there is room. */
static inline void place(struct wp_book *b, struct home h, uint64_t hash, uint64_t key,
                         uint32_t value)
{
    uint32_t i = h.at, way;
    struct wp_book_bucket *k;

    while ((b->at[i].state & USED) == USED)
        i = after(b, i, h.side);
    k = &b->at[i];
    way = (uint32_t)__builtin_ctz(~k->state);
    k->key[way] = key;
    k->value[way] = value;
    k->state = (k->state & ~((uint32_t)SIDE << way)) | 1u << way | h.side * SIDE << way;
    if (i == h.at)
        return;
    b->at[h.at].state = (b->at[h.at].state + AWAY) | sieve_bit(hash);
    b->side[h.side].wrapped += i < h.at;
}

/* One of the home's keys no longer stands elsewhere; without any, the sieve is empty again. */
static inline void one_back(struct wp_book *b, uint32_t home)
{
    uint32_t state = b->at[home].state - AWAY;

    b->at[home].state = away_of(state) ? state : state % AWAY;
}

/* Takes way `way` of bucket i out of use.  Its home's count is the caller's. */
static inline void vacate(struct wp_book *b, uint32_t i, uint32_t way, struct home h)
{
    b->at[i].state &= ~(1u << way);
    b->side[h.side].wrapped -= i < h.at;
}

/* The ways of a bucket that hold the key: none or one. */
static inline uint32_t match(const struct wp_book_bucket *k, uint64_t key)
{
    uint32_t m = (uint32_t)(k->key[0] == key) | (uint32_t)(k->key[1] == key) << 1 |
                 (uint32_t)(k->key[2] == key) << 2 | (uint32_t)(k->key[3] == key) << 3 |
                 (uint32_t)(k->key[4] == key) << 4;

    return m & k->state;
}

/* The ways of bucket i that are in use and of that side. */
static inline uint32_t of_side(const struct wp_book *b, uint32_t i, uint32_t side)
{
    uint32_t state = b->at[i].state, other = state / SIDE ^ (side ? 0 : USED);

    return state & other & USED;
}

static inline bool lives_at(const struct wp_book *b, uint64_t key, struct home h)
{
    return wp_book_home(wp_book_hash(b->secret, key), b->side[h.side].buckets) == h.at;
}

/* The ways of bucket i whose entries have that home.  All five are reckoned: that is cheaper than to guess which. */
static inline uint32_t living(const struct wp_book *b, uint32_t i, struct home h)
{
    const struct wp_book_bucket *k = &b->at[i];
    uint32_t m = 0;

    m |= (uint32_t)lives_at(b, k->key[0], h);
    m |= (uint32_t)lives_at(b, k->key[1], h) << 1;
    m |= (uint32_t)lives_at(b, k->key[2], h) << 2;
    m |= (uint32_t)lives_at(b, k->key[3], h) << 3;
    m |= (uint32_t)lives_at(b, k->key[4], h) << 4;
    return m & of_side(b, i, h.side);
}

/* How many of bucket i's entries have that home. */
static inline uint32_t of_home(const struct wp_book *b, uint32_t i, struct home h)
{
    return (uint32_t)__builtin_popcount(living(b, i, h));
}

struct spot {
    struct home home;
    uint32_t at, way;
};

/* There is a table. */
static inline bool locate_hashed(const struct wp_book *b, uint64_t key, uint64_t hash,
                                 struct spot *s)
{
    uint32_t away, m, state;

    s->home = home_of(b, hash);
    s->at = s->home.at;
    m = match(&b->at[s->at], key);
    state = b->at[s->at].state;
    away = state & sieve_bit(hash) ? away_of(state) : 0;
    while (!m && away) {
        s->at = after(b, s->at, s->home.side);
        m = match(&b->at[s->at], key);
        if (!m)
            away -= of_home(b, s->at, s->home);
    }
    s->way = (uint32_t)__builtin_ctz(m | 1u << WP_BOOK_WAYS);
    return m != 0;
}

static inline bool locate(const struct wp_book *b, uint64_t key, struct spot *s)
{
    return b->at && locate_hashed(b, key, wp_book_hash(b->secret, key), s);
}

static inline bool moving(const struct wp_book *b)
{
    return b->side[!b->now].buckets != 0;
}

/* book.c: part of a move, when there is one, with each put or del. */
void wp_book_work(struct wp_book *b);
/* What stands at a place that locate() gave goes. */
void wp_book_del_at(struct wp_book *b, const struct spot *s);

#endif
