/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/inside.h - the index's inside: what the files of index/ share.
 *
 *     run      up to WP_SEGMENT consecutive blocks of a prompt, within one segment (index/prefix.h): their local hashes, in chunks, and who
 *              holds them.  A prompt that parts from a run in its middle goes on in a run of its own, its child; so nothing is ever
 *              split or merged, and a block has one *place*: run << 7 | offset.  A run is found by the key of its first block.
 *     word     run->who: everything that readers are told of a run's holders, in one atomic word.  Nobody, one span, or a roster.
 *     span     what one holder has of a run between two offsets, if it is the same all along: tiers, which of them are sure, guess, vague;
 *              or, for a holder with groups that restrict, which of those have the blocks.  64 bits.
 *     roster   spans of one holder each, and spans that a set of holders shares, as bits.  It is not changed but for single words; a
 *              new one takes its place, and the old one is retired (index/epoch.h).
 *     book     engine hash -> place, for one (holder, space, group): index/book.h.  Readers do not look at it.
 *     detail   what a book cannot say of (holder, place): several names, copies beyond the first, a name without copies where a
 *              guess stands.  Rare.  Its names stand in the books by their own number.  At most one name of a place is *plain*: known by
 *              the book alone, with one copy in each tier of detail.rest (without a detail: in each tier of the span).
 *     guess    a tier that graft() concluded, in doubt until the engine confirms it: an engine that evicts
 *              tails first still holds what is before a block that it holds.  It ends with a store of the block,
 *              a removal by its name, or the last block that the holder has below.
 *     floats   blocks below an engine hash that nobody has placed: index/float.h.
 *
 * Hashes in chunks are written once, before a word speaks of them; a run's memory is used again only when no reader can be there.
 */
#ifndef WP_INDEX_INSIDE_H
#define WP_INDEX_INSIDE_H

#include "index/book.h"
#include "index/epoch.h"
#include "index/float.h"
#include "index/heads.h"
#include "index/index.h"
#include "index/prefix.h"
#include "index/slab.h"

#include <pthread.h>

#ifndef WP_CHUNK
#define WP_CHUNK 16u /* divides WP_SEGMENT */
#endif
__extension__ typedef unsigned __int128 wp_u128;
enum { WP_RUNS_MAX = 1 << 24, WP_HOLDERS_MAX = 65535, WP_ROSTER_CLASSES = 21 };
#define WP_NOWHERE 0xFFFFFFFFu
#define WP_NAMED 0x80000000u /* in a book's value: the rest is a name's number (of a window's: copies are not just one) */
enum { WP_COPIES_MAX = UINT16_MAX };
enum { WP_BOOKS_MAX = 256 }; /* of one holder: spaces x groups */
enum { WP_RETIRED_RUN = WP_RETIRED_MEMORY + 1, WP_RETIRED_ROSTER };

struct wp_run { /* one line: what a reader needs */
    uint64_t key;
    _Atomic uint64_t end_key; /* of all its blocks */
    _Atomic uint64_t who;
    uint32_t parent; /* the place before it; WP_NOWHERE: none */
    uint8_t first;   /* its first block's offset in the segment */
    _Atomic uint8_t len;
    uint8_t detailed; /* somebody has details here, or had */
    uint8_t gone;     /* retired */
    _Atomic uint32_t chunk[WP_SEGMENT / WP_CHUNK];
};

struct wp_run_own { /* the writer's part */
    struct wp_sums sum; /* of its segment's blocks up to its end */
    uint64_t base;  /* key of the segments before */
    uint32_t child, next, prev; /* first child; among its parent's children */
    uint32_t segment;           /* its depth in these */
    uint32_t stamp;             /* wp_index.clock when something was stored last */
    uint32_t mark;              /* of a walk that has been here */
    uint16_t space;
};

/* Spans. */
#define WP_SPAN_GUESS  (1ull << 30)
#define WP_SPAN_VAGUE  (1ull << 31)
#define WP_SPAN_WINDOW (1ull << 32)
#define WP_SPAN_ATTR   ((1ull << 33) - 1)
#define WP_SPAN_LOOK   (WP_SPAN_ATTR & ~0x3FFFull) /* all but from where to where */
#define WP_WHO_SPAN    (1ull << 63)
#define WP_WHO_ROSTER  (1ull << 62)

