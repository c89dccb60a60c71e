/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char lower(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
}

bool wp_letters_alike(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (lower(a[i]) != lower(b[i]))
            return false;
    return true;
}

bool wp_str_starts(struct wp_str a, const char *prefix)
{
    size_t n = strlen(prefix);

    return a.n >= n && (n == 0 || memcmp(a.p, prefix, n) == 0);
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct wp_str wp_str_trim(struct wp_str a)
{
    while (a.n && blank(a.p[0]))
        a.p++, a.n--;
    while (a.n && blank(a.p[a.n - 1]))
        a.n--;
    return a;
}

bool wp_str_split(struct wp_str *rest, char sep, struct wp_str *part)
{
    const char *at;

    if (!rest->p)
        return false;
    at = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
    if (!at) {
        *part = *rest;
        *rest = (struct wp_str){0};
        return true;
    }
    *part = (struct wp_str){rest->p, (size_t)(at - rest->p)};
    rest->n -= part->n + 1;
    rest->p = at + 1;
    return true;
}

bool wp_str_u64(struct wp_str a, uint64_t *out)
{
    uint64_t x = 0;

    if (a.n == 0)
        return false;
    for (size_t i = 0; i < a.n; i++) {
        unsigned d = (unsigned char)a.p[i] - '0';

        if (d > 9 || __builtin_mul_overflow(x, 10, &x) || __builtin_add_overflow(x, d, &x))
            return false;
    }
    *out = x;
    return true;
}

bool wp_str_i64(struct wp_str a, int64_t *out)
{
    bool minus = a.n && a.p[0] == '-';
    uint64_t x;

    if (minus)
        a.p++, a.n--;
    if (!wp_str_u64(a, &x) || x > (uint64_t)INT64_MAX + minus)
        return false;
    *out = minus ? (int64_t)(0 - x) : (int64_t)x;
    return true;
}

bool wp_str_double(struct wp_str a, double *out)
{
    char text[64], *end;
    double x;

    if (a.n == 0 || a.n >= sizeof text || !memchr("+-.0123456789", a.p[0], 13))
        return false; /* strtod() skips blanks of many kinds */
    memcpy(text, a.p, a.n);
    text[a.n] = 0;
    x = strtod(text, &end);
    if (end != text + a.n || !isfinite(x))
        return false;
    *out = x;
    return true;
}

bool wp_str_bytes(struct wp_str a, uint64_t *out)
{
    static const char letters[] = "KMGT";
    uint64_t base = 1000, unit = 1, x;
    const char *at;

    if (a.n && a.p[a.n - 1] == 'i') {
        base = 1024;
        a.n--;
    }
    at = a.n ? memchr(letters, a.p[a.n - 1], 4) : NULL;
    if (!at && base == 1024)
        return false;
    if (at) {
        for (const char *l = letters; l <= at; l++)
            unit *= base;
        a.n--;
    }
    if (!wp_str_u64(a, &x) || __builtin_mul_overflow(x, unit, &x))
        return false;
    *out = x;
    return true;
}

static size_t distance(struct wp_str a, const char *b)
{
    size_t row[65], n = strlen(b);

    if (n > 64 || a.n > 64)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.n; i++) {
        size_t corner = row[0];

        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j];
            size_t best = corner + (lower(a.p[i - 1]) != lower(b[j - 1]));

            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            corner = above;
        }
    }
    return row[n];
}

const char *wp_str_nearest(struct wp_str word, const char *const list[], size_t n)
{
    const char *best = NULL;
    size_t best_d = word.n / 3 + 1;

    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, list[i]);

        if (d <= best_d && (!best || d < best_d)) {
            best = list[i];
            best_d = d;
        }
    }
    return best;
}

int wp_buf_reserve(struct wp_buf *b, size_t more)
{
    size_t want, cap = b->cap ? b->cap : 64;
    char *p;

    if (__builtin_add_overflow(b->n, more, &want))
        return WP_ETOOBIG;
    if (b->max && want > b->max)
        return WP_ETOOBIG;
    if (want <= b->cap)
        return 0;
    while (cap < want)
        cap = cap > SIZE_MAX / 2 ? want : cap * 2;
    if (b->max && cap > b->max)
        cap = b->max;
    p = wp_realloc(b->p, cap);
    if (!p)
        return WP_ENOMEM;
    b->p = p;
    b->cap = cap;
    return 0;
}

