/* SPDX-License-Identifier: Apache-2.0 */
/* What a search for settings says: to people, to programs, and to a configuration. */
#include "sim/put.h"
#include "sim/tune.h"

#include <stdio.h>

enum { SHOWN = 5 };

static const struct shown {
    const char *key, *label;
    size_t at;
    double times;
    const char *form;
} shown[SHOWN] = {
    {"ttft_mean_s", "TTFT mean, s", offsetof(struct wp_figures, ttft_mean_s), 1, "%.3f"},
    {"ttft_p90_s", "TTFT p90, s", offsetof(struct wp_figures, ttft_p90_s), 1, "%.3f"},
    {"ttft_p99_s", "TTFT p99, s", offsetof(struct wp_figures, ttft_p99_s), 1, "%.3f"},
    {"hit_share", "token hit share, %", offsetof(struct wp_figures, hit), 100, "%.1f"},
    {"slo_share", "within SLO, %", offsetof(struct wp_figures, slo), 100, "%.1f"},
};

static double mean(const struct wp_figures f[WP_TUNE_CHECKS], const struct shown *row)
{
    double sum = 0;

    for (size_t i = 0; i < WP_TUNE_CHECKS; i++)
        sum += *(const double *)((const char *)&f[i] + row->at);
    return sum / WP_TUNE_CHECKS;
}

static const char *figure_of(const struct wp_tune_conf *c)
{
    return c->figure ? c->figure : wp_tune_figures()[0];
}

int wp_tune_snippet(const struct wp_tune_result *r, const struct wp_tune_conf *conf,
                    struct wp_buf *out)
{
    int rc = wp_buf_printf(out, "policy:\n  name: %s\n", conf->replay->policy);
    bool open = false;

    for (size_t i = 0; i < r->n_knobs && rc == 0; i++) {
        const struct wp_tune_knob *k = &r->knob[i];
        const char *dot = strchr(k->key, '.');

        if (k->to == k->from)
            continue;
        if (dot && !open)
            rc = wp_buf_printf(out, "  %.*s:\n", (int)(dot - k->key), k->key);
        open = open || dot;
        rc = rc ? rc
                : wp_buf_printf(out, dot ? "    %s: %.10g\n" : "  %s: %.10g\n",
                                dot ? dot + 1 : k->key, k->to);
    }
    return rc;
}

static int table(const struct wp_tune_result *r, struct wp_buf *out)
{
    int rc = wp_buf_printf(out, "%-20s %12s %12s\n", "", "as it was", "as found");

    for (size_t i = 0; i < SHOWN && rc == 0; i++) {
        char was[32], is[32];

        snprintf(was, sizeof was, shown[i].form, shown[i].times * mean(r->was, &shown[i]));
        snprintf(is, sizeof is, shown[i].form, shown[i].times * mean(r->is, &shown[i]));
        rc = wp_buf_printf(out, "%-20s %12s %12s\n", shown[i].label, was, is);
    }
    return rc;
}

int wp_tune_text(const struct wp_tune_result *r, const struct wp_tune_conf *conf,
                 struct wp_buf *out)
{
    int rc = wp_buf_printf(out,
                           "%zu evaluations of %s on the trace's first %zu requests, %d seeds "
                           "each: %s from %.4g to %.4g\n\n",
                           r->evaluations, conf->replay->policy, r->searched, WP_TUNE_SEEDS,
                           figure_of(conf), r->search_from, r->search_to);

    for (size_t i = 0; i < r->n_knobs && rc == 0; i++)
        if (r->knob[i].to != r->knob[i].from)
            rc = wp_buf_printf(out, "%-26s %12.10g -> %.10g\n", r->knob[i].key, r->knob[i].from,
                               r->knob[i].to);
    if (rc == 0 && r->changed == 0)
        rc = wp_buf_adds(out, "nothing that was tried is better than the settings as they are\n");
    rc = rc ? rc
            : wp_buf_printf(out, "\nOn the %zu requests that were held out, means of %d seeds:\n\n",
                            r->held_out, WP_TUNE_CHECKS);
    rc = rc ? rc : table(r, out);
    rc = rc ? rc
            : wp_buf_printf(out,
                            "\n%s there: %.3f of what it was (%.3f to %.3f by seed; luck may make "
                            "%.3f of it).\n",
                            figure_of(conf), r->ratio, r->lowest, r->highest, r->luck);
    if (rc < 0 || !r->real)
        return rc < 0 ? rc
                      : wp_buf_adds(
                            out, "That is no gain to rely on: leave the settings as they are.\n");
    rc = wp_buf_adds(out, "The gain is real on this trace.  For the configuration:\n\n");
    return rc ? rc : wp_tune_snippet(r, conf, out);
}

static void put_number(struct wp_put *p, const char *name, double x)
{
    wp_put(p, name);
    wp_put_f(p, x);
}

static void put_figures(struct wp_put *p, const char *name,
                        const struct wp_figures f[WP_TUNE_CHECKS])
{
    wp_put(p, name);
    for (size_t i = 0; i < WP_TUNE_CHECKS; i++) {
        wp_put(p, i ? ", {" : "{");
        for (size_t k = 0; k < SHOWN; k++) {
            wp_put(p, k ? ", \"" : "\"");
            wp_put(p, shown[k].key);
            put_number(p, "\": ", *(const double *)((const char *)&f[i] + shown[k].at));
        }
        wp_put(p, "}");
    }
    wp_put(p, "]");
}

int wp_tune_json(const struct wp_tune_result *r, const struct wp_tune_conf *conf,
                 struct wp_buf *out)
{
    struct wp_put p = {out, 0};
    struct wp_buf snippet = {0};

    wp_put(&p, "{\"policy\": ");
    wp_put_json(&p, wp_str_of(conf->replay->policy));
    wp_put(&p, ",\n \"figure\": ");
    wp_put_json(&p, wp_str_of(figure_of(conf)));
    put_number(&p, ",\n \"evaluations\": ", (double)r->evaluations);
    put_number(&p, ",\n \"searched_requests\": ", (double)r->searched);
    put_number(&p, ",\n \"held_out_requests\": ", (double)r->held_out);
    put_number(&p, ",\n \"search_from\": ", r->search_from);
    put_number(&p, ",\n \"search_to\": ", r->search_to);
    wp_put(&p, ",\n \"settings\": {");
    for (size_t i = 0; i < r->n_knobs; i++) {
        wp_put(&p, i ? ", " : "");
        wp_put_json(&p, wp_str_of(r->knob[i].key));
        put_number(&p, ": {\"from\": ", r->knob[i].from);
        put_number(&p, ", \"to\": ", r->knob[i].to);
        wp_put(&p, "}");
    }
    put_figures(&p, "},\n \"held_out\": {\"as_it_was\": [", r->was);
    put_figures(&p, ",\n  \"as_found\": [", r->is);
    put_number(&p, ",\n  \"ratio\": ", r->ratio);
    put_number(&p, ", \"lowest\": ", r->lowest);
    put_number(&p, ", \"highest\": ", r->highest);
    put_number(&p, ", \"luck\": ", r->luck);
    wp_put(&p, r->real ? "},\n \"real\": true" : "},\n \"real\": false");
    if (p.rc == 0 && r->real) {
        p.rc = wp_tune_snippet(r, conf, &snippet);
        wp_put(&p, ",\n \"configuration\": ");
        wp_put_json(&p, wp_buf_str(&snippet));
    }
    wp_put(&p, "}\n");
    wp_buf_fini(&snippet);
    return p.rc;
}
