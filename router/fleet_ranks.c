/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker whose configuration does not say how many ranks it has: its engine says so, at its first probe or after it was
 * started anew.  Requests that are under way end on the ranks that they were sent to; all others, and the feeds, are the
 * new ranks'.
 */
#include "router/fleet_inner.h"

#include "base/mem.h"

void wp_fleet_change_ranks(struct wp_fleet *f, struct wp_worker *w, uint32_t n)
{
    struct wp_old_ranks *old = wp_malloc(sizeof *old);
    struct wp_err err;

    if (!old || wp_fleet_make_room(f, n) < 0) {
        wp_free(old);
        return;
    }
    *old = (struct wp_old_ranks){w->old, w->rank, w->n_ranks};
    if (wp_worker_ranks(w, n) < 0) {
        wp_free(old);
        return;
    }
    if (wp_fleet_take_holders(f, w, &err) < 0) {
        wp_free(w->rank);
        w->rank = old->rank;
        w->n_ranks = old->n;
        w->ranks_made--;
        wp_free(old);
        return;
    }
    for (uint32_t i = 0; i < old->n; i++) {
        old->rank[i].old = true;
        wp_fleet_forget_rank(f, &old->rank[i]);
    }
    f->n_ranks += n;
    f->n_ranks -= old->n;
    w->old = old;
    wp_worker_sweep_ranks(w);
}
