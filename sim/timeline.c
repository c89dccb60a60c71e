/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/timeline.h"

#include "base/mem.h"

struct row {
    double value, bin[WP_TIMELINE_BINS];
    uint64_t since_us;
};
struct wp_timeline {
    uint64_t end_us;
    size_t rows;
    struct row row[];
};

int wp_timeline_create(struct wp_timeline **out, size_t rows, uint64_t end_us, struct wp_err *err)
{
    struct wp_timeline *t = wp_calloc(1, sizeof *t + rows * sizeof t->row[0]);

    if (!t)
        return wp_fail(err, WP_ENOMEM, "out of memory for what happens over time");
    t->rows = rows;
    t->end_us = end_us > WP_TIMELINE_BINS ? end_us : WP_TIMELINE_BINS;
    *out = t;
    return 0;
}

void wp_timeline_destroy(struct wp_timeline *t)
{
    wp_free(t);
}

/* Where the slice ends. */
static uint64_t edge(const struct wp_timeline *t, size_t bin)
{
    return (uint64_t)((double)t->end_us * (double)(bin + 1) / WP_TIMELINE_BINS);
}

void wp_timeline_set(struct wp_timeline *t, size_t row, uint64_t now_us, double value)
{
    struct row *r = &t->row[row];
    uint64_t at = r->since_us, end = now_us < t->end_us ? now_us : t->end_us;
    size_t bin = (size_t)((double)at / (double)t->end_us * WP_TIMELINE_BINS);

    for (; at < end && bin < WP_TIMELINE_BINS; bin++) {
        uint64_t upto = edge(t, bin) < end ? edge(t, bin) : end;

        if (upto <= at)
            continue;
        r->bin[bin] += r->value * (double)(upto - at);
        at = upto;
    }
    r->since_us = at;
    r->value = value;
}

void wp_timeline_close(struct wp_timeline *t)
{
    for (size_t i = 0; i < t->rows; i++)
        wp_timeline_set(t, i, t->end_us, t->row[i].value);
}

size_t wp_timeline_rows(const struct wp_timeline *t)
{
    return t->rows;
}

uint64_t wp_timeline_end_us(const struct wp_timeline *t)
{
    return t->end_us;
}

double wp_timeline_mean(const struct wp_timeline *t, size_t row, size_t bin)
{
    return t->row[row].bin[bin] * WP_TIMELINE_BINS / (double)t->end_us;
}
