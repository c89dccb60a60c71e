/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/calibrate.h"

#include <math.h>
#include <string.h>

const char *const wp_fact_names[WP_FACTS] = {"compute", "attention", "steps", "decoding",
                                             "constant"};

/* Beliefs at first: of all factors together, of each alone, and of the constant in milliseconds.
 * What an engine drifts in one sample. */
static const double together = 1, alone = 0.25, constant_ms = 4, drift = 0.003;
static const double huber = 2.5, apart = 8;
static const double
    seen_share = 0.04,
    seen_us = 800; /* deviation of what is seen: a share of it, and the clocks and sockets */
enum { SHIFTS = 6, SHORT_TOKENS = 512, INTERVAL_FEW = 16 };

static double within(double x, double low, double high)
{
    if (!(x > low))
        return low;
    return x < high ? x : high;
}

static double pace(const struct wp_profile *p)
{
    return p->speed > 0 ? p->speed : 1;
}

static void open_up(struct wp_calibration *c)
{
    for (int i = 0; i < WP_FACTS; i++)
        for (int k = 0; k < WP_FACTS; k++) {
            bool factors = i != WP_FACT_CONSTANT && k != WP_FACT_CONSTANT;
            double own = i == WP_FACT_CONSTANT ? constant_ms : alone;

            c->cov[i][k] = (factors ? together * together : 0) + (i == k ? own * own : 0);
        }
}

void wp_calibration_init(struct wp_calibration *c, const struct wp_profile *p)
{
    *c = (struct wp_calibration){.noise = 1};
    for (int i = 0; i < WP_FACTS; i++)
        c->fact[i] = 1;
    c->fact[WP_FACT_CONSTANT] = within(p->t_c_us / pace(p) / 1000, 0, 1e6);
    open_up(c);
}

void wp_calibration_borrow(struct wp_calibration *c, const struct wp_calibration *from)
{
    struct wp_calibration fresh = {.noise = 1};

    memcpy(fresh.fact, from->fact, sizeof fresh.fact);
    open_up(&fresh);
    for (int i = 0; i < WP_FACTS; i++)
        for (int k = 0; k < WP_FACTS; k++)
            fresh.cov[i][k] /= 16;
    *c = fresh;
}

/* Beside C, a step takes tov and what decodes; the last one is never shorter than reading the
 * weights. */
struct wp_work wp_work_of(const struct wp_profile *p, uint64_t from, uint64_t to, double decoding,
                          double kv_tokens, bool ahead)
{
    double n = from < to ? (double)(to - from) : 0, budget = p->budget ? p->budget : n, steps, last,
           beside;
    struct wp_work w = {.part = {0}};

    if (n == 0)
        return w;
    steps = ceil(n / budget);
    last = n - (steps - 1) * budget;
    beside = p->e_us * decoding + p->d_us * kv_tokens;
    w.part[WP_FACT_COMPUTE] = p->a_us * n;
    w.part[WP_FACT_ATTENTION] = p->b_us / 2 * n * ((double)from + (double)to);
    w.part[WP_FACT_STEPS] = p->tov_us * steps + fmax(0, p->tw_us - p->a_us * last) +
                            (ahead ? (p->tov_us + p->tw_us) / 2 : 0);
    w.part[WP_FACT_DECODING] = beside * (steps + (ahead ? 0.5 : 0));
    for (int i = 0; i < WP_FACT_CONSTANT; i++)
        w.part[i] = within(w.part[i] / pace(p), 0, 1e12);
    w.part[WP_FACT_CONSTANT] = 1000;
    return w;
}

void wp_work_add(struct wp_work *w, const struct wp_work *more)
{
    for (int i = 0; i < WP_FACTS; i++)
        w->part[i] += more->part[i];
}

double wp_work_us(const struct wp_work *w)
{
    double us = 0;

    for (int i = 0; i < WP_FACT_CONSTANT; i++)
        us += w->part[i];
    return us;
}

double wp_calibration_us(const struct wp_calibration *c, const struct wp_work *w)
{
    double us = 0;

    for (int i = 0; i < WP_FACTS; i++)
        us += c->fact[i] * w->part[i];
    return us;
}

