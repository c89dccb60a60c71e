/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/report.h - the table that `load` and `replay` print, from one sample a request.
 * Shares are of prompt tokens; percentile p of n sorted figures is the one at index floor(p n), as in the laboratory; a request is
 * within the SLO when TTFT <= max(slo_ttft_s, slo_ttft_factor x its own cold prefill) and its mean ITL <= slo_itl_s; one that failed is not,
 * and counts in nothing else.  Load imbalance is max / mean over the workers of the prompt tokens that each had to compute.
 * Times are what the caller says they are: a run at --speed 6 multiplies before it adds, when engine time is wanted.
 * Threads: one.  Memory: 24 bytes a sample; time between tokens goes into a histogram (buckets of 2 %).
 */
#ifndef WP_SIM_REPORT_H
#define WP_SIM_REPORT_H

#include "base/err.h"
#include "base/str.h"

enum wp_hit { /* where prompt tokens came from; the rest was recomputed */
    WP_HIT_GPU,
    WP_HIT_CPU,
    WP_HIT_DISK,
    WP_HIT_REMOTE,
    WP_HIT_FETCHED, /* from another worker or a store, for this request */
    WP_HIT_CACHED,  /* from cache, tier not known: usage says so and nothing more */
    WP_HITS
};

struct wp_report_conf {
    const char *label; /* "price", "round_robin"; copied */
    size_t workers;    /* of the fleet; 0: as many as samples name */
    double slo_ttft_s, slo_ttft_factor, slo_itl_s; /* 0: 5, 2, 0.15 */
};

struct wp_sample {
    const char *worker;    /* id; NULL: not known.  Copied when new. */
    uint32_t prompt;       /* tokens */
    uint32_t output;       /* tokens that came */
    uint32_t hit[WP_HITS]; /* prompt tokens; their sum at most prompt */
    double ttft_s, e2e_s;  /* from arrival */
    double itl_s;          /* mean time between tokens; 0 when output < 2 */
    double cold_s;         /* its cold prefill, queue and cache apart; 0: not known */
    uint64_t bytes_fetched;
    bool failed;
};

struct wp_report; /* opaque: sim/report.c */

int wp_report_create(struct wp_report **out, const struct wp_report_conf *conf, struct wp_err *err);
void wp_report_destroy(struct wp_report *r);

int wp_report_add(struct wp_report *r, const struct wp_sample *s); /* Errors: WP_ENOMEM; the sample is not counted */
/*
 * One time between two tokens.  A caller that never calls it gets ITL percentiles over the samples' means instead.
 * Never fails or allocates.
 */
void wp_report_gap(struct wp_report *r, double s);

/* How long it took in all, for rates; without it the report has none. */
void wp_report_span(struct wp_report *r, double span_s);

/* The figures, as printed. */
struct wp_figures {
    uint64_t requests, errors;
    double hit, share[WP_HITS], recomputed; /* shares of prompt tokens, 0..1; hit is the sum of share */
    double ttft_mean_s, ttft_p50_s, ttft_p90_s, ttft_p99_s;
    double itl_p50_s, itl_p99_s, e2e_p99_s;
    double slo;       /* share of requests, failed ones included below the line, 0..1 */
    double imbalance; /* 1 is even; 0 when no worker is known */
    uint64_t bytes_fetched, prompt_tokens, output_tokens;
    double span_s, requests_per_s; /* 0: not known */
};
void wp_report_figures(struct wp_report *r, struct wp_figures *f); /* Cost: sorts the samples */

/* The figures one by one: as the JSON names and writes them, and as people read them. */
enum { WP_REPORT_ROWS = 24 };
struct wp_report_row {
    const char *key, *label;
    char exact[32], text[32];
};
size_t wp_report_rows(struct wp_report *r, struct wp_report_row row[WP_REPORT_ROWS]);
/* Of all requests that did not fail, the smallest first; of those with two tokens or more.  Theirs until the next call of anything. */
const double *wp_report_ttft(struct wp_report *r, size_t *n);
const double *wp_report_itl(struct wp_report *r, size_t *n);

/* Appends the table as text, a figure a line.  Errors: WP_ENOMEM. */
int wp_report_text(struct wp_report *r, struct wp_buf *out);
/* Appends one JSON object, units in the key names.  Errors: WP_ENOMEM. */
int wp_report_json(struct wp_report *r, struct wp_buf *out);
int wp_report_save(struct wp_report *r, const char *path, struct wp_err *err); /* that JSON into a file; "-": stdout */
/* Appends the tables of n reports side by side.  Errors: WP_ENOMEM. */
int wp_report_beside(struct wp_report *const r[], size_t n, struct wp_buf *out);

/*
 * Appends reports that wp_report_save wrote, side by side, and each one's ratio to the first where a ratio says something.
 * n from 1 to 8.  Errors: WP_EINVAL, WP_ENOENT, WP_ESYNTAX, WP_ENOMEM, naming the file.
 */
int wp_report_compare(const char *const path[], size_t n, struct wp_buf *out, struct wp_err *err);

#endif
