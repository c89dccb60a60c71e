/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/plays.h"
#include "base/map.h"

#include <math.h>
#include <stdlib.h>

static const double hot_share = 0.02, shift_s = 60;
enum { PLAYS_MAX = 20000000 };

static int by_arrival(const void *a, const void *b)
{
    const struct wp_play *x = a, *y = b;

    if (x->at_us != y->at_us)
        return x->at_us < y->at_us ? -1 : 1;
    return x->id < y->id ? -1
                         : x->id > y->id; /* as they stand in memory: the same order each time */
}

/*
 * Names.  The trace's ids are numbered in order of first use, each copy's apart but for hot ones;
 * once all are in order of arrival, they are numbered in that order.  Small numbers in order of use
 * are what caches, and the mind's tables, like best.
 */
struct names {
    struct wp_map number; /* of the trace's ids */
    uint32_t *count;      /* by number: requests that have it */
    uint32_t n, hot;
};

static int count_ids(struct names *s, const struct wp_trace *t, size_t ids)
{
    s->count = wp_calloc(ids + 1, sizeof *s->count);
    if (!s->count)
        return WP_ENOMEM;
    for (size_t i = 0; i < t->n; i++) {
        for (uint32_t k = 0; k < t->req[i].n_ids; k++) {
            const uint64_t *at = wp_map_at(&s->number, t->req[i].id[k]);

            if (!at && wp_map_put(&s->number, t->req[i].id[k], s->n++) < 0)
                return WP_ENOMEM;
            s->count[at ? *at : s->n - 1]++;
        }
    }
    s->hot = (uint32_t)(hot_share * (double)t->n);
    return 0;
}

static void make_copy(struct wp_plays *p, const struct wp_trace *t,
                      const struct wp_plays_conf *conf, size_t copy, const struct names *s,
                      uint64_t **ids, struct wp_rng *rng)
{
    double shift = conf->copies > 1 ? wp_rng_unit(rng) * shift_s : 0;
    double warm_us = conf->warmup * (double)t->req[t->n - 1].at_us;

    for (size_t i = 0; i < t->n; i++) {
        const struct wp_trace_req *r = &t->req[i];
        double at_us = (double)r->at_us + 1e6 * (shift + wp_rng_unit(rng) * conf->jitter_s);

        for (uint32_t k = 0; k < r->n_ids; k++) {
            uint64_t number = *wp_map_at(&s->number, r->id[k]);

            (*ids)[k] = s->count[number] > s->hot ? number : number + copy * (uint64_t)s->n;
        }
        p->play[p->n++] = (struct wp_play){
            .at_us = (uint64_t)(at_us / conf->scale),
            .input = r->input,
            .output = r->output,
            .n_ids = r->n_ids,
            .warm = (double)r->at_us < warm_us,
            .id = *ids,
            .tenant = r->tenant,
            .priority = r->priority,
        };
        *ids += r->n_ids;
    }
}

/* p is in order of arrival. */
static int number_ids(struct wp_plays *p, size_t names)
{
    uint64_t n = 0,
             *to = wp_calloc(names + 1, sizeof *to); /* one more than the number; 0: none yet */

    if (!to)
        return WP_ENOMEM;
    for (size_t i = 0; i < p->n; i++) {
        uint64_t *id = p->ids + (p->play[i].id - p->ids);

        for (uint32_t k = 0; k < p->play[i].n_ids; k++) {
            if (to[id[k]] == 0)
                to[id[k]] = ++n;
            id[k] = to[id[k]] - 1;
        }
    }
    wp_free(to);
    return 0;
}

static double measured_span_s(const struct wp_plays *p)
{
    size_t first = 0;

    while (first < p->n && p->play[first].warm)
        first++;
    return first < p->n ? (double)(p->play[p->n - 1].at_us - p->play[first].at_us) * 1e-6 : 0;
}

int wp_plays_make(struct wp_plays *p, const struct wp_trace *t, const struct wp_plays_conf *conf,
                  struct wp_err *err)
{
    struct names names = {0};
    struct wp_rng rng = {conf->seed};
    uint64_t *ids, sum = 0;
    int rc = 0;

    *p = (struct wp_plays){0};
    if (t->n == 0 || conf->copies == 0 || !(conf->scale > 0) || !(conf->jitter_s >= 0))
        return wp_fail(err, WP_EINVAL,
                       "want a trace with requests, 1 copy or more and a scale above 0");
    if (t->n > PLAYS_MAX / conf->copies)
        return wp_fail(err, WP_ETOOBIG, "%zu copies of %zu requests: want at most %d in all",
                       conf->copies, t->n, PLAYS_MAX);
    for (size_t i = 0; i < t->n; i++)
        sum += t->req[i].n_ids;
    p->play = wp_calloc(t->n * conf->copies, sizeof *p->play);
    p->ids = wp_calloc(sum * conf->copies + 1, sizeof *p->ids);
    if (!p->play || !p->ids || count_ids(&names, t, sum) < 0)
        rc = WP_ENOMEM;
    ids = p->ids;
    for (size_t c = 0; c < conf->copies && rc == 0; c++)
        make_copy(p, t, conf, c, &names, &ids, &rng);
    if (rc == 0) {
        qsort(p->play, p->n, sizeof *p->play, by_arrival);
        rc = number_ids(p, (size_t)names.n * conf->copies);
    }
    wp_map_fini(&names.number);
    wp_free(names.count);
    if (rc < 0) {
        wp_plays_fini(p);
        return wp_fail(err, WP_ENOMEM, "out of memory for %zu copies of %zu requests", conf->copies,
                       t->n);
    }
    p->span_s = measured_span_s(p);
    return 0;
}

void wp_plays_fini(struct wp_plays *p)
{
    wp_free(p->play);
    wp_free(p->ids);
    *p = (struct wp_plays){0};
}
