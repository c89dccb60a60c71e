/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants in virtual time, through the code that serve decides with: one floods, the others are
 * well. */
#include "sim/replay.h"

#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>

enum {
    VICTIMS = 9,
    FLOODER = 10,
    TENANTS = 11,
    INPUT = 2048,
    OUTPUT = 64,
    WORKERS = 4,
    SPAN_S = 60,
    FROM_S = 10
};

struct seen {
    double tokens[TENANTS]; /* served between FROM_S and SPAN_S */
    uint64_t refused[TENANTS], ended[TENANTS], first_in_s;
    double ttft_s[65536]; /* of the victims */
    size_t n_ttft;
};

static void on_end(void *arg, const struct wp_play *p, const struct wp_outcome *o)
{
    struct seen *s = arg;

    s->ended[p->tenant]++;
    if (!o) {
        s->refused[p->tenant]++;
        return;
    }
    if (o->first_us >= FROM_S * 1000000u && o->first_us < SPAN_S * 1000000u)
        s->tokens[p->tenant] += p->input + p->output;
    if (p->tenant != FLOODER && p->at_us >= FROM_S * 1000000u && s->n_ttft < 65536)
        s->ttft_s[s->n_ttft++] = 1e-6 * (double)(o->first_us - p->at_us);
}

/* Prompts that nobody has seen before; steady: one in each period, somewhere in its first half;
 * else as Poisson has it. */
static void arrive(struct wp_trace *t, uint32_t tenant, double per_s, bool steady,
                   struct wp_rng *rng, uint64_t *next_id)
{
    double phase = wp_rng_unit(rng), at = 0;
    uint64_t *ids;

    for (int i = 0; per_s > 0; i++) {
        struct wp_trace_req *r;

        at = steady ? (i + phase + wp_rng_unit(rng) / 2) / per_s
                    : at - log(1 - wp_rng_unit(rng)) / per_s;
        if (at >= SPAN_S)
            return;
        r = wp_trace_add(t, (uint64_t)(at * 1e6), INPUT, OUTPUT, &ids);
        EXPECT_TRUE("room", r != NULL);
        if (!r)
            return;
        r->tenant = tenant;
        for (uint32_t k = 0; k < r->n_ids; k++)
            ids[k] = (*next_id)++;
    }
}

static void play(struct seen *s, double victim_per_s, bool steady, double flood_per_s)
{
    struct wp_plays_conf pc = {.copies = 1, .scale = 1, .seed = 1};
    struct wp_replay_conf rc;
    struct wp_report *report = NULL;
    struct wp_err err = WP_ERR_INIT;
    struct wp_rng rng = {.state = 7};
    struct wp_trace t = {0};
    struct wp_plays p;
    uint64_t next_id = 1;

    *s = (struct seen){0};
    for (uint32_t v = 1; v <= VICTIMS; v++)
        arrive(&t, v, victim_per_s, steady, &rng, &next_id);
    arrive(&t, FLOODER, flood_per_s, false, &rng, &next_id);
    EXPECT_INT("plays", 0, wp_plays_make(&p, &t, &pc, &err));
    wp_trace_fini(&t);
    wp_replay_conf_init(&rc);
    rc.workers = WORKERS;
    rc.policy = "price";
    rc.stale_us = 50000;
    rc.on_end = on_end;
    rc.on_end_arg = s;
    EXPECT_INT("replay", 0, wp_replay_run(&report, &rc, &p, &err));
    wp_report_destroy(report);
    wp_plays_fini(&p);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double p99(struct seen *s)
{
    qsort(s->ttft_s, s->n_ttft, sizeof s->ttft_s[0], by_size);
    return s->n_ttft ? s->ttft_s[(size_t)(0.99 * (double)s->n_ttft)] : NAN;
}

/* Jain, Chiu, Hawe, "A Quantitative Measure of Fairness" (DEC-TR-301, 1984). */
static double jain(const struct seen *s)
{
    double sum = 0, squares = 0;

    for (int i = 1; i <= FLOODER; i++) {
        sum += s->tokens[i];
        squares += s->tokens[i] * s->tokens[i];
    }
    return sum * sum / (FLOODER * squares);
}

/* What the fleet can do, in requests a second: nobody is there but one that floods. */
static double capacity(struct seen *s)
{
    double per_s;

    play(s, 0, false, 400);
    per_s = s->tokens[FLOODER] / (INPUT + OUTPUT) / (SPAN_S - FROM_S);
    EXPECT_TRUE("a fleet", per_s > 10 && per_s < 100);
    return per_s;
}

/* Nine tenants with that much each, without and with one that floods at ten times what the fleet
 * can do. */
static void flood(struct seen *s, double share, bool steady)
{
    double can = capacity(s), alone, flooded;
    struct wp_policy_conf conf;

    wp_policy_conf_init(&conf);
    play(s, share * can, steady, 0);
    alone = p99(s);
    play(s, share * can, steady, 10 * can);
    flooded = p99(s);
    if (!(flooded <= alone + 2e-6 * conf.hold_us))
        EXPECT_NEAR("the others wait no longer", alone, flooded, 0);
    for (int v = 1; v <= VICTIMS; v++)
        EXPECT_UINT("none of the others is refused", 0, s->refused[v]);
    EXPECT_TRUE("the flood is", s->refused[FLOODER] > s->ended[FLOODER] / 2);
}

static void one_that_floods_gets_no_more_than_nine_others(void)
{
    struct seen *s = calloc(1, sizeof *s);

    flood(s, 0.095, true);
    EXPECT_TRUE("fair", jain(s) >= 0.95);
    free(s);
}

static void one_that_floods_gets_what_nine_others_leave(void)
{
    struct seen *s = calloc(1, sizeof *s);
    double all = 0;

    flood(s, 0.05, false);
    for (int i = 1; i <= FLOODER; i++)
        all += s->tokens[i];
    EXPECT_TRUE("the rest is not lost", s->tokens[FLOODER] > 0.5 * all);
    free(s);
}

static const struct wp_test tests[] = {
    {"one that floods gets no more than nine others",
     one_that_floods_gets_no_more_than_nine_others},
    {"one that floods gets what nine others leave", one_that_floods_gets_what_nine_others_leave},
    {NULL, NULL},
};
const struct wp_suite suite_fairness = {"fairness", tests};
