/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/feed.h - the KV events of one worker, over real ZeroMQ sockets.
 *
 * A worker has a publisher for each data-parallel rank, at its event port plus the rank, and the same
 * for its replay port.  Either we connect to it, or it connects to a socket that we bind.  A bound
 * socket may serve several workers: then a topic tells them apart, and the rank inside the batch.
 * What the messages mean is subscriber.h; this is where they come from, and what happens around it:
 *
 *   - a connection that comes (back) asks for a replay, or probes whether it is still the same publisher;
 *   - one that is lost starts the grace period, after which the owner is told that entries are gone;
 *   - a replay has a socket of its own.  One that was not answered to its end is closed, so that what is still on
 *     its way from it can never be taken for the answer to the next;
 *   - thousands of messages are read in shares, every publisher in its turn, some each turn of the loop.
 *
 * One worker's trouble (names that do not resolve, a publisher that floods, lies or hangs) costs that worker alone.
 * Threads: the loop's.  Owner: the caller.  Nothing calls back before wp_feed_open() has returned.
 */
#ifndef WP_ADAPTERS_EVENTS_FEED_H
#define WP_ADAPTERS_EVENTS_FEED_H

#include "adapters/events/subscriber.h"
#include "base/err.h"
#include "net/loop.h"

struct wp_feeds; /* one a loop: what its feeds share */
struct wp_feed;

enum {
    WP_FEED_RANKS_MAX = 256,
    WP_FEED_PUBLISHERS_MAX = 256, /* of a worker, when it connects to us: ranks and topics are what it says they are */
};

struct wp_feed_conf {
    struct wp_str name;   /* the worker, for log lines */
    struct wp_str events; /* "tcp://10.0.0.1:5557"; "tcp://0.0.0.0:5557" or [::] to bind */
    bool bind;
    struct wp_str replay; /* absent: there is none */
    /* Of a publisher behind a bound socket: the whole topic or the pod in it.  Absent: whatever nobody else claims. */
    struct wp_str topic;
    uint32_t ranks; /* 0: 1 */
    uint64_t reply_us, grace_us;                 /* 0: 5 s, 30 s */
    unsigned heartbeat_ms, heartbeat_timeout_ms; /* 0: 5,000 and 15,000 */
    size_t pending_max, pending_bytes;           /* 0: as subscriber.h has it */
    const struct wp_sub_mark *marks; /* of each rank, used by the open alone: where to go on; not when bound.  NULL: nowhere */
};

/* A callback may close the feed; then it hears no more but closed. */
struct wp_feed_ops {
    /* As struct wp_sub_conf's. */
    bool (*head)(void *arg, struct wp_str payload, struct wp_batch_head *out);
    /* rank: what the batch said, or else the one whose endpoint it came from. */
    void (*apply)(void *arg, uint32_t rank, uint64_t seq, struct wp_str payload);
    void (*clear)(void *arg, uint32_t rank, enum wp_clear how); /* doubt or gone: all that this rank contributed */
    void (*state)(void *arg, uint32_t rank, enum wp_feed_state state, const char *why); /* it changed; may be NULL */
    void (*step)(void *arg, uint32_t rank, const struct wp_sub_step *step); /* every one, before it is done; may be NULL */
    void (*closed)(void *arg); /* the last call; may be NULL */
};

/* One publisher as it is now. */
struct wp_feed_status {
    bool resumed;  /* goes on from a mark that nothing has proved yet */
    struct wp_sub_mark mark;
    uint32_t rank;
    enum wp_feed_state state;
    const char *why; /* good until the next turn of the loop */
    bool whole;      /* known from its first batch, or its last restart */
    bool timed;
    double last_ts; /* of the last batch applied, by the publisher's clock, if timed */
    uint64_t next;  /* number expected */
    size_t held;    /* messages waiting for a replay */
    uint64_t connections, losses;
    struct wp_sub_counts counts;
};

/* Errors: WP_ENOMEM and the library's. */
int wp_feeds_create(struct wp_feeds **out, struct wp_loop *loop, struct wp_err *err);
/* Every feed must have been closed (closed need not have been called).  fn, when not NULL, comes later. */
void wp_feeds_destroy(struct wp_feeds *f, void (*fn)(void *arg), void *arg);
/* Messages on bound sockets that no worker's topic claimed. */
uint64_t wp_feeds_unclaimed(const struct wp_feeds *f);

/*
 * Errors: WP_EINVAL: an endpoint is wrong, or event and replay ports of the ranks overlap; WP_EEXIST: a second worker without
 * a topic at one bound endpoint; WP_ENOMEM; the library's (an address in use).  A host that does not answer is no error.
 */
int wp_feed_open(struct wp_feed **out, struct wp_feeds *f, const struct wp_feed_conf *conf,
                 const struct wp_feed_ops *ops, void *arg, struct wp_err *err);
/* At any time.  The memory goes on the next turn of the loop. */
void wp_feed_close(struct wp_feed *f); /* NULL does nothing */

/* As wp_subscriber_resync() for a rank.  Not from a callback. */
bool wp_feed_resync(struct wp_feed *f, uint32_t rank);
size_t wp_feed_publishers(const struct wp_feed *f);
void wp_feed_status(const struct wp_feed *f, size_t i, struct wp_feed_status *out);
/* What a rank's event socket is bound to, or connects to; "" while its name is being looked up. */
const char *wp_feed_endpoint(const struct wp_feed *f, uint32_t rank);

#endif
