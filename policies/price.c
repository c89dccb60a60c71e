/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/price.c - the worker where this request costs least, in microseconds (docs/policies.md).
 *
 *     price(w) = min over plans of [max(W, F) + correction * slow_down * C(there, tokens) + link] +
 * room + pin
 *
 *   W     outstanding prefill work there, in time
 *   F     bringing the hit's blocks up from slower tiers, and what the plan fetches from others
 * (policies/plan.h); both go on while the request waits C     prefill of what is missing then
 * (policies/profile.h), beside the decode batch link  what others lose by the links that the plan
 * keeps busy: link_share of that time room  what others lose by what the new blocks evict.  Where
 * the price of a block tunes itself (policies/room.h) it is that, for each block, and a small one
 * for at most move_blocks of them, so that moves gain something.  Elsewhere room_us for at most
 *         room_cap_blocks of them, and a share of the median wait
 *   pin   what others lose by what stays in the fastest tier while it runs, when that tier is short
 * and a lost second delays many
 *
 * room_us and move_us are capped because they are a price per context: uncapped they pin long
 * sessions to busy workers.  What a block costs is one number for the whole fleet: prices per block
 * that differ between workers make long contexts wander.  The share of the wait is the median's,
 * not the mean's: one worker with a long queue does not say that the fleet has no time, and must
 * not raise the price of leaving it.
 *
 * Prices within the model's own error of the best are a tie, and go to the one with fewer in flight
 * of two drawn at random: many requests at once, or many routers, do not all take the same worker.
 * Source: the laboratory's reference policy; what was measured for these defaults is in
 * docs/policies.md and docs/bench-policy.md.
 */
#include "policies/pick.h"
#include "policies/plan.h"

#include <math.h>

enum { ROOM_BLOCK = 512 }; /* tokens; the unit of the room settings */

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    return wp_policy_plain_create(out, &wp_policy_price, conf, err);
}

static double pace(const struct wp_worker_view *w)
{
    double speed = wp_view_profile(w)->speed;

    return speed > 0 ? speed : 1;
}

/*
 * The k-th smallest of the n prices, which are put in another order.
 * Source: Hoare, "Algorithm 65: FIND", CACM 1961, in the form of Wirth's book of 1976.
 */
static double nth_price(struct wp_verdict v[], ptrdiff_t n, ptrdiff_t k)
{
    ptrdiff_t low = 0, high = n - 1;

    while (low < high) {
        double pivot = v[k].price;
        ptrdiff_t i = low, j = high;

        while (i <= j) {
            while (v[i].price < pivot)
                i++;
            while (v[j].price > pivot)
                j--;
            if (i <= j) {
                double swap = v[i].price;

                v[i++].price = v[j].price;
                v[j--].price = swap;
            }
        }
        if (j < k)
            low = i;
        if (k < i)
            high = j;
    }
    return v[k].price;
}

/* The lower median of the waits that are known; v is where they are sorted out. */
static double median_wait_us(const struct wp_worker_view w[], size_t n, struct wp_verdict v[])
{
    size_t known = 0;

    for (size_t i = 0; i < n; i++)
        if (isfinite(w[i].wait_us))
            v[known++].price = wp_view_wait_us(&w[i]);
    return known ? nth_price(v, (ptrdiff_t)known, (ptrdiff_t)(known - 1) / 2) : 0;
}

/* What all prices of a decision share. */
struct at_hand {
    const struct wp_policy_conf *c;
    const struct wp_ask *ask;
    double fleet_wait, delays, pinned; /* pinned: the mean of its squares */
    struct wp_cost cost;
    struct wp_plan_sources sources;
};

/* What others lose by what the new blocks evict. */
static double room_us(const struct at_hand *h, double missing, double rate)
{
    const struct wp_policy_conf *c = h->c;
    double blocks = missing / ROOM_BLOCK, cap = c->room_cap_blocks, charged;

    if (c->room_tuned > 0 && h->ask->room.tuned) {
        charged = blocks < c->move_blocks ? blocks : c->move_blocks;
        return blocks * wp_within(h->ask->room.block_us, 0, 1e12) +
               charged * c->move_us * h->pinned / rate;
    }
    charged = cap > 0 && cap < blocks ? cap : blocks;
    return charged * c->room_us / rate + blocks * c->room_wait_share * h->fleet_wait;
}

