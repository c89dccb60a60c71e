/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker goes over the text once.  What is open is one bit a level (object or array), so depth
 * costs no stack and no memory.  Strings, which are most of a body, are skipped sixteen bytes at a
 * time: only quotes, backslashes, control bytes and what is beyond ASCII are looked at. Once
 * checked, text is walked without checks: a walker only needs to find where a value ends.
 */
#include "net/json.h"

#include "net/json_digits.h"
#include "net/json_lex.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

static enum wp_json_kind kind_of(char c)
{
    switch (c) {
    case '{':
        return WP_JSON_OBJECT;
    case '[':
        return WP_JSON_ARRAY;
    case '"':
        return WP_JSON_STRING;
    case 't':
        return WP_JSON_TRUE;
    case 'f':
        return WP_JSON_FALSE;
    case 'n':
        return WP_JSON_NULL;
    default:
        return WP_JSON_NUMBER;
    }
}

static struct wp_json value_at(const char *p, const char *end)
{
    return (struct wp_json){kind_of(*p), p, (size_t)(end - p)};
}

struct scan {
    const char *start, *p, *end;
    struct wp_err *err;
};

static int bad(struct scan *s, const char *want)
{
    if (s->p == s->end)
        return wp_fail(s->err, WP_ESYNTAX, "JSON ends at byte %zu, want %s",
                       (size_t)(s->p - s->start), want);
    return wp_fail(s->err, WP_ESYNTAX, "JSON byte %zu: want %s", (size_t)(s->p - s->start), want);
}

static void blanks(struct scan *s)
{
    while (s->p < s->end && wp_json_blank(*s->p))
        s->p++;
}

static bool at(const struct scan *s, char c)
{
    return s->p < s->end && *s->p == c;
}

static bool digit(const struct scan *s)
{
    return s->p < s->end && *s->p >= '0' && *s->p <= '9';
}

/* The first byte from p on that is a quote, a backslash, a control byte or beyond ASCII. */
static const char *plain_end(const char *p, const char *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'),
                  low = _mm_set1_epi8(0x20);

    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash));
        int mask = _mm_movemask_epi8(
            _mm_or_si128(hit, _mm_cmplt_epi8(v, low))); /* signed: 80..FF are below 0 */

        if (mask)
            return p + __builtin_ctz((unsigned)mask);
    }
#endif
    while (p < end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '"' &&
           *p != '\\')
        p++;
    return p;
}

