/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/tune.h"

#include "base/mem.h"
#include "base/rng.h"
#include "policies/decision.h"

#include <math.h>
#include <stdio.h>

/* Less than this is no step forward; and the factors, one after the other. */
static const double least_gain = 1e-3, factors[] = {10, 3, 1.7, 1.25};
static const double real_gain = 0.01, student = 2.132; /* one-sided 5 %, four degrees of freedom */

/* What is searched.  tuned: it counts only while price.room_tuned has that value; -1: always. */
static const struct knob {
    const char *policy, *key;
    double low, high;
    int tuned;
} knobs[] = {
    {"price", "price.room_tuned", 0, 1, -1}, /* the only switch */
    {"price", "price.hold_us", 1e4, 4e6, -1},
    {"price", "price.age", 1e-3, 10, -1},
    {"price", "price.near_share", 1e-3, 0.2, -1},
    {"price", "price.link_share", 0.05, 20, -1},
    {"price", "price.fetch_margin_us", 10, 1e6, -1},
    {"price", "price.move_us", 100, 1e6, 1},
    {"price", "price.move_blocks", 1, 1000, 1},
    {"price", "price.pin_us", 100, 1e7, 1},
    {"price", "price.room_us", 100, 1e6, 0},
    {"price", "price.room_cap_blocks", 1, 1000, 0},
    {"price", "price.room_wait_share", 1e-3, 1, 0},
    {"dynamo", "dynamo.prefill_weight", 0.01, 1000, -1},
    {"llmd", "llmd.prefix", 0.01, 100, -1},
    {"llmd", "llmd.queue", 0.01, 100, -1},
    {"llmd", "llmd.kv", 0.01, 100, -1},
    {"sglang", "sglang.match", 0.01, 1, -1},
    {"sglang", "sglang.balance_abs", 1, 4096, -1},
    {"sglang", "sglang.balance_rel", 1, 100, -1},
    {"preble", "preble.window_s", 1, 3600, -1},
    {"preble", "preble.overload", 1, 100, -1},
    {"conductor", "conductor.ratio", 1, 100, -1},
    {"prefix_hash", "bound", 1, 100, -1},
    {"session", "bound", 1, 100, -1},
};

static const char *const figures[] = {"ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s",
                                      "e2e_p99_s",   "slo_share",  NULL};

const char *const *wp_tune_figures(void)
{
    return figures;
}

double wp_tune_figure(const struct wp_figures *f, const char *name)
{
    const double value[] = {f->ttft_mean_s, f->ttft_p50_s, f->ttft_p90_s,
                            f->ttft_p99_s,  f->e2e_p99_s,  1 - f->slo};

    for (size_t i = 0; figures[i]; i++)
        if (strcmp(name, figures[i]) == 0)
            return value[i];
    return NAN;
}

struct search {
    const struct wp_tune_conf *conf;
    struct wp_tune_result *r;
    struct wp_plays plays[WP_TUNE_SEEDS];
    const struct knob *knob[WP_TUNE_KNOBS];
    struct wp_rng rng;
    double best;
    struct wp_err *err;
    int rc;
};

static const char *figure_of(const struct wp_tune_conf *c)
{
    return c->figure ? c->figure : figures[0];
}

static double get(const struct wp_policy_conf *c, const char *key)
{
    struct wp_decision_setting s[WP_DECISION_SETTINGS];
    size_t n = wp_decision_settings(c, s);

    for (size_t i = 0; i < n; i++)
        if (strcmp(s[i].name, key) == 0)
            return s[i].value;
    return NAN;
}

/* To three digits: what is printed is what was tried. */
static bool set(struct wp_policy_conf *c, const char *key, double value)
{
    struct wp_err err;
    char text[32];

    snprintf(text, sizeof text, "%.3g", value);
    return wp_policy_set(c, wp_str_of(key), wp_str_of(text), &err) == 0;
}

/* ---- runs ---- */

static int play(const struct wp_tune_conf *c, const struct wp_policy_conf *settings, uint64_t seed,
                const struct wp_plays *plays, struct wp_figures *f, struct wp_err *err)
{
    struct wp_replay_conf conf = *c->replay;
    struct wp_report *report = NULL;
    int rc;

    conf.policy_conf = *settings;
    if (conf.policy_conf.seed == conf.seed) /* it was the run's, and goes with it */
        conf.policy_conf.seed = seed;
    conf.seed = seed;
    conf.record = NULL;
    rc = wp_replay_run(&report, &conf, plays, err);
    if (rc == 0)
        wp_report_figures(report, f);
    wp_report_destroy(report);
    return rc;
}

