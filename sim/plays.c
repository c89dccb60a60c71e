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

/* How many requests have each id. */
static int count_ids(struct wp_map *count, const struct wp_trace *t)
{
    for (size_t i = 0; i < t->n; i++) {
        for (uint32_t k = 0; k < t->req[i].n_ids; k++) {
            uint64_t *n = wp_map_at(count, t->req[i].id[k]);

            if (n)
                (*n)++;
            else if (wp_map_put(count, t->req[i].id[k], 1) < 0)
                return WP_ENOMEM;
        }
    }
    return 0;
}

/* A copy's name for an id.  Not a counter beside it: ids of any size must stay apart. */
static uint64_t own(uint64_t id, size_t copy)
{
    struct wp_rng r = {id * 0x9e3779b97f4a7c15u + copy};

    return wp_rng_next(&r);
}

static void name_ids(uint64_t out[], const struct wp_trace *t, const struct wp_trace_req *r,
                     size_t copy, const struct wp_map *count)
{
    for (uint32_t k = 0; k < r->n_ids; k++) {
        const uint64_t *n = copy ? wp_map_at(count, r->id[k]) : NULL;
        bool hot = !n || (double)*n > hot_share * (double)t->n;

        out[k] = own(r->id[k], hot ? 0 : copy);
    }
}

static void make_copy(struct wp_plays *p, const struct wp_trace *t,
                      const struct wp_plays_conf *conf, size_t copy, const struct wp_map *count,
                      uint64_t **ids, struct wp_rng *rng)
{
    double shift = conf->copies > 1 ? wp_rng_unit(rng) * shift_s : 0;
    double warm_us = conf->warmup * (double)t->req[t->n - 1].at_us;

    for (size_t i = 0; i < t->n; i++) {
        const struct wp_trace_req *r = &t->req[i];
        double at_us = (double)r->at_us + 1e6 * (shift + wp_rng_unit(rng) * conf->jitter_s);

        name_ids(*ids, t, r, copy, count);
        p->play[p->n++] = (struct wp_play){
            .at_us = (uint64_t)(at_us / conf->scale),
            .input = r->input,
            .output = r->output,
            .n_ids = r->n_ids,
            .warm = (double)r->at_us < warm_us,
            .id = *ids,
        };
        *ids += r->n_ids;
    }
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
    struct wp_map count = {0};
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
    if (!p->play || !p->ids || count_ids(&count, t) < 0)
        rc = wp_fail(err, WP_ENOMEM, "out of memory for %zu copies of %zu requests", conf->copies,
                     t->n);
    ids = p->ids;
    for (size_t c = 0; c < conf->copies && rc == 0; c++)
        make_copy(p, t, conf, c, &count, &ids, &rng);
    wp_map_fini(&count);
    if (rc < 0) {
        wp_plays_fini(p);
        return rc;
    }
    qsort(p->play, p->n, sizeof *p->play, by_arrival);
    p->span_s = measured_span_s(p);
    return 0;
}

void wp_plays_fini(struct wp_plays *p)
{
    wp_free(p->play);
    wp_free(p->ids);
    *p = (struct wp_plays){0};
}
