/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/report.h"
#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { GAP_BUCKETS = 1200, WORKERS_MAX = 1024, FILES_MAX = 8 };

static const double gap_first_s = 1e-6, gap_step = 1.02;

struct series {
    double *x;
    size_t n, cap;
};

struct worker {
    char *name;
    double computed; /* prompt tokens */
};

struct wp_report {
    char *label;
    struct wp_report_conf conf;
    struct series ttft, e2e, itl;
    uint64_t gaps, gap[GAP_BUCKETS];
    struct worker *worker;
    size_t workers;
    uint64_t requests, errors, within_slo, bytes_fetched, prompt, output, hit[WP_HITS];
    double span_s;
};

/* One row a figure, in the order of print: the table drives text, JSON and comparison alike. */
enum kind { COUNT, SHARE, SECONDS, RATIO, BYTES, RATE };

struct row {
    const char *key; /* of the JSON */
    const char *label;
    enum kind kind;
    size_t at; /* in struct wp_figures */
    enum { PLAIN, COMPARED } compared;
};

/* clang-format off */
#define AT(member) offsetof(struct wp_figures, member)
static const struct row rows[] = {
    {"requests",             "requests",          COUNT,   AT(requests),              PLAIN},
    {"errors",               "errors",            COUNT,   AT(errors),                PLAIN},
    {"prompt_tokens",        "prompt tokens",     COUNT,   AT(prompt_tokens),         PLAIN},
    {"output_tokens",        "output tokens",     COUNT,   AT(output_tokens),         PLAIN},
    {"hit_share",            "token hit share",   SHARE,   AT(hit),                   COMPARED},
    {"hit_gpu_share",        "  gpu",             SHARE,   AT(share[WP_HIT_GPU]),     PLAIN},
    {"hit_cpu_share",        "  cpu",             SHARE,   AT(share[WP_HIT_CPU]),     PLAIN},
    {"hit_disk_share",       "  disk",            SHARE,   AT(share[WP_HIT_DISK]),    PLAIN},
    {"hit_remote_share",     "  remote",          SHARE,   AT(share[WP_HIT_REMOTE]),  PLAIN},
    {"hit_fetched_share",    "  fetched",         SHARE,   AT(share[WP_HIT_FETCHED]), PLAIN},
    {"hit_any_tier_share",   "  tier not known",  SHARE,   AT(share[WP_HIT_CACHED]),  PLAIN},
    {"recomputed_share",     "recomputed",        SHARE,   AT(recomputed),            COMPARED},
    {"ttft_mean_s",          "TTFT mean",         SECONDS, AT(ttft_mean_s),           COMPARED},
    {"ttft_p50_s",           "TTFT p50",          SECONDS, AT(ttft_p50_s),            COMPARED},
    {"ttft_p90_s",           "TTFT p90",          SECONDS, AT(ttft_p90_s),            COMPARED},
    {"ttft_p99_s",           "TTFT p99",          SECONDS, AT(ttft_p99_s),            COMPARED},
    {"itl_p50_s",            "ITL p50",           SECONDS, AT(itl_p50_s),             COMPARED},
    {"itl_p99_s",            "ITL p99",           SECONDS, AT(itl_p99_s),             COMPARED},
    {"e2e_p99_s",            "E2E p99",           SECONDS, AT(e2e_p99_s),             COMPARED},
    {"slo_share",            "within SLO",        SHARE,   AT(slo),                   COMPARED},
    {"load_imbalance_ratio", "load max/mean",     RATIO,   AT(imbalance),             PLAIN},
    {"bytes_fetched",        "bytes fetched",     BYTES,   AT(bytes_fetched),         PLAIN},
    {"span_s",               "duration",          SECONDS, AT(span_s),                PLAIN},
    {"requests_per_s",       "requests a second", RATE,    AT(requests_per_s),        PLAIN},
};
/* clang-format on */
enum { ROWS = sizeof rows / sizeof rows[0] };

static double figure(const struct wp_figures *f, const struct row *row)
{
    const char *at = (const char *)f + row->at;

    if (row->kind == COUNT || row->kind == BYTES)
        return (double)*(const uint64_t *)at;
    return *(const double *)at;
}

