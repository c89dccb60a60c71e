/* SPDX-License-Identifier: Apache-2.0 */
/* router/serve.h - `warmpath serve`: the router as a process. */
#ifndef WP_ROUTER_SERVE_H
#define WP_ROUTER_SERVE_H

int wp_serve_main(int argc, char **argv);

#endif
