/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/pick.h - what the policies share.
 * Threads: any.  Nothing here allocates or fails.  Cost: O(n) each.
 */
#ifndef WP_POLICIES_PICK_H
#define WP_POLICIES_PICK_H

#include "policies/policy.h"

/* The tables of functions, one a file; policies.c lists them. */
extern const struct wp_policy_ops wp_policy_price, wp_policy_round_robin, wp_policy_random,
    wp_policy_least_loaded, wp_policy_power_of_two, wp_policy_prefix_hash, wp_policy_session;

/* 0..n-1 from 32 random bits; n > 0 and below 2^32. */
size_t wp_pick_of(uint32_t bits, size_t n);
/* Two different ones of n from the 64 bits of a draw, each pair as likely; the same when n is 1. */
void wp_pick_two(uint64_t draw, size_t n, size_t *a, size_t *b);

/* No terms, no price, no prediction. */
void wp_verdicts_clear(struct wp_verdict v[], size_t n);

/* A profile made ready for a loop over workers: the same arithmetic as policies/profile.h, with its divisions done. */
struct wp_cost {
    const struct wp_profile *of; /* NULL: not filled */
    double t_c, a, b2;           /* us, at its speed */
    double tov, e, d, per_chunk; /* slow-down: 1 + (tov + e B + d K) per_chunk */
    double up[WP_TIERS];         /* us a token, from that tier to the fastest */
};
void wp_cost_of(struct wp_cost *c, const struct wp_profile *p); /* does nothing when it is filled with p already */

/* What a prediction is made of. */
struct wp_parts {
    double wait_us, missing, slow; /* slow: slow-down times correction */
    double up_us;                  /* bringing the hit up from slower tiers */
    uint32_t hit;                  /* usable */
    double fix;
};
void wp_parts_of(const struct wp_cost *c, const struct wp_ask *ask, const struct wp_worker_view *w,
                 double doubt, struct wp_parts *parts);
double wp_step_after(const struct wp_profile *p, const struct wp_worker_view *w, const struct wp_parts *parts); /* step_us */

/* Fills wait, fetch, compute, step and ttft_us.  doubt: share of a doubtful hit that counts. */
void wp_predict(const struct wp_ask *ask, const struct wp_worker_view *w, double doubt,
                struct wp_verdict *v);
/* x between low and high; low when it is no number.  (fmin and fmax are calls, and this is hot.) */
static inline double wp_within(double x, double low, double high)
{
    if (!(x > low))
        return low;
    return x < high ? x : high;
}
/* Prompt tokens that the worker would have to place anew; a doubtful hit counts in part. */
double wp_missing_tokens(const struct wp_ask *ask, const struct wp_worker_view *w, double doubt);
/* The wait, 0..1e15, whatever the view says. */
double wp_view_wait_us(const struct wp_worker_view *w);
/* The same as prefill work, as if nobody decoded there. */
double wp_view_work_us(const struct wp_worker_view *w);
const struct wp_profile *wp_view_profile(const struct wp_worker_view *w);

/* Fewest in flight; among equals one by ask->draw.  n > 0.  The score is the number in flight. */
size_t wp_pick_least(const struct wp_ask *ask, const struct wp_worker_view w[], size_t n,
                     struct wp_verdict v[]);

/*
 * The worker with the highest hash of (key, worker) among those that have fewer than
 *     ceil(bound (all in flight + 1) / n)
 * in flight; there always is one, for bound >= 1.  n > 0.  The score is 1 - hash / 2^64, the price
 * of a worker that is over the bound is NaN. Sources: Thaler, Ravishankar, "Using name-based
 * mappings to increase hit rates", IEEE/ACM ToN 1998 (rendezvous); Mirrokni, Thorup, Zadimoghaddam,
 * "Consistent Hashing with Bounded Loads", SODA 2018, arXiv:1608.01350 (the bound).
 */
size_t wp_pick_rendezvous(uint64_t key, double bound, const struct wp_worker_view w[], size_t n,
                          struct wp_verdict v[]);

/* A policy that has no state but a copy of its settings. */
struct wp_policy_plain {
    struct wp_policy base;
    struct wp_policy_conf conf;
    uint64_t turn; /* round_robin's */
};
int wp_policy_plain_create(struct wp_policy **out, const struct wp_policy_ops *ops,
                           const struct wp_policy_conf *conf, struct wp_err *err);
void wp_policy_plain_destroy(struct wp_policy *p);
/* ttft_us alone: for policies that do not compare it, of the worker that they chose. */
void wp_predict_chosen(const struct wp_policy_plain *p, const struct wp_ask *ask,
                       const struct wp_worker_view *w, struct wp_verdict *v);

#endif
