/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include "base/metrics_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double of_bits(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static void add_double(_Atomic uint64_t *to, double x)
{
    uint64_t was = atomic_load_explicit(to, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(to, &was, bits_of(of_bits(was) + x),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

static double read_double(const _Atomic uint64_t *from)
{
    return of_bits(atomic_load_explicit(from, memory_order_relaxed));
}

void wp_count(struct wp_series *s, uint64_t n)
{
    if (!s->family)
        return;
    assert(s->family->kind == WP_COUNTER);
    atomic_fetch_add_explicit(&s->whole, n, memory_order_relaxed);
}

void wp_count_f(struct wp_series *s, double x)
{
    if (!s->family || !(x > 0)) /* a counter never falls; NaN would stay for ever */
        return;
    assert(s->family->kind == WP_COUNTER);
    add_double(&s->bits, x);
}

void wp_gauge_set(struct wp_series *s, double x)
{
    if (!s->family)
        return;
    assert(s->family->kind == WP_GAUGE);
    atomic_store_explicit(&s->bits, bits_of(x), memory_order_relaxed);
}

void wp_gauge_add(struct wp_series *s, double x)
{
    if (!s->family)
        return;
    assert(s->family->kind == WP_GAUGE);
    add_double(&s->bits, x);
}

void wp_observe(struct wp_series *s, double x)
{
    const struct wp_family *f = s->family;
    size_t i = 0;

    if (!f || isnan(x))
        return;
    assert(f->kind == WP_HISTOGRAM);
    while (i < f->n_bounds && x > f->bounds[i])
        i++;
    add_double(&s->bits, x);
    atomic_fetch_add_explicit(&s->bucket[i], 1, memory_order_relaxed);
}

double wp_series_value(const struct wp_series *s)
{
    uint64_t count = 0;

    if (!s->family)
        return 0;
    if (s->family->kind == WP_GAUGE)
        return read_double(&s->bits);
    if (s->family->kind == WP_COUNTER)
        return (double)atomic_load_explicit(&s->whole, memory_order_relaxed) +
               read_double(&s->bits);
    for (size_t i = 0; i <= s->family->n_bounds; i++)
        count += atomic_load_explicit(&s->bucket[i], memory_order_relaxed);
    return (double)count;
}

int wp_metrics_escape(struct wp_buf *b, const char *text, bool quotes)
{
    struct wp_str s = wp_str_of(text);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s.n;) {
        size_t n = wp_utf8_len(s.p + i, s.n - i);

        if (s.p[i] == '\n')
            rc = wp_buf_adds(b, "\\n");
        else if (s.p[i] == '\\' || (quotes && s.p[i] == '"'))
            rc = wp_buf_printf(b, "\\%c", s.p[i]);
        else
            rc = n ? wp_buf_add(b, s.p + i, n) : wp_buf_adds(b, "\xEF\xBF\xBD");
        i += n ? n : 1;
    }
    return rc;
}

/* The shortest text that reads back as the same number. */
static const char *number(char out[40], double x)
{
    if (isnan(x))
        return "NaN";
    if (isinf(x))
        return x > 0 ? "+Inf" : "-Inf";
    for (int digits = 15; digits <= 17; digits++) {
        double back;

        snprintf(out, 40, "%.*g", digits, x);
        if (wp_str_double(wp_str_of(out), &back) && bits_of(back) == bits_of(x))
            break;
    }
    return out;
}

static int add_sample(struct wp_buf *b, const char *name, const char *suffix,
                      const struct wp_series *s, const char *le, const char *value)
{
    bool braces = *s->labels || le;
    int rc = wp_buf_printf(b, "%s%s%s", name, suffix, braces ? "{" : "");

    if (rc == 0)
        rc = wp_buf_adds(b, s->labels); /* never through printf: labels may be long */
    if (rc == 0 && le)
        rc = wp_buf_printf(b, "%sle=\"%s\"", *s->labels ? "," : "", le);
    return rc < 0 ? rc : wp_buf_printf(b, "%s %s\n", braces ? "}" : "", value);
}

static int add_histogram(struct wp_buf *b, const struct wp_family *f, const struct wp_series *s)
{
    uint64_t count = 0;
    char le[40], text[40];
    int rc = 0;

    for (size_t i = 0; rc == 0 && i <= f->n_bounds; i++) {
        count += atomic_load_explicit(&s->bucket[i], memory_order_relaxed);
        snprintf(text, sizeof text, "%" PRIu64, count);
        rc = add_sample(b, f->name, "_bucket", s,
                        number(le, i < f->n_bounds ? f->bounds[i] : INFINITY), text);
    }
    if (rc == 0)
        rc = add_sample(b, f->name, "_sum", s, NULL, number(le, read_double(&s->bits)));
    /* the count is what the buckets add up to, also while others observe */
    return rc < 0 ? rc : add_sample(b, f->name, "_count", s, NULL, text);
}

static int add_series(struct wp_buf *b, const struct wp_family *f, const struct wp_series *s)
{
    uint64_t whole = atomic_load_explicit(&s->whole, memory_order_relaxed);
    double x = read_double(&s->bits);
    char text[40];

    if (!atomic_load_explicit(&s->shown, memory_order_relaxed))
        return 0;
    if (f->kind == WP_HISTOGRAM)
        return add_histogram(b, f, s);
    if (f->kind == WP_COUNTER && x == 0) {
        snprintf(text, sizeof text, "%" PRIu64, whole); /* exact past 2^53 */
        return add_sample(b, f->name, "", s, NULL, text);
    }
    return add_sample(b, f->name, "", s, NULL,
                      number(text, f->kind == WP_COUNTER ? (double)whole + x : x));
}

static int add_family(struct wp_buf *b, const struct wp_family *f)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    int rc = wp_buf_printf(b, "# HELP %s ", f->name);

    if (rc == 0)
        rc = wp_metrics_escape(b, f->help, false);
    if (rc == 0)
        rc = wp_buf_printf(b, "\n# TYPE %s %s\n", f->name, kinds[f->kind]);
    for (const struct wp_series *s = f->series; rc == 0 && s; s = s->next)
        rc = add_series(b, f, s);
    return rc < 0 ? rc : add_series(b, f, f->other);
}

int wp_metrics_render(struct wp_metrics *m, struct wp_buf *out)
{
    size_t start = out->n;
    struct wp_scrape *s;
    int rc = 0;

    pthread_mutex_lock(&m->lock);
    for (s = m->scrapes; s; s = s->next) {
        pthread_mutex_unlock(&m->lock); /* fn may get series; an entry is never removed */
        s->fn(s->arg);
        pthread_mutex_lock(&m->lock);
    }
    for (const struct wp_family *f = m->families; rc == 0 && f; f = f->next)
        rc = add_family(out, f);
    pthread_mutex_unlock(&m->lock);
    if (rc < 0)
        out->n = start;
    return rc;
}
