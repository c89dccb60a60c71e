/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/feeds.h - the KV events of every worker that has a feed, on their way from the socket to the index.
 *
 *     adapters/events: feed --> subscriber --> decode --> ingest --> index
 *                                                            |
 *     here: opened when the worker's model is known, closed when it goes; what they know of themselves is told to the fleet
 *     (coverage, state, block size) and to the metrics, and what was lost or never came is said in the log.
 *
 * Threads: gate 0's loop.  The index guards itself; the fleet's facts are told under its lock.
 */
#ifndef WP_ROUTER_FEEDS_H
#define WP_ROUTER_FEEDS_H

#include "router/router.h"

struct wp_feed_desk;

int wp_feed_desk_create(struct wp_feed_desk **out, struct wp_gate *g, struct wp_err *err);
/* Compares the fleet with the feeds that are open: opens and closes.  Call it when workers come, go or learn what they serve. */
void wp_feed_desk_sync(struct wp_feed_desk *d);
/* Appends a record (router/warm.h) for each rank of which the index may hold something.  Errors: WP_ENOMEM, WP_ETOOBIG. */
int wp_feed_desk_save(struct wp_feed_desk *d, struct wp_buf *out);
/* closed(arg) comes last, later than this call. */
void wp_feed_desk_destroy(struct wp_feed_desk *d, void (*closed)(void *arg), void *arg);

#endif
