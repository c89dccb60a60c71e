/* SPDX-License-Identifier: Apache-2.0 */
/* What a row says of one value, and the life of a struct that rows describe. */
#include "base/conf_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void *member(void *base, size_t at)
{
    return (char *)base + at;
}

/* Pointers to items of any type: read and written as bytes, for their true type is the caller's. */
void *wp_conf_items(const struct wp_conf_key *row, const void *base, size_t *n)
{
    void *p;

    memcpy(&p, (const char *)base + row->at, sizeof p);
    memcpy(n, (const char *)base + row->count, sizeof *n);
    return p;
}

void wp_conf_set_items(const struct wp_conf_key *row, void *base, void *items, size_t n)
{
    memcpy((char *)base + row->at, &items, sizeof items);
    memcpy((char *)base + row->count, &n, sizeof n);
}

/* 64Mi rather than 67108864. */
static void bytes_text(char out[32], double x)
{
    static const char *const units[] = {"", "Ki", "Mi", "Gi", "Ti"};
    size_t i = 0;

    while (i < 4 && x >= 1024 && fmod(x, 1024) == 0)
        x /= 1024, i++;
    snprintf(out, 32, "%.15g%s", x, units[i]);
}

static void range(const struct wp_conf_key *row, const char *what, char *out, size_t size)
{
    char min[32], max[32];

    if (row->max == 0) {
        snprintf(out, size, "%s", what);
        return;
    }
    if (row->type == WP_CONF_BYTES) {
        bytes_text(min, row->min);
        bytes_text(max, row->max);
    } else {
        snprintf(min, sizeof min, "%.15g", row->min);
        snprintf(max, sizeof max, "%.15g", row->max);
    }
    snprintf(out, size, "%s from %s to %s", what, min, max);
}

/* "a, b or c" */
static void names(const struct wp_conf_key *row, char *out, size_t size)
{
    size_t n = 0, at = 0;

    while (row->choices ? row->choices[n] != NULL : row->known(n) != NULL)
        n++;
    for (size_t i = 0; i < n && at < size; i++) {
        const char *sep = i == 0 ? "" : i + 1 < n ? ", " : " or ";
        int w = snprintf(out + at, size - at, "%s%s", sep,
                         row->choices ? row->choices[i] : row->known(i));

        at += w > 0 ? (size_t)w : 0;
    }
}

void wp_conf_takes(const struct wp_conf_key *row, char *out, size_t size)
{
    static const char *const plain[] = {
        [WP_CONF_BOOL] = "true or false",          [WP_CONF_STR] = "text",
        [WP_CONF_STRS] = "a list of text",         [WP_CONF_PAIRS] = "a table of text",
        [WP_CONF_SECRET] = "a file that holds it", [WP_CONF_SECRETS] = "a file, one a line",
        [WP_CONF_TABLE] = "a table of keys",       [WP_CONF_LIST] = "a list of tables",
        [WP_CONF_LATER] = "nothing yet",
    };

    out[0] = 0;
    if (row->type == WP_CONF_CHOICE || row->known)
        names(row, out, size);
    else if (row->type == WP_CONF_U32 || row->type == WP_CONF_U64)
        range(row, "a whole number", out, size);
    else if (row->type == WP_CONF_DOUBLE)
        range(row, "a number", out, size);
    else if (row->type == WP_CONF_BYTES)
        range(row, "bytes (64Mi)", out, size);
    else if (row->type == WP_CONF_SECONDS)
        range(row, "seconds", out, size);
    else if (row->type == WP_CONF_MS)
        range(row, "milliseconds", out, size);
    else
        snprintf(out, size, "%s", plain[row->type]);
}

static bool within(const struct wp_conf_key *row, double x)
{
    return row->max == 0 || (x >= row->min && x <= row->max);
}

