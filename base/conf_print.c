/* SPDX-License-Identifier: Apache-2.0 */
/* Struct to text: JSON, differences, and the reference of all keys. */
#include "base/conf_impl.h"

#include <inttypes.h>
#include <stdio.h>

static bool secret(const struct wp_conf_key *row)
{
    return row->type == WP_CONF_SECRET || row->type == WP_CONF_SECRETS;
}

static int add_double(struct wp_buf *out, double x)
{
    char text[40];

    for (int digits = 15; digits <= 17; digits++) {
        double back;

        snprintf(text, sizeof text, "%.*g", digits, x);
        if (wp_str_double(wp_str_of(text), &back) && back >= x && back <= x)
            break;
    }
    return wp_buf_adds(out, text);
}

/* us as a number of units, exactly: 1500000 us are 1.5 s. */
static int add_time(struct wp_buf *out, uint64_t us, uint64_t unit, int digits)
{
    char text[48];
    int n = snprintf(text, sizeof text, "%" PRIu64 ".%0*" PRIu64, us / unit, digits, us % unit);

    while (n > 0 && text[n - 1] == '0')
        n--;
    if (n > 0 && text[n - 1] == '.')
        n--;
    return wp_buf_add(out, text, n > 0 ? (size_t)n : 0);
}

static int add_strs(struct wp_buf *out, char *const *list)
{
    int rc = wp_buf_adds(out, "[");

    for (size_t i = 0; rc == 0 && list[i]; i++) {
        rc = wp_buf_adds(out, i ? "," : "");
        if (rc == 0)
            rc = wp_buf_json(out, wp_str_of(list[i]));
    }
    return rc < 0 ? rc : wp_buf_adds(out, "]");
}

static int add_pairs(struct wp_buf *out, char *const *list)
{
    int rc = wp_buf_adds(out, "{");

    for (size_t i = 0; rc == 0 && list[i]; i++) {
        struct wp_str value = wp_str_of(list[i]), key;

        wp_str_split(&value, '=', &key);
        rc = wp_buf_adds(out, i ? "," : "");
        if (rc == 0)
            rc = wp_buf_json(out, key);
        if (rc == 0)
            rc = wp_buf_adds(out, ":");
        if (rc == 0)
            rc = wp_buf_json(out, value);
    }
    return rc < 0 ? rc : wp_buf_adds(out, "}");
}

static int add_list(struct wp_buf *out, const struct wp_conf_key *row, const void *base)
{
    size_t n;
    const char *items = wp_conf_items(row, base, &n);
    int rc = wp_buf_adds(out, "[");

    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = wp_buf_adds(out, i ? "," : "");
        if (rc == 0)
            rc = wp_conf_json(row->rows, items + i * row->size, out);
    }
    return rc < 0 ? rc : wp_buf_adds(out, "]");
}

static bool is_set(const struct wp_conf_key *row, const void *at)
{
    return row->type == WP_CONF_SECRET ? **(char *const *)at != 0 : **(char **const *)at != NULL;
}

static int add_value(struct wp_buf *out, const struct wp_conf_key *row, const void *base)
{
    const void *at = (const char *)base + row->at;
    unsigned choice;

    switch (row->type) {
    case WP_CONF_BOOL:
        return wp_buf_adds(out, *(const bool *)at ? "true" : "false");
    case WP_CONF_U32:
        return wp_buf_printf(out, "%" PRIu32, *(const uint32_t *)at);
    case WP_CONF_U64:
    case WP_CONF_BYTES:
        return wp_buf_printf(out, "%" PRIu64, *(const uint64_t *)at);
    case WP_CONF_DOUBLE:
        return add_double(out, *(const double *)at);
    case WP_CONF_SECONDS:
        return add_time(out, *(const uint64_t *)at, 1000000, 6);
    case WP_CONF_MS:
        return add_time(out, *(const uint64_t *)at, 1000, 3);
    case WP_CONF_STR:
        return wp_buf_json(out, wp_str_of(*(char *const *)at));
    case WP_CONF_CHOICE:
        memcpy(&choice, at, sizeof choice);
        return wp_buf_json(out, wp_str_of(row->choices[choice]));
    case WP_CONF_STRS:
        return add_strs(out, *(char **const *)at);
    case WP_CONF_PAIRS:
        return add_pairs(out, *(char **const *)at);
    case WP_CONF_SECRET:
    case WP_CONF_SECRETS:
        return wp_buf_adds(out, is_set(row, at) ? "\"(set)\"" : "null");
    case WP_CONF_TABLE:
        return wp_conf_json(row->rows, base, out);
    case WP_CONF_LIST:
        return add_list(out, row, base);
    default:
        return 0;
    }
}

