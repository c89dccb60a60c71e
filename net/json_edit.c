/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text is taken over in runs, as long as they are.  A member goes together with the blanks and the
 * comma before it; when it is the first one, its successor takes its place.  A new member is put
 * right behind the last value.
 */
#include "net/json.h"

#include "net/json_lex.h"

#include <assert.h>

static int compact(struct wp_buf *b, const char *p, const char *end)
{
    int rc = 0;

    while (rc == 0 && p < end) {
        const char *from = p;

        while (p < end && !wp_json_blank(*p))
            p = *p == '"' ? wp_json_past_string(p, end) : p + 1;
        rc = wp_buf_add(b, from, (size_t)(p - from));
        while (p < end && wp_json_blank(*p))
            p++;
    }
    return rc;
}

int wp_json_compact(struct wp_buf *b, struct wp_json v)
{
    size_t start = b->n;
    int rc = compact(b, v.p, v.p + v.n);

    if (rc < 0)
        b->n = start;
    return rc;
}

enum { EDITS_MAX = 64 };

struct splice {
    struct wp_buf *b;
    const char *from; /* the text before it has been taken over or dropped */
    int rc;
};

static void add(struct splice *s, const char *p, size_t n)
{
    if (s->rc == 0)
        s->rc = wp_buf_add(s->b, p, n);
}

static void keep_to(struct splice *s, const char *to)
{
    add(s, s->from, (size_t)(to - s->from));
    s->from = to;
}

/* The edit of a member, n when there is none.  Of two of one name the later counts. */
static size_t edit_of(const struct wp_json_edit edit[], size_t n, struct wp_json key)
{
    for (size_t i = n; i-- > 0;)
        if (wp_json_is(key, edit[i].name))
            return i;
    return n;
}

static bool overruled(const struct wp_json_edit edit[], size_t n, size_t i)
{
    for (size_t k = i + 1; k < n; k++)
        if (strcmp(edit[k].name, edit[i].name) == 0)
            return true;
    return false;
}

/* Appends the members that the object has none of.  some: there is one to put a comma behind. */
static void append_new(struct splice *s, const struct wp_json_edit edit[], size_t n,
                       const char *const last[], bool some)
{
    for (size_t i = 0; i < n; i++) {
        if (last[i] || !edit[i].value.p || overruled(edit, n, i))
            continue;
        if (some)
            add(s, ",", 1);
        some = true;
        if (s->rc == 0)
            s->rc = wp_buf_json(s->b, wp_str_of(edit[i].name));
        add(s, ":", 1);
        add(s, edit[i].value.p, edit[i].value.n);
    }
}

static void splice(struct splice *s, struct wp_json v, const struct wp_json_edit edit[], size_t n,
                   const char *const last[])
{
    const char *first = NULL, *end = v.p + 1; /* the first key; where the value before ends */
    struct wp_json key, at = {0};
    size_t kept = 0;

    for (; wp_json_each_member(v, &key, &at); end = at.p + at.n) {
        size_t i = edit_of(edit, n, key);

        if (!first) {
            first = key.p;
            keep_to(s, first);
        }
        if (i < n && (at.p != last[i] || !edit[i].value.p)) {
            if (kept)
                keep_to(s, end);
            s->from = at.p + at.n;
            continue;
        }
        if (kept++ == 0)
            s->from = key.p;
        if (i < n) {
            keep_to(s, at.p);
            add(s, edit[i].value.p, edit[i].value.n);
            s->from = at.p + at.n;
        }
    }
    keep_to(s, end);
    append_new(s, edit, n, last, kept > 0);
}

int wp_json_splice(struct wp_buf *b, struct wp_str text, const struct wp_json_edit edit[], size_t n)
{
    struct wp_str inner = wp_str_trim(text);
    struct wp_json v = {WP_JSON_OBJECT, inner.p, inner.n}, key, at = {0};
    struct splice s = {b, text.p, 0};
    const char *last[EDITS_MAX] = {0};
    size_t start = b->n;

    assert(n <= EDITS_MAX);
    if (inner.n == 0 || *inner.p != '{')
        return WP_EINVAL;
    while (wp_json_each_member(v, &key, &at)) {
        size_t i = edit_of(edit, n, key);

        if (i < n)
            last[i] = at.p;
    }
    splice(&s, v, edit, n, last);
    keep_to(&s, text.p + text.n);
    if (s.rc < 0)
        b->n = start;
    return s.rc;
}
