/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/kvfeed.h - follows one rank's KV events by the book: a SUB and a DEALER socket, a
 * msgpack reader of its own, copies counted by hash and tier.  It shares no code with what writes
 * the events, and asks no mercy: a message, an event or a field that is not as vLLM's captures have
 * it is a failed expectation.
 */
#ifndef WP_TESTS_LIB_KVFEED_H
#define WP_TESTS_LIB_KVFEED_H

#include "base/map.h"
#include "base/str.h"

#include <jansson.h>

struct kv_feed {
    void *context, *sub, *dealer;
    char topic[128], endpoint[128], replay[128];
    uint32_t rank, block_size;
    bool as_array, tier_only, bare;
    bool lossy;    /* asks soon, because what does not come may not come at all */
    bool holes_ok; /* numbers may be used for nothing */
    uint64_t next;
    double last_ts;
    struct wp_map held[3]; /* announced hash -> copies, by tier */
    struct wp_map chain,
        seed; /* announced hash -> what index/identity.h calls it; the seed of its prompt */
    size_t live, replayed, late, gaps, holes, cleared, stores,
        removals;        /* gaps: after the first live one */
    uint64_t first_live; /* number of the first batch that came live; UINT64_MAX: none */
    struct wp_buf log;   /* a line a batch: "7 C S3 R1 S1cpu" */
};

/* The rest of f is set by the caller before. */
void kv_feed_open(struct kv_feed *f, const char *endpoint, const char *replay);
void kv_feed_close(struct kv_feed *f);
/* Takes what comes live, and asks for what does not, until the batch before n has been applied. */
void kv_feed_to(struct kv_feed *f, uint64_t n);
/* Asks for all from there on and applies what is new; returns how many replies came before the end
 * marker. */
size_t kv_feed_ask(struct kv_feed *f, uint64_t from);
void kv_feed_forget(struct kv_feed *f); /* the publisher started anew: what the old one said is
                                           gone, and so are its connections */
/* The rank's object of GET /sim/cache: the same hashes, copies and chains.  Returns the number of
 * blocks. */
size_t kv_feed_expect(const struct kv_feed *f, const json_t *rank);

/* One value, numbers modulo 2^64, binary as the number in its last eight bytes; NULL when it is
 * malformed. */
json_t *kv_msgpack(const unsigned char *p, size_t n);

#endif