static bool time_of(const struct wp_conf_key *row, struct wp_str text, uint64_t *us)
{
    double x, unit = row->type == WP_CONF_SECONDS ? 1e6 : 1e3;

    if (!wp_str_double(text, &x) || x < 0 || x * unit > 1e15 || !within(row, x))
        return false;
    *us = (uint64_t)llround(x * unit);
    return true;
}

static bool choice_of(const struct wp_conf_key *row, struct wp_str text, void *at)
{
    for (unsigned i = 0; row->choices[i]; i++)
        if (wp_str_is(text, row->choices[i])) {
            memcpy(at, &i, sizeof i);
            return true;
        }
    return false;
}

bool wp_conf_scalar(const struct wp_conf_key *row, struct wp_str text, void *at)
{
    uint64_t u = 0;
    double d = 0;

    switch (row->type) {
    case WP_CONF_BOOL:
        *(bool *)at = wp_str_is(text, "true");
        return *(bool *)at || wp_str_is(text, "false");
    case WP_CONF_U32:
        if (!wp_str_u64(text, &u) || u > UINT32_MAX || !within(row, (double)u))
            return false;
        *(uint32_t *)at = (uint32_t)u;
        return true;
    case WP_CONF_U64:
    case WP_CONF_BYTES:
        if (!(row->type == WP_CONF_U64 ? wp_str_u64(text, &u) : wp_str_bytes(text, &u)) ||
            !within(row, (double)u))
            return false;
        *(uint64_t *)at = u;
        return true;
    case WP_CONF_DOUBLE:
        if (!wp_str_double(text, &d) || !within(row, d))
            return false;
        *(double *)at = d;
        return true;
    case WP_CONF_SECONDS:
    case WP_CONF_MS:
        return time_of(row, text, at);
    case WP_CONF_CHOICE:
        return choice_of(row, text, at);
    default:
        return false;
    }
}

void wp_conf_free_list(char **list)
{
    for (char **s = list; s && *s; s++)
        wp_free(*s);
    wp_free(list);
}

static int set_default(const struct wp_conf_key *row, void *base)
{
    const char *def = row->def ? row->def : "";
    void *at = member(base, row->at);

    switch (row->type) {
    case WP_CONF_STR:
    case WP_CONF_SECRET:
        *(char **)at = wp_strdup(row->type == WP_CONF_STR ? def : "");
        return *(char **)at ? 0 : WP_ENOMEM;
    case WP_CONF_STRS:
    case WP_CONF_PAIRS:
    case WP_CONF_SECRETS:
        *(char ***)at = wp_calloc(1, sizeof(char *));
        return *(char ***)at ? 0 : WP_ENOMEM;
    case WP_CONF_LIST:
        wp_conf_set_items(row, base, NULL, 0);
        return 0;
    case WP_CONF_LATER:
        return 0;
    case WP_CONF_TABLE:
        return wp_conf_defaults(row->rows, base);
    default:
        if (*def && !wp_conf_scalar(row, wp_str_of(def), at))
            assert(!"a row whose default is not of its type");
        return 0;
    }
}

int wp_conf_defaults(const struct wp_conf_key rows[], void *base)
{
    for (const struct wp_conf_key *row = rows; row->name; row++)
        if (set_default(row, base) < 0) {
            wp_conf_clear(rows, base);
            return WP_ENOMEM;
        }
    return 0;
}

static void wipe(char *s)
{
    if (s)
        explicit_bzero(s, strlen(s));
}

static void clear_list(const struct wp_conf_key *row, void *base)
{
    size_t n;
    char *items = wp_conf_items(row, base, &n);

    for (size_t i = 0; items && i < n; i++)
        wp_conf_clear(row->rows, items + i * row->size);
    wp_free(items);
    wp_conf_set_items(row, base, NULL, 0);
}

static void clear_strs(char ***at, bool secret)
{
    for (char **s = *at; secret && s && *s; s++)
        wipe(*s);
    wp_conf_free_list(*at);
    *at = NULL;
}

