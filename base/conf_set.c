/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line changes in the tree: --set key=value, and list items in one word (--worker
 * URL,key=value). */
#include "base/conf_impl.h"

#include <stdio.h>

/* One assignment under way.  path grows as rows are walked. */
struct set {
    struct wp_conf *c;
    const char *place;
    struct conf_path path;
    struct wp_str value;
    bool more; /* a list of text: append to it rather than replace it */
};

static int fail(struct set *s, const char *what)
{
    return wp_conf_fail(s->c, s->place, 0, s->path.text, "%s", what);
}

static int give_up(const struct wp_conf *c)
{
    return c->no_memory ? WP_ENOMEM : WP_EINVAL;
}

static bool many(const struct wp_conf_key *row)
{
    return row->type == WP_CONF_TABLE || row->type == WP_CONF_LIST || row->type == WP_CONF_STRS ||
           row->type == WP_CONF_PAIRS;
}

/* *to says what from says; its name and its place among the others stay. */
static void become(struct wp_conf_node *to, const struct wp_conf_node *from)
{
    struct wp_conf_node *next = to->next;
    struct wp_str key = to->key;

    *to = *from;
    to->next = next;
    to->key = key;
}

/* The entry of map, made empty when it is not there. */
static struct wp_conf_node *entry(struct set *s, struct wp_conf_node *map, struct wp_str key)
{
    struct wp_conf_node *n = wp_conf_child(map, key);

    if (n || !wp_conf_may_add(s->c, map, key, s->place, 0))
        return n;
    n = wp_conf_node(s->c, CONF_SCALAR, s->place, 0);
    if (!n)
        return NULL;
    n->empty = true;
    n->key.n = key.n;
    n->key.p = wp_arena_strndup(&s->c->arena, key.p, key.n);
    if (!n->key.p) {
        wp_conf_no_memory(s->c);
        return NULL;
    }
    wp_conf_append(map, n);
    return n;
}

/* n as a map or a list: what is neither gives way. */
static void ensure(struct set *s, struct wp_conf_node *n, enum conf_kind kind)
{
    if (n->kind != kind)
        become(n, &(struct wp_conf_node){.kind = kind, .place = s->place});
}

/* The item that part names; a new one behind the last. */
static struct wp_conf_node *item(struct set *s, struct wp_conf_node *seq, struct wp_str part)
{
    uint64_t i = seq->n;
    struct wp_conf_node *n;
    char want[64];

    if (!wp_str_is(part, "+") && (!wp_str_u64(part, &i) || i > seq->n)) {
        snprintf(want, sizeof want, "want an item from 0 to %zu, or +", seq->n);
        wp_conf_push(&s->path, part);
        fail(s, want);
        return NULL;
    }
    wp_conf_push_nth(&s->path, i);
    n = wp_conf_nth(seq, i);
    if (n)
        return n;
    n = wp_conf_node(s->c, CONF_SCALAR, s->place, 0);
    if (n)
        wp_conf_append(seq, n);
    return n;
}

static struct wp_conf_node *scalar(struct set *s)
{
    struct wp_conf_node *n = wp_conf_node(s->c, CONF_SCALAR, s->place, 0);

    if (!n)
        return NULL;
    n->style = CONF_LITERAL;
    n->text.n = s->value.n;
    n->text.p = wp_arena_strndup(&s->c->arena, s->value.p, s->value.n);
    if (n->text.p)
        return n;
    wp_conf_no_memory(s->c);
    return NULL;
}

/* The value itself, at the end of the path. */
static int leaf(struct set *s, const struct wp_conf_key *row, struct wp_conf_node *to)
{
    bool yaml = row && many(row) && s->value.n && (s->value.p[0] == '[' || s->value.p[0] == '{');
    struct wp_conf_node *n = NULL;

    if (yaml) {
        int rc = wp_conf_yaml(s->c, s->place, 0, s->value, &n);

        if (rc < 0)
            return rc;
    } else {
        n = scalar(s);
    }
    if (!n)
        return give_up(s->c);
    if (!row || row->type != WP_CONF_STRS || yaml) {
        become(to, n);
        return 0;
    }
    if (!s->more)
        become(to, &(struct wp_conf_node){.kind = CONF_SEQ, .place = s->place});
    ensure(s, to, CONF_SEQ);
    wp_conf_append(to, n);
    return 0;
}

/*  key            a setting, or all of a table or list
 *  key.rest       a table's
 *  key.N[.rest]   an item of a list of tables, or of text
 *  key.name       a table of text: name may have dots */
static int put(struct set *s, const struct wp_conf_key rows[], struct wp_conf_node *map,
               struct wp_str rest)
{
    struct wp_str part;

