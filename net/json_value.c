/* SPDX-License-Identifier: Apache-2.0 */
/* Strings, numbers and arrays of tokens, read out of checked text. */
#include "net/json.h"

#include "net/json_digits.h"
#include "net/json_lex.h"

#include <stdio.h>

static unsigned hex4(const char *p)
{
    unsigned x = 0;

    for (int i = 0; i < 4; i++)
        x = x << 4 | (unsigned)(p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10);
    return x;
}

static size_t put_utf8(char out[4], unsigned c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

static void skip(struct wp_str *s, size_t n)
{
    s->p += n;
    s->n -= n;
}

/* *rest is at a backslash.  A lone surrogate gives an absent slice. */
static struct wp_str unescape(struct wp_str *rest, char tmp[4])
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = rest->p[1];
    unsigned high, low;

    skip(rest, 2);
    if (c != 'u') {
        tmp[0] = to[strchr(from, c) - from];
        return (struct wp_str){tmp, 1};
    }
    high = hex4(rest->p);
    skip(rest, 4);
    if (high < 0xD800 || high > 0xDFFF)
        return (struct wp_str){tmp, put_utf8(tmp, high)};
    if (high > 0xDBFF || rest->n < 6 || rest->p[0] != '\\' || rest->p[1] != 'u')
        return (struct wp_str){0};
    low = hex4(rest->p + 2);
    if (low < 0xDC00 || low > 0xDFFF)
        return (struct wp_str){0};
    skip(rest, 6);
    return (struct wp_str){tmp, put_utf8(tmp, 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))};
}

/* The next piece of a string's decoded text: a run as it lies, or one escape.  Absent: a lone
 * surrogate. */
static struct wp_str piece(struct wp_str *rest, char tmp[4])
{
    const char *slash = memchr(rest->p, '\\', rest->n);
    struct wp_str run = {rest->p, slash ? (size_t)(slash - rest->p) : rest->n};

    if (run.n == 0)
        return unescape(rest, tmp);
    skip(rest, run.n);
    return run;
}

long wp_json_text(struct wp_json v, char *out, size_t cap)
{
    struct wp_str rest, got;
    char tmp[4];
    size_t n = 0;

    if (v.kind != WP_JSON_STRING)
        return -1;
    for (rest = (struct wp_str){v.p + 1, v.n - 2}; rest.n; n += got.n) {
        got = piece(&rest, tmp);
        if (!got.p || got.n > cap - n)
            return -1;
        memcpy(out + n, got.p, got.n);
    }
    return (long)n;
}

bool wp_json_is_all(struct wp_json v, struct wp_str want)
{
    struct wp_str rest, got;
    char tmp[4];

    if (v.kind != WP_JSON_STRING || v.n - 2 < want.n) /* decoding never makes text longer */
        return false;
    for (rest = (struct wp_str){v.p + 1, v.n - 2}; rest.n;) {
        got = piece(&rest, tmp);
        if (!got.p || got.n > want.n || memcmp(got.p, want.p, got.n) != 0)
            return false;
        skip(&want, got.n);
    }
    return want.n == 0;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A number taken apart: the digits whole[] frac[] with the point after whole, times 10^exp. */
struct decimal {
    bool minus;
    struct wp_str whole, frac;
    int64_t exp; /* clamped far past any text's length */
};

static struct wp_str digits(struct wp_str *rest)
{
    struct wp_str run = {rest->p, 0};

    while (run.n < rest->n && digit(rest->p[run.n]))
        run.n++;
    skip(rest, run.n);
    return run;
}

static struct decimal take_apart(struct wp_json v)
{
    struct wp_str rest = {v.p, v.n}, exp = {0};
    struct decimal d = {0};
    bool minus = false;

    d.minus = *rest.p == '-';
    skip(&rest, d.minus);
    d.whole = digits(&rest);
    if (rest.n && *rest.p == '.') {
        skip(&rest, 1);
        d.frac = digits(&rest);
    }
    if (rest.n) {
        minus = rest.p[1] == '-';
        skip(&rest, digit(rest.p[1]) ? 1 : 2);
        exp = digits(&rest);
    }
    for (size_t i = 0; i < exp.n && d.exp < INT64_C(1000000000000000); i++)
        d.exp = d.exp * 10 + (exp.p[i] - '0');
    if (minus)
        d.exp = -d.exp;
    return d;
}

/* The number without its sign, when it is whole and fits. */
static bool magnitude(const struct decimal *d, uint64_t *out)
{
    int64_t point =
        (int64_t)d->whole.n + d->exp; /* digits before it count, digits behind it must be 0 */
    size_t n = d->whole.n + d->frac.n;
    uint64_t x = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned c = (unsigned)((i < d->whole.n ? d->whole.p[i] : d->frac.p[i - d->whole.n]) - '0');

        if ((int64_t)i >= point) {
            if (c)
                return false;
        } else if (__builtin_mul_overflow(x, 10, &x) || __builtin_add_overflow(x, c, &x)) {
            return false;
        }
    }
    for (int64_t i = (int64_t)n; x && i < point; i++)
        if (__builtin_mul_overflow(x, 10, &x))
            return false;
    *out = x;
    return true;
}

