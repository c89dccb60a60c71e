/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/room.h - what the room of one block costs the fleet: a price that tunes itself from what a router sees anyway.
 *     price = c (q_gone + q_kept X)
 *     c       compute that is lost with one block: the mean over blocks whose last copy went
 *     q_gone  share of the last copies gone that were asked for again
 *     q_kept  share that would be, seen from near misses: requested blocks still held but about as old as those that go
 *     X       requests that one lost second delays: arrivals a second and worker x mean wait x 1 / (1 - busy share), the last at most 3
 * Why: under LRU the room of a block costs its compute times the hazard of reuse at the age at which blocks go.  The law of reuse
 * belongs to the load and not to the policy; only that age moves with it.  What was asked for again after it went tends to nothing
 * under a good policy; what was hit just in time does not, and carries the part that matters when a lost second delays many.
 * Source: the laboratory's page, "Room price that tunes itself", with its constants.
 *
 * Until the first block goes, room costs nothing.
 * All counts decay with a time constant of 300 s, and start from a prior of 10 % of 200 blocks.  One price for the whole fleet:
 * prices that differ between workers make long contexts wander.
 * Times are microseconds; a clock that goes backwards decays nothing.  Threads: one at a time.  No allocation.
 */
#ifndef WP_POLICIES_ROOM_H
#define WP_POLICIES_ROOM_H

#include "policies/policy.h"

struct wp_room {
    bool started, evicts;              /* anything was told; a block had to go */
    double each;                       /* what a block that is told of counts; 0: 1.  More where only a sample is told of */
    uint64_t since_us, at_us;          /* told first; decayed to */
    double left, left_age_us;          /* blocks that left a worker, and their ages */
    double gone, gone_us;              /* last copies gone, and their compute */
    double kept, again;                /* asked for: old and still held; gone, not long ago */
    double requests;                   /* a second, decayed */
    uint64_t requests_us;
    double busy;
    uint64_t busy_us;
};

void wp_room_init(struct wp_room *r);
/* A block has left a worker's last tier; age_us: since any request had it.  last: nobody has it any more; compute_us: of its tokens. */
void wp_room_gone(struct wp_room *r, uint64_t now_us, uint64_t age_us, bool last, double compute_us);
/* A block of a request, last asked for age_us ago; held by somebody; or on its way to somebody. */
void wp_room_asked(struct wp_room *r, uint64_t now_us, uint64_t age_us, bool held, bool on_its_way);
void wp_room_request(struct wp_room *r, uint64_t now_us);
/* From the workers at a decision.  block_us: the compute of a block of 512 tokens at the start of a prompt. */
void wp_room_price(struct wp_room *r, uint64_t now_us, const struct wp_worker_view w[], size_t n, double block_us,
                   struct wp_room_price *out);

#endif
