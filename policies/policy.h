/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/policy.h - which worker a request goes to.
 * A policy is a file exporting one const table, and one row in policies.c.  It does no I/O, starts
 * no thread and is told the time and the draw, so that a test, a simulation and `serve` run the
 * very same code: the same calls with the same draws make the same choices, on every machine.
 * Absurd input has a defined answer: a hit longer than the prompt is the prompt but its last token,
 * a wait that is no number is a very long one, a correction that is none is 1.
 * Threads: one at a time calls choose() on one policy.
 * Docs: docs/policies.md, each policy with its rule and its source.
 */
#ifndef WP_POLICIES_POLICY_H
#define WP_POLICIES_POLICY_H

#include "base/err.h"
#include "base/str.h"
#include "policies/profile.h"

/* As WP_TIER_MAX of index/index.h: policies/ stands beside index/ and does not include it. */
enum { WP_TIERS = 8 };
#define WP_NO_WORKER ((size_t)-1)

/*
 * Blocks that somebody else has can be fetched, where something can carry that out.  Sources are the other workers shown
 * (has_tokens) and a pool that all of them reach.  A transfer starts when both links are free and they are freed at its
 * end; what was fetched can be used latency_us later.
 */
enum { WP_FETCHES = 3 };       /* transfers of one plan, at most */
#define WP_POOL ((uint32_t)-1) /* as a source */

struct wp_span {
    uint32_t from, to; /* prompt tokens */
};
struct wp_pool {
    const struct wp_span *span; /* n, in order, apart: what it has of the prompt */
    size_t n;
    double busy_us, bytes_per_s;
};
struct wp_fetch {
    uint32_t source;   /* an index into w[], or WP_POOL */
    uint32_t from, to; /* prompt tokens */
};

/* What room costs now, for the whole fleet (policies/room.h).  {0}: the settings alone say. */
struct wp_room_price {
    bool tuned;
    double block_us; /* of a block of 512 tokens newly placed */
    double delays;   /* requests that one lost second delays */
};

/* A request, as a policy sees it. */
struct wp_ask {
    uint64_t now_us;
    uint64_t draw;   /* 64 random bits of this decision; the record keeps them */
    uint32_t tokens; /* of the prompt, estimated when not exact */
    bool exact;
    uint32_t max_tokens;  /* asked for; 0: not said */
    uint64_t prefix_key;  /* hash of its first blocks (model, adapter, salt in it); 0: no prompt */
    uint64_t session_key; /* hash of the session key; 0: none */
    const uint64_t *chain; /* names of its blocks, each naming its prefix too; NULL: the caller has none */
    size_t n_chain;
    uint32_t chain_tokens;       /* of one of them */
    const struct wp_pool *pool;  /* NULL: none */
    double latency_us;           /* of a transfer */
    struct wp_room_price room;
    bool queued; /* requests are held in the router's own queue */
};

/* One worker (rank), as a policy sees it: only workers that can take the request are shown. */
struct wp_worker_view {
    uint64_t key;        /* hash of its id and rank: the same after a restart of the router */
    uint32_t in_flight;  /* requests under way there: our own, and what the engine reports beyond them */
    uint32_t decoding;   /* of those, past their first token */
    uint64_t kv_tokens;  /* prompt and output tokens of the decoding ones */
    double wait_us;      /* prefill work ahead of a new request, in time (policies/load.h) */
    uint32_t waiting;          /* of in_flight, not admitted yet */
    uint64_t prefill_tokens;   /* prompt tokens still to be computed there */
    double pinned;             /* share of its fastest tier that running requests hold, 0..1; 0: not known */
    uint32_t active_blocks;    /* different blocks of prompts in flight there; 0: not known */
    uint32_t fresh_blocks;     /* blocks of this prompt that no request in flight there has */
    uint32_t has_tokens;       /* leading prompt tokens that others can fetch from it now; 0: none */
    double in_busy_us, out_busy_us; /* until its links are free */
    double link_bytes_per_s;        /* 0: it can neither fetch nor be fetched from */
    uint32_t hit_tokens; /* of the prompt in its cache: index, history and in flight */
    uint32_t hit_tier[WP_TIERS]; /* where they lie; the sum is hit_tokens */
    uint32_t doubtful;           /* of hit_tokens */
    uint32_t block_size;
    const struct wp_profile *profile; /* NULL: the default one */
    double correction;                /* measured / predicted, 1 when nothing was learnt */
    double error; /* share that the profile's times may be off by, one deviation, of what was learnt; 0: nothing was */
    uint32_t index_tokens;            /* leading prompt tokens of events alone: without history and what is in flight */
};

/*
 * What a policy made of one worker: explain prints every row of it.  The terms of a price add up to
 * it: fetch is the part of a fetch that the wait does not hide, compute has slow-down and
 * correction in it.
 */
enum wp_term {
    WP_TERM_WAIT,    /* us until its prefill can start */
    WP_TERM_FETCH,   /* us for what is fetched from slower tiers, beyond the wait */
    WP_TERM_COMPUTE, /* us to prefill what is missing */
    WP_TERM_LINK,    /* us others lose by the links that its fetch keeps busy */
    WP_TERM_ROOM,    /* us others lose by what the new blocks evict */
    WP_TERM_PIN,     /* us others lose by the blocks that it keeps in the fastest tier while it runs */
    WP_TERM_SCORE,   /* policies that have no price: what they compare */
    WP_TERMS,
};
extern const char *const wp_term_names[WP_TERMS]; /* "wait", "fetch", ... */