static inline unsigned wp_span_lo(uint64_t s)
{
    return s & 127;
}
static inline unsigned wp_span_hi(uint64_t s) /* one past the last */
{
    return (s >> 7 & 127) + 1;
}
static inline uint8_t wp_span_tiers(uint64_t s)
{
    return (uint8_t)(s >> 14);
}
static inline uint8_t wp_span_sure(uint64_t s)
{
    return (uint8_t)(s >> 22);
}
static inline uint16_t wp_span_window(uint64_t s)
{
    return (uint16_t)(s >> 14);
}
static inline uint32_t wp_span_holder(uint64_t s)
{
    return s >> 33 & 0xFFFF;
}
static inline uint64_t wp_span(unsigned lo, unsigned hi, uint64_t look, uint32_t holder)
{
    return lo | (uint64_t)(hi - 1) << 7 | look | (uint64_t)holder << 33;
}
static inline uint64_t wp_look(uint8_t tiers, uint8_t sure)
{
    return (uint64_t)tiers << 14 | (uint64_t)sure << 22;
}

/* The words of a roster: head, cover (which offsets anybody holds: two words), single spans, sets (span, then bits). */
enum { WP_ROSTER_HEAD = 3 };
#define WP_ROSTER_SIMPLE (1ull << 62) /* no holder has two spans, all begin at 0, and none is of a window */
static inline unsigned wp_roster_singles(uint64_t head)
{
    return (unsigned)(head & 0xFFFFFF);
}
static inline unsigned wp_roster_sets(uint64_t head)
{
    return (unsigned)(head >> 24 & 0xFFFFFF);
}
static inline unsigned wp_roster_words(uint64_t head) /* of a set */
{
    return (unsigned)(head >> 48 & 0x7FF);
}

struct wp_name {
    uint64_t engine;
    uint32_t detail; /* of a window's name: its holder */
    uint32_t next;   /* of the same detail */
    uint16_t book;
    uint16_t windows; /* bit i: the holder's window i has copies of the hash */
    uint16_t copies[WP_TIER_MAX];
};

struct wp_detail {
    uint32_t holder, place;
    uint32_t names;
    uint32_t next, prev;   /* among the holder's */
    uint16_t rest_windows; /* of the plain name, if there is one */
    uint8_t rest;          /* tiers in which the plain name has a copy; 0: there is none */
};

struct wp_window {
    bool used;
    uint16_t group, main;
    uint32_t blocks;
    uint32_t stored; /* hashes; counted up to the trial's end */
    bool met;        /* a hash was the main group's */
};

struct wp_shelf { /* a book and what it is of */
    struct wp_book book;
    uint32_t space;
    uint16_t group;
    int8_t window; /* number of the window whose group it is; -1: of a main group */
};

struct wp_holder {
    bool live;
    enum wp_holder_kind kind;
    uint32_t node, next_rank; /* of a rank: its node's number, and the next rank of that node */
    uint32_t first_rank;      /* of a node */
    size_t expect; /* blocks, in all its tiers; 0: not known */
    struct wp_shelf *shelf;
    uint32_t shelves, shelves_cap;
    uint64_t blocks;   /* places where it has something, and what floats */
    uint64_t floating; /* those of them that float */
    uint64_t tier[WP_TIER_MAX], sure;
    uint64_t guesses;  /* places */
    uint32_t details, detail; /* how many, and the first */
    uint32_t epoch;                /* of doubt; for what floats */
    struct wp_float_ages floats; /* its floating leaves, oldest first */
    struct wp_window window[WP_WINDOWS_MAX];
    uint32_t windows;  /* used */
    uint64_t windowed; /* hashes that the groups that restrict have */
    struct wp_index_digest digest;
    bool digest_stale; /* a name went whose hash was not at hand: names and sum are to be counted anew */
};

struct wp_space {
    char *model, *domain;
    size_t model_n, domain_n;
    uint32_t block_size;
    enum wp_space_kind kind;
    uint64_t root;  /* key */
    uint32_t child; /* first run right at the root */
};

