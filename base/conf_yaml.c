/* SPDX-License-Identifier: Apache-2.0 */
/* YAML to tree.  libyaml's events know their lines; what YAML has and a configuration has no use
 * for is refused. */
#include "base/conf_impl.h"

#include <yaml.h>

struct reader {
    struct wp_conf *c;
    yaml_parser_t parser;
    struct wp_str text;
    const char *place;
    unsigned line; /* of the text's first line; 0: lines mean nothing */
};

static unsigned line_of(const struct reader *r, size_t line)
{
    return r->line ? r->line + (unsigned)line : 0;
}

static bool refuse(struct reader *r, const yaml_event_t *e, const char *what)
{
    wp_conf_fail(r->c, r->place, line_of(r, e->start_mark.line), "", "%s", what);
    return false;
}

/* The next event, which the caller deletes; false when the text is not YAML. */
static bool next(struct reader *r, yaml_event_t *e)
{
    const yaml_parser_t *p = &r->parser;
    size_t line;

    if (yaml_parser_parse(&r->parser, e))
        return true;
    if (p->error == YAML_MEMORY_ERROR) {
        wp_conf_no_memory(r->c);
        return false;
    }
    line = p->problem_mark.line;
    if (p->error == YAML_READER_ERROR) { /* a byte that is refused has an offset, but no mark */
        line = 0;
        for (size_t i = 0; i < r->text.n && i < p->problem_offset; i++)
            line += r->text.p[i] == '\n';
    }
    if (p->context)
        wp_conf_fail(r->c, r->place, line_of(r, line), "", "%s, %s", p->problem, p->context);
    else
        wp_conf_fail(r->c, r->place, line_of(r, line), "", "%s", p->problem);
    return false;
}

static bool acceptable(struct reader *r, const yaml_event_t *e)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;

    switch (e->type) {
    case YAML_ALIAS_EVENT:
        return refuse(r, e, "aliases are not accepted");
    case YAML_SCALAR_EVENT:
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor)
        return refuse(r, e, "anchors are not accepted");
    return tag ? refuse(r, e, "tags are not accepted") : true;
}

static bool is_empty(const yaml_event_t *e)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    struct wp_str s = {(const char *)e->data.scalar.value, e->data.scalar.length};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && wp_str_is(s, words[i]))
            return true;
    return false;
}

static bool text_of(struct reader *r, const yaml_event_t *e, struct wp_str *out)
{
    out->n = e->data.scalar.length;
    out->p = wp_arena_strndup(&r->c->arena, (const char *)e->data.scalar.value, out->n);
    if (!out->p)
        wp_conf_no_memory(r->c);
    return out->p != NULL;
}

static struct wp_conf_node *value(struct reader *r, const yaml_event_t *e, unsigned depth);

/* Deletes e. */
static bool map_entry(struct reader *r, struct wp_conf_node *map, yaml_event_t *e, unsigned depth)
{
    unsigned line = line_of(r, e->start_mark.line);
    struct wp_conf_node *n = NULL;
    struct wp_str key = {0};
    bool ok = acceptable(r, e);

    if (ok && e->type != YAML_SCALAR_EVENT)
        ok = refuse(r, e, "want text as a key");
    if (ok)
        ok = text_of(r, e, &key);
    if (ok && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && wp_str_is(key, "<<"))
        ok = refuse(r, e, "merge keys are not accepted");
    yaml_event_delete(e);
    if (!ok || !wp_conf_may_add(r->c, map, key, r->place, line) || !next(r, e))
        return false;
    n = value(r, e, depth);
    yaml_event_delete(e);
    if (!n)
        return false;
    n->key = key;
    n->line = line; /* a reader looks for the key */
    wp_conf_append(map, n);
    return true;
}

static struct wp_conf_node *collection(struct reader *r, struct wp_conf_node *n, unsigned depth)
{
    yaml_event_type_t end = n->kind == CONF_MAP ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;

    for (;;) {
        struct wp_conf_node *item;
        yaml_event_t e;

        if (!next(r, &e))
            return NULL;
        if (e.type == end) {
            yaml_event_delete(&e);
            return n;
        }
        if (n->kind == CONF_MAP) {
            if (!map_entry(r, n, &e, depth))
                return NULL;
            continue;
        }
        item = value(r, &e, depth);
        yaml_event_delete(&e);
        if (!item)
            return NULL;
        wp_conf_append(n, item);
    }
}

static struct wp_conf_node *value(struct reader *r, const yaml_event_t *e, unsigned depth)
{
    enum conf_kind kind = e->type == YAML_MAPPING_START_EVENT    ? CONF_MAP
                          : e->type == YAML_SEQUENCE_START_EVENT ? CONF_SEQ
                                                                 : CONF_SCALAR;
    struct wp_conf_node *n;

    if (!acceptable(r, e))
        return NULL;
    n = wp_conf_node(r->c, kind, r->place, line_of(r, e->start_mark.line));
    if (!n)
        return NULL;
    if (kind != CONF_SCALAR) {
        if (depth < CONF_DEPTH)
            return collection(r, n, depth + 1);
        refuse(r, e, "nested too deeply");
        return NULL;
    }
    n->style = e->data.scalar.style == YAML_SINGLE_QUOTED_SCALAR_STYLE ||
                       e->data.scalar.style == YAML_DOUBLE_QUOTED_SCALAR_STYLE
                   ? CONF_QUOTED
                   : CONF_PLAIN;
    n->empty = is_empty(e);
    return text_of(r, e, &n->text) ? n : NULL;
}

/* STREAM-START [DOCUMENT-START value DOCUMENT-END] STREAM-END */
static bool stream(struct reader *r, struct wp_conf_node **out)
{
    bool ended = false;

    while (!ended) {
        yaml_event_t e;
        bool ok = true;

        if (!next(r, &e))
            return false;
        ended = e.type == YAML_STREAM_END_EVENT;
        if (e.type == YAML_DOCUMENT_START_EVENT && *out) {
            ok = refuse(r, &e, "want one document, got a second");
        } else if (e.type != YAML_STREAM_START_EVENT && e.type != YAML_DOCUMENT_START_EVENT &&
                   e.type != YAML_DOCUMENT_END_EVENT && !ended) {
            *out = value(r, &e, 0);
            ok = *out != NULL;
        }
        yaml_event_delete(&e);
        if (!ok)
            return false;
    }
    return true;
}

int wp_conf_yaml(struct wp_conf *c, const char *place, unsigned line, struct wp_str text,
                 struct wp_conf_node **out)
{
    struct reader r = {.c = c, .text = text, .place = place, .line = line};
    struct wp_conf_node *root = NULL;
    bool ok;

    if (!yaml_parser_initialize(&r.parser))
        return wp_conf_no_memory(c);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)(text.p ? text.p : ""), text.n);
    ok = stream(&r, &root);
    yaml_parser_delete(&r.parser);
    if (!ok)
        return c->no_memory ? WP_ENOMEM : WP_EINVAL;
    *out = root;
    return 0;
}
