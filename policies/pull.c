/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/pull.c - policy.pull: another policy chooses the worker, then every block of the prompt
 * that any peer or the pool has, and it has not, is fetched, whatever that costs.  The laboratory's
 * rr_pull, least_alwaysfetch and dynamo_w1_pull: how caches that are shared without a price behave.
 */
#include "policies/rules.h"

#include "base/mem.h"

struct pull {
    struct wp_policy base;
    struct wp_policy_ops ops; /* the inner one's name, our functions */
    struct wp_policy *inner;
};

static size_t choose(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view w[],
                     size_t n, struct wp_verdict v[])
{
    struct wp_policy *inner = ((struct pull *)p)->inner;
    size_t at = inner->ops->choose(inner, ask, w, n, v);

    if (at != WP_NO_WORKER)
        wp_rule_pull(ask, w, n, at, &v[at]);
    return at;
}

static void placed(struct wp_policy *p, const struct wp_ask *ask, const struct wp_worker_view *w)
{
    struct wp_policy *inner = ((struct pull *)p)->inner;

    if (inner->ops->placed)
        inner->ops->placed(inner, ask, w);
}

static void destroy(struct wp_policy *p)
{
    struct wp_policy *inner = ((struct pull *)p)->inner;

    inner->ops->destroy(inner);
    wp_free(p);
}

int wp_pull_create(struct wp_policy **out, struct wp_policy *inner, struct wp_err *err)
{
    struct pull *p = wp_calloc(1, sizeof *p);

    if (!p) {
        inner->ops->destroy(inner);
        return wp_fail(err, WP_ENOMEM, "policy.pull: out of memory");
    }
    p->ops = (struct wp_policy_ops){
        .name = inner->ops->name,
        .summary = inner->ops->summary,
        .choose = choose,
        .placed = placed,
        .destroy = destroy,
    };
    p->base.ops = &p->ops;
    p->inner = inner;
    *out = &p->base;
    return 0;
}
