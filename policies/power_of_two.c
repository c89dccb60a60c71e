/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/power_of_two.c - the one with fewer requests in flight of two drawn at random.
 * Source: Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 2001.
 */
#include "policies/pick.h"

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    return wp_policy_plain_create(out, &wp_policy_power_of_two, conf, err);
}

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    size_t a, b, at;

    if (n == 0)
        return WP_NO_WORKER;
    wp_verdicts_clear(v, n);
    wp_pick_two(ask->draw, n, &a, &b);
    v[a].term[WP_TERM_SCORE] = v[a].price = w[a].in_flight;
    v[b].term[WP_TERM_SCORE] = v[b].price = w[b].in_flight;
    at = w[b].in_flight < w[a].in_flight ? b : a;
    wp_predict_chosen((struct wp_policy_plain *)p, ask, &w[at], &v[at]);
    return at;
}

const struct wp_policy_ops wp_policy_power_of_two = {
    .name = "power_of_two",
    .summary = "the less loaded of two drawn at random",
    .blind = true,
    .create = create,
    .choose = choose,
    .destroy = wp_policy_plain_destroy,
};
