/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/least_work.c - the least prefill work sent there and not done, in time, as if nobody decoded
 * there, and whatever is cached where. What a load account in place of a count of requests is worth, and, with
 * policy.pull, the laboratory's least_alwaysfetch.
 */
#include "policies/rules.h"

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    return wp_policy_plain_create(out, &wp_policy_least_work, conf, err);
}

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    size_t at;

    if (n == 0)
        return WP_NO_WORKER;
    wp_verdicts_clear(v, n);
    for (size_t i = 0; i < n; i++)
        v[i].price = v[i].term[WP_TERM_SCORE] = wp_view_work_us(&w[i]);
    at = wp_rule_lowest(ask, v, n);
    wp_predict_chosen((struct wp_policy_plain *)p, ask, &w[at], &v[at]);
    return at;
}

const struct wp_policy_ops wp_policy_least_work = {
    .name = "least_work",
    .summary = "least prefill work waiting, in time",
    .create = create,
    .choose = choose,
    .destroy = wp_policy_plain_destroy,
};