bool wp_json_u64(struct wp_json v, uint64_t *out)
{
    struct decimal d;
    uint64_t x;

    if (v.kind != WP_JSON_NUMBER)
        return false;
    d = take_apart(v);
    if (!magnitude(&d, &x) || (d.minus && x))
        return false;
    *out = x;
    return true;
}

bool wp_json_i64(struct wp_json v, int64_t *out)
{
    struct decimal d;
    uint64_t x;

    if (v.kind != WP_JSON_NUMBER)
        return false;
    d = take_apart(v);
    if (!magnitude(&d, &x) || x > (uint64_t)INT64_MAX + d.minus)
        return false;
    *out = d.minus ? (int64_t)(0 - x) : (int64_t)x;
    return true;
}

bool wp_json_double(struct wp_json v, double *out)
{
    enum {
        KEEP = 36
    }; /* a double has 17 digits; what is cut off cannot move the result by more than one of its
          steps */
    char text[64] = "-";
    struct decimal d;
    size_t n = 1, lost = 0;
    int len;

    if (v.kind != WP_JSON_NUMBER)
        return false;
    if (v.n < sizeof text)
        return wp_str_double((struct wp_str){v.p, v.n}, out);
    d = take_apart(v);
    for (size_t i = 0; i < d.whole.n + d.frac.n; i++) {
        char c = i < d.whole.n ? d.whole.p[i] : d.frac.p[i - d.whole.n];

        if (n > KEEP)
            lost++;
        else if (n > 1 || c != '0')
            text[n++] = c;
    }
    if (n == 1)
        text[n++] = '0';
    len = snprintf(text + n, sizeof text - n, "e%lld",
                   (long long)(d.exp - (int64_t)d.frac.n + (int64_t)lost));
    return wp_str_double((struct wp_str){text + !d.minus, n + (size_t)len - !d.minus}, out);
}

/* The whole number 0..2^32-1 at *p, which is moved behind it. */
static bool token(const char **p, uint32_t *out)
{
    const char *q = *p;
    uint64_t x = 0;

    while (digit(*q) && q - *p < 11)
        x = x * 10 + (uint64_t)(*q++ - '0');
    if (q == *p || (*q != ',' && *q != ']' && !wp_json_blank(*q))) {
        struct wp_json v = {WP_JSON_NUMBER, *p, 0};

        for (q = *p; *q != ',' && *q != ']' && !wp_json_blank(*q); q++)
            v.n++;
        if ((!digit(**p) && **p != '-') || !wp_json_u64(v, &x))
            return false;
    }
    *p = q;
    *out = (uint32_t)x;
    return x <= UINT32_MAX;
}

long wp_json_tokens(struct wp_json v, uint32_t *out, size_t cap)
{
    const char *p = v.p;
    uint32_t x;
    long n = 0;

    if (v.kind != WP_JSON_ARRAY)
        return -1;
    for (;;) {
        p++; /* the bracket, then the comma */
        while (wp_json_blank(*p))
            p++;
        p = wp_digits_read(v.p, p, v.p + v.n, out, cap, &n);
        if (*p == ']')
            return n; /* no value before it that was not read: the text was checked */
        if (!token(&p, &x))
            return -1;
        if ((size_t)n < cap)
            out[n] = x;
        n++;
        while (wp_json_blank(*p))
            p++;
        if (*p == ']')
            return n;
    }
}
