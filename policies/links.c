/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/links.h"

#include "base/mem.h"

#include <math.h>

static const double as_fast = 0.8;    /* of what was expected: no news */
static const double shown_us = 600e6; /* what was shown longer ago counts no more */
static const double half_sure_us = 600e6, half_unsure_us = 60e6; /* of the way back */
static const double overdue_share = 0.5, overdue_us = 100e3;     /* beyond what it should take */
static const double longest_us = 1e15;

int wp_links_init(struct wp_links *l, uint32_t n, const double rate[], double pool_rate,
                  double latency_us)
{
    *l = (struct wp_links){
        .n = n, .latency_us = latency_us > 0 && latency_us < longest_us ? latency_us : 0};
    wp_list_init(&l->open);
    l->link = wp_calloc((size_t)n + 1, sizeof *l->link);
    if (!l->link)
        return WP_ENOMEM;
    for (uint32_t i = 0; i <= n; i++) {
        double r = i < n ? rate[i] : pool_rate;

        wp_list_init(&l->link[i].in);
        wp_list_init(&l->link[i].out);
        l->link[i].said = l->link[i].rate = r > 0 ? r : 0; /* NaN too */
    }
    return 0;
}

void wp_links_fini(struct wp_links *l)
{
    wp_free(l->link);
    l->link = NULL;
}

static double since(uint64_t now_us, uint64_t then_us)
{
    return now_us > then_us ? (double)(now_us - then_us) : 0;
}

double wp_link_rate(const struct wp_links *l, uint32_t worker, uint64_t now_us)
{
    const struct wp_link *k = &l->link[worker];

    if (k->rate >= k->said)
        return k->rate;
    /* halfway in ratio: from 1 to 25 GB/s by way of 5 */
    return k->said * pow(k->rate / k->said, exp2(-since(now_us, k->rate_us) /
                                                 (k->unsure ? half_unsure_us : half_sure_us)));
}

double wp_link_in_busy(const struct wp_links *l, uint32_t worker, uint64_t now_us)
{
    uint64_t at = l->link[worker].in_free_us;

    return at > now_us ? (double)(at - now_us) : 0;
}

double wp_link_out_busy(const struct wp_links *l, uint32_t worker, uint64_t now_us)
{
    uint64_t at = l->link[worker].out_free_us;

    return at > now_us ? (double)(at - now_us) : 0;
}

static double pair_rate(const struct wp_links *l, const struct wp_transfer *t, uint64_t now_us)
{
    return fmin(wp_link_rate(l, t->source, now_us), wp_link_rate(l, t->worker, now_us));
}