/* What a reader must know of holders and spaces; replaced whole. */
struct wp_census {
    uint32_t words, n_spaces;
    uint32_t n_windows;
    uint32_t n_nodes;
    const uint64_t *root;       /* keys, per space */
    const uint64_t *live;       /* set */
    const uint64_t *restricted; /* set */
    const uint32_t *node;       /* holders that are nodes with ranks */
    const uint64_t *ranks;      /* a set for each of them */
    const uint32_t *first_window; /* of a holder that is restricted, among the next */
    const struct wp_census_window {
        uint32_t holder, blocks;
        uint8_t number;
    } * window; /* those that restrict, by holder; then one of WP_NO_HOLDER */
};

struct wp_run_list {
    uint32_t *run;
    size_t n, cap;
};

struct wp_index {
    pthread_mutex_t lock; /* the writer's */
    struct wp_index_conf conf;
    struct wp_budget budget;
    struct wp_prefix prefix;
    struct wp_census *_Atomic census;
    struct wp_heads heads[2]; /* of first blocks of prompts, and all others */
    struct wp_slab runs, owns, chunks, rosters[WP_ROSTER_CLASSES];
    struct wp_epoch epoch;

    struct wp_pool names, details;
    struct wp_table detailed; /* (holder, place) -> detail */
    struct wp_floats floats;
    struct wp_space *spaces;
    struct wp_holder *holders;
    uint32_t n_spaces, spaces_cap, n_holders, holders_cap;
    uint32_t words;           /* of a set that has room for all holders */
    struct wp_run_list list;  /* of a walk */
    bool lost;                /* a walk could not keep what a holder has, for want of memory */
    int ending;               /* the window that a walk ends */
    uint32_t mark;            /* of the last walk over runs: wp_run_own.mark */
    uint32_t pinned;          /* a run that stays although nobody may hold it yet */
    uint32_t clock;           /* store events; wraps */
    uint64_t blocks, locations, sure, evicted;
    wp_index_left_fn on_left; /* NULL: nobody watches */
    void *on_left_arg;
};

static inline struct wp_run *wp_run_at(const struct wp_index *ix, uint32_t run)
{
    return wp_slab_at(&ix->runs, run);
}
static inline struct wp_run_own *wp_own_at(const struct wp_index *ix, uint32_t run)
{
    return wp_slab_at(&ix->owns, run);
}
static inline unsigned wp_run_len(const struct wp_run *r)
{
    return atomic_load_explicit(&((struct wp_run *)r)->len, memory_order_relaxed);
}
static inline const uint64_t *wp_run_chunk(const struct wp_index *ix, const struct wp_run *r, unsigned i)
{
    return wp_slab_at(&ix->chunks, atomic_load_explicit(&((struct wp_run *)r)->chunk[i], memory_order_relaxed));
}
static inline uint64_t wp_run_local(const struct wp_index *ix, const struct wp_run *r, unsigned off)
{
    return wp_run_chunk(ix, r, off / WP_CHUNK)[off % WP_CHUNK];
}
static inline uint32_t wp_place(uint32_t run, unsigned off)
{
    return run << 7 | off;
}
static inline uint32_t wp_place_run(uint32_t place)
{
    return place >> 7;
}
static inline unsigned wp_place_off(uint32_t place)
{
    return place & 127;
}

/* runs.c: where blocks are.  A place of WP_NOWHERE is before the first block. */
uint32_t wp_place_below(const struct wp_index *ix, uint32_t space, uint32_t place, uint64_t local); /* WP_NOWHERE: there is none */
void wp_place_prefetch(const struct wp_index *ix, uint32_t space, const uint64_t local[]); /* for a search below WP_NOWHERE */
void wp_run_prefetch_links(const struct wp_index *ix, uint32_t run); /* for when it goes */
int wp_place_reserve(struct wp_index *ix); /* for one wp_place_make().  Errors: WP_ETOOBIG, WP_ENOMEM */
uint32_t wp_place_make(struct wp_index *ix, uint32_t space, uint32_t place, uint64_t local); /* is not there, after a reserve */
unsigned wp_run_append(struct wp_index *ix, uint32_t run, const uint64_t local[], size_t n); /* how many: to the segment's end, or none without memory */
void wp_run_settle(struct wp_index *ix, uint32_t run); /* what nobody holds and leads nowhere goes, upwards */
void wp_run_pin(struct wp_index *ix, uint32_t run);    /* 0: none; the one before is settled */
void wp_run_free(struct wp_index *ix, uint32_t run);   /* the epoch's way to give it back */

