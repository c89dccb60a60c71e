/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/plot.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    LEFT = 70,
    TOP = 26,
    HEIGHT = 260,
    BOTTOM = 44,
    LEGEND = 18,
    LEVELS = 24,
    CELL_MOST = 18,
    BAR = 22
};

static void put(struct wp_put *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct wp_put *o, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    wp_put(o, text);
}

void wp_html(struct wp_put *o, const char *text)
{
    size_t left = strlen(text), n;

    for (; left; text += n, left -= n) {
        n = wp_utf8_len(text, left);
        if (n == 0) { /* no UTF-8 */
            wp_put(o, "\xEF\xBF\xBD");
            n = 1;
            continue;
        }
        switch (*text) {
        case '&':
            wp_put(o, "&amp;");
            break;
        case '<':
            wp_put(o, "&lt;");
            break;
        case '>':
            wp_put(o, "&gt;");
            break;
        case '"':
            wp_put(o, "&quot;");
            break;
        case '\'':
            wp_put(o, "&#39;");
            break;
        default:
            if (n == 1 && ((unsigned char)*text < ' ' || *text == 127))
                wp_put(o, " ");
            else
                wp_put_str(o, (struct wp_str){text, n});
        }
    }
}

const char *wp_plot_colour(size_t i)
{
    /* Okabe and Ito's, told apart by eyes of all kinds, and a few more */
    static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00",
                                          "#56b4e9", "#444444", "#8c6d1f", "#7b4fa0", "#b0b000"};

    return colours[i % (sizeof colours / sizeof colours[0])];
}