/* NaN: it failed, or there were enough. */
static double evaluate(struct search *s, const struct wp_policy_conf *settings)
{
    double sum = 0;

    if (s->rc < 0 || s->r->evaluations == s->conf->evaluations)
        return NAN;
    s->r->evaluations++;
    for (size_t i = 0; i < WP_TUNE_SEEDS && s->rc == 0; i++) {
        struct wp_figures f = {0};

        s->rc = play(s->conf, settings, s->conf->plays->seed + i, &s->plays[i], &f, s->err);
        sum += wp_tune_figure(&f, figure_of(s->conf)) / WP_TUNE_SEEDS;
    }
    return s->rc < 0 ? NAN : sum;
}

/* ---- the search ---- */

static bool counts(const struct knob *k, const struct wp_policy_conf *c)
{
    return k->tuned < 0 || (c->room_tuned > 0) == k->tuned;
}

/* One step of one knob.  True: it helped, and is kept. */
static bool step(struct search *s, const struct knob *k, double factor)
{
    struct wp_policy_conf c = s->r->conf;
    double now = get(&c, k->key), then = now > 0 ? now * factor : k->low, value;

    if (k->low == 0)
        then = now > 0 ? 0 : 1;
    then = fmax(k->low, fmin(k->high, then));
    if (!counts(k, &c) || !set(&c, k->key, then) || get(&c, k->key) == now)
        return false;
    value = evaluate(s, &c);
    if (!(value < s->best * (1 - least_gain)))
        return false;
    s->best = value;
    s->r->conf = c;
    return true;
}

/* Each knob once in each direction, and on as long as it helps.  True: something did. */
static bool around(struct search *s, double factor)
{
    bool any = false;

    for (size_t i = s->r->n_knobs; i > 1; i--) { /* Fisher-Yates */
        size_t j = (size_t)wp_rng_below(&s->rng, i);
        const struct knob *k = s->knob[i - 1];

        s->knob[i - 1] = s->knob[j];
        s->knob[j] = k;
    }
    for (size_t i = 0; i < s->r->n_knobs; i++) {
        bool helped = false;

        while (step(s, s->knob[i], factor))
            helped = true;
        while (!helped && step(s, s->knob[i], 1 / factor))
            any = true;
        any = any || helped;
    }
    return any;
}

/* Where the settings are not the defaults, these are the first to be tried: far off there may be
 * nothing to feel one's way by. */
static void defaults(struct search *s)
{
    struct wp_policy_conf own = s->r->conf, c;
    double value;

    wp_policy_conf_init(&c);
    for (size_t i = 0; i < s->r->n_knobs; i++)
        (void)set(&own, s->knob[i]->key, get(&c, s->knob[i]->key));
    if (memcmp(&own, &s->r->conf, sizeof own) == 0)
        return;
    value = evaluate(s, &own);
    if (!(value < s->best * (1 - least_gain)))
        return;
    s->best = value;
    s->r->conf = own;
}

static void search(struct search *s)
{
    s->best = s->r->search_from = evaluate(s, &s->r->conf);
    defaults(s);
    for (size_t i = 0; i < sizeof factors / sizeof factors[0] && s->rc == 0; i++)
        while (s->best > 0 && around(s, factors[i]))
            if (s->r->evaluations == s->conf->evaluations)
                break;
    s->r->search_to = s->best;
}

/* ---- held against what was held out ---- */

static int check(struct search *s, const struct wp_trace *t)
{
    struct wp_tune_result *r = s->r;
    int rc = 0;

    for (size_t i = 0; i < WP_TUNE_CHECKS && rc == 0; i++) {
        struct wp_plays_conf conf = *s->conf->plays;
        struct wp_plays plays;

        conf.warmup = s->conf->share;
        conf.seed += i;
        rc = wp_plays_make(&plays, t, &conf, s->err);
        if (rc < 0)
            return rc;
        rc = play(s->conf, &s->conf->replay->policy_conf, conf.seed, &plays, &r->was[i], s->err);
        rc = rc ? rc : play(s->conf, &r->conf, conf.seed, &plays, &r->is[i], s->err);
        wp_plays_fini(&plays);
    }
    return rc;
}

