/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/cluster.h - a fleet in virtual time: engines (sim/model.h), the links between them, a store that all share, and what a
 * router is told of all this, as late as one likes.
 *
 * Each worker has a link in and a link out.  A transfer takes blocks of one prompt from one source; it starts as soon as the source's
 * way out and the destination's way in are both free, holds both for bytes / bandwidth, and its blocks are there the set-up time later.
 * It ends at the first block that the source has lost until it starts.  What is read is the newest in the source's lower tiers; what
 * came lands in the destination's cpu tier.  A request is not scheduled before its transfers have ended; others pass it.
 * The store is fed by what leaves the cpu tiers, forgets the least recently used, and reads for one transfer after another.
 * Rules: docs/replay.md, from the laboratory.
 *
 * What a router sees (on_block, on_state) comes stale_us late; first tokens and ends pass through it, so it sees them at once.
 * Same calls, same events, in the same order.  Threads: one.
 */
#ifndef WP_SIM_CLUSTER_H
#define WP_SIM_CLUSTER_H

#include "sim/model.h"

#include <stddef.h>

enum { WP_CLUSTER_WORKERS_MAX = 1024 };

struct wp_cluster_conf {
    size_t workers;
    struct wp_model_conf engine; /* of each */
    uint64_t store_blocks;       /* 0: there is no store */
    double link_bytes_per_s, link_setup_us, store_bytes_per_s;
    uint64_t stale_us;
};

struct wp_cluster_state { /* of one worker, after a step or a dispatch */
    uint64_t prefill_tokens; /* still to be prefilled, of all that have no first token yet */
    double prefill_us;       /* what that costs */
    uint32_t waiting, in_flight, decoding;
    uint64_t kv_tokens;  /* of the decoding ones */
    uint64_t pinned;     /* gpu blocks that cannot be evicted now */
};

struct wp_play { /* a request as it is played */
    uint64_t at_us;
    uint32_t input, output; /* tokens */
    uint32_t n_ids;
    bool warm; /* of the warm-up: in no figure */
    const uint64_t *id;
    uint32_t tenant, priority;
};

struct wp_move { /* blocks [from, to) of the prompt from worker src; src == workers: from the store */
    uint32_t src, from, to;
};

struct wp_outcome { /* of one request */
    const struct wp_play *play;
    size_t worker;
    uint64_t placed_us, first_us, done_us;
    uint32_t gpu, cpu, disk, fetched; /* prompt tokens by where they came from; the rest was computed */
    uint64_t bytes_fetched;
};

/* All are told in order of time; any may be NULL.  Only on_room may call wp_cluster_place(), the others nothing. */
struct wp_cluster_ops {
    /* worker == workers: the store. */
    void (*on_block)(void *arg, uint64_t at_us, size_t worker, uint8_t tier, bool stored, uint64_t id);
    void (*on_state)(void *arg, uint64_t at_us, size_t worker, const struct wp_cluster_state *s);
    void (*on_first)(void *arg, uint64_t at_us, size_t worker, const struct wp_play *p);
    void (*on_end)(void *arg, uint64_t at_us, size_t worker, const struct wp_outcome *o);
    void (*on_room)(void *arg, uint64_t at_us); /* some have had their first token or ended, and all that came of it was told */
};

struct wp_cluster; /* opaque: sim/cluster.c */

/* Errors: WP_EINVAL, WP_ENOMEM, WP_ETOOBIG. */
int wp_cluster_create(struct wp_cluster **out, const struct wp_cluster_conf *conf, const struct wp_cluster_ops *ops, void *arg,
                      struct wp_err *err);
void wp_cluster_destroy(struct wp_cluster *c);

/*
 * p goes to a worker now, with what is fetched for it; p must live until its end.  Fetches out of range or from the worker itself are
 * passed over.  Errors: WP_ENOMEM, WP_EINVAL, WP_ETOOBIG: it can never fit.
 */
int wp_cluster_place(struct wp_cluster *c, const struct wp_play *p, size_t worker, const struct wp_move fetch[], size_t n,
                     struct wp_err *err);
/* When something happens next; UINT64_MAX: never. */
uint64_t wp_cluster_next_us(const struct wp_cluster *c);
/* Plays all that happens up to then, included, and tells states that have changed.  Errors: WP_ENOMEM, then it cannot go on. */
int wp_cluster_run(struct wp_cluster *c, uint64_t until_us, struct wp_err *err);

struct wp_cluster_stats {
    uint64_t steps, transfers, bytes_fetched, blocks_skipped; /* skipped: gone when their transfer began */
    size_t in_flight;
};
void wp_cluster_stats(const struct wp_cluster *c, struct wp_cluster_stats *s);

#endif
