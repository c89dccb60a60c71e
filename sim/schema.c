/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/schema.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOLD = 10, INPUT_MAX = 100 };

void wp_schema_fini(struct wp_schema *s)
{
    wp_buf_fini(&s->lines);
}

int wp_json_put_text(struct wp_buf *b, struct wp_json v)
{
    int rc = wp_buf_reserve(b, v.n);
    long n;

    if (rc < 0 || v.kind != WP_JSON_STRING)
        return rc;
    n = wp_json_text(v, b->p + b->n, v.n);
    if (n < 0)
        return wp_buf_add(b, v.p + 1, v.n - 2);
    b->n += (size_t)n;
    return 0;
}

void wp_schema_line(struct wp_schema *s, const char *param, const char *fmt, ...)
{
    va_list ap;
    int rc;

    if (s->n == 0)
        snprintf(s->param, sizeof s->param, "%s", param ? param : "");
    if (s->n++ >= TOLD)
        return;
    va_start(ap, fmt);
    rc = wp_buf_adds(&s->lines, "\n  ");
    if (rc == 0)
        rc = wp_buf_vprintf(&s->lines, fmt, ap);
    va_end(ap);
    if (rc < 0)
        s->rc = rc;
}

static size_t count(struct wp_json v)
{
    struct wp_json at = {0}, key;
    size_t n = 0;

    if (v.kind == WP_JSON_OBJECT)
        while (wp_json_each_member(v, &key, &at))
            n++;
    else
        while (wp_json_each(v, &at))
            n++;
    return n;
}

/* What stood there, short: containers by their size. */
static void describe(struct wp_json v, char out[INPUT_MAX + 1])
{
    static const char *const plain[] = {
        [WP_JSON_ABSENT] = "None",
        [WP_JSON_NULL] = "None",
        [WP_JSON_FALSE] = "False",
        [WP_JSON_TRUE] = "True",
    };
    long n;

    switch (v.kind) {
    case WP_JSON_OBJECT:
        snprintf(out, INPUT_MAX, "<dict of %zu items>", count(v));
        break;
    case WP_JSON_ARRAY:
        snprintf(out, INPUT_MAX, "<list of %zu items>", count(v));
        break;
    case WP_JSON_NUMBER:
        snprintf(out, INPUT_MAX, "%.*s", (int)(v.n < INPUT_MAX ? v.n : INPUT_MAX), v.p);
        break;
    case WP_JSON_STRING:
        n = wp_json_text(v, out, INPUT_MAX);
        if (n < 0)
            n = snprintf(out, INPUT_MAX, "<str>");
        out[n] = 0;
        break;
    default:
        snprintf(out, INPUT_MAX, "%s", plain[v.kind]);
    }
}

void wp_schema_fault(struct wp_schema *s, const char *type, const char *loc, const char *msg,
                     struct wp_json v)
{
    char input[INPUT_MAX + 1] = "";

    if (s->n < TOLD)
        describe(v, input);
    wp_schema_line(s, loc, "{'type': '%s', 'loc': '%s', 'msg': '%s', 'input': '%s'}", type, loc,
                   msg, input);
}

static bool is_set(struct wp_json v)
{
    return v.kind != WP_JSON_ABSENT && v.kind != WP_JSON_NULL;
}

/* A number written as a string: its text without the quotes, when it is that short and plain. */
static struct wp_str inside(struct wp_json v)
{
    return v.n >= 2 ? wp_str_trim((struct wp_str){v.p + 1, v.n - 2}) : (struct wp_str){0};
}

bool wp_schema_int(struct wp_schema *s, struct wp_json v, const char *loc, int64_t *out)
{
    if (!is_set(v))
        return false;
    switch (v.kind) {
    case WP_JSON_NUMBER:
        if (wp_json_i64(v, out))
            return true;
        wp_schema_fault(s, "int_from_float", loc,
                        "Input should be a valid integer, got a number with a fractional part", v);
        return false;
    case WP_JSON_STRING:
        if (wp_str_i64(inside(v), out))
            return true;
        wp_schema_fault(s, "int_parsing", loc,
                        "Input should be a valid integer, unable to parse string as an integer", v);
        return false;
    case WP_JSON_TRUE:
    case WP_JSON_FALSE:
        *out = v.kind == WP_JSON_TRUE;
        return true;
    default:
        wp_schema_fault(s, "int_type", loc, "Input should be a valid integer", v);
        return false;
    }
}

bool wp_schema_float(struct wp_schema *s, struct wp_json v, const char *loc, double *out)
{
    if (!is_set(v))
        return false;
    switch (v.kind) {
    case WP_JSON_NUMBER:
        if (wp_json_double(v, out))
            return true;
        break;
    case WP_JSON_STRING:
        if (wp_str_double(inside(v), out))
            return true;
        wp_schema_fault(s, "float_parsing", loc,
                        "Input should be a valid number, unable to parse string as a number", v);
        return false;
    case WP_JSON_TRUE:
    case WP_JSON_FALSE:
        *out = v.kind == WP_JSON_TRUE;
        return true;
    default:
        break;
    }
    wp_schema_fault(s, "float_type", loc, "Input should be a valid number", v);
    return false;
}

