/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/probe.h - asks every worker how it is, each on its own timer, never two at once for one worker.
 * A worker that is not up is asked more often at first (a tenth of the interval), so that a fleet that starts is served at once.
 * Threads: gate 0's loop.
 */
#ifndef WP_ROUTER_PROBE_H
#define WP_ROUTER_PROBE_H

#include "router/router.h"

struct wp_prober;

/* answered(arg), when not NULL, runs after each probe's answer has been told to the fleet. */
int wp_prober_create(struct wp_prober **out, struct wp_gate *g, void (*answered)(void *arg), void *arg, struct wp_err *err);
/* Compares the fleet with what is being probed: starts and stops.  Call it when workers come or go. */
void wp_prober_sync(struct wp_prober *p);
void wp_prober_destroy(struct wp_prober *p);

#endif
