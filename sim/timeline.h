/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/timeline.h - values over time, kept as their means over equal slices: what each worker had to do, how many requests were held.
 * A value holds until it is set again.  Threads: one.  Memory: WP_TIMELINE_BINS doubles a row.
 */
#ifndef WP_SIM_TIMELINE_H
#define WP_SIM_TIMELINE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { WP_TIMELINE_BINS = 160 };

struct wp_timeline; /* opaque: sim/timeline.c */

/* rows values, all 0 at time 0, up to end_us.  Errors: WP_ENOMEM. */
int wp_timeline_create(struct wp_timeline **out, size_t rows, uint64_t end_us, struct wp_err *err);
void wp_timeline_destroy(struct wp_timeline *t);

/* From now_us on the row has that value; a time before the last one of that row counts as that.  Cost: O(1) and the slices that it crossed. */
void wp_timeline_set(struct wp_timeline *t, size_t row, uint64_t now_us, double value);
void wp_timeline_close(struct wp_timeline *t); /* all hold on to the end */

size_t wp_timeline_rows(const struct wp_timeline *t);
uint64_t wp_timeline_end_us(const struct wp_timeline *t);
double wp_timeline_mean(const struct wp_timeline *t, size_t row, size_t bin);

#endif
