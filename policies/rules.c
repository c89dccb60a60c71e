/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/rules.h"

#include <math.h>

size_t wp_rule_lowest(const struct wp_ask *ask, const struct wp_verdict v[], size_t n)
{
    double least = INFINITY;
    size_t equals = 0, nth, i;

    for (i = 0; i < n; i++) {
        if (v[i].price < least) {
            least = v[i].price;
            equals = 0;
        }
        equals += v[i].price == least;
    }
    if (equals == 0) /* all are infinite */
        return wp_pick_of((uint32_t)ask->draw, n);
    nth = wp_pick_of((uint32_t)ask->draw, equals);
    for (i = 0; v[i].price != least || nth-- > 0; i++)
        ;
    return i;
}

double wp_rule_hash(uint64_t block, uint64_t worker)
{
    uint64_t z = block + 0x9E3779B97F4A7C15u * (worker + 1);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

uint32_t wp_rule_cached(const struct wp_ask *ask, const struct wp_worker_view *w)
{
    uint32_t most = ask->tokens ? ask->tokens - 1 : 0;

    return w->index_tokens < most ? w->index_tokens : most;
}

size_t wp_rule_source(const struct wp_worker_view w[], size_t n, size_t at)
{
    size_t best = WP_NO_WORKER;

    for (size_t i = 0; i < n; i++) {
        if (i == at || !(w[i].link_bytes_per_s > 0) || w[i].has_tokens <= w[at].index_tokens)
            continue;
        if (best == WP_NO_WORKER || w[i].has_tokens > w[best].has_tokens ||
            (w[i].has_tokens == w[best].has_tokens && w[i].out_busy_us < w[best].out_busy_us))
            best = i;
    }
    return w[at].link_bytes_per_s > 0 ? best : WP_NO_WORKER;
}

static void add_fetch(struct wp_verdict *v, uint32_t source, uint32_t from, uint32_t to)
{
    if (from < to && v->n_fetch < WP_FETCHES)
        v->fetch[v->n_fetch++] = (struct wp_fetch){source, from, to};
}

void wp_rule_pull(const struct wp_ask *ask, const struct wp_worker_view w[], size_t n, size_t at,
                  struct wp_verdict *v)
{
    size_t source = wp_rule_source(w, n, at);
    uint32_t have = w[at].index_tokens;

    v->n_fetch = 0;
    if (source != WP_NO_WORKER) {
        add_fetch(v, (uint32_t)source, have, w[source].has_tokens);
        have = w[source].has_tokens;
    }
    for (size_t i = 0; ask->pool && i < ask->pool->n; i++) {
        const struct wp_span *s = &ask->pool->span[i];

        if (s->from > have || s->to <= have)
            continue;
        add_fetch(v, WP_POOL, have, s->to);
        have = s->to;
    }
}
