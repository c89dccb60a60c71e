/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/flags.h - command lines as rows: one table parses, checks and prints the help of a command.
 * `--name VALUE` and `--name=VALUE`; a switch takes no value; unknown flags are errors that name the nearest known one.
 */
#ifndef WP_BASE_FLAGS_H
#define WP_BASE_FLAGS_H

#include "base/err.h"
#include "base/str.h"

#include <stdio.h>

struct wp_flag {
    const char *name;    /* "--listen" or "-c"; a NULL name ends the table */
    const char *arg;     /* "ADDR"; NULL: a switch */
    const char *meaning; /* for the help, with the default in it */
};

/*
 * Calls take(arg, i, value, err) for each flag in order (i: the row; value NULL for a switch) and word(arg, ...) for each word that is no
 * flag (word NULL: none are accepted).  Either may refuse with a negative code.  argv[0] is not looked at.
 * Errors: WP_EUSAGE.  "--help" and "-h" are always known: then 1 is returned.
 */
int wp_flags(int argc, char **argv, const struct wp_flag table[],
             int (*take)(void *arg, size_t i, const char *value, struct wp_err *err),
             int (*word)(void *arg, const char *value, struct wp_err *err), void *arg, struct wp_err *err);
/* "usage: warmpath NAME ..." and a line a flag. */
void wp_flags_help(FILE *f, const char *usage, const char *about, const struct wp_flag table[]);

/* For take(): a value as a number within bounds.  Errors: WP_EUSAGE, naming the flag, the bounds and what stood there. */
int wp_flag_u64(const struct wp_flag *flag, const char *value, uint64_t min, uint64_t max, uint64_t *out, struct wp_err *err);
int wp_flag_double(const struct wp_flag *flag, const char *value, double min, double max, double *out, struct wp_err *err);

#endif
