/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/rooms.h - what the room of a block costs, from facts: when blocks were asked for, and when they left.
 * A price that tunes itself (policies/room.h), one for each space of the index.  Facts are of a sample of the prompts' blocks, one in 512
 * tokens (wp_index_watch()), and of a share of those where a fleet holds more than the table of a space has room for; the figures are
 * multiplied back.  The table keeps when a block was asked for last, also after it is gone: 2 MiB a space, made with the first decision whose
 * prompt is of tokens; the one that was asked for later keeps a place that two would have.
 * Where no worker tells of its blocks there are no facts, and the price is not tuned: the settings stand in.
 *
 * Threads: any.  Lock order: the fleet, the index, rooms; wp_rooms_left() is called under the index's lock.
 */
#ifndef WP_ROUTER_ROOMS_H
#define WP_ROUTER_ROOMS_H

#include "index/index.h"
#include "policies/policy.h"

struct wp_rooms;

enum { WP_ROOMS_MAX = 64 }; /* spaces; those beyond have no tuned price */

int wp_rooms_create(struct wp_rooms **out, uint64_t secret, struct wp_err *err); /* Errors: WP_ENOMEM */
void wp_rooms_destroy(struct wp_rooms *r);

struct wp_rooms_ask { /* a decision */
    uint32_t space, block_size;
    const uint64_t *local;            /* of its prompt, n */
    size_t n, held, coming;           /* leading blocks that somebody has; that somebody has or that are on their way to somebody */
    const struct wp_profile *profile; /* of whoever gets it */
    double capacity_tokens;           /* of all workers that have such blocks, over all their tiers */
};
/* The request was placed. */
void wp_rooms_asked(struct wp_rooms *r, uint64_t now_us, const struct wp_rooms_ask *a);
/* For wp_index_watch(); arg: the rooms. */
void wp_rooms_left(void *arg, const struct wp_index_left *l);
/* The price now; not tuned as long as the space is not known.  p: what a block of 512 tokens costs at least. */
void wp_rooms_price(struct wp_rooms *r, uint64_t now_us, uint32_t space, const struct wp_worker_view w[], size_t n,
                    const struct wp_profile *p, struct wp_room_price *out);

#endif