static int series_room(struct series *s)
{
    size_t cap = s->cap ? 2 * s->cap : 256;
    double *x;

    if (s->n < s->cap)
        return 0;
    x = wp_realloc(s->x, cap * sizeof *x);
    if (!x)
        return WP_ENOMEM;
    s->x = x;
    s->cap = cap;
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of a sorted series. */
static double percentile(const struct series *s, double p)
{
    size_t i = (size_t)(p * (double)s->n);

    if (s->n == 0)
        return 0;
    return s->x[i < s->n ? i : s->n - 1];
}

static double gap_percentile(const struct wp_report *r, double p)
{
    uint64_t want = (uint64_t)(p * (double)r->gaps), seen = 0;

    for (size_t i = 0; i < GAP_BUCKETS; i++) {
        seen += r->gap[i];
        if (seen > want)
            return gap_first_s * pow(gap_step, (double)i + 0.5);
    }
    return 0;
}

int wp_report_create(struct wp_report **out, const struct wp_report_conf *conf, struct wp_err *err)
{
    struct wp_report *r = wp_calloc(1, sizeof *r);

    if (!r)
        return wp_fail(err, WP_ENOMEM, "out of memory for a report");
    r->conf = *conf;
    r->conf.slo_ttft_s = conf->slo_ttft_s > 0 ? conf->slo_ttft_s : 5;
    r->conf.slo_ttft_factor = conf->slo_ttft_factor > 0 ? conf->slo_ttft_factor : 2;
    r->conf.slo_itl_s = conf->slo_itl_s > 0 ? conf->slo_itl_s : 0.15;
    r->label = wp_strdup(conf->label ? conf->label : "");
    if (!r->label) {
        wp_free(r);
        return wp_fail(err, WP_ENOMEM, "out of memory for a report");
    }
    *out = r;
    return 0;
}

void wp_report_destroy(struct wp_report *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->workers; i++)
        wp_free(r->worker[i].name);
    wp_free(r->worker);
    wp_free(r->ttft.x);
    wp_free(r->e2e.x);
    wp_free(r->itl.x);
    wp_free(r->label);
    wp_free(r);
}

/* The worker called name, made when new; past WORKERS_MAX the last one stands for the rest. */
static struct worker *worker_of(struct wp_report *r, const char *name)
{
    struct worker *w;

    for (size_t i = 0; i < r->workers; i++) {
        if (strcmp(r->worker[i].name, name) == 0)
            return &r->worker[i];
    }
    if (r->workers == WORKERS_MAX)
        return &r->worker[WORKERS_MAX - 1];
    if ((r->workers & (r->workers - 1)) == 0) { /* full at each power of two */
        w = wp_realloc(r->worker, (r->workers ? 2 * r->workers : 1) * sizeof *w);
        if (!w)
            return NULL;
        r->worker = w;
    }
    w = &r->worker[r->workers];
    w->computed = 0;
    w->name = wp_strdup(name);
    if (!w->name)
        return NULL;
    r->workers++;
    return w;
}

static bool within_slo(const struct wp_report *r, const struct wp_sample *s)
{
    double limit = fmax(r->conf.slo_ttft_s, r->conf.slo_ttft_factor * s->cold_s);

    return s->ttft_s <= limit && (s->output < 2 || s->itl_s <= r->conf.slo_itl_s);
}

int wp_report_add(struct wp_report *r, const struct wp_sample *s)
{
    struct worker *w = NULL;
    uint64_t hit = 0;

    if (s->failed) {
        r->requests++;
        r->errors++;
        return 0;
    }
    if (series_room(&r->ttft) < 0 || series_room(&r->e2e) < 0 || series_room(&r->itl) < 0)
        return WP_ENOMEM;
    if (s->worker && s->worker[0]) {
        w = worker_of(r, s->worker);
        if (!w)
            return WP_ENOMEM;
    }
    for (size_t i = 0; i < WP_HITS; i++) {
        r->hit[i] += s->hit[i];
        hit += s->hit[i];
    }
    if (w && hit < s->prompt)
        w->computed += (double)(s->prompt - hit);
    r->requests++;
    r->within_slo += within_slo(r, s);
    r->bytes_fetched += s->bytes_fetched;
    r->prompt += s->prompt;
    r->output += s->output;
    r->ttft.x[r->ttft.n++] = s->ttft_s;
    r->e2e.x[r->e2e.n++] = s->e2e_s;
    if (s->output > 1)
        r->itl.x[r->itl.n++] = s->itl_s;
    return 0;
}

