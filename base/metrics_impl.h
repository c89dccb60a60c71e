/* SPDX-License-Identifier: Apache-2.0 */
/* base/metrics_impl.h - what metrics.c (who is there) and metrics_page.c (what they hold, and how
 * it is written) share. */
#ifndef WP_BASE_METRICS_IMPL_H
#define WP_BASE_METRICS_IMPL_H

#include "base/map.h"
#include "base/metrics.h"

#include <pthread.h>
#include <stdatomic.h>

/* A double that threads add to is kept as its bits: C11 has no atomic addition of doubles. */
struct wp_series {
    struct wp_family *family; /* NULL: the sink, which is never written */
    struct wp_series *next;   /* in order of creation */
    struct wp_series *alike;  /* others of the same hash */
    char *labels;             /* as rendered: worker="w1",kind="x" */
    char *first;              /* the first label's value, NULL without labels */
    uint64_t hash;
    _Atomic bool shown;        /* false: the "other" series before it is needed */
    _Atomic uint64_t whole;    /* a counter's whole steps */
    _Atomic uint64_t bits;     /* a counter's fractions, a gauge's value, a histogram's sum */
    _Atomic uint64_t bucket[]; /* a histogram's, not cumulative; the last one is +Inf */
};

struct wp_family {
    struct wp_family *next; /* in order of registration */
    struct wp_metrics *registry;
    enum wp_metric_kind kind;
    char *name, *help;
    char *label[WP_LABELS_MAX];
    size_t n_labels;
    double *bounds;
    size_t n_bounds;
    struct wp_series *series, **last;
    struct wp_series *other; /* made beforehand, so that it is there when memory is not */
    size_t n_series;         /* without other */
    struct wp_map by_hash;   /* hash of the labels -> first of those alike */
};

struct wp_scrape {
    struct wp_scrape *next;
    void (*fn)(void *arg);
    void *arg;
};

struct wp_metrics {
    pthread_mutex_t lock; /* guards all but the atomics of a series */
    uint64_t seed;        /* label values may come from outside: buckets cannot be aimed at */
    struct wp_family *families, **last_family;
    struct wp_scrape *scrapes, **last_scrape;
};

/* Backslash and newline are escaped everywhere, quotes in label values; what is not UTF-8 would
 * cost the whole page. */
int wp_metrics_escape(struct wp_buf *b, const char *text, bool quotes);

#endif
