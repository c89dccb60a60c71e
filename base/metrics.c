/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include "base/mem.h"
#include "base/metrics_impl.h"
#include "base/rng.h"

#include <assert.h>
#include <xxhash.h>

static struct wp_series sink; /* never written */

int wp_metrics_create(struct wp_metrics **out, struct wp_err *err)
{
    struct wp_metrics *m = wp_calloc(1, sizeof *m);

    if (!m)
        return wp_fail(err, WP_ENOMEM, "metrics: out of memory");
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        wp_free(m);
        return wp_fail(err, WP_ENOMEM, "metrics: no mutex");
    }
    m->seed = wp_rng_secret();
    m->last_family = &m->families;
    m->last_scrape = &m->scrapes;
    *out = m;
    return 0;
}

static void series_free(struct wp_series *s)
{
    if (!s)
        return;
    wp_free(s->labels);
    wp_free(s->first);
    wp_free(s);
}

static void family_free(struct wp_family *f)
{
    while (f->series) {
        struct wp_series *next = f->series->next;

        series_free(f->series);
        f->series = next;
    }
    series_free(f->other);
    wp_map_fini(&f->by_hash);
    for (size_t i = 0; i < f->n_labels; i++)
        wp_free(f->label[i]);
    wp_free(f->bounds);
    wp_free(f->help);
    wp_free(f->name);
    wp_free(f);
}

void wp_metrics_destroy(struct wp_metrics *m)
{
    if (!m)
        return;
    while (m->families) {
        struct wp_family *next = m->families->next;

        family_free(m->families);
        m->families = next;
    }
    while (m->scrapes) {
        struct wp_scrape *next = m->scrapes->next;

        wp_free(m->scrapes);
        m->scrapes = next;
    }
    pthread_mutex_destroy(&m->lock);
    wp_free(m);
}

/* values NULL: every label says "other". */
static int add_labels(struct wp_buf *b, const struct wp_family *f, const char *const values[])
{
    int rc = wp_buf_reserve(b, 128);

    for (size_t i = 0; rc == 0 && i < f->n_labels; i++) {
        if (i)
            rc = wp_buf_adds(b, ",");
        if (rc == 0)
            rc = wp_buf_adds(b, f->label[i]);
        if (rc == 0)
            rc = wp_buf_adds(b, "=\"");
        if (rc == 0)
            rc = wp_metrics_escape(b, values ? values[i] : "other", true);
        if (rc == 0)
            rc = wp_buf_adds(b, "\"");
    }
    return rc;
}

static struct wp_series *series_new(struct wp_family *f, struct wp_str labels, const char *first)
{
    size_t n = f->kind == WP_HISTOGRAM ? f->n_bounds + 1 : 0;
    struct wp_series *s = wp_calloc(1, sizeof *s + n * sizeof s->bucket[0]);

    if (!s)
        return NULL;
    s->family = f;
    s->labels = wp_strndup(labels.p, labels.n);
    s->first = first ? wp_strdup(first) : NULL;
    s->hash = XXH3_64bits_withSeed(labels.p, labels.n, f->registry->seed);
    if (!s->labels || (first && !s->first)) {
        series_free(s);
        return NULL;
    }
    return s;
}

static int set_labels(struct wp_family *f, const char *labels)
{
    struct wp_str rest = *labels ? wp_str_of(labels) : (struct wp_str){0}, part;

    while (wp_str_split(&rest, ',', &part)) {
        assert(f->n_labels < WP_LABELS_MAX && part.n > 0);
        f->label[f->n_labels] = wp_strndup(part.p, part.n);
        if (!f->label[f->n_labels])
            return WP_ENOMEM;
        f->n_labels++;
    }
    return 0;
}

static struct wp_family *family_new(struct wp_metrics *m, enum wp_metric_kind kind,
                                    const char *name, const char *help, const char *labels,
                                    const double bounds[], size_t n)
{
    struct wp_family *f = wp_calloc(1, sizeof *f);
    struct wp_buf other = {0};

    if (!f)
        return NULL;
    f->registry = m;
    f->kind = kind;
    f->last = &f->series;
    f->name = wp_strdup(name);
    f->help = wp_strdup(help);
    f->bounds = wp_memdup(bounds, n * sizeof *bounds);
    f->n_bounds = n;
    if (f->name && f->help && f->bounds && set_labels(f, labels) == 0 &&
        add_labels(&other, f, NULL) == 0)
        f->other = series_new(f, wp_buf_str(&other), f->n_labels ? "other" : NULL);
    wp_buf_fini(&other);
    if (!f->other) {
        family_free(f);
        return NULL;
    }
    return f;
}