int wp_conf_json(const struct wp_conf_key rows[], const void *base, struct wp_buf *out)
{
    size_t start = out->n;
    bool first = true;
    int rc = wp_buf_adds(out, "{");

    for (const struct wp_conf_key *row = rows; rc == 0 && row->name; row++) {
        if (row->type == WP_CONF_LATER)
            continue;
        rc = wp_buf_printf(out, "%s\"%s\":", first ? "" : ",", row->name);
        if (rc == 0)
            rc = add_value(out, row, base);
        first = false;
    }
    if (rc == 0)
        rc = wp_buf_adds(out, "}");
    if (rc < 0)
        out->n = start;
    return rc;
}

/* --- what differs
 * ------------------------------------------------------------------------------------------- */

static int diff_rows(const struct wp_conf_key rows[], const void *a, const void *b,
                     struct conf_path *path, struct wp_buf *out);

/* The name of an item: the value of its first row, which is text. */
static const char *item_name(const struct wp_conf_key *row, const char *item)
{
    return *(char *const *)(const void *)(item + row->rows[0].at);
}

static const char *find_item(const struct wp_conf_key *row, const char *items, size_t n,
                             const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(item_name(row, items + i * row->size), name) == 0)
            return items + i * row->size;
    return NULL;
}

static int diff_list(const struct wp_conf_key *row, const void *a, const void *b,
                     struct conf_path *path, struct wp_buf *out)
{
    size_t na, nb, was = path->n;
    const char *old = wp_conf_items(row, a, &na), *now = wp_conf_items(row, b, &nb);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < na; i++) {
        const char *item = old + i * row->size, *name = item_name(row, item);
        const char *twin = find_item(row, now, nb, name);

        wp_conf_push(path, wp_str_of(name));
        rc = twin ? diff_rows(row->rows, item, twin, path, out)
                  : wp_buf_printf(out, "%s: removed\n", path->text);
        wp_conf_pop(path, was);
    }
    for (size_t i = 0; rc == 0 && i < nb; i++) {
        const char *name = item_name(row, now + i * row->size);

        if (find_item(row, old, na, name))
            continue;
        wp_conf_push(path, wp_str_of(name));
        rc = wp_buf_printf(out, "%s: added\n", path->text);
        wp_conf_pop(path, was);
    }
    return rc;
}

static bool same_secret(const struct wp_conf_key *row, const void *a, const void *b)
{
    char *const *x, *const *y;

    if (row->type == WP_CONF_SECRET)
        return strcmp(*(char *const *)a, *(char *const *)b) == 0;
    for (x = *(char **const *)a, y = *(char **const *)b; *x && *y; x++, y++)
        if (strcmp(*x, *y) != 0)
            return false;
    return !*x && !*y;
}