static void clear_row(const struct wp_conf_key *row, void *base)
{
    char **str = member(base, row->at);

    switch (row->type) {
    case WP_CONF_STR:
    case WP_CONF_SECRET:
        if (row->type == WP_CONF_SECRET)
            wipe(*str);
        wp_free(*str);
        *str = NULL;
        break;
    case WP_CONF_STRS:
    case WP_CONF_PAIRS:
    case WP_CONF_SECRETS:
        clear_strs(member(base, row->at), row->type == WP_CONF_SECRETS);
        break;
    case WP_CONF_TABLE:
        wp_conf_clear(row->rows, base);
        break;
    case WP_CONF_LIST:
        clear_list(row, base);
        break;
    default:
        break;
    }
}

void wp_conf_clear(const struct wp_conf_key rows[], void *base)
{
    for (const struct wp_conf_key *row = rows; row->name; row++)
        clear_row(row, base);
}

static char **copy_strs(char *const *from)
{
    size_t n = 0;
    char **to;

    while (from[n])
        n++;
    to = wp_calloc(n + 1, sizeof *to);
    for (size_t i = 0; to && i < n; i++) {
        to[i] = wp_strdup(from[i]);
        if (!to[i]) {
            wp_conf_free_list(to);
            return NULL;
        }
    }
    return to;
}

static int copy_list(const struct wp_conf_key *row, void *to, const void *from)
{
    size_t n;
    const char *items = wp_conf_items(row, from, &n);
    char *copy = wp_calloc(n, row->size);

    if (!copy)
        return WP_ENOMEM;
    wp_conf_set_items(row, to, copy, n);
    for (size_t i = 0; i < n; i++)
        if (wp_conf_copy(row->rows, copy + i * row->size, items + i * row->size) < 0)
            return WP_ENOMEM; /* the rest is zeros, which wp_conf_clear() knows */
    return 0;
}

static size_t size_of(enum wp_conf_type type)
{
    return type == WP_CONF_BOOL     ? sizeof(bool)
           : type == WP_CONF_U32    ? sizeof(uint32_t)
           : type == WP_CONF_DOUBLE ? sizeof(double)
           : type == WP_CONF_CHOICE ? sizeof(unsigned)
                                    : sizeof(uint64_t);
}

static int copy_row(const struct wp_conf_key *row, void *to, const void *from)
{
    const void *was = (const char *)from + row->at;
    void *at = member(to, row->at);

    switch (row->type) {
    case WP_CONF_STR:
    case WP_CONF_SECRET:
        *(char **)at = wp_strdup(*(char *const *)was);
        return *(char **)at ? 0 : WP_ENOMEM;
    case WP_CONF_STRS:
    case WP_CONF_PAIRS:
    case WP_CONF_SECRETS:
        *(char ***)at = copy_strs(*(char **const *)was);
        return *(char ***)at ? 0 : WP_ENOMEM;
    case WP_CONF_TABLE:
        return wp_conf_copy(row->rows, to, from);
    case WP_CONF_LIST:
        return copy_list(row, to, from);
    case WP_CONF_LATER:
        return 0;
    default:
        memcpy(at, was, size_of(row->type));
        return 0;
    }
}

int wp_conf_copy(const struct wp_conf_key rows[], void *to, const void *from)
{
    for (const struct wp_conf_key *row = rows; row->name; row++)
        if (copy_row(row, to, from) < 0) {
            wp_conf_clear(rows, to);
            return WP_ENOMEM;
        }
    return 0;
}

int wp_conf_keep(const struct wp_conf_key rows[], void *to, const void *from)
{
    int rc = 0;

    for (const struct wp_conf_key *row = rows; rc == 0 && row->name; row++) {
        if (row->type == WP_CONF_TABLE) {
            rc = wp_conf_keep(row->rows, to, from);
        } else if (row->restart) {
            clear_row(row, to);
            rc = copy_row(row, to, from);
        }
    }
    return rc;
}