static bool labels_agree(const struct wp_family *f, const char *labels)
{
    struct wp_str rest = *labels ? wp_str_of(labels) : (struct wp_str){0}, part;
    size_t i = 0;

    while (wp_str_split(&rest, ',', &part))
        if (i == f->n_labels || !wp_str_is(part, f->label[i++]))
            return false;
    return i == f->n_labels;
}

struct wp_family *wp_family(struct wp_metrics *m, enum wp_metric_kind kind, const char *name,
                            const char *help, const char *labels, const double bounds[], size_t n)
{
    struct wp_family *f;

    assert(kind == WP_HISTOGRAM || n == 0);
    for (size_t i = 1; i < n; i++)
        assert(bounds[i - 1] < bounds[i]);
    if (!m)
        return NULL;
    pthread_mutex_lock(&m->lock);
    for (f = m->families; f; f = f->next)
        if (strcmp(f->name, name) == 0)
            break;
    if (f) {
        assert(f->kind == kind && labels_agree(f, labels));
    } else {
        f = family_new(m, kind, name, help, labels, bounds, n);
        if (f) {
            *m->last_family = f;
            m->last_family = &f->next;
        }
    }
    pthread_mutex_unlock(&m->lock);
    return f;
}

static struct wp_series *other_of(struct wp_family *f)
{
    atomic_store_explicit(&f->other->shown, true, memory_order_relaxed);
    return f->other;
}

/* The series of these labels, made when it is not there; under the lock. */
static struct wp_series *series_get(struct wp_family *f, struct wp_str labels, const char *first)
{
    uint64_t hash = XXH3_64bits_withSeed(labels.p, labels.n, f->registry->seed), at = 0;
    struct wp_series *s;

    wp_map_get(&f->by_hash, hash, &at);
    for (s = (struct wp_series *)(uintptr_t)at; s; s = s->alike)
        if (wp_str_is(labels, s->labels))
            return s;
    if (wp_str_is(labels, f->other->labels) || f->n_series >= WP_SERIES_MAX)
        return other_of(f);
    s = series_new(f, labels, first);
    if (!s)
        return other_of(f);
    s->alike = (struct wp_series *)(uintptr_t)at;
    if (wp_map_put(&f->by_hash, hash, (uintptr_t)s) < 0) {
        series_free(s);
        return other_of(f);
    }
    atomic_store_explicit(&s->shown, true, memory_order_relaxed);
    *f->last = s;
    f->last = &s->next;
    f->n_series++;
    return s;
}

struct wp_series *wp_series(struct wp_family *f, const char *const values[])
{
    struct wp_buf labels = {0};
    struct wp_series *s;

    if (!f)
        return &sink;
    if (add_labels(&labels, f, values) < 0) {
        wp_buf_fini(&labels);
        return other_of(f);
    }
    pthread_mutex_lock(&f->registry->lock);
    s = series_get(f, wp_buf_str(&labels), f->n_labels ? values[0] : NULL);
    pthread_mutex_unlock(&f->registry->lock);
    wp_buf_fini(&labels);
    return s;
}

static void unhash(struct wp_family *f, struct wp_series *s)
{
    uint64_t at = 0;
    struct wp_series *head;

    wp_map_get(&f->by_hash, s->hash, &at);
    head = (struct wp_series *)(uintptr_t)at;
    if (head != s) {
        while (head->alike != s)
            head = head->alike;
        head->alike = s->alike;
    } else if (s->alike) {
        wp_map_put(&f->by_hash, s->hash, (uintptr_t)s->alike); /* replaces: cannot fail */
    } else {
        wp_map_del(&f->by_hash, s->hash);
    }
}

static void clear(struct wp_series *s)
{
    atomic_store(&s->shown, false);
    atomic_store(&s->whole, 0);
    atomic_store(&s->bits, 0);
    for (size_t i = 0; s->family->kind == WP_HISTOGRAM && i <= s->family->n_bounds; i++)
        atomic_store(&s->bucket[i], 0);
}

void wp_series_drop(struct wp_family *f, const char *value)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->registry->lock);
    for (struct wp_series **at = &f->series; *at;) {
        struct wp_series *s = *at;

        if (!s->first || strcmp(s->first, value) != 0) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (f->last == &s->next)
            f->last = at;
        unhash(f, s);
        series_free(s);
        f->n_series--;
    }
    if (f->other->first && strcmp(f->other->first, value) == 0)
        clear(f->other);
    pthread_mutex_unlock(&f->registry->lock);
}

int wp_metrics_on_scrape(struct wp_metrics *m, void (*fn)(void *arg), void *arg)
{
    struct wp_scrape *s = wp_malloc(sizeof *s);

    if (!s)
        return WP_ENOMEM;
    *s = (struct wp_scrape){NULL, fn, arg};
    pthread_mutex_lock(&m->lock);
    *m->last_scrape = s;
    m->last_scrape = &s->next;
    pthread_mutex_unlock(&m->lock);
    return 0;
}
