/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/zsock.h - ZeroMQ sockets on a loop.
 *
 * The library does its input and output on a thread of its own.  A socket's descriptor only says that
 * the library has news for it, and any call may swallow those news: so after each call a socket is
 * read until it says that it is empty.  To read a long burst to its end would hold up everything
 * else, so a socket gets a share a turn, sockets take turns, and what is left is read on the next
 * turn of the loop, without waiting for the descriptor.
 *
 * Threads: the loop's.  Nothing here waits; names are never resolved by the library (dial.h).
 */
#ifndef WP_ADAPTERS_EVENTS_ZSOCK_H
#define WP_ADAPTERS_EVENTS_ZSOCK_H

#include "base/err.h"
#include "base/str.h"
#include "net/loop.h"

enum {
    WP_ZSOCK_FRAMES = 6,          /* more are counted, not kept */
    WP_ZSOCK_SHARE = 64,          /* messages that a socket may read before the next has its turn */
    WP_ZSOCK_TURN = 256,          /* messages in a turn of the loop, over all sockets */
    WP_ZSOCK_TURN_BYTES = 4 << 20, /* and bytes: the message that goes past is the turn's last */
};

struct wp_zctx; /* one a loop */
struct wp_zsock;

/* A whole message; the callback's only during the call. */
struct wp_zmessage {
    struct wp_str frame[WP_ZSOCK_FRAMES]; /* the first of n */
    size_t n;
    int fd; /* the connection it came on, as the library numbers them: it may be used again; -1: unknown */
};

/* What happens to a socket's connections, from the library's monitor. */
enum wp_zevent {
    WP_ZEVENT_ACCEPTED,  /* fd */
    WP_ZEVENT_UP,        /* hands were shaken; no fd */
    WP_ZEVENT_DOWN,      /* fd: it was up, or hands were not shaken in time */
    WP_ZEVENT_RETRY,     /* could not connect, and tries again */
    WP_ZEVENT_STRANGER,  /* what is there does not speak ZeroMQ */
};

/* A callback may close any socket, its own too; of a closed socket nothing more is heard. */
struct wp_zsock_ops {
    void (*message)(void *arg, struct wp_zsock *s, const struct wp_zmessage *m);
    void (*event)(void *arg, enum wp_zevent event, int fd); /* NULL: no monitor */
    void (*drained)(void *arg);                             /* empty for now; may be NULL */
};

struct wp_zsock_conf {
    int type; /* ZMQ_SUB (subscribed to everything) or ZMQ_DEALER */
    unsigned heartbeat_ms, heartbeat_timeout_ms;
    const struct wp_zsock_ops *ops;
    void *arg;
};

/* Errors: WP_ENOMEM and the library's. */
int wp_zctx_create(struct wp_zctx **out, struct wp_loop *loop, struct wp_err *err);
/*
 * Every socket must have been closed.  The library ends on another thread, because it may have to wait
 * for its own; fn (may be NULL) is called later than this call, on the loop.
 */
void wp_zctx_destroy(struct wp_zctx *z, void (*fn)(void *arg), void *arg);

/* Errors: WP_ENOMEM, EMFILE negated and the library's. */
int wp_zsock_open(struct wp_zsock **out, struct wp_zctx *z, const struct wp_zsock_conf *conf, struct wp_err *err);
void wp_zsock_close(struct wp_zsock *s); /* NULL does nothing */

int wp_zsock_connect(struct wp_zsock *s, const char *endpoint, struct wp_err *err);
void wp_zsock_disconnect(struct wp_zsock *s, const char *endpoint);
/* endpoint_out: what was bound, a port instead of *. */
int wp_zsock_bind(struct wp_zsock *s, const char *endpoint, char endpoint_out[], size_t n, struct wp_err *err);

/* Sends at once, or drops: never waits.  Errors: WP_EAGAIN when there is no connection to be. */
int wp_zsock_send(struct wp_zsock *s, const struct wp_str frame[], size_t n);

/*
 * Tells of what happened up to now, inside a message callback: when a message is odd, first see whether its connection is new.
 * False when the socket was closed by it.
 */
bool wp_zsock_events(struct wp_zsock *s);
/* There is something to read. */
bool wp_zsock_pending(struct wp_zsock *s);

#endif
