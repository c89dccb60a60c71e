/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/load_impl.h"

#include "sim/put.h"

/* Later than this, in the engine's time, the generator has changed what it measures. */
static const double late_s = 0.05;

static double span_s(const struct wp_load *load)
{
    size_t first = load->conf.warmup < load->trace->n ? load->conf.warmup : 0;
    double lead = (double)(load->trace->req[first].at_us - load->trace->req[0].at_us) /
                  load->conf.scale * 1e-6;

    return (double)(load->last_us - load->start_us) * 1e-6 * load->conf.speed - lead;
}

static void close_span(struct wp_load *load)
{
    if (load->trace->n && span_s(load) > 0)
        wp_report_span(load->report, span_s(load));
}

int wp_load_text(struct wp_load *load, struct wp_buf *out)
{
    struct wp_load_state s;
    double late;
    int rc;

    close_span(load);
    wp_load_state(load, &s);
    late = s.late_p99_s * load->conf.speed;
    rc = wp_report_text(load->report, out);
    for (size_t k = 0; k < WP_LOAD_KINDS && load->kind[k].n && rc == 0; k++)
        rc = wp_buf_printf(out, "  %-16s %14llu\n", load->kind[k].name,
                           (unsigned long long)load->kind[k].n);
    if (rc == 0)
        rc = wp_buf_printf(
            out, "%-18s %12.1fms%s\n", "sent late p99", late * 1e3,
            late > late_s ? "  the generator did not keep up: do not trust these figures" : "");
    if (rc == 0 && s.warmup)
        rc = wp_buf_printf(out, "%-18s %14zu  left out of all figures\n", "warm-up requests",
                           s.warmup);
    if (rc == 0 && load->warm_failed)
        rc = wp_buf_printf(out, "%-18s %14zu\n", "  failed", load->warm_failed);
    if (rc == 0 && (s.cut_off || s.sent < s.total))
        rc = wp_buf_printf(out, "stopped early: %zu of %zu requests sent, %zu cut off\n", s.sent,
                           s.total, s.cut_off);
    return rc;
}

int wp_load_json(struct wp_load *load, struct wp_buf *out)
{
    struct wp_put o = {out, 0};
    struct wp_load_state s;

    close_span(load);
    wp_load_state(load, &s);
    o.rc = wp_report_json(load->report, out);
    while (o.rc == 0 && out->n && out->p[out->n - 1] != '}')
        out->n--;
    if (o.rc == 0 && out->n)
        out->n--; /* more members follow */
    wp_put(&o, ",\n \"errors_by_kind\": {");
    for (size_t k = 0; k < WP_LOAD_KINDS && load->kind[k].n; k++) {
        wp_put(&o, k ? ", " : "");
        wp_put_json(&o, wp_str_of(load->kind[k].name));
        wp_put(&o, ": ");
        wp_put_u(&o, load->kind[k].n);
    }
    wp_put(&o, "},\n \"late_p99_s\": ");
    wp_put_f(&o, s.late_p99_s * load->conf.speed);
    wp_put(&o, ",\n \"late_max_s\": ");
    wp_put_f(&o, s.late_max_s * load->conf.speed);
    wp_put(&o, ",\n \"warmup_requests\": ");
    wp_put_u(&o, s.warmup);
    wp_put(&o, ",\n \"warmup_failed\": ");
    wp_put_u(&o, load->warm_failed);
    wp_put(&o, ",\n \"sent_requests\": ");
    wp_put_u(&o, s.sent);
    wp_put(&o, ",\n \"cut_off_requests\": ");
    wp_put_u(&o, s.cut_off);
    wp_put(&o, "}\n");
    return o.rc;
}
