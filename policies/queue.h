/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/queue.h - the one admission queue: requests that wait in the router until it is clear
 * where they go. A request that waits on a worker is bound to it; one that waits here goes to
 * whoever is free first.  So a request is held when every worker has more than hold_us of predicted
 * wait, and never while anyone has less.  Held ones are released when somebody has less again, by
 *     1. rank, lower ones first: priorities;
 *     2. their tenant's account, the smallest first: tokens that it was given, over its weight;
 *     3. cost_us + age x arrival time: the shortest compute first, aged.
 *
 * Of one tenant, who computes c longer than another one is passed by it for c / age at most.
 * Between tenants: the account is the virtual counter of Sheng et al., "Fairness in Serving Large
 * Language Models" (OSDI 2024, arXiv:2401.00588), with one price for tokens of prompts and answers:
 * whoever comes into the queue after having had nobody there begins at the smallest account of
 * those who have (or of the last one that had), so that silence saves nothing up, and two tenants
 * that always have somebody held differ by the tokens of one request and of what is being
 * generated.  A rank starves those below it until their deadlines.
 *
 * At its deadline a request is released whoever is free.  But not when its tenant crowds: others
 * have been here within the longest hold, and what it has held would, at its share, take more than
 * half of that.  Then it is given back as WP_QUEUE_CROWDS, to be refused, or a flood would reach
 * the workers after all, only later.
 *
 * It has no clock and no timer: it is told the time, and says when it wants to be asked again
 * (wp_queue_next_us), so that reports that come late, or not at all, keep nobody waiting. Bounded:
 * by max, and the caller's own bound over several queues.  Who takes whose place when that is
 * reached: wp_queue_last(), after McKenney, "Stochastic Fairness Queueing" (INFOCOM 1990): the last
 * to come of the tenant that has the most. Tenants are rows of a table; the caller says which row
 * is whose, and a row that has another name begins anew.
 *
 * Threads: one at a time.  It allocates at creation alone, and must not move after it.  Cost: O(log
 * held), and O(tenants held) when one begins.
 */
#ifndef WP_POLICIES_QUEUE_H
#define WP_POLICIES_QUEUE_H

#include "base/err.h"
#include "base/heap.h"
#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wp_queue_conf {
    size_t max;       /* requests held; 0: the queue is off */
    double hold_us;   /* predicted wait of the least loaded worker that is short enough */
    double age;       /* seconds of compute that a second of waiting is worth, above 0 */
    double most_us;   /* the longest hold */
    uint32_t tenants; /* rows of the table beyond the first; stays as it was at creation */
};
struct wp_queue_who { /* {0}: a request of the first row, as if there were no tenants */
    uint32_t rank;    /* lower ones first */
    uint32_t tenant;  /* a row; one that there is not counts as the first */
    uint64_t name;    /* whose that row is now */
    double weight;    /* 0 counts as 1 */
    uint32_t tokens;  /* that it will be charged for when it is released */
};
enum wp_queue_end { WP_QUEUE_TURN, WP_QUEUE_LATE, WP_QUEUE_CROWDS };
struct wp_queue_item { /* one request; embed it */
    uint32_t rank, tenant, tokens;
    struct wp_heap_node in_order, by_deadline; /* in_order.in: it is held */
    struct wp_list link;                       /* of its tenant, in order of arrival */
    double key, cost_us;
    uint64_t arrived_us, deadline_us;
    uint64_t number;       /* equals in order of arrival */
    enum wp_queue_end end; /* once it was popped: why */
};
struct wp_queue_tenant {
    struct wp_heap_node node; /* among those that have somebody held */
    struct wp_heap items;     /* by rank and key */
    struct wp_list list, recent, held_link;
    uint64_t name, seen_us;
    double weight, account, cost_us; /* cost_us: of all that it has held */
    size_t held;
    bool is_recent;
};
struct wp_queue {
    struct wp_queue_conf conf;
    struct wp_queue_tenant *tenant; /* 1 + conf.tenants */
    struct wp_heap tenants, deadlines;
    struct wp_list held;   /* tenants that have somebody held */
    struct wp_list recent; /* those that came within the longest hold, the last one at the end */
    double recent_weight;
    double account; /* of the last tenant that had a request, when nobody was held */
    double cost_us; /* of all that are held */
    size_t n;
    uint64_t pushed;
    double busy_us, done_us; /* time in which somebody was held, and the compute that was released
                                in it; both fade */
    uint64_t mark_us, popped;
    /* told: so far, and of those that were released */
    uint64_t refused, released, late, crowded;
    double held_us, longest_us;
};

