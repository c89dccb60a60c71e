/* SPDX-License-Identifier: Apache-2.0 */
#include "base/conf.h"

#include "base/conf_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int wp_conf_no_memory(struct wp_conf *c)
{
    c->no_memory = true;
    return WP_ENOMEM;
}

/* A line is a line, and UTF-8, whatever stood in the text. */
static void tame(char *p, size_t n)
{
    for (size_t i = 0, len; i < n; i += len ? len : 1) {
        len = wp_utf8_len(p + i, n - i);
        if (len == 0 || (unsigned char)p[i] < 0x20 || p[i] == 0x7F)
            p[i] = '?';
    }
}

/* "--set a.b: want ..." rather than "--set a.b: a.b: want ...", and a flag of its own is the key by another name. */
static bool says_all(const char *place, const char *path)
{
    const char *blank = strchr(place, ' ');

    return strncmp(place, "--", 2) == 0 && (!blank || strcmp(blank + 1, path) == 0);
}

int wp_conf_fail(struct wp_conf *c, const char *place, unsigned line, const char *path,
                 const char *fmt, ...)
{
    size_t start = c->errors->n;
    va_list ap;
    int rc;

    if (c->n_errors++ >= CONF_ERRORS)
        return WP_EINVAL;
    rc = line ? wp_buf_printf(c->errors, "%s:%u: ", place, line)
              : wp_buf_printf(c->errors, "%s: ", place);
    if (rc == 0 && *path && !says_all(place, path))
        rc = wp_buf_printf(c->errors, "%s: ", path);
    va_start(ap, fmt);
    if (rc == 0)
        rc = wp_buf_vprintf(c->errors, fmt, ap);
    va_end(ap);
    if (rc == 0)
        rc = wp_buf_adds(c->errors, "\n");
    if (rc == 0) {
        tame(c->errors->p + start, c->errors->n - start - 1);
        return WP_EINVAL;
    }
    c->errors->n = start;
    return rc == WP_ENOMEM ? wp_conf_no_memory(c) : WP_EINVAL;
}

size_t wp_conf_push(struct conf_path *p, struct wp_str part)
{
    size_t was = p->n;
    int n = snprintf(p->text + was, sizeof p->text - was, "%s" WP_STR_FMT, was ? "." : "",
                     WP_STR_ARG(part));

    p->n += n < 0 ? 0 : (size_t)n;
    if (p->n >= sizeof p->text)
        p->n = sizeof p->text - 1;
    return was;
}

size_t wp_conf_push_nth(struct conf_path *p, size_t i)
{
    char text[24];

    snprintf(text, sizeof text, "%zu", i);
    return wp_conf_push(p, wp_str_of(text));
}

void wp_conf_pop(struct conf_path *p, size_t was)
{
    p->n = was;
    p->text[was] = 0;
}

struct wp_conf_node *wp_conf_node(struct wp_conf *c, enum conf_kind kind, const char *place,
                                  unsigned line)
{
    struct wp_conf_node *n;

    if (c->nodes >= CONF_NODES) {
        wp_conf_fail(c, place, line, "", "want at most %d values, got more", CONF_NODES);
        return NULL;
    }
    n = wp_arena_alloc(&c->arena, sizeof *n);
    if (!n) {
        wp_conf_no_memory(c);
        return NULL;
    }
    c->nodes++;
    *n = (struct wp_conf_node){.kind = kind, .place = place, .line = line};
    return n;
}

void wp_conf_append(struct wp_conf_node *parent, struct wp_conf_node *child)
{
    if (parent->last)
        parent->last->next = child;
    else
        parent->child = child;
    parent->last = child;
    parent->n++;
}

struct wp_conf_node *wp_conf_child(const struct wp_conf_node *map, struct wp_str key)
{
    for (struct wp_conf_node *n = map->kind == CONF_MAP ? map->child : NULL; n; n = n->next)
        if (wp_str_eq(n->key, key))
            return n;
    return NULL;
}

struct wp_conf_node *wp_conf_nth(const struct wp_conf_node *seq, size_t i)
{
    struct wp_conf_node *n = seq->kind == CONF_SEQ ? seq->child : NULL;

