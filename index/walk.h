/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/walk.h - what the two halves of a look-up share: overlap.c finds the runs, rows.c keeps the answer.
 */
#ifndef WP_INDEX_WALK_H
#define WP_INDEX_WALK_H

#include "index/inside.h"

/* Sets behind those of the rows: who holds the block in tier t, and who surely; who has guessed; who has it in window i. */
enum { WP_WINDOW_SETS = 2 * WP_TIER_MAX, WP_GUESS_SET = WP_WINDOW_SETS + WP_WINDOWS_MAX, WP_OWN_SET, WP_REST_SET, WP_SCRATCH_SETS };
enum { WP_AHEAD = 8 }; /* segments whose keys are known before they are needed; a power of two */

struct wp_overlap_window {
    struct wp_overlap_row best;
    uint32_t run[WP_WINDOWS_MAX];
};

typedef _Atomic uint64_t wp_word;

struct wp_walk {
    const struct wp_index *ix;
    const struct wp_census *census;
    struct wp_overlap *o;
    const uint64_t *local;
    size_t n, pos;
    uint64_t base[WP_AHEAD]; /* keys of the segments before: of segment s at s % WP_AHEAD, up to `known` */
    uint64_t head[WP_AHEAD]; /* keys of their first blocks */
    size_t known;         /* segments whose base is known */
    uint32_t run[WP_AHEAD]; /* what may be their first runs: called for; 0: none was found */
    size_t called;        /* segments whose first run was */
    struct wp_sums sums;  /* of the blocks from the start of a segment up to `summed` */
    size_t summed;
    uint64_t *scratch;    /* WP_SCRATCH_SETS sets */
    size_t words; /* that both the answer and the census have */
    uint8_t tiers; /* in which anybody has what is looked at */
};

/* What a run's word says, as a reader sees it. */
struct wp_seen {
    const wp_word *single, *set;
    unsigned singles, sets, words, upto; /* upto: nobody has anything from there on */
    bool simple;
    wp_word own;
};

static inline uint64_t *wp_scratch(const struct wp_walk *w, size_t set)
{
    return w->scratch + set * w->o->words;
}
static inline uint64_t wp_word_get(const wp_word *w)
{
    return atomic_load_explicit((wp_word *)w, memory_order_acquire);
}

/* rows.c */
void wp_rows_init(struct wp_walk *w, const struct wp_index *ix, const struct wp_census *c, struct wp_overlap *o);
void wp_rows_go(struct wp_walk *w, const struct wp_seen *s, unsigned m); /* the run's first m blocks lie on the prompt, from w->pos on */
bool wp_rows_any_at(const struct wp_overlap *o, size_t blocks);
void wp_rows_end(struct wp_walk *w); /* longest first, one row an answer */

#endif
