/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration reader: what it accepts, it can write as JSON, and reads back as the same. */
#include "base/conf.h"
#include "base/mem.h"

#include <stdlib.h>

struct item {
    char *name;
    uint64_t time;
    char **tags;
};

struct all {
    bool flag;
    uint32_t number;
    uint64_t bytes, time;
    double real;
    char *text, **list;
    unsigned level;
    struct item *items;
    size_t n_items;
};

/* clang-format off */
static const char *const levels[] = {"low", "high", NULL};
static const struct wp_conf_key item_rows[] = {
    {.name = "name", .type = WP_CONF_STR,   .at = offsetof(struct item, name)},
    {.name = "time", .type = WP_CONF_MS,    .at = offsetof(struct item, time), .def = "1"},
    {.name = "tags", .type = WP_CONF_PAIRS, .at = offsetof(struct item, tags)},
    {0},
};
static const struct wp_conf_key inner_rows[] = {
    {.name = "bytes", .type = WP_CONF_BYTES,   .at = offsetof(struct all, bytes), .def = "1Ki"},
    {.name = "time",  .type = WP_CONF_SECONDS, .at = offsetof(struct all, time),  .def = "0.5"},
    {.name = "real",  .type = WP_CONF_DOUBLE,  .at = offsetof(struct all, real),  .def = "1"},
    {0},
};
static const struct wp_conf_key rows[] = {
    {.name = "flag",   .type = WP_CONF_BOOL,   .at = offsetof(struct all, flag),   .def = "false"},
    {.name = "number", .type = WP_CONF_U32,    .at = offsetof(struct all, number), .def = "3", .max = 99},
    {.name = "text",   .type = WP_CONF_STR,    .at = offsetof(struct all, text),   .def = ""},
    {.name = "list",   .type = WP_CONF_STRS,   .at = offsetof(struct all, list)},
    {.name = "level",  .type = WP_CONF_CHOICE, .at = offsetof(struct all, level),  .def = "low", .choices = levels},
    {.name = "inner",  .type = WP_CONF_TABLE,  .rows = inner_rows},
    {.name = "items",  .type = WP_CONF_LIST,   .at = offsetof(struct all, items),  .rows = item_rows,
     .size = sizeof(struct item), .count = offsetof(struct all, n_items)},
    {.name = "later",  .type = WP_CONF_LATER},
    {0},
};
/* clang-format on */

/* The first line may change the tree as the command line does; it is empty or starts with '!'. */
static int read_text(struct all *a, struct wp_str text, bool with_set)
{
    struct wp_buf errors = {0};
    struct wp_conf c = {.errors = &errors};
    struct wp_str line = {0};
    char *set;
    int rc;

    if (with_set && wp_str_starts(text, "!"))
        wp_str_split(&text, '\n', &line);
    rc = wp_conf_read_text(&c, "fuzz", text);
    set = line.n ? wp_strndup(line.p + 1, line.n - 1) : NULL;
    if (rc == 0 && set)
        rc = wp_conf_set(&c, rows, set);
    if (rc == 0)
        rc = wp_conf_bind(&c, rows, a);
    if ((rc < 0) != (errors.n > 0))
        abort(); /* an error without a sentence, or a sentence without an error */
    wp_free(set);
    wp_conf_fini(&c);
    wp_buf_fini(&errors);
    return rc;
}

/* Times are read as doubles: past 2^53 us a digit may differ, which is beside the point. */
static bool small(const struct all *a)
{
    bool ok = a->time < (uint64_t)1 << 40;

    for (size_t i = 0; i < a->n_items; i++)
        ok = ok && a->items[i].time < (uint64_t)1 << 40;
    return ok;
}

/* JSON has "${" for what the text had as "$${". */
static bool plain(struct wp_str json)
{
    return !memmem(json.p, json.n, "${", 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_buf json = {0}, diff = {0};
    struct all a = {0}, b = {0};

    if (read_text(&a, (struct wp_str){(const char *)data, n}, true) == 0) {
        if (wp_conf_json(rows, &a, &json) < 0)
            abort();
        if (small(&a) && plain(wp_buf_str(&json))) {
            if (read_text(&b, wp_buf_str(&json), false) < 0)
                abort();
            if (wp_conf_diff(rows, &a, &b, &diff) < 0 || diff.n)
                abort();
        }
    }
    wp_conf_clear(rows, &a);
    wp_conf_clear(rows, &b);
    wp_buf_fini(&json);
    wp_buf_fini(&diff);
    return 0;
}
