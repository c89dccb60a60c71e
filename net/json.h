/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/json.h - reads JSON where it lies, in one pass, and edits it without touching other bytes.
 * For bodies of others (requests, answers, events): any number survives as text, lone surrogates are legal,
 * the last of several equal members counts, keys are compared decoded ("mod\u0065l" is model).  What we write
 * ourselves and configuration go through jansson.
 * Bounded: depth WP_JSON_DEPTH, and by the size of the text; no allocation.
 * Source: RFC 8259.  Strings must be valid UTF-8; control bytes in them are refused.
 */
#ifndef WP_NET_JSON_H
#define WP_NET_JSON_H

#include "base/err.h"
#include "base/str.h"

enum { WP_JSON_DEPTH = 1024 }; /* what common parsers of engines take, and no stack is used */
enum wp_json_kind {
    WP_JSON_ABSENT,
    WP_JSON_NULL,
    WP_JSON_FALSE,
    WP_JSON_TRUE,
    WP_JSON_NUMBER,
    WP_JSON_STRING,
    WP_JSON_ARRAY,
    WP_JSON_OBJECT,
};

/* A value where it lies: p[n] is its text, quotes and brackets included. */
struct wp_json {
    enum wp_json_kind kind;
    const char *p;
    size_t n;
};

/*
 * Checks that text is one JSON value and finds members of it when it is an object: out[i] is the value of the last
 * member called name[i] (n <= 64), kind ABSENT when there is none.  One pass over the text, whatever n is.
 * Errors: WP_ESYNTAX, WP_ETOOBIG (too deep), with the byte offset in err.  WP_EINVAL: it is valid, and no object.
 */
int wp_json_members(struct wp_str text, const char *const name[], size_t n, struct wp_json out[], struct wp_err *err);

/* The same on a value that was found in a checked text: cannot fail; false when v is not an object. */
bool wp_json_find(struct wp_json v, const char *const name[], size_t n, struct wp_json out[]);
struct wp_json wp_json_get(struct wp_json v, const char *name); /* one member; ABSENT when none or no object */

/* Walks an array: *at starts as {0}; false at the end or when v is no array.  v must come from a checked text. */
bool wp_json_each(struct wp_json v, struct wp_json *at);

/* Walks an object's members in order; *key is the key's text (a STRING). */
bool wp_json_each_member(struct wp_json v, struct wp_json *key, struct wp_json *at);

/*
 * A string's decoded text into out (at most cap bytes).  Returns its length, or -1 when it does not fit, is no string, or
 * holds a lone surrogate (which has no UTF-8 form).
 */
long wp_json_text(struct wp_json v, char *out, size_t cap);
bool wp_json_is_all(struct wp_json v, struct wp_str text);
static inline bool wp_json_is(struct wp_json v, const char *text) /* a string that decodes to just that */
{
    if (v.kind != WP_JSON_STRING || (v.p[1] != text[0] && v.p[1] != '\\' && v.n > 2))
        return false;
    return wp_json_is_all(v, wp_str_of(text));
}
bool wp_json_u64(struct wp_json v, uint64_t *out);   /* a whole number 0..2^64-1, also as 3.0 or 1e3 */
bool wp_json_i64(struct wp_json v, int64_t *out);
bool wp_json_double(struct wp_json v, double *out);

/*
 * An array of whole numbers 0..2^32-1 into out[cap].  Returns how many there are (which may exceed cap: nothing is
 * written past it), or -1 when v is anything else.  Cost: about a nanosecond a byte.
 */
long wp_json_tokens(struct wp_json v, uint32_t *out, size_t cap);

/* Appends v without blanks between tokens; strings and numbers as they were written. */
int wp_json_compact(struct wp_buf *b, struct wp_json v);

/* One edit of a top-level member: replace (the last one; all others of that name are removed), append, or remove. */
struct wp_json_edit {
    const char *name;
    struct wp_str value; /* JSON text; absent: remove the member */
};
/*
 * Appends text, a checked object, with the edits made and every other byte as it was.
 * Errors: WP_ENOMEM, WP_ETOOBIG, WP_EINVAL (no object).
 */
int wp_json_splice(struct wp_buf *b, struct wp_str text, const struct wp_json_edit edit[], size_t n);

#endif
