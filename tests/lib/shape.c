/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/shape.h"

#include "base/mem.h"

#include <stdlib.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void shape_object(const json_t *v, struct wp_buf *out)
{
    const char *names[256], *key;
    size_t n = 0;
    json_t *member;

    json_object_foreach((json_t *)v, key, member)
    {
        (void)member;
        if (n < 256)
            names[n++] = key;
    }
    qsort(names, n, sizeof names[0], by_name);
    wp_buf_adds(out, "{");
    for (size_t i = 0; i < n; i++) {
        wp_buf_printf(out, "%s%s:", i ? "," : "", names[i]);
        wp_shape(json_object_get(v, names[i]), out);
    }
    wp_buf_adds(out, "}");
}

void wp_shape(const json_t *v, struct wp_buf *out)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        shape_object(v, out);
        break;
    case JSON_ARRAY:
        wp_buf_adds(out, "[");
        if (json_array_size(v))
            wp_shape(json_array_get(v, 0), out);
        wp_buf_adds(out, "]");
        break;
    case JSON_STRING:
        wp_buf_adds(out, "string");
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        wp_buf_adds(out, "number");
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        wp_buf_adds(out, "bool");
        break;
    default:
        wp_buf_adds(out, "null");
    }
}

void wp_shape_text(struct wp_str text, struct wp_buf *out)
{
    json_t *v = json_loadb(text.p ? text.p : "", text.n, JSON_DECODE_ANY, NULL);

    if (v)
        wp_shape(v, out);
    else
        wp_buf_adds(out, text.n ? "(not JSON)" : "(empty)");
    json_decref(v);
}

void wp_shape_stream(struct wp_str sse, struct wp_buf *out)
{
    struct wp_buf last = {0}, now = {0};

    while (sse.n) {
        const char *end = memmem(sse.p, sse.n, "\n\n", 2);
        struct wp_str event = {sse.p, end ? (size_t)(end - sse.p) : sse.n};

        sse.n -= end ? event.n + 2 : event.n;
        sse.p += end ? event.n + 2 : event.n;
        now.n = 0;
        if (wp_str_is(event, "data: [DONE]"))
            wp_buf_adds(&now, "[DONE]");
        else if (wp_str_starts(event, "data: "))
            wp_shape_text((struct wp_str){event.p + 6, event.n - 6}, &now);
        else
            wp_buf_adds(&now, "(no data)");
        if (!wp_str_eq(wp_buf_str(&now), wp_buf_str(&last))) {
            wp_buf_add(out, now.p, now.n);
            wp_buf_adds(out, end ? "\n" : " (cut)\n");
        }
        last.n = 0;
        wp_buf_add(&last, now.p, now.n);
    }
    wp_buf_fini(&last);
    wp_buf_fini(&now);
}

/* {"gen": [seed, n]}: n ids that go up in steps; {"repeat": [text, n]}: the text n times. */
static json_t *written_out(json_t *v)
{
    json_t *gen = json_object_get(v, "gen"), *repeat = json_object_get(v, "repeat"), *made;
    struct wp_buf text = {0};

    if (gen) {
        made = json_array();
        for (json_int_t i = 0; i < json_integer_value(json_array_get(gen, 1)); i++)
            json_array_append_new(
                made, json_integer(1000 + (json_integer_value(json_array_get(gen, 0)) + i) * 4729 %
                                              100000));
        return made;
    }
    if (!repeat)
        return NULL;
    for (json_int_t i = 0; i < json_integer_value(json_array_get(repeat, 1)); i++)
        wp_buf_adds(&text, json_string_value(json_array_get(repeat, 0)));
    made = json_stringn(text.p, text.n);
    wp_buf_fini(&text);
    return made;
}

static void write_out(json_t *v)
{
    const char *key;
    json_t *member, *made;
    void *next;
    size_t i;

    if (json_is_array(v))
        json_array_foreach(v, i, member) write_out(member);
    json_object_foreach_safe(v, next, key, member)
    {
        made = json_is_object(member) ? written_out(member) : NULL;
        if (made)
            json_object_set_new(v, key, made);
        else
            write_out(member);
    }
}

char *wp_captured_body(const json_t *request, size_t *n)
{
    const json_t *raw = json_object_get(request, "raw"), *body = json_object_get(request, "body");
    json_t *copy;
    char *text, *mine;

    *n = 0;
    if (raw) {
        *n = json_string_length(raw);
        return wp_strndup(json_string_value(raw), *n);
    }
    if (!body || json_is_null(body))
        return NULL;
    copy = json_deep_copy(body);
    write_out(copy);
    text = json_dumps(copy, JSON_COMPACT);
    json_decref(copy);
    mine = text ? wp_strdup(text) : NULL;
    free(text);
    *n = mine ? strlen(mine) : 0;
    return mine;
}