static uint64_t takes_us(const struct wp_links *l, const struct wp_transfer *t, uint64_t now_us)
{
    double rate = pair_rate(l, t, now_us);

    return rate > 0 && t->bytes > 0 ? (uint64_t)fmin(longest_us, t->bytes / rate * 1e6) : 0;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void wp_links_begin(struct wp_links *l, struct wp_transfer *t, uint64_t now_us, uint32_t source,
                    uint32_t worker, double bytes)
{
    struct wp_link *out = &l->link[source], *in = &l->link[worker];

    *t = (struct wp_transfer){
        .source = source, .worker = worker, .bytes = bytes, .at_us = now_us, .under_way = true};
    wp_list_push(&out->out, &t->of_source);
    wp_list_push(&in->in, &t->of_worker);
    wp_list_push(&l->open, &t->open);
    t->start_us = later(now_us, later(out->out_free_us, in->in_free_us));
    t->end_us = t->start_us + takes_us(l, t, now_us);
    out->out_free_us = in->in_free_us = t->end_us;
}

/* One end of the transfer's links is known: what waits behind it is reckoned anew. */
static void reckon(struct wp_links *l, struct wp_link *out, struct wp_link *in, uint64_t now_us)
{
    uint64_t end = out->out_us;

    WP_LIST_EACH(&out->out, at)
    {
        struct wp_transfer *t = WP_CONTAINER(at, struct wp_transfer, of_source);

        t->start_us = later(t->at_us, end);
        end = t->end_us = later(now_us, t->start_us + takes_us(l, t, now_us)); /* it still runs */
    }
    out->out_free_us = end;
    end = in->in_us;
    WP_LIST_EACH(&in->in, at)
    {
        struct wp_transfer *t = WP_CONTAINER(at, struct wp_transfer, of_worker);

        t->start_us = later(t->start_us, end);
        end = t->end_us = later(now_us, t->start_us + takes_us(l, t, now_us));
    }
    in->in_free_us = end;
}

static void close(struct wp_transfer *t)
{
    wp_list_del(&t->of_source);
    wp_list_del(&t->of_worker);
    wp_list_del(&t->open);
    t->under_way = false;
}

static double has_shown(const struct wp_link *k, uint64_t now_us)
{
    return since(now_us, k->shown_us) < shown_us ? k->shown : 0;
}

static void learn(struct wp_link *k, double rate, bool unsure, uint64_t now_us)
{
    k->rate = rate;
    k->unsure = unsure;
    k->rate_us = now_us;
}

/* A transfer over two links went at that speed, or is so slow that it cannot be faster. */
static void judge(struct wp_links *l, const struct wp_transfer *t, double rate, uint64_t now_us)
{
    struct wp_link *a = &l->link[t->source], *b = &l->link[t->worker];
    double a_shown = has_shown(a, now_us), b_shown = has_shown(b, now_us);

    if (rate >= as_fast * pair_rate(l, t, now_us)) {
        if (rate > wp_link_rate(l, t->source, now_us))
            learn(a, rate, a->unsure, now_us);
        if (rate > wp_link_rate(l, t->worker, now_us))
            learn(b, rate, b->unsure, now_us);
    } else if (a_shown * as_fast > rate && b_shown * as_fast <= rate) {
        learn(b, rate, false, now_us);
    } else if (b_shown * as_fast > rate && a_shown * as_fast <= rate) {
        learn(a, rate, false, now_us);
    } else { /* what is known to be slow already is reason enough */
        double ra = wp_link_rate(l, t->source, now_us), rb = wp_link_rate(l, t->worker, now_us);

        if (rate < as_fast * ra)
            learn(a, rate, true, now_us);
        if (rate < as_fast * rb)
            learn(b, rate, true, now_us);
        a->shown = fmin(a->shown, rate);
        b->shown = fmin(b->shown, rate);
        return;
    }
    if (rate >= a_shown) {
        a->shown = rate;
        a->shown_us = now_us;
    }
    if (rate >= b_shown) {
        b->shown = rate;
        b->shown_us = now_us;
    }
}

void wp_links_done(struct wp_links *l, struct wp_transfer *t, uint64_t at_us)
{
    struct wp_link *out = &l->link[t->source], *in = &l->link[t->worker];
    uint64_t start, end = at_us > (uint64_t)l->latency_us ? at_us - (uint64_t)l->latency_us : 0;

    if (!t->under_way)
        return;
    start = later(t->at_us, later(out->out_us, in->in_us));
    if (end > start && t->bytes > 0)
        judge(l, t, t->bytes / (double)(end - start) * 1e6, at_us);
    out->out_us = later(out->out_us, end);
    in->in_us = later(in->in_us, end);
    close(t);
    reckon(l, out, in, at_us);
}

void wp_links_lost(struct wp_links *l, struct wp_transfer *t)
{
    if (!t->under_way)
        return;
    close(t);
    reckon(l, &l->link[t->source], &l->link[t->worker], 0);
}

static double overdue_by(const struct wp_transfer *t)
{
    return overdue_us + overdue_share * (double)(t->end_us - t->start_us);
}

struct wp_transfer *wp_links_overdue(const struct wp_links *l, uint64_t now_us)
{
    WP_LIST_EACH(&l->open, at)
    {
        struct wp_transfer *t = WP_CONTAINER(at, struct wp_transfer, open);

        if (since(now_us, t->end_us) > l->latency_us + overdue_by(t) &&
            t->of_worker.prev == &l->link[t->worker].in &&
            t->of_source.prev == &l->link[t->source].out)
            return t;
    }
    return NULL;
}

void wp_links_late(struct wp_links *l, struct wp_transfer *t, uint64_t now_us)
{
    struct wp_link *out = &l->link[t->source], *in = &l->link[t->worker];
    uint64_t start = later(t->at_us, later(out->out_us, in->in_us));

    if (!t->under_way)
        return;
    if (now_us > start && t->bytes > 0)
        judge(l, t, t->bytes / (double)(now_us - start) * 1e6, now_us);
    reckon(l, out, in, now_us); /* it is asked about again when it has taken half as long again */
}