    while (n && i--)
        n = n->next;
    return n;
}

bool wp_conf_may_add(struct wp_conf *c, const struct wp_conf_node *map, struct wp_str key,
                     const char *place, unsigned line)
{
    const struct wp_conf_node *first = wp_conf_child(map, key);
    int shown = key.n > 60 ? 60 : (int)key.n;

    if (first)
        wp_conf_fail(c, place, line, "", "%.*s: duplicate key, first in line %u", shown, key.p,
                     first->line);
    else if (memchr(key.n ? key.p : "", 0, key.n))
        wp_conf_fail(c, place, line, "", "want keys without NULs");
    else if (map->n >= CONF_KEYS)
        wp_conf_fail(c, place, line, "", "want at most %d keys in a table, got more", CONF_KEYS);
    else
        return true;
    return false;
}

const struct wp_conf_key *wp_conf_row(const struct wp_conf_key rows[], struct wp_str name)
{
    for (const struct wp_conf_key *row = rows; row->name; row++)
        if (wp_str_is(name, row->name))
            return row;
    return NULL;
}

int wp_conf_unknown(struct wp_conf *c, const struct wp_conf_key rows[],
                    const struct wp_conf_node *n, const char *path, struct wp_str key)
{
    const char *names[64], *best;
    size_t count = 0;

    for (const struct wp_conf_key *row = rows; row->name && count < 64; row++)
        if (row->type != WP_CONF_LATER)
            names[count++] = row->name;
    best = wp_str_nearest(key, names, count);
    if (best)
        return wp_conf_fail(c, n->place, n->line, path, "unknown key; did you mean \"%s\"?", best);
    return wp_conf_fail(c, n->place, n->line, path, "unknown key");
}

/*
 * What libyaml and jansson would say in words of their own, or not at all: one bad byte is one
 * error, at its line.
 */
static int check_bytes(struct wp_conf *c, const char *place, struct wp_str text, bool yaml)
{
    unsigned line = 1;
    bool indent = true;

    for (size_t i = 0; i < text.n;) {
        size_t n = wp_utf8_len(text.p + i, text.n - i);
        char b = text.p[i];

        if (n == 0)
            return wp_conf_fail(c, place, line, "", "want UTF-8, got byte 0x%02X",
                                (unsigned char)b);
        if (b == 0)
            return wp_conf_fail(c, place, line, "", "want text, got a NUL byte");
        if (b == '\t' && indent && yaml)
            return wp_conf_fail(c, place, line, "", "want blanks for indentation, got a tab");
        if (b == '\n')
            line++;
        indent = b == '\n' || (indent && b == ' ');
        i += n;
    }
    return 0;
}

int wp_conf_read_text(struct wp_conf *c, const char *name, struct wp_str text)
{
    char *place = wp_arena_strndup(&c->arena, name, strlen(name));
    struct wp_str start;
    bool json;
    int rc;

    if (!place)
        return wp_conf_no_memory(c);
    if (text.n > CONF_BYTES)
        return wp_conf_fail(c, place, 0, "", "want at most 16 MiB, got more");
    if (wp_str_starts(text, "\xEF\xBB\xBF"))
        text.p += 3, text.n -= 3;
    start = wp_str_trim(text);
    json = wp_str_starts(start, "{");
    rc = check_bytes(c, place, text, !json);
    if (rc < 0)
        return rc;
    return json ? wp_conf_json_text(c, place, text, &c->root)
                : wp_conf_yaml(c, place, 1, text, &c->root);
}

