/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/prefix_hash.c - the worker that the hash of the prompt's first blocks names, or the next
 * one when that has more than its share in flight (policies/pick.h has the rule and its sources).
 * It needs no index, and replicas of the router agree without talking.  Without a prompt: the least
 * loaded.
 */
#include "policies/pick.h"

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    return wp_policy_plain_create(out, &wp_policy_prefix_hash, conf, err);
}

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    struct wp_policy_plain *plain = (struct wp_policy_plain *)p;
    size_t at;

    if (n == 0)
        return WP_NO_WORKER;
    wp_verdicts_clear(v, n);
    at = ask->prefix_key ? wp_pick_rendezvous(ask->prefix_key, plain->conf.bound, w, n, v)
                         : wp_pick_least(ask, w, n, v);
    wp_predict_chosen(plain, ask, &w[at], &v[at]);
    return at;
}

const struct wp_policy_ops wp_policy_prefix_hash = {
    .name = "prefix_hash",
    .summary = "hash of the first blocks of the prompt, with a bound on load",
    .blind = true,
    .create = create,
    .choose = choose,
    .destroy = wp_policy_plain_destroy,
};
