/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/conf.h - settings as rows: one table says a key's name, type, default, bounds, place in a
 * plain struct and meaning, and that table parses, checks, applies the defaults, prints the help,
 * writes JSON, tells what differs and frees.
 *
 *     struct wp_conf c = {.errors = &errors};
 *     wp_conf_read_file(&c, "warmpath.yaml");             the file becomes a tree that knows its
 * lines wp_conf_set(&c, rows, "policy.price.room_us=10");   and the command line changes that tree
 *     wp_conf_bind(&c, rows, &settings);                  the tree becomes a struct
 *     if (c.n_errors) ...                                 every error is in errors, one a line
 *     wp_conf_fini(&c);
 *
 * The text is YAML, or strict JSON when it starts with `{`.  Refused with its line: duplicate keys,
 * anchors, aliases, merge keys, tags, a second document, tabs in indentation, NULs, what is not
 * UTF-8; past 16 MiB, 32 levels, 300,000 values, 512 keys of one table. An empty value (`key:`) is
 * as if the key were not there.  In quoted text "${NAME}" is the environment's value (unset is an
 * error) and "$${" stands for "${".  A key of type WP_CONF_SECRET or WP_CONF_SECRETS names a file,
 * relative to the configuration's folder, whose text is the value; the value is never printed. An
 * error reads `FILE:LINE: key: want ..., got ...`, and from the command line `--set key: want ...,
 * got ...`. Threads: one at a time.  It reads files: not for a loop.
 */
#ifndef WP_BASE_CONF_H
#define WP_BASE_CONF_H

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

/*  type               the struct has            the text has */
enum wp_conf_type {
    WP_CONF_BOOL,    /* bool                     true or false */
    WP_CONF_U32,     /* uint32_t                 a whole number */
    WP_CONF_U64,     /* uint64_t                 a whole number */
    WP_CONF_DOUBLE,  /* double                   a number */
    WP_CONF_BYTES,   /* uint64_t                 64Mi, 2G, 100 */
    WP_CONF_SECONDS, /* uint64_t, microseconds   seconds, with a fraction */
    WP_CONF_MS,      /* uint64_t, microseconds   milliseconds, with a fraction */
    WP_CONF_STR,     /* char *, never NULL       text */
    WP_CONF_CHOICE,  /* an enum from 0           one of choices[] */
    WP_CONF_STRS,    /* char **, ends with NULL  a list of text */
    WP_CONF_PAIRS,   /* char **, "k=v", NULL     a table of text */
    WP_CONF_SECRET,  /* char *, never NULL       a file's name; its text less one newline at the end
                      */
    WP_CONF_SECRETS, /* char **, ends with NULL  a file's name; one a line, but for empty lines and
                        those that start with # */
    WP_CONF_TABLE,   /* members of the struct    a table, by rows */
    WP_CONF_LIST,    /* T *, and size_t at count a list of tables, by rows whose offsets are T's */
    WP_CONF_LATER,   /* nothing                  a key of a later version: an error that says so */
};

struct wp_conf_key {
    const char *name; /* a NULL name ends the table */
    enum wp_conf_type type;
    size_t at;       /* offset in the struct; of the array for a list; unused for a table */
    const char *def; /* as the text has it; NULL: the key must be there (a list or table: empty) */
    double min, max; /* in the unit of the text; max 0: no bounds but the type's */
    const char *const *choices;     /* WP_CONF_CHOICE: names of 0, 1, ..., NULL */
    const char *(*known)(size_t i); /* WP_CONF_STR: the names it may have, NULL past the end */
    int (*check)(const char *text, struct wp_err *err); /* a WP_CONF_STR that is not empty; err says
                                                           what was wanted, all of it */
    const struct wp_conf_key *rows;                     /* of a table, of a list's items */
    bool file; /* WP_CONF_STR that names a file: taken relative to the configuration's folder, and refused in a foreign text */
    size_t count, size; /* list: offset of the count; bytes of an item */
    bool restart;       /* a program that runs keeps the value it started with */
    const char *meaning;
};

