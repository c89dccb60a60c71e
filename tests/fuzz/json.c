/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our verdict on a text against jansson's, member by member, and what a splice and compact promise.
 * The grammars differ in this alone: jansson refuses lone surrogates, a zero byte in a key,
 * integers past 64 bits and numbers past a double, and swallows a raw zero byte behind a number or
 * a word; we refuse what is deeper than WP_JSON_DEPTH.
 */
#include "net/json.h"

#include <jansson.h>
#include <stdlib.h>

#define MUST(x)      \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

static const char *const names[] = {"model", "a", "stream"};
enum { MODEL, A, STREAM, NAMES };

static bool has(const char *p, size_t n, const char *text)
{
    return memmem(p, n, text, strlen(text)) != NULL;
}

/* jansson may refuse what we take only for one of its reasons. */
static bool excused(const char *p, size_t n, const json_error_t *e)
{
    enum json_error_code code = json_error_code(e);

    return code == json_error_numeric_overflow || code == json_error_null_byte_in_key ||
           code == json_error_null_character ||
           (strstr(e->text, "Unicode") && (has(p, n, "\\ud") || has(p, n, "\\uD")));
}

/* The same value, as far as C strings and doubles tell. */
static void same(struct wp_json v, const json_t *j)
{
    double d;

    switch (json_typeof(j)) {
    case JSON_OBJECT:
        MUST(v.kind == WP_JSON_OBJECT);
        break;
    case JSON_ARRAY: {
        struct wp_json at = {0};
        size_t n = 0;

        for (; wp_json_each(v, &at); n++)
            MUST(n < json_array_size(j));
        MUST(v.kind == WP_JSON_ARRAY && n == json_array_size(j));
        break;
    }
    case JSON_STRING: {
        char *out = malloc(v.n);

        MUST(wp_json_text(v, out, v.n) == (long)json_string_length(j));
        MUST(memcmp(out, json_string_value(j), json_string_length(j)) == 0);
        free(out);
        break;
    }
    case JSON_INTEGER: {
        int64_t i;

        MUST(wp_json_i64(v, &i) && i == json_integer_value(j));
        break;
    }
    case JSON_REAL:
        MUST(wp_json_double(v, &d));
        MUST(v.n >= 64 || (d >= json_real_value(j) && d <= json_real_value(j)));
        break;
    case JSON_TRUE:
        MUST(v.kind == WP_JSON_TRUE);
        break;
    case JSON_FALSE:
        MUST(v.kind == WP_JSON_FALSE);
        break;
    default:
        MUST(v.kind == WP_JSON_NULL);
    }
}

static void compare(const char *p, size_t n, int rc, const struct wp_json found[])
{
    json_error_t e;
    json_t *j = json_loadb(p, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);

    if (rc == 0 || rc == WP_EINVAL)
        MUST(j || excused(p, n, &e));
    else
        MUST(!j || rc == WP_ETOOBIG || memchr(p, 0, n));
    for (size_t i = 0; rc == 0 && j && i < NAMES; i++) {
        const json_t *member = json_object_get(j, names[i]);

        MUST((found[i].kind == WP_JSON_ABSENT) == !member);
        if (member)
            same(found[i], member);
    }
    json_decref(j);
}

static struct wp_json whole(struct wp_str text)
{
    text = wp_str_trim(text);
    return (struct wp_json){WP_JSON_OBJECT, text.p, text.n};
}

static void edit(struct wp_str text, const struct wp_json found[])
{
    const struct wp_json_edit edits[] = {{"model", WP_STR("\"x\"")}, {"stream", {NULL, 0}}};
    struct wp_err err = WP_ERR_INIT;
    struct wp_json again[NAMES], key, at = {0};
    struct wp_buf b = {0}, same_b = {0};
    size_t streams = 0;

    MUST(wp_json_splice(&same_b, text, NULL, 0) == 0 && wp_str_eq(wp_buf_str(&same_b), text));
    MUST(wp_json_splice(&b, text, edits, 2) == 0);
    MUST(wp_json_members(wp_buf_str(&b), names, NAMES, again, &err) == 0);
    MUST(wp_json_is(again[MODEL], "x") && again[STREAM].kind == WP_JSON_ABSENT);
    MUST(again[A].kind == found[A].kind && again[A].n == found[A].n);
    MUST(again[A].n == 0 || memcmp(again[A].p, found[A].p, again[A].n) == 0);
    while (wp_json_each_member(whole(wp_buf_str(&b)), &key, &at))
        streams += wp_json_is(key, "model");
    MUST(streams == 1);
    wp_buf_fini(&b);
    wp_buf_fini(&same_b);
}

/* Compact text compacts to itself and means the same. */
static void squeeze(struct wp_str text, const struct wp_json found[])
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_json again[NAMES], at = {0};
    struct wp_buf once = {0}, twice = {0};
    uint32_t tokens[8];
    long n, items = 0;

    MUST(wp_json_compact(&once, whole(text)) == 0);
    MUST(wp_json_compact(&twice, whole(wp_buf_str(&once))) == 0);
    MUST(wp_str_eq(wp_buf_str(&once), wp_buf_str(&twice)));
    MUST(wp_json_members(wp_buf_str(&once), names, NAMES, again, &err) == 0);
    for (size_t i = 0; i < NAMES; i++)
        MUST(again[i].kind == found[i].kind && again[i].n <= found[i].n);
    n = wp_json_tokens(found[A], tokens, 8);
    MUST(n == wp_json_tokens(again[A], tokens, 8));
    while (n >= 0 && wp_json_each(found[A], &at))
        items++;
    MUST(n < 0 || n == items);
    wp_buf_fini(&once);
    wp_buf_fini(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_str text = {(const char *)data, n};
    struct wp_err err = WP_ERR_INIT;
    struct wp_json found[NAMES];
    int rc = wp_json_members(text, names, NAMES, found, &err);

    compare(text.p, n, rc, found);
    if (rc == 0) {
        edit(text, found);
        squeeze(text, found);
    }
    return 0;
}
