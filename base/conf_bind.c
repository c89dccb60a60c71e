/* SPDX-License-Identifier: Apache-2.0 */
/* Tree to struct. */
#include "base/conf_impl.h"

#include <stdio.h>
#include <stdlib.h>

static void *member(void *base, size_t at)
{
    return (char *)base + at;
}

/* --- errors
 * -------------------------------------------------------------------------------------------------
 */

static void got(const struct wp_conf_node *n, char out[128])
{
    struct wp_str s = n->text;
    bool bare = n->kind == CONF_SCALAR && n->style != CONF_QUOTED && s.n > 0;

    if (n->kind != CONF_SCALAR || n->empty) {
        snprintf(out, 128, "%s",
                 n->kind == CONF_MAP   ? "a table"
                 : n->kind == CONF_SEQ ? "a list"
                                       : "nothing");
        return;
    }
    if (s.n > 60)
        for (s.n = 60; s.n > 50 && ((unsigned char)s.p[s.n] & 0xC0) == 0x80;)
            s.n--;
    snprintf(out, 128, "%s%.*s%s%s", bare ? "" : "\"", (int)s.n, s.p, s.n < n->text.n ? "..." : "",
             bare ? "" : "\"");
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            *p = '?';
}

static void refuse(struct wp_conf *c, const struct wp_conf_node *n, const struct conf_path *path,
                   const char *want)
{
    char text[128];

    got(n, text);
    wp_conf_fail(c, n->place, n->line, path->text, "want %s, got %s", want, text);
}

static void refuse_row(struct wp_conf *c, const struct wp_conf_key *row,
                       const struct wp_conf_node *n, const struct conf_path *path)
{
    const char *list[33] = {NULL}, *best = NULL;
    char want[512], text[128];
    size_t count = 0;

    wp_conf_takes(row, want, sizeof want);
    if (row->type == WP_CONF_CHOICE)
        for (; count < 32 && row->choices[count]; count++)
            list[count] = row->choices[count];
    else if (row->known)
        for (; count < 32 && row->known(count); count++)
            list[count] = row->known(count);
    if (n->kind == CONF_SCALAR && count)
        best = wp_str_nearest(n->text, list, count);
    got(n, text);
    if (best)
        wp_conf_fail(c, n->place, n->line, path->text, "want %s, got %s; did you mean \"%s\"?",
                     want, text, best);
    else
        wp_conf_fail(c, n->place, n->line, path->text, "want %s, got %s", want, text);
}

/* --- text
 * ---------------------------------------------------------------------------------------------------
 */

/* The value of ${NAME} at *at, which is moved behind it. */
static bool variable(struct wp_conf *c, const struct wp_conf_node *n, const struct conf_path *path,
                     struct wp_str *rest, struct wp_buf *out)
{
    const char *end = memchr(rest->p, '}', rest->n), *value = NULL;
    char name[128];
    size_t len = end ? (size_t)(end - rest->p) - 2 : 0;

    if (end && len > 0 && len < sizeof name) {
        memcpy(name, rest->p + 2, len);
        name[len] = 0;
        value = getenv(name);
        if (!value) {
            wp_conf_fail(c, n->place, n->line, path->text, "environment variable %s is not set",
                         name);
            return false;
        }
    }
    if (!value) {
        refuse(c, n, path, "${NAME}, or $${ for ${ itself");
        return false;
    }
    rest->n -= len + 3;
    rest->p += len + 3;
    if (wp_buf_adds(out, value) == 0)
        return true;
    wp_conf_no_memory(c);
    return false;
}

static bool expand(struct wp_conf *c, const struct wp_conf_node *n, const struct conf_path *path,
                   struct wp_str rest, struct wp_buf *out)
{
    while (rest.n) {
        size_t take = 1;

        if (wp_str_starts(rest, "${")) {
            if (!variable(c, n, path, &rest, out))
                return false;
            continue;
        }
        if (wp_str_starts(rest, "$${")) {
            rest.p++, rest.n--;
            take = 2;
        }
        if (wp_buf_add(out, rest.p, take) < 0) {
            wp_conf_no_memory(c);
            return false;
        }
        rest.p += take, rest.n -= take;
    }
    return true;
}

static bool has_variable(struct wp_str s)
{
    return s.n >= 2 && memmem(s.p, s.n, "${", 2) != NULL;
}

