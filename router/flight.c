/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When what is in flight is over.  A request's blocks count from the moment that it was dispatched, before any
 * event tells them.  Once its answer is there they count on until the feed has told them, and not a batch longer:
 * what the engine evicts after that is the feed's to say.  Of what a feed never tells (the engine kept none of
 * it, or the message was lost) the clock says when to give up.
 */
#include "router/fleet_inner.h"

enum {
    PASSED_AFTER_US = 20000,   /* the batch of the last step may still be on its way when the answer ends */
    PASSED_ANYWAY_US = 1000000 /* no batch for so long: there was nothing to tell */
};

struct asked {
    struct wp_fleet *f;
    const struct wp_rank *r;
};

/* The index has the prompt at the rank as far as the request made it usable there. */
static bool told(void *arg, uint32_t space, const uint64_t local[], size_t n,
                 struct wp_history_ends ends)
{
    const struct asked *a = arg;
    const struct wp_overlap_row *row;
    struct wp_reach reach;

    if (a->r->window && ends.last) {
        wp_index_overlap(a->f->index, space, local, ends.last, &a->f->overlap);
        row = wp_overlap_of(&a->f->overlap, a->r->holder);
        return row && row->blocks >= ends.last;
    }
    wp_index_reach(a->f->index, a->r->holder, space, local, n, &reach);
    return reach.upto[WP_TIER_MAX - 1] >= n;
}

void wp_fleet_flown(struct wp_fleet *f, struct wp_placement *p, uint64_t end_us)
{
    const struct wp_rank *r = p->rank;
    const struct wp_hashes *h = p->hashes;

    if (!p->in_flight_noted)
        return;
    p->in_flight_noted = false;
    if (r->live && end_us && p->first_seen && !wp_fleet_rank_gone(p) &&
        !(p->exact && told(&(struct asked){f, r}, p->space, h->local, h->n, p->ends)))
        wp_history_end_at(f->history, r->holder, p->space, h->chain, h->local, h->n, p->ends,
                          end_us + PASSED_AFTER_US);
    else
        wp_history_end(f->history, r->holder, p->space, h->chain, h->n, p->ends);
}

void wp_fleet_feed_moved(struct wp_fleet *f, struct wp_rank *r, bool batch, uint64_t now_us)
{
    uint64_t mark = batch ? now_us : now_us > PASSED_ANYWAY_US ? now_us - PASSED_ANYWAY_US : 0;

    if (batch)
        wp_history_told(f->history, r->holder, told, &(struct asked){f, r});
    wp_history_passed(f->history, r->holder, r->fed ? mark : UINT64_MAX);
}
