/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/llmd.c - llm-d's scorers, added up: the highest
 *     prefix x share of the prompt that is cached
 *   + queue  x (most waiting - waiting) / (most waiting - fewest waiting), 1 when all are alike
 *   + kv     x free share of the KV cache
 * Compared is what each lacks of the highest score that there could be, so that the lowest wins as
 * elsewhere. Source: llm-d (llm-d-inference-scheduler) and the Gateway API inference extension,
 * documentation of the scorers prefix-cache, queue and kv-cache-utilization; weights 2, 1, 1, and
 * in newer guides 3, 2, 2.
 */
#include "policies/rules.h"

#include <math.h>

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    return wp_policy_plain_create(out, &wp_policy_llmd, conf, err);
}

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    struct wp_policy_plain *plain = (struct wp_policy_plain *)p;
    const struct wp_policy_conf *c = &plain->conf;
    uint32_t most = 0, fewest = UINT32_MAX;
    size_t at;

    if (n == 0)
        return WP_NO_WORKER;
    wp_verdicts_clear(v, n);
    for (size_t i = 0; i < n; i++) {
        most = w[i].waiting > most ? w[i].waiting : most;
        fewest = w[i].waiting < fewest ? w[i].waiting : fewest;
    }
    for (size_t i = 0; i < n; i++) {
        double hit = ask->tokens ? (double)wp_rule_cached(ask, &w[i]) / ask->tokens : 0;
        double pinned = w[i].pinned > 0 ? fmin(w[i].pinned, 1) : 0; /* no number is none */
        double queue = most > fewest ? (double)(most - w[i].waiting) / (most - fewest) : 1;

        v[i].price = v[i].term[WP_TERM_SCORE] =
            c->llmd_prefix * (1 - hit) + c->llmd_queue * (1 - queue) + c->llmd_kv * pinned;
    }
    at = wp_rule_lowest(ask, v, n);
    wp_predict_chosen(plain, ask, &w[at], &v[at]);
    return at;
}

const struct wp_policy_ops wp_policy_llmd = {
    .name = "llmd",
    .summary = "llm-d's scorers: cached share, queue and free cache, weighted",
    .create = create,
    .choose = choose,
    .destroy = wp_policy_plain_destroy,
};
