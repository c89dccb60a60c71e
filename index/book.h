/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/book.h - the engine map of one (holder, space, group): engine hash -> 32-bit value, exact.
 *
 * A bucket is one cache line: five entries of a whole 64-bit key and a 32-bit value.  A key's home is found by range
 * mapping of its mixed hash, so a table may have any number of buckets; what its home has no room for stands in one of
 * the buckets that follow, and the home counts how many of its keys do, so that a search knows when to stop.
 *
 * A table that is full gets 5/32 more buckets where it is, and then moves its keys up to their new homes: home by home
 * from the top, a few with each put or del.  A key of a low hash is at its old home still, one of a high hash at its
 * new one, and since no key moves down, no bucket is an old home and a new one at once:
 *
 *     bucket   0 ------- left ----------- old end -- new end
 *              old homes  | gap |  new homes  ...           the gap, of 5/32, closes as the move comes down
 *
 * An entry's side says by which of the two sizes it stands where it is.  A table that is less than a quarter full, and
 * larger than a page, moves its keys down in the same way, from the bottom, and gives its pages back behind the move.
 * Tables of less than a page are copied; others are base/mem.h's pages, with addresses (not memory) of 16 MB or more
 * reserved for each.  A del brings a key home into the room that it makes, so that the share of keys away from home, a
 * sixth, does not rise with time: not at once, but some dels later, when the line where that key stands has come.
 * Keys may be aimed at: the hash has the owner's secret in it.
 * Threads: one at a time.  Cost: find, put and del touch one line, sometimes the next; while a table moves, a put or
 * del moves four homes (sixteen when it shrinks), eight times as many at every eighth.
 */
#ifndef WP_INDEX_BOOK_H
#define WP_INDEX_BOOK_H

#include "base/mem.h"
#include "index/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WP_BOOK_WAYS = 5, WP_BOOK_HOLES = 16 };

struct wp_book_bucket { /* 64 bytes, aligned to that */
    uint64_t key[WP_BOOK_WAYS];
    uint32_t value[WP_BOOK_WAYS];
    uint32_t state; /* bits 0-4: in use; 5-9: their sides; 10-23: how many keys of this home stand
                     elsewhere; the rest: a sieve of their hashes */
};

struct wp_book_side {
    uint32_t buckets; /* the size that homes are reckoned by; 0: no keys of this side */
    uint32_t end;     /* where a search goes on at bucket 0 */
    uint32_t wrapped; /* keys that did */
};

struct wp_book {
    struct wp_book_bucket *at;
    struct wp_pages pages;       /* the table, when it is a page or more */
    void *small;                 /* or less: not aligned */
    struct wp_book_side side[2]; /* one is now; the other, during a move, what is moved from */
    uint32_t now;
    uint32_t left, n_left; /* homes that have not moved: the first, and how many */
    uint32_t dropped;      /* of a table that shrinks: pages from the new end to this bucket have gone back */
    size_t least;          /* entries that there is always room for, once there was */
    uint32_t owed;         /* puts that the last reserve promised and that have not come */
    uint32_t beat;         /* puts and dels during moves */
    uint32_t hole[WP_BOOK_HOLES]; /* buckets into which keys are still to be called home: a ring */
    uint8_t first_hole, holes;
    uint64_t secret;
    struct wp_budget *budget;
    size_t n;     /* entries */
    size_t bytes; /* of the table, as the budget counts them */
};

/*
 * Room for n more entries, whatever is deleted meanwhile; replaces the promise of the reserve before.  The secret is
 * the same each time.  The budget is remembered and must outlive the book.
 * Errors: WP_ETOOBIG (over the budget's cap), WP_ENOMEM; the book is as before.
 * Cost: small but when n is more than 1/16 of what is there: then up to a move of the whole table.
 */
int wp_book_reserve(struct wp_book *b, uint64_t secret, uint32_t n, struct wp_budget *budget);