    while (wp_str_split(&rest, '.', &part)) {
        const struct wp_conf_key *row = wp_conf_row(rows, part);
        struct wp_conf_node *n;

        wp_conf_push(&s->path, part);
        if (!row)
            return wp_conf_unknown(s->c, rows, &(struct wp_conf_node){.place = s->place},
                                   s->path.text, part);
        n = entry(s, map, part);
        if (!n)
            return give_up(s->c);
        if (!rest.p || row->type == WP_CONF_LATER)
            return leaf(s, row, n);
        if (!many(row))
            return fail(s, "has no keys of its own");
        ensure(s, n,
               row->type == WP_CONF_TABLE || row->type == WP_CONF_PAIRS ? CONF_MAP : CONF_SEQ);
        if (row->type == WP_CONF_PAIRS) {
            n = entry(s, n, rest);
            return n ? leaf(s, NULL, n) : give_up(s->c);
        }
        if (row->type != WP_CONF_TABLE) {
            wp_str_split(&rest, '.', &part);
            n = item(s, n, part);
            if (!n)
                return give_up(s->c);
            if (row->type == WP_CONF_STRS && rest.p)
                return fail(s, "has no keys of its own");
            if (!rest.p)
                return leaf(s, row->type == WP_CONF_LIST ? row : NULL, n);
            ensure(s, n, CONF_MAP);
        }
        rows = row->rows;
        map = n;
    }
    return 0;
}

/* False: out of memory, or the text is no table at all, which wp_conf_bind() will say. */
static bool have_root(struct wp_conf *c, const char *place)
{
    if (!c->root)
        c->root = wp_conf_node(c, CONF_MAP, place, 0);
    if (c->root && c->root->kind != CONF_MAP && c->root->empty)
        *c->root = (struct wp_conf_node){.kind = CONF_MAP, .place = place};
    return c->root && c->root->kind == CONF_MAP;
}

/* What a key or value of the command line may not be: it goes into messages and C strings. */
static bool sane(struct wp_str s)
{
    for (size_t i = 0, n; i < s.n; i += n) {
        n = wp_utf8_len(s.p + i, s.n - i);
        if (n == 0)
            return false;
    }
    return true;
}

static char *place_of(struct wp_conf *c, const char *flag, struct wp_str text)
{
    size_t n = strlen(flag), shown = text.n > 120 ? 120 : text.n;
    char *place = wp_arena_alloc(&c->arena, n + shown + 2);

    if (!place) {
        wp_conf_no_memory(c);
        return NULL;
    }
    snprintf(place, n + shown + 2, "%s %.*s", flag, (int)shown, text.p);
    for (char *p = place; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            *p = '?';
    return place;
}

int wp_conf_set(struct wp_conf *c, const struct wp_conf_key rows[], const char *assign)
{
    struct wp_str rest = wp_str_of(assign), key, flag;
    struct set s = {.c = c};

    wp_str_split(&rest, '=', &key);
    if (wp_str_starts(key, "--") && memchr(key.p, ' ', key.n)) {
        wp_str_split(&key, ' ', &flag);
        s.place = wp_arena_strndup(&c->arena, flag.p, flag.n);
        if (!s.place)
            wp_conf_no_memory(c);
    } else {
        s.place = place_of(c, "--set", key);
    }
    if (!s.place)
        return WP_ENOMEM;
    if (!rest.p || key.n == 0)
        return fail(&s, "want KEY=VALUE");
    if (!sane(key) || !sane(rest))
        return fail(&s, "want UTF-8");
    s.value = rest;
    if (!have_root(c, s.place))
        return c->no_memory ? WP_ENOMEM : 0;
    return put(&s, rows, c->root, key);
}

static int spec_pairs(struct set *s, const struct wp_conf_key rows[], struct wp_conf_node *to,
                      struct wp_str rest)
{
    struct wp_str part, key;
    size_t was = s->path.n;
    int rc = 0;

    while (rc == 0 && wp_str_split(&rest, ',', &part)) {
        wp_conf_pop(&s->path, was);
        s->value = part;
        wp_str_split(&s->value, '=', &key);
        if (!s->value.p || key.n == 0)
            return fail(s, "want VALUE[,key=value]...");
        rc = put(s, rows, to, key);
    }
    return rc;
}

int wp_conf_spec(struct wp_conf *c, const struct wp_conf_key rows[], const char *key,
                 const char *first_key, const char *flag, const char *spec)
{
    struct wp_str rest = wp_str_of(spec), first;
    const struct wp_conf_key *row = wp_conf_row(rows, wp_str_of(key));
    struct set s = {.c = c, .more = true};
    struct wp_conf_node *list, *to;
    size_t was;
    int rc;

    wp_str_split(&rest, ',', &first);
    s.place = place_of(c, flag, first);
    if (!s.place)
        return WP_ENOMEM;
    if (!sane(wp_str_of(spec)))
        return fail(&s, "want UTF-8");
    if (!have_root(c, s.place))
        return c->no_memory ? WP_ENOMEM : 0;
    list = entry(&s, c->root, wp_str_of(key));
    if (!list)
        return give_up(c);
    if (list->kind != CONF_SEQ && !list->empty)
        return 0; /* wrong in the file, which will be said */
    ensure(&s, list, CONF_SEQ);
    wp_conf_push(&s.path, wp_str_of(key));
    to = item(&s, list, WP_STR("+"));
    if (!to)
        return give_up(c);
    ensure(&s, to, CONF_MAP);
    was = s.path.n;
    s.value = first;
    rc = put(&s, row->rows, to, wp_str_of(first_key));
    if (rc < 0)
        return rc;
    wp_conf_pop(&s.path, was);
    return spec_pairs(&s, row->rows, to, rest);
}
