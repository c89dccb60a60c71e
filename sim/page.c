/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/page.h"

#include "base/mem.h"
#include "policies/decision.h"
#include "sim/plot.h"

#include <math.h>
#include <stdio.h>

enum { POINTS = 200, HEAT_ROWS = 64, PARTS = WP_HITS + 1 };

static const char style[] =
    "body { font: 15px/1.45 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 "
    "1em; color: #222; }\n"
    "table { border-collapse: collapse; margin: 1em 0; }\n"
    "th, td { padding: 2px 12px 2px 0; text-align: right; border-bottom: 1px solid #ddd; "
    "font-variant-numeric: tabular-nums; }\n"
    "th:first-child, td:first-child { text-align: left; white-space: pre; }\n"
    "svg { display: block; margin: 1.5em 0; max-width: 100%; height: auto; }\n"
    "svg text { font: 12px system-ui, sans-serif; fill: #333; }\n"
    "svg text.t { font-weight: bold; }\n"
    "svg line.g { stroke: #ddd; stroke-width: 1; }\n";

static void cell(struct wp_put *o, const char *tag, const char *what)
{
    wp_put(o, "<");
    wp_put(o, tag);
    wp_put(o, ">");
    wp_html(o, what);
    wp_put(o, "</");
    wp_put(o, tag);
    wp_put(o, ">");
}

static void head(struct wp_put *o, const struct wp_page *p)
{
    wp_put(o, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
              "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
              "style-src 'unsafe-inline'\"/>\n<title>");
    wp_html(o, p->title);
    wp_put(o, "</title>\n<style>\n");
    wp_put(o, style);
    wp_put(o, "</style>\n</head>\n<body>\n<h1>");
    wp_html(o, p->title);
    wp_put(o, "</h1>\n");
}

static void facts(struct wp_put *o, const struct wp_page *p)
{
    wp_put(o, "<h2>What was played</h2>\n<table id=\"run\">\n");
    for (size_t i = 0; i < p->n_facts; i++) {
        wp_put(o, "<tr>");
        cell(o, "td", p->fact[i].name);
        cell(o, "td", p->fact[i].value);
        wp_put(o, "</tr>\n");
    }
    wp_put(o, "</table>\n");
}

/* Those that are not the defaults; nothing when all are. */
static void settings(struct wp_put *o, const struct wp_page_column *c)
{
    struct wp_decision_setting own[WP_DECISION_SETTINGS], usual[WP_DECISION_SETTINGS];
    struct wp_policy_conf init;
    size_t n = wp_decision_settings(c->conf, own), told = 0;
    char value[32];

    wp_policy_conf_init(&init);
    wp_decision_settings(&init, usual);
    wp_put(o, "<tr>");
    cell(o, "td", c->label);
    wp_put(o, "<td>");
    for (size_t i = 0; i < n; i++) {
        if (own[i].value == usual[i].value)
            continue;
        wp_put(o, told++ ? ", " : "");
        wp_html(o, own[i].name);
        snprintf(value, sizeof value, " = %.10g", own[i].value);
        wp_put(o, value);
    }
    if (c->conf->pull)
        wp_put(o, told++ ? ", pull = true" : "pull = true");
    wp_put(o, told ? "</td></tr>\n" : "the defaults</td></tr>\n");
}

