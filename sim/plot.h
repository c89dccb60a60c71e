/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/plot.h - HTML text and plots in SVG, written by hand: one element a line, no scripts, nothing from elsewhere.
 * A writer remembers its first failure (sim/put.h).  Colours come from one list, so that a column has the same one in all plots.
 */
#ifndef WP_SIM_PLOT_H
#define WP_SIM_PLOT_H

#include "sim/put.h"

#include <stddef.h>

enum { WP_PLOT_WIDTH = 860 };

void wp_html(struct wp_put *o, const char *text); /* as text, or between double quotes: & < > " ' are escaped, control bytes become spaces */

const char *wp_plot_colour(size_t i); /* of a column */

struct wp_plot_line {
    const char *label;
    const double *x, *y; /* n; x rising */
    size_t n;
};
struct wp_plot_axes {
    const char *title, *x_label, *y_label;
    bool log_x;          /* x > 0 then; smaller ones lie on the left edge */
    double x_min, x_max, y_max; /* y from 0 */
};
void wp_plot_lines(struct wp_put *o, const struct wp_plot_axes *a, const struct wp_plot_line line[], size_t n);

/* Rows of cells, the darker the more; value(arg, row, column); the scale ends at most.  mark: columns before it are warm-up. */
struct wp_plot_heat {
    const char *title, *x_label, *y_label, *unit;
    size_t rows, columns, mark;
    double x_max, most;
    double (*value)(const void *arg, size_t row, size_t column);
    const void *arg;
};
void wp_plot_heat(struct wp_put *o, const struct wp_plot_heat *h);

/* A bar a row, cut into shares of 1. */
struct wp_plot_bars {
    const char *title;
    const char *const *row, *const *part;
    size_t rows, parts;
    const double *share; /* [rows x parts] */
};
void wp_plot_bars(struct wp_put *o, const struct wp_plot_bars *b);

#endif
