/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/page.h - one HTML page of a replay, whole in itself: settings, the figures of `--json`, distributions, shares, load over time.
 * No script, nothing is loaded from anywhere (its Content-Security-Policy says so), well-formed as XML, too.  A cell of a figure has the very
 * number of --json in its data-value.
 */
#ifndef WP_SIM_PAGE_H
#define WP_SIM_PAGE_H

#include "policies/policy.h"
#include "sim/report.h"
#include "sim/timeline.h"

enum { WP_PAGE_COLUMNS_MAX = 32 };

struct wp_page_column {
    const char *label, *policy;
    struct wp_report *report;
    const struct wp_timeline *time; /* a row a worker: seconds of prefill that wait there; the last row: requests held.  NULL: not known */
    double scale;
    const struct wp_policy_conf *conf;
};
struct wp_page_fact { /* of the run */
    const char *name, *value;
};
struct wp_page {
    const char *title;
    const struct wp_page_fact *fact;
    size_t n_facts;
    const struct wp_page_column *column;
    size_t n;
    double warmup_share; /* of the time */
};

/* Errors: WP_ENOMEM. */
int wp_page_html(const struct wp_page *p, struct wp_buf *out);

#endif
