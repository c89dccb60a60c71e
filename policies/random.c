/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/random.c - any worker, each as likely.
 */
#include "policies/pick.h"

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    return wp_policy_plain_create(out, &wp_policy_random, conf, err);
}

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    size_t at;

    if (n == 0)
        return WP_NO_WORKER;
    wp_verdicts_clear(v, n);
    at = wp_pick_of((uint32_t)(ask->draw >> 32), n);
    wp_predict_chosen((struct wp_policy_plain *)p, ask, &w[at], &v[at]);
    return at;
}

const struct wp_policy_ops wp_policy_random = {
    .name = "random",
    .summary = "any worker, each as likely",
    .blind = true,
    .create = create,
    .choose = choose,
    .destroy = wp_policy_plain_destroy,
};
