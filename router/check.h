/* SPDX-License-Identifier: Apache-2.0 */
/* router/check.h - `warmpath check -c FILE`: reads a configuration as `serve` would and says what
 * is wrong with it. */
#ifndef WP_ROUTER_CHECK_H
#define WP_ROUTER_CHECK_H

/* 0: "FILE: ok" and what is in it.  2: every error, one a line, on stdout. */
int wp_check_main(int argc, char **argv);

#endif
