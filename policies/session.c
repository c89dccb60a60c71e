/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/session.c - the worker that the session key's hash names, or the next one when that has
 * more than its share in flight (policies/pick.h has the rule and its sources): a client that sends
 * the same `user` with all it asks does not pin the fleet to one worker.
 * Without a session key the prompt's first blocks stand in, without a prompt the least loaded.
 */
#include "policies/pick.h"

static int create(struct wp_policy **out, const struct wp_policy_conf *conf, struct wp_err *err)
{
    return wp_policy_plain_create(out, &wp_policy_session, conf, err);
}

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    struct wp_policy_plain *plain = (struct wp_policy_plain *)p;
    uint64_t key = ask->session_key ? ask->session_key : ask->prefix_key;
    size_t at;

    if (n == 0)
        return WP_NO_WORKER;
    wp_verdicts_clear(v, n);
    at = key ? wp_pick_rendezvous(key, plain->conf.bound, w, n, v) : wp_pick_least(ask, w, n, v);
    wp_predict_chosen(plain, ask, &w[at], &v[at]);
    return at;
}

const struct wp_policy_ops wp_policy_session = {
    .name = "session",
    .summary = "hash of the session key, with a bound on load",
    .blind = true,
    .create = create,
    .choose = choose,
    .destroy = wp_policy_plain_destroy,
};
