/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/dynamo.c - NVIDIA Dynamo's KV-aware rule: the lowest
 *     weight x blocks to be prefilled + active blocks
 * Blocks to be prefilled: the prompt tokens outstanding there and those of this request that are
 * not cached, in blocks; active ones: different blocks of the requests in flight there, this one's
 * among them.  No time is in it, so a queue counts as much as what decodes. Source: NVIDIA Dynamo,
 * documentation of the KV router ("cost = overlap_score_weight * prefill_blocks + decode_blocks",
 * weight 1).
 */
#include "policies/rules.h"

#include <math.h>

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    return wp_policy_plain_create(out, &wp_policy_dynamo, conf, err);
}

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    struct wp_policy_plain *plain = (struct wp_policy_plain *)p;
    size_t at;

    if (n == 0)
        return WP_NO_WORKER;
    wp_verdicts_clear(v, n);
    for (size_t i = 0; i < n; i++) {
        double block = w[i].block_size ? w[i].block_size : 1;
        double prefill =
            (double)w[i].prefill_tokens + (double)(ask->tokens - wp_rule_cached(ask, &w[i]));
        double active = (double)w[i].active_blocks + (double)w[i].fresh_blocks;

        v[i].price = v[i].term[WP_TERM_SCORE] =
            plain->conf.dynamo_prefill_weight * prefill / block + active;
    }
    at = wp_rule_lowest(ask, v, n);
    wp_predict_chosen(plain, ask, &w[at], &v[at]);
    return at;
}

const struct wp_policy_ops wp_policy_dynamo = {
    .name = "dynamo",
    .summary = "NVIDIA Dynamo's rule: fewest blocks to prefill and active",
    .create = create,
    .choose = choose,
    .destroy = wp_policy_plain_destroy,
};
