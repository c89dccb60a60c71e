/* SPDX-License-Identifier: Apache-2.0 */
#include "router/target.h"

#include <stdlib.h>

#define DAY_US 86400e6

/* A plain decimal number: digits, and perhaps a point and more of them. */
static bool number(struct wp_str s, double *x)
{
    char text[32];
    size_t points = 0;

    if (s.n == 0 || s.n >= sizeof text)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '.' && (s.p[i] < '0' || s.p[i] > '9'))
            return false;
        points += s.p[i] == '.';
    }
    if (points > 1 || points == s.n)
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    *x = strtod(text, NULL);
    return true;
}

static bool time_in(const struct wp_head *h, const char *name, double unit_us, uint64_t *us)
{
    double x;

    if (!number(wp_str_trim(wp_head_get(h, name)), &x) || !(x * unit_us >= 1 && x * unit_us <= DAY_US))
        return false;
    *us = (uint64_t)(x * unit_us);
    return true;
}

bool wp_target_of(const struct wp_head *h, uint64_t *us)
{
    *us = 0;
    return wp_head_get(h, "x-warmpath-slo-ttft-ms").n == 0 || time_in(h, "x-warmpath-slo-ttft-ms", 1e3, us);
}

uint64_t wp_patience_of(const struct wp_head *h)
{
    uint64_t us;

    return time_in(h, "x-stainless-read-timeout", 1e6, &us) ? us : 0;
}
