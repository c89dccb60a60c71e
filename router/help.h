/* SPDX-License-Identifier: Apache-2.0 */
/* router/help.h - the table of commands as a type, and the commands that only print: help, version,
 * policies. */
#ifndef WP_ROUTER_HELP_H
#define WP_ROUTER_HELP_H

#include <stdio.h>

struct wp_command {
    const char *name; /* a NULL name ends the table */
    /* argv[0] is the command's name.  Returns the exit status: 0 done, 1 failed, 2 usage or
     * configuration error. */
    int (*run)(int argc, char **argv);
    const char *about; /* one line */
};

/* Finds and runs argv[1]; "--help" and "--version" are help and version.  An unknown command names
 * the nearest one. */
int wp_command_run(const struct wp_command table[], int argc, char **argv);
void wp_command_list(const struct wp_command table[], FILE *f);

/* `warmpath help [COMMAND|config]` */
int wp_help_run(const struct wp_command table[], int argc, char **argv);
int wp_version_main(int argc, char **argv);
int wp_policies_main(int argc, char **argv);

#endif
