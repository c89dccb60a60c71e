/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/plan.h"

#include <math.h>

static const double never_us = 1e15;

/* What a byte takes at that rate; without end where there is no link. */
static double us_per_byte(double bytes_per_s)
{
    return bytes_per_s > 0 ? 1e6 / bytes_per_s : never_us;
}

static double busy(double us)
{
    if (!(us > 0))
        return 0; /* NaN too */
    return us < never_us ? us : never_us;
}

static bool no_better(const struct wp_plan_peer *a, const struct wp_plan_peer *than)
{
    return a->to <= than->to && a->busy_us >= than->busy_us && a->us_per_byte >= than->us_per_byte;
}

static void into_front(struct wp_plan_sources *s, const struct wp_plan_peer *p)
{
    uint32_t kept = 0, at;

    for (uint32_t i = 0; i < s->n; i++)
        if (no_better(p, &s->peer[i]))
            return;
    for (uint32_t i = 0; i < s->n; i++)
        if (!no_better(&s->peer[i], p))
            s->peer[kept++] = s->peer[i];
    s->n = kept;
    if (s->n == WP_PLAN_PEERS) {
        if (p->to <= s->peer[s->n - 1].to)
            return;
        s->n--;
    }
    for (at = s->n++; at > 0 && s->peer[at - 1].to < p->to; at--)
        s->peer[at] = s->peer[at - 1];
    s->peer[at] = *p;
}

/* How far the pool has the prompt from there on, without a hole; at where it has nothing. */
static uint32_t pool_to(const struct wp_pool *pool, uint32_t at)
{
    for (size_t i = 0; pool && i < pool->n && pool->span[i].from <= at; i++)
        if (pool->span[i].to > at)
            return pool->span[i].to;
    return at;
}

void wp_plan_sources(struct wp_plan_sources *s, const struct wp_ask *ask,
                     const struct wp_worker_view w[], size_t n)
{
    size_t first = n ? (size_t)((ask->draw >> 32) * n >> 32) : 0;

    s->n = 0;
    s->pool = ask->pool && ask->pool->bytes_per_s > 0 ? ask->pool : NULL;
    s->pool_us_per_byte = s->pool ? us_per_byte(s->pool->bytes_per_s) : never_us;
    s->latency_us = busy(ask->latency_us);
    for (size_t k = 0; k < n; k++) {
        size_t i = first + k < n ? first + k : first + k - n;

        if (w[i].has_tokens && w[i].link_bytes_per_s > 0)
            into_front(s, &(struct wp_plan_peer){
                              (uint32_t)i,
                              w[i].has_tokens < ask->tokens ? w[i].has_tokens : ask->tokens,
                              busy(w[i].out_busy_us), us_per_byte(w[i].link_bytes_per_s)});
    }
    s->most = s->n ? s->peer[0].to : 0;
    s->most = pool_to(s->pool, s->most);
}

/* A plan as it grows, transfer by transfer. */
struct draft {
    const struct wp_plan_sources *s;
    const struct wp_plan_job *job;
    double in_us, in_us_per_byte; /* the worker's own link */
    struct wp_plan plan;
    double best_us;
    struct wp_plan *best;
};

static void judge(struct draft *d, const struct wp_plan *p)
{
    double us = wp_plan_cost(d->job, p->to, p->done_us, p->moved_us);

    if (us < d->best_us) {
        d->best_us = us;
        *d->best = *p;
    }
}

/* The first blocks of a transfer that starts then. */
static void judge_part(struct draft *d, uint32_t blocks, uint32_t to, double start,
                       double per_token)
{
    struct wp_plan part = d->plan;
    uint32_t tokens = blocks * d->job->block;

    if (tokens == 0 || tokens >= to - part.to)
        return;
    part.fetch[part.n++].to = part.to + tokens;
    part.to += tokens;
    part.moved_us += per_token * tokens;
    part.done_us = start + per_token * tokens + d->s->latency_us;
    judge(d, &part);
}

/* One more transfer.  What of it the wait hides is a plan, too: whole blocks, so either less or
 * more of it. */
static void add(struct draft *d, uint32_t source, uint32_t to, double source_us,
                double us_per_byte_there)
{
    const struct wp_plan_job *j = d->job;
    struct wp_plan *p = &d->plan;
    double per_token =
        j->bytes_per_token *
        (us_per_byte_there > d->in_us_per_byte ? us_per_byte_there : d->in_us_per_byte);
    double start = source_us > d->in_us ? source_us : d->in_us;
    double end = start + per_token * (to - p->to), room = j->wait_us - d->s->latency_us - start;

    p->fetch[p->n] = (struct wp_fetch){source, p->to, to};
    if (room > 0 && end - start > room) {
        uint32_t blocks = (uint32_t)(room / per_token / j->block);

        judge_part(d, blocks, to, start, per_token);
        judge_part(d, blocks + 1, to, start, per_token);
    }
    p->n++;
    p->moved_us += end - start;
    p->to = to;
    p->done_us = end + d->s->latency_us;
    d->in_us = end;
    judge(d, p);
}

static void add_peer(struct draft *d, const struct wp_plan_peer *p)
{
    if (p->to > d->plan.to && d->plan.n < WP_FETCHES)
        add(d, p->worker, p->to, p->busy_us, p->us_per_byte);
}

static void add_pool(struct draft *d)
{
    uint32_t to = pool_to(d->s->pool, d->plan.to);

    if (to > d->job->tokens)
        to = d->job->tokens;
    if (to > d->plan.to && d->plan.n < WP_FETCHES)
        add(d, WP_POOL, to, busy(d->s->pool->busy_us), d->s->pool_us_per_byte);
}

static void begin(struct draft *d, const struct wp_worker_view *w)
{
    d->plan.n = 0;
    d->plan.to = d->job->hit;
    d->plan.moved_us = 0;
    d->in_us = busy(w->in_busy_us);
}

double wp_plan_best(const struct wp_plan_sources *s, const struct wp_worker_view *w,
                    const struct wp_plan_job *job, double margin_us, struct wp_plan *best)
{
    double nothing_us = wp_plan_cost(job, job->hit, 0, 0);
    struct draft d = {.s = s,
                      .job = job,
                      .in_us_per_byte = us_per_byte(w->link_bytes_per_s),
                      .best_us = nothing_us - margin_us,
                      .best = best};

    best->n = 0;
    best->to = job->hit;
    best->done_us = best->moved_us = 0;
    if (!(w->link_bytes_per_s > 0) || !(job->bytes_per_token > 0) || job->block == 0)
        return nothing_us;
    for (uint32_t i = 0; i < s->n && s->peer[i].to > job->hit;
         i++) { /* each alone, and the pool behind it */
        begin(&d, w);
        add_peer(&d, &s->peer[i]);
        add_pool(&d);
    }
    if (s->pool &&
        pool_to(s->pool, job->hit) > job->hit) { /* the pool first, and whoever has more */
        begin(&d, w);
        add_pool(&d);
        if (s->n)
            add_peer(&d, &s->peer[0]);
        add_pool(&d);
    }
    return best->n ? d.best_us : nothing_us;
}
