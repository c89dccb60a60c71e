/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/pick.h"

#include "base/mem.h"

#include <math.h>

static const double longest_us =
    1e15; /* thirty years: sums of a few stay exact enough and finite */

size_t wp_pick_of(uint32_t bits, size_t n)
{
    return (size_t)(((uint64_t)bits * n) >> 32);
}

void wp_pick_two(uint64_t draw, size_t n, size_t *a, size_t *b)
{
    *a = *b = wp_pick_of((uint32_t)draw, n);
    if (n < 2)
        return;
    *b = wp_pick_of((uint32_t)(draw >> 32), n - 1);
    if (*b >= *a)
        (*b)++;
}

void wp_verdicts_clear(struct wp_verdict v[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (int t = 0; t < WP_TERMS; t++)
            v[i].term[t] = NAN;
        v[i].price = v[i].step_us = v[i].ttft_us = NAN;
        v[i].n_fetch = 0;
    }
}

const struct wp_profile *wp_view_profile(const struct wp_worker_view *w)
{
    return w->profile ? w->profile : wp_profile_default();
}

double wp_view_wait_us(const struct wp_worker_view *w)
{
    if (isnan(w->wait_us))
        return longest_us; /* nobody knows: what is known is better */
    return wp_within(w->wait_us, 0, longest_us);
}

double wp_view_work_us(const struct wp_worker_view *w)
{
    return wp_view_wait_us(w) / wp_slow_down(wp_view_profile(w), w->decoding, (double)w->kv_tokens);
}

/* An engine always computes the last token, so a hit is never the whole prompt. */
static uint32_t usable_hit(const struct wp_ask *ask, const struct wp_worker_view *w)
{
    uint32_t most = ask->tokens ? ask->tokens - 1 : 0;

    return w->hit_tokens < most ? w->hit_tokens : most;
}

double wp_missing_tokens(const struct wp_ask *ask, const struct wp_worker_view *w, double doubt)
{
    uint32_t hit = usable_hit(ask, w);
    uint32_t doubtful = w->doubtful < hit ? w->doubtful : hit;

    return (double)(ask->tokens - hit) + doubtful * (1 - doubt);
}

void wp_cost_of(struct wp_cost *c, const struct wp_profile *p)
{
    double pace = p->speed > 0 ? 1 / p->speed : 1, chunk = p->a_us * p->budget;

    if (c->of == p)
        return;
    c->of = p;
    c->t_c = wp_within(p->t_c_us * pace, 0, 1e18);
    c->a = wp_within(p->a_us * pace, 0, 1e18);
    c->b2 = wp_within(p->b_us / 2 * pace, 0, 1e18);
    c->tov = wp_within(p->tov_us, 0, 1e18);
    c->e = wp_within(p->e_us, 0, 1e18);
    c->d = wp_within(p->d_us, 0, 1e18);
    c->per_chunk = chunk > 0 ? 1 / chunk : 0;
    for (uint32_t t = 0; t < WP_TIERS; t++) {
        uint32_t one[WP_TIERS] = {0};

        one[t] = 1;
        c->up[t] = wp_fetch_us(p, one, WP_TIERS);
    }
}

/* What of a hit lies in slower tiers; what is beyond the usable hit is not brought up. */
static double up_us(const struct wp_cost *c, const struct wp_worker_view *w, uint32_t hit)
{
    double all = 0, sum = w->hit_tier[0];

    if (w->hit_tier[0] >= hit)
        return 0;
    for (int t = 1; t < WP_TIERS; t++)
        if (w->hit_tier[t]) {
            all += c->up[t] * w->hit_tier[t];
            sum += w->hit_tier[t];
        }
    return wp_within(sum > hit ? all * (hit / sum) : all, 0, 1e18);
}

void wp_parts_of(const struct wp_cost *c, const struct wp_ask *ask, const struct wp_worker_view *w,
                 double doubt, struct wp_parts *parts)
{
    double fix = w->correction > 0 ? w->correction : 1; /* NaN too */
    double beside = (c->tov + c->e * w->decoding + c->d * (double)w->kv_tokens) * c->per_chunk;

    parts->fix = wp_within(fix, 0.05, 20); /* as far as the router learns */
    parts->wait_us = wp_view_wait_us(w);
    parts->hit = usable_hit(ask, w);
    parts->missing = wp_missing_tokens(ask, w, doubt);
    parts->slow = parts->fix * (1 + wp_within(beside, 0, 1e6));
    parts->up_us = up_us(c, w, parts->hit);
}