/* A regular file as a whole.  Not blocking: a FIFO must not hold up a reload. */
static int slurp(const char *path, struct wp_buf *out, struct wp_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = 0;
    struct stat st;

    if (fd < 0)
        return wp_fail(err, -errno, "%s", wp_strerror(-errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        rc = wp_fail(err, WP_EINVAL, "not a regular file");
    while (rc == 0) {
        ssize_t got;

        rc = wp_buf_reserve(out, out->n + 65536 > out->max ? out->max - out->n : 65536);
        if (rc < 0)
            rc = wp_fail(err, rc, "%s", wp_strerror(rc));
        if (rc < 0)
            break;
        got = read(fd, out->p + out->n, out->cap - out->n);
        if (got < 0)
            rc = wp_fail(err, -errno, "%s", wp_strerror(-errno));
        if (got <= 0)
            break;
        out->n += (size_t)got;
        if (out->n == out->max)
            rc = wp_fail(err, WP_ETOOBIG, "want at most %zu bytes, got more", out->max - 1);
    }
    close(fd);
    return rc;
}

int wp_conf_read_file(struct wp_conf *c, const char *path)
{
    struct wp_buf text = {.max = CONF_BYTES + 1};
    struct wp_err err = WP_ERR_INIT;
    const char *slash = strrchr(path, '/');
    int rc;

    if (slash) {
        c->dir = wp_arena_strndup(&c->arena, path, (size_t)(slash - path) + 1);
        if (!c->dir)
            return wp_conf_no_memory(c);
    }
    rc = slurp(path, &text, &err);
    if (rc == WP_ENOMEM)
        wp_conf_no_memory(c);
    else if (rc < 0)
        rc = wp_conf_fail(c, path, 0, "", "cannot be read: %s", err.text);
    else
        rc = wp_conf_read_text(c, path, wp_buf_str(&text));
    wp_buf_fini(&text);
    return rc;
}

int wp_conf_path(const char *dir, const char *name, struct wp_buf *path)
{
    int rc = *name == '/' || !dir ? 0 : wp_buf_adds(path, dir);

    return rc < 0 ? rc : wp_buf_add(path, name, strlen(name) + 1);
}

int wp_conf_secret(const char *dir, const char *name, char **out, size_t *n, struct wp_err *err)
{
    struct wp_buf path = {0}, text = {.max = (1 << 20) + 1};
    int rc = wp_conf_path(dir, name, &path);

    rc = rc < 0 ? wp_fail(err, rc, "out of memory") : slurp(path.p, &text, err);
    wp_buf_fini(&path);
    if (rc == 0 && text.n && text.p[text.n - 1] == '\n')
        text.n -= text.n > 1 && text.p[text.n - 2] == '\r' ? 2 : 1;
    if (rc == 0 && text.n == 0)
        rc = wp_fail(err, WP_EINVAL, "the file is empty");
    if (rc == 0 && memchr(text.p, 0, text.n))
        rc = wp_fail(err, WP_EINVAL, "the file holds a NUL byte");
    if (rc == 0 && wp_buf_add(&text, "", 1) < 0)
        rc = wp_fail(err, WP_ENOMEM, "out of memory");
    if (rc == 0) {
        *out = wp_buf_take(&text, n);
        --*n;
    }
    wp_buf_fini(&text);
    return rc;
}

/* The node of a dotted key, or the nearest one above it: then *whole is false. */
static const struct wp_conf_node *walk(const struct wp_conf *c, const char *key, bool *whole)
{
    const struct wp_conf_node *n = c->root;
    struct wp_str rest = wp_str_of(key), part;

    *whole = n != NULL;
    while (n && wp_str_split(&rest, '.', &part)) {
        uint64_t i;
        const struct wp_conf_node *child = n->kind == CONF_SEQ && wp_str_u64(part, &i)
                                               ? wp_conf_nth(n, i)
                                               : wp_conf_child(n, part);

        if (!child) {
            *whole = false;
            break;
        }
        n = child;
    }
    return n;
}

bool wp_conf_given(const struct wp_conf *c, const char *key)
{
    bool whole;
    const struct wp_conf_node *n = walk(c, key, &whole);

    return whole && !n->empty;
}

int wp_conf_error(struct wp_conf *c, const char *key, const char *fmt, ...)
{
    bool whole;
    const struct wp_conf_node *n = walk(c, key, &whole);
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return wp_conf_fail(c, n ? n->place : "defaults", n ? n->line : 0, key, "%s", text);
}

void wp_conf_fini(struct wp_conf *c)
{
    wp_arena_fini(&c->arena);
    c->root = NULL;
    c->dir = NULL;
    c->nodes = 0;
}
