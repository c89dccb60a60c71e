/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON to tree.  jansson says whether the text is JSON and decodes the strings, but keeps no lines:
 * those are found by a second walk over a text that is known to be good.
 */
#include "base/conf_impl.h"

#include <jansson.h>

struct reader {
    struct wp_conf *c;
    const char *place, *p, *end;
    unsigned line;
};

static char look(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r' || *r->p == '\n'))
        r->line += *r->p++ == '\n';
    return r->p < r->end ? *r->p : 0;
}

static bool string(struct reader *r, struct wp_str *out)
{
    const char *from = r->p++;
    json_t *text;

    while (r->p < r->end && *r->p != '"')
        r->p += *r->p == '\\' && r->p + 1 < r->end ? 2 : 1;
    if (r->p < r->end)
        r->p++;
    text = json_loadb(from, (size_t)(r->p - from), JSON_DECODE_ANY, NULL);
    if (text) {
        out->n = json_string_length(text);
        out->p = wp_arena_strndup(&r->c->arena, json_string_value(text), out->n);
        json_decref(text);
    }
    if (!text || !out->p)
        wp_conf_no_memory(r->c);
    return text && out->p;
}

/* A number, true, false or null. */
static bool word(struct reader *r, struct wp_conf_node *n)
{
    const char *from = r->p;

    while (r->p < r->end && !strchr(",]} \t\r\n", *r->p))
        r->p++;
    n->text.n = (size_t)(r->p - from);
    n->text.p = wp_arena_strndup(&r->c->arena, from, n->text.n);
    n->empty = n->text.p && wp_str_is(n->text, "null");
    if (!n->text.p)
        wp_conf_no_memory(r->c);
    return n->text.p != NULL;
}

static struct wp_conf_node *value(struct reader *r, unsigned depth);

static bool collection(struct reader *r, struct wp_conf_node *n, unsigned depth)
{
    char close = n->kind == CONF_MAP ? '}' : ']';

    r->p++;
    while (look(r) != close) {
        unsigned line = r->line;
        struct wp_str key = {0};
        struct wp_conf_node *child;

        if (n->kind == CONF_MAP) {
            if (!string(r, &key) || !wp_conf_may_add(r->c, n, key, r->place, line))
                return false;
            look(r);
            r->p++; /* the colon */
        }
        child = value(r, depth + 1);
        if (!child)
            return false;
        child->key = key;
        if (n->kind == CONF_MAP)
            child->line = line;
        wp_conf_append(n, child);
        if (look(r) == ',')
            r->p++;
    }
    r->p++;
    return true;
}

static struct wp_conf_node *value(struct reader *r, unsigned depth)
{
    char c = look(r);
    struct wp_conf_node *n = wp_conf_node(r->c,
                                          c == '{'   ? CONF_MAP
                                          : c == '[' ? CONF_SEQ
                                                     : CONF_SCALAR,
                                          r->place, r->line);
    bool ok;

    if (!n)
        return NULL;
    if (n->kind != CONF_SCALAR && depth >= CONF_DEPTH) {
        wp_conf_fail(r->c, r->place, r->line, "", "nested too deeply");
        return NULL;
    }
    n->json = true;
    n->style = c == '"' ? CONF_QUOTED : CONF_LITERAL;
    if (n->kind != CONF_SCALAR)
        ok = collection(r, n, depth);
    else
        ok = c == '"' ? string(r, &n->text) : word(r, n);
    return ok ? n : NULL;
}

int wp_conf_json_text(struct wp_conf *c, const char *place, struct wp_str text,
                      struct wp_conf_node **out)
{
    struct reader r = {c, place, text.p, text.p + text.n, 1};
    struct wp_conf_node *root;
    json_error_t err;
    json_t *whole =
        json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &err);

    if (!whole)
        return wp_conf_fail(c, place, err.line > 0 ? (unsigned)err.line : 1, "", "%s", err.text);
    json_decref(whole);
    root = value(&r, 0);
    if (!root)
        return c->no_memory ? WP_ENOMEM : WP_EINVAL;
    *out = root;
    return 0;
}
