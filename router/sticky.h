/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/sticky.h - which worker made a stored response: only that engine process can give it again or go on from it.
 * The newest WP_STICKY_MAX are kept, the oldest goes first.  Threads: one at a time (the fleet's lock).
 */
#ifndef WP_ROUTER_STICKY_H
#define WP_ROUTER_STICKY_H

#include "base/map.h"
#include "base/str.h"

enum { WP_STICKY_MAX = 65536 };

struct wp_sticky {
    struct wp_map worker_of; /* hash of a response id -> worker key */
    uint64_t *ring;          /* the hashes in order of coming; made on first use */
    uint64_t next;
};

/* {.worker_of.seed = a secret} is an empty one.  Without memory nothing is remembered. */
void wp_sticky_put(struct wp_sticky *s, struct wp_str response_id, uint64_t worker_key);
bool wp_sticky_get(const struct wp_sticky *s, struct wp_str response_id, uint64_t *worker_key);
void wp_sticky_fini(struct wp_sticky *s);

#endif
