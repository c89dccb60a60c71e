/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/hold.h - late binding: requests wait in the router while no worker of their model is free.
 * Policies that hold (policies/policy.h) have one queue a base model (policies/queue.h).  A request's first placement is held when every ready
 * worker has more than policy.price.hold_us of predicted wait, or limits.per_worker requests; it is placed when one has less again, the cheapest
 * first, aged, or at its deadline, wherever it starts soonest then.  Nobody is held while somebody is free, nor for more than
 * 2 s as long as a worker has shown so little that its wait is a guess from its profile.  limits.queue bounds all of them together: when it is
 * reached, the last to come of the tenant that has the most held a weight, or one of worse priority, gives way to a newcomer or is the newcomer itself.
 * Who is held goes by priority, then by the tenants' accounts, then by cost and age (policies/queue.h).
 *
 * A held request is placed under the fleet's lock by whoever finds that it can be, on any thread, at each first token and end and at each gate's
 * timer; then `placed` posts a letter to the request's own loop, which sends it.
 * All but wp_fleet_unhold() and wp_fleet_release() with the lock held: for the fleet alone.
 */
#ifndef WP_ROUTER_HOLD_H
#define WP_ROUTER_HOLD_H

#include "policies/queue.h"
#include "router/fleet.h"

struct wp_hold_line; /* of one model */

struct wp_hold { /* embed it in the request; it must not move while it is held */
    /* The caller's: */
    uint64_t deadline_us;       /* 0: policy.price.hold_most_us from now */
    uint64_t client_until_us;   /* the client waits no longer, whatever for; 0: it has not said */
    void (*placed)(void *arg);  /* any thread, under the fleet's lock: it may only post a letter */
    void *arg;
    /* Out: */
    uint64_t next_us;           /* when wp_fleet_release() is to be called at the latest */
    enum wp_place_result result; /* good once placed() was called: PLACED, or why not */
    const char *why;
    uint64_t retry_us, since_us;
    double held_us;
    /* The fleet's: */
    struct wp_queue_item item;
    struct wp_hold_line *line; /* NULL: it is not held */
    const struct wp_want *want;
    struct wp_placement *p;
};

enum wp_hold_result { WP_HOLD_NO, WP_HOLD_HELD, WP_HOLD_FULL };

/*
 * After wp_fleet_candidates() has found n: whether the request waits.  want and p must stay until it was placed or let go.  FULL: *why is "queue",
 * or "tenant" when others would be served and its own tenant has as much held as it may; *retry_us is the predicted wait.
 */
enum wp_hold_result wp_fleet_hold(struct wp_fleet *f, struct wp_hold *h, const struct wp_want *want, struct wp_placement *p, size_t n,
                                  uint64_t now_us, const char **why, uint64_t *retry_us);
/*
 * No candidate: where no worker of its model is up and the configuration says how one is started (router/wake.h), the request waits for that.
 * FULL: as many do as may; NO: nothing of this kind.
 */
enum wp_hold_result wp_fleet_hold_asleep(struct wp_fleet *f, struct wp_hold *h, const struct wp_want *want, struct wp_placement *p, uint64_t now_us,
                                         uint64_t *retry_us);
/* The tokens of a request that was placed are its tenant's: to_: in which queue they count, if there is one; prompt: those of a request that was
 * not held, since the queue charges the others itself; and those of its answer. */
void wp_fleet_charge_to(struct wp_fleet *f, struct wp_placement *p, const struct wp_want *want);
void wp_fleet_charge_prompt(struct wp_placement *p, uint64_t now_us);
void wp_fleet_charge(struct wp_placement *p, uint64_t tokens, uint64_t now_us);
/* ,"tenant":"a","priority":0,"queue":{...}: what it would find; n: candidates. */
int wp_fleet_queue_json(struct wp_fleet *f, const struct wp_want *want, size_t n, struct wp_buf *out);
bool wp_fleet_full(struct wp_fleet *f, struct wp_str model, uint64_t now_us); /* a ready worker has limits.per_worker requests */
void wp_fleet_hold_configure(struct wp_fleet *f); /* the configuration has changed */
uint64_t wp_fleet_release_held(struct wp_fleet *f, uint64_t now_us);
void wp_fleet_hold_fini(struct wp_fleet *f);

/* Its client has gone: true when it was held, and is no longer; false: it was placed before, and placed() was called. */
bool wp_fleet_unhold(struct wp_fleet *f, struct wp_hold *h);
/* Places what can be placed.  Returns when to ask again; UINT64_MAX: nobody is held. */
uint64_t wp_fleet_release(struct wp_fleet *f);

#endif