/* What others lose by what stays in the fastest tier until the request ends. */
static double pin_us(const struct at_hand *h, const struct wp_worker_view *w, double rate)
{
    double pinned = wp_within(w->pinned, 0, 1);

    return h->c->pin_us / rate * h->delays * pinned * pinned * w->fresh_blocks * w->block_size /
           ROOM_BLOCK;
}

static void add_up(struct wp_verdict *v)
{
    v->price = v->term[WP_TERM_WAIT] + v->term[WP_TERM_FETCH] + v->term[WP_TERM_COMPUTE] +
               v->term[WP_TERM_LINK] + v->term[WP_TERM_ROOM] + v->term[WP_TERM_PIN];
    v->ttft_us =
        v->term[WP_TERM_WAIT] + v->term[WP_TERM_FETCH] + v->term[WP_TERM_COMPUTE] + v->step_us;
}

/* Without any fetch from others. */
static void alone(struct at_hand *h, const struct wp_worker_view *w, struct wp_verdict *v)
{
    const struct wp_profile *p = wp_view_profile(w);
    double tokens = h->ask->tokens, rate = p->speed > 0 ? p->speed : 1;
    struct wp_parts parts;

    wp_cost_of(&h->cost, p);
    wp_parts_of(&h->cost, h->ask, w, h->c->doubt, &parts);
    v->term[WP_TERM_WAIT] = parts.wait_us;
    v->term[WP_TERM_FETCH] = wp_within(parts.up_us - parts.wait_us, 0, 1e18);
    v->term[WP_TERM_COMPUTE] = wp_within(
        parts.slow *
            (h->cost.t_c + parts.missing * (h->cost.a + h->cost.b2 * (2 * tokens - parts.missing))),
        0, 1e24);
    v->term[WP_TERM_ROOM] = room_us(h, parts.missing, rate);
    v->term[WP_TERM_PIN] = h->delays > 0 ? pin_us(h, w, rate) : 0;
    v->term[WP_TERM_LINK] = 0;
    v->term[WP_TERM_SCORE] = NAN;
    v->step_us = wp_step_after(p, w, &parts);
    v->n_fetch = 0;
    add_up(v);
}

/* The best of what can be fetched there, if it is better than nothing. */
static void with_fetch(struct at_hand *h, const struct wp_worker_view *w, struct wp_verdict *v)
{
    const struct wp_profile *p = wp_view_profile(w);
    struct wp_plan_job job;
    struct wp_parts parts;
    struct wp_plan plan;

    wp_cost_of(&h->cost, p);
    wp_parts_of(&h->cost, h->ask, w, h->c->doubt, &parts);
    job = (struct wp_plan_job){
        .tokens = h->ask->tokens,
        .hit = w->hit_tokens,
        .block = w->block_size,
        .wait_us = fmax(parts.wait_us, parts.up_us), /* what is brought up comes at the same time */
        .rest_us = parts.slow * h->cost.t_c,
        .a_us = parts.slow * h->cost.a,
        .b2_us = parts.slow * h->cost.b2,
        .bytes_per_token = (double)p->kv_bytes_per_token,
        .link_share = h->c->link_share,
    };
    (void)wp_plan_best(&h->sources, w, &job, h->c->fetch_margin_us, &plan);
    if (plan.n == 0)
        return;
    v->term[WP_TERM_FETCH] = wp_within(fmax(plan.done_us, parts.up_us) - parts.wait_us, 0, 1e18);
    v->term[WP_TERM_COMPUTE] = wp_within(wp_plan_cost(&job, plan.to, 0, 0) - job.wait_us, 0, 1e24);
    v->term[WP_TERM_LINK] = wp_within(job.link_share * plan.moved_us, 0, 1e18);
    v->n_fetch = plan.n;
    for (uint32_t i = 0; i < plan.n; i++)
        v->fetch[i] = plan.fetch[i];
    add_up(v);
}