/* A scalar's text with the environment in it, in the arena, closed by a zero. */
static bool text_of(struct wp_conf *c, const struct wp_conf_node *n, const struct conf_path *path,
                    struct wp_str *out)
{
    struct wp_buf b = {.max = 1 << 20};
    bool ok;

    *out = n->text;
    if (memchr(n->text.n ? n->text.p : "", 0, n->text.n)) {
        wp_conf_fail(c, n->place, n->line, path->text, "want text without NULs");
        return false;
    }
    if (c->foreign || n->style == CONF_LITERAL || !has_variable(n->text))
        return true;
    if (n->style == CONF_PLAIN) {
        refuse(c, n, path, "quotes around text with ${");
        return false;
    }
    ok = expand(c, n, path, n->text, &b);
    if (ok) {
        out->n = b.n;
        out->p = wp_arena_strndup(&c->arena, b.n ? b.p : "", b.n);
        if (!out->p) {
            wp_conf_no_memory(c);
            ok = false;
        }
    }
    wp_buf_fini(&b);
    for (size_t i = 0, len; ok && i < out->n; i += len) {
        len = wp_utf8_len(out->p + i, out->n - i);
        if (len == 0) {
            refuse(c, n, path, "UTF-8 in the environment");
            ok = false;
        }
    }
    return ok;
}

static void put_str(struct wp_conf *c, char **at, const char *text)
{
    char *copy = wp_strdup(text);

    if (!copy) {
        wp_conf_no_memory(c);
        return;
    }
    wp_free(*at);
    *at = copy;
}

/* --- values
 * -------------------------------------------------------------------------------------------------
 */

static bool is_known(const struct wp_conf_key *row, struct wp_str text)
{
    for (size_t i = 0; row->known(i); i++)
        if (wp_str_is(text, row->known(i)))
            return true;
    return false;
}

static void bind_str(struct wp_conf *c, const struct wp_conf_key *row, const struct wp_conf_node *n,
                     char **at, const struct conf_path *path, struct wp_str text)
{
    struct wp_err err = WP_ERR_INIT;

    if (text.n && row->check) {
        if (row->check(text.p, &err) < 0) {
            wp_conf_fail(c, n->place, n->line, path->text, "%s", err.text);
            return;
        }
    } else if (row->known && !is_known(row, text)) {
        refuse_row(c, row, n, path);
        return;
    }
    if (text.n == 0 && !row->def)
        refuse_row(c, row, n, path);
    else
        put_str(c, at, text.p);
}

static void bind_file(struct wp_conf *c, const struct wp_conf_key *row, const struct wp_conf_node *n,
                      char **at, const struct conf_path *path, struct wp_str text)
{
    struct wp_buf whole = {0};

    if (text.n && c->foreign)
        wp_conf_fail(c, n->place, n->line, path->text, "only the configuration file may name files");
    else if (text.n && wp_conf_path(n->line ? c->dir : NULL, text.p, &whole) < 0)
        wp_conf_no_memory(c);
    else
        bind_str(c, row, n, at, path, text.n ? (struct wp_str){whole.p, whole.n - 1} : text);
    wp_buf_fini(&whole);
}

/* JSON has numbers and true and false of its own; sizes such as "64Mi" it has not. */
static bool bare_only(const struct wp_conf_key *row)
{
    return row->type <= WP_CONF_DOUBLE || row->type == WP_CONF_SECONDS || row->type == WP_CONF_MS;
}

static void bind_scalar(struct wp_conf *c, const struct wp_conf_key *row,
                        const struct wp_conf_node *n, void *base, const struct conf_path *path)
{
    struct wp_str text;
    union {
        bool b;
        uint32_t u32;
        uint64_t u64;
        double d;
        unsigned choice;
    } room; /* a refused value leaves the default alone */

    if (n->kind != CONF_SCALAR) {
        refuse_row(c, row, n, path);
        return;
    }
    if (!text_of(c, n, path, &text))
        return;
    if (row->file)
        bind_file(c, row, n, member(base, row->at), path, text);
    else if (row->type == WP_CONF_STR)
        bind_str(c, row, n, member(base, row->at), path, text);
    else if (!wp_conf_scalar(row, text, &room) || (bare_only(row) && n->json && n->style == CONF_QUOTED && !has_variable(n->text)))
        refuse_row(c, row, n, path);
    else
        wp_conf_scalar(row, text, member(base, row->at));
}