static void figures(struct wp_put *o, const struct wp_page *p)
{
    struct wp_report_row row[WP_PAGE_COLUMNS_MAX][WP_REPORT_ROWS];
    size_t n = 0;

    for (size_t c = 0; c < p->n; c++)
        n = wp_report_rows(p->column[c].report, row[c]);
    wp_put(o, "<h2>Figures</h2>\n<table id=\"figures\">\n<tr><th></th>");
    for (size_t c = 0; c < p->n; c++)
        cell(o, "th", p->column[c].label);
    wp_put(o, "</tr>\n");
    for (size_t i = 0; i < n; i++) {
        wp_put(o, "<tr id=\"");
        wp_html(o, row[0][i].key);
        wp_put(o, "\">");
        cell(o, "td", row[0][i].label);
        for (size_t c = 0; c < p->n; c++) {
            wp_put(o, "<td data-value=\"");
            wp_put(o, row[c][i].exact);
            wp_put(o, "\">");
            wp_html(o, row[c][i].text);
            wp_put(o, "</td>");
        }
        wp_put(o, "</tr>\n");
    }
    wp_put(o, "</table>\n<h3>Settings that are not the defaults</h3>\n<table id=\"settings\">\n");
    for (size_t c = 0; c < p->n; c++)
        settings(o, &p->column[c]);
    wp_put(o, "</table>\n");
}

/* ---- distributions ---- */

struct curve {
    double x[POINTS + 1], y[POINTS + 1];
};

/* The share of requests that were no longer than that. */
static void distribution(struct wp_put *o, const struct wp_page *p, const char *title,
                         const char *x_label, const double *(*series)(struct wp_report *, size_t *))
{
    static const double low = 1e-3;
    struct wp_plot_axes a = {.title = title,
                             .x_label = x_label,
                             .y_label = "% of the requests",
                             .log_x = true,
                             .x_min = INFINITY,
                             .y_max = 100};
    struct wp_plot_line line[WP_PAGE_COLUMNS_MAX];
    struct curve *curve = wp_calloc(p->n ? p->n : 1, sizeof *curve);

    if (!curve) {
        o->rc = o->rc ? o->rc : WP_ENOMEM;
        return;
    }
    for (size_t c = 0; c < p->n; c++) {
        size_t n;
        const double *x = series(p->column[c].report, &n);

        for (size_t k = 0; n && k <= POINTS; k++) {
            size_t at = k * (n - 1) / POINTS;

            curve[c].x[k] = fmax(low, x[at]);
            curve[c].y[k] = 100.0 * (double)(at + 1) / (double)n;
        }
        line[c] =
            (struct wp_plot_line){p->column[c].label, curve[c].x, curve[c].y, n ? POINTS + 1 : 0};
        a.x_min = n ? fmin(a.x_min, curve[c].x[0]) : a.x_min;
        a.x_max = n ? fmax(a.x_max, curve[c].x[POINTS]) : a.x_max;
    }
    a.x_min = isfinite(a.x_min) ? a.x_min : low;
    wp_plot_lines(o, &a, line, p->n);
    wp_free(curve);
}

static void shares(struct wp_put *o, const struct wp_page *p)
{
    static const char *const parts[PARTS] = {
        "gpu", "cpu", "disk", "remote", "fetched", "tier not known", "computed"};
    const char *rows[WP_PAGE_COLUMNS_MAX];
    double share[WP_PAGE_COLUMNS_MAX * PARTS];
    struct wp_plot_bars bars = {.title = "Where prompt tokens came from",
                                .row = rows,
                                .part = parts,
                                .rows = p->n,
                                .parts = PARTS,
                                .share = share};

    for (size_t c = 0; c < p->n; c++) {
        struct wp_figures f;

        wp_report_figures(p->column[c].report, &f);
        rows[c] = p->column[c].label;
        for (size_t k = 0; k < WP_HITS; k++)
            share[c * PARTS + k] = f.share[k];
        share[c * PARTS + WP_HITS] = f.recomputed;
    }
    wp_plot_bars(o, &bars);
}

/* ---- over time ---- */

struct grouped {
    const struct wp_timeline *t;
    size_t workers, rows;
};

/* Many workers are drawn some to a row: their mean. */
static double work_at(const void *arg, size_t row, size_t bin)
{
    const struct grouped *g = arg;
    size_t from = row * g->workers / g->rows, to = (row + 1) * g->workers / g->rows;
    double sum = 0;

    for (size_t w = from; w < to; w++)
        sum += wp_timeline_mean(g->t, w, bin);
    return to > from ? sum / (double)(to - from) : 0;
}