/* The variance that what is believed gives to the time of some work; by[]: cov times the work. */
static double variance(const struct wp_calibration *c, const struct wp_work *w, double by[WP_FACTS])
{
    double v = 0;

    for (int i = 0; i < WP_FACTS; i++) {
        by[i] = 0;
        for (int k = 0; k < WP_FACTS; k++)
            by[i] += c->cov[i][k] * w->part[k];
    }
    for (int i = 0; i < WP_FACTS; i++)
        v += by[i] * w->part[i];
    return v > 0 ? v : 0;
}

static void keep_bounds(struct wp_calibration *c)
{
    double compute = c->fact[WP_FACT_COMPUTE] = within(c->fact[WP_FACT_COMPUTE], 0.05, 20);

    for (int i = 1; i < WP_FACT_CONSTANT;
         i++) /* what claims and estimates get wrong must not be made up for by one of them */
        c->fact[i] = within(c->fact[i], fmax(0.05, compute / apart), fmin(20, compute * apart));
    c->fact[WP_FACT_CONSTANT] = within(c->fact[WP_FACT_CONSTANT], 0, 10000);
    for (int i = 0; i < WP_FACTS; i++) {
        double most =
            i == WP_FACT_CONSTANT ? constant_ms * constant_ms : together * together + alone * alone;

        if (c->cov[i][i] < most)
            c->cov[i][i] +=
                i == WP_FACT_CONSTANT ? drift * drift * 10 : drift * drift; /* engines change */
        for (int k = 0; k < i; k++) /* rounding does not make it lopsided */
            c->cov[i][k] = c->cov[k][i] = (c->cov[i][k] + c->cov[k][i]) / 2;
    }
}

/* Another engine than the one that was learnt: many samples in a row are far off, to one side. */
static void watch_shift(struct wp_calibration *c, bool beyond, bool above)
{
    if (!beyond)
        c->beyond = 0;
    else
        c->beyond = above           ? (c->beyond > 0 ? c->beyond + 1 : 1)
                    : c->beyond < 0 ? c->beyond - 1
                                    : -1;
    if (c->beyond != SHIFTS && c->beyond != -SHIFTS)
        return;
    c->beyond = 0;
    c->reopened++;
    open_up(c);
}

bool wp_calibration_hear(struct wp_calibration *c, const struct wp_work *w, double took_us,
                         double fuzz_us)
{
    double expected = wp_calibration_us(c, w), by[WP_FACTS], believed, seen, all, off, share;

    if (!(took_us > 0) || !(took_us < 3.6e9) || !(wp_work_us(w) > 0)) {
        c->refused++;
        return false;
    }
    believed = variance(c, w, by);
    seen = c->noise * (pow(seen_share * expected, 2) + seen_us * seen_us) + fuzz_us * fuzz_us;
    all = believed + seen;
    off = took_us - expected;
    share = huber * sqrt(all) / fabs(off);
    if (share > 1)
        share = 1;
    c->clipped += share < 1;
    for (int i = 0; i < WP_FACTS; i++)
        c->fact[i] += by[i] / all * off * share;
    for (int i = 0; i < WP_FACTS; i++)
        for (int k = 0; k < WP_FACTS; k++)
            c->cov[i][k] -= share * by[i] * by[k] / all;
    c->noise =
        within(c->noise + 0.02 * (fmin(off * off / all, huber * huber) - 1) * c->noise, 0.1, 25);
    c->samples++;
    watch_shift(c, share<1, off> 0);
    keep_bounds(c);
    return true;
}

void wp_calibration_apply(const struct wp_calibration *c, const struct wp_profile *from,
                          struct wp_profile *to)
{
    *to = *from;
    to->a_us *= c->fact[WP_FACT_COMPUTE];
    to->b_us *= c->fact[WP_FACT_ATTENTION];
    to->tov_us *= c->fact[WP_FACT_STEPS];
    to->tw_us *= c->fact[WP_FACT_STEPS];
    to->e_us *= c->fact[WP_FACT_DECODING];
    to->d_us *= c->fact[WP_FACT_DECODING];
    to->t_c_us = c->fact[WP_FACT_CONSTANT] * 1000 * pace(from);
}

double wp_calibration_sd(const struct wp_calibration *c, enum wp_fact f)
{
    return c->cov[f][f] > 0 ? sqrt(c->cov[f][f]) : 0;
}

double wp_calibration_error(const struct wp_calibration *c, const struct wp_work *w)
{
    double by[WP_FACTS], us = wp_calibration_us(c, w);

    return us > 0 ? within(sqrt(variance(c, w, by)) / us, 0, 1) : 1;
}

/* ---- the interval ---- */