void wp_report_gap(struct wp_report *r, double s)
{
    double i = s > gap_first_s ? log(s / gap_first_s) / log(gap_step) : 0;

    r->gap[i < GAP_BUCKETS - 1 ? (size_t)i : GAP_BUCKETS - 1]++;
    r->gaps++;
}

void wp_report_span(struct wp_report *r, double span_s)
{
    r->span_s = span_s;
}

static double imbalance(const struct wp_report *r)
{
    size_t n = r->workers > r->conf.workers ? r->workers : r->conf.workers;
    double most = 0, sum = 0;

    for (size_t i = 0; i < r->workers; i++) {
        most = fmax(most, r->worker[i].computed);
        sum += r->worker[i].computed;
    }
    return sum > 0 ? most * (double)n / sum : 0;
}

static void shares(const struct wp_report *r, struct wp_figures *f)
{
    double prompt = r->prompt ? (double)r->prompt : 1;

    for (size_t i = 0; i < WP_HITS; i++) {
        f->share[i] = (double)r->hit[i] / prompt;
        f->hit += f->share[i];
    }
    f->recomputed = r->prompt ? fmax(0, 1 - f->hit) : 0;
}

void wp_report_figures(struct wp_report *r, struct wp_figures *f)
{
    double sum = 0;

    *f = (struct wp_figures){
        .requests = r->requests,
        .errors = r->errors,
        .bytes_fetched = r->bytes_fetched,
        .prompt_tokens = r->prompt,
        .output_tokens = r->output,
        .imbalance = imbalance(r),
        .span_s = r->span_s,
    };
    shares(r, f);
    if (r->ttft.n > 0)
        qsort(r->ttft.x, r->ttft.n, sizeof r->ttft.x[0], by_size);
    if (r->e2e.n > 0)
        qsort(r->e2e.x, r->e2e.n, sizeof r->e2e.x[0], by_size);
    if (r->itl.n > 0)
        qsort(r->itl.x, r->itl.n, sizeof r->itl.x[0], by_size);
    for (size_t i = 0; i < r->ttft.n; i++)
        sum += r->ttft.x[i];
    f->ttft_mean_s = r->ttft.n ? sum / (double)r->ttft.n : 0;
    f->ttft_p50_s = percentile(&r->ttft, 0.5);
    f->ttft_p90_s = percentile(&r->ttft, 0.9);
    f->ttft_p99_s = percentile(&r->ttft, 0.99);
    f->itl_p50_s = r->gaps ? gap_percentile(r, 0.5) : percentile(&r->itl, 0.5);
    f->itl_p99_s = r->gaps ? gap_percentile(r, 0.99) : percentile(&r->itl, 0.99);
    f->e2e_p99_s = percentile(&r->e2e, 0.99);
    f->slo = r->requests ? (double)r->within_slo / (double)r->requests : 0;
    if (r->span_s > 0)
        f->requests_per_s = (double)r->requests / r->span_s;
}

/* A figure as people read it: 0.123 s, 34.7 %, 12.3 GB. */
static void cell(char out[32], enum kind kind, double x)
{
    switch (kind) {
    case COUNT:
        snprintf(out, 32, "%.0f", x);
        break;
    case SHARE:
        snprintf(out, 32, "%.1f %%", 100 * x);
        break;
    case SECONDS:
        snprintf(out, 32, x < 0.1 ? "%.4f s" : x < 100 ? "%.3f s" : "%.1f s", x);
        break;
    case RATIO:
    case RATE:
        snprintf(out, 32, "%.2f", x);
        break;
    case BYTES:
        snprintf(out, 32, "%.2f GB", x / 1e9);
        break;
    }
}