/* Errors: WP_ENOMEM; WP_EINVAL, naming the setting. */
int wp_queue_init(struct wp_queue *q, const struct wp_queue_conf *conf, struct wp_err *err);
void wp_queue_fini(struct wp_queue *q);

/*
 * Whether a request that arrives now must wait: nobody is free, or one that is held comes first.
 * least_wait_us: of the worker with the least; no number: nobody is there.
 */
bool wp_queue_holds(const struct wp_queue *q, double least_wait_us, uint64_t now_us, double cost_us,
                    struct wp_queue_who who);
/*
 * cost_us: its compute where that is least.  deadline_us 0: arrival and the longest hold.  False:
 * full or off, it is not held. arrived_us may be earlier than now, for a request that comes back.
 */
bool wp_queue_push(struct wp_queue *q, struct wp_queue_item *it, uint64_t arrived_us,
                   double cost_us, struct wp_queue_who who, uint64_t deadline_us);
/* The next one to be placed now, taken out and its tenant charged; NULL: nobody is free, and no
 * deadline has come.  it->end: see there. */
struct wp_queue_item *wp_queue_pop(struct wp_queue *q, uint64_t now_us, double least_wait_us);
/* One that was just popped, in its turn, and could not be placed after all: it is held again as if it had not been. */
void wp_queue_put_back(struct wp_queue *q, struct wp_queue_item *it);
void wp_queue_del(struct wp_queue *q,
                  struct wp_queue_item *it); /* its client went away; nothing when it is not held */
/* When to ask again if nothing is told till then: the least wait drains a microsecond in a
 * microsecond.  UINT64_MAX: nobody is held. */
uint64_t wp_queue_next_us(const struct wp_queue *q, uint64_t now_us, double least_wait_us);

/* Tokens that a tenant was given beside those of requests that were held: of those that found
 * somebody free, of answers. */
void wp_queue_charge(struct wp_queue *q, struct wp_queue_who who, uint64_t tokens, uint64_t now_us);
/*
 * How long a request of that compute would be held, were it pushed now: what its tenant has held at
 * the tenant's share of what was released lately, or all that is held if that is sooner.  NaN: too
 * little was released yet to tell.
 */
double wp_queue_expect_us(const struct wp_queue *q, struct wp_queue_who who, double cost_us);
/* The tenant has, with that compute, more held than it may while others are here: see above. */
bool wp_queue_crowds(const struct wp_queue *q, struct wp_queue_who who, double cost_us);
bool wp_queue_alone(const struct wp_queue *q,
                    struct wp_queue_who who); /* no other tenant came within the longest hold */
/* Who has to go when the queue is full: the last to come of the tenant with the most held a weight,
 * which *share is; NULL: nobody is held. */
struct wp_queue_item *wp_queue_last(const struct wp_queue *q, double *share);
/* Of those with the highest rank, when that is above `rank`, the last to come of the tenant with the most; NULL: none is.  Cost: O(held). */
struct wp_queue_item *wp_queue_below(const struct wp_queue *q, uint32_t rank);
double wp_queue_share(const struct wp_queue *q,
                      struct wp_queue_who who); /* what its tenant's would be with one more */

#endif
