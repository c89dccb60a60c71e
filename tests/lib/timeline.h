/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/timeline.h - plays what a running engine published, message by message, through subscriber, decoder and
 * publisher into an index, as the router does, but without sockets: one subscriber for each socket, one publisher and one
 * holder for each (socket, rank).
 */
#ifndef WP_TESTS_LIB_TIMELINE_H
#define WP_TESTS_LIB_TIMELINE_H

#include "adapters/events/ingest.h"
#include "adapters/events/subscriber.h"

enum { WP_TIMELINE_RANKS = 4 };

struct wp_timeline {
    struct wp_index *ix;
    struct wp_overlap o;
    struct wp_timeline_feed {
        struct wp_timeline *of;
        struct wp_subscriber sub;
        struct wp_event_batch batch; /* what head() read, for the step that follows */
        bool open;
    } feed[WP_TIMELINE_RANKS];
    struct wp_ingest *rank[WP_TIMELINE_RANKS];
    uint32_t holder[WP_TIMELINE_RANKS];
    uint32_t told_size; /* block size that publishers are told; 0: they learn it */
    uint64_t now_us;
};

void wp_timeline_init(struct wp_timeline *t, uint32_t told_size);
void wp_timeline_fini(struct wp_timeline *t); /* verifies the index first */

void wp_timeline_live(struct wp_timeline *t, size_t socket, const struct wp_str frame[3]);
/* A payload on its own, applied by the publisher of that rank. */
void wp_timeline_payload(struct wp_timeline *t, size_t rank, struct wp_str payload);

/* What the rank's engine would reuse of a prompt, in blocks, of the space that has more; *doubtful of them in doubt (NULL: not wanted). */
size_t wp_timeline_claim(struct wp_timeline *t, size_t rank, const uint32_t token[], size_t n, struct wp_str lora,
                         struct wp_str salt, uint32_t *doubtful);

#endif