static int diff_value(const struct wp_conf_key *row, const void *a, const void *b,
                      const struct conf_path *path, struct wp_buf *out)
{
    struct wp_buf old = {0}, now = {0};
    int rc = 0;

    if (secret(row))
        return same_secret(row, (const char *)a + row->at, (const char *)b + row->at)
                   ? 0
                   : wp_buf_printf(out, "%s: changed\n", path->text);
    rc = add_value(&old, row, a);
    if (rc == 0)
        rc = add_value(&now, row, b);
    if (rc == 0 && !wp_str_eq(wp_buf_str(&old), wp_buf_str(&now))) {
        rc = wp_buf_printf(out, "%s: ", path->text);
        if (rc == 0)
            rc = wp_buf_add(out, old.p, old.n);
        if (rc == 0)
            rc = wp_buf_adds(out, " -> ");
        if (rc == 0)
            rc = wp_buf_add(out, now.p, now.n);
        if (rc == 0)
            rc = wp_buf_adds(out, row->restart ? " (needs a restart)\n" : "\n");
    }
    wp_buf_fini(&old);
    wp_buf_fini(&now);
    return rc;
}

static int diff_rows(const struct wp_conf_key rows[], const void *a, const void *b,
                     struct conf_path *path, struct wp_buf *out)
{
    int rc = 0;

    for (const struct wp_conf_key *row = rows; rc == 0 && row->name; row++) {
        size_t was = wp_conf_push(path, wp_str_of(row->name));

        if (row->type == WP_CONF_TABLE)
            rc = diff_rows(row->rows, a, b, path, out);
        else if (row->type == WP_CONF_LIST)
            rc = diff_list(row, a, b, path, out);
        else if (row->type != WP_CONF_LATER)
            rc = diff_value(row, a, b, path, out);
        wp_conf_pop(path, was);
    }
    return rc;
}

int wp_conf_diff(const struct wp_conf_key rows[], const void *a, const void *b, struct wp_buf *out)
{
    struct conf_path path = {0};
    size_t start = out->n;
    int rc = diff_rows(rows, a, b, &path, out);

    if (rc < 0)
        out->n = start;
    return rc;
}

/* --- the reference
 * ------------------------------------------------------------------------------------------ */

struct each {
    int (*fn)(void *arg, const char *name, const char *takes, const struct wp_conf_key *row);
    void *arg;
    struct conf_path path;
};

static int each(struct each *e, const struct wp_conf_key rows[])
{
    char takes[512];
    int rc = 0;

    for (const struct wp_conf_key *row = rows; rc == 0 && row->name; row++) {
        size_t was = wp_conf_push(&e->path, wp_str_of(row->name));

        wp_conf_takes(row, takes, sizeof takes);
        if (row->type == WP_CONF_LIST && e->path.n + 2 < sizeof e->path.text) {
            memcpy(e->path.text + e->path.n, "[]", 3);
            e->path.n += 2;
        }
        if (row->type == WP_CONF_TABLE || row->type == WP_CONF_LIST)
            rc = each(e, row->rows);
        else if (row->type != WP_CONF_LATER)
            rc = e->fn(e->arg, e->path.text, takes, row);
        wp_conf_pop(&e->path, was);
    }
    return rc;
}

int wp_conf_each(const struct wp_conf_key rows[],
                 int (*fn)(void *arg, const char *name, const char *takes,
                           const struct wp_conf_key *row),
                 void *arg)
{
    struct each e = {.fn = fn, .arg = arg};

    return each(&e, rows);
}

static int help_line(void *arg, const char *name, const char *takes, const struct wp_conf_key *row)
{
    int rc = wp_buf_printf(arg, "%s: %s", name, takes);

    if (rc == 0 && row->def && *row->def)
        rc = wp_buf_printf(arg, "; default %s", row->def);
    else if (rc == 0 && !row->def && row->type <= WP_CONF_CHOICE)
        rc = wp_buf_adds(arg, "; must be given");
    return rc < 0 ? rc : wp_buf_printf(arg, "\n    %s\n", row->meaning);
}

int wp_conf_help(const struct wp_conf_key rows[], struct wp_buf *out)
{
    return wp_conf_each(rows, help_line, out);
}