static void exactly(char out[32], enum kind kind, double x)
{
    snprintf(out, 32, kind == COUNT || kind == BYTES ? "%.0f" : "%.9g", x);
}

/* Rows that say nothing are left out of the text: tiers that nobody has, figures that nobody took.
 */
static bool row_is_silent(const struct row *row, double x)
{
    bool detail = row->label[0] == ' ' || row->kind == RATE || row->kind == RATIO;

    return x == 0 && (detail || row->at == AT(span_s));
}

int wp_report_text(struct wp_report *r, struct wp_buf *out)
{
    struct wp_figures f;
    char text[32];
    int rc = wp_buf_printf(out, "%-18s %14s\n", "", r->label);

    wp_report_figures(r, &f);
    for (size_t i = 0; i < ROWS && rc == 0; i++) {
        double x = figure(&f, &rows[i]);

        if (row_is_silent(&rows[i], x))
            continue;
        cell(text, rows[i].kind, x);
        rc = wp_buf_printf(out, "%-18s %14s\n", rows[i].label, text);
    }
    return rc;
}

size_t wp_report_rows(struct wp_report *r, struct wp_report_row row[WP_REPORT_ROWS])
{
    struct wp_figures f;

    _Static_assert((int)ROWS == (int)WP_REPORT_ROWS, "all of them");
    wp_report_figures(r, &f);
    for (size_t i = 0; i < ROWS; i++) {
        double x = figure(&f, &rows[i]);

        row[i].key = rows[i].key;
        row[i].label = rows[i].label;
        exactly(row[i].exact, rows[i].kind, x);
        cell(row[i].text, rows[i].kind, x);
    }
    return ROWS;
}

static const double *sorted(struct series *s, size_t *n)
{
    if (s->n > 0)
        qsort(s->x, s->n, sizeof s->x[0], by_size);
    *n = s->n;
    return s->x;
}

const double *wp_report_ttft(struct wp_report *r, size_t *n)
{
    return sorted(&r->ttft, n);
}

const double *wp_report_itl(struct wp_report *r, size_t *n)
{
    return sorted(&r->itl, n);
}

int wp_report_json(struct wp_report *r, struct wp_buf *out)
{
    char exact[32];
    struct wp_figures f;
    int rc;

    wp_report_figures(r, &f);
    rc = wp_buf_adds(out, "{\"label\": ");
    if (rc == 0)
        rc = wp_buf_json(out, wp_str_of(r->label));
    for (size_t i = 0; i < ROWS && rc == 0; i++) {
        exactly(exact, rows[i].kind, figure(&f, &rows[i]));
        rc = wp_buf_printf(out, ",\n \"%s\": %s", rows[i].key, exact);
    }
    return rc < 0 ? rc : wp_buf_adds(out, "}\n");
}

int wp_report_save(struct wp_report *r, const char *path, struct wp_err *err)
{
    bool std = strcmp(path, "-") == 0;
    struct wp_buf b = {0};
    FILE *f = NULL;
    int rc = wp_report_json(r, &b);

    if (rc < 0) {
        wp_fail(err, rc, "%s: %s", path, wp_strerror(rc));
        goto fini;
    }
    f = std ? stdout : fopen(path, "w");
    if (!f) {
        rc = wp_fail(err, -errno, "%s: %s", path, wp_strerror(-errno));
        goto fini;
    }
    errno = 0;
    if (fwrite(b.p, 1, b.n, f) != b.n || fflush(f) != 0)
        rc = wp_fail(err, errno ? -errno : -EIO, "%s: cannot write", path);
    if (!std && fclose(f) != 0 && rc == 0)
        rc = wp_fail(err, -errno, "%s: %s", path, wp_strerror(-errno));
fini:
    wp_buf_fini(&b);
    return rc;
}

/* One report read back: its label and a number a row, NaN where it has none. */
struct column {
    char label[64];
    double x[ROWS];
};

