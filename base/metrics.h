/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/metrics.h - counters, gauges and histograms, written as Prometheus text.
 * A family has a name, a help line and label names; a series is a family with label values.  Get a
 * series once, keep the pointer, and count on it: that is one relaxed atomic and never fails.  A
 * series exists from the moment it is got, with the value 0, and goes when it is dropped: absence
 * in monitoring means absence. A name ends in its unit, a counter's in _total.  Label values come
 * from small sets; a family holds at most WP_SERIES_MAX series and counts the rest on one series
 * whose labels all say "other". Threads: any, for everything but create and destroy.  Owner: the
 * registry owns families and series.
 */
#ifndef WP_BASE_METRICS_H
#define WP_BASE_METRICS_H

#include "base/err.h"
#include "base/str.h"

enum wp_metric_kind { WP_COUNTER, WP_GAUGE, WP_HISTOGRAM };
enum { WP_SERIES_MAX = 20000, WP_LABELS_MAX = 4 };

struct wp_metrics;
struct wp_family;
struct wp_series;

int wp_metrics_create(struct wp_metrics **out, struct wp_err *err);
void wp_metrics_destroy(struct wp_metrics *m);

/*
 * Registers a family.  labels: comma-separated names ("worker,kind"), "" for none.  bounds[n]: a
 * histogram's upper bounds, rising, +Inf is added.  Registering the same name again returns the
 * first one (kind and labels must agree: assert).  Errors: WP_ENOMEM -> NULL; a NULL family may be
 * used everywhere and counts nowhere.
 */
struct wp_family *wp_family(struct wp_metrics *m, enum wp_metric_kind kind, const char *name,
                            const char *help, const char *labels, const double bounds[], size_t n);

/* values: one string a label, in order.  Never NULL: out of memory or past the cap gives the
 * "other" series or a sink that nobody reads. */
struct wp_series *wp_series(struct wp_family *f, const char *const values[]);
#define WP_SERIES(f, ...) wp_series((f), (const char *const[]){__VA_ARGS__})
#define WP_SERIES0(f)     wp_series((f), NULL)

/* Removes every series of f whose first label is value.  The caller makes sure that nobody still
 * counts on it. */
void wp_series_drop(struct wp_family *f, const char *value);

void wp_count(struct wp_series *s, uint64_t n); /* counters, by whole steps */
void wp_count_f(struct wp_series *s, double x); /* counters in fractions (seconds) */
void wp_gauge_set(struct wp_series *s, double x);
void wp_gauge_add(struct wp_series *s, double x);  /* may be negative */
void wp_observe(struct wp_series *s, double x);    /* histograms; NaN is ignored */
double wp_series_value(const struct wp_series *s); /* counter or gauge; a histogram's count */

/* fn runs before each rendering, to set gauges that are cheaper to compute than to keep.  On the
 * rendering thread. */
int wp_metrics_on_scrape(struct wp_metrics *m, void (*fn)(void *arg), void *arg);

/* Appends the whole page, families in order of registration, HELP and TYPE lines first.  Errors:
 * WP_ENOMEM. */
int wp_metrics_render(struct wp_metrics *m, struct wp_buf *out);

#endif
