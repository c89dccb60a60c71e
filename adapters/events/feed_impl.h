/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/feed_impl.h - what feed.c, publisher.c and bound.c share.  Not for others.
 */
#ifndef WP_ADAPTERS_EVENTS_FEED_IMPL_H
#define WP_ADAPTERS_EVENTS_FEED_IMPL_H

#include "adapters/events/dial.h"
#include "adapters/events/endpoint.h"
#include "adapters/events/feed.h"
#include "adapters/events/zsock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"

enum {
    FD_NONE = -2, /* behind a bound socket: not heard yet, or its connection is not known any more */
};

struct wp_feeds {
    struct wp_loop *loop;
    struct wp_zctx *z;
    struct wp_list bounds; /* bound sockets, each shared by those who name its endpoint */
    uint64_t unclaimed;
};

/* A socket that we bind.  It goes with its last publisher. */
struct bound {
    struct wp_list link; /* in wp_feeds.bounds */
    struct wp_feeds *feeds;
    struct wp_zsock *s;
    struct wp_list publishers;
    struct wp_map by_topic;          /* hash of a topic -> some publisher that has it */
    char asked[WP_ENDPOINT_MAX];     /* as the configuration had it */
    char endpoint[WP_ENDPOINT_MAX];  /* as it is */
    unsigned busy;                   /* callbacks under way: it may not go under them */
    bool leaving;                    /* some publisher is */
    bool stranger;                   /* what is lost next never was a publisher's connection */
};

struct publisher {
    struct wp_list link; /* in wp_feed.publishers */
    struct wp_feed *feed;
    uint32_t port_rank; /* whose endpoint it is */
    uint32_t rank;      /* what the owner is told */
    struct wp_subscriber sub;
    uint64_t connections, losses;

    /* connect: a socket of its own */
    struct wp_zsock *live;
    struct wp_dial dial;
    bool stranger; /* what was there last is no publisher */
    /* bind: one of a socket's publishers */
    struct bound *bound;
    struct wp_list bound_link;
    bool claimed; /* topic is set, and so is rank */
    bool ranked;  /* rank is what batches say, not only where they come from */
    bool leaving; /* its connection was lost, but may have messages left */
    bool unsure;  /* somebody connected since it was heard or asked: its next message may be another's */
    bool maybe_lost; /* a connection was lost, and it may have been this one's */
    bool due;     /* something is to be done to it by whoever walks the list */
    struct wp_str topic;
    int fd;

    bool has_replay;
    struct wp_zsock *replay;
    struct wp_dial replay_dial;
    bool replay_up;    /* frames may be sent */
    bool replay_clean; /* nothing is on its way */
    bool replay_heard; /* it has answered, ever */
    bool rank_seen;    /* a batch was read: rank is final */
    uint64_t replay_start;

    struct wp_timer silent; /* the replay */
    struct wp_timer grace;
    struct wp_timer more; /* held messages go on being let go */
    enum wp_feed_state state;
    const char *why, *trouble; /* trouble: why there is no connection; static or note */
    char note[WP_ENDPOINT_MAX + 64];
};

struct wp_feed {
    struct wp_feeds *feeds;
    const struct wp_feed_ops *ops;
    void *arg;
    struct wp_feed_conf conf; /* its strings are in arena */
    struct wp_arena arena;
    struct wp_endpoint events, replay;
    struct wp_list publishers; /* the first `ranks` are made with the feed, in order */
    size_t n_publishers;
    struct wp_timer gone;
    struct wp_log_limit log;
    bool closing;
    struct { /* the batch that was peeked at, until the next one is read */
        struct wp_str payload; /* p NULL: none */
        struct wp_batch_head head;
        bool ok;
    } last;
};

/* publisher.c */
struct publisher *wp_publisher_new(struct wp_feed *f, uint32_t port_rank, bool replay); /* NULL: no memory */
int wp_publisher_connect(struct publisher *p, struct wp_err *err); /* a socket of its own */
void wp_publisher_close(struct publisher *p); /* nothing is heard any more */
void wp_publisher_free(struct publisher *p);
/* Its connection is there (again).  sync: the same, when we only suppose so and go to ask. */
void wp_publisher_connected(struct publisher *p);
void wp_publisher_sync(struct publisher *p);
bool wp_publisher_resync(struct publisher *p);
void wp_publisher_lost(struct publisher *p);
/* The message has the number that comes next. */
bool wp_publisher_expects(const struct publisher *p, const struct wp_zmessage *m);
void wp_publisher_live(struct publisher *p, const struct wp_zmessage *m);
/* The head of the message at hand, before it is known whose it is. */
bool wp_feed_peek(struct wp_feed *f, struct wp_str payload, struct wp_batch_head *out);

/* bound.c */
int wp_bound_join(struct publisher *p, const char *endpoint, struct wp_err *err);
/* It was forgotten: the next new topic and rank may have it. */
void wp_bound_unclaim(struct publisher *p);
void wp_bound_leave(struct publisher *p);

#endif
