/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/snapshot.h - the index in a file, so that a restarted router is warm.
 *
 * A snapshot is taken by a child process: it sees the memory of the moment when it was forked, for ever, and writes it with nothing but write(2), to
 * FILE.new, which takes FILE's place when it is on the disk.  Whoever changes the index waits as long as the fork takes; readers and this process
 * go on.  One at a time.  If it fails, the old file stays, and the log and a metric say why.
 * Taken every index.snapshot_s, when asked (POST /index/snapshot), and by this process itself at its end, when nothing changes any more.
 * Events are applied on gate 0's loop, and so is the fork: each feed's mark is that of what the file holds.
 *
 * Threads: gate 0's loop.
 */
#ifndef WP_ROUTER_SNAPSHOT_H
#define WP_ROUTER_SNAPSHOT_H

#include "router/feeds.h"
#include "router/router.h"

struct wp_snapshots;

int wp_snapshots_create(struct wp_snapshots **out, struct wp_gate *g, struct wp_feed_desk *d, struct wp_err *err);
/* Begins one.  Errors: WP_ENOTSUP (no file is configured), WP_EAGAIN (one is being taken), others of fork. */
int wp_snapshots_take(struct wp_snapshots *s, struct wp_err *err);
/* The last one, by this process, and no more.  The desk is still there. */
void wp_snapshots_finish(struct wp_snapshots *s);
void wp_snapshots_stop(struct wp_snapshots *s);    /* no more, and no last one: the file is another process's from now on */
void wp_snapshots_destroy(struct wp_snapshots *s); /* after a finish or a stop, and after the last scrape */

#endif