struct wp_conf_node; /* conf_impl.h */

struct wp_conf {
    struct wp_buf *errors; /* the caller's */
    unsigned n_errors;     /* beyond 50 they are counted only */
    bool no_memory;
    bool foreign; /* set it for a text from the network: no files are read for it, "${NAME}" is text
                   */
    /* the rest is private */
    struct wp_arena arena;
    struct wp_conf_node *root;
    size_t nodes;
    char *dir; /* of the file, for names of files in it; NULL: the working directory */
};

/* Each returns 0, WP_EINVAL when it has added to the errors, or WP_ENOMEM. */
int wp_conf_read_file(struct wp_conf *c, const char *path);
int wp_conf_read_text(struct wp_conf *c, const char *name, struct wp_str text); /* text is copied */

/*
 * key=value: as if written in the file, later ones win.  key is dotted; a list's item by its
 * number, the number of items (or +) appends one. value is text as it stands, or YAML when it
 * starts with [ or { and the key is a list or a table.
 * "--listen listen.api=:80" says the same, and that a flag of that name did: errors tell it.
 */
int wp_conf_set(struct wp_conf *c, const struct wp_conf_key rows[], const char *assign);

/* Appends an item to the list at the dotted key: `first[,key=value]...`, where first is the value
 * of first_key.  A key that is a list of text may come several times.  flag is how the command line
 * calls it: "--worker". */
int wp_conf_spec(struct wp_conf *c, const struct wp_conf_key rows[], const char *key,
                 const char *first_key, const char *flag, const char *spec);

/* Fills *base (cleared by the caller) from the defaults and the tree.  Free it with
 * wp_conf_clear(), also after an error. */
int wp_conf_bind(struct wp_conf *c, const struct wp_conf_key rows[], void *base);

/* Adds an error about a dotted key, at the place where it (or what holds it) stands in the text;
 * for checks across keys. */
int wp_conf_error(struct wp_conf *c, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether the text says something for a dotted key. */
bool wp_conf_given(const struct wp_conf *c, const char *key);
void wp_conf_fini(struct wp_conf *c); /* of the tree; errors stay the caller's */

/* The defaults alone.  Errors: WP_ENOMEM (then *base is cleared). */
int wp_conf_defaults(const struct wp_conf_key rows[], void *base);
/* Frees what *base holds and clears those members. */
void wp_conf_clear(const struct wp_conf_key rows[], void *base);
/* Errors: WP_ENOMEM; *to is cleared then. */
int wp_conf_copy(const struct wp_conf_key rows[], void *to, const void *from);

/* As JSON, which can be read back but for its secrets: "(set)", or null when there is none. */
int wp_conf_json(const struct wp_conf_key rows[], const void *base, struct wp_buf *out);
/* What a program that runs keeps when it reads its settings again: the rows with `restart`, outside lists, go from
 * *from to *to.  Errors: WP_ENOMEM; free *to with wp_conf_clear() then. */
int wp_conf_keep(const struct wp_conf_key rows[], void *to, const void *from);
/* `key: old -> new`, a line a key, with "(needs a restart)" behind those that do; items of lists are matched by their
 * first row, "list.NAME: added" or "removed". */
int wp_conf_diff(const struct wp_conf_key rows[], const void *a, const void *b, struct wp_buf *out);
/* A line a key: name, type, range, default; the meaning on the next. */
int wp_conf_help(const struct wp_conf_key rows[], struct wp_buf *out);
/* Calls fn for each key that holds a value, with its dotted name ("workers[].url") and what it
 * takes in words. */
int wp_conf_each(const struct wp_conf_key rows[],
                 int (*fn)(void *arg, const char *name, const char *takes,
                           const struct wp_conf_key *row),
                 void *arg);

#endif