/* Room for n strings and the end, all NULL; what stood there is freed. */
static char **fresh_list(struct wp_conf *c, char ***at, size_t n)
{
    char **list = wp_calloc(n + 1, sizeof *list);

    if (!list) {
        wp_conf_no_memory(c);
        return NULL;
    }
    wp_conf_free_list(*at);
    *at = list;
    return list;
}

static void bind_strs(struct wp_conf *c, const struct wp_conf_key *row,
                      const struct wp_conf_node *n, char ***at, struct conf_path *path)
{
    enum conf_kind want = row->type == WP_CONF_PAIRS ? CONF_MAP : CONF_SEQ;
    size_t i = 0, k = 0;
    char **list;

    if (n->kind != want) {
        refuse_row(c, row, n, path);
        return;
    }
    list = fresh_list(c, at, n->n);
    for (const struct wp_conf_node *it = list ? n->child : NULL; it; it = it->next, i++) {
        size_t was = want == CONF_MAP ? wp_conf_push(path, it->key) : wp_conf_push_nth(path, i);
        struct wp_buf pair = {0};
        struct wp_str text;
        size_t len;

        if (it->kind != CONF_SCALAR || it->empty) {
            refuse(c, it, path, "text");
        } else if (text_of(c, it, path, &text)) {
            if (want == CONF_MAP && memchr(it->key.p, '=', it->key.n)) {
                refuse(c, it, path, "a name without =");
            } else if ((want == CONF_MAP && (wp_buf_add(&pair, it->key.p, it->key.n) < 0 ||
                                             wp_buf_adds(&pair, "=") < 0)) ||
                       wp_buf_add(&pair, text.p, text.n) < 0 || wp_buf_add(&pair, "", 1) < 0) {
                wp_conf_no_memory(c);
            } else {
                list[k++] = wp_buf_take(&pair, &len);
            }
        }
        wp_buf_fini(&pair);
        wp_conf_pop(path, was);
    }
}

/* One secret a line, out of the whole file's text. */
static void split_secrets(struct wp_conf *c, const struct wp_conf_node *n, struct wp_str text,
                          char ***at, const struct conf_path *path)
{
    struct wp_str rest = text, line;
    size_t lines = 1, k = 0;
    char **list;

    for (size_t i = 0; i < text.n; i++)
        lines += text.p[i] == '\n';
    list = fresh_list(c, at, lines);
    while (list && wp_str_split(&rest, '\n', &line)) {
        line = wp_str_trim(line);
        if (line.n == 0 || line.p[0] == '#')
            continue;
        list[k] = wp_strndup(line.p, line.n);
        if (!list[k++]) {
            wp_conf_no_memory(c);
            return;
        }
    }
    if (list && k == 0)
        wp_conf_fail(c, n->place, n->line, path->text, "want a file with a key in it, got none");
}

static void bind_secret(struct wp_conf *c, const struct wp_conf_key *row,
                        const struct wp_conf_node *n, void *base, const struct conf_path *path)
{
    struct wp_err err = WP_ERR_INIT;
    struct wp_str name;
    char *text = NULL;
    size_t len = 0;
    int rc;

    if (n->kind != CONF_SCALAR) {
        refuse_row(c, row, n, path);
        return;
    }
    if (c->foreign) {
        wp_conf_fail(c, n->place, n->line, path->text,
                     "only the configuration file may name files");
        return;
    }
    if (!text_of(c, n, path, &name) || name.n == 0)
        return;
    rc = wp_conf_secret(n->line ? c->dir : NULL, name.p, &text, &len, &err);
    if (rc == WP_ENOMEM) {
        wp_conf_no_memory(c);
    } else if (rc < 0) {
        wp_conf_fail(c, n->place, n->line, path->text, "want a file to read, got \"%s\": %s",
                     name.p, err.text);
    } else if (row->type == WP_CONF_SECRETS) {
        split_secrets(c, n, (struct wp_str){text, len}, member(base, row->at), path);
        wp_free(text);
    } else if (strpbrk(text, "\r\n")) { /* it goes into a header */
        wp_conf_fail(c, n->place, n->line, path->text, "want a file of one line, the key, got more in \"%s\"", name.p);
        explicit_bzero(text, len);
        wp_free(text);
    } else {
        wp_free(*(char **)member(base, row->at));
        *(char **)member(base, row->at) = text;
    }
}