int wp_buf_add(struct wp_buf *b, const void *p, size_t n)
{
    int rc = wp_buf_reserve(b, n);

    if (rc < 0)
        return rc;
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    return 0;
}

int wp_buf_adds(struct wp_buf *b, const char *s)
{
    return wp_buf_add(b, s, strlen(s));
}

int wp_buf_vprintf(struct wp_buf *b, const char *fmt, va_list ap)
{
    size_t room = b->cap - b->n;
    va_list again;
    int n, rc;

    va_copy(again, ap);
    n = vsnprintf(b->p ? b->p + b->n : NULL, room, fmt, ap);
    if (n < 0) {
        va_end(again);
        return WP_EINVAL;
    }
    if ((size_t)n >= room) {
        rc = wp_buf_reserve(b, (size_t)n + 1); /* vsnprintf writes a zero behind */
        if (rc < 0) {
            va_end(again);
            return rc;
        }
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    b->n += (size_t)n;
    return 0;
}

int wp_buf_printf(struct wp_buf *b, const char *fmt, ...)
{
    va_list ap;
    int rc;

    va_start(ap, fmt);
    rc = wp_buf_vprintf(b, fmt, ap);
    va_end(ap);
    return rc;
}

void wp_buf_consume(struct wp_buf *b, size_t n)
{
    if (n >= b->n) {
        b->n = 0;
        return;
    }
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
}

char *wp_buf_take(struct wp_buf *b, size_t *n)
{
    char *p = b->p;

    *n = b->n;
    b->p = NULL;
    b->n = b->cap = 0;
    return p;
}

void wp_buf_fini(struct wp_buf *b)
{
    wp_free(b->p);
    b->p = NULL;
    b->n = b->cap = 0;
}

size_t wp_utf8_len(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;

    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xC2 && p[0] <= 0xDF)
        return n >= 2 && (p[1] & 0xC0) == 0x80 ? 2 : 0;
    if (p[0] >= 0xE0 && p[0] <= 0xEF) {
        if (n < 3 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80)
            return 0;
        if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F))
            return 0;
        return 3;
    }
    if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        if (n < 4 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80 || (p[3] & 0xC0) != 0x80)
            return 0;
        if ((p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
            return 0;
        return 4;
    }
    return 0;
}

/* One byte that JSON escapes, or that is not UTF-8. */
static int add_odd(struct wp_buf *b, unsigned char c)
{
    if (c == '"' || c == '\\')
        return wp_buf_add(b, (char[2]){'\\', (char)c}, 2);
    if (c == '\n')
        return wp_buf_adds(b, "\\n");
    if (c < 0x20 || c == 0x7F)
        return wp_buf_printf(b, "\\u%04x", c);
    return wp_buf_adds(b, "\xEF\xBF\xBD");
}

int wp_buf_json(struct wp_buf *b, struct wp_str s)
{
    size_t start = b->n, plain = 0; /* s from plain on has not been added */
    int rc = wp_buf_adds(b, "\"");

    for (size_t i = 0; rc == 0 && i < s.n;) {
        unsigned char c = (unsigned char)s.p[i];
        size_t n = c >= 0x20 && c < 0x7F ? 1 : wp_utf8_len(s.p + i, s.n - i);

        if (n && c >= 0x20 && c != 0x7F && c != '"' && c != '\\') {
            i += n;
            continue;
        }
        rc = wp_buf_add(b, s.p + plain, i - plain);
        if (rc == 0)
            rc = add_odd(b, c);
        plain = ++i;
    }
    if (rc == 0 && s.n > plain)
        rc = wp_buf_add(b, s.p + plain, s.n - plain);
    if (rc == 0)
        rc = wp_buf_adds(b, "\"");
    if (rc < 0)
        b->n = start;
    return rc;
}