static bool hex(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* At a backslash.  Which surrogates go together matters only to who decodes. */
static int check_escape(struct scan *s)
{
    s->p++;
    if (s->p == s->end || !memchr("\"\\/bfnrtu", *s->p, 9))
        return bad(s, "one of \"\\/bfnrtu after a backslash");
    if (*s->p++ != 'u')
        return 0;
    for (int i = 0; i < 4; i++, s->p++)
        if (s->p == s->end || !hex(*s->p))
            return bad(s, "four hexadecimal digits after \\u");
    return 0;
}

static int check_string(struct scan *s)
{
    int rc = 0;

    if (!at(s, '"'))
        return bad(s, "a string");
    s->p++;
    while (rc == 0) {
        s->p = plain_end(s->p, s->end);
        if (s->p == s->end)
            return bad(s, "a closing quote");
        if (*s->p == '"') {
            s->p++;
            return 0;
        }
        if (*s->p == '\\') {
            rc = check_escape(s);
        } else {
            size_t n = (unsigned char)*s->p < 0x20 ? 0 : wp_utf8_len(s->p, (size_t)(s->end - s->p));

            if (n == 0)
                return bad(s, "UTF-8 without control bytes in a string");
            s->p += n;
        }
    }
    return rc;
}

static int check_digits(struct scan *s)
{
    if (!digit(s))
        return bad(s, "a digit");
    while (digit(s))
        s->p++;
    return 0;
}

static int check_number(struct scan *s)
{
    int rc = 0;

    if (at(s, '-'))
        s->p++;
    if (at(s, '0')) {
        s->p++;
        if (digit(s))
            return bad(s, "no digit after a leading 0");
    } else {
        rc = check_digits(s);
    }
    if (rc == 0 && at(s, '.')) {
        s->p++;
        rc = check_digits(s);
    }
    if (rc == 0 && (at(s, 'e') || at(s, 'E'))) {
        s->p++;
        if (at(s, '+') || at(s, '-'))
            s->p++;
        rc = check_digits(s);
    }
    return rc;
}

static int check_word(struct scan *s, const char *word)
{
    for (; *word; word++, s->p++)
        if (!at(s, *word))
            return bad(s, "true, false or null");
    return 0;
}

static int check_scalar(struct scan *s)
{
    if (digit(s) || at(s, '-'))
        return check_number(s);
    if (at(s, '"'))
        return check_string(s);
    if (at(s, 't'))
        return check_word(s, "true");
    if (at(s, 'f'))
        return check_word(s, "false");
    if (at(s, 'n'))
        return check_word(s, "null");
    return bad(s, "a value");
}

static int check_key(struct scan *s, struct wp_json *key)
{
    const char *from = s->p;
    int rc = check_string(s);

    if (rc < 0)
        return rc;
    *key = value_at(from, s->p);
    blanks(s);
    if (!at(s, ':'))
        return bad(s, "a colon");
    s->p++;
    return 0;
}

/* What is open, innermost last: a set bit is an object. */
struct levels {
    uint64_t bits[WP_JSON_DEPTH / 64];
    unsigned n;
};

static bool in_object(const struct levels *l)
{
    return l->bits[(l->n - 1) / 64] >> ((l->n - 1) % 64) & 1;
}

static void push(struct levels *l, bool object)
{
    uint64_t bit = (uint64_t)1 << (l->n % 64);

    if (object)
        l->bits[l->n / 64] |= bit;
    else
        l->bits[l->n / 64] &= ~bit;
    l->n++;
}

/* At an opening bracket.  Leaves the scan at the first value inside, or past the closing bracket:
 * *closed. */
static int check_open(struct scan *s, struct levels *l, unsigned room, bool *closed)
{
    bool object = *s->p == '{';
    struct wp_json key;

    if (l->n == room)
        return wp_fail(s->err, WP_ETOOBIG, "JSON byte %zu: deeper than %d levels",
                       (size_t)(s->p - s->start), WP_JSON_DEPTH);
    push(l, object);
    s->p++;
    blanks(s);
    *closed = at(s, object ? '}' : ']');
    if (*closed) {
        s->p++;
        l->n--;
        return 0;
    }
    return object ? check_key(s, &key) : 0;
}

/* Behind a value.  Leaves the scan at the next one, or past the end of all: l->n is 0. */
static int check_close(struct scan *s, struct levels *l)
{
    struct wp_json key;

    while (l->n) {
        bool object = in_object(l);

        blanks(s);
        if (at(s, ',')) {
            s->p++;
            blanks(s);
            return object ? check_key(s, &key) : 0;
        }
        if (!at(s, object ? '}' : ']'))
            return bad(s, object ? "a comma or a closing brace" : "a comma or a closing bracket");
        s->p++;
        l->n--;
    }
    return 0;
}

/*
 * In an array: past whole numbers that have a comma right behind them, with a blank or none before the next.  A prompt's token ids are
 * most of some bodies.  Whatever is not just so is left for check_scalar().
 */
static void whole_numbers(struct scan *s)
{
    const char *end = s->end, *p = wp_digits_skip(s->p, end);

    while (p < end && *p >= '1' && *p <= '9') {
        const char *q = p + 1;

        while (q < end && (unsigned char)(*q - '0') <= 9)
            q++;
        if (q == end || *q != ',')
            break;
        p = q + 1;
        p += p < end && *p == ' ';
    }
    s->p = p;
}

/* One value with all that is in it, at most room levels deep. */
static int check_value(struct scan *s, unsigned room)
{
    struct levels l;
    bool done;
    int rc;

    l.n = 0; /* bits beyond it say nothing */
    do {
        blanks(s);
        if (l.n > 0 && digit(s) && !in_object(&l)) {
            whole_numbers(s);
            blanks(s);
        }
        done = true;
        if (at(s, '{') || at(s, '['))
            rc = check_open(s, &l, room, &done);
        else
            rc = check_scalar(s);
        if (rc == 0 && done)
            rc = check_close(s, &l);
    } while (rc == 0 && l.n);
    return rc;
}

static void note(struct wp_json key, struct wp_json v, const char *const name[], size_t n,
                 struct wp_json out[])
{
    for (size_t i = 0; i < n; i++)
        if (wp_json_is(key, name[i]))
            out[i] = v;
}

/* At the opening brace of an object that is the whole text. */
static int check_members(struct scan *s, const char *const name[], size_t n, struct wp_json out[])
{
    struct wp_json key = {0};
    const char *from;
    int rc;

    s->p++;
    blanks(s);
    if (at(s, '}')) {
        s->p++;
        return 0;
    }
    for (;;) {
        rc = check_key(s, &key);
        if (rc < 0)
            return rc;
        blanks(s);
        from = s->p;
        rc = check_value(s, WP_JSON_DEPTH - 1);
        if (rc < 0)
            return rc;
        note(key, value_at(from, s->p), name, n, out);
        blanks(s);
        if (!at(s, ','))
            break;
        s->p++;
        blanks(s);
    }
    if (!at(s, '}'))
        return bad(s, "a comma or a closing brace");
    s->p++;
    return 0;
}

int wp_json_members(struct wp_str text, const char *const name[], size_t n, struct wp_json out[],
                    struct wp_err *err)
{
    const char *p = text.p ? text.p : "";
    struct scan s = {p, p, p + text.n, err};
    bool object;
    int rc;

    for (size_t i = 0; i < n; i++)
        out[i] = (struct wp_json){0};
    if (text.n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
        return bad(&s, "a value, and no byte order mark");
    blanks(&s);
    object = at(&s, '{');
    rc = object ? check_members(&s, name, n, out) : check_value(&s, WP_JSON_DEPTH);
    if (rc < 0)
        return rc;
    blanks(&s);
    if (s.p < s.end)
        return bad(&s, "nothing after the value");
    return object ? 0 : wp_fail(err, WP_EINVAL, "want a JSON object");
}

/* The first byte from p on that is a quote or any bracket.  There is one, since something is open.
 */
static const char *next_mark(const char *p, const char *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), open = _mm_set1_epi8('{'), close = _mm_set1_epi8('}');

    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i low =
            _mm_or_si128(v, _mm_set1_epi8(0x20)); /* makes [ ] of { } and leaves a quote one */
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(low, open), _mm_cmpeq_epi8(low, close));
        int mask = _mm_movemask_epi8(_mm_or_si128(hit, _mm_cmpeq_epi8(v, quote)));

        if (mask)
            return p + __builtin_ctz((unsigned)mask);
    }
