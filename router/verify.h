/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/verify.h - the index held against what an engine has, for `warmpath ctl index --verify`.
 *
 *     ask for the engine's digests --equal--> it agrees
 *        ^                         --it is ahead of its feed--> a little later, WAITS times at most
 *        |                         --they differ--> ask for its names, and compare one by one
 *        +-- the index changed meanwhile: again, AGAIN times at most
 *
 * A simulated engine tells digests and names (/sim/cache).  A real one does not: then its capacity and usage say what they can.
 * Nothing here holds a lock for more than a millisecond, and the loop is given back between slices.
 * Threads: the gate's loop.
 */
#ifndef WP_ROUTER_VERIFY_H
#define WP_ROUTER_VERIFY_H

#include "router/router.h"

struct wp_verify;

/* Answers once, later: rc and JSON, which is the caller's only during the call.  rc: WP_ENOMEM, or what the call to the engine came to. */
typedef void (*wp_verify_fn)(void *arg, int rc, const char *why, struct wp_buf *json);

/* Takes over the reference to w.  NULL: out of memory, and w is let go. */
struct wp_verify *wp_verify(struct wp_gate *g, struct wp_worker *w, wp_verify_fn fn, void *arg);
void wp_verify_cancel(struct wp_verify *v); /* no answer comes; NULL does nothing */

/* What the fleet knows of a rank, as it is now. */
struct wp_verify_rank {
    uint32_t number, holder;
    const char *feed;
    uint64_t next;
    uint32_t block_size;
    uint64_t kv_tokens;
    double kv_usage, running; /* of the worker; negative: unknown */
};
bool wp_fleet_verify_rank(struct wp_fleet *f, const struct wp_worker *w, uint32_t rank, struct wp_verify_rank *out); /* false: it is gone */

#endif
