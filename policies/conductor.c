/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/conductor.c - Mooncake's conductor: the lowest time to the first token, where for each worker
 *     queue + prefill(own match)                when the best match is at most `ratio` times its own
 *     queue + transfer + prefill(best match)    otherwise: the best match's blocks are moved there
 * The queue is prefill work, as if nobody decoded there, and the transfer is reckoned at the link's nominal bandwidth, whatever
 * else is on it.
 * Source: Qin et al., "Mooncake: Trading More Storage for Less Computation", FAST '25, algorithm 1
 * (kvcache_balancing_threshold), without its prefill/decode split and its early rejection.
 */
#include "policies/rules.h"

#include <math.h>

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    return wp_policy_plain_create(out, &wp_policy_conductor, conf, err);
}

static void reckon(const struct wp_policy_conf *c, const struct wp_ask *ask,
                   const struct wp_worker_view w[], size_t n, size_t i, struct wp_verdict *v)
{
    const struct wp_profile *p = wp_view_profile(&w[i]);
    uint32_t own = wp_rule_cached(ask, &w[i]), most = ask->tokens ? ask->tokens - 1 : 0, hit = own;
    size_t source = wp_rule_source(w, n, i);

    v->term[WP_TERM_WAIT] = wp_view_wait_us(&w[i]);
    v->term[WP_TERM_FETCH] = 0;
    if (source != WP_NO_WORKER && (double)w[source].has_tokens > c->conductor_ratio * own &&
        w[source].has_tokens > w[i].index_tokens) {
        double rate = fmin(w[i].link_bytes_per_s, w[source].link_bytes_per_s);
        uint32_t to = w[source].has_tokens;

        v->term[WP_TERM_FETCH] = wp_within(
            ask->latency_us + 1e6 * (double)(to - own) * (double)p->kv_bytes_per_token / rate, 0,
            1e18);
        v->fetch[0] = (struct wp_fetch){(uint32_t)source, w[i].index_tokens, to};
        v->n_fetch = 1;
        hit = to < most ? to : most;
    }
    v->term[WP_TERM_COMPUTE] = wp_prefill_us(p, hit, ask->tokens);
    v->price = wp_view_work_us(&w[i]) + v->term[WP_TERM_FETCH] + v->term[WP_TERM_COMPUTE];
    v->ttft_us = v->term[WP_TERM_WAIT] + v->term[WP_TERM_FETCH] + v->term[WP_TERM_COMPUTE];
}

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    if (n == 0)
        return WP_NO_WORKER;
    wp_verdicts_clear(v, n);
    for (size_t i = 0; i < n; i++)
        reckon(&((struct wp_policy_plain *)p)->conf, ask, w, n, i, &v[i]);
    return wp_rule_lowest(ask, v, n);
}

const struct wp_policy_ops wp_policy_conductor = {
    .name = "conductor",
    .summary = "Mooncake's conductor: least queue and prefill, long matches transferred",
    .create = create,
    .choose = choose,
    .destroy = wp_policy_plain_destroy,
};
