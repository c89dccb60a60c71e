/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/put.h"

#include <math.h>

enum { DIGITS = 20 }; /* of 2^64 */

static char *format(uint64_t x, char *end) /* writes backwards from end */
{
    do
        *--end = (char)('0' + x % 10);
    while (x /= 10);
    return end;
}

void wp_put_str(struct wp_put *o, struct wp_str s)
{
    if (o->rc == 0)
        o->rc = wp_buf_add(o->b, s.p, s.n);
}

void wp_put(struct wp_put *o, const char *text)
{
    wp_put_str(o, wp_str_of(text));
}

void wp_put_u(struct wp_put *o, uint64_t x)
{
    char text[DIGITS];
    const char *p = format(x, text + DIGITS);

    wp_put_str(o, (struct wp_str){p, (size_t)(text + DIGITS - p)});
}

void wp_put_f(struct wp_put *o, double x)
{
    if (o->rc == 0)
        o->rc = wp_buf_printf(o->b, "%.9g", isfinite(x) ? x : 0);
}

void wp_put_json(struct wp_put *o, struct wp_str s)
{
    if (o->rc == 0)
        o->rc = wp_buf_json(o->b, s);
}

void wp_put_tokens(struct wp_put *o, const uint32_t token[], size_t n)
{
    char text[DIGITS + 1], *p;

    wp_put(o, "[");
    for (size_t i = 0; i < n && o->rc == 0; i++) {
        p = format(token[i], text + DIGITS + 1);
        if (i)
            *--p = ',';
        o->rc = wp_buf_add(o->b, p, (size_t)(text + DIGITS + 1 - p));
    }
    wp_put(o, "]");
}
