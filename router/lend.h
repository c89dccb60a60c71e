/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/lend.h - workers that have shown nothing go by what others of the same costs have.
 *
 * Where a profile is far off, a worker that is priced by it beside others that are priced by what they have shown is never sent anything, and so never shows
 * anything.  So is one that was slow for a while, was learnt to be, and is well again.  Hence whoever has shown nothing, or nothing of late (WP_LEND_US; WP_LEND_SOON_US
 * when it was little), takes over the factors of the one that has shown something last; his own next answers set them right again.
 * Threads: with the fleet's lock held.
 */
#ifndef WP_ROUTER_LEND_H
#define WP_ROUTER_LEND_H

#include "router/fleet_inner.h"

enum { WP_LEND_SAMPLES = 4, WP_LEND_LITTLE = 16 };
#define WP_LEND_SOON_US UINT64_C(2000000)
#define WP_LEND_US UINT64_C(60000000)

/* w has shown something: its profile follows, and those that have nothing of their own. */
void wp_fleet_learnt(struct wp_fleet *f, struct wp_worker *w);
/* w was probed. */
void wp_fleet_lend(struct wp_fleet *f, struct wp_worker *w);

#endif