static void text(struct wp_put *o, double x, double y, const char *anchor, const char *what)
{
    put(o, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    wp_html(o, what);
    wp_put(o, "</text>\n");
}

static void begin(struct wp_put *o, const char *title, double height)
{
    put(o, "<svg viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\" role=\"img\">\n<title>",
        WP_PLOT_WIDTH, height, WP_PLOT_WIDTH, height);
    wp_html(o, title);
    wp_put(o, "</title>\n");
    put(o, "<text class=\"t\" x=\"%d\" y=\"16\">", LEFT);
    wp_html(o, title);
    wp_put(o, "</text>\n");
}

static void number(char out[32], double x)
{
    snprintf(out, 32, x != 0 && fabs(x) < 0.1 ? "%.2g" : fabs(x) < 10 ? "%.3g" : "%.4g", x);
}

/* ---- lines ---- */

static const double wide = WP_PLOT_WIDTH - LEFT - 20, high = HEIGHT;

/* What is drawn lies on the plot. */
static double clamp(double share)
{
    return share > 0 ? share < 1 ? share : 1 : 0; /* NaN: at its start */
}

static double at_x(const struct wp_plot_axes *a, double x)
{
    double share = a->log_x ? log(fmax(x, a->x_min) / a->x_min) / log(a->x_max / a->x_min)
                            : (x - a->x_min) / (a->x_max - a->x_min);

    return LEFT + wide * clamp(share);
}

static double at_y(const struct wp_plot_axes *a, double y)
{
    return TOP + high * (1 - clamp(y / a->y_max));
}

static void grid_line(struct wp_put *o, double x1, double y1, double x2, double y2)
{
    put(o, "<line class=\"g\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x1, y1, x2, y2);
}

/* 1, 2 and 5 of a power of ten. */
static double round_step(double span)
{
    double power = pow(10, floor(log10(span))), x = span / power;

    return power * (x < 2 ? 0.2 : x < 5 ? 0.5 : 1);
}

static void x_mark(struct wp_put *o, const struct wp_plot_axes *a, double x)
{
    char label[32];

    number(label, x);
    grid_line(o, at_x(a, x), TOP, at_x(a, x), TOP + high);
    text(o, at_x(a, x), TOP + high + 16, "middle", label);
}

static void axes(struct wp_put *o, const struct wp_plot_axes *a)
{
    double step = round_step(a->y_max);
    char label[32];

    for (double y = 0; y <= a->y_max * 1.0001; y += step) {
        number(label, y);
        grid_line(o, LEFT, at_y(a, y), LEFT + wide, at_y(a, y));
        text(o, LEFT - 6, at_y(a, y) + 4, "end", label);
    }
    if (a->log_x) {
        for (double power = pow(10, ceil(log10(a->x_min) - 1e-9)); power <= a->x_max * 1.0001;
             power *= 10)
            x_mark(o, a, power);
    } else {
        step = round_step(a->x_max - a->x_min);
        for (double x = a->x_min; x <= a->x_max * 1.0001; x += step)
            x_mark(o, a, x);
    }
    text(o, LEFT + wide, TOP + high + 34, "end", a->x_label);
    text(o, LEFT, TOP + high + 34, "start", a->y_label);
}

void wp_plot_lines(struct wp_put *o, const struct wp_plot_axes *axes_of,
                   const struct wp_plot_line line[], size_t n)
{
    struct wp_plot_axes a = *axes_of;

    if (!(a.x_max > a.x_min && a.x_max < 1e15))
        a.x_max = a.log_x ? a.x_min * 10 : a.x_min + 1;
    if (!(a.y_max > 0 && a.y_max < 1e15))
        a.y_max = 1;
    begin(o, a.title, TOP + HEIGHT + BOTTOM + (double)(n * LEGEND));
    axes(o, &a);
    for (size_t i = 0; i < n; i++) {
        double y = TOP + HEIGHT + BOTTOM + (double)(i * LEGEND);

        put(o, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" points=\"",
            wp_plot_colour(i));
        for (size_t k = 0; k < line[i].n; k++)
            put(o, k ? " %.1f,%.1f" : "%.1f,%.1f", at_x(&a, line[i].x[k]), at_y(&a, line[i].y[k]));
        put(o, "\"/>\n<rect x=\"%d\" y=\"%.1f\" width=\"14\" height=\"4\" fill=\"%s\"/>\n", LEFT, y,
            wp_plot_colour(i));
        text(o, LEFT + 22, y + 6, "start", line[i].label);
    }
    wp_put(o, "</svg>\n");
}

/* ---- heat ---- */

static unsigned level(const struct wp_plot_heat *h, size_t row, size_t column)
{
    return (unsigned)lround(LEVELS * clamp(h->value(h->arg, row, column) / h->most));
}

/* From nearly white over orange to nearly black. */
static void shade(char out[8], unsigned at)
{
    static const unsigned char stop[3][3] = {{253, 246, 232}, {230, 120, 40}, {50, 10, 30}};
    double x = 2.0 * at / LEVELS;
    unsigned i = x < 1 ? 0 : 1, c[3];

    for (unsigned k = 0; k < 3; k++)
        c[k] = (unsigned)lround(stop[i][k] + (x - i) * ((double)stop[i + 1][k] - stop[i][k]));
    snprintf(out, 8, "#%02x%02x%02x", c[0] & 255, c[1] & 255, c[2] & 255);
}

static void heat_row(struct wp_put *o, const struct wp_plot_heat *h, size_t row, double y,
                     double cell)
{
    double step = wide / (double)h->columns;
    char colour[8];

    for (size_t c = 0, next; c < h->columns; c = next) { /* neighbours that look alike are one */
        unsigned at = level(h, row, c);

        for (next = c + 1; next < h->columns && level(h, row, next) == at; next++)
            ;
        if (at == 0)
            continue;
        shade(colour, at);
        put(o, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
            LEFT + step * (double)c, y, step * (double)(next - c), cell, colour);
    }
}

static void heat_scale(struct wp_put *o, const struct wp_plot_heat *h, double y)
{
    char colour[8], label[32], all[96];

    for (unsigned i = 0; i <= LEVELS; i++) {
        shade(colour, i);
        put(o, "<rect x=\"%d\" y=\"%.1f\" width=\"6\" height=\"10\" fill=\"%s\"/>\n",
            LEFT + (int)i * 6, y, colour);
    }
    number(label, h->most);
    snprintf(all, sizeof all, "0 to %s %s, and more", label, h->unit);
    text(o, LEFT + (LEVELS + 1) * 6 + 8, y + 9, "start", all);
}

void wp_plot_heat(struct wp_put *o, const struct wp_plot_heat *heat)
{
    struct wp_plot_heat own = *heat, *h = &own;
    struct wp_plot_axes a = {.x_min = 0, .x_max = h->x_max > 0 && h->x_max < 1e15 ? h->x_max : 1};
    double cell = h->rows ? fmin(CELL_MOST, 320.0 / (double)h->rows) : 0,
           under = TOP + cell * (double)h->rows;
    double step = round_step(a.x_max);
    char label[32];

    if (!(h->most > 0 && h->most < 1e15))
        h->most = 1;
    begin(o, h->title, under + BOTTOM + LEGEND);
    put(o, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%.1f\" fill=\"#fdf6e8\"/>\n", LEFT, TOP,
        wide, under - TOP);
    for (size_t i = 0; i < h->rows; i++) {
        heat_row(o, h, i, TOP + cell * (double)i, cell);
        snprintf(label, sizeof label, "%zu", i);
        if (cell >= 9 || i % 8 == 0)
            text(o, LEFT - 6, TOP + cell * (double)i + fmin(cell, 12), "end", label);
    }
    for (double x = 0; x <= a.x_max * 1.0001; x += step) {
        number(label, x);
        text(o, at_x(&a, x), under + 14, "middle", label);
    }
    if (h->mark)
        grid_line(o, LEFT + wide * (double)h->mark / (double)h->columns, TOP,
                  LEFT + wide * (double)h->mark / (double)h->columns, under);
    text(o, LEFT + wide, under + 30, "end", h->x_label);
    text(o, LEFT, under + 30, "start", h->y_label);
    heat_scale(o, h, under + 40);
    wp_put(o, "</svg>\n");
}

/* ---- bars ---- */

void wp_plot_bars(struct wp_put *o, const struct wp_plot_bars *b)
{
    double under = TOP + (double)b->rows * (2 * BAR), x;
    char label[160];

    begin(o, b->title, under + 10 + (double)b->parts * LEGEND);
    for (size_t r = 0; r < b->rows; r++) {
        double y = TOP + (double)r * (2 * BAR);

        text(o, LEFT, y + 14, "start", b->row[r]);
        x = LEFT;
        for (size_t p = 0; p < b->parts; p++) {
            double share = clamp(b->share[r * b->parts + p]);

            if (share <= 0)
                continue;
            put(o, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>",
                x, y + 19, wide * share, BAR - 4,
                p + 1 == b->parts ? "#dddddd" : wp_plot_colour(p));
            snprintf(label, sizeof label, "%s: %.2f %%", b->part[p], 100 * share);
            wp_html(o, label);
            wp_put(o, "</title></rect>\n");
            x += wide * share;
        }
    }
    for (size_t p = 0; p < b->parts; p++) {
        put(o, "<rect x=\"%d\" y=\"%.1f\" width=\"14\" height=\"10\" fill=\"%s\"/>\n", LEFT,
            under + 8 + (double)p * LEGEND, p + 1 == b->parts ? "#dddddd" : wp_plot_colour(p));
        text(o, LEFT + 22, under + 17 + (double)p * LEGEND, "start", b->part[p]);
    }
    wp_put(o, "</svg>\n");
}