static inline uint32_t wp_place_before(const struct wp_index *ix, uint32_t place)
{
    return wp_place_off(place) ? place - 1 : wp_run_at(ix, wp_place_run(place))->parent;
}

/* roster.c: who has what of a run. */
struct wp_part { /* what one holder has of a run, block by block */
    uint64_t look[WP_SEGMENT]; /* 0: nothing; as in a span */
    uint16_t windows[WP_SEGMENT];
};
void wp_part_get(const struct wp_index *ix, uint32_t run, uint32_t holder, struct wp_part *part);
uint64_t wp_part_look(const struct wp_index *ix, uint32_t place, uint32_t holder); /* of one block */
/* Makes it so, and keeps the figures.  False: no memory; then the holder has nothing of the run, and its names are the caller's to forget. */
bool wp_part_put(struct wp_index *ix, uint32_t run, uint32_t holder, const struct wp_part *part);
unsigned wp_spans_get(const struct wp_index *ix, uint32_t run, uint32_t holder, uint64_t span[2 * WP_SEGMENT]);
bool wp_spans_put(struct wp_index *ix, uint32_t run, uint32_t holder, const uint64_t put[], unsigned n); /* the same, said in spans */
void wp_roster_free(struct wp_index *ix, uint64_t word);
wp_u128 wp_run_cover(const struct wp_index *ix, uint32_t run); /* bit i: somebody has block i */

static inline uint8_t wp_look_tiers(uint64_t look)
{
    return wp_span_tiers(look);
}
static inline bool wp_look_real(uint64_t look) /* held, not guessed */
{
    return wp_span_tiers(look) && !(look & WP_SPAN_GUESS);
}

/* hold.c: names, and what they make the holder have. */
struct wp_known { /* a name that a book has */
    struct wp_shelf *shelf;
    uint64_t engine;
    uint32_t *value;
    uint32_t place;
    uint32_t name; /* 0: plain */
};
struct wp_shelf *wp_shelf_of(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group, int window); /* NULL: none */
struct wp_shelf *wp_shelf_make(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group, int window); /* or no memory */
int wp_hold_reserve(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group); /* for one arrival.  Errors: WP_ETOOBIG, WP_ENOMEM */
bool wp_hold_find(const struct wp_index *ix, struct wp_shelf *shelf, uint64_t engine, struct wp_known *k);
bool wp_hold_idle(const struct wp_index *ix, const struct wp_known *k); /* without copies */
bool wp_hold_give(struct wp_index *ix, uint32_t holder, struct wp_known *k, uint8_t tier, bool vague); /* false: refused */
bool wp_hold_take(struct wp_index *ix, uint32_t holder, struct wp_known *k, uint8_t tier); /* false: there was nothing */
void wp_hold_forget(struct wp_index *ix, uint32_t holder, struct wp_known *k);

struct wp_arrival { /* a name that no book has, with its copies */
    uint32_t holder, space, place;
    uint16_t group;
    uint64_t engine;
    uint16_t copies[WP_TIER_MAX];
    uint8_t sure; /* of the tiers in which there are copies */
    bool vague;
    bool stored;  /* one copy, by a store: what is in doubt there begins anew */
    bool awaited; /* no copies: a removal by this name ends the guess at the place */
};
bool wp_hold_arrive(struct wp_index *ix, const struct wp_arrival *a); /* false: no memory */
bool wp_hold_guess(struct wp_index *ix, uint32_t holder, uint32_t place, uint8_t tier); /* unless something is held there */
void wp_hold_unsupported(struct wp_index *ix, uint32_t holder, uint32_t place); /* guesses there and before that nothing speaks for end */
size_t wp_hold_confirm(struct wp_index *ix, uint32_t holder, uint32_t space, const uint64_t local[], size_t n, size_t blocks);
void wp_hold_clear(struct wp_index *ix, uint32_t holder);
void wp_hold_doubt(struct wp_index *ix, uint32_t holder);
void wp_hold_purge(struct wp_index *ix, uint32_t holder); /* forgets its names of places where it has nothing */
bool wp_hold_runs(struct wp_index *ix, uint32_t holder, uint32_t **run, size_t *n); /* where it has something; wp_free() it */
/* Names of the holder, and what it has in these runs (marked), go. */
uint64_t wp_hold_drop_marked(struct wp_index *ix, uint32_t holder, const uint32_t run[], size_t n);