/*
 * So many entries are to be expected: room for them at once, and never less from now on.  Without it a book that fills
 * moves its keys several times.  Errors: as above; the book is as before.
 */
int wp_book_expect(struct wp_book *b, uint64_t secret, size_t n, struct wp_budget *budget);

/* NULL: not there.  The value may be changed in place; the pointer is good until the next call but a find. */
uint32_t *wp_book_find(const struct wp_book *b, uint64_t key);
void wp_book_put(struct wp_book *b, uint64_t key, uint32_t value); /* not there yet; after a reserve; never fails */
bool wp_book_del(struct wp_book *b, uint64_t key);                 /* false: was not there */

/*
 * Visits all entries in the order of buckets, which is nearly that of hashes.  fn may change *value and returns false
 * to have the entry dropped; it must not call the book.  Gives back what memory is no longer needed.
 */
void wp_book_sweep(struct wp_book *b, bool (*fn)(void *ctx, uint64_t key, uint32_t *value), void *ctx);

/*
 * Looks at the entries of up to n buckets from bucket `from` on, and changes nothing.  Returns where to go on; 0: that was the last
 * one.  When the book changes in between, an entry may be missed or met twice.
 */
uint32_t wp_book_look(const struct wp_book *b, uint32_t from, uint32_t n, void (*fn)(void *ctx, uint64_t key, uint32_t value),
                      void *ctx);
/* The entries of the next bucket from *at on that has any; *at moves on.  0: there are no more.  Changes nothing. */
unsigned wp_book_read(const struct wp_book *b, uint32_t *at, uint64_t key[WP_BOOK_WAYS], uint32_t value[WP_BOOK_WAYS]);

/* For idle times: moves up to n homes, if a table is being moved.  True: nothing is left to move. */
bool wp_book_settle(struct wp_book *b, uint32_t n);

void wp_book_fini(struct wp_book *b, struct wp_budget *budget); /* empty afterwards, as if zeroed */

/* The hash of a key; one to one for each secret. */
static inline uint64_t wp_book_hash(uint64_t secret, uint64_t key)
{
    uint64_t x = (key ^ secret) * 0x9E3779B97F4A7C15u;

    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 32);
}

static inline uint32_t wp_book_home(uint64_t hash, uint32_t buckets)
{
    return (uint32_t)((hash >> 32) * buckets >> 32);
}

/*
 * Many at a time (book_run.c).  A key's line is a miss, mostly of the cache and of the page's address too; called for
 * sixteen keys ahead they come while others are worked on.  One a key worked on: of a burst of prefetches what the core
 * has no buffer for is lost.
 */
enum { WP_BOOK_AHEAD = 16 };

static inline void wp_book_prefetch(const struct wp_book *b, uint64_t key)
{
    uint64_t hash = wp_book_hash(b->secret, key);
    uint32_t home = wp_book_home(hash, b->side[!b->now].buckets);

    if (home - b->left >= b->n_left)
        home = wp_book_home(hash, b->side[b->now].buckets);
    __builtin_prefetch(b->at + home);
    __builtin_prefetch(b->at + home + 1); /* a sixth stand there */
    /* gcc takes a function that only prefetches for a pure one, and leaves its calls out */
    __asm__ volatile("" : : "r"(home));
}

/*
 * key[0] .. key[n - 1] with value, value + 1 and so on, up to the first that is there already: that one and what follows
 * is left alone.  Returns how many were put.  After a reserve of n; never fails.
 */
uint32_t wp_book_add_run(struct wp_book *b, const uint64_t key[], uint32_t n, uint32_t value);

struct wp_book_found {
    uint64_t hash;
    uint32_t at, way, value;
    bool there;
};
/* Looks for key[0 .. n), whose lines were called for. */
void wp_book_find_run(const struct wp_book *b, const uint64_t key[], uint32_t n, struct wp_book_found found[]);
/* Deletes what was found since the last put.  False: it has gone meanwhile. */
bool wp_book_del_found(struct wp_book *b, uint64_t key, const struct wp_book_found *found);

#endif