#endif
    while (p < end && *p != '"' && (*p | 0x20) != '{' && (*p | 0x20) != '}')
        p++;
    return p;
}

/* The end of the checked value at p. */
static const char *value_end(const char *p, const char *end)
{
    size_t depth = 0;

    if (*p == '"')
        return wp_json_past_string(p, end);
    if (*p != '{' && *p != '[') {
        while (p < end && !wp_json_blank(*p) && *p != ',' && *p != ']' && *p != '}')
            p++;
        return p;
    }
    for (;;) {
        p = next_mark(p, end);
        if (*p == '"') {
            p = wp_json_past_string(p, end);
            continue;
        }
        depth += (*p | 0x20) == '{' ? 1 : -(size_t)1;
        p++;
        if (depth == 0)
            return p;
    }
}

static const char *past_blanks(const char *p)
{
    while (wp_json_blank(*p))
        p++;
    return p;
}

/* Where the next item of v starts, after the one at *at (of none, the first); NULL at the end. */
static const char *next_item(struct wp_json v, const struct wp_json *at)
{
    const char *p = past_blanks(at->p ? at->p + at->n : v.p + 1);

    if (*p == ',')
        p = past_blanks(p + 1);
    return *p == ']' || *p == '}' ? NULL : p;
}

bool wp_json_each(struct wp_json v, struct wp_json *at)
{
    const char *p = v.kind == WP_JSON_ARRAY ? next_item(v, at) : NULL;

    if (!p)
        return false;
    *at = value_at(p, value_end(p, v.p + v.n));
    return true;
}

bool wp_json_each_member(struct wp_json v, struct wp_json *key, struct wp_json *at)
{
    const char *end = v.p + v.n, *p = v.kind == WP_JSON_OBJECT ? next_item(v, at) : NULL;

    if (!p)
        return false;
    *key = value_at(p, wp_json_past_string(p, end));
    p = past_blanks(past_blanks(key->p + key->n) + 1);
    *at = value_at(p, value_end(p, end));
    return true;
}

bool wp_json_find(struct wp_json v, const char *const name[], size_t n, struct wp_json out[])
{
    struct wp_json key, at = {0};

    for (size_t i = 0; i < n; i++)
        out[i] = (struct wp_json){0};
    while (wp_json_each_member(v, &key, &at))
        note(key, at, name, n, out);
    return v.kind == WP_JSON_OBJECT;
}

struct wp_json wp_json_get(struct wp_json v, const char *name)
{
    struct wp_json out;

    wp_json_find(v, &name, 1, &out);
    return out;
}
