/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/plan.h - what of a prompt is fetched, from whom, for one worker.
 * Sources are the other workers, each with the leading part of the prompt that it has, and the pool, with what parts it has.  Of the
 * workers only a front matters: who has a shorter part than another one, and a link that is no sooner free and no faster, is never
 * the better source.  So the front is found once a decision, and a plan looks at WP_PLAN_PEERS sources at most, whatever the fleet.
 *
 * What fetching m tokens saves is convex in m, since compute is quadratic, and what it costs beyond the wait is linear in each
 * source's run.  So only ends can win: nothing, the end of each source's run, and within a run what the wait hides.
 * A transfer starts when both links are free, and the links are free again at its end; one after the other into one worker.
 *
 * Units: prompt tokens, microseconds from now.  Threads: pure functions.  No allocation.  Cost: O(n) for the front, O(1) for a plan.
 */
#ifndef WP_POLICIES_PLAN_H
#define WP_POLICIES_PLAN_H

#include "policies/policy.h"

enum { WP_PLAN_PEERS = 4 };

struct wp_plan_peer {
    uint32_t worker, to;
    double busy_us, us_per_byte;
};
struct wp_plan_sources {
    struct wp_plan_peer peer[WP_PLAN_PEERS]; /* the longest part first */
    uint32_t n;
    const struct wp_pool *pool;
    double pool_us_per_byte;
    uint32_t most; /* nobody has more of the prompt than this, in one piece from its beginning */
    double latency_us;
};

/* Equals are taken in the order that the draw says, so that pulls spread. */
void wp_plan_sources(struct wp_plan_sources *s, const struct wp_ask *ask, const struct wp_worker_view w[], size_t n);

/* One way to do it: what is fetched, and when that is there. */
struct wp_plan {
    uint32_t n;
    struct wp_fetch fetch[WP_FETCHES];
    uint32_t to;     /* what of the prompt is there then; the hit when n is 0 */
    double done_us;  /* 0 when n is 0 */
    double moved_us; /* for how long it keeps links busy */
};

/* The request on one worker: what is there of it, and what the rest costs. */
struct wp_plan_job {
    uint32_t tokens, hit, block;
    double wait_us;               /* a fetch costs nothing until then */
    double rest_us, a_us, b2_us;  /* computing n tokens before token `to`: rest + n (a + b2 (from + to)), slowed down */
    double bytes_per_token;
    double link_share;            /* what of the time that links are busy counts as lost to others */
};
static inline double wp_plan_cost(const struct wp_plan_job *j, uint32_t to, double done_us, double moved_us)
{
    uint32_t most = j->tokens ? j->tokens - 1 : 0, from = to < most ? to : most;
    double n = (double)(j->tokens - from);

    return (done_us > j->wait_us ? done_us : j->wait_us) + j->link_share * moved_us + j->rest_us + n * (j->a_us + j->b2_us * ((double)from + (double)j->tokens));
}

/*
 * The cheapest plan for worker `to`, if it is cheaper by margin_us than fetching nothing; else its n is 0.  Returns its cost, which
 * is that of fetching nothing then.
 */
double wp_plan_best(const struct wp_plan_sources *s, const struct wp_worker_view *w, const struct wp_plan_job *job, double margin_us,
                    struct wp_plan *best);

#endif
