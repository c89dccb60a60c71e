/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/client.h - the one HTTP client: router, load generator, adapters and control command all stand on it.
 *
 * Happy path: wp_call() takes an idle connection to the origin from the pool or makes one (names are resolved off the loop,
 * connecting has a deadline), writes head and body, and answers on_head, on_body..., on_over(call, 0).  The connection
 * goes back to the pool if both sides may keep it and the message was framed; an idle one that the peer closes or writes
 * on is dropped at once.
 * Failing: on_over(call, rc) with call->phase telling how far it got.  A reused connection that dies before a byte of
 * the answer is the reuse race: phase WP_CALL_SENT, call->reused and call->race true; who may repeat the request repeats it.
 * Cancelling: wp_call_cancel() at any time; on_over(call, WP_ECANCELED) comes later, once; the connection is reset, so
 * that the peer cannot take it for a half-close.
 *
 * An answer that comes while the body is still being written is taken, and the connection is closed.  Of 1xx answers 16 are
 * dropped; 101 is refused, nobody asked for it.  An answer with a length that ends early is WP_EEOF; a chunked one whose
 * last chunk came is whole.  Bytes after the message: the connection is not kept.
 *
 * Threads: a client belongs to one loop.
 */
#ifndef WP_NET_CLIENT_H
#define WP_NET_CLIENT_H

#include "base/mem.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/tls.h"

struct wp_client;
struct wp_call;

struct wp_client_conf {
    size_t idle_per_origin; /* connections kept; 0: 64 */
    uint64_t idle_us;       /* kept for at most that long; 0: 4 s (engines close at 5), or what the peer promises: net/pool.h */
    uint32_t head_bytes;    /* of an answer's head; 0: 65536 */
};

int wp_client_create(struct wp_client **out, struct wp_loop *l, const struct wp_client_conf *conf, struct wp_err *err);
/* Cancels what is under way.  closed(arg) comes last, later than this call; may be NULL.  wp_call() then gives NULL. */
void wp_client_destroy(struct wp_client *c, void (*closed)(void *arg), void *arg);
/* Closes the idle connections to an origin (a worker that has gone). */
void wp_client_forget(struct wp_client *c, struct wp_str host, uint16_t port);
size_t wp_client_idle(const struct wp_client *c);
struct wp_loop *wp_client_loop(const struct wp_client *c);

enum wp_call_phase {
    WP_CALL_CONNECT, /* nothing was written: any request may be repeated elsewhere */
    WP_CALL_SENT,    /* at least a byte was written, no byte of the final answer has come */
    WP_CALL_HEAD,    /* the answer's head has come */
    WP_CALL_BODY,    /* and some of its body */
};

struct wp_call_ops {
    void (*on_sent)(struct wp_call *c);                           /* the first byte goes out now; may be NULL */
    void (*on_head)(struct wp_call *c, const struct wp_head *h);  /* final answer; 1xx are dropped */
    void (*on_body)(struct wp_call *c, const char *p, size_t n);
    void (*on_over)(struct wp_call *c, int rc); /* exactly once, last: c is gone afterwards */
};

/*
 * What to ask.  All slices and arrays need to live only during wp_call(); the body is referenced.  Content-Length is sent with a
 * body and, as 0, with a POST, PUT or PATCH without; never chunked.
 */
struct wp_call_spec {
    struct wp_str host; /* name or address, without brackets */
    uint16_t port;
    struct wp_tls *tls;       /* NULL: none; the connection takes a reference */
    struct wp_str method, target;
    const struct wp_field *field; /* sent in order, less Host, Content-Length, Connection, Transfer-Encoding: they are ours */
    size_t n_fields;
    struct wp_str host_field;   /* the Host field; absent: host:port */
    struct wp_blob *body;       /* NULL: none */
    uint64_t connect_us;        /* 0: 2 s, names included */
    uint64_t first_byte_us;     /* from the last byte written to the answer's first, and the longest time in which the peer
                                   takes nothing of the request; 0: none */
    uint64_t idle_us;           /* longest silence inside the answer's body; 0: none */
    uint64_t total_us;          /* from wp_call() to on_over; 0: none */
    bool fresh;                 /* do not reuse a connection */
    const struct wp_call_ops *ops;
    void *user;
};

struct wp_call { /* the caller's view */
    struct wp_client *client;
    void *user;
    enum wp_call_phase phase;
    bool reused;      /* it runs, or ran, on a connection that had served before */
    bool race;        /* in on_over: the reuse race, exactly: reused, and the peer ended it before a byte came */
    const char *why;  /* static text beside a failing rc: "connect", "first byte", "chunk", ... or NULL */
    uint64_t began_us, connected_us, sent_us, first_byte_us; /* 0: not yet; sent_us: the last byte written */
};

/* NULL when out of memory; everything else is told by on_over, later than this call. */
struct wp_call *wp_call(struct wp_client *c, const struct wp_call_spec *spec);
/* Back-pressure: no on_body until resumed; deadlines for silence rest.  on_over may come all the same. */
void wp_call_pause(struct wp_call *c);
void wp_call_resume(struct wp_call *c);
void wp_call_cancel(struct wp_call *c);

#endif