static void bind_rows(struct wp_conf *c, const struct wp_conf_key rows[],
                      const struct wp_conf_node *n, void *base, struct conf_path *path);

static void bind_list(struct wp_conf *c, const struct wp_conf_key *row,
                      const struct wp_conf_node *n, void *base, struct conf_path *path)
{
    const struct wp_conf_node *it = n->child;
    char *items;

    if (n->kind != CONF_SEQ) {
        refuse_row(c, row, n, path);
        return;
    }
    items = wp_calloc(n->n, row->size);
    if (!items) {
        wp_conf_no_memory(c);
        return;
    }
    wp_conf_set_items(row, base, items, n->n);
    for (size_t i = 0; i < n->n; i++, it = it->next) {
        size_t was = wp_conf_push_nth(path, i);

        if (wp_conf_defaults(row->rows, items + i * row->size) < 0)
            wp_conf_no_memory(c);
        else
            bind_rows(c, row->rows, it, items + i * row->size, path);
        wp_conf_pop(path, was);
    }
}

static void bind_value(struct wp_conf *c, const struct wp_conf_key *row,
                       const struct wp_conf_node *n, void *base, struct conf_path *path)
{
    if (row->type == WP_CONF_TABLE)
        bind_rows(c, row->rows, n, base, path); /* also when empty: a key may be required */
    else if (n->empty)
        return;
    else if (row->type == WP_CONF_LATER)
        wp_conf_fail(c, n->place, n->line, path->text, "not in this version");
    else if (row->type == WP_CONF_LIST)
        bind_list(c, row, n, base, path);
    else if (row->type == WP_CONF_STRS || row->type == WP_CONF_PAIRS)
        bind_strs(c, row, n, member(base, row->at), path);
    else if (row->type == WP_CONF_SECRET || row->type == WP_CONF_SECRETS)
        bind_secret(c, row, n, base, path);
    else
        bind_scalar(c, row, n, base, path);
}

/* A single value without a default.  Lists, tables and secrets may be absent. */
static bool must_be(const struct wp_conf_key *row)
{
    return !row->def && (row->type <= WP_CONF_CHOICE);
}

static void demand(struct wp_conf *c, const struct wp_conf_key *row, const struct wp_conf_node *n,
                   struct conf_path *path)
{
    const struct wp_conf_node *it = wp_conf_child(n, wp_str_of(row->name));
    struct wp_conf_node nothing = {.empty = true, .place = n->place, .line = n->line};
    size_t was;

    if (it && !it->empty)
        return;
    was = wp_conf_push(path, wp_str_of(row->name));
    refuse_row(c, row, it ? it : &nothing, path);
    wp_conf_pop(path, was);
}

static void bind_rows(struct wp_conf *c, const struct wp_conf_key rows[],
                      const struct wp_conf_node *n, void *base, struct conf_path *path)
{
    if (n->kind != CONF_MAP && !n->empty) {
        refuse(c, n, path, "a table of keys");
        return;
    }
    for (const struct wp_conf_node *it = n->child; it; it = it->next) {
        const struct wp_conf_key *row = wp_conf_row(rows, it->key);
        size_t was = wp_conf_push(path, it->key);

        if (!row)
            wp_conf_unknown(c, rows, it, path->text, it->key);
        else
            bind_value(c, row, it, base, path);
        wp_conf_pop(path, was);
    }
    for (const struct wp_conf_key *row = rows; row->name; row++)
        if (must_be(row))
            demand(c, row, n, path);
}

int wp_conf_bind(struct wp_conf *c, const struct wp_conf_key rows[], void *base)
{
    static const struct wp_conf_node nothing = {.empty = true, .place = "configuration"};
    struct conf_path path = {0};

    if (wp_conf_defaults(rows, base) < 0)
        return wp_conf_no_memory(c);
    bind_rows(c, rows, c->root ? c->root : &nothing, base, &path);
    if (c->no_memory)
        return WP_ENOMEM;
    return c->n_errors ? WP_EINVAL : 0;
}