/* window.c: groups that restrict. */
static inline bool wp_window_restricts(const struct wp_window *w)
{
    return w->used && (w->met || w->stored < WP_WINDOW_TRIAL);
}
int wp_window_of(const struct wp_index *ix, uint32_t holder, uint16_t group); /* -1: none */
void wp_window_apply(struct wp_index *ix, const struct wp_kv_event *ev, int window, struct wp_kv_result *res);
uint16_t wp_windows_with(struct wp_index *ix, uint32_t holder, uint32_t space, uint64_t engine); /* bits: which have the hash */
void wp_window_meet(struct wp_index *ix, uint32_t holder, uint32_t space, uint16_t group, uint64_t engine); /* the main group may have stored it */
bool wp_window_evict(struct wp_index *ix, uint32_t holder); /* some of its hashes go */
void wp_window_doubt(struct wp_index *ix, uint32_t holder); /* what its windows have counts anew when it is stored again */
void wp_window_clear(struct wp_index *ix, uint32_t holder, struct wp_shelf *s); /* its names; the book is the caller's */
void wp_hold_window(struct wp_index *ix, uint32_t holder, struct wp_known *k, int window, bool has); /* it has copies of the name, or no longer */
void wp_hold_window_end(struct wp_index *ix, uint32_t holder, int window);

/* bulk.c: how many blocks from i on were done; 0: block i needs a closer look. */
size_t wp_bulk_store(struct wp_index *ix, const struct wp_kv_event *ev, size_t i, uint32_t *place); /* place: of the block before; becomes the last one's */
size_t wp_bulk_remove(struct wp_index *ix, const struct wp_kv_event *ev, size_t i);

/* ahead.c: calls for what an event will touch, in three steps some events apart.  Changes nothing. */
void wp_ahead_names(struct wp_index *ix, const struct wp_kv_event *ev);
void wp_ahead_run(struct wp_index *ix, const struct wp_kv_event *ev);
void wp_ahead_parts(struct wp_index *ix, const struct wp_kv_event *ev);

/* left.c: the holder has the run's blocks of the mask no more; somebody watches. */
void wp_left_run(struct wp_index *ix, uint32_t run, wp_u128 mask);

/* evict.c: room.  True: something went. */
bool wp_evict(struct wp_index *ix);

/* digest.c: by is 1 for tiers in which the name has its first copy, -1 for those in which it lost its last. */
static inline void wp_digest_name(struct wp_holder *h, uint64_t engine, uint16_t group, uint8_t tiers, int by)
{
    uint64_t one = (uint64_t)(int64_t)by, mixed = wp_index_mix(engine, group) * one; /* wraps */

    for (; tiers; tiers &= (uint8_t)(tiers - 1)) {
        h->digest.names[__builtin_ctz(tiers)] += one;
        h->digest.sum[__builtin_ctz(tiers)] += mixed;
    }
}
static inline void wp_digest_floating(struct wp_holder *h, uint64_t engine, uint16_t group, uint8_t tiers, int by)
{
    uint64_t one = (uint64_t)(int64_t)by, mixed = wp_index_mix(engine, group) * one;

    for (; tiers; tiers &= (uint8_t)(tiers - 1)) {
        h->digest.floating[__builtin_ctz(tiers)] += one;
        h->digest.floating_sum[__builtin_ctz(tiers)] += mixed;
    }
}
uint8_t wp_name_tiers(const struct wp_index *ix, uint32_t holder, const struct wp_shelf *s, uint32_t value); /* of a book's entry */
void wp_digest_count(const struct wp_index *ix, uint32_t holder, struct wp_index_digest *d); /* anew */

/* census.c.  Errors: WP_ENOMEM: the old one stays. */
int wp_census_make(struct wp_index *ix); /* anew, from holders and spaces */

#endif
