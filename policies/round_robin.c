/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/round_robin.c - each worker in turn.
 * The turn counts decisions, not workers: when workers come and go it stays fair on the whole.
 */
#include "policies/pick.h"

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    return wp_policy_plain_create(out, &wp_policy_round_robin, conf, err);
}

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    struct wp_policy_plain *plain = (struct wp_policy_plain *)p;
    size_t at;

    if (n == 0)
        return WP_NO_WORKER;
    wp_verdicts_clear(v, n);
    at = (size_t)(plain->turn++ % n);
    for (size_t i = 0; i < n; i++) /* how far from its turn */
        v[i].term[WP_TERM_SCORE] = v[i].price = (double)((i + n - at) % n);
    wp_predict_chosen(plain, ask, &w[at], &v[at]);
    return at;
}

const struct wp_policy_ops wp_policy_round_robin = {
    .name = "round_robin",
    .summary = "each worker in turn",
    .blind = true,
    .create = create,
    .choose = choose,
    .destroy = wp_policy_plain_destroy,
};
