/* SPDX-License-Identifier: Apache-2.0 */
/* sim/cluster_impl.h - what sim/cluster.c (engines), cluster_links.c (transfers, store) and cluster_late.c (what is told late) share. */
#ifndef WP_SIM_CLUSTER_IMPL_H
#define WP_SIM_CLUSTER_IMPL_H

#include "base/map.h"
#include "sim/cache.h"
#include "sim/cluster.h"

struct wp_node { /* one worker */
    struct wp_cluster *cluster;
    struct wp_model *model;
    uint64_t next_us;       /* of the model */
    double in_us, out_us;   /* when its links are free */
    uint32_t in_flight;
    struct wp_map coming;   /* block -> requests before their first token that have it */
    bool changed;           /* its state was not told yet */
};

struct wp_job { /* a request in the fleet */
    const struct wp_play *play;
    struct wp_node *node;
    struct wp_model_req *req;
    uint64_t placed_us, first_us, bytes;
    uint32_t transfers; /* that have not ended */
    uint32_t hit[3];
    uint64_t came[]; /* bits: blocks that were fetched for it; none when nothing is fetched */
};

struct wp_transfer {
    uint64_t at_us, seq; /* of its next event; order of equal ones */
    struct wp_job *job;
    uint32_t src, from, to;
    bool under_way;
};

enum wp_late_kind { WP_LATE_BLOCK, WP_LATE_STATE };
struct wp_late {
    uint64_t at_us; /* when it happened */
    uint32_t worker;
    uint8_t kind, tier;
    bool stored;
    union {
        uint64_t id;
        struct wp_cluster_state state;
    } u;
};

struct wp_cluster {
    struct wp_cluster_conf conf;
    struct wp_cluster_ops ops;
    void *arg;
    uint64_t now_us;
    int rc; /* WP_ENOMEM: what should have been told is lost */
    struct wp_node *node; /* [workers] */
    uint32_t *winner;     /* [2 * leaves]: a tournament by next_us */
    size_t leaves, in_flight;
    bool room; /* somebody has had a first token or ended, and on_room was not told */
    struct wp_transfer **heap; /* by (at_us, seq) */
    size_t n_heap, cap_heap;
    uint64_t seq;
    struct wp_cache store;
    double store_us; /* when it has read for all */
    double block_bytes;
    struct wp_late *late; /* a ring */
    size_t late_first, late_n, late_cap;
    struct wp_cluster_stats sum;
};

void wp_cluster_node_moved(struct wp_cluster *c, struct wp_node *n); /* its model's next event may be another one */

/* links: starts what job waits for.  Errors: WP_ENOMEM: as if nothing was to be fetched from there on. */
int wp_cluster_fetch(struct wp_cluster *c, struct wp_job *job, const struct wp_move fetch[], size_t n);
void wp_cluster_transfer_event(struct wp_cluster *c); /* the first of the heap, now */
void wp_cluster_to_store(struct wp_cluster *c, uint64_t id);
void wp_cluster_links_fini(struct wp_cluster *c);

/* late */
void wp_cluster_tell_block(struct wp_cluster *c, size_t worker, uint8_t tier, bool stored, uint64_t id, uint64_t at_us);
void wp_cluster_tell_state(struct wp_cluster *c, struct wp_node *n, uint64_t at_us);
uint64_t wp_cluster_late_us(const struct wp_cluster *c); /* when the first of the ring is due */
void wp_cluster_late_event(struct wp_cluster *c);

static inline bool wp_bit(const uint64_t bits[], size_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static inline void wp_bit_set(uint64_t bits[], size_t i)
{
    bits[i / 64] |= 1ull << (i % 64);
}

#endif
