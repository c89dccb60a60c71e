/* SPDX-License-Identifier: Apache-2.0 */
/* router/ctl.h - `warmpath ctl`: the admin API from a shell. */
#ifndef WP_ROUTER_CTL_H
#define WP_ROUTER_CTL_H

int wp_ctl_main(int argc, char **argv);

#endif
