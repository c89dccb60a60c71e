/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/lend.h - workers that have shown nothing go by what others of the same costs have.
 *
 * Where a profile is far off, a worker that is priced by it beside others that are priced by what they have shown is never sent anything, and so never shows
 * anything.  So is one that was slow for a while, was learnt to be, and is well again.  Hence whoever has shown nothing takes over the factors of the one that
 * has shown something last, and so does whoever has shown nothing while all have shown WP_LEND_AFTER times as much as there are workers; his own next answers set them right again.
 * That is counted in answers, not in time: a fleet that is idle forgets nothing.
 * Threads: with the fleet's lock held.
 */
#ifndef WP_ROUTER_LEND_H
#define WP_ROUTER_LEND_H

#include "router/fleet_inner.h"

enum { WP_LEND_SAMPLES = 4, WP_LEND_AFTER = 64 };

/* w has shown something: its profile follows, and those that have nothing of their own. */
void wp_fleet_learnt(struct wp_fleet *f, struct wp_worker *w);
/* w was probed. */
void wp_fleet_lend(struct wp_fleet *f, struct wp_worker *w);

#endif