struct wp_verdict {
    double term[WP_TERMS]; /* NaN: this policy has no such term */
    double price;          /* what is compared, lower wins; NaN: not compared */
    double step_us;        /* us that the engine's steps take beyond compute, corrected; no part of
                              the price */
    double ttft_us; /* wait + fetch + compute + step; NaN: no prediction.  Policies without a price
                       predict for their choice alone */
    uint32_t n_fetch; /* 0: nothing is fetched */
    struct wp_fetch fetch[WP_FETCHES];
};

/*
 * Settings; rows in the configuration table, defaults by wp_policy_conf_init().  Blocks of room are
 * of 512 tokens, whatever the engine's block size.  Times are those of an engine at speed 1: they
 * are divided by the worker's profile.speed.
 */
struct wp_policy_conf {
    /* price.room_us, 20000: per block newly placed; */
    double room_us;
    /* price.room_cap_blocks, 20: for at most so many blocks of one request; 0: for all. */
    double room_cap_blocks;
    /* price.room_wait_share, 0.03: and this share of all workers' mean wait, per block, uncapped.
     */
    double room_wait_share;
    /*
     * price.room_tuned, 1: where the price of room tunes itself (policies/room.h) that one is taken instead of the three above; 0:
     * never.  Beside it price.move_us, 20000, for each of at most price.move_blocks, 10, blocks newly placed, times the
     * mean square of the share of the fastest tier that is pinned: where that is short, moves must gain something;
     * and price.pin_us, 40000, for each block that no request in flight there has, times the square of the share of the fastest tier
     * that is pinned, times how many requests a lost second delays (5 at most), while nobody is held in the router.
     */
    double room_tuned, move_us, move_blocks, pin_us;
    /* price.fetch, 1: blocks are fetched where something can; 0: never. */
    double fetch;
    /* price.fetch_margin_us, 1000: what a fetch must gain. */
    double fetch_margin_us;
    /* price.link_share, 1.5: what of the time that a fetch keeps links busy counts as lost to others. */
    double link_share;
    /*
     * The router's own queue (policies/queue.h), of policies that hold.  price.hold_us, 225000: a request is held while every worker
     * has more predicted wait; price.hold_max, 4096: so many at most, 0: none ever; price.hold_most_us, 40000000: for so long at most;
     * price.age, 0.1: seconds of compute that a second of waiting is worth in their order.
     */
    double hold_us, hold_max, hold_most_us, age;
    /* price.near_us, 1000: prices within this of the best are a tie, */
    double near_us;
    /* price.near_share, 0.01: and those within this share of the best. */
    double near_share;
    /* price.doubt, 0.5: share of a doubtful hit that counts, 0..1. */
    double doubt;
    /* price.calibrate, true: whoever asks learns what engines cost (policies/calibrate.h), and shows profiles as learnt. */
    bool calibrate;
    /* bound, 1.25: prefix_hash and session: at most so many times the mean in flight; at least 1.
     */
    double bound;
    /* prefix_blocks, 4: leading blocks of the prompt that the caller makes ask.prefix_key of. */
    uint32_t prefix_blocks;
    /* 0: where round_robin starts, and of the hash of sglang; all else is drawn from ask.draw. */
    uint64_t seed;
    /* Rules of others, each in its file; keys and defaults: policies/rows.h. */
    double dynamo_prefill_weight;
    double llmd_prefix, llmd_queue, llmd_kv;
    double sglang_match, sglang_balance_abs, sglang_balance_rel, sglang_blocks;
    double preble_window_s, preble_overload;
    double conductor_ratio;
    /* false: whatever policy chose, all that any peer has of the prompt and the worker has not is fetched. */
    bool pull;
};
void wp_policy_conf_init(struct wp_policy_conf *c);
/* One by its name in the configuration ("policy.price.room_us", "pull", with "policy." or without), but for the seed.  Errors: WP_EINVAL. */
int wp_policy_set(struct wp_policy_conf *c, struct wp_str key, struct wp_str value,
                  struct wp_err *err);

struct wp_policy { /* first member of each implementation */
    const struct wp_policy_ops *ops;
};

struct wp_policy_ops {
    const char *name;    /* as the configuration spells it */
    const char *summary; /* one line, for `warmpath policies` */
    bool blind; /* it looks at no cache: what workers hold changes no choice of it */
    bool holds;          /* it is used with the router's own queue */
    bool prices_room;    /* it looks at wp_ask.room */
    int (*create)(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err);
    /*
     * The worker to use: an index into w[n], or WP_NO_WORKER when n is 0.  v[n]: filled for every
     * worker.  Runs on the loop: no allocation, no I/O, no clock.
     */
    size_t (*choose)(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[]);
    /* The request went to w, one of those shown to choose(); NULL: nothing is learnt from it.  Memory may be taken for a worker that
     * is new, within a bound. */
    void (*placed)(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view *w);
    void (*destroy)(struct wp_policy *p);
};

/* Ends with NULL; the first is the default. */
extern const struct wp_policy_ops *const wp_policies[];
/* Errors: WP_EINVAL with the nearest and all known names. */
int wp_policy_create(struct wp_policy **out, const char *name, const struct wp_policy_conf *conf,
                     struct wp_err *err);

#endif