/*
 * Behind others its steps are theirs, too, and full.  It is the same on equal workers, and a price
 * with it would only say that nothing is gained by what an idle engine has of a short prompt.
 */
double wp_step_after(const struct wp_profile *p, const struct wp_worker_view *w,
                     const struct wp_parts *parts)
{
    double kv = (double)w->kv_tokens;
    double alone;

    if (parts->wait_us > 1e9)
        return 0;
    alone = wp_last_step_us(p, (uint64_t)parts->missing, w->decoding, kv);
    if (w->decoding) /* one runs already, and is half through */
        alone += wp_step_us(p, 0, 0, w->decoding, kv) / 2;
    return wp_within(parts->fix * alone - parts->wait_us, 0, 1e18);
}

void wp_predict(const struct wp_ask *ask, const struct wp_worker_view *w, double doubt,
                struct wp_verdict *v)
{
    const struct wp_profile *p = wp_view_profile(w);
    struct wp_cost cost = {.of = NULL};
    struct wp_parts parts;

    wp_cost_of(&cost, p);
    wp_parts_of(&cost, ask, w, doubt, &parts);
    v->term[WP_TERM_WAIT] = parts.wait_us;
    v->term[WP_TERM_FETCH] = wp_within(parts.up_us - parts.wait_us, 0, 1e18);
    v->term[WP_TERM_COMPUTE] = wp_within(
        parts.slow *
            (cost.t_c + parts.missing * (cost.a + cost.b2 * (2.0 * ask->tokens - parts.missing))),
        0, 1e24);
    v->step_us = wp_step_after(p, w, &parts);
    v->ttft_us = parts.wait_us + v->term[WP_TERM_FETCH] + v->term[WP_TERM_COMPUTE] + v->step_us;
}

size_t wp_pick_least(const struct wp_ask *ask, const struct wp_worker_view w[], size_t n,
                     struct wp_verdict v[])
{
    uint32_t least = UINT32_MAX;
    size_t equals = 0, nth, i;

    for (i = 0; i < n; i++) {
        v[i].term[WP_TERM_SCORE] = v[i].price = w[i].in_flight;
        if (w[i].in_flight < least) {
            least = w[i].in_flight;
            equals = 0;
        }
        equals += w[i].in_flight == least;
    }
    nth = wp_pick_of((uint32_t)ask->draw, equals);
    for (i = 0; w[i].in_flight != least || nth-- > 0; i++)
        ;
    return i;
}

/* Both words matter in every bit.  Source: the finishing of splitmix64, as in base/rng.h. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = a + 0x9E3779B97F4A7C15u * (b + 1);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    z = (z ^ b ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return z ^ (z >> 31);
}

size_t wp_pick_rendezvous(uint64_t key, double bound, const struct wp_worker_view w[], size_t n,
                          struct wp_verdict v[])
{
    double sum = 1, room;
    uint64_t best_hash = 0;
    size_t best = WP_NO_WORKER;

    for (size_t i = 0; i < n; i++)
        sum += w[i].in_flight;
    room = ceil(fmax(bound, 1) * sum / (double)n);
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = mix(key, w[i].key);

        v[i].term[WP_TERM_SCORE] = 1 - (double)(hash >> 11) * 0x1p-53;
        if (w[i].in_flight >= room)
            continue;
        v[i].price = v[i].term[WP_TERM_SCORE];
        if (best == WP_NO_WORKER || hash > best_hash) {
            best = i;
            best_hash = hash;
        }
    }
    return best;
}

int wp_policy_plain_create(struct wp_policy **out, const struct wp_policy_ops *ops,
                           const struct wp_policy_conf *conf, struct wp_err *err)
{
    struct wp_policy_plain *p = wp_calloc(1, sizeof *p);

    if (!p)
        return wp_fail(err, WP_ENOMEM, "policy %s: out of memory", ops->name);
    p->base.ops = ops;
    p->conf = *conf;
    p->turn = conf->seed;
    *out = &p->base;
    return 0;
}

void wp_policy_plain_destroy(struct wp_policy *p)
{
    wp_free(p);
}

void wp_predict_chosen(const struct wp_policy_plain *p, const struct wp_ask *ask,
                       const struct wp_worker_view *w, struct wp_verdict *v)
{
    struct wp_verdict full;

    wp_predict(ask, w, p->conf.doubt, &full);
    v->ttft_us = full.ttft_us;
}
