/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/price.c - the worker where this request costs least, in microseconds (docs/policies.md).
 *
 *     price(w) = max(W, F) + correction * slow_down * C(hit, tokens) + room
 *
 *   W     outstanding prefill work there, in time
 *   F     bringing the hit's blocks up from slower tiers; it goes on while the request waits
 *   C     prefill of what is missing (policies/profile.h), beside the decode batch
 *   room  what others lose by what the new blocks evict, per block of 512 tokens newly placed:
 *         room_us for at most room_cap_blocks of them, and a share of the median wait
 *
 * room_us is capped because it is a price per context: uncapped it pins long sessions to busy
 * workers.  The share of the wait is not: it keeps caches from being copied away just when nobody
 * has time to fill them again.  It is one number for the whole fleet: prices per block that differ
 * between workers make long contexts wander.  And it is the median's, not the mean's: one worker
 * with a long queue does not say that the fleet has no time, and must not raise the price of
 * leaving it.
 *
 * Prices within the model's own error of the best are a tie, and go to the one with fewer in flight
 * of two drawn at random: many requests at once, or many routers, do not all take the same worker.
 * Source: the laboratory's reference policy with its price of room capped; what was measured for
 * these defaults is in docs/policies.md.
 */
#include "policies/pick.h"

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

static double room_us(const struct wp_policy_conf *c, const struct wp_ask *ask,
                      const struct wp_worker_view *w, double fleet_wait)
{
    double blocks = wp_missing_tokens(ask, w, c->doubt) / ROOM_BLOCK;
    double cap = c->room_cap_blocks, charged = cap > 0 && cap < blocks ? cap : blocks;

    return charged * c->room_us / pace(w) + blocks * c->room_wait_share * fleet_wait;
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

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    const struct wp_policy_conf *c = &((struct wp_policy_plain *)p)->conf;
    double fleet_wait = median_wait_us(w, n, v), limit;
    size_t best = 0, n_near = 0;

    if (n == 0)
        return WP_NO_WORKER;
    for (size_t i = 0; i < n; i++) {
        wp_predict(ask, &w[i], c->doubt, &v[i]);
        v[i].term[WP_TERM_ROOM] = room_us(c, ask, &w[i], fleet_wait);
        v[i].term[WP_TERM_SCORE] = NAN;
        v[i].n_fetch = 0;
        v[i].price = v[i].term[WP_TERM_WAIT] + v[i].term[WP_TERM_FETCH] +
                     v[i].term[WP_TERM_COMPUTE] + v[i].term[WP_TERM_ROOM];
        if (v[i].price < v[best].price)
            best = i;
    }
    limit = v[best].price + fmax(c->near_us / pace(&w[best]), c->near_share * v[best].price);
    for (size_t i = 0; i < n; i++)
        n_near += v[i].price <= limit;
    return n_near == 1 ? best : pick_near(ask->draw, limit, n_near, w, n, v);
}

const struct wp_policy_ops wp_policy_price = {
    .name = "price",
    .summary = "least time: wait, fetch and compute what is missing, and the room it takes",
    .create = create,
    .choose = choose,
    .destroy = wp_policy_plain_destroy,
};
