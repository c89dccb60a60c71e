/* SPDX-License-Identifier: Apache-2.0 */
/* sim/brain_impl.h - what the files of the brain share.  brain_names.c: names, who has them, who works on them;
 * brain_ask.c: views, choice, placement, queue; brain_explain.c; brain.c: the rest. */
#ifndef WP_SIM_BRAIN_IMPL_H
#define WP_SIM_BRAIN_IMPL_H

#include "base/map.h"
#include "base/rng.h"
#include "index/index.h"
#include "policies/links.h"
#include "policies/load.h"
#include "policies/queue.h"
#include "policies/room.h"
#include "sim/brain.h"

enum { WP_BRAIN_TIERS = 3 };           /* of a worker */
enum { WP_BRAIN_BATCH = 512 };         /* blocks of one event */
enum { WP_BRAIN_LATER = 4096 };        /* events that wait for the next look-up */
enum { WP_BRAIN_DIRECT = 1 << 22 };    /* traces number their blocks from 0 on */
#define WP_NO_ROW 0xFFFFFFFFu

struct wp_brain_name {      /* a block */
    uint64_t id;
    uint64_t asked_us;      /* by the last request that had it; UINT64_MAX: by none that was placed */
    uint32_t parent, depth; /* a row, or WP_NO_ROW: the first of a prompt; blocks before it */
    uint32_t claims;        /* a list, or WP_NO_ROW */
    uint32_t holders;       /* workers that have it in any tier */
    bool stored;            /* in the store */
};
struct wp_brain_claim { /* requests of one worker that have a block */
    uint32_t worker, next;
    uint32_t pending; /* dispatched, no first token seen */
    uint32_t active;  /* in flight */
};
struct wp_brain_event { /* of a worker, not yet in the index */
    uint32_t row, worker;
    uint8_t tier;
};
struct wp_brain_later {
    struct wp_brain_event at[WP_BRAIN_LATER];
    size_t n;
};

struct wp_brain_names {
    struct wp_map rows; /* id -> row, of ids from WP_BRAIN_DIRECT on */
    uint32_t *direct;   /* of the others: row + 1, 0: none */
    size_t n_direct;
    struct wp_brain_name *row;
    uint64_t *bits; /* rows x WP_BRAIN_TIERS x words: who has it */
    size_t n, cap, words;
    struct wp_brain_claim *claim;
    uint32_t n_claim, cap_claim, free_claim;
};

struct wp_brain_move { /* a transfer for a request */
    struct wp_transfer t;
    struct wp_brain_flight *flight;
    uint32_t from, to; /* blocks */
};
struct wp_brain_flight { /* a request, held or placed */
    struct wp_load_item item;
    struct wp_queue_item held;
    struct wp_queue_who who;
    struct wp_brain_req req; /* its block is not ours */
    uint64_t asked_us;
    uint32_t worker;
    bool placed, first;
    uint32_t n_moves;
    struct wp_brain_move move[WP_FETCHES];
    size_t n;
    uint32_t row[]; /* its blocks */
};

struct wp_brain_worker {
    struct wp_load load;
    struct wp_brain_state state; /* the last report */
    bool reported;
    uint32_t holder;
    uint32_t active_blocks;
};

struct wp_brain {
    struct wp_brain_conf conf;
    struct wp_policy *policy;
    struct wp_index *index;
    struct wp_overlap overlap;
    uint32_t space;
    struct wp_rng rng;
    uint64_t now_us;
    struct wp_brain_names names;
    struct wp_brain_later stores, removals, sorted;
    struct wp_brain_worker *worker;
    struct wp_map flights; /* request -> struct wp_brain_flight */
    struct wp_links links; /* the store's is the last one */
    struct wp_room room;
    struct wp_queue queue;
    /* The request at hand. */
    uint64_t *local, *chain;
    struct wp_span *span;
    size_t cap;
    uint32_t *run; /* leading blocks of each worker that the index knows */
    struct wp_worker_view *view;
    struct wp_verdict *verdict;
    struct wp_ask ask;
    size_t chosen;
    uint64_t asked_id;
    struct wp_brain_stats stats;
};

/* brain_names.c */
int wp_brain_names_init(struct wp_brain_names *s, uint32_t workers, uint64_t seed);
void wp_brain_names_fini(struct wp_brain_names *s);
/* The row of a name, made when new, behind that parent.  Errors: WP_ENOMEM. */
int wp_brain_name(struct wp_brain_names *s, uint64_t id, uint32_t parent, uint32_t depth, uint32_t *row);
bool wp_brain_find(const struct wp_brain_names *s, uint64_t id, uint32_t *row);
/* False: nothing changed. */
bool wp_brain_hold(struct wp_brain_names *s, uint32_t row, uint32_t worker, int tier, bool stored);
bool wp_brain_holds(const struct wp_brain_names *s, uint32_t row, uint32_t worker);
/* The claim of a worker on a block, made when there is none; NULL: no memory. */
struct wp_brain_claim *wp_brain_claim(struct wp_brain_names *s, uint32_t row, uint32_t worker);
void wp_brain_claim_drop(struct wp_brain_names *s, uint32_t row, uint32_t worker); /* if nothing is claimed any more */
void wp_brain_flush(struct wp_brain *b); /* what was told goes into the index */

static inline void wp_brain_advance(struct wp_brain *b, uint64_t now_us)
{
    if (now_us > b->now_us)
        b->now_us = now_us;
}

/* brain_ask.c */
void wp_brain_place(struct wp_brain *b, struct wp_brain_flight *f, struct wp_brain_answer *a); /* where the policy says */
void wp_brain_drop(struct wp_brain *b, struct wp_brain_flight *f); /* it is over: out of the queue, and forgotten */

#endif
