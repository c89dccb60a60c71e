/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/policy.h - which worker a request goes to.
 * A policy is a file exporting one const table, and one row in policies.c.  It does no I/O, starts no thread and
 * is told the time and the draw, so that a test, a simulation and `serve` run the very same code.
 * Threads: one at a time calls choose() and note() on one policy.
 */
#ifndef WP_POLICIES_POLICY_H
#define WP_POLICIES_POLICY_H

#include "base/err.h"
#include "base/str.h"
#include "policies/profile.h"

enum { WP_TIERS = 8 }; /* as index/index.h WP_TIER_MAX: policies/ stands beside index/ and does not include it */
#define WP_NO_WORKER ((size_t)-1)

/* A request, as a policy sees it. */
struct wp_ask {
    uint64_t now_us;
    uint64_t draw;        /* 64 random bits of this decision; the record keeps them */
    uint32_t tokens;      /* of the prompt, estimated when not exact */
    bool exact;
    uint32_t max_tokens;  /* asked for; 0: not said */
    uint64_t prefix_key;  /* hash of the prompt's first blocks (model, adapter and salt in it); 0: no prompt */
    uint64_t session_key; /* hash of the session key; 0: none */
};

/* One worker (rank), as a policy sees it: only workers that can take the request are shown. */
struct wp_worker_view {
    uint64_t key;            /* stable over the worker's life and over restarts of the router (hash of its id and rank) */
    uint32_t in_flight;      /* our own count of requests under way there */
    uint32_t decoding;       /* of those, past their first token */
    uint64_t kv_tokens;      /* prompt and output tokens of the decoding ones */
    double wait_us;          /* outstanding prefill work ahead of a new request, reckoned to now (policies/load.h) */
    uint32_t hit_tokens;     /* prompt tokens it can serve from cache now, by index, history and in flight */
    uint32_t hit_tier[WP_TIERS]; /* where they lie; the sum is hit_tokens */
    uint32_t doubtful;       /* of hit_tokens */
    uint32_t block_size;
    const struct wp_profile *profile;
    double correction;       /* measured / predicted, 1 when nothing was learnt */
};

/* What a policy made of one worker: explain prints every row of it. */
enum wp_term {
    WP_TERM_WAIT,    /* us until its prefill can start */
    WP_TERM_FETCH,   /* us for what is fetched from slower tiers */
    WP_TERM_COMPUTE, /* us to prefill what is missing */
    WP_TERM_ROOM,    /* us others lose by what the new blocks evict */
    WP_TERM_SCORE,   /* policies that have no price: what they compare */
    WP_TERMS,
};
extern const char *const wp_term_names[WP_TERMS]; /* "wait", "fetch", ... */

struct wp_verdict {
    double term[WP_TERMS]; /* NaN: this policy has no such term */
    double price;          /* what is compared, lower wins; NaN: not compared */
    double ttft_us;        /* predicted time to first token if sent there; NaN: no prediction */
};

/* Settings; rows in the configuration table, defaults by wp_policy_conf_init(). */
struct wp_policy_conf {
    double room_us;         /* price.room_us: per block newly placed */
    double near_us;         /* price.near_us: prices closer than this are a tie */
    double bound;           /* prefix_hash and session: how far above the mean in-flight a worker may be (1.25) */
    uint32_t prefix_blocks; /* prefix_hash: leading blocks that make the key */
    uint64_t seed;
};
void wp_policy_conf_init(struct wp_policy_conf *c);

struct wp_policy { /* first member of each implementation */
    const struct wp_policy_ops *ops;
};

struct wp_policy_ops {
    const char *name;    /* as the configuration spells it */
    const char *summary; /* one line, for `warmpath policies` */
    int (*create)(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err);
    /*
     * The worker to use: an index into w[n], or WP_NO_WORKER when n is 0.  v[n]: filled for every worker.  Runs on the loop: no
     * allocation, no I/O, no clock.
     */
    size_t (*choose)(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[], size_t n,
                     struct wp_verdict v[]);
    void (*destroy)(struct wp_policy *p);
};

extern const struct wp_policy_ops *const wp_policies[]; /* ends with NULL; the first is the default */
/* Errors: WP_EINVAL with the nearest and all known names. */
int wp_policy_create(struct wp_policy **out, const char *name, const struct wp_policy_conf *conf, struct wp_err *err);

#endif
