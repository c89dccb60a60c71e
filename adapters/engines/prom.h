/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/engines/prom.h - reads Prometheus text pages of engines where they lie.
 * Lines that are not samples (comments, broken ones) are passed over; NaN is a value like any other.
 */
#ifndef WP_ADAPTERS_ENGINES_PROM_H
#define WP_ADAPTERS_ENGINES_PROM_H

#include "base/str.h"

struct wp_prom {
    struct wp_str name, labels; /* labels: between the braces, as written */
    double value;
};

/* Cuts the next sample off *page; false at the end. */
bool wp_prom_next(struct wp_str *page, struct wp_prom *out);
/* A label's value, unescaped, into out (cut at cap, ended by a zero); false when there is none of that name. */
bool wp_prom_label(const struct wp_prom *p, const char *name, char *out, size_t cap);

#endif
