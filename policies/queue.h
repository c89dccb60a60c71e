/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/queue.h - the one admission queue: requests that wait in the router until it is clear where they go.
 * A request that waits on a worker is bound to it; one that waits here goes to whoever is free first.  So a request is held when every
 * worker has more than hold_us of predicted wait, and never while anyone has less.  Held ones are released when somebody has less again, in order of
 *     cost_us + age x arrival time
 * the shortest compute first, aged: who computes c longer than another one is passed by it for c / age at most, so nobody
 * starves, and the longest hold is bounded by the most costly prompt and the load.  At its deadline a request is released whoever is
 * free.
 *
 * It has no clock and no timer: it is told the time, and says when it wants to be asked again (wp_queue_next_us), so that reports
 * that come late, or not at all, keep nobody waiting.
 * Bounded: when it is full a request is not held, and goes where it is cheapest now.
 *
 * Seam: order is (rank, key), and all of that is worked out in wp_queue_push().  Priorities are ranks; tenants will be queues of this
 * kind, the one with the largest deficit asked first.
 * Threads: one at a time.  It allocates at creation alone.  Cost: O(log held) each, and O(held) when the one that goes had
 * the first deadline.
 */
#ifndef WP_POLICIES_QUEUE_H
#define WP_POLICIES_QUEUE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wp_queue_conf {
    size_t max;      /* requests held; 0: the queue is off */
    double hold_us;  /* predicted wait of the least loaded worker that is short enough */
    double age;      /* seconds of compute that a second of waiting is worth, above 0 */
    double most_us;  /* the longest hold */
};
struct wp_queue_item { /* one request; embed it */
    size_t at;         /* its place, from 1; 0: it is not held */
    uint32_t rank;     /* lower ones first */
    double key;
    uint64_t arrived_us, deadline_us;
    uint64_t number; /* equals in order of arrival */
};
struct wp_queue {
    struct wp_queue_conf conf;
    struct wp_queue_item **heap; /* by rank and key */
    size_t n;
    uint64_t pushed, first_deadline_us; /* no held one's is earlier */
    /* told: so far, and of those that were released */
    uint64_t refused, released, late;
    double held_us, longest_us;
};

/* Errors: WP_ENOMEM; WP_EINVAL, naming the setting. */
int wp_queue_init(struct wp_queue *q, const struct wp_queue_conf *conf, struct wp_err *err);
void wp_queue_fini(struct wp_queue *q);

/*
 * Whether a request that arrives now must wait: nobody is free, or one that is held comes first.  least_wait_us: of the worker with
 * the least; no number: nobody is there.
 */
bool wp_queue_holds(const struct wp_queue *q, double least_wait_us, uint64_t now_us, double cost_us, uint32_t rank);
/*
 * cost_us: its compute where that is least.  deadline_us 0: arrival and the longest hold.  False: full or off, it is not held.
 * arrived_us may be earlier than now, for a request that comes back.
 */
bool wp_queue_push(struct wp_queue *q, struct wp_queue_item *it, uint64_t arrived_us, double cost_us, uint32_t rank, uint64_t deadline_us);
/* The next one to be placed now, taken out; NULL: nobody is free, and no deadline has come. */
struct wp_queue_item *wp_queue_pop(struct wp_queue *q, uint64_t now_us, double least_wait_us);
void wp_queue_del(struct wp_queue *q, struct wp_queue_item *it); /* its client went away; nothing when it is not held */
/* When to ask again if nothing is told till then: the least wait drains a microsecond in a microsecond.  UINT64_MAX: nobody is held. */
uint64_t wp_queue_next_us(const struct wp_queue *q, uint64_t now_us, double least_wait_us);

#endif
