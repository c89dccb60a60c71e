/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/tiers.h - the blocks of one engine: gpu, cpu, disk, and who holds what of the gpu.
 * The gpu's room is cached blocks (some pinned) + reserved ones (without a name yet) + free ones.  A request takes all it will ever need
 * at once; a block that it fills turns from reserved to cached and pinned, so nothing can fail under way and nothing allocates.
 * With copies, a block that a request computes although it is cached already becomes a second one of the same name, as in vLLM, which never
 * looks: the last block of a prompt that ends with it (it is always computed again), blocks behind a hole, and generated ones.
 * Without, it stays nameless.  Blocks that two requests compute at once are never copies: there a block can be hit as soon as it is scheduled.
 * Caches are least recently used first out; what leaves the gpu goes to the cpu, then to the disk, where those exist.  What is read up stays
 * below too.  A tier reads for one request after another.
 * Threads: one.
 */
#ifndef WP_SIM_TIERS_H
#define WP_SIM_TIERS_H

#include "sim/cache.h"

#include <stddef.h>

enum wp_tier { WP_GPU, WP_CPU, WP_DISK, WP_TIERS };

struct wp_tiers {
    struct wp_cache tier[WP_TIERS];
    double read_us[WP_TIERS];   /* per block, of the lower tiers; set by the owner */
    double reader_us[WP_TIERS]; /* when that tier's queue is through */
    double now_us;              /* set by the owner before each call */
    uint64_t reserved;
    bool copies, store_first; /* set by the owner; the second: what moves down is told below before it is told gone */
    void (*on_block)(void *arg, uint64_t hash, enum wp_tier tier, bool stored); /* may be NULL */
    void *arg;
};

/* What one request holds. */
struct wp_holding {
    size_t n, usable;      /* usable: leading blocks that may be hit */
    const uint64_t *chain; /* [n] its blocks' hashes */
    uint32_t *slot;        /* [n + blocks it will generate] pinned on the gpu by this request; 0: not */
    size_t named;          /* of the generated ones */
    bool mute;             /* a reset has been over it: it stores nothing more */
    uint32_t reserved;     /* gpu blocks without a name */
    uint32_t hit[WP_TIERS]; /* leading blocks found, by tier */
    enum wp_tier last;      /* the tier of the last of them */
    double ready_us;        /* when all of them are on the gpu */
};

int wp_tiers_init(struct wp_tiers *t, const uint64_t cap[WP_TIERS], uint64_t seed, struct wp_err *err);
void wp_tiers_fini(struct wp_tiers *t);

/*
 * Takes `blocks` gpu blocks in all for h: leading hits are pinned or read up, the rest reserved, others evicted for them.
 * False, and nothing has changed, when that does not fit beside what others hold.  Cost: O(h->n + evicted).
 */
bool wp_tiers_take(struct wp_tiers *t, struct wp_holding *h, uint64_t blocks);
/* Block i of h is filled: others can hit it from now on.  False: another one has stored it meanwhile, so ours stays ours alone. */
bool wp_tiers_store(struct wp_tiers *t, struct wp_holding *h, size_t i);
/* The next block of generated tokens is filled, and this is its name. */
void wp_tiers_name(struct wp_tiers *t, struct wp_holding *h, uint64_t hash);
/* A block from elsewhere: the newest of the cpu tier now, or of the gpu's where there is no other and somebody can make room. */
void wp_tiers_land(struct wp_tiers *t, uint64_t hash);
/* Gives back what h holds.  The tail is let go first, so that it is evicted first. */
void wp_tiers_release(struct wp_tiers *t, struct wp_holding *h);
/* Drops all; pinned blocks lose their names and stay with who pins them (the owner sets their mute). */
void wp_tiers_reset(struct wp_tiers *t);

#endif
