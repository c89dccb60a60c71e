/* SPDX-License-Identifier: Apache-2.0 */
#include "base/flags.h"

#include <inttypes.h>

static size_t count(const struct wp_flag table[])
{
    size_t n = 0;

    while (table[n].name)
        n++;
    return n;
}

static int unknown(struct wp_str name, const struct wp_flag table[], struct wp_err *err)
{
    const char *names[64] = {"--help"},
               *best; /* a command with more flags than that needs no hints */
    size_t n = 1;

    for (const struct wp_flag *f = table; f->name && n < sizeof names / sizeof names[0]; f++)
        names[n++] = f->name;
    best = wp_str_nearest(name, names, n);
    if (best)
        return wp_fail(err, WP_EUSAGE, "unknown flag \"" WP_STR_FMT "\"; did you mean \"%s\"?",
                       WP_STR_ARG(name), best);
    return wp_fail(err, WP_EUSAGE, "unknown flag \"" WP_STR_FMT "\"; see --help", WP_STR_ARG(name));
}

/* One flag at argv[*at], and its value, which may be the next word: *at is moved onto what was
 * used. */
static int one(int argc, char **argv, int *at, const struct wp_flag table[],
               int (*take)(void *arg, size_t i, const char *value, struct wp_err *err), void *arg,
               struct wp_err *err)
{
    struct wp_str rest = wp_str_of(argv[*at]), name;
    const char *value = NULL;
    size_t i = 0, n = count(table);

    wp_str_split(&rest, '=', &name);
    while (i < n && !wp_str_is(name, table[i].name))
        i++;
    if (i == n)
        return unknown(name, table, err);
    if (rest.p)
        value = rest.p;
    if (!table[i].arg) {
        if (value)
            return wp_fail(err, WP_EUSAGE, "%s: takes no value, got \"%s\"", table[i].name, value);
        return take(arg, i, NULL, err);
    }
    if (!value) {
        /* a forgotten value must not swallow the next flag */
        if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0)
            return wp_fail(err, WP_EUSAGE, "%s: want %s, got nothing", table[i].name, table[i].arg);
        value = argv[++*at];
    }
    return take(arg, i, value, err);
}

int wp_flags(int argc, char **argv, const struct wp_flag table[],
             int (*take)(void *arg, size_t i, const char *value, struct wp_err *err),
             int (*word)(void *arg, const char *value, struct wp_err *err), void *arg,
             struct wp_err *err)
{
    bool words_only = false;

    for (int at = 1; at < argc; at++) {
        int rc;

        if (!words_only && strcmp(argv[at], "--") == 0) {
            words_only = true;
            continue;
        }
        if (!words_only && (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0))
            return 1;
        if (!words_only && argv[at][0] == '-' && argv[at][1])
            rc = one(argc, argv, &at, table, take, arg, err);
        else if (word)
            rc = word(arg, argv[at], err);
        else
            rc = wp_fail(err, WP_EUSAGE, "unexpected argument \"%s\"", argv[at]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void wp_flags_help(FILE *f, const char *usage, const char *about, const struct wp_flag table[])
{
    int width = (int)strlen("-h, --help");

    for (const struct wp_flag *t = table; t->name; t++) {
        int n = (int)(strlen(t->name) + (t->arg ? strlen(t->arg) + 1 : 0));

        width = n > width ? n : width;
    }
    fprintf(f, "usage: warmpath %s\n", usage);
    if (about && *about)
        fprintf(f, "\n%s\n", about);
    fputc('\n', f);
    for (const struct wp_flag *t = table; t->name; t++) {
        int n = fprintf(f, "  %s%s%s", t->name, t->arg ? " " : "", t->arg ? t->arg : "");

        fprintf(f, "%*s  %s\n", width + 2 - n, "", t->meaning);
    }
    fprintf(f, "  %-*s  this text\n", width, "-h, --help");
}

int wp_flag_u64(const struct wp_flag *flag, const char *value, uint64_t min, uint64_t max,
                uint64_t *out, struct wp_err *err)
{
    uint64_t x;

    if (!wp_str_u64(wp_str_of(value), &x) || x < min || x > max)
        return wp_fail(err, WP_EUSAGE,
                       "%s: want a whole number from %" PRIu64 " to %" PRIu64 ", got \"%s\"",
                       flag->name, min, max, value);
    *out = x;
    return 0;
}

int wp_flag_double(const struct wp_flag *flag, const char *value, double min, double max,
                   double *out, struct wp_err *err)
{
    double x;

    if (!wp_str_double(wp_str_of(value), &x) || x < min || x > max)
        return wp_fail(err, WP_EUSAGE, "%s: want a number from %.15g to %.15g, got \"%s\"",
                       flag->name, min, max, value);
    *out = x;
    return 0;
}