static size_t seen_of(const struct wp_interval *i)
{
    return i->n < WP_INTERVAL_SEEN ? (size_t)i->n : WP_INTERVAL_SEEN;
}

/* The logarithms of its two ends. */
static void ends(const struct wp_interval *i, double *low, double *high)
{
    size_t n = seen_of(i),
           out = (size_t)((double)(n + 1) * WP_INTERVAL_OUT / (WP_INTERVAL_SEEN + 1));

    if (out == 0)
        out = 1;
    *low = n ? (double)i->sorted[out - 1] : 0;
    *high = n ? (double)i->sorted[n - out] : 0;
    if (n < INTERVAL_FEW) {
        *low = fmin(*low, -M_LN2);
        *high = fmax(*high, M_LN2);
    }
}

void wp_interval_of(const struct wp_interval *i, double predicted_us, double *low_us,
                    double *high_us)
{
    double low, high;

    ends(i, &low, &high);
    *low_us = predicted_us * exp(low);
    *high_us = predicted_us * exp(high);
}

static size_t place_of(const struct wp_interval *i, size_t n, float x)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (i->sorted[mid] < x)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void drop(struct wp_interval *i, size_t n, float x)
{
    size_t at = place_of(i, n, x);

    memmove(&i->sorted[at], &i->sorted[at + 1], (n - at - 1) * sizeof x);
}

static void insert(struct wp_interval *i, size_t n, float x)
{
    size_t at = place_of(i, n, x);

    memmove(&i->sorted[at + 1], &i->sorted[at], (n - at) * sizeof x);
    i->sorted[at] = x;
}

int wp_interval_hear(struct wp_interval *i, double predicted_us, double actual_us)
{
    double low, high, off;
    size_t n = seen_of(i);
    int side;

    if (!(predicted_us > 0) || !(actual_us > 0) || !isfinite(predicted_us) || !isfinite(actual_us))
        return 0;
    off = within(log(actual_us / predicted_us), -5, 5);
    ends(i, &low, &high);
    side = off < low ? -1 : off > high ? 1 : 0;
    if (n == WP_INTERVAL_SEEN)
        drop(i, n--, i->seen[i->n % WP_INTERVAL_SEEN]);
    insert(i, n, (float)off);
    i->seen[i->n++ % WP_INTERVAL_SEEN] = (float)off;
    i->below += side < 0;
    i->above += side > 0;
    return side;
}

/* ---- samples ---- */

void wp_meter_first(struct wp_meter *m, struct wp_sample *s, const struct wp_profile *p,
                    uint64_t placed_us, uint64_t now_us, bool streamed)
{
    uint64_t since = s->queued && m->last_us > placed_us ? m->last_us : placed_us;
    struct wp_work w = wp_work_of(p, s->from, s->to, s->decoding, s->kv_tokens, false);
    double took = now_us > since ? (double)(now_us - since) : 0;

    w.part[WP_FACT_CONSTANT] = 0; /* the way there and back is no part of what is between two */
    if (!streamed) {              /* nobody knows when its prefill ended */
        *m = (struct wp_meter){0};
        return;
    }
    m->last_us = now_us;
    if (!s->queued)
        m->carried_us = 0;
    if (!s->queued)
        m->carried = (struct wp_work){.part = {0}};
    if (s->queued && s->to - s->from < SHORT_TOKENS) {
        m->carried_us += took;
        wp_work_add(&m->carried, &w);
        return;
    }
    s->ready = true;
    s->took_us = took + m->carried_us;
    s->with = m->carried;
    m->carried_us = 0;
    m->carried = (struct wp_work){.part = {0}};
}

bool wp_calibration_take(struct wp_calibration *c, const struct wp_sample *s,
                         const struct wp_profile *p, bool exact)
{
    struct wp_work w =
        wp_work_of(p, s->from, s->to, s->decoding, s->kv_tokens, !s->queued && s->decoding > 0);
    double step = c->fact[WP_FACT_COMPUTE] * p->a_us * p->budget / pace(p), fuzz;

    if (!s->ready)
        return false;
    if (s->queued)
        w.part[WP_FACT_CONSTANT] = 0;
    wp_work_add(&w, &s->with);
    fuzz = s->queued ? fmin(step, wp_calibration_us(c, &w)) / 2 : 0;
    if (!exact)
        fuzz += 0.15 * wp_calibration_us(c, &w);
    return wp_calibration_hear(c, &w, s->took_us, fuzz);
}
