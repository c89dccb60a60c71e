/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/links.h - the links that blocks move over: what is under way on them, and how fast they are found to be.
 * Each worker has a link in and a link out of one speed; a pool has one link out.  A transfer starts when both links are free and goes at
 * the speed of the slower one; links serve in the order in which transfers were begun.  What is told of a transfer is its beginning and
 * its end, so speeds are learnt: the time from its start, which is when it was begun or the end of the one before it on either link.
 *
 * Which of two links is the slow one.  A link has *shown* a speed when a transfer over it had that speed not long ago.  A slow transfer is
 * put down to the link that has shown no more than that; to both when neither has, or both have.  A link that is blamed like that and is
 * fast in truth is cleared by the next transfer that is fast; one that is not used recovers, towards the speed it was said to have,
 * half way in 10 minutes, or in 1 when the other link may have been the slow one.
 * A transfer that is late is a slow one, before it ends: wp_links_late() says so, and the caller knows whether it still runs.
 *
 * Times are microseconds, speeds bytes per second.  Threads: one at a time.  It allocates at creation alone.
 */
#ifndef WP_POLICIES_LINKS_H
#define WP_POLICIES_LINKS_H

#include "base/err.h"
#include "base/list.h"

#include <stdint.h>

struct wp_link {
    struct wp_list in, out;        /* wp_transfer, as they were begun */
    uint64_t in_us, out_us;        /* end of the last one that ended */
    uint64_t in_free_us, out_free_us;
    double said, rate, shown;      /* bytes/s */
    uint64_t rate_us, shown_us;    /* when that was learnt */
    bool unsure;                   /* the other end of the slow transfer may have been to blame */
};
struct wp_links {
    struct wp_link *link; /* n workers, then the pool */
    uint32_t n;
    double latency_us;
    struct wp_list open; /* all transfers under way */
};
struct wp_transfer { /* embed it, {0} before use */
    struct wp_list of_source, of_worker, open;
    uint32_t source, worker;
    double bytes;
    uint64_t at_us, start_us, end_us; /* begun; reckoned, without latency */
    bool under_way;
};

/* rate[n]: what each worker's link is said to have; 0: none.  Errors: WP_ENOMEM. */
int wp_links_init(struct wp_links *l, uint32_t n, const double rate[], double pool_rate, double latency_us);
void wp_links_fini(struct wp_links *l);

double wp_link_rate(const struct wp_links *l, uint32_t worker, uint64_t now_us); /* n: the pool's */
double wp_link_in_busy(const struct wp_links *l, uint32_t worker, uint64_t now_us);  /* until it is free */
double wp_link_out_busy(const struct wp_links *l, uint32_t worker, uint64_t now_us);

/* source: n is the pool.  t stays where it is until it was ended. */
void wp_links_begin(struct wp_links *l, struct wp_transfer *t, uint64_t now_us, uint32_t source, uint32_t worker, double bytes);
/* All of it was there at at_us, latency included.  Does nothing when it is not under way. */
void wp_links_done(struct wp_links *l, struct wp_transfer *t, uint64_t at_us);
/* It is over, and nobody knows how it went. */
void wp_links_lost(struct wp_links *l, struct wp_transfer *t);
/* A transfer that has not ended by now though it should have, by far; or NULL.  Then call wp_links_late() or wp_links_lost(). */
struct wp_transfer *wp_links_overdue(const struct wp_links *l, uint64_t now_us);
void wp_links_late(struct wp_links *l, struct wp_transfer *t, uint64_t now_us);

#endif
