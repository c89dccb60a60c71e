/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/gather.h - blocks out of parts: for engines whose pages are a fraction of our block size.
 *
 * A publisher with pages of one token (SGLang's default) names every token.  Parts are kept as a tree, by what hangs from
 * what; so many of them on end are a block, called by its last part's hash, and held only while all of them are:
 *
 *     (block before) -- a -- b -- c -- D        D is the block a b c D, and also
 *                             \--- e -- F       F the block a b e F: the loss of b ends both
 *
 * The block is in the slowest of its parts' tiers, as each lies in its fastest.  Where a part's parent is not known, a block
 * begins: right when the parent was a block's end, and else it matches nothing.
 * Owner: the caller.  Threads: one.  Memory: about 100 bytes a part and 4 a token, up to a number of parts; past it parts are refused.
 * Cost: O(parts in a block) a part stored; a removal also visits what shares the block below it.
 */
#ifndef WP_ADAPTERS_EVENTS_GATHER_H
#define WP_ADAPTERS_EVENTS_GATHER_H

#include "base/map.h"
#include "index/index.h"

struct wp_gathered {
    uint64_t name;
    bool has_parent;
    uint64_t parent;       /* the block before */
    int was, now;          /* tiers; -1: not held */
    uint64_t seed;         /* as its last part was stored with */
    bool opaque;           /* some part was */
    bool bigram;
    const uint32_t *token; /* parts * size of them, one more of bigrams; the callback's only during the call */
};
typedef void (*wp_gather_fn)(void *arg, const struct wp_gathered *block);

struct wp_gather {
    uint32_t size, parts; /* tokens (pairs) of a part, parts of a block */
    bool bigram;
    size_t max;           /* parts kept */
    wp_gather_fn tell;    /* a block came, went, or changed its tier; must not call back */
    void *arg;

    struct wp_gather_part *part; /* number 0 is none */
    uint32_t *token;             /* of each part, size + 1 */
    uint32_t *block;             /* the callback's tokens */
    size_t n, cap, top;
    uint32_t free;
    struct wp_map at; /* hash -> part */
};

/* Ready for use; allocates nothing yet.  size * parts is the block size. */
void wp_gather_init(struct wp_gather *g, uint32_t size, uint32_t parts, bool bigram, size_t max, uint64_t seed,
                    wp_gather_fn tell, void *arg);
void wp_gather_fini(struct wp_gather *g);
void wp_gather_clear(struct wp_gather *g); /* everything is gone, and nobody is told */

/* token: n * size of them, one more of bigrams.  Returns how many parts were taken; fewer than n: no room or no memory. */
size_t wp_gather_store(struct wp_gather *g, const uint64_t hash[], size_t n, bool has_parent, uint64_t parent,
                       const uint32_t token[], uint64_t seed, bool opaque, uint8_t tier);
/* The part is in the tier too, or no more.  False: no such part, or (of the last) not there. */
bool wp_gather_give(struct wp_gather *g, uint64_t hash, uint8_t tier);
bool wp_gather_take(struct wp_gather *g, uint64_t hash, uint8_t tier);

#endif