static int column_read(struct column *c, const char *path, struct wp_err *err)
{
    json_error_t why;
    FILE *f = fopen(path, "r");
    json_t *root;

    if (!f)
        return wp_fail(err, -errno, "%s: %s", path, wp_strerror(-errno));
    root = json_loadf(f, 0, &why);
    fclose(f);
    if (!root)
        return wp_fail(err, WP_ESYNTAX, "%s:%d: %s", path, why.line, why.text);
    if (!json_is_object(root) || !json_is_number(json_object_get(root, "requests"))) {
        json_decref(root);
        return wp_fail(err, WP_EINVAL, "%s: want a report of warmpath load or replay", path);
    }
    snprintf(c->label, sizeof c->label, "%s",
             json_is_string(json_object_get(root, "label"))
                 ? json_string_value(json_object_get(root, "label"))
                 : path);
    for (size_t i = 0; i < ROWS; i++) {
        json_t *v = json_object_get(root, rows[i].key);

        c->x[i] = json_is_number(v) ? json_number_value(v) : NAN;
    }
    json_decref(root);
    return 0;
}

static int compare_row(const struct column c[], size_t n, size_t i, bool ratios, struct wp_buf *out)
{
    bool silent = true;
    char text[32];
    int rc;

    for (size_t k = 0; k < n; k++)
        silent = silent && (isnan(c[k].x[i]) || row_is_silent(&rows[i], c[k].x[i]));
    if (silent)
        return 0;
    rc = wp_buf_printf(out, "%-18s", rows[i].label);
    for (size_t k = 0; k < n && rc == 0; k++) {
        cell(text, rows[i].kind, isnan(c[k].x[i]) ? 0 : c[k].x[i]);
        rc = wp_buf_printf(out, " %14s", isnan(c[k].x[i]) ? "-" : text);
        if (rc == 0 && ratios && k > 0 && rows[i].compared == COMPARED && c[0].x[i] > 0 &&
            c[k].x[i] >= 0)
            rc = wp_buf_printf(out, " %7.2fx", c[k].x[i] / c[0].x[i]);
        else if (rc == 0 && ratios && k > 0)
            rc = wp_buf_printf(out, " %8s", "");
    }
    return rc < 0 ? rc : wp_buf_adds(out, "\n");
}

int wp_report_compare(const char *const path[], size_t n, struct wp_buf *out, struct wp_err *err)
{
    struct column *c;
    int rc = 0;

    if (n < 1 || n > FILES_MAX)
        return wp_fail(err, WP_EINVAL, "want 1 to %d reports to compare, got %zu", FILES_MAX, n);
    c = wp_calloc(n, sizeof *c);
    if (!c)
        return wp_fail(err, WP_ENOMEM, "out of memory for reports");
    for (size_t k = 0; k < n && rc == 0; k++)
        rc = column_read(&c[k], path[k], err);
    if (rc < 0)
        goto fini;
    rc = wp_buf_printf(out, "%-18s", "");
    for (size_t k = 0; k < n && rc == 0; k++)
        rc = wp_buf_printf(out, k ? " %14s %8s" : " %14s", c[k].label, "ratio");
    if (rc == 0)
        rc = wp_buf_adds(out, "\n");
    for (size_t i = 0; i < ROWS && rc == 0; i++)
        rc = compare_row(c, n, i, true, out);
    if (rc < 0)
        wp_fail(err, rc, "comparison: %s", wp_strerror(rc));
fini:
    wp_free(c);
    return rc;
}

int wp_report_beside(struct wp_report *const r[], size_t n, struct wp_buf *out)
{
    struct column *c = wp_calloc(n ? n : 1, sizeof *c);
    int rc = c ? wp_buf_printf(out, "%-18s", "") : WP_ENOMEM;

    for (size_t k = 0; k < n && rc == 0; k++) {
        struct wp_figures f;

        wp_report_figures(r[k], &f);
        for (size_t i = 0; i < ROWS; i++)
            c[k].x[i] = figure(&f, &rows[i]);
        rc = wp_buf_printf(out, " %14s", r[k]->label);
    }
    if (rc == 0)
        rc = wp_buf_adds(out, "\n");
    for (size_t i = 0; i < ROWS && rc == 0; i++)
        rc = compare_row(c, n, i, false, out);
    wp_free(c);
    return rc;
}
