/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/pool.h - connections to origins: dialled, lent to one holder at a time, kept idle in between.
 * For net/client.c.
 *
 * An origin is a host and a port, and how TLS is spoken with it, if at all.  It keeps its idle connections, newest first (the oldest then age
 * and go), and what is known of the peer's patience: the configured limit, what the peer promises
 * (Keep-Alive: timeout=N), and what it does: when it closes a connection that was idle for t, none
 * is kept for longer than 3/4 of t for the next minute. An idle connection is being read: an end,
 * an error or a byte closes it, so that it is never handed out again. Dialling looks the name up
 * and tries its addresses one after another, each for its share of the time left.
 *
 * Threads: a pool belongs to one loop.
 */
#ifndef WP_NET_POOL_H
#define WP_NET_POOL_H

#include "base/list.h"
#include "base/str.h"
#include "net/stream.h"

enum { WP_ORIGINS_MAX = 1024, WP_ORIGIN_BUCKETS = 256 }; /* unused ones beyond are forgotten */

struct wp_uplink;

/* Told to whoever holds the connection; never inside a call of this header. */
struct wp_uplink_ops {
    /* Connected, or not: then the uplink is gone, and why says which part failed ("name",
     * "connect") or what TLS has against it. */
    void (*on_up)(void *holder, int rc, const char *why);
    void (*on_read)(void *holder, const char *p, size_t n);
    void (*on_eof)(void *holder);
    void (*on_error)(void *holder, int rc);
    void (*on_drain)(void *holder);
};

struct wp_pool {
    struct wp_loop *loop;
    const struct wp_uplink_ops *ops;
    void (*on_empty)(struct wp_pool *p); /* after wp_pool_close(): the last connection is closed */
    size_t idle_max;                     /* an origin */
    uint64_t idle_us;                    /* 0: the default, and a peer may promise more */
    struct wp_list origin[WP_ORIGIN_BUCKETS];
    struct wp_list unused; /* origins without user and connection, longest unused first */
    size_t n_origins, n_idle;
    struct wp_list all; /* uplinks */
    bool closing;
};

struct wp_origin {
    struct wp_pool *pool;
    struct wp_list bucket, unused;
    struct wp_list idle; /* uplinks, newest first */
    size_t n_idle, users, links;
    unsigned epoch;       /* wp_pool_forget() moves it: older connections are not kept */
    uint64_t promised_us; /* UINT64_MAX: nothing */
    uint64_t learnt_us, learnt_end_us; /* learnt_us holds until then */
    struct wp_tls *tls; /* a reference; NULL: none */
    uint16_t port;
    size_t host_n;
    char host[];
};

struct wp_uplink {
    struct wp_stream stream;
    struct wp_origin *origin;
    void *holder; /* NULL: idle or closing */
    struct wp_buf
        in; /* the holder's: bytes read and not yet used; its memory stays with the connection */
    /* The pool's own: */
    struct wp_list link, idle;
    struct wp_timer timer; /* dialling: this address' share; idle: the limit */
    struct dial *dial;     /* until connected */
    uint64_t idle_since_us;
    unsigned epoch;
    bool open, again, closing; /* the stream exists; dial the next address once it is closed */
};

void wp_pool_init(struct wp_pool *p, struct wp_loop *l, const struct wp_uplink_ops *ops);
/* Closes every connection, held or not; on_empty comes later, unless none is open when this returns
 * (see `all`). */
void wp_pool_close(struct wp_pool *p);
/* Closes idle connections to a host's port, whatever is spoken there; those in use are not kept when they come back. */
void wp_pool_forget(struct wp_pool *p, struct wp_str host, uint16_t port);

/* Finds or makes; counts a user.  NULL: out of memory. */
struct wp_origin *wp_origin_take(struct wp_pool *p, struct wp_str host, uint16_t port,
                                 struct wp_tls *tls);
void wp_origin_drop(struct wp_origin *o);
void wp_origin_promise(struct wp_origin *o, uint64_t seconds); /* Keep-Alive: timeout=seconds */

struct wp_uplink *wp_uplink_reuse(struct wp_origin *o, void *holder); /* NULL: none is idle */
/* Answers on_up.  NULL: out of memory. */
struct wp_uplink *wp_uplink_dial(struct wp_origin *o, uint64_t until_us, void *holder);
void wp_uplink_give(struct wp_uplink *u);              /* back; kept if it may be */
void wp_uplink_close(struct wp_uplink *u, bool reset); /* the holder hears no more */

#endif
