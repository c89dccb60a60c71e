/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/conf_impl.h - the tree between a text and a struct: conf_yaml.c and conf_json.c make it,
 * conf_set.c changes it, conf_bind.c reads it.  Nodes live in the arena of struct wp_conf.
 */
#ifndef WP_BASE_CONF_IMPL_H
#define WP_BASE_CONF_IMPL_H

#include "base/conf.h"

enum {
    CONF_DEPTH = 32,
    CONF_NODES = 300000,
    CONF_KEYS = 512,
    CONF_BYTES = 16 << 20,
    CONF_ERRORS = 50,
};

enum conf_kind { CONF_SCALAR, CONF_MAP, CONF_SEQ };
/* Environment variables are replaced in quoted text, refused in plain text, and mean nothing in
 * literal text. */
enum conf_style { CONF_PLAIN, CONF_QUOTED, CONF_LITERAL };

struct wp_conf_node {
    enum conf_kind kind;
    enum conf_style style;
    bool empty;        /* nothing, ~ or null */
    bool json;         /* in quotes it is text, and no number */
    struct wp_str key; /* in a map */
    struct wp_str text;
    const char *place; /* the file's name, or "--set a.b" */
    unsigned line;     /* 0: place says it all */
    struct wp_conf_node *child, *last, *next;
    size_t n; /* children */
};

/* The dotted name of the key at hand.  Too long ones are cut. */
struct conf_path {
    char text[256];
    size_t n;
};
size_t wp_conf_push(struct conf_path *p, struct wp_str part); /* what to give to wp_conf_pop() */
size_t wp_conf_push_nth(struct conf_path *p, size_t i);
void wp_conf_pop(struct conf_path *p, size_t was);

/* NULL: out of memory or too many, which has been said. */
struct wp_conf_node *wp_conf_node(struct wp_conf *c, enum conf_kind kind, const char *place,
                                  unsigned line);
void wp_conf_append(struct wp_conf_node *parent, struct wp_conf_node *child);
struct wp_conf_node *wp_conf_child(const struct wp_conf_node *map, struct wp_str key);
struct wp_conf_node *wp_conf_nth(const struct wp_conf_node *seq, size_t i);

/* Whether key may be added to map; says why not. */
bool wp_conf_may_add(struct wp_conf *c, const struct wp_conf_node *map, struct wp_str key,
                     const char *place, unsigned line);

const struct wp_conf_key *wp_conf_row(const struct wp_conf_key rows[], struct wp_str name);

/* WP_EINVAL; path may be "". */
int wp_conf_fail(struct wp_conf *c, const char *place, unsigned line, const char *path,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
int wp_conf_unknown(struct wp_conf *c, const struct wp_conf_key rows[],
                    const struct wp_conf_node *n, const char *path, struct wp_str key);
int wp_conf_no_memory(struct wp_conf *c); /* WP_ENOMEM */

/* Text to tree; *out NULL for an empty text. */
int wp_conf_yaml(struct wp_conf *c, const char *place, unsigned line, struct wp_str text,
                 struct wp_conf_node **out);
int wp_conf_json_text(struct wp_conf *c, const char *place, struct wp_str text,
                      struct wp_conf_node **out);

/* "a whole number from 1 to 64" */
void wp_conf_takes(const struct wp_conf_key *row, char *out, size_t size);
/* One scalar; false when the text is not of the row's type or out of bounds. */
bool wp_conf_scalar(const struct wp_conf_key *row, struct wp_str text, void *at);
/* The array of a list and its length. */
void *wp_conf_items(const struct wp_conf_key *row, const void *base, size_t *n);
void wp_conf_set_items(const struct wp_conf_key *row, void *base, void *items, size_t n);
/* A file's whole path, with a zero behind it, as a file in dir has it. */
int wp_conf_path(const char *dir, const char *name, struct wp_buf *path);
/* A file of secrets into *out: less one newline at its end, no NULs, at most 1 MiB, closed by a
 * zero; dir as in wp_conf. */
int wp_conf_secret(const char *dir, const char *name, char **out, size_t *n, struct wp_err *err);
void wp_conf_free_list(char **list); /* NULL-ended */

#endif