static double most_work(const struct wp_page *p)
{
    double most = 0;

    for (size_t c = 0; c < p->n; c++)
        for (size_t w = 0; p->column[c].time && w + 1 < wp_timeline_rows(p->column[c].time); w++)
            for (size_t b = 0; b < WP_TIMELINE_BINS; b++)
                most = fmax(most, wp_timeline_mean(p->column[c].time, w, b));
    return most;
}

static void over_time(struct wp_put *o, const struct wp_page *p, const struct wp_page_column *c,
                      double most)
{
    size_t workers = wp_timeline_rows(c->time) - 1;
    struct grouped g = {c->time, workers, workers < HEAT_ROWS ? workers : HEAT_ROWS};
    char title[200], label[64];
    struct wp_plot_heat heat = {
        .title = title,
        .x_label = "time, s",
        .y_label = label,
        .unit = "s",
        .rows = g.rows,
        .columns = WP_TIMELINE_BINS,
        .mark = (size_t)(p->warmup_share * WP_TIMELINE_BINS),
        .x_max = 1e-6 * (double)wp_timeline_end_us(c->time),
        .most = fmin(most, 10), /* what is more is dark, so that what is usual is not all pale */
        .value = work_at,
        .arg = &g,
    };

    snprintf(title, sizeof title, "%.120s: seconds of prefill that wait on each worker", c->label);
    snprintf(label, sizeof label, workers > g.rows ? "workers, %zu in %zu rows" : "worker", workers,
             g.rows);
    wp_plot_heat(o, &heat);
}

static void held(struct wp_put *o, const struct wp_page *p)
{
    struct wp_plot_axes a = {
        .title = "Requests held in the router", .x_label = "time, s", .y_label = "requests, mean"};
    struct wp_plot_line line[WP_PAGE_COLUMNS_MAX];
    struct curve *curve = wp_calloc(p->n ? p->n : 1, sizeof *curve);

    if (!curve) {
        o->rc = o->rc ? o->rc : WP_ENOMEM;
        return;
    }
    for (size_t c = 0; c < p->n; c++) {
        const struct wp_timeline *t = p->column[c].time;

        for (size_t b = 0; t && b < WP_TIMELINE_BINS; b++) {
            curve[c].x[b] =
                1e-6 * (double)wp_timeline_end_us(t) * ((double)b + 0.5) / WP_TIMELINE_BINS;
            curve[c].y[b] = wp_timeline_mean(t, wp_timeline_rows(t) - 1, b);
            a.y_max = fmax(a.y_max, curve[c].y[b]);
        }
        a.x_max = t ? fmax(a.x_max, 1e-6 * (double)wp_timeline_end_us(t)) : a.x_max;
        line[c] = (struct wp_plot_line){p->column[c].label, curve[c].x, curve[c].y,
                                        t ? WP_TIMELINE_BINS : 0};
    }
    wp_plot_lines(o, &a, line, p->n);
    wp_free(curve);
}

int wp_page_html(const struct wp_page *p, struct wp_buf *out)
{
    struct wp_put o = {out, 0};
    double most = most_work(p);

    head(&o, p);
    facts(&o, p);
    figures(&o, p);
    wp_put(&o, "<h2>Distributions</h2>\n");
    distribution(&o, p, "Time to the first token", "s", wp_report_ttft);
    distribution(&o, p, "Mean time between tokens of a request", "s", wp_report_itl);
    shares(&o, p);
    wp_put(&o, "<h2>Over time</h2>\n");
    for (size_t c = 0; c < p->n; c++)
        if (p->column[c].time)
            over_time(&o, p, &p->column[c], most);
    held(&o, p);
    wp_put(&o, "</body>\n</html>\n");
    return o.rc;
}