static void judge(struct wp_tune_result *r, const struct wp_tune_conf *c)
{
    double ratio[WP_TUNE_CHECKS], sum = 0, squares = 0;

    for (size_t i = 0; i < WP_TUNE_CHECKS; i++) {
        double was = wp_tune_figure(&r->was[i], figure_of(c)),
               is = wp_tune_figure(&r->is[i], figure_of(c));

        ratio[i] = was > 0 ? is / was : is > 0 ? 2 : 1;
        sum += ratio[i];
        r->lowest = i ? fmin(r->lowest, ratio[i]) : ratio[i];
        r->highest = i ? fmax(r->highest, ratio[i]) : ratio[i];
    }
    r->ratio = sum / WP_TUNE_CHECKS;
    for (size_t i = 0; i < WP_TUNE_CHECKS; i++)
        squares += (ratio[i] - r->ratio) * (ratio[i] - r->ratio);
    r->luck = student * sqrt(squares / (WP_TUNE_CHECKS - 1) / WP_TUNE_CHECKS);
    r->real = r->changed > 0 && 1 - r->ratio > fmax(real_gain, r->luck);
}

/* ---- one run ---- */

static int find_knobs(struct search *s)
{
    struct wp_tune_result *r = s->r;

    for (size_t i = 0; i < sizeof knobs / sizeof knobs[0]; i++) {
        if (strcmp(knobs[i].policy, s->conf->replay->policy) != 0)
            continue;
        s->knob[r->n_knobs] = &knobs[i];
        r->knob[r->n_knobs].key = knobs[i].key;
        r->knob[r->n_knobs++].from = get(&r->conf, knobs[i].key);
    }
    if (r->n_knobs == 0)
        return wp_fail(s->err, WP_EINVAL, "--tune: there is nothing to tune in %s",
                       s->conf->replay->policy);
    if (isnan(wp_tune_figure(&(struct wp_figures){0}, figure_of(s->conf))))
        return wp_fail(s->err, WP_EINVAL, "--tune-for: unknown figure \"%s\"", s->conf->figure);
    return 0;
}

static int take_part(struct search *s, const struct wp_trace *t, struct wp_trace *part)
{
    double end = s->conf->share * (double)(t->n ? t->req[t->n - 1].at_us : 0);
    int rc = 0;

    *part = *t;
    part->n = 0;
    while (part->n < t->n && (double)t->req[part->n].at_us < end)
        part->n++;
    s->r->searched = part->n;
    s->r->held_out = t->n - part->n;
    if (s->r->searched < WP_TUNE_LEAST || s->r->held_out < WP_TUNE_LEAST)
        return wp_fail(
            s->err, WP_EINVAL,
            "--tune: %zu requests to search on and %zu held out: want at least %d of each",
            s->r->searched, s->r->held_out, WP_TUNE_LEAST);
    for (size_t i = 0; i < WP_TUNE_SEEDS && rc == 0; i++) {
        struct wp_plays_conf conf = *s->conf->plays;

        conf.seed += i;
        rc = wp_plays_make(&s->plays[i], part, &conf, s->err);
    }
    return rc;
}

int wp_tune_run(struct wp_tune_result *r, const struct wp_tune_conf *conf, const struct wp_trace *t,
                struct wp_err *err)
{
    struct search s = {.conf = conf, .r = r, .err = err, .rng = {conf->plays->seed}};
    struct wp_trace part;
    int rc;

    *r = (struct wp_tune_result){.conf = conf->replay->policy_conf};
    rc = find_knobs(&s);
    rc = rc ? rc : take_part(&s, t, &part);
    if (rc == 0) {
        search(&s);
        rc = s.rc;
    }
    for (size_t i = 0; i < r->n_knobs; i++) {
        r->knob[i].to = get(&r->conf, r->knob[i].key);
        r->changed += r->knob[i].to != r->knob[i].from;
    }
    rc = rc ? rc : check(&s, t);
    if (rc == 0)
        judge(r, conf);
    for (size_t i = 0; i < WP_TUNE_SEEDS; i++)
        wp_plays_fini(&s.plays[i]);
    return rc;
}