/* No plan can make it cheaper than this. */
static double at_least(struct at_hand *h, const struct wp_worker_view *w,
                       const struct wp_verdict *v)
{
    double all = h->ask->tokens,
           missing = all - (h->sources.most < all ? h->sources.most : all - 1),
           had = all - w->hit_tokens;
    double full = h->cost.a * had + h->cost.b2 * had * (2 * all - had);
    double rest = h->cost.a * missing + h->cost.b2 * missing * (2 * all - missing);

    if (!(full > 0))
        return v->price;
    return v->price - v->term[WP_TERM_COMPUTE] * (1 - rest / full);
}

/*
 * The less loaded of two of the workers whose price is at most limit; there are n_near of them.
 * Equally loaded: the first drawn, and not the cheaper one.  A tie that goes by the price sends
 * everything that is short to whoever was sent something like it before, and leaves the rest idle.
 */
static size_t pick_near(uint64_t draw, double limit, size_t n_near, const struct wp_worker_view w[],
                        size_t n, const struct wp_verdict v[])
{
    size_t nth[2], at[2] = {0, 0}, seen = 0;

    wp_pick_two(draw, n_near, &nth[0], &nth[1]);
    for (size_t i = 0; i < n; i++) {
        if (v[i].price > limit)
            continue;
        for (int k = 0; k < 2; k++)
            if (seen == nth[k])
                at[k] = i;
        seen++;
    }
    return w[at[1]].in_flight < w[at[0]].in_flight ? at[1] : at[0];
}

static double near(const struct wp_policy_conf *c, double best, double rate)
{
    double within = c->near_us / rate, share = c->near_share * best;

    return best + (within > share ? within : share);
}

/* What was learnt of its costs may be wrong by so much: to go by less is to send everything to
 * whoever was learnt a little faster. */
static double unsure_us(const struct wp_worker_view *w, const struct wp_verdict *v)
{
    return v->term[WP_TERM_COMPUTE] *
           (w->error < 0.1 ? w->error : 0.1); /* NaN: no less than what is known of nobody */
}

/* Prices with what can be fetched, of those that it may make one of the best. */
static size_t fetch(struct at_hand *h, const struct wp_worker_view w[], size_t n, size_t best,
                    struct wp_verdict v[])
{
    wp_plan_sources(&h->sources, h->ask, w, n);
    for (size_t i = 0; i < n && h->sources.most; i++) {
        if (w[i].hit_tokens >= h->sources.most || !(w[i].link_bytes_per_s > 0) || w[i].doubtful)
            continue;
        wp_cost_of(&h->cost, wp_view_profile(&w[i]));
        if (at_least(h, &w[i], &v[i]) > near(h->c, v[best].price, pace(&w[best])))
            continue;
        with_fetch(h, &w[i], &v[i]);
        if (v[i].price < v[best].price)
            best = i;
    }
    return best;
}

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    struct at_hand h = {.c = &((struct wp_policy_plain *)p)->conf, .ask = ask};
    size_t best = 0, n_near = 0;
    double limit;

    if (n == 0)
        return WP_NO_WORKER;
    if (!(ask->room.tuned && h.c->room_tuned > 0))
        h.fleet_wait = median_wait_us(w, n, v);
    h.delays = ask->room.tuned && !ask->queued ? wp_within(ask->room.delays, 0, 5) : 0;
    for (size_t i = 0; i < n; i++)
        h.pinned += wp_within(w[i].pinned, 0, 1) * wp_within(w[i].pinned, 0, 1) / (double)n;
    for (size_t i = 0; i < n; i++) {
        alone(&h, &w[i], &v[i]);
        if (v[i].price < v[best].price)
            best = i;
    }
    if (h.c->fetch > 0)
        best = fetch(&h, w, n, best, v);
    limit = near(h.c, v[best].price, pace(&w[best]));
    limit = wp_within(limit, v[best].price + unsure_us(&w[best], &v[best]), INFINITY);
    for (size_t i = 0; i < n; i++)
        n_near += v[i].price <= limit;
    return n_near == 1 ? best : pick_near(ask->draw, limit, n_near, w, n, v);
}

const struct wp_policy_ops wp_policy_price = {
    .name = "price",
    .summary = "least time: wait, fetch and compute what is missing, and the room it takes",
    .holds = true,
    .prices_room = true,
    .create = create,
    .choose = choose,
    .destroy = wp_policy_plain_destroy,
};
