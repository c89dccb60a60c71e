/* SPDX-License-Identifier: Apache-2.0 */
/* router/fleet_inner.h - the fleet from inside: for fleet*.c, place.c, seats.c, settle.c, hold.c, query.c and snapshot.c alone. */
#ifndef WP_ROUTER_FLEET_INNER_H
#define WP_ROUTER_FLEET_INNER_H

#include "base/map.h"
#include "base/rng.h"
#include "index/history.h"
#include "router/fleet.h"
#include "router/rooms.h"
#include "router/sticky.h"
#include "router/warm.h"

#include <pthread.h>
#include <stdatomic.h>

struct wp_model_ratio { /* bytes of canonical prompt per token, learnt from usage */
    struct wp_list link;
    char *name;
    double bytes_per_token;
};

struct wp_seat { /* where a request can go */
    struct wp_worker *worker;
    struct wp_rank *rank;
};

struct wp_fleet {
    _Atomic uint64_t downs;
    pthread_mutex_t lock; /* guards all below */
    struct wp_list workers;
    size_t n_workers, n_ranks;
    struct wp_index *index;
    struct wp_list warm; /* records of a snapshot that no feed has taken yet */
    struct wp_history *history;
    struct wp_rooms *rooms;
    struct wp_policy *policy;
    char policy_name[24];
    const struct wp_config *conf; /* the present one; the router keeps it alive until the next configure */
    struct wp_list lines; /* wp_hold_line: requests that are held, by model */
    size_t n_lines, n_held;
    struct wp_waker *waker; /* NULL: none */
    struct wp_records records;
    struct wp_recorder *recorder; /* NULL: none */
    struct wp_sticky sticky;
    struct wp_rng rng;
    struct wp_list ratios;
    size_t n_ratios;
    uint64_t lessons;   /* answers that something was learnt from, of all workers */
    double mean_tokens; /* that a request left to prefill, of late */
    struct wp_map spaces;   /* hash of (model, size, kind) -> space */
    struct wp_growth growth_bytes, growth_blocks, growth_locations; /* of the index */
    struct wp_map sized;    /* holder << 32 | space -> blocks that history was told */
    /* Scratch of one decision, for cap ranks. */
    size_t cap;
    struct wp_ask ask;
    struct wp_seat *candidate;
    struct wp_worker_view *view;
    struct wp_verdict *verdict;
    struct wp_candidate *shown;
    struct wp_overlap overlap;
    /* Metrics. */
    struct wp_metrics *metrics;
    struct wp_family *in_flight, *backlog, *up, *breaker, *predicted_wait, *ended, *drift, *resyncs, *pace;
    struct wp_series *queue_wait, *queue_depth;
    struct wp_series *price_error, *interval[3]; /* below, inside, above */
    struct wp_series *index_blocks, *index_locations, *index_floating, *index_doubtful, *index_bytes, *index_cap, *history_blocks;
};

/* With the lock held: fills candidate, view and shown.  Returns how many, or 0 with why. */
size_t wp_fleet_candidates(struct wp_fleet *f, const struct wp_want *want, uint64_t now_us, enum wp_place_result *no,
                           const char **why, uint64_t *retry_after_us);
/* Where the prompt's blocks will serve others, by what is known of the rank now. */
struct wp_history_ends wp_fleet_ends(const struct wp_rank *r, const struct wp_hashes *h, uint32_t tokens);
/* The end of that placement decides whether a half open breaker closes. */
static inline bool wp_fleet_decides(const struct wp_worker *w, const struct wp_placement *p)
{
    return p->probe_of_breaker && w->half_open_by == p;
}
int wp_fleet_metrics(struct wp_fleet *f, struct wp_metrics *m); /* fleet_metrics.c.  Errors: WP_ENOMEM */
/* Decides and places.  Not placed: why not. */
enum wp_place_result wp_fleet_place_now(struct wp_fleet *f, const struct wp_want *want, struct wp_placement *p, uint64_t now_us, const char **why,
                                        uint64_t *retry_after_us);
/* The prompt's blocks as the worker cuts them; NULL: it was not cut so. */
const struct wp_hashes *wp_fleet_hashes(const struct wp_want *want, const struct wp_worker *w);
/* place_room.c, with the lock held: the price of room for a decision among n candidates; the request's blocks were asked for. */
void wp_fleet_price_room(struct wp_fleet *f, const struct wp_want *want, size_t n, uint64_t now_us);
void wp_fleet_note_asked(struct wp_fleet *f, const struct wp_want *want, const struct wp_placement *p, size_t n, uint64_t now_us);
/* A ready worker of the model that is no newcomer and has room: then newcomers get a few requests at first. */
bool wp_fleet_has_warm(const struct wp_fleet *f, struct wp_str model, uint64_t now_us);
size_t wp_fleet_choose(struct wp_fleet *f, const struct wp_want *want, size_t n, uint64_t now_us, uint64_t draw);
/*
 * flight.c, with the lock held.  flown: the placement's blocks are in flight no more; behind a live feed they count on until the feed has told
 * them, or has passed that moment without (0: at once).  moved: the rank's feed has moved on; batch: by one that was just applied.
 */
void wp_fleet_flown(struct wp_fleet *f, struct wp_placement *p, uint64_t end_us);
void wp_fleet_feed_moved(struct wp_fleet *f, struct wp_rank *r, bool batch, uint64_t now_us);
/* With the lock held.  A decision allocates nothing: room for more ranks is made when they come. */
int wp_fleet_make_room(struct wp_fleet *f, size_t more);
int wp_fleet_take_holders(struct wp_fleet *f, struct wp_worker *w, struct wp_err *err);
void wp_fleet_forget_rank(struct wp_fleet *f, struct wp_rank *r);
/* fleet_ranks.c, with the lock held: a worker turns out to have another number of ranks.  Without memory it stays as it was: its events are not followed. */
void wp_fleet_change_ranks(struct wp_fleet *f, struct wp_worker *w, uint32_t n);
/* Nobody asks any more what the placement's rank holds. */
static inline bool wp_fleet_rank_gone(const struct wp_placement *p)
{
    return p->worker->gone || p->rank->old;
}
/* fleet_warm.c, with the lock held: the rank takes its record and holder of a snapshot; what is in doubt beyond what the index says. */
bool wp_fleet_rewarm(struct wp_fleet *f, const struct wp_worker *w, struct wp_rank *r);
void wp_fleet_drop_cold(struct wp_fleet *f); /* records that no worker will take any more, and their holders */
uint64_t wp_fleet_unsure(const struct wp_fleet *f, const struct wp_rank *r);
/* As wp_index_holder_stats(); of a rank that is unsure, all is in doubt. */
void wp_fleet_rank_stats(const struct wp_fleet *f, const struct wp_rank *r, uint64_t tier[WP_TIER_MAX], uint64_t *doubtful);
/* The space of a model at a block size; 0xFFFFFFFF when none could be made. */
uint32_t wp_fleet_space(struct wp_fleet *f, struct wp_str base, uint32_t block_size, enum wp_prompt_kind kind);

#endif
