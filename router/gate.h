/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/gate.h - one loop of the router: its API listener, its client, its thread.
 * Life: init -> listen -> run (a thread of its own, or main's for gate 0) -> drain -> closed -> fini.
 */
#ifndef WP_ROUTER_GATE_H
#define WP_ROUTER_GATE_H

#include "router/router.h"

int wp_gate_init(struct wp_gate *g, struct wp_router *r, size_t number, struct wp_err *err);
/* The first gate takes the port, so that a second router is refused; the others join. */
int wp_gate_listen(struct wp_gate *g, struct wp_str address, int fd, bool held, struct wp_err *err); /* fd, held: wp_server_conf's */
void wp_gate_open(struct wp_gate *g); /* accepts, if it was held */
/*
 * On its own loop: stops accepting, waits for exchanges until deadline_us, then closes what it has and stops its loop.  handed: another process
 * accepts already, and what comes on connections that we have is served.
 */
void wp_gate_drain(struct wp_gate *g, uint64_t deadline_us, bool handed);
void wp_gate_fini(struct wp_gate *g);
/* From gate 0: the same on another gate's loop. */
int wp_gate_post_drain(struct wp_gate *g, uint64_t deadline_us, bool handed);
int wp_gate_post_open(struct wp_gate *g);
/* Hands a gate the settings to use from now on. */
int wp_gate_post_settings(struct wp_gate *g, struct wp_settings *s);
/* The limits of a listener that has all of limits.connections. */
void wp_server_conf_from(struct wp_server_conf *sc, const struct wp_settings *s);

#endif