bool wp_schema_bool(struct wp_schema *s, struct wp_json v, const char *loc, bool *out)
{
    static const char *const yes[] = {"true", "1", "yes", "on", "t", "y"};
    static const char *const no[] = {"false", "0", "no", "off", "f", "n"};
    double x;

    if (!is_set(v))
        return false;
    if (v.kind == WP_JSON_TRUE || v.kind == WP_JSON_FALSE) {
        *out = v.kind == WP_JSON_TRUE;
        return true;
    }
    if (v.kind == WP_JSON_NUMBER && wp_json_double(v, &x) && (x == 0 || x == 1)) {
        *out = x == 1;
        return true;
    }
    for (size_t i = 0; v.kind == WP_JSON_STRING && i < sizeof yes / sizeof yes[0]; i++)
        if (wp_str_iis(inside(v), yes[i]) || wp_str_iis(inside(v), no[i])) {
            *out = wp_str_iis(inside(v), yes[i]);
            return true;
        }
    if (v.kind == WP_JSON_STRING || v.kind == WP_JSON_NUMBER)
        wp_schema_fault(s, "bool_parsing", loc,
                        "Input should be a valid boolean, unable to interpret input", v);
    else
        wp_schema_fault(s, "bool_type", loc, "Input should be a valid boolean", v);
    return false;
}

bool wp_schema_string(struct wp_schema *s, struct wp_json v, const char *loc)
{
    if (!is_set(v))
        return false;
    if (v.kind != WP_JSON_STRING)
        wp_schema_fault(s, "string_type", loc, "Input should be a valid string", v);
    return v.kind == WP_JSON_STRING;
}

static void refuse_syntax(struct wp_schema *s, struct wp_str body, const struct wp_err *err)
{
    char loc[48];
    const char *digits = strpbrk(err->text, "0123456789");
    size_t at = body.n;

    if (digits)
        at = (size_t)strtoul(digits, NULL, 10);
    snprintf(loc, sizeof loc, "body.%zu", at);
    wp_schema_line(s, loc,
                   "{'type': 'json_invalid', 'loc': '%s', 'msg': 'JSON decode error', 'input': "
                   "'<dict of 0 items>', "
                   "'ctx': {'error': 'Expecting value'}}",
                   loc);
}

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

int wp_schema_members(struct wp_schema *s, struct wp_str content_type, struct wp_str body,
                      const char *const name[], size_t n, struct wp_json v[], struct wp_json *whole)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_str media = {0}, text = wp_str_trim(body);
    int rc;

    wp_str_split(&content_type, ';', &media);
    if (!media.p || !wp_str_iis(wp_str_trim(media), "application/json")) {
        wp_schema_line(s, NULL, "Unsupported Media Type: Only 'application/json' is allowed");
        return 0;
    }
    if (body.n == 0) {
        wp_schema_fault(s, "missing", "body", "Field required", (struct wp_json){0});
        return 0;
    }
    *whole = (struct wp_json){text.n ? kind_of(text.p[0]) : WP_JSON_ABSENT, text.p, text.n};
    rc = wp_json_members(body, name, n, v, &err);
    if (rc == WP_ESYNTAX || rc == WP_ETOOBIG) {
        refuse_syntax(s, body, &err);
        return 0;
    }
    if (rc == WP_EINVAL) {
        wp_schema_fault(s, "model_attributes_type", "body",
                        "Input should be a valid dictionary or object to extract fields from",
                        *whole);
        return 0;
    }
    return rc;
}

static int error_body(struct wp_buf *out, int status, const char *type, const char *param,
                      struct wp_str message)
{
    int rc = wp_buf_adds(out, "{\"error\":{\"message\":");

    if (rc == 0)
        rc = wp_buf_json(out, message);
    if (rc == 0)
        rc = wp_buf_printf(out, ",\"type\":\"%s\",\"param\":", type);
    if (rc == 0)
        rc = param ? wp_buf_json(out, wp_str_of(param)) : wp_buf_adds(out, "null");
    if (rc == 0)
        rc = wp_buf_printf(out, ",\"code\":%d}}", status);
    return rc < 0 ? rc : status;
}

int wp_schema_answer(struct wp_schema *s, struct wp_buf *out)
{
    struct wp_buf message = {0};
    int rc;

    if (s->rc < 0)
        return s->rc;
    if (s->n == 0)
        return 0;
    rc = wp_buf_printf(&message, "%u validation error%s:", s->n, s->n == 1 ? "" : "s");
    if (rc == 0)
        rc = wp_buf_add(&message, s->lines.p, s->lines.n);
    if (rc == 0 && s->n > TOLD)
        rc = wp_buf_printf(&message, "\n  ...and %u more errors", s->n - TOLD);
    if (rc == 0)
        rc = error_body(out, 400, "Bad Request", s->param[0] ? s->param : NULL,
                        wp_buf_str(&message));
    wp_buf_fini(&message);
    return rc;
}

int wp_oai_error(struct wp_buf *out, int status, const char *type, const char *param,
                 const char *fmt, ...)
{
    struct wp_buf message = {0};
    va_list ap;
    int rc;

    va_start(ap, fmt);
    rc = wp_buf_vprintf(&message, fmt, ap);
    va_end(ap);
    if (rc == 0)
        rc = error_body(out, status, type, param, wp_buf_str(&message));
    wp_buf_fini(&message);
    return rc;
}
